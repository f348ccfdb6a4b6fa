"""Constants that are equal are one; those that are one number everywhere are that number, broadcast."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.equal_constants import equal_constants_once


def bits(array):
    return np.asarray(array).tobytes()


@pytest.mark.parametrize("number", [0.0, -0.0, 1.5, np.nan, 3, True, 1 + 2j, jnp.bfloat16(0.1)])
@pytest.mark.parametrize("shape", [(65,), (9, 11)])
def test_one_number_is_broadcast_bit_for_bit(number, shape):
    own = jnp.broadcast_to(jnp.asarray(number), shape)
    closed = jax.make_jaxpr(lambda: own[...])()
    made = equal_constants_once(closed)
    assert len(closed.consts) == 1
    assert not made.consts
    assert bits(jax_core.jaxpr_as_fun(made)()[0]) == bits(own)


@pytest.mark.parametrize("at", [0, 1, 37, 199])
def test_another_bit_is_kept(at):
    own = np.zeros(200, np.float32)
    own[at] = -0.0
    made = equal_constants_once(jax.make_jaxpr(lambda: jnp.asarray(own) + 0)())
    assert len(made.consts) == 1


def test_tables_of_several_shapes_are_one():
    table = np.arange(100, dtype=np.int32)
    made = equal_constants_once(jax.make_jaxpr(lambda: (jnp.asarray(table), jnp.asarray(table.reshape(20, 5) + 0)))())
    assert [np.shape(own) for own in made.consts] == [(100,)]
    assert [own.shape for own in jax_core.jaxpr_as_fun(made)()] == [(100,), (20, 5)]


def test_what_is_padded_with_a_constant_is_padded():
    """Zeros that lie in memory would be read from there in every turn."""
    zeros = np.zeros(100, np.float32)
    run = cl.trace(lambda x: jnp.concatenate([x, zeros])[50:150] * 2, np.ones(100, np.float32)).lowered
    assert not run.jaxpr.consts
