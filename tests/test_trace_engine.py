"""Traced functions on an engine, and their profile."""

from __future__ import annotations

import pickle

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
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
    with pytest.raises(cl.SavingError, match=r"pickle traced\.graph and traced\.program"):
        pickle.dumps(traced)
