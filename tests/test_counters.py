"""What the backward pass makes again of the counters of loops: places, rather than tables of saved places."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from codelet.ops.turns import take_turn
from tests.examples import few


def scanned(x, reverse, turns):
    """Running states, several times over: rows in turns."""

    def turn(state, row):
        new = jnp.sin(state + row)
        return new, new

    return lax.fori_loop(0, turns, lambda _, x: lax.scan(turn, jnp.zeros_like(x[0]), x, reverse=reverse)[1], x)


def counted(x, reverse, turns):
    """Places that are made of two counters."""

    def inner(k, j, x):
        at = (k + 2 * j) % len(x) if reverse else k // 2 + j
        return x.at[at].set(jnp.cos(x[at] * x[k]))

    return lax.fori_loop(0, turns, lambda j, x: lax.fori_loop(1, len(x) - turns, lambda k, x: inner(k, j, x), x), x)


@few(
    "function, reverse, turns",
    itertools.product([scanned, counted], [False, True], [1, 3]),
    quick=["scanned, True, 1", "counted, True, 3"],
)
def test_places_are_made_again(function, reverse, turns):
    x = np.random.default_rng(0).uniform(0.2, 1.2, (7, 3)).astype(np.float32)
    loss = lambda x: jnp.sum(function(x, reverse, turns) ** 2)  # noqa: E731
    traced = cl.trace(loss, x, target=cl.IPU(num_tiles=4))
    made = cl.gradient(traced.graph, of=traced.outputs, wrt=list(traced.inputs), program=traced.program)
    tables = [own for own in traced.graph.variables if "/saved/" in own.name and own.dtype == np.int32 and own.shape]
    assert not tables, tables
    run = cl.lower(traced.graph, cl.Sequence(made.forward, made.backward), inputs=["x"], outputs=[*made])
    found = run({"x": x})[next(iter(made)).source.name]
    np.testing.assert_allclose(found, jax.jit(jax.grad(loss))(x), rtol=1e-5, atol=1e-6)


@few("reverse", [False, True], quick=["False"])
def test_numbers_of_known_arrays_are_taken_again(reverse):
    """Those of other arrays are saved, as the array is not kept."""
    known = np.linspace(0.5, 1, 7, dtype=np.float32)

    def loss(x, y):
        def turn(state, given):
            row, own, other = given
            return jnp.sin(state * own + row) * other, ()

        turns = lambda x, y: lax.scan(turn, x[0], (x, known, y), reverse=reverse)[0]  # noqa: E731
        return jnp.sum(lax.fori_loop(0, 3, lambda _, own: (own[0] * turns(*own), own[1] * 0.9), (x, y))[0])

    x, y = np.random.default_rng(0).uniform(0.2, 1.2, (7, 3)).astype(np.float32), known + 1
    traced = cl.trace(loss, x, y, target=cl.IPU(num_tiles=4))
    made = cl.gradient(traced.graph, of=traced.outputs, wrt=list(traced.inputs), program=traced.program)
    saved = [own for own in traced.graph.variables if "/saved/" in own.name and own.name.endswith("row")]
    assert [own.size for own in saved if own.size == 3 * 7] == [3 * 7]
    both = cl.Sequence(made.forward, made.backward)
    expected = jax.jit(jax.grad(loss, (0, 1)))(x, y)
    run = cl.lower(traced.graph, both, inputs=["x", "y"], outputs=[*made])
    interpreted = cl.interpret(traced.graph, both, values={"x": x, "y": y}, outputs=[*made])
    for own, other, slope in zip(run({"x": x, "y": y}).values(), interpreted.values(), expected, strict=True):
        np.testing.assert_allclose(own, slope, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(other, slope, rtol=1e-5, atol=1e-6)


@cl.codelet
def wide(turn):
    return jnp.arange(100, dtype=jnp.float32) * turn


@cl.codelet
def mean(x):
    return x.mean()


@cl.codelet
def scaled(x, by):
    return {"x": jnp.sin(x * by)}


@few("is_alone", [True, False], quick=["True"])
def test_what_is_large_or_of_something_else_is_saved(is_alone):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, turn = graph.add_variable("x", (100,)), graph.add_variable("turn", (), "int32")
    with graph.record() as body:
        by = graph.add_vertex("wide", wide, turn=turn) if is_alone else graph.add_vertex("mean", mean, x=x)
        i = cl.grid(100)
        graph.add_vertex("scale", scaled, x=x[i], by=by[i] if is_alone else by)
    made = cl.gradient(
        graph, of=x, wrt=["x"], cotangent=np.ones(100, np.float32), program=cl.Repeat(4, body, index=turn)
    )
    saved = [own.name.split("/saved/")[1] for own in graph.variables if "/saved/" in own.name]
    assert ("wide/out" if is_alone else "mean/out") in saved
    given = np.linspace(0.5, 1, 100, dtype=np.float32)

    def plain(x):
        for k in range(4):
            x = jnp.sin(x * (jnp.arange(100.0) * k if is_alone else x.mean()))
        return x.sum()

    outputs = [*made]
    run = cl.lower(graph, cl.Sequence(made.forward, made.backward), inputs=["x"], outputs=outputs)
    found = run({"x": given})[outputs[0].source.name]
    np.testing.assert_allclose(found, jax.grad(plain)(given), rtol=2e-4, atol=1e-4)


def read_alone(x, y):
    """Rows of arrays that nothing changes, of which the second is made before the loop."""
    rows = jnp.sin(x * y)
    return lax.scan(lambda state, own: (jnp.cos(state * own[0]) + own[1], None), y[0], (x, rows))[0]


def looked_up(x, y):
    """Rows of an array that nothing changes, at places that are counted."""

    def turn(state, k):
        rows = [lax.dynamic_index_in_dim(own, k, keepdims=False) for own in (x, y)]
        return jnp.cos(state * rows[0]) + rows[1], None

    return lax.scan(turn, y[0], jnp.arange(len(x)))[0]


def of_what_is_saved(x, y):
    """Rows and columns of a state that is saved as a whole."""

    def turn(k, state):
        row = lax.dynamic_index_in_dim(state, k, keepdims=True)
        column = lax.dynamic_index_in_dim(state, k + 1, 1, keepdims=True)
        return jnp.sin(state * (row + column))

    return lax.fori_loop(0, len(x), turn, x + y)


def in_a_loop(x, y):
    """Rows of two arrays, one of which a loop around changes."""

    def turn(_, rows):
        state, made = lax.scan(lambda state, own: (jnp.sin(state * own[0]), state * own[1]), y[0], (x, rows))
        return made + state

    return lax.fori_loop(0, 3, turn, x + y)


def assert_slopes(made, graph, inputs, loss, *arrays):
    """That a gradient is JAX's, fused and interpreted."""
    program, slopes = cl.Sequence(made.forward, made.backward), [*made]
    found = cl.lower(graph, program, inputs=inputs, outputs=slopes).flat([*arrays])
    told = cl.interpret(graph, program, values=dict(zip(inputs, arrays, strict=True)), outputs=slopes)
    for own, slope, wanted in zip(found, slopes, jax.jit(jax.grad(loss, (0, 1)))(*arrays), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(told[slope], wanted, rtol=1e-5, atol=1e-6)


@few(
    "function, recompute",
    itertools.product(
        [read_alone, looked_up, of_what_is_saved, in_a_loop], [None, cl.Recompute.all(), cl.Recompute.sqrt()]
    ),
    quick=["read_alone, None"],
)
def test_rows_of_what_stays_are_taken_again(function, recompute):
    x, y = np.random.default_rng(0).uniform(0.2, 1.2, (2, 5, 7)).astype(np.float32)
    loss = lambda x, y: sum(jnp.sum(own**2) for own in jax.tree.leaves(function(x, y)))  # noqa: E731
    traced = cl.trace(loss, x, y, target=cl.IPU(num_tiles=4))
    graph, inputs = traced.graph, list(traced.flat_inputs)
    made = cl.gradient(graph, of=traced.outputs, wrt=inputs, program=traced.program, recompute=recompute)
    saved = [own.name for own in graph.variables if "/saved/" in own.name and own.name.endswith(("/row", "gather/out"))]
    assert len(saved) == (function is in_a_loop)
    assert_slopes(made, graph, inputs, loss, x, y)


def turns_of(counter, added, dtype):
    """A loop that looks up rows of what does not change at places that it counts, or seems to."""

    def function(x, y):
        def turn(carry, _):
            k, state = carry
            row = lax.dynamic_index_in_dim(x, (k.astype(jnp.int32) % len(x)), keepdims=False)
            return (added(k, state), jnp.cos(state * row + y[0])), None

        start = jnp.asarray(counter(x), dtype)
        return lax.scan(turn, (start, y[1]), None, length=9)[0][1]

    return function


COUNTED = {
    "by one": turns_of(lambda x: 0, lambda k, _: k + 1, "int32"),
    "by twos": turns_of(lambda x: -3, lambda k, _: 2 + k, "int32"),
    "downwards": turns_of(lambda x: 11, lambda k, _: k - 3, "int32"),
    "around": turns_of(lambda x: 120, lambda k, _: k + 5, "int8"),
    "unsigned": turns_of(lambda x: 2**32 - 3, lambda k, _: k + 2, "uint32"),
}
NOT_COUNTED = {
    "from data": turns_of(lambda x: (10 * x[0, 0]).astype(int), lambda k, _: k + 1, "int32"),
    "by data": turns_of(lambda x: 0, lambda k, state: k + (state[0] > 0.5).astype(int), "int32"),
    "mirrored": turns_of(lambda x: 4, lambda k, _: 7 - k, "int32"),
    "squared": turns_of(lambda x: 2, lambda k, _: k * 3, "int32"),
    "doubled": turns_of(lambda x: 1, lambda k, _: k + k, "int32"),
}


@few("name", [*COUNTED, *NOT_COUNTED], quick=["around", "mirrored"])
def test_counters_that_a_loop_carries(name):
    function = (COUNTED | NOT_COUNTED)[name]
    x, y = np.random.default_rng(0).uniform(0.2, 1.2, (2, 5, 7)).astype(np.float32)
    loss = lambda x, y: jnp.sum(function(x, y) ** 2)  # noqa: E731
    traced = cl.trace(loss, x, y, target=cl.IPU(num_tiles=4))
    graph, inputs = traced.graph, list(traced.flat_inputs)
    made = cl.gradient(graph, of=traced.outputs, wrt=inputs, program=traced.program)
    saved = [own for own in graph.variables if "/saved/" in own.name and own.shape and own.name.endswith("/out")]
    assert bool(saved) == (name in NOT_COUNTED)
    assert_slopes(made, graph, inputs, loss, x, y)


@few("when", ["before", "after", "beyond", "never"], quick=["before", "never"])
def test_rows_of_what_changes_are_saved(when):
    """What rows are taken of changes in the loop, before that or after, or beyond the loop, or never."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, state, turn = (
        graph.add_variable("x", (4, 9)),
        graph.add_variable("state", (9,)),
        graph.add_variable("turn", (), "int32"),
    )
    change = cl.Copy(state, x[1])
    with graph.record() as taken:
        row = take_turn(graph, x, turn)
        i = cl.grid(9)
        graph.add_vertex("scale", scaled, x=state[i], by=row[i])
    body = [*[change] * (when == "before"), taken, *[change] * (when == "after")]
    program = cl.Sequence(cl.Repeat(4, body, index=turn), *[change] * (when == "beyond"))
    made = cl.gradient(graph, of=state, wrt=[x, state], cotangent=np.ones(9, np.float32), program=program)
    assert any("/saved/take/row" in own.name for own in graph.variables) == (when != "never")
    given = dict(zip((x, state), np.split(np.linspace(0.5, 1, 45, dtype=np.float32), [36]), strict=True))
    given[x] = given[x].reshape(4, 9)

    def plain(x, state):
        for k in range(4):
            x = x.at[1].set(state) if when == "before" else x
            state = jnp.sin(state * x[k])
            x = x.at[1].set(state) if when == "after" else x
        return state.sum()

    both, slopes = cl.Sequence(made.forward, made.backward), [*made]
    found = cl.lower(graph, both, inputs=[x, state], outputs=slopes).flat([*given.values()])
    told = cl.interpret(graph, both, values=given, outputs=slopes)
    for own, slope, wanted in zip(found, slopes, jax.grad(plain, (0, 1))(*given.values()), strict=True):
        np.testing.assert_allclose(own, wanted, rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(told[slope], wanted, rtol=1e-5, atol=1e-6)


def test_rows_of_what_blocks_and_their_rest_read_together_are_taken_again():
    """A compute set of two families, each of which reads a part of a state alone, and both all of it."""

    def turn(k, path):
        return jnp.minimum(path, path[:, k, None] + path[k])

    x = np.random.default_rng(0).uniform(0.2, 1.2, (7, 7)).astype(np.float32)
    loss = lambda x: jnp.sum(lax.fori_loop(0, len(x), turn, x) ** 2)  # noqa: E731
    traced = cl.trace(loss, x, target=cl.IPU(num_tiles=4))
    graph, inputs = traced.graph, list(traced.flat_inputs)
    assert [own.num_vertices for own in graph.families if own.compute_set.name.endswith("min/map")] == [7, 7]
    made = cl.gradient(graph, of=traced.outputs, wrt=inputs, program=traced.program)
    saved = [own for own in graph.variables if "/saved/" in own.name and own.shape]
    assert [own.shape for own in saved] == [(7, 7, 7)]
    program, slopes = cl.Sequence(made.forward, made.backward), [*made]
    (found,) = cl.lower(graph, program, inputs=inputs, outputs=slopes).flat([x])
    told = cl.interpret(graph, program, values={inputs[0]: x}, outputs=slopes)[slopes[0]]
    wanted = jax.jit(jax.grad(loss))(x)
    np.testing.assert_allclose(found, wanted, rtol=1e-5)
    np.testing.assert_allclose(told, wanted, rtol=1e-5)
