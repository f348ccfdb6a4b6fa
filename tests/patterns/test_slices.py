"""What slices of slices, of joins and of rearranged arrays become."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.jaxprs.slice_roots import SLICES, slice_roots
from tests.patterns.pattern import simplified
from tests.same_jaxprs import after, equations, primitives

# --- slices of slices -------------------------------------------------------------------------------------------------


def test_a_slice_without_elements_may_start_beyond_the_end():
    """At 6 of 5 elements, in steps of 3: it is of the slice, which has two."""
    after(simplified, lambda x: lax.slice(lax.slice(x, (0,), (5,), (3,)), (2,), (2,)), jnp.arange(5.0))


# --- slice_roots ------------------------------------------------------------------------------------------------------


def test_a_row_of_columns_is_a_column():
    x = jnp.arange(12.0).reshape(3, 4)
    made = after(simplified, lambda x, k: lax.dynamic_index_in_dim(x.T, k, 0, keepdims=False), x, jnp.int32(2))
    (own,) = (eqn for eqn in equations(made) if eqn.primitive.name == "dynamic_slice")
    assert (own.invars[0], own.params["slice_sizes"]) == (made.jaxpr.invars[0], (3, 1))
    assert "transpose" not in primitives(made)


def test_a_column_is_put_as_a_row():
    x = jnp.arange(12.0).reshape(3, 4)
    made = after(
        slice_roots, lambda x, row, k: lax.dynamic_update_index_in_dim(x.T, row, k, 0).T, x, jnp.ones(3), jnp.int32(2)
    )
    (own,) = (eqn for eqn in equations(made) if eqn.primitive.name == "dynamic_update_slice")
    assert own.invars[0] is made.jaxpr.invars[0]


def test_a_slice_of_a_number_has_no_places():
    after(simplified, lambda x: lax.dynamic_slice(x.reshape(()), (), ()), jnp.ones(1))


def test_what_is_repeated_is_sliced_as_it_is():
    made = after(
        simplified, lambda x, k: lax.dynamic_slice(jnp.broadcast_to(x, (2, 3)), (k, 0), (1, 3)), jnp.ones(3), 1
    )
    assert "broadcast_in_dim" in primitives(made)


def test_slices_put_one_after_the_other_are_put_into_the_root():
    def function(x, k):
        for row in (1.0, 2.0, 3.0):
            x = lax.dynamic_update_slice(x.reshape(5, 12), jnp.full((1, 12), row), (k, 0)).reshape(5, 3, 4)
        return lax.dynamic_slice(x.reshape(5, 12), (k, 0), (1, 12))

    made = after(simplified, function, np.zeros((5, 3, 4), np.float32), np.int32(2))
    shapes = {eqn.invars[0].aval.shape for eqn in equations(made) if eqn.primitive.name in SLICES}
    assert shapes == {(5, 3, 4)}
