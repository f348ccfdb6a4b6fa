"""Memory that a fresh process holds: a file of its own, so that such a process imports no more than this."""

import numpy as np

from benchmarks.fresh import peak_bytes


def hold(num_bytes: int) -> tuple[int, int]:
    """The most memory that this process has held before it made an array, and after it, in bytes."""
    before = peak_bytes()
    np.ones(num_bytes, np.int8)
    return before, peak_bytes()
