"""Updates in place: what XLA would miscompile is emitted in another way, and only that."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.in_place import Inputs, update_safely, updates_in_danger
from tests.at_once import at_once
from tests.examples import examples, few
from tests.patterns.updates import updates_among_moves
from tests.strategies import Case, cases
from tests.ways import assert_close, assert_same, check_engine, interpreted, lowered


def five_lines(x):
    """What XLA miscompiles, in plain JAX: an update of a reshape by what is read before it, then another."""
    n = x.shape[0]
    read = x[:-1, 1::2].reshape(n - 1, 2, 1)
    h = lax.dynamic_update_slice(x.reshape(n, 2, 2), read, (1, 0, 1))
    return lax.dynamic_update_slice(h.reshape(n, 4), jnp.full((1, 2), 0.75), (0, 0))


SQUARE = np.arange(16, dtype=np.float32).reshape(4, 4)
RIGHT = [[0.75, 0.75, 2, 3], [4, 1, 6, 3], [8, 5, 10, 7], [12, 9, 14, 11]]
WRONG = [[0.75, 0.75, 2, 3], [4, 1, 6, 3], [8, 1, 10, 3], [12, 1, 14, 3]]


@pytest.mark.skipif(jax.default_backend() != "cpu", reason="the mistake is of XLA's CPU backend")
def test_xla_still_miscompiles_updates_of_reshapes():
    with jax.disable_jit():
        np.testing.assert_array_equal(five_lines(SQUARE), RIGHT)
    message = "XLA compiles this rightly now: `lowering/jaxprs/in_place.py` may go with older releases"
    np.testing.assert_array_equal(jax.jit(five_lines)(SQUARE), WRONG, err_msg=message)


def test_what_xla_miscompiles_is_replaced():
    closed = jax.make_jaxpr(five_lines)(SQUARE)
    assert len(updates_in_danger(closed)) == 1
    safe = update_safely(closed)
    np.testing.assert_array_equal(jax.jit(jax_core.jaxpr_as_fun(safe))(SQUARE)[0], RIGHT)
    assert not updates_in_danger(safe)


def test_starts_that_are_known_late_are_clamped_as_they_are():
    """A start of an equation was counted from the end already, where it had to be."""

    def update(x, k):
        h = lax.dynamic_update_slice(
            x.reshape(4, 2, 2), x[:1, :2].reshape(1, 2, 1), (k, 0, 1), allow_negative_indices=False
        )
        return lax.dynamic_update_slice(h.reshape(4, 4), jnp.full((1, 2), 0.75), (0, 0))

    closed = jax.make_jaxpr(update)(SQUARE, 0)
    assert len(updates_in_danger(closed)) == 1
    safe = jax.jit(jax_core.jaxpr_as_fun(update_safely(closed)))
    for start in (-1, -9, 2, 9):
        with jax.disable_jit():
            right = update(SQUARE, start if start > 0 else jnp.asarray(start))
        np.testing.assert_array_equal(safe(SQUARE, start)[0], right)


# --- every kind of write after every other ----------------------------------------------------------------

WRITES = {
    "columns": lambda x: x[1:, 1::2],
    "rows": lambda x: x[1::2, 1:],
    "both": lambda x: x[::2, 1::2],
    "few": lambda x: x[1, ::3],
    "back": lambda x: x[::-2, ::-1],
    "transposed": lambda x: x.T[1::2, 2:],
    "blocks": lambda x: x.reshape(2, 2, 2, 2)[:, 1, :, 1:],
    "flat": lambda x: x.flatten()[3:12],
    "flat, strided": lambda x: x.flatten()[1:12:2],
    "box": lambda x: x[1:3, 2:],
    "table": lambda x: x[[2, 0], 1:],
    "whole": lambda x: x,
}
READS = {
    "up": lambda x, shape: x.flatten()[: int(np.prod(shape))].reshape(shape),
    "down": lambda x, shape: x.flatten()[::-1][: int(np.prod(shape))].reshape(shape),
    "across": lambda x, shape: x.T.flatten()[16 - int(np.prod(shape)) :].reshape(shape),
    "columns": lambda x, shape: cl.concatenate([x[:, 1::2].flatten(), x[:, ::2].flatten()])[
        : int(np.prod(shape))
    ].reshape(shape),
}


def chains(turns=1):
    """A graph in which a variable for each pair of writes is written twice from what it holds, and its inputs."""
    graph, program = cl.Graph(), []
    strided = [WRITES[name] for name in ("columns", "rows", "both", "back", "blocks", "flat, strided")]
    for k, (first, second) in enumerate(itertools.product(strided, WRITES.values())):
        x = graph.add_variable(f"x{k}", (4, 4))
        reads = list(READS.values())
        for write, read in ((first, reads[k % 4]), (second, reads[k // 4 % 4])):
            target = write(x)
            program.append(cl.Copy(read(x, target.shape), target))
        program.append(cl.Copy(graph.add_constant(f"c{k}", np.full(2, 0.75, np.float32)), x[0, :2]))
    variables = [v.name for v in graph.variables if v.name.startswith("x")]
    random = np.random.default_rng(turns)
    values = {name: random.permutation(16).astype(np.float32).reshape(4, 4) for name in variables}
    body = cl.Sequence(*program)
    return graph, body if turns == 1 else cl.Repeat(turns, body), variables, values


@pytest.mark.parametrize("turns", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_strided_writes_followed_by_other_writes(turns):
    graph, program, variables, values = chains(turns)
    run = cl.lower(graph, program, inputs=variables, outputs=variables)
    result = jax.jit(run)(values)
    expected = cl.interpret(graph, values=values, outputs=variables, program=program)
    for name in variables:
        np.testing.assert_array_equal(result[name], expected[name], name)


@cl.codelet
def one_more(a):
    return a + 1


def nested(kind):
    """Updates of a reshaped `z` by what is read of `z`, where XLA sees both only after it has inlined something."""
    graph = cl.Graph()
    z, x, y = graph.add_variable("z", (16,)), graph.add_variable("x", (4, 4)), graph.add_variable("y", ())
    i = cl.grid(12)
    with graph.record() as update:
        graph.add_vertex("update", one_more, a=z[i + 2], out=x[1:].flatten()[i])
    with graph.record() as again:
        graph.add_vertex("again", one_more, a=y, out=x[cl.grid(4), 0])
    start = cl.Copy(z.reshape(4, 4), x)
    if kind == "function":
        a, b = graph.add_variable("a", (4, 4)), graph.add_variable("b", (12,))
        with graph.record() as body:
            graph.add_vertex("within", one_more, a=b[i], out=a[1:].flatten()[i])
        function = graph.add_function(body, {"a": a, "b": b})
        program = [start, cl.Call(function, a=x, b=z[2:14]), again]
    elif kind == "choice":
        program = [start, cl.If(graph.add_constant("yes", np.asarray(True)), update, again), again]
    elif kind == "loop":
        program = [cl.Repeat(2, [start, cl.Repeat(1, update), again, cl.Copy(x.flatten()[::-1], z)])]
    else:
        left = graph.add_variable("left", ())
        with graph.record() as look:
            goes_on = graph.add_vertex("look", cl.codelet(lambda x: x > 0), x=left)
        with graph.record() as count:
            graph.add_vertex("count", cl.codelet(lambda left: {"left": left - 1}), left=left)
        program = [
            start,
            cl.Copy(y, left),
            cl.RepeatWhile(look, goes_on, [start, update, again, count], max_iterations=3),
        ]
    return graph, cl.Sequence(*program), z, y, x


@pytest.mark.parametrize("kind", ["function", "choice", "loop", "bounded"])
def test_updates_through_what_xla_inlines(kind):
    graph, program, z, y, x = nested(kind)
    values = {"z": np.arange(16, dtype=np.float32) ** 2, "y": np.float32(2)}
    run = jax.jit(cl.lower(graph, program, inputs=[z, y], outputs=[x]))
    np.testing.assert_array_equal(
        run(values)["x"], cl.interpret(graph, values=values, outputs=[x], program=program)["x"]
    )


def test_updates_that_xla_compiles_rightly_stay_in_place():
    def stays(function, *arrays, inputs: Inputs = "carried"):
        return not updates_in_danger(jax.make_jaxpr(function)(*arrays), inputs)

    update = lax.dynamic_update_slice
    # Of an array in its own shape; of a reshape by what comes from elsewhere; of what a loop carries.
    assert stays(lambda x: update(x, x.reshape(-1)[2:8].reshape(2, 3), (1, 0)), SQUARE)
    assert stays(lambda x, u: update(x.reshape(4, 2, 2), u, (0, 0, 1)), SQUARE, np.ones((4, 2, 1), np.float32))
    assert stays(lambda x: update(jnp.sin(x) + 1, x[:2], (1, 0)), SQUARE)
    turn = lambda both, _: ((update(both[0], both[1][3:7, None], (0, 2)), both[1]), ())  # noqa: E731
    assert stays(lambda x: lax.scan(turn, (x, x.reshape(16)), None, length=3), SQUARE)
    assert not stays(lambda x: lax.scan(turn, (x.reshape(4, 4), x), None, length=1), SQUARE.reshape(16))
    # A function of the graph may be given anything, and the whole arrays in shapes of XLA's own.
    for own in (SQUARE, SQUARE[0]):
        by_another = lambda x, z: update(x, z[:2, None].reshape(2, -1), (0, 2))  # noqa: E731
        assert not stays(by_another, SQUARE, own, inputs="any")
        assert stays(by_another, SQUARE, own, inputs="apart")
    assert not stays(lambda x: update(x, x.reshape(-1)[2:8].reshape(2, 3), (1, 0)), SQUARE, inputs="apart")


@few(
    "size, known",
    itertools.product([(2, 1, 1), (3, 2, 1), (1, 2, 2)], [True, False]),
    quick=["(3, 2, 1), False"],
)
def test_the_other_ways_mean_the_same(size, known):
    def function(x, k):
        start = 2 if known else k
        value = jnp.sin(x.reshape(-1)[: np.prod(size)].reshape(size))
        return lax.dynamic_update_slice(x.reshape(8, 2, 2), value, (start, 0, 1)) * 2

    x, k = np.arange(32, dtype=np.float32).reshape(8, 4), np.int32(2)
    closed = jax.make_jaxpr(function)(x, k)
    safe = jax_core.jaxpr_as_fun(update_safely(closed))
    assert updates_in_danger(closed)

    def slope(f):
        return jax.grad(lambda x, k: jnp.vdot(jnp.cos(f(x, k).reshape(8, 4)), x))

    (value,), ours = at_once(safe, slope(lambda *a: safe(*a)[0]))(x, k)
    # The plain function is what XLA may compile wrongly: one operation after another.
    np.testing.assert_allclose(value, function(jnp.asarray(x), k), rtol=1e-6)
    np.testing.assert_allclose(ours, slope(function)(jnp.asarray(x), k), rtol=1e-5, atol=1e-6)


# --- arrays whose shape is XLA's own matter ---------------------------------------------------------------------


def agrees(function, x, **tolerance):
    safe = update_safely(jax.make_jaxpr(function)(x))
    assert not updates_in_danger(safe)
    with jax.disable_jit():
        expected = function(x)
    np.testing.assert_allclose(jax.jit(jax_core.jaxpr_as_fun(safe))(x)[0], expected, **tolerance)


def by_rows(array):
    """An update of an array from its own rows but the last."""
    return lax.dynamic_update_slice(array, array[:-1] * 2, (1, *[0] * (array.ndim - 1)))


def by_pairs(x, array=None):
    """An update of an array, or of `x` in another shape, by what is read of `x`, and then another in the first."""
    array = x.reshape(4, 2, 2) if array is None else array
    array = lax.dynamic_update_slice(array, x[:-1, 1::2].reshape(3, 2, 1), (1, 0, 1))
    return lax.dynamic_update_slice(array.reshape(4, 4), jnp.full((1, 2), 1, x.dtype), (0, 0))


def twice(x):
    """An update of a few of many elements by others of them, and of more by the same elements."""
    array = jnp.tile(x, (4, 1))
    blocks = lax.dynamic_update_slice(array.reshape(16, 2, 2), array[1:2, 2:].reshape(1, 2, 1), (0, 0, 0))
    read = blocks.reshape(64)[:6].reshape(3, 2, 1) / 2 + 1
    return lax.dynamic_update_slice(blocks, read, (0, 0, 0)).reshape(64) * 3


def after_one(x):
    """An update of one element of a reshape by itself, and of more by the same elements."""
    blocks = lax.dynamic_update_slice(x.reshape(4, 2, 2), x[:1, :1].reshape(1, 1, 1) / 2 + 1, (0, 0, 0))
    read = blocks.reshape(16)[:6].reshape(3, 2, 1) / 2 + 1
    return lax.dynamic_update_slice(blocks, read, (0, 0, 0)).reshape(16) * 3


def moved_by(x):
    """An update whose place is read from what it overwrites."""
    blocks = lax.dynamic_update_slice(
        x.reshape(4, 2, 2), jnp.full((3, 2, 1), -1.0), (x[0, 1].astype(jnp.int32), 0, x[0, 1].astype(jnp.int32))
    )
    return lax.dynamic_update_slice(blocks.reshape(4, 4), jnp.full((1, 2), 0.75), (0, 0))


def scattered_once(x, write="set"):
    """A scatter to one place, of which XLA makes an update."""
    blocks = x.reshape(4, 2, 2).at[1:, :, 1:]
    read = x[:-1, 1::2].reshape(3, 2, 1)
    blocks = getattr(blocks, write)(read)
    return lax.dynamic_update_slice(blocks.reshape(4, 4), jnp.full((1, 2), 0.75), (0, 0))


TABLE = np.arange(16, dtype=np.float32).reshape(4, 2, 2)


def product(x):
    return jnp.tensordot(x, TABLE, 1)


def counted(turns):
    """A loop whose turns XLA may count."""
    return lambda x: by_rows(
        lax.while_loop(lambda own: own[0] < turns, lambda own: (own[0] + 1, by_rows(own[1])), (0, product(x)))[1]
    )


OWN_SHAPES = {
    "product": lambda x: by_rows(product(x)),
    "product, by element": lambda x: by_rows(jnp.floor(product(x))),
    "gathered": lambda x: by_rows(x[np.array([[0, 1], [2, 3], [1, 1]])]),
    "reshapes moved": lambda x: by_rows(x.reshape(4, 2, 2) + x[:, ::-1].reshape(4, 2, 2)),
    "part": lambda x: by_rows(lax.dynamic_slice(x.reshape(2, 4, 2), (x[0, 1].astype(jnp.int32), 0, 0), (1, 4, 2))[0]),
    "once": counted(1),
    "never": counted(0),
    "choice": lambda x: lax.cond(x[0, 0] < 5, lambda x: by_rows(product(x)), product, x),
    "whole": lambda x: by_rows(lax.dynamic_update_slice(product(x) * 2, product(x) + 1, (x[0, 1].astype(int), 0, 0))),
    "bits": lambda x: by_pairs(
        x, lax.bitcast_convert_type(lax.bitcast_convert_type(x, jnp.int32).reshape(4, 2, 2), x.dtype)
    ),
    "complex": lambda x: by_pairs(x, lax.real(lax.complex(x.reshape(4, 2, 2), x.reshape(4, 2, 2) * 2))),
    "part of more": lambda x: by_pairs(x, jnp.concatenate([x.reshape(4, 2, 2), TABLE])[:4]),
    "padded": lambda x: by_pairs(x, jnp.pad(x.reshape(4, 2, 2), ((0, 3), (0, 0), (0, 0)))[:4]),
    "put together": lambda x: by_pairs(x, jnp.concatenate([x[:2], x[2:]]).reshape(4, 2, 2)),
    "reshapes put together": lambda x: by_pairs(x, jnp.stack([x[:2].reshape(8), x[2:].reshape(8)]).reshape(4, 2, 2)),
    "reduced": lambda x: by_pairs(x, x.reshape(1, 4, 2, 2).sum(0)),
    "sorted": lambda x: by_pairs(x, lax.sort(x.reshape(1, 4, 2, 2), dimension=0)[0]),
    "after a scatter": twice,
    "place": moved_by,
    "set at one place": scattered_once,
    "added at one place": lambda x: scattered_once(x, "add"),
    "multiplied at one place": lambda x: scattered_once(x, "multiply"),
    "most at one place": lambda x: scattered_once(x, "max"),
}


@few(
    "name",
    OWN_SHAPES,
    quick=["product, by element", "choice", "reduced"],
)
def test_updates_of_arrays_in_shapes_of_xlas_own(name):
    assert updates_in_danger(jax.make_jaxpr(OWN_SHAPES[name])(SQUARE))
    agrees(OWN_SHAPES[name], jnp.asarray(SQUARE))


def test_an_update_of_one_element_stays_in_place_and_what_follows_it_is_right():
    assert not updates_in_danger(jax.make_jaxpr(after_one)(SQUARE))
    agrees(after_one, jnp.asarray(SQUARE))


def test_many_updates_of_one_array_leave_it_in_place():
    """The first of them makes it known in its own shape: those after it cost what they cost anyway."""

    def function(x):
        for _ in range(40):
            x = by_rows(x)
        return x

    assert len(updates_in_danger(jax.make_jaxpr(function)(SQUARE))) == 1


# --- programs of rearrangements and updates ----------------------------------------------------------------


@pytest.mark.slow
@examples(3)
@given(updates_among_moves(), st.booleans())
def test_programs_of_updates(program, chosen):
    assume(chosen)  # the least of everything would tell little
    agrees(program.function, *program.arguments, rtol=1e-5)


@pytest.mark.slow
@examples(500)
@given(updates_among_moves())
def test_many_programs_of_updates(program):
    agrees(program.function, *program.arguments, rtol=1e-5)


# --- graphs of updates, whose inputs may be made beside them -------------------------------------------------------


def from_products(case: Case) -> tuple[dict[str, tuple[np.ndarray, np.ndarray]], Case]:
    """A case of which some inputs are products of small integers, and these: XLA lays them out as it likes."""
    random = np.random.default_rng(len(case.inputs))
    factors = {}
    for name, value in case.inputs.items():
        if value.ndim and random.integers(3):
            left, right = (value.shape[0], 2), (2, *value.shape[1:])
            factors[name] = tuple(random.integers(-2, 3, shape).astype(value.dtype) for shape in (left, right))
    made = {name: np.tensordot(own[0], own[1], 1).astype(own[0].dtype) for name, own in factors.items()}
    return factors, dataclasses.replace(case, inputs=case.inputs | made)


def check_updates(case: Case) -> None:
    """A case gives the same alone, and compiled together with products that make its inputs."""
    factors, case = from_products(case)
    run, expected = lowered(case), interpreted(case)

    def together(factors):
        return run(case.inputs | {name: jnp.tensordot(own[0], own[1], 1) for name, own in factors.items()})

    for found in (jax.jit(run)(case.inputs), jax.jit(together)(factors)):
        floats = {name for name, own in expected.items() if jnp.issubdtype(own.dtype, jnp.inexact)}
        assert_close(found, {name: own for name, own in expected.items() if name in floats}, 1e-5)
        assert_same(found, {name: own for name, own in expected.items() if name not in floats})


@pytest.mark.slow
@examples(4)
@given(cases(np.float32, updates=True, max_iterations=2))
def test_graphs_of_updates(case: Case):
    check_updates(case)


@pytest.mark.slow
@examples(500)
@given(st.sampled_from([np.float32, np.int32]).flatmap(lambda dtype: cases(dtype, updates=True)))
def test_many_graphs_of_updates(case: Case):
    check_updates(case)


@pytest.mark.slow
@examples(200)
@given(cases(np.int32, updates=True, max_iterations=2), st.sampled_from(["fused", "tiles", "addresses"]))
def test_many_graphs_of_updates_in_engines(case: Case, execution: str):
    check_engine(cl.Engine(case.graph, case.sequence(), execution=execution), case)


@pytest.mark.slow
@examples(300)
@given(cases(np.float32))
def test_many_graphs_whose_inputs_are_products(case: Case):
    check_updates(case)
