"""Arrays of one number are broadcast where they are read: constants, and what loops and choices are given."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.one_number import as_one_number
from tests.same_jaxprs import after, equations


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


def test_what_a_loop_changes_is_no_number():
    def function(x):
        return lax.fori_loop(0, 3, lambda _, own: (own[0] + x, own[0]), (jnp.zeros(3), jnp.zeros(3)))

    after(as_one_number, function, jnp.ones(3))


def test_what_is_padded_with_a_constant_is_padded():
    """Zeros that lie in memory would be read from there in every turn."""
    zeros = np.zeros(100, np.float32)
    run = cl.trace(lambda x: jnp.concatenate([x, zeros])[50:150] * 2, np.ones(100, np.float32)).lowered
    assert not run.jaxpr.consts
