"""Traced functions on an engine, and their profile."""

from __future__ import annotations

import pickle
from itertools import product

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from tests.examples import few
from tests.ops_cases import array, assert_alike

ROW, MATRIX = array((4,), seed=1), array((4, 4), seed=2)


@jax.jit
def block(own, x):
    return jnp.tanh(own["w"] @ x) + x


def test_an_engine_and_a_profile_of_a_traced_function():
    function = lambda own, x: (block(own, x), x.sum())  # noqa: E731
    traced = cl.trace(function, {"w": MATRIX}, ROW, target=cl.IPU(num_tiles=4))
    for execution in ("fused", "tiles"):
        engine = cl.Engine(traced, execution=execution)
        engine.write(traced.arrays({"w": MATRIX}, ROW))
        engine.run()
        jax.tree.map(
            lambda out, plain: assert_alike(engine.read(out), plain), traced.outputs, function({"w": MATRIX}, ROW)
        )
    profile = traced.profile()
    assert profile.total_cycles > 0
    assert "block" in str(profile.summary())
    with pytest.raises(cl.ArrayError, match="of another type"):
        traced.arrays({"w": np.ones((4, 5), np.float32)}, ROW)


def test_an_engine_reads_all_results_and_leaves_none_as_none():
    traced = cl.trace(lambda x: {"sum": x.sum(), "state": (None, [2 * x])}, ROW, target=cl.IPU(num_tiles=4))
    engine = cl.Engine(traced)
    engine.write(traced.arrays(ROW))
    engine.run()
    found = engine.read(traced.outputs)
    assert found["state"][0] is None
    assert_alike(found["sum"], ROW.sum())
    assert_alike(found["state"][1][0], 2 * ROW)


def pieces(x, key):
    """Elementwise functions, some with derivative rules of their own, a loop backwards, windows and random numbers."""
    y = jax.nn.relu(x) + jax.nn.gelu(x) + jax.nn.silu(x) * jax.nn.relu6(x)
    z = jax.lax.scan(lambda c, row: (jnp.sin(c) + row, c.max()), y[0], y, reverse=True)[0]
    return (
        z * jax.nn.relu(z),
        eqx.nn.MaxPool2d(2)(y[None]),
        jax.random.uniform(key, (5,)),
        jnp.cbrt(jnp.fft.fft(x).real),
    )


def total(results):
    return sum(jnp.sin(own).sum() for own in results), list(results)


def read_again(value):
    return pickle.loads(pickle.dumps(value))


def test_graphs_of_traced_functions_are_pickled():
    x = jnp.linspace(-2, 2, 16).reshape(4, 4)
    traced = cl.trace(pieces, x, jax.random.key(1), target=cl.IPU(num_tiles=2))
    lowered = cl.lower(traced)
    again = read_again(lowered)
    given = [x, jax.random.key_data(jax.random.key(1))]
    of = lambda run: jax.value_and_grad(lambda own: total(run([own, given[1]])), has_aux=True)  # noqa: E731
    plain = lambda own: pieces(own[0], jax.random.wrap_key_data(own[1]))  # noqa: E731
    ours, expected = jax.jit(lambda own: (of(again.flat)(own), of(plain)(own)))(x)
    jax.tree.map(assert_alike, jax.tree.leaves(ours), jax.tree.leaves(expected))
    graph, program = read_again(read_again((traced.graph, traced.program)))
    assert str(program) == str(traced.program)
    assert graph.num_edges == traced.graph.num_edges
    again = read_again(traced)
    jax.tree.map(
        assert_alike, jax.tree.leaves(again(x, jax.random.key(1))), jax.tree.leaves(traced(x, jax.random.key(1)))
    )


BEGINNINGS = {
    "windows": lambda x: (
        lax.reduce_window(x, np.float32(0.5), lax.add, (2, 2), (1, 1), "SAME"),
        lax.reduce_window(x, x[0, 0], lax.mul, (2, 3), (1, 2), ((0, 1), (1, 1))),
    ),
    "lines": lambda x: (
        lax.reduce(x, np.float32(0.5), lax.add, (1,)),
        lax.reduce((x, x), (x[0, 1], np.float32(1)), lambda a, b: (a[0] + b[0], a[1] * b[1]), (0,)),
        lax.reduce(x, x[0, 0], lambda a, b: a + 2 * b, (0, 1)),
    ),
}


@few(
    "name, execution",
    product(BEGINNINGS, ["tiles", "addresses", "fused"]),
    quick=["windows, addresses", "lines, tiles", "lines, fused"],
)
def test_reductions_from_any_beginning_in_every_execution(name, execution):
    traced = cl.trace(BEGINNINGS[name], MATRIX, target=cl.IPU(num_tiles=4))
    engine = cl.Engine(traced, execution=execution)
    engine.write(traced.arrays(MATRIX))
    engine.run()
    ours = [engine.read(out) for out in traced.flat_outputs]
    held = {own.name: engine.read(own.name) for own in traced.graph.sources if own.value is None}
    one = cl.interpret(
        traced.graph, values={"x": np.asarray(MATRIX)}, outputs=sorted(held.keys() - {"x"}), program=traced.program
    )
    for variable, value in one.items():
        assert_alike(held[variable], value)
    jax.tree.map(assert_alike, ours, jax.tree.leaves(jax.jit(BEGINNINGS[name])(MATRIX)))


def test_slopes_of_reductions_from_any_beginning():
    """Which JAX itself does not have: beside differences."""
    traced = cl.trace(BEGINNINGS["windows"], MATRIX, target=cl.IPU(num_tiles=4))
    loss = jax.jit(lambda x: sum(jnp.sin(own).sum() for own in traced(x)))
    slope, along = jax.jit(jax.grad(loss))(MATRIX), array((4, 4), seed=5)
    steps = [(loss(MATRIX + h * along) - loss(MATRIX - h * along)) / (2 * h) for h in (1e-2,)]
    np.testing.assert_allclose((slope * along).sum(), steps[0], rtol=2e-2, atol=2e-2)
