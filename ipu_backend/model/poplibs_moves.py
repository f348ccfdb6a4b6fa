"""PopLibs' forms for what moves elements: fills, copies, slices, rows by index, transposes.

In come numbers of elements and of bytes; out come cycles of one worker.

Sources, of PopLibs: lib/popops/PerformanceEstimation.cpp @ f77e6418 (fills, multiSlice, multiUpdateAdd);
lib/popops/popopsCycleEstimators.cpp, a version of SDK 3.0 or later (dynamic slices) and @ 777ed7a4 of 2021 (transposes,
which the last versions lack); lib/poplin/ConvModel.cpp of 2020 (bytes that copies on a tile move).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from codelet.tracing.cases import greatest, where
from ipu_backend.model.costs import ceil_div

MEMCPY_BYTES = 8
"""What a copy of neighbouring bytes moves in a cycle."""

SHORT_COPY_CYCLES = 80
"""The least that a copy with a stride takes. Poplar's model of its copies: a fit."""


def itemsize(dtype: Any) -> int:
    """The bytes of one element. Random keys have none that NumPy knows: two words."""
    return getattr(dtype, "itemsize", 8)


def fill_cycles(n: int, dtype: Any) -> int:
    """A fill of `n` elements (`Fill`).

    >>> fill_cycles(100, np.dtype("float32")), fill_cycles(100, np.dtype("float16"))
    (73, 51)
    """
    size = itemsize(dtype)
    if not n:
        return 0
    if size == 4:
        return 23 + n // 2 + n % 2
    if size == 2:
        return where(n == 1, 15, where(n == 2, 21, 26 + n // 4))
    if size == 1:
        return where(n < 64, 28 + n // 4, 39 + n // 8)
    return 5 + n * (size // 8)


def copy_cycles(runs: int, run: int, dtype: Any) -> int:
    """A copy of `runs` pieces, each of `run` neighbours.

    A fit. One piece takes a load and a store for every 8 bytes, as long as a fill of them, which holds where the two
    lie in different memory elements. Single elements take 8 cycles each, as Poplar's model has it of its copies with a
    stride (801 for 100 float32); that a longer piece takes 7 cycles beside its bytes joins the two.
    """
    if not runs * run:
        return 0
    found = 16 + runs * (7 + ceil_div(run * itemsize(dtype), MEMCPY_BYTES))
    return where(runs == 1, found, greatest(SHORT_COPY_CYCLES, found))


def multi_slice_cycles(offsets: int, row: int, dtype: Any, *, update: bool = False) -> int:
    """Rows of `row` elements copied by index, from a table or (`update`) into it: `multiSlice`, `multiUpdate`.

    Workers that share a table have rows of it each, and look at all indices: none is faster where all indices are its.
    """
    size = itemsize(dtype)
    each, elements = (3, 4) if size == 1 else (2, 2)
    return (29 if update else 30) + offsets * (19 + each * ceil_div(row * max(1, size // 4), elements))


def multi_update_cycles(offsets: int, row: int, dtype: Any) -> int:
    """Rows of `row` elements added, by index, to those of a table: `multiUpdateAdd`, and other operations alike.

    Rows that are no whole words go by an element.
    """
    size = itemsize(dtype)
    base, over = (30, 12) if size == 2 else (29, 11)
    together = max(1, 8 // size)
    if row * size % 4:
        return 3 + base + offsets * (over + 20 * row)
    return 3 + base + offsets * (over + (ceil_div(row, together) - 1) * 3)


def dynamic_slice_cycles(slices: int, n: int, dtype: Any) -> int:
    """`slices` pieces of `n` neighbours copied from a position known late, or to one: `DynamicSlice1D`."""
    size = itemsize(dtype)
    if size == 1:
        return 72 + (70 + 2 * (n // 4)) * slices
    n *= max(1, size // 4)
    return 35 + (24 + 2 * (n // (8 // min(size, 4)))) * slices


def iota_cycles(n: int) -> int:
    """Numbers in order: `Iota`, three cycles for two of them."""
    return 14 + 3 * ceil_div(n, 2)


def transpose_cycles(matrices: int, rows: int, columns: int, dtype: Any) -> int:
    """Matrices transposed: `Transpose2D`; elements of other sizes than 2 and 4 bytes by `permute_cycles`.

    >>> transpose_cycles(1, 16, 16, np.dtype("float32"))
    254
    """
    r, c, m, size = rows, columns, matrices, itemsize(dtype)
    if size == 4:
        if r % 2 == c % 2 == 0 and r * (c - 2) // 2 < 512 and r < 512:
            return 27 + m * (11 + r // 2 * (6 + 3 * (c // 2 - 1)))
        return 13 + m * (8 + c * (5 + 2 * r))
    if size == 2:
        if r % 4 == c % 4 == 0 and c >= 8 and 1 + 3 * c // 4 < 512:
            return 39 + m * (12 + r // 4 * (15 + 4 * (c // 4 - 2)))
        if r % 4 == 0 and c == 4:
            return 34 + 15 * m if r == 4 else 30 + m * (37 + 4 * (r // 4 - 2))
        return 15 + m * (8 + c * (5 + 5 * r // 2))
    return permute_cycles(m * r * c, 1, dtype)


def transpose_in_pieces(matrices: int, rows: int, columns: int, dtype: Any) -> int:
    """The same, where it is faster in pieces of some rows each: long matrices are beyond what its loops can count.

    That pieces may be transposed so is a guess; PopLibs has smaller ones for it.
    """
    counts = [2**k for k in range(max(1, rows // 4).bit_length())]
    pieces = {(count, rounded) for count in counts for rounded in (-(-rows // count), -(-rows // count // 4) * 4)}
    return min(transpose_cycles(matrices * count, own, columns, dtype) for count, own in pieces)


def permute_cycles(n: int, together: int, dtype: Any) -> int:
    """`n` elements put in another order, of which `together` stay neighbours.

    `ConvModel.cpp` reckons with as many bytes a cycle as stay together, 8 at most. 17 to begin with is a guess.
    """
    size = itemsize(dtype)
    return 17 + ceil_div(n * size, min(MEMCPY_BYTES, together * size)) if n else 0


def heap_sort_cycles(n: int, operands: int) -> int:
    """`n` elements sorted, others with them, by one worker: `HeapSortVertex`, at its worst."""
    return 8 * operands * (19 * n * int(math.log2(n)) + 6 * n + 2) if n > 1 else 0


def bitonic_sort_cycles(n: int, operands: int, dtype: Any, workers: int = 1) -> tuple[int, int]:
    """The same by a bitonic network whose pairs workers share: of each worker, and how many compute sets.

    `CompareAndSwapAtDistance`, once for each distance. Operands after the second go along as the second does.
    """
    inner, first, outer, first_outer, item, overhead = {
        (True, False): (13, 13, 13, 3, 17, 40),
        (False, False): (12, 12, 17, 3, 22, 42),
        (True, True): (11, 8, 11, 11, 4, 23),
        (False, True): (17, 17, 22, 5, 30, 43),
    }[dtype in (np.float32, np.float16), operands > 1]
    pairs, cycles, sets = ceil_div(n // 2, workers), 0, 0
    for stage in range((n - 1).bit_length()):
        for distance in (2**k for k in range(stage, -1, -1)):
            runs = max(1, pairs // distance)
            cycles += overhead + item + first + (pairs - 1) * inner + first_outer + (runs - 1) * outer
            sets += 1
    return cycles * max(1, operands - 1), sets


def top_k_cycles(n: int, k: int) -> int:
    """The `k` largest of `n`, in order, by a heap: `ReduceMaxNClassSparse`, at its worst."""
    k = max(1, min(k, n))
    grown = 13 * (k - 1) + 20 * math.lgamma(k)  # a sum of logarithms
    sifted = (n - k) * (13 + 20 * math.log(k))
    ordered = 10 * k + 20 * math.lgamma(k + 1)
    return 35 + int(grown + sifted + ordered) + 8 * k


def arg_reduce_cycles(n: int, dtype: Any) -> int:
    """Where the largest of `n` is: `ReduceMaxClassGather`, with all to one worker.

    >>> arg_reduce_cycles(100, np.dtype("float32"))
    327
    """
    return 30 + 3 * (n - 1) if dtype in (np.float32, np.float16) else 47 + 6 * n
