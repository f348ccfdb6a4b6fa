"""Gathers and scatters of parts and copies of a table as one: which are joined, with values and gradients kept."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from codelet.jaxprs.equations import inner_jaxprs
from codelet.jaxprs.rebuild import inline
from lowering.jaxprs.join_tables import join_tables
from tests.at_once import at_once, with_slopes
from tests.examples import examples, few
from tests.ops_cases import array, assert_alike

MODES = ("clip", "fill", "promise_in_bounds")


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


# --- drawn ------------------------------------------------------------------------------------------------------


@st.composite
def _tables(draw):
    """Some tables of zeros to which updates are added, and the sum of these, by batches along any dimensions."""
    batches = draw(st.lists(st.integers(1, 4), min_size=1, max_size=2))
    rows, columns = draw(st.integers(1, 5)), draw(st.sampled_from([(), (1,), (3,), (2, 3)]))
    count, mode = draw(st.integers(1, 4)), draw(st.sampled_from(MODES))
    ends = (0, rows - 1) if mode == "promise_in_bounds" else (-2, rows + 1)
    indices = array((*batches, count), jnp.int32, draw(st.integers(0, 99)), *ends)
    # Whole numbers, which are summed alike in any order.
    updates = array((*batches, count, *columns), jnp.int32).astype(draw(st.sampled_from([jnp.float32, jnp.bfloat16])))
    at = draw(st.integers(0, len(columns)))
    is_filled, kept = draw(st.booleans()), draw(st.integers(0, len(batches) - 1))
    is_put_last, is_regrouped = draw(st.booleans()), draw(st.booleans())
    size = rows * math.prod(columns)
    first = draw(st.sampled_from([n for n in range(1, size + 1) if size % n == 0]))

    def one(indices, updates):
        table = jnp.full((*columns[:at], rows, *columns[at:]), 1 if is_filled else 0, updates.dtype)
        where = (slice(None),) * at + (indices,)
        moved = jnp.moveaxis(updates, 0, at) if at else updates
        return table.at[where].add(moved, mode=mode, wrap_negative_indices=False)

    def function(indices, updates):
        run = one
        for _ in batches:
            run = jax.vmap(run)
        made = run(indices, updates)
        if is_regrouped:  # elements in another order, so many at a time, with the batches between them
            turned = jnp.moveaxis(made, len(batches), -1).reshape(*made.shape[: len(batches)], first, size // first)
            return jnp.moveaxis(turned, len(batches), 0).sum((*range(1, kept + 2),))
        if is_put_last:  # rows in two parts, and batches behind them, as blocks that sum some elements have it
            made = made.reshape(*made.shape[: len(batches)], -1)
            return jnp.moveaxis(made, 0, -1).sum((*range(kept), -1))
        return made.sum(tuple(range(kept + 1)))

    return function, (indices, updates), is_filled


@examples(20)
@given(_tables())
def test_sums_of_tables_are_one_table(drawn):
    function, arguments, is_filled = drawn
    closed = _joined(function, *arguments)
    batches = arguments[0].shape[:-1]
    if not is_filled and math.prod(batches) > 1 and batches[0] > 1:
        params = [eqn.params for eqn in _equations(closed) if eqn.primitive.name == "scatter-add"]
        assert len(params) == 1
        assert len(params[0]["dimension_numbers"].operand_batching_dims) < len(batches)
        assert not params[0]["unique_indices"]
        assert not params[0]["indices_are_sorted"]


@st.composite
def _blocks(draw):
    """Rows in blocks, of which each looks up, or updates, those that are its own; and by how much indices are less."""
    blocks, rows, count = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(1, 5))
    columns = draw(st.sampled_from([(), (2,)]))
    dtype = draw(st.sampled_from([jnp.int32, jnp.uint32]))
    low = -3 if dtype == jnp.int32 else 0
    indices = array((count,), dtype, draw(st.integers(0, 99)), low, blocks * rows + 2)
    step = draw(st.sampled_from([rows, rows, rows, rows + 1, 1]))
    table, updates = array((blocks * rows, *columns)), array((count, *columns), seed=1)
    op = draw(st.sampled_from(["gather", "add", "set", "max"]))
    put = {"add": lax.scatter_add, "set": lax.scatter, "max": lax.scatter_max}.get(op, lax.scatter)
    fill = draw(st.sampled_from([0, 0, 1]))

    def function(table, updates, indices):
        def one(block, first):
            own = indices - first.astype(indices.dtype)
            windows = tuple(range(1, 1 + len(columns)))
            if op == "gather":
                numbers = lax.GatherDimensionNumbers(windows, (0,), (0,))
                return lax.gather(block, own[:, None], numbers, (1, *columns), mode="fill", fill_value=fill)
            numbers = lax.ScatterDimensionNumbers(windows, (0,), (0,))
            return put(block, own[:, None], updates, numbers, mode="drop")

        firsts = lax.iota(jnp.int32, blocks) * step
        made = jax.vmap(one)(table.reshape(blocks, rows, *columns), firsts)
        return made.sum(0) if op == "gather" else made.reshape(table.shape)

    return function, (table, updates, indices), blocks, step == rows and (op != "gather" or not fill)


@examples(20)
@given(_blocks())
def test_blocks_of_rows_are_all_rows(drawn):
    function, arguments, blocks, is_joined = drawn
    closed = _joined(function, *arguments)
    found = [eqn for eqn in _equations(closed) if eqn.primitive.name.split("-")[0] in ("gather", "scatter")]
    assert len(found) == 1
    if blocks > 1:
        assert (not found[0].params["dimension_numbers"].operand_batching_dims) == is_joined


@st.composite
def _parts_of_rows(draw):
    """Rows of a table in parts of any sizes, each updated by what is for it, and put side by side; by which mistake."""
    batch, sizes = draw(st.integers(1, 3)), draw(st.lists(st.integers(1, 4), min_size=2, max_size=4))
    count, rows = draw(st.integers(1, 3)), sum(sizes)
    dtype = draw(st.sampled_from([jnp.int32, jnp.uint32]))
    low = -3 if dtype == jnp.int32 else 0
    indices, updates = array((batch, count), dtype, draw(st.integers(0, 99)), low, rows + 2), array((batch, count))
    table = array((batch, rows), seed=1)
    put = draw(st.sampled_from([lax.scatter_add, lax.scatter, lax.scatter_max]))
    mistake = draw(st.sampled_from([None] * 4 + ["start", "updates", "mode", "order"]))
    is_new, is_turned, wrong = draw(st.booleans()), draw(st.booleans()), draw(st.integers(0, len(sizes) - 1))
    firsts = np.cumsum([0, *sizes[:-1]])

    def function(table, updates, indices):
        made = []
        for k, (first, size) in enumerate(zip(firsts, sizes, strict=True)):
            is_wrong, own = k == wrong, jnp.zeros((batch, size)) if is_new else table[:, first : first + size]
            less = first + 1 if is_wrong and mistake == "start" else first
            at = indices[..., None] - jnp.asarray(less, indices.dtype)
            given = updates + 1 if is_wrong and mistake == "updates" else updates
            mode = "clip" if is_wrong and mistake == "mode" else "drop"
            numbers = lax.ScatterDimensionNumbers((), (1,), (1,), (0,), (0,))
            if is_turned and k % 2:  # as another dimension of a table that lies otherwise
                numbers = lax.ScatterDimensionNumbers((), (0,), (0,), (1,), (0,))
                made.append(put(own.T, at, given, numbers, mode=mode).T)
            else:
                made.append(put(own, at, given, numbers, mode=mode))
        return jnp.concatenate(made[::-1] if mistake == "order" else made, 1)

    return function, (table, updates, indices), len(sizes), mistake


@examples(20)
@given(_parts_of_rows())
def test_parts_of_rows_side_by_side_are_all_rows(drawn):
    function, arguments, parts, mistake = drawn
    closed = _joined(function, *arguments)
    found = [eqn for eqn in _equations(closed) if eqn.primitive.name.startswith("scatter")]
    assert len(found) == (1 if mistake is None else parts)


# --- by hand ----------------------------------------------------------------------------------------------------


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


@few("classes", [3, 7, 17, 997], quick=["7", "17"])
def test_picks_of_any_number_of_classes_are_given_back_once(classes):
    scores, labels = array((64, classes)), array((64,), jnp.int32, 3, 0, classes)
    slope = jax.grad(lambda x, i: jnp.sin(jnp.take_along_axis(x, i[:, None], 1)).sum())
    run = cl.trace(slope, scores, labels)
    assert _count(run.jaxpr, "scatter-add") == 1
    assert_alike(run(scores, labels), slope(scores, labels))


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


# --- gradients as graphs ----------------------------------------------------------------------------------------

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


@few("name", GATHERS, quick=["rows of 1", "columns", "two indices", "along", "added", "beyond a tile"])
def test_gradients_of_gathers_touch_what_their_edges_do(name):
    """`cl.gradient` of a gather runs as one scatter into one table, and is plain JAX's."""
    function, shapes = GATHERS[name]
    arguments = [array(shape, seed=k) for k, shape in enumerate(shapes)]
    given = [*arguments, jnp.asarray(PLACES)][: function.__code__.co_argcount]
    loss = lambda *own: jnp.sum(function(*own) ** 2)  # noqa: E731
    traced = cl.trace(loss, *given)
    wrt = list(traced.inputs[: len(arguments)])
    found = cl.gradient(traced.graph, traced.outputs, wrt, program=traced.program)
    program, outputs = cl.Sequence(found.forward, found.backward), [found[own] for own in wrt]
    lowered = cl.lower(traced.graph, program, inputs=list(traced.inputs), outputs=outputs)
    touched = sum(own.size for own in given) + 2 * jax.eval_shape(function, *given).size
    assert _largest(lowered.jaxpr) <= 4 * touched
    plain = jax.grad(loss, tuple(range(len(arguments))))
    made, expected = at_once(lambda *own: lowered.flat(list(own)), plain)(*given)
    for own, other in zip(made, expected, strict=True):
        assert_alike(own, other)
