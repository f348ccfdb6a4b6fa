"""PopLibs' forms for reductions and pooling, each of one worker.

In come results, and how many elements are reduced to each; out come cycles. Only float16 and float32 have vectors.

Sources, of PopLibs: lib/popops/reduction/CycleEstimationFunctions.cpp @ b2996457, the last found (a later one exists);
lib/popnn/PerformanceEstimation.hpp @ 6da42fe7 (pooling).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from codelet.tracing.cases import gcd
from ipu_backend.model.costs import ceil_div
from ipu_backend.model.dtypes import name_of


def _vector(dtype: Any, vector_bytes: int) -> int:
    """Elements that one instruction combines: of what is no float, one."""
    return max(1, vector_bytes // {"float16": 2, "float32": 4}.get(name_of(dtype), vector_bytes))


def reduce_continuous_cycles(outputs: int, each: int, dtype: Any, vector_bytes: int = 8) -> int:
    """Each result from `each` neighbours: `getCycleEstimateReduceAllRegionsContinuous`.

    >>> reduce_continuous_cycles(16, 64, np.dtype("float32"))
    721
    """
    return 17 + 12 * outputs + outputs * (each // _vector(dtype, vector_bytes)) + 2 * (each % 2)


def reduce_to_one_cycles(each: int, dtype: Any, out: Any, *, is_sum: bool, vector_bytes: int = 8) -> int:
    """One result from neighbours: `getCyclesEstimateForSingleInput`. Sums accumulate two vectors in two cycles.

    >>> reduce_to_one_cycles(100, np.dtype("float16"), np.dtype("float16"), is_sum=True)
    51
    """
    vector = _vector(dtype, vector_bytes)
    cycles, elements = (2, 2 * vector) if is_sum and vector > 1 else (1, vector)
    return 17 + cycles * each // elements + each % elements + (0 if out == np.float32 else 5)


def reduce_strided_cycles(outputs: int, each: int, dtype: Any, out: Any, *, is_sum: bool, vector_bytes: int = 8) -> int:
    """Results that lie side by side, from `each` rows: `getCyclesEstimateForStridedReduce`.

    A vector of results at a time, or as many as divide a row. Of products the source has no
    entry in float16: as of extrema.

    >>> reduce_strided_cycles(16, 64, np.dtype("float16"), np.dtype("float32"), is_sum=True)
    319
    """
    together = gcd(_vector(dtype, vector_bytes), outputs)
    half = dtype == np.float16
    after = (7 if is_sum and out == np.float32 else 8) if half else (5 if is_sum else 4)
    return 15 + ceil_div(outputs, together) * (3 + after + 3 + (each - 1))


def reduce_logical_cycles(outputs: int, pieces: int, run: int) -> int:
    """`and` and `or` of booleans, compiled: `pieces` runs of `run` elements to each region of `outputs`."""
    return 31 + outputs * (8 + pieces * (22 + 25 * run))


def histogram_cycles(share: int, limits: int, data: int, dtype: Any) -> int:
    """How many of some data are beyond each limit, a pass of all data for each of a worker's `share` of the limits.

    `Histogram1D` by limits (lib/popops/HistogramPerformanceEstimation.cpp @ 612afd8a), its pointers not packed.

    >>> histogram_cycles(16, 16, 100, np.dtype("float32"))
    2638
    """
    if dtype == np.float16:
        each = 17 + 3 * (data // 4) + 3 * (data & 1) + 3 * (data >> 1 & 1)
    else:
        each = 11 + 3 * (data // 2) + 2 * (data & 1)
    return 19 + 3 + each * share + 8 + 2 * limits


def pooling_cycles(rows: int, width: int, vectors: int, window: int, *, is_sum: bool, backward: bool = False) -> int:
    """Pooling: `rows` of `width` results, each of `vectors` vectors of channels, from `window` positions.

    `getPoolingCycles`, its forward and its backward form, one group of channels.
    """
    unpack, each = 2, 7 if backward else (5 if is_sum else 4)
    position = 23 + 2 + vectors * (3 + each + (5 if backward else 3) * (width - 1))
    begin = 17 + unpack + (6 if backward else 4) + 6 + unpack
    begin += 2 + (2 if is_sum else 1) + (6 + 2 * unpack if backward else 0) + 6 + 2 * unpack
    return begin + rows * (15 + window * position) + 1
