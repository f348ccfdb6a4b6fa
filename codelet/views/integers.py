"""Arrays of integers, which may be large: stored in the narrowest dtype, scanned in blocks, never copied."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

_BLOCK = 1 << 16


def integer_dtype(least: int, most: int) -> np.dtype:
    """The dtype for integers from `least` to `most`: int32 where all fit, else int64."""
    return np.dtype(np.int32 if least >= -(2**31) and most < 2**31 else np.int64)


def narrowed(values: np.ndarray) -> np.ndarray:
    """Integers as int32 where all fit, else as int64; the array itself where it is that already."""
    if values.dtype == np.int32:
        return values
    ends = (int(values.min()), int(values.max())) if values.dtype.itemsize >= 4 and values.size else (0, 0)
    return values.astype(integer_dtype(*ends), copy=False)


def narrowest(values: np.ndarray) -> np.ndarray:
    """A copy of integers that are not negative, in the narrowest unsigned dtype that holds them all.

    >>> narrowest(np.array([0, 255])).dtype, narrowest(np.array([0, 256])).dtype
    (dtype('uint8'), dtype('uint16'))
    """
    return values.astype(np.min_scalar_type(int(values.max(initial=0))))


def unwritable(array: np.ndarray) -> np.ndarray:
    """An array of ours itself, that nobody can write to from now on."""
    array.flags.writeable = False
    return array


def blocks_of(*arrays: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The numbers of arrays of one shape side by side, as int64, a block at a time, in the order of memory."""
    options = ["buffered", "external_loop", "zerosize_ok"]
    for block in np.nditer(arrays, options, op_dtypes=[np.int64] * len(arrays), buffersize=_BLOCK):  # type: ignore[arg-type]
        yield block if isinstance(block, tuple) else (block,)


def common_divisor(values: np.ndarray, origin: int) -> int:
    """The greatest number that divides all `values - origin`; 0 where these are all 0."""
    common = 0
    for (block,) in blocks_of(values):
        rest = block - origin
        if common:
            rest = rest[rest // common * common != rest]
        if rest.size:
            common = math.gcd(common, int(np.gcd.reduce(rest)))
        if common == 1:
            break
    return common


def affine_length(values: np.ndarray) -> int:
    """How many numbers at the start of a line step evenly: `values[k] == values[0] + k * (values[1] - values[0])`."""
    first = values[:2].astype(np.int64)
    if len(values) < 3:
        return len(values)
    size, start = 64, 1
    while start < len(values) - 1:
        steps = np.diff(values[start : start + size + 1].astype(np.int64))
        breaks = steps != first[1] - first[0]
        if breaks.any():
            return start + 1 + int(breaks.argmax())
        start, size = start + size, min(2 * size, _BLOCK)
    return len(values)


def combined(operation: np.ufunc, a: np.ndarray, b: np.ndarray | int, dtype: Any) -> np.ndarray:
    """A sum or a product computed as int64 and cut to a dtype, by blocks."""
    made = np.empty(np.broadcast_shapes(a.shape, np.shape(b)), dtype)
    return operation(a, b, out=made, dtype=np.int64, casting="unsafe")


def divides(divisor: int, values: np.ndarray) -> bool:
    """Whether a number divides all values."""
    return divisor == 1 or not any((block % divisor).any() for (block,) in blocks_of(values))


def are_equal(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays hold the same; most that differ do so in the first block."""
    return a is b or (a.shape == b.shape and all(np.array_equal(x, y) for x, y in blocks_of(a, b)))
