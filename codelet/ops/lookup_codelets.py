"""The codelets of gathers and scatters: of blocks of columns, and of blocks of rows and columns.

A block of rows is given the number of its first; indices that are for the rows of others lead beyond its ends.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl

SCATTERS = {
    "set": lax.scatter,
    "add": lax.scatter_add,
    "multiply": lax.scatter_mul,
    "min": lax.scatter_min,
    "max": lax.scatter_max,
}
"""What may become of an element and the update for it."""


@cl.codelet(workers=6, issue="assembly")
def laid_out(rows):
    """Rows as they are, to be written where their columns lie."""
    return rows


@cl.codelet(issue="assembly")
def gather_block(operand, indices, *, numbers, sizes, columns, mode, fill_value):
    """The slices that indices name; of the columns as many as there are."""
    own = tuple(operand.shape[d] if d == columns else size for d, size in enumerate(sizes))
    return lax.gather(operand, indices, lax.GatherDimensionNumbers(*numbers), own, mode=mode, fill_value=fill_value)


def _within(
    operand: jax.Array, indices: jax.Array, updates: jax.Array, numbers: lax.ScatterDimensionNumbers
) -> jax.Array:
    """Indices of slices that lead beyond the ends as those of the slices at the ends."""
    windows = iter(updates.shape[d] for d in numbers.update_window_dims)
    sizes = [1 if d in numbers.inserted_window_dims else next(windows) for d in range(operand.ndim)]
    greatest = int(jnp.iinfo(indices.dtype).max)
    last = [min(greatest, operand.shape[d] - sizes[d]) for d in numbers.scatter_dims_to_operand_dims]
    return jnp.clip(indices, 0, last[0] if len(set(last)) == 1 else np.asarray(last, indices.dtype))


@cl.codelet(issue="assembly")
def scatter_block(operand, indices, updates, *, numbers, op, mode, unique=False):
    """What is indexed, with updates of the slices that indices name."""
    if mode == "clip" and op in ("min", "max"):
        # JAX's derivatives of these look at the indices as they are, and divide by a count of zero beyond the ends.
        indices, mode = _within(operand, indices, updates, lax.ScatterDimensionNumbers(*numbers)), "promise_in_bounds"
    own = lax.ScatterDimensionNumbers(*numbers)
    return SCATTERS[op](operand, indices, updates, own, unique_indices=unique, mode=mode)


@cl.codelet(issue="assembly")
def scatter_block_on_zeros(indices, updates, *, numbers, mode, shape):
    """Zeros, to which updates of the slices that indices name are added."""
    zeros = jnp.zeros(shape, updates.dtype)
    return lax.scatter_add(zeros, indices, updates, lax.ScatterDimensionNumbers(*numbers), mode=mode)


def _from_first(indices: jax.Array, first: jax.Array) -> jax.Array:
    """Indices into rows from a first one on: beyond the ends where they are for others."""
    return indices.astype(jnp.promote_types(first.dtype, jnp.int32)) - first


@cl.codelet(issue="assembly")
def gather_rows(operand, indices, first, *, numbers, sizes, columns, mode, fill_value):
    """The slices that indices name among rows from a first on; zeros for the others."""
    own = tuple(operand.shape[d] if d == columns else size for d, size in enumerate(sizes))
    where = _from_first(indices, first)
    return lax.gather(operand, where, lax.GatherDimensionNumbers(*numbers), own, mode="fill", fill_value=0)


@cl.codelet(issue="assembly")
def scatter_rows(operand, indices, updates, first, *, numbers, op, mode, unique=False):
    """Rows from a first on, with updates of those that indices name among them."""
    where, own = _from_first(indices, first), lax.ScatterDimensionNumbers(*numbers)
    return SCATTERS[op](operand, where, updates, own, unique_indices=unique, mode="drop")


@cl.codelet(issue="assembly")
def scatter_rows_on_zeros(indices, updates, first, *, numbers, mode, shape):
    """Zeros for rows from a first on, to which updates of those that indices name among them are added."""
    where, zeros = _from_first(indices, first), jnp.zeros(shape, updates.dtype)
    return lax.scatter_add(zeros, where, updates, lax.ScatterDimensionNumbers(*numbers), mode="drop")
