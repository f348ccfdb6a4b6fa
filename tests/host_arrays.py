"""Arrays of the host that are handed over and then written to: JAX may take aligned ones without a copy."""

from __future__ import annotations

import numpy as np

ALIGNMENT = 64
"""Bytes at whose multiples an array begins that JAX's CPU client may take as its own buffer."""


def aligned(values: np.ndarray) -> np.ndarray:
    """A copy of an array that begins at a multiple of 64 bytes."""
    room = np.empty(values.nbytes + ALIGNMENT, np.uint8)
    start = -room.ctypes.data % ALIGNMENT
    held = room[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    held[...] = values
    return held


def overwrite(array: np.ndarray) -> None:
    """Write other numbers to all of an array."""
    array[...] = array + 1 if array.dtype != bool else ~array
