"""Arrays: the operations on JAX arrays that emission is made of, left out where they would change nothing.

A step that changes nothing would hide later rules on jaxprs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

from codelet.views.grids import Key

Array = jax.Array

Arrays = dict[Any, Array]
"""What is held of every variable that has a value, and of what compute sets make of variables before they run."""

SMALL = 64
"""Elements; constants of at most this many stand in the jaxpr itself."""


def constant(values: np.ndarray) -> Array:
    """A known array as a JAX array, which tracing then takes for an argument."""
    with jax.ensure_compile_time_eval():
        return jax.device_put(values)  # `jnp.asarray` compiles a program for every shape


def reshape(array: Array, shape: Sequence[int]) -> Array:
    """A reshape, unless the array has that shape."""
    return array if array.shape == tuple(shape) else lax.reshape(array, tuple(shape))


def transpose(array: Array, order: Sequence[int]) -> Array:
    """A transpose, unless it keeps the order."""
    return array if tuple(order) == tuple(range(array.ndim)) else lax.transpose(array, tuple(order))


def slice_(array: Array, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int] | None = None) -> Array:
    """A slice of every dimension, unless all are whole."""
    if not any(starts) and tuple(stops) == array.shape and max(steps or (1,)) == 1:
        return array
    return lax.slice(array, starts, stops, steps)


def take(array: Array, positions: Array, at: int = 0, *, is_sorted: bool = False) -> Array:
    """The array at positions along one dimension, which the positions' dimensions replace.

    Positions are promised to be in bounds and not negative, and to be sorted where it says so.
    """
    where = (slice(None),) * at + (positions,)
    return array.at[where].get(mode="promise_in_bounds", wrap_negative_indices=False, indices_are_sorted=is_sorted)


def arranged(array: Array, keys: Sequence[Key], order: Sequence[Key], extents: Sequence[int]) -> Array:
    """An array whose dimensions are `keys`, with those of `order` instead, repeated along the absent ones.

    Dimensions of keys that are not in `order` have extent 1.
    """
    array = reshape(array, [n for n, key in zip(array.shape, keys, strict=True) if key in order])
    keys = [key for key in keys if key in order]
    present = [key for key in order if key in keys]
    array = transpose(array, [keys.index(key) for key in present])
    if len(present) == len(order):
        return array
    return lax.broadcast_in_dim(array, tuple(extents), tuple(k for k, key in enumerate(order) if key in keys))


def _piece(array: Array, at: int, start: int, step: int, length: int) -> Array:
    """`length` positions of a dimension."""
    if step == 0:
        one = lax.slice_in_dim(array, start, start + 1, axis=at)
        return lax.broadcast_in_dim(one, (*array.shape[:at], length, *array.shape[at + 1 :]), range(array.ndim))
    if (start, step, length) == (0, 1, array.shape[at]):
        return array
    last = start + step * (length - 1)
    piece = lax.slice_in_dim(array, min(start, last), max(start, last) + 1, abs(step), at)
    return piece if step > 0 else lax.rev(piece, (at,))


def join(array: Array, at: int, runs: Sequence[tuple[int, int, int]]) -> Array:
    """A dimension put together of runs of its positions: the first, the step and the length of each."""
    pieces = [_piece(array, at, *run) for run in runs]
    return lax.concatenate(pieces, at) if len(pieces) > 1 else pieces[0]
