"""The codelets of gathers and scatters: of blocks of columns, and of blocks of rows and columns.

A block of rows is given the number of its first; indices that are for the rows of others lead beyond its ends.
"""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.tracing.codelets import codelet

SCATTERS = {
    "set": lax.scatter,
    "add": lax.scatter_add,
    "multiply": lax.scatter_mul,
    "min": lax.scatter_min,
    "max": lax.scatter_max,
}
"""What may become of an element and the update for it."""

ELEMENTS = {"add": lax.add, "multiply": lax.mul, "min": lax.min, "max": lax.max}
"""What becomes of an element and one update, but for "set"."""


def position_dtype(dtype: Any) -> np.dtype:
    """The dtype that positions are counted in where they are given in a user's: one that counts all there can be."""
    return np.dtype(dtype) if np.dtype(dtype).itemsize >= 4 else np.dtype(np.int32)


def positions(indices: jax.Array) -> jax.Array:
    """Indices in a dtype in which one can count, and compare with extents, which XLA does in theirs."""
    return indices.astype(position_dtype(indices.dtype))


@codelet(workers=6, issue="assembly")
def laid_out(rows):
    """Rows as they are, to be written where their columns lie."""
    return rows


def _promises(unique: bool, in_order: bool) -> dict[str, bool]:
    """The promises about indices, and about a part of them: that none overlap, that they are sorted."""
    return {"unique_indices": unique, "indices_are_sorted": in_order}


@codelet(issue="assembly")
def gather_block(operand, indices, *, numbers, sizes, columns, mode, fill_value, unique=False, in_order=False):
    """The slices that indices name; of the columns as many as there are."""
    own = tuple(operand.shape[d] if d == columns else size for d, size in enumerate(sizes))
    where, own_numbers = positions(indices), lax.GatherDimensionNumbers(*numbers)
    options = {"mode": mode, "fill_value": fill_value, **_promises(unique, in_order)}
    return lax.gather(operand, where, own_numbers, own, **options)


def _within(
    operand: jax.Array, indices: jax.Array, updates: jax.Array, numbers: lax.ScatterDimensionNumbers
) -> jax.Array:
    """Indices of slices that lead beyond the ends as those of the slices at the ends."""
    windows = iter(updates.shape[d] for d in numbers.update_window_dims)
    sizes = [1 if d in numbers.inserted_window_dims else next(windows) for d in range(operand.ndim)]
    last = [operand.shape[d] - sizes[d] for d in numbers.scatter_dims_to_operand_dims]
    return jnp.clip(indices, 0, last[0] if len(set(last)) == 1 else np.asarray(last, indices.dtype))


@codelet(issue="assembly")
def scatter_block(operand, indices, updates, *, numbers, op, mode, unique=False, in_order=False):
    """The indexed array, with updates of the slices that indices name."""
    where, own = positions(indices), lax.ScatterDimensionNumbers(*numbers)
    if mode == "clip" and op in ("min", "max"):
        # JAX's derivatives of these look at the indices as they are, and divide by a count of zero beyond the ends.
        where, mode = _within(operand, where, updates, own), "promise_in_bounds"
    return SCATTERS[op](operand, where, updates, own, mode=mode, **_promises(unique, in_order))


@codelet(issue="assembly")
def scatter_block_on_zeros(indices, updates, *, numbers, mode, shape):
    """Zeros, to which updates of the slices that indices name are added."""
    zeros = jnp.zeros(shape, updates.dtype)
    return lax.scatter_add(zeros, positions(indices), updates, lax.ScatterDimensionNumbers(*numbers), mode=mode)


def _from_first(indices: jax.Array, first: jax.Array) -> jax.Array:
    """Indices into rows from a first one on: beyond the ends where they are for others."""
    counted = positions(indices)
    return counted - first.astype(counted.dtype)  # unsigned ones before the first lead far beyond the end


@codelet(issue="assembly")
def gather_rows(operand, indices, first, *, numbers, sizes, columns, mode, fill_value, unique=False, in_order=False):
    """The slices that indices name among rows from a first on; zeros for the others."""
    own = tuple(operand.shape[d] if d == columns else size for d, size in enumerate(sizes))
    where, options = _from_first(indices, first), {"mode": "fill", "fill_value": 0, **_promises(unique, in_order)}
    return lax.gather(operand, where, lax.GatherDimensionNumbers(*numbers), own, **options)


@codelet(issue="assembly")
def scatter_rows(operand, indices, updates, first, *, numbers, op, mode, unique=False, in_order=False):
    """Rows from a first on, with updates of those that indices name among them."""
    where, own = _from_first(indices, first), lax.ScatterDimensionNumbers(*numbers)
    return SCATTERS[op](operand, where, updates, own, mode="drop", **_promises(unique, in_order))


@codelet(issue="assembly")
def scatter_rows_on_zeros(indices, updates, first, *, numbers, mode, shape):
    """Zeros for rows from a first on, to which updates of those that indices name among them are added."""
    where, zeros = _from_first(indices, first), jnp.zeros(shape, updates.dtype)
    return lax.scatter_add(zeros, where, updates, lax.ScatterDimensionNumbers(*numbers), mode="drop")
