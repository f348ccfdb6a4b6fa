"""The cycle formulae of PopLibs, Graphcore's library of codelets, for one worker.

In come numbers of elements and dtypes, out come cycles: what one worker thread takes for its vertex, which is what a
vertex of ours is.

Sources: PopLibs 3.1, github.com/graphcore/poplibs: lib/popops/popopsCycleEstimators.{hpp,cpp} for reductions
and fills; lib/poplin/PerformanceEstimation.hpp for products. Where a number is not
from there, it says that it is a guess.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ipu_backend.model.costs import ceil_div
from ipu_backend.model.dtypes import VECTOR_BYTES, kind_of, software_factor, vector_width

# --- fills ----------------------------------------------------------------------------------------------


def fill_cycles(n: int, dtype: Any = np.float32, *, vector_bytes: int = VECTOR_BYTES) -> int:
    """Cycles of one worker that fills, or copies, `n` elements.

    A copy loads and stores a vector in one instruction, so that it takes as long as a fill: a guess, which
    holds where the two lie in different memory elements. Bytes are moved, whatever they mean.

    >>> fill_cycles(100)
    73
    """
    width = max(1, vector_bytes // np.dtype(dtype).itemsize)
    return 16 + ceil_div(n, width) + 7


# --- reductions and products --------------------------------------------------------------------------


def reduce_cycles(
    outputs: int, each: int, dtype: Any, *, cycles_per_operation: int = 1, vector_bytes: int = VECTOR_BYTES
) -> int:
    """Cycles of one worker that reduces `each` neighbouring elements to each of `outputs` results.

    >>> reduce_cycles(1, 16, np.float32)
    37
    """
    turns = ceil_div(each, vector_width(dtype, vector_bytes))
    return 17 + 12 * outputs + turns * outputs * cycles_per_operation * software_factor(dtype)


def dot_cycles(n: int, dtype: Any, *, vector_bytes: int = VECTOR_BYTES) -> int:
    """Cycles of one worker for the dot product of `n` elements on the vector unit (PopLibs' horizontal MAC).

    Integers, which no vector instruction multiplies, take the 7 cycles an element of an elementwise product: a guess.

    >>> dot_cycles(16, np.float32)
    66
    """
    base = 65 if kind_of(dtype) == "half" else 58
    each = 1 if kind_of(dtype) in ("half", "float") else 7
    return base + ceil_div(n, vector_width(dtype, vector_bytes)) * each * software_factor(dtype)


def outer_product_cycles(width: int, channels: int, groups: int = 1) -> int:
    """Cycles of one worker for the outer product, in float32, of `width` and `channels` elements.

    >>> outer_product_cycles(4, 10)
    68
    """
    return 25 + groups * (11 + width * (6 + ceil_div(max(0, channels - 6), 2)))


class MatrixUnit(NamedTuple):
    """A tile's matrix unit for one dtype: a pass multiplies rows by a block of weights that it holds.

    Attributes:
        base: cycles of a worker's vertex besides its rows.
        core: cycles of a worker for one row.
        inputs: rows of the block of weights: what is summed over in one pass.
        outputs: columns of the block of weights.
    """

    base: int
    core: int
    inputs: int
    outputs: int

    def worker_cycles(self, rows: int) -> int:
        """Cycles of one worker that passes `rows` rows by one block of weights.

        >>> MatrixUnit(base=38, core=4, inputs=16, outputs=16).worker_cycles(13)
        78
        """
        return self.base + max(0, rows - 3) * self.core


def matrix_unit(dtype: Any, macs_per_cycle: int) -> MatrixUnit | None:
    """The matrix unit for a dtype, of a tile with so many multiply-accumulates a cycle; None where it has none.

    Six workers at a row in `core` cycles each are a row in `core` cycles of the tile, so that a block has
    `core * macs_per_cycle` weights. How many of them are inputs (poplar::Target::getWeightsPerConvUnit) is not
    published for these chips: 16 in float16 and 8 in float32 are a guess, one row of 32 bytes.
    """
    if not macs_per_cycle:
        return None
    if kind_of(dtype) == "half":
        return MatrixUnit(38, 4, 16, max(1, 4 * macs_per_cycle // 16))
    if dtype == np.float32:
        return MatrixUnit(46, 8, 8, max(1, 8 * macs_per_cycle // 8))
    return None
