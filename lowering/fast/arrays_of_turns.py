"""Arrays by iteration: the lists of arrays that a loop with a derivative rule carries, and rows of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

Arrays = list[jax.Array]


def is_float(array: Any) -> bool:
    """Whether an array has a cotangent."""
    return jnp.issubdtype(array.dtype, jnp.inexact)


def floats_of(arrays: Sequence[Any]) -> Arrays:
    """Those that have cotangents."""
    return [own for own in arrays if is_float(own)]


def with_floats(arrays: Sequence[Any], floats: Sequence[Any]) -> list[Any]:
    """Arrays with others in the places of those of floats."""
    left = iter(floats)
    return [next(left) if is_float(own) else own for own in arrays]


def slopes_of(arrays: Sequence[Any], floats: Sequence[Any]) -> list[Any]:
    """Cotangents of arrays, given those of the ones of floats."""
    left = iter(floats)
    return [next(left) if is_float(own) else np.zeros(own.shape, jax.dtypes.float0) for own in arrays]


def row_of(arrays: Sequence[Any], number: Any) -> Arrays:
    """The arrays that are one row of others."""
    return [lax.dynamic_index_in_dim(own, number, 0, keepdims=False) for own in arrays]


def put_row(arrays: Sequence[Any], rows: Sequence[Any], number: Any) -> Arrays:
    """Arrays with others as one row."""
    return [lax.dynamic_update_index_in_dim(a, b, number, 0) for a, b in zip(arrays, rows, strict=True)]
