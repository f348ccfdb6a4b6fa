"""What PopLibs' own estimators say of products, pooling and linear algebra; as `poplibs_oracle.py`, and of its words.

The machine in question is Mk2: 16 results of a pass in float16 and in float32, 8 where float16 is summed in float32; 16
weights a result in float16 and 8 in float32; 16 bytes of weights loaded a cycle, of memory that is interleaved.
"""

from __future__ import annotations

from tests.poplibs_oracle import (
    ACCUMULATED,
    BYTES,
    SUPERVISOR,
    VECTOR,
    Estimate,
    W,
    alone,
    ceil_div,
    reduce_continuous,
    shared,
)

# --- the vector unit ------------------------------------------------------------------------------------


def dot_core(dtype: str, n: int, partials: str | None = None) -> int:
    """The inner part of a horizontal MAC; for two results where float16 is summed in float16.

    poplin/PerformanceEstimation.hpp, getConvPartialHorizontalMacSupervisorInnerLoopCycleEstimate (SDK 3.0 or later).
    """
    if dtype == "f32":
        return 8 + 2 * n if n % 2 else 7 + n // 2
    if (partials or dtype) == "f32":
        return 8 + 2 * n if n % 2 else 8 + n if n % 4 else 7 + n // 4
    return 13 + 2 * n if n % 2 else 13 + n if n % 4 else 11 + n // 4


def horizontal_mac(dtype: str, rows: int, depth: int, columns: int, partials: str | None = None) -> Estimate:
    """A product on the vector unit, each worker some of the rows of one group: as `dot_core`."""
    partials = partials or dtype
    results = columns if partials == "f32" else ceil_div(columns, 2)

    def worker(own: int) -> int:
        return 16 + 16 + (19 + own * (7 + results * dot_core(dtype, depth, partials)))

    supervisor = (58 if partials == "f32" else 63) + W * 9 + 23 + 15 + 10
    return shared(rows, worker, supervisor)


def dot_product(dtype: str, n: int) -> Estimate:
    """One dot product; of a tile, split by channels where that is faster: a part a worker, and one adds them up."""
    whole = horizontal_mac(dtype, 1, n, 1)
    vectors = ceil_div(ceil_div(n, W), VECTOR[dtype])
    part, ending = horizontal_mac(dtype, 1, vectors * VECTOR[dtype], 1), reduce_continuous(dtype, 1, W)
    supervisor = (58 if dtype == "f32" else 63) + W * 9 + 23 + 15 + 10
    return Estimate(min(whole.tile, supervisor + W * part.worker + SUPERVISOR + ending.tile), whole.worker)


def outer_product(dtype: str, width: int, channels: int, groups: int = 1) -> Estimate:
    """OuterProduct: poplin/PerformanceEstimation.hpp (SDK 3.0 or later)."""
    if dtype == "f32":
        row = 6 + (channels - 6) // 2 if channels >= 6 and channels % 2 == 0 else 10 + 2 * channels
        return alone(25 + groups * (11 + width * row))
    row = 6 + (channels - 12) // 4 if channels >= 12 and channels % 4 == 0 else 10 + 5 * channels // 2
    return alone(25 + groups * (10 + width * row))


def reduce_partials(dtype: str, outputs: int, partials: int, *, out: str | None = None, together: bool = True) -> int:
    """ReduceAdd of the partial sums of a convolution, cycles of the tile: poplin/PerformanceEstimation.hpp.

    Args:
        dtype: of the partial sums.
        outputs: elements of one partial.
        partials: how many there are.
        out: the dtype of the sums.
        together: whether the partials are one array, rather than one each.
    """
    v, types = ACCUMULATED[dtype], (dtype, out or dtype)
    if together:
        after = {("f32", "f32"): 8, ("f32", "f16"): 7, ("f16", "f32"): 10, ("f16", "f16"): 9}[types]
        return 33 + W * (20 + (2 * partials + after) * ceil_div(outputs // v, W))
    after = {("f32", "f32"): 7, ("f32", "f16"): 6, ("f16", "f32"): 9, ("f16", "f16"): 8}[types]
    own, more = divmod(outputs // v + (outputs % v).bit_count(), W)
    extra = 0
    if more and outputs % v:
        extra = 2 * partials + (13 if dtype == "f32" else 11)
    elif more:
        own += 1
    return W * (32 + (3 * partials + after) * own + extra)


# --- the matrix unit ------------------------------------------------------------------------------------

_UNITS = {("f16", "f16"): (16, 16), ("f16", "f32"): (8, 16), ("f32", "f32"): (16, 8)}
"""Of the dtypes of inputs and partial sums: units, which are results of a pass; and weights of each, summed over."""


def matrix_unit_worker(dtype: str, rows: int, *, partials: str | None = None, first: bool = True) -> int:
    """One worker's rows through one block of weights, the common path: poplin/PerformanceEstimation.hpp."""
    if dtype == "f32":
        zeroed = (2 + 8 * rows) * first if rows else 0
        return (24, 47, 46)[rows] + zeroed if rows < 3 else 46 + zeroed + 8 * (rows - 3)
    if rows < 3:
        return (20, 31, 40)[rows] + (1 if first else 2)
    return (37 if first else 38) + 4 * (rows - 3)


def matrix_unit_1x1(
    dtype: str, rows: int, depth: int, columns: int, partials: str | None = None, *, load_bytes_per_cycle: int = 16
) -> int:
    """ConvPartial1x1Out of one group, rows shared by workers; cycles of the tile: poplin/PerformanceEstimation.hpp.

    The columns are one group of output channels, in as many passes as the units need.
    """
    partials = partials or dtype
    units, weights = _UNITS[dtype, partials]
    load = units * weights * BYTES[dtype] // load_bytes_per_cycle
    each, in_groups, passes = ceil_div(rows, W), ceil_div(depth, weights), ceil_div(columns, units)
    k = 1 if (dtype, partials) != ("f32", "f16") else 0
    kept, kept_later = (0, 0) if dtype == "f32" else (7, 3)  # what a worker keeps of the pass before
    inner, inner_first = (
        W * (matrix_unit_worker(dtype, each, partials=partials, first=first) - kept) for first in (False, True)
    )
    later = (in_groups - 1) * (16 - k + 19 + passes * (6 + load + inner))
    begin = 50 + W * (kept + kept_later * (in_groups - 1))
    return begin + 12 + k + later + 11 + 19 - k + passes * (7 + load + inner_first)


def matrix_unit_float8(rows: int, depth: int, columns: int) -> int:
    """The same in float8: 16 units, 32 inputs a pass; poplin/PerformanceEstimation.hpp (SDK 3.0 or later)."""
    load = 16 * 32 // 16
    each, in_groups, passes = ceil_div(rows, W), ceil_div(depth, 32), ceil_div(columns, 16)
    assert passes == 1, "more columns are groups of output channels"
    worker = 20 + ((0, 17, 22)[each] if each < 3 else 29 + 4 * (each - 3))
    inner, inner_first = W * worker, W * (worker - 5)
    first = 6 * W + 10 + (20 * W + 11) + load + inner_first
    return 46 + 2 * W + 9 + first + (in_groups - 1) * (17 * W + 6 + load + inner)


# --- pooling and non-linearities ----------------------------------------------------------------------


def pooling(dtype: str, rows: int, kernel: int, channels: int, width: int, *, is_sum: bool = False) -> Estimate:
    """Forward pooling, the rows of results shared by workers: popnn/PerformanceEstimation.hpp @ 6da42fe7.

    Args:
        dtype: of the elements.
        rows: of results.
        kernel: positions of a window.
        channels: of an element, one group, whole vectors.
        width: results of a row; the repeat count is one less.
        is_sum: or an average, rather than a maximum.
    """
    c, each, unpack = channels // VECTOR[dtype], 5 if is_sum else 4, 2

    def worker(own: int) -> int:
        items = kernel * (23 + 2 + c * (3 + each - 1 + 3 * (width - 1) + 1))
        begin = 17 + unpack + 4 + 6 + unpack + 2 + (2 if is_sum else 1) + 6 + 2 * unpack
        return begin + own * (15 + items) + 1

    return shared(rows, worker, 7 + 6)


def pooling_inner(rows: int, kernel: int, vectors: int, repeats: int, *, is_sum: bool = False) -> int:
    """What a worker of `pooling` takes for its rows alone."""
    return rows * (15 + kernel * (25 + vectors * (2 + (5 if is_sum else 4) + 3 * repeats + 1)))


# --- linear algebra -------------------------------------------------------------------------------------


def cholesky(dtype: str, n: int) -> int:
    """Cholesky, one vertex of one worker, cycles of the tile: poplinCycleEstimators.cpp @ f9d7e152.

    It interpolates what hardware took for the whole compute set (tools/generate_cycle_estimate.py @ 1e4ea3b2): 85
    products and 44 divisions and roots in 7,950 cycles, so a tile's, of which a worker has a sixth.
    """
    if dtype == "f32":
        return n**3 + 102 * n**2 + 101 * n + 102
    return n**3 // 2 + 795 * n**2 // 4 + 191 * n // 2 + 426


def triangular_solve(dtype: str, n: int, *, lower: bool = True) -> int:
    """TriangularSolve, one right side: poplinCycleEstimators.cpp @ f9d7e152, as `cholesky`."""
    if lower:
        return 3 * n**2 // 2 + 180 * n - 126 if dtype == "f32" else 3 * n**2 // 4 + 318 * n - 150
    if dtype == "f32":
        return 27 * n**2 // 4 + 327 * n // 2 + 54
    return 135 * n**2 // 16 + 1089 * n // 4 + 12


def triangular_inverse(dtype: str, n: int, *, lower: bool = True) -> int:
    """TriangularInverse: poplinCycleEstimators.cpp @ f9d7e152, as `cholesky`."""
    if lower:
        return 6 * n**3 + 264 * n**2 + 78 * n - 120 if dtype == "f32" else 7 * n**3 + 387 * n**2 // 2 + 272 * n - 120
    return 6 * n**3 + 51 * n**2 + 213 * n + 12 if dtype == "f32" else 7 * n**3 + 123 * n**2 + 269 * n - 24


def triangular_solve_shared(dtype: str, n: int, *, lower: bool = True) -> int:
    """TriangularSolveMultiWorker, cycles of the tile: poplinCycleEstimators.cpp @ f9d7e152."""
    blocks = n // 4
    if lower:
        each = 11 * (n - 4) // (2 * W) + 74 if dtype == "f32" else 17 * (n - 4) // (4 * W) + 112
        return W * blocks * each + 9 * blocks + 21
    each = 10 * (n - 4) // (2 * W) + 99 if dtype == "f32" else 17 * (n - 4) // (4 * W) + 145
    return W * blocks * each + 6 * blocks + 42


def householder_squares(n: int, skipped: int = 0) -> Estimate:
    """PartialSquareElements of a QR: poplinCycleEstimators.cpp @ f9d7e152."""
    return Estimate(
        W * (41 + 2 * ceil_div(skipped, W) + 5 * ceil_div(n - skipped, W)), 41 + 2 * skipped + 5 * (n - skipped)
    )


def householder(n: int, skipped: int = 0) -> Estimate:
    """Householder of a QR: poplinCycleEstimators.cpp @ f9d7e152."""
    return Estimate(
        W * (47 + 4 * ceil_div(skipped, W) + 5 * ceil_div(n - skipped, W)), 47 + 4 * skipped + 5 * (n - skipped)
    )


def householder_update(rows: int, n: int) -> int:
    """Update of the rows of R of a QR, cycles of the tile: poplinCycleEstimators.cpp @ f9d7e152."""
    return 80 + W * ceil_div(rows, W) * (76 + 7 * ceil_div(n - 16, W))


def row_copy(n: int) -> Estimate:
    """RowCopy of a QR: poplinCycleEstimators.cpp @ f9d7e152."""
    return shared(n, lambda share: 32 + 7 * share, 0)
