"""Loops keep for their gradient what goes into a turn and what is costly in it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from tests.at_once import at_once


def _loop(function, dtype=np.float32, size=6, turns=5):
    """A function of each number and its neighbour on a ring, again and again: the lowered graph."""
    graph = cl.Graph()
    x = graph.add_variable("x", (size,), dtype)
    i = cl.grid(size)
    with graph.record() as step:
        y = graph.add_vertex("step", cl.codelet(function), a=x[i], b=x[(i + 1) % size])
    return cl.lower(graph, cl.Repeat(turns, [step, cl.Copy(y, x)]), inputs=[x], outputs=[x])


def _body(run):
    """The names of the primitives in the body of the loop."""
    (scan,) = [eqn for eqn in run.jaxpr.jaxpr.eqns if eqn.primitive.name == "scan"]
    return [eqn.primitive.name for eqn in scan.params["jaxpr"].jaxpr.eqns]


def _kept(run):
    """The numbers that the gradient keeps for all turns, as many as the loop has of them."""
    jaxpr = jax.make_jaxpr(lambda x: jax.vjp(lambda x: run({"x": x})["x"], x)[1](x))(jnp.ones(6))
    forward = next(eqn for eqn in jaxpr.jaxpr.eqns if eqn.primitive.name == "scan")
    floats = [var.aval for var in forward.outvars if jnp.issubdtype(var.aval.dtype, jnp.floating)]
    return sum(aval.size for aval in floats) // 5  # some releases of JAX keep the turn's number too


def test_what_is_computed_element_by_element_is_not_kept():
    run = _loop(lambda a, b: jnp.sin(a) * jnp.tanh(b) + jnp.exp(-a * a) / (2 + jnp.cos(b)))
    assert len(_body(run)) == 1  # a checkpoint
    assert _kept(run) <= 2 * 6
    x = np.linspace(-1, 1, 6).astype(np.float32)

    def by_hand(x):
        for _ in range(5):
            b = jnp.roll(x, -1)
            x = jnp.sin(x) * jnp.tanh(b) + jnp.exp(-x * x) / (2 + jnp.cos(b))
        return x

    weights = np.arange(6.0)
    losses = [lambda x: weights @ run({"x": x})["x"], lambda x: weights @ by_hand(x)]
    ours, expected = at_once(*(lambda x, f=f: (jax.grad(f)(x), jax.jacfwd(f)(x)) for f in losses))(x)
    np.testing.assert_allclose(ours, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        (lambda a, b: a + 2 * b, np.float32),
        (lambda a, b: a * b, np.int32),
        (lambda a, b: jax.nn.relu(a * b), np.float32),
    ],
)
def test_loops_that_keep_nothing_or_call_stay_as_they_are(function, dtype):
    run = _loop(function, dtype)
    assert len(_body(run)) > 1
    values = {"x": np.arange(-2, 4).astype(dtype)}
    assert jax.jit(run)(values)["x"].shape == (6,)
