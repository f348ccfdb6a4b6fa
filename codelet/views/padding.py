"""Padding by NumPy's rules: the widths, modes and values of `numpy.pad`, checked.

In come a user's arguments of `Tensor.pad`, and the tensor to pad. Out come widths as one pair for each dimension, the
positions that a mode repeats, and the value that a constant pad holds.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.errors import FieldTypeError, ViewError

MODES = ("constant", "edge", "wrap", "reflect")

Widths = tuple[tuple[int, int], ...]
"""How many positions stand before and after each dimension."""


def as_widths(widths: object, shape: tuple[int, ...]) -> Widths:
    """One (before, after) for each dimension, from such pairs, one pair for all dimensions, or one number.

    Raises:
        ViewError: anything else, or a negative width.
    """
    expected = f"non-negative integers: {len(shape)} pairs (before, after), one pair for all dimensions, or one number"
    try:
        given = np.asarray(widths)
        pairs = np.broadcast_to(given, (len(shape), 2))
    except (TypeError, ValueError):
        raise ViewError(
            f"the widths of a pad do not fit a tensor of shape {shape}", given=widths, expected=expected
        ) from None
    if given.dtype.kind not in "iu":
        raise ViewError("the widths of a pad are not integers", given=widths, expected=expected)
    if given.size and given.min() < 0:
        raise ViewError(
            "a pad has a negative width", given=widths, expected=expected, fix="cut elements off by slicing: x[1:-1]"
        )
    return tuple((int(before), int(after)) for before, after in pairs)


def repeated_positions(extent: int, before: int, after: int, mode: str) -> np.ndarray:
    """Which positions of a dimension stand in the padded one: `numpy.pad` of `numpy.arange(extent)`.

    Raises:
        ViewError: an empty dimension.
    """
    if not extent:
        raise ViewError(
            f"a pad of mode {mode!r} extends an empty dimension, which has nothing to repeat",
            expected="a dimension with elements, or mode 'constant'",
        )
    positions = np.arange(-before, extent + after)
    if mode == "edge":
        return positions.clip(0, extent - 1)
    if mode == "wrap":
        return positions % extent
    # There and back again, neither end twice.
    period = max(1, 2 * (extent - 1))
    there = positions % period
    return np.minimum(there, -positions % period)


def as_padding(value: object, dtype: np.dtype) -> Any:
    """A number as a NumPy scalar of a dtype.

    Raises:
        FieldTypeError: no number, or one that the dtype does not hold: a fraction for integers, say.
    """
    try:
        given = np.asarray(value)
    except (TypeError, ValueError):  # a symbol, or a traced value
        given = np.asarray(None)
    is_number = given.dtype == bool or jnp.issubdtype(given.dtype, jnp.number)
    if is_number and given.shape == () and (dtype.kind == "c" or given.dtype.kind != "c"):
        with np.errstate(all="ignore"):
            held = given.astype(dtype)
        if jnp.issubdtype(dtype, jnp.inexact):
            # Floats round, but a finite number stays one, and so does infinity.
            fits = np.isfinite(held) == np.isfinite(given) and np.isnan(held) == np.isnan(given)
        else:
            fits = np.isfinite(given) and int(held) == given.item()
        if fits:
            return held[()]
    raise FieldTypeError(
        f"a pad of a tensor of {dtype.name} has a value that the dtype cannot hold",
        given=f"value={value!r:.80}",
        expected=f"a number of dtype {dtype.name}",
    )
