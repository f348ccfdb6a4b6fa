"""What is reshaped several times is reshaped once, and means the same."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from lowering.jaxprs.reshape_once import reshape_once


def names(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def test_an_array_is_reshaped_to_a_shape_once():
    def function(x):
        flat = x.reshape(2, 2, 6).reshape(24)
        return flat * x.reshape(24), flat.reshape(4, 6) + x, x.reshape(6, 4).sum(0)

    x = jnp.arange(24.0).reshape(4, 6)
    closed = jax.make_jaxpr(function)(x)
    made = reshape_once(closed)
    assert names(made) == ["reshape", "mul", "add", "reshape", "reduce_sum"]
    for own, other in zip(jax_core.jaxpr_as_fun(made)(x), function(x), strict=True):
        np.testing.assert_array_equal(own, other)


def test_in_loops_too_but_not_in_another_order():
    def turn(x, _):
        moved = jax.lax.reshape(x.reshape(2, 3), (6,), dimensions=(1, 0))
        return moved + x.reshape(3, 2).reshape(6), None

    x = jnp.arange(6.0)
    closed = jax.make_jaxpr(lambda x: jax.lax.scan(turn, x, length=3)[0])(x)
    made = reshape_once(closed)
    (loop,) = made.jaxpr.eqns
    assert names(loop.params["jaxpr"]).count("reshape") == 2
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(made)(x)[0], jax.lax.scan(turn, x, length=3)[0])
