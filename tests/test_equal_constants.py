"""Constants that are equal are one, whatever their shapes."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from lowering.jaxprs.equal_constants import equal_constants_once


def test_tables_of_several_shapes_are_one():
    table = np.arange(100, dtype=np.int32)
    made = equal_constants_once(jax.make_jaxpr(lambda: (jnp.asarray(table), jnp.asarray(table.reshape(20, 5) + 0)))())
    assert [np.shape(own) for own in made.consts] == [(100,)]
    assert [own.shape for own in jax_core.jaxpr_as_fun(made)()] == [(100,), (20, 5)]
