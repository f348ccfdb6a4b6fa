"""Which tables are joined, and what becomes of constants."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from benchmarks.traced_steps import lowered_vertices
from codelet.jaxprs.equations import inner_jaxprs
from codelet.jaxprs.rebuild import inline
from lowering.jaxprs.compare_tables import compare_tables
from lowering.jaxprs.equal_constants import equal_constants_once
from lowering.jaxprs.join_tables import join_tables
from lowering.jaxprs.one_number import as_one_number
from tests.at_once import at_once, with_slopes
from tests.examples import few
from tests.ops_cases import array, assert_alike
from tests.patterns.tables import UNIQUE, looked_up_and_put
from tests.same_jaxprs import after, equations

# --- join_tables ------------------------------------------------------------------------------------------------------


def _equations(jaxpr: Any) -> list[Any]:
    own = getattr(jaxpr, "jaxpr", jaxpr)
    return [eqn for eqn in own.eqns for eqn in (eqn, *(one for body in inner_jaxprs(eqn) for one in _equations(body)))]


def _largest(closed: Any) -> int:
    """The elements of the largest array that an equation makes."""
    return max(math.prod(getattr(var.aval, "shape", ())) for eqn in _equations(closed) for var in eqn.outvars)


def _count(closed: Any, *names: str) -> int:
    return sum(eqn.primitive.name in names for eqn in _equations(closed))


def _joined(function: Any, *arguments: Any) -> Any:
    """A function's jaxpr after the rule, whose values and slopes are the function's own."""
    closed = join_tables(inline(jax.make_jaxpr(function)(*arguments)))
    floats = [k for k, own in enumerate(arguments) if jnp.issubdtype(own.dtype, jnp.inexact)]

    def of_floats(run: Any) -> Any:
        def own(*given: Any) -> Any:
            every = list(arguments)
            for k, value in zip(floats, given, strict=True):
                every[k] = value
            return run(*every)

        return own

    ours = of_floats(lambda *given: jax_core.jaxpr_as_fun(closed)(*given)[0])
    both = at_once(with_slopes(ours), with_slopes(of_floats(function)))(*(arguments[k] for k in floats))
    for made, plain in zip(*(jax.tree.leaves(own) for own in both), strict=True):
        assert_alike(made, plain)
    return closed


def _onto_zeros(indices, updates, rows=7):
    return jnp.zeros((rows, *updates.shape[1:]), updates.dtype).at[indices].add(updates)


INDICES = jnp.array([3, 0, 6, 3, -1])


@pytest.mark.parametrize("columns", [(), (4,)])
def test_a_table_that_is_added_to_an_array_takes_its_updates(columns):
    closed = _joined(lambda x, y: x * 2 + _onto_zeros(INDICES, y), array((7, *columns)), array((5, *columns)))
    assert _count(closed, "add", "add_any", "broadcast_in_dim") == _count(
        jax.make_jaxpr(lambda x, y: (2 * x).at[INDICES].add(y))(array((7, *columns)), array((5, *columns))),
        *("add", "add_any", "broadcast_in_dim"),
    )


def test_a_table_that_others_read_is_added():
    def function(x, y):
        table = _onto_zeros(INDICES, y)
        return x + table + table**2

    assert _count(_joined(function, array((7,)), array((5,))), "add") > 1


def test_a_table_whose_rearrangement_others_read_is_scattered_once():
    """As the gradient of a cross entropy: the cotangent of what labels pick is summed, and added."""

    def function(x, y):
        table = jnp.zeros((5, 7)).at[jnp.arange(5), jnp.array([1, 0, 6, 6, 2])].add(x).reshape(35)
        return jnp.concatenate([y + table.reshape(5, 7), table.sum() * jnp.ones((1, 7))])

    assert _count(_joined(function, array((5,)), array((5, 7))), "scatter-add") == 1


def test_a_table_that_lies_otherwise_is_added():
    closed = _joined(lambda x, y: x + _onto_zeros(INDICES, y).T, array((4, 7)), array((5, 4)))
    assert _count(closed, "add") > 0


@pytest.mark.parametrize("order", [1, -1], ids=["in order", "turned"])
def test_parts_of_updates_are_one_list(order):
    def of_parts(y):
        u, v = lax.split(y, (6, 4), 1)
        first = jnp.zeros((7, 3)).at[jnp.arange(6).reshape(2, 3)].add(u.T.reshape(2, 3, 3))
        second = jnp.zeros((7, 3)).at[jnp.arange(4)].add(v.T)
        return first + second if order == 1 else second + first

    assert _count(_joined(of_parts, array((3, 10))), "scatter-add") == 1


@pytest.mark.parametrize("count", [2**10, 2**16 + 1])
def test_many_updates_of_two_tables_stay_apart(count):
    """They run beside each other; few of one list, or parts of one array, are one list."""
    indices = jax.random.randint(jax.random.key(0), (2, count), 0, 60_000)

    def apart(y, z):
        return jnp.zeros(60_000).at[indices[0]].add(y) + jnp.zeros(60_000).at[indices[1]].add(z)

    def of_parts(y):
        return apart(*lax.split(y, [count] * 2))

    one = array((count,))
    assert _count(_joined(apart, one, 2 * one), "scatter-add") == (1 if count < 2**16 else 2)
    assert _count(_joined(of_parts, jnp.concatenate([one, 2 * one])), "scatter-add") == 1


def test_parts_of_rows_that_change_by_other_functions_stay_apart():
    numbers, updates = lax.ScatterDimensionNumbers((), (0,), (0,)), jnp.zeros(3)

    def function(table, at):
        def applied(change, rows, places):
            own = jax.make_jaxpr(lambda x, i: lax.scatter_apply(x, i, change, numbers, update_shape=(3,), mode="drop"))
            (eqn,) = (eqn for eqn in own(rows, places).jaxpr.eqns if eqn.primitive.name == "scatter")
            return eqn.primitive.bind(rows, places, updates, **eqn.params)

        left = applied(lambda x: 2 * x, table[:2], at[:, None])
        return jnp.concatenate([left, applied(lambda x: x + 100, table[2:], at[:, None] - 2)])

    given = array((5,)), jnp.array([0, 4, 2])
    closed = join_tables(inline(jax.make_jaxpr(function)(*given)))
    assert _count(closed, "scatter") == 2
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(closed)(*given)[0], function(*given))


def test_parts_of_rows_that_others_read_stay_apart():
    def function(table, at):
        left, right = table[:2].at[at].add(1.0, mode="drop"), table[2:].at[at - 2].add(1.0, mode="drop")
        return jnp.concatenate([left, right]) + left.sum()

    assert _count(_joined(function, array((5,)), jnp.array([0, 4, 7])), "scatter-add") == 2


@few("classes", [3, 7, 17, 997], quick=["7"])
def test_picks_of_any_number_of_classes_are_given_back_once(classes):
    scores, labels = array((64, classes)), array((64,), jnp.int32, 3, 0, classes)
    slope = jax.grad(lambda x, i: jnp.sin(jnp.take_along_axis(x, i[:, None], 1)).sum())
    run = cl.trace(slope, scores, labels)
    assert _count(run.jaxpr, "scatter-add") == 1
    assert_alike(run(scores, labels), slope(scores, labels))


@pytest.mark.slow
def test_short_floats_are_summed_as_they_were():
    """Eight thousand ones in bfloat16 are no more than 256 where one after another is added."""
    closed = join_tables(
        jax.make_jaxpr(
            lambda y: jax.vmap(lambda own: jnp.zeros(3, own.dtype).at[jnp.zeros(8, int)].add(own))(y).sum(0)
        )(jnp.ones((1000, 8), jnp.bfloat16))
    )
    (value,) = jax_core.jaxpr_as_fun(closed)(jnp.ones((1000, 8), jnp.bfloat16))
    assert float(value[0]) == 8000


def test_loops_are_looked_into():
    def function(y):
        def turn(total, own):
            return total + jax.vmap(lambda y: _onto_zeros(INDICES, y))(own).sum(0), None

        return lax.scan(turn, jnp.zeros(7), y)[0]

    assert _largest(_joined(function, array((2, 3, 5)))) <= 30


def test_what_has_no_table_stays():
    closed = jax.make_jaxpr(lambda x: x.sum(0))(array((3, 4)))
    assert join_tables(closed) is closed


_RANDOM = np.random.default_rng(0)


PLACES = _RANDOM.integers(0, 90, 501)


GATHERS = {
    "known": (lambda x: x[PLACES], [(90,)]),
    "rows of 1": (lambda x, i: x[i], [(90, 1)]),
    "rows of 3": (lambda x, i: x[i], [(90, 3)]),
    "rows of 64": (lambda x, i: x[i], [(90, 64)]),
    "columns": (lambda x: x[:, PLACES], [(8, 90)]),
    "two indices": (lambda x: x[PLACES % 10, PLACES // 10], [(10, 9)]),
    "along": (lambda x: jnp.take_along_axis(x, PLACES[:480].reshape(12, 40) % 30, 1), [(12, 30)]),
    "added": (lambda x, y, i: x.at[i].add(y), [(90, 3), (501, 3)]),
    "row sums": (lambda v, x: jax.ops.segment_sum(v * x[PLACES], np.sort(PLACES), 90), [(501,), (90,)]),
    "beyond a tile": (lambda x: x[PLACES * 2000], [(180_000,)]),
}


@few("name", GATHERS, quick=["rows of 1", "two indices", "along", "added", "beyond a tile"])
def test_gradients_of_gathers_touch_what_their_edges_do(name):
    """`cl.gradient` of a gather runs as one scatter into one table, and is plain JAX's."""
    function, shapes = GATHERS[name]
    arguments = [array(shape, seed=k) for k, shape in enumerate(shapes)]
    given = [*arguments, jnp.asarray(PLACES)][: function.__code__.co_argcount]
    loss = lambda *own: jnp.sum(function(*own) ** 2)  # noqa: E731
    traced = cl.trace(loss, *given)
    wrt = list(traced.inputs[: len(arguments)])
    found = cl.gradient(traced.graph, of=traced.outputs, wrt=wrt, program=traced.program)
    program, outputs = cl.Sequence(found.forward, found.backward), [found[own] for own in wrt]
    lowered = cl.lower(traced.graph, program, inputs=list(traced.inputs), outputs=outputs)
    touched = sum(own.size for own in given) + 2 * jax.eval_shape(function, *given).size
    assert _largest(lowered.jaxpr) <= 4 * touched
    plain = jax.grad(loss, tuple(range(len(arguments))))
    made, expected = at_once(lambda *own: lowered.flat(list(own)), plain)(*given)
    for own, other in zip(made, expected, strict=True):
        assert_alike(own, other)


# --- join_tables, of one table after another --------------------------------------------------------------------------


SIZE, TABLE = 97, 13


READ = np.random.default_rng(0).integers(0, TABLE, SIZE).astype(np.int32)


PUT = np.random.default_rng(1).permutation(SIZE).astype(np.int32)


def _names(function: Callable[..., Any], *arguments: Any) -> list[str]:
    """The gathers and scatters that are left of a function, whose values and slopes stay."""
    closed = join_tables(inline(jax.make_jaxpr(function)(*arguments)))
    ours = lambda *given: jax_core.jaxpr_as_fun(closed)(*given)[0]  # noqa: E731
    both = at_once(with_slopes(ours), with_slopes(function))(*arguments)
    for made, plain in zip(*map(jax.tree.leaves, both), strict=True):
        assert_alike(made, plain)
    names = [eqn.primitive.name for eqn in closed.jaxpr.eqns]
    return [name for name in names if name in ("gather", "scatter")]


@pytest.mark.parametrize(
    "reason", ["named twice", "beyond the ends", "read beyond the ends", "some are left", "rows", "given", "added"]
)
def test_tables_that_stay_apart(reason):
    """The values of each are compared above all."""
    read, put = READ.copy(), PUT.copy()
    match reason:
        case "named twice":
            put[put == 0] = SIZE  # which drops it, and leaves what was there
        case "beyond the ends":
            put[3] = -1 - SIZE
        case "read beyond the ends":
            read[3] = TABLE
    x = array((TABLE, 2) if reason == "rows" else (TABLE,))
    if reason == "some are left":
        assert "scatter" in _names(lambda x: looked_up_and_put(x, read, put, SIZE + 1, start=1.0), x)
    elif reason == "rows":
        both = lambda x: jnp.zeros((SIZE, 2)).at[jnp.asarray(put)].set(x[jnp.asarray(read)], **UNIQUE)  # noqa: E731
        assert "scatter" in _names(both, x)
    elif reason == "given":
        places = jnp.asarray(put).astype(np.float32)
        made = lambda x, put: looked_up_and_put(x, read, put.astype(jnp.int32))  # noqa: E731
        assert "scatter" in _names(made, x, places)
    elif reason == "added":
        other = lambda x: jnp.ones(SIZE).at[jnp.asarray(put)].add(x[jnp.asarray(read)], **UNIQUE)  # noqa: E731
        assert "scatter" not in _names(other, x)  # it is another primitive
    else:
        mode = "clip" if reason == "read beyond the ends" else "promise_in_bounds"
        assert "scatter" in _names(lambda x: looked_up_and_put(x, read, put, mode=mode, start=1.0), x)


@cl.codelet
def total(x):
    return jnp.sum(x)


@cl.codelet
def total_of_sines(x):
    return jnp.sum(jnp.sin(x))


@few("codelet, others", [(total, []), (total_of_sines, ["scatter"])], quick=["total, ()"])
def test_the_gradient_of_sums_over_rows_of_a_table(codelet, others):
    """Every element is in one row: what the rows give back to them is looked up, where it is nothing else."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (SIZE,)), graph.add_variable("y", (TABLE,))
    ends = np.sort(np.random.default_rng(2).integers(0, SIZE + 1, TABLE - 1))
    rows = cl.table(PUT, offsets=np.concatenate([[0], ends, [SIZE]]))
    i = cl.grid(TABLE)
    graph.add_vertex("total", codelet, x=x[rows[i]], out=y[i])
    cotangent = array((TABLE,), seed=1)
    found = cl.gradient(graph, of=y, wrt=[x], cotangent=cotangent)
    both = cl.Sequence(found.forward, found.backward)
    lowered = cl.lower(graph, both, inputs=[x], outputs=[found[x]])
    values = array((SIZE,))
    own = cl.interpret(graph, values={"x": np.asarray(values)}, outputs=[found[x].source.name], program=both)
    assert_alike(lowered.flat([values])[0], own[found[x].source.name])
    names = [eqn.primitive.name for eqn in lowered.jaxpr.jaxpr.eqns]
    assert [own for own in names if own == "scatter"] == others
    assert "gather" in names


# --- compare_tables ---------------------------------------------------------------------------------------------------


MANY = 100


def compared(function, x):
    """A jaxpr before and after, of which the values are compared."""
    closed = jax.make_jaxpr(function)(x)
    after = compare_tables(closed)
    for own, other in zip(jax_core.jaxpr_as_fun(after)(x), jax_core.jaxpr_as_fun(closed)(x), strict=True):
        np.testing.assert_array_equal(own, other)
    return after


def kinds(closed):
    return sorted(str(np.asarray(own).dtype) for own in closed.consts)


@few("dtype", [np.int8, np.uint8, np.int16, np.int32, np.uint32], quick=["uint8"])
def test_every_comparison_on_either_side(dtype):
    limits, x = np.iinfo(dtype), jnp.arange(float(MANY))
    table = jnp.asarray(np.resize(np.array([0, 3, 4, limits.min, limits.max], dtype), MANY))
    numbers = [dtype(number) for number in (3, limits.min, limits.max)]
    for compare in (jnp.equal, jnp.not_equal, jnp.less, jnp.less_equal, jnp.greater, jnp.greater_equal):
        for number in numbers:
            for own in ((table, number), (number, table)):
                assert kinds(compared(lambda x, c=compare, own=own: jnp.where(c(*own), x, -x), x)) == ["bool"]


@pytest.mark.parametrize(("dtype", "left"), [(np.uint8, ["uint8"]), (np.int16, ["bool", "bool"])])
def test_answers_take_no_more_memory_than_the_table(dtype, left):
    table, x = jnp.asarray(np.arange(MANY) % 7, dtype), jnp.arange(float(MANY))
    assert kinds(compared(lambda x: jnp.where(table <= 3, x, -x) + jnp.where(table == 5, x, 2 * x), x)) == left


def test_the_same_question_is_answered_once():
    table, x = jnp.arange(MANY) % 2, jnp.arange(float(MANY))
    after = compared(lambda x: (jnp.where(table == 1, x, 0.0), jnp.where(table == 1, 1.0, x)), x)
    assert kinds(after) == ["bool"] * len(after.consts)
    assert len({id(own) for own in after.consts}) == 1
    assert not [eqn for eqn in after.jaxpr.eqns if eqn.primitive.name == "eq"]


@pytest.mark.parametrize(
    "function",
    [
        lambda table, x: jnp.where(table == 1, x, table),  # it is read as well
        lambda table, x: (jnp.where(table == 1, x, 0.0), table),  # it is a result
        lambda table, x: jnp.where(table == x.astype(int), x, 0.0),  # not with a number
        lambda table, x: sum(jnp.where(table == k, x, k) for k in range(5)),  # the answers take more memory
    ],
)
def test_tables_that_are_not_only_compared_stay(function):
    table, x = jnp.arange(MANY) % 3, jnp.arange(float(MANY))
    assert "int32" in kinds(compared(lambda x: function(table, x), x))


def test_floats_and_arguments_stay():
    table, x = jnp.arange(float(MANY)), jnp.arange(MANY)
    after = compared(lambda x: (table == 3.0) & (x == 3), x)
    assert [eqn.primitive.name for eqn in after.jaxpr.eqns].count("eq") == 2


@pytest.mark.slow
def test_a_flag_of_vertices_is_a_byte_for_each():
    """And the program means what it says, with its gradient."""

    @cl.codelet
    def exchange(low, high, up):
        least, most = jnp.minimum(low, high), jnp.maximum(low, high)
        return {"low": jnp.where(up == 1, least, most), "high": jnp.where(up == 1, most, least)}

    graph = cl.Graph()
    x = graph.add_variable("x", (2 * MANY,))
    i = cl.grid(MANY)
    graph.add_vertex("one", exchange, low=x[2 * i], high=x[2 * i + 1], up=1 - i // 2 % 2)
    run = cl.lower(graph, inputs=[x], outputs=[x])
    assert {str(leaf.dtype) for leaf in jax.tree.leaves(run)} == {"bool"}
    values = {"x": np.random.default_rng(0).standard_normal(2 * MANY, np.float32)}
    expected = cl.interpret(graph, values=values, outputs=[x])["x"]
    np.testing.assert_array_equal(jax.jit(run)(values)["x"], expected)
    weights = np.arange(2.0 * MANY, dtype=np.float32)
    slopes = jax.jit(jax.grad(lambda v: run(v)["x"] @ weights))(values)["x"]
    np.testing.assert_array_equal(weights, slopes[np.argsort(values["x"])][np.argsort(expected).argsort()])


# --- equal_constants_once ---------------------------------------------------------------------------------------------


def test_tables_of_several_shapes_are_one():
    table = np.arange(100, dtype=np.int32)
    made = equal_constants_once(jax.make_jaxpr(lambda: (jnp.asarray(table), jnp.asarray(table.reshape(20, 5) + 0)))())
    assert [np.shape(own) for own in made.consts] == [(100,)]
    assert [own.shape for own in jax_core.jaxpr_as_fun(made)()] == [(100,), (20, 5)]


# --- as_one_number ----------------------------------------------------------------------------------------------------


def bits(array):
    return np.asarray(array).tobytes()


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, np.nan, 3, True, 1 + 2j, jnp.bfloat16(0.1)])
@pytest.mark.parametrize("shape", [(65,), (9, 11)])
def test_one_number_is_broadcast_bit_for_bit(number, shape):
    own = jnp.broadcast_to(jnp.asarray(number), shape)
    closed = jax.make_jaxpr(lambda: own[...])()
    made = as_one_number(closed)
    assert len(closed.consts) == 1
    assert not made.consts
    assert bits(jax_core.jaxpr_as_fun(made)()[0]) == bits(own)


@pytest.mark.parametrize("at", [0, 1, 37, 199])
def test_another_bit_is_kept(at):
    own = np.zeros(200, np.float32)
    own[at] = -0.0
    made = as_one_number(jax.make_jaxpr(lambda: jnp.asarray(own) + 0)())
    assert len(made.consts) == 1


def test_loops_and_choices_broadcast_what_they_are_given():
    zeros, ones = jnp.zeros(70), jnp.ones((3, 4))

    def function(x, n):
        twos = jnp.broadcast_to(2.0, (3, 4))

        def turn(carried, k):
            a, b = carried
            more = lax.cond(k > 1, lambda own, c: own + c[0, 0], lambda own, c: own * c[1, 1], a, ones)
            return (more + zeros + b[0, 0], b), a

        (a, b), rows = lax.scan(turn, (x, twos), jnp.arange(4))
        last = lax.while_loop(
            lambda own: own[0] < n + zeros[0], lambda own: (own[0] + ones[0, 1], own[1] + ones), (0.0, b)
        )
        return a, b, rows, last

    made = after(as_one_number, function, jnp.linspace(0, 1, 70), jnp.float32(3))
    assert not made.consts
    for eqn in equations(made):
        for body in (own for own in eqn.params.values() if isinstance(own, jax_core.ClosedJaxpr)):
            names = [own.primitive.name for own in body.jaxpr.eqns]
            assert eqn.primitive.name not in ("scan", "while") or "broadcast_in_dim" in names


@pytest.mark.parametrize("number", [0.5, 3, True, np.uint8(200)])
def test_a_literal_that_a_loop_is_given_is_one_in_its_body(number):
    x = jnp.arange(4).astype(jnp.asarray(number).dtype)
    loop = jax.jit(lambda x, own: lax.scan(lambda a, k: (jnp.where(k == own, k, a), k + own), x[0], x))
    made = after(as_one_number, lambda x: loop(x, number), x)
    (scan,) = (eqn for eqn in equations(made) if eqn.primitive.name == "scan")
    body = scan.params["jaxpr"].jaxpr
    (given,) = (var for var, atom in zip(body.invars, scan.invars, strict=True) if isinstance(atom, jax_core.Literal))
    assert all(given not in eqn.invars for eqn in body.eqns)


@pytest.mark.parametrize(("put", "left"), [(0.0, 0), (-0.0, 2), (1.0, 2)])
def test_a_number_that_an_array_has_everywhere_is_not_put_there(put, left):
    def function(k):
        zeros = jnp.zeros(12)
        some = zeros.at[jnp.array([1, 7])].set(put, mode="promise_in_bounds")
        return lax.dynamic_update_slice(some.reshape(3, 4), jnp.full((2, 2), put), (k, 0))

    made = after(as_one_number, function, jnp.int32(1))
    names = [eqn.primitive.name for eqn in equations(made)]
    assert sum(name in ("scatter", "dynamic_update_slice") for name in names) == left


def _filled(*parts, before=0.0, shape=(3, 5)):
    """An array into which numbers are put, each from an element in row-major order on, as many as there are."""

    def function(k):
        array = jnp.full(shape, before)
        for first, size, number in parts:
            flat = jnp.full(size, number) if isinstance(number, float) else jnp.full(size, 2.0) + k
            array = lax.dynamic_update_slice(array.reshape(-1), flat, (first,)).reshape(shape)
        return jnp.sin(array)

    return function


@pytest.mark.parametrize(
    ("parts", "is_one"),
    [
        ([(0, 9, 1.0), (9, 6, 1.0)], True),
        ([(0, 9, 1.0), (5, 10, 1.0)], True),
        ([(0, 9, 1.0), (10, 5, 1.0)], False),  # an element between them is zero
        ([(9, 6, 1.0), (0, 9, 1.0)], False),  # which is one number as well, but is not looked for
        ([(0, 9, 1.0), (9, 5, 1.0)], False),
        ([(0, 9, 1.0), (9, 6, 2.0)], False),
        ([(0, 9, 1.0), (0, 2, 2.0), (9, 6, 1.0)], False),
        ([(0, 9, 1.0), (9, 6, None)], False),
        ([(0, 9, 0.0), (9, 6, -0.0)], False),
    ],
)
def test_an_array_that_numbers_fill_is_that_number(parts, is_one):
    made = after(as_one_number, _filled(*parts, before=0.5), jnp.float32(1))
    names = [eqn.primitive.name for eqn in inline(made).eqns]
    assert names.count("dynamic_update_slice") == len(parts) - is_one


@pytest.mark.parametrize(
    ("sizes", "start", "is_one"), [((1, 2), (2, 3), True), ((1, 2), (9, 9), True), ((2, 2), (1, 3), False)]
)
def test_blocks_fill_an_array_where_they_are_stretches(sizes, start, is_one):
    """Of 3 x 5 elements, after the first thirteen; a block beyond the array is put at its end."""

    def function():
        most = lax.dynamic_update_slice(jnp.zeros(15), jnp.ones(13), (0,)).reshape(3, 5)
        return lax.dynamic_update_slice(most, jnp.ones(sizes), start) + 1

    made = after(as_one_number, function)
    names = [eqn.primitive.name for eqn in inline(made).eqns]
    assert names.count("dynamic_update_slice") == 2 - is_one


@pytest.mark.parametrize(("numbers", "is_one"), [((1.0, 1.0), True), ((0.0, -0.0), False), ((1.0, 2.0), False)])
def test_one_number_in_parts_is_one(numbers, is_one):
    def function():
        one, other = jnp.split(jnp.full(7, numbers[0]), [4])
        return jnp.concatenate([one, other, jnp.full(3, numbers[1])]) + 1

    made = after(as_one_number, function)
    assert ("concatenate" not in [eqn.primitive.name for eqn in inline(made).eqns]) == is_one


def test_what_a_loop_changes_is_no_number():
    def function(x):
        return lax.fori_loop(0, 3, lambda _, own: (own[0] + x, own[0]), (jnp.zeros(3), jnp.zeros(3)))

    after(as_one_number, function, jnp.ones(3))


def test_what_is_padded_with_a_constant_is_padded():
    """Zeros that lie in memory would be read from there in every turn."""
    zeros = np.zeros(100, np.float32)
    traced = cl.trace(lambda x: jnp.concatenate([x, zeros])[50:150] * 2, np.ones(100, np.float32))
    assert not traced.lowered.jaxpr.consts
    assert not lowered_vertices(traced).jaxpr.consts
