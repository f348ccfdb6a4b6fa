"""What is differentiated is made when a derivative is asked for, and has the slopes of what runs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from lowering.jaxprs import slopes
from tests.examples import few
from tests.same_jaxprs import primitives

X = jnp.linspace(-1, 1, 24).reshape(4, 6)


def sweep(x, w):
    """Maxima, updates that add, small slices, and a loop over rows; and integers that have no slope."""
    x = x.at[1:].add(w * x[:-1])
    x = jax.lax.fori_loop(0, len(x), lambda k, x: x.at[k].set(jnp.sin(x[k]) * w), x)
    return jnp.max(x, 1) + x[:, 0], jnp.argmax(x, 1), jnp.maximum(x, w)


def loss(function):
    return lambda *given: sum(jnp.sum(own * own) for own in function(*given))


@pytest.fixture
def made(monkeypatch):
    """How often a jaxpr was changed for its derivatives."""
    calls = []
    plain = slopes.with_slopes
    monkeypatch.setattr(slopes, "with_slopes", lambda closed: calls.append(closed) or plain(closed))
    return calls


@pytest.mark.slow
def test_nothing_is_changed_for_derivatives_that_nobody_asks_for(made):
    lowered = cl.trace(sweep, X, jnp.ones(6)).lowered
    run = jax.jit(lowered.flat)
    run([X, jnp.ones(6)])
    jax.vmap(lowered.flat)([X[None], jnp.ones((1, 6))])
    assert not made
    gradient = jax.grad(lambda x, w: loss(lambda *own: lowered.flat(own))(x, w), (0, 1))
    for _ in range(2):
        gradient(X, jnp.ones(6))
    jax.jit(gradient)(X, jnp.ones(6))
    assert len(made) == 1


def in_a_loop(own):
    """A number of what a function makes of its own results, three times."""
    return lambda x, w: jnp.sum(jax.lax.scan(lambda s, _: (s + own(s, w)[2] / 9, None), x, None, length=3)[0])


TRANSFORMED = {
    "in reverse": lambda own, by: jax.grad(loss(own), by),
    "forward": lambda own, by: jax.jacfwd(loss(own), by),
    "twice": lambda own, by: jax.grad(lambda *given: jnp.sum(jax.grad(loss(own))(*given) ** 2), by),
    "checkpointed": lambda own, by: jax.grad(jax.checkpoint(loss(own)), by),
    "of several": lambda own, by: jax.grad(
        lambda x, w: jnp.sum(jax.vmap(loss(own), (None, 0))(x, jnp.stack([w, w + 1]))), by
    ),
    "in a loop": lambda own, by: jax.grad(in_a_loop(own), by),
}


@few("by", [0, 1, (0, 1)], quick=["(0, 1)"])
@pytest.mark.parametrize("how", TRANSFORMED)
def test_slopes_are_those_of_the_function(how, by):
    given = X, jnp.linspace(0.5, 1.5, 6)
    run = cl.trace(sweep, *given)
    found, expected = (jax.jit(TRANSFORMED[how](own, by))(*given) for own in (run, sweep))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-6), found, expected)


def test_what_is_not_differentiated_has_no_tangents():
    """An operand that stays gives no slope that anybody computes."""
    run = cl.trace(lambda x, w: x @ w, X, X.T).lowered
    of_one = jax.make_jaxpr(jax.grad(lambda x: run.flat([x, X.T])[0].sum()))(X)
    of_both = jax.make_jaxpr(jax.grad(lambda own: run.flat(own)[0].sum()))([X, X.T])
    assert primitives(of_one).count("dot_general") + 1 == primitives(of_both).count("dot_general")


def test_a_graph_that_prints_is_differentiated_too(capfd):
    def spoken(x):
        jax.debug.print("own {}", x[0, 0])
        return jnp.sin(x).sum()

    run = cl.trace(spoken, X).lowered
    np.testing.assert_allclose(jax.grad(lambda x: run.flat([x])[0])(X), jnp.cos(X), rtol=1e-6)
    jax.effects_barrier()
    assert "own -1.0" in capfd.readouterr().out
