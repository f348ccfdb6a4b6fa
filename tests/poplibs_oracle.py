"""What PopLibs' own estimators say of vertices that move, combine and reduce elements: an oracle for our rules.

Written out again, in our own words, from the last public versions of its sources, and from nothing of ours. Each
function names the file it follows and the first digits of the commit. In come sizes and a dtype ("f32", "f16",
"int32", ...); out comes an `Estimate`. Products, pooling and linear algebra have a file of their own,
`poplibs_products.py`; the rows of elementwise operations, `poplibs_tables.py`.

What we hold to be slips of those sources is left out, each said where it would stand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from tests.poplibs_tables import BINARY_ROWS, SCALAR_ROWS, UNARY_ROWS, row_of

W = 6
"""Workers of a tile."""

SUPERVISOR = 11
"""To start and end what a tile's workers share: basicOpSupervisorOverhead, PerformanceEstimation.cpp @ f77e6418."""

BYTES = {"f8": 1, "bool": 1, "uint8": 1, "int8": 1, "f16": 2, "int16": 2, "f32": 4, "int32": 4, "uint32": 4, "int64": 8}
VECTOR = {"f32": 2, "f16": 4, "int32": 2, "uint32": 2}
"""Elements of a vector. That of integers is closed source: 2 is what makes the tables' natural rows come out."""

ACCUMULATED = {"f32": 4, "f16": 8}
"""Elements that one instruction adds to the accumulators; 1 of what is not here."""


class Estimate(NamedTuple):
    """Cycles of one vertex.

    Attributes:
        tile: of a tile that has this vertex alone. A vertex for one worker takes W times that worker's cycles.
        worker: of one worker that does all of it.
    """

    tile: int
    worker: int


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def shared(n: int, worker: Callable[[int], int], supervisor: int = SUPERVISOR) -> Estimate:
    """A vertex whose elements the workers share."""
    return Estimate(supervisor + W * worker(ceil_div(n, W)), worker(n))


def alone(worker: int) -> Estimate:
    """A vertex of one worker."""
    return Estimate(W * worker, worker)


# --- elementwise --------------------------------------------------------------------------------------


def binary(operation: str, dtype: str, n: int, *, in_place: bool = False) -> Estimate:
    """BinaryOp1D, binaryOpInnerLoopCycles: popopsCycleEstimators.cpp @ 82cd24e5."""
    row = row_of(BINARY_ROWS, operation, dtype, in_place=in_place)
    base = 58 if in_place else 29 if dtype == "f32" else 26

    def worker(share: int) -> int:
        return base + ceil_div(share, row.elements or VECTOR[dtype]) * (row.cycles + row.overhead)

    return shared(n, worker)


def unary(operation: str, dtype: str, n: int, *, in_place: bool = False) -> Estimate:
    """UnaryOp1D, unaryOpInnerLoopCycles: popopsCycleEstimators.cpp @ 82cd24e5. Part turns count in part."""
    row = row_of(UNARY_ROWS, operation, dtype, in_place=in_place)
    base = 55 if in_place else 33 if operation == "exp" else 17
    v = VECTOR.get(dtype, 1)

    def worker(share: int) -> int:
        if row.elements == 0:
            return base + ((row.cycles + row.overhead) * (share + v - 1)) // v
        return base + ceil_div(share, row.elements) * (row.cycles + row.overhead)

    return shared(n, worker, 9 + SUPERVISOR)


def scalar_broadcast(operation: str, dtype: str, n: int, *, in_place: bool = False) -> Estimate:
    """BroadcastScalar1D: popopsCycleEstimators.cpp @ 82cd24e5. An array and one number."""
    row = row_of(SCALAR_ROWS, operation, dtype, in_place=in_place)

    def worker(share: int) -> int:
        return 20 + ceil_div(share, row.elements or VECTOR[dtype]) * (row.cycles + row.overhead)

    return shared(n, worker)


def outer_broadcast(dtype: str, rows: int, columns: int, *, cycles: int = 1, misaligned: bool = False) -> Estimate:
    """BroadcastVectorOuterByRow1D, a number to each row: popopsCycleEstimators.cpp @ 82cd24e5."""
    v, overhead = VECTOR[dtype], 25 if misaligned else 7
    return shared(rows, lambda share: 15 + share * (overhead + (cycles + 1) * (columns + v - 1) // v))


def select(n: int) -> Estimate:
    """Select, of C++: popopsCycleEstimators.cpp @ 82cd24e5. That of the form in place multiplies by regions: a slip."""
    return alone(5 + 6 + 5 * n)


def select_numbers(dtype: str, n: int) -> Estimate:
    """BroadcastSelect, one of two numbers by a mask: popopsCycleEstimators.cpp @ 82cd24e5."""
    if BYTES[dtype] == 4:
        return alone(10 + 8 + 4 * n)
    return alone(10 + (23 if n % 2 else 30) + 4 * n)


def clamp(dtype: str, n: int) -> Estimate:
    """Clamp: popopsCycleEstimators.cpp @ 82cd24e5."""
    cycles, v = (7, 1) if dtype == "int32" else (2, VECTOR[dtype])
    return alone(5 + 6 + (cycles * (n + v - 1)) // v)


def iota(dtype: str, n: int) -> Estimate:
    """Iota: popopsCycleEstimators.cpp @ 82cd24e5."""
    return alone(10 + 4 + 3 * ceil_div(n, VECTOR[dtype]))


def cast(before: str, after: str, n: int) -> Estimate:
    """Cast1D and Cast1DSingleWorker: PerformanceEstimation.cpp @ f77e6418."""
    many, few = 8 // BYTES[before], 8 // BYTES[after]
    if {before, after} in ({"f32", "f16"}, {"f16", "f8"}):  # what the auxiliary pipeline casts
        m = min(2 * many, few)
        each = max(m // min(m, many), m // min(m, few))
    else:
        m, each = 1, 2

    def core(share: int) -> int:
        return 19 + each * (share // m) + int(math.log2(m)) + 2 * (share % m).bit_count()

    return Estimate(12 + W * (core(ceil_div(n, W)) + 18), 5 + core(n))


def scaled_add(
    dtype: str, n: int, *, memory_constrained: bool = False, subtract: bool = False, as_written: bool = False
) -> Estimate:
    """x += s y, getScaledArithmeticSupervisorCycleEstimate: PerformanceEstimation.cpp @ f77e6418; pointers packed.

    Vectors left over by the division among workers are not counted there (a test `< 0` of an unsigned number), which
    only `as_written` follows: on hardware they count (tessellate-ipu, test_tile_linalg_jacobi.py @ 1a8d53e1).
    """
    vectors, left = divmod(n, VECTOR[dtype])
    supervisor = 21 + 6 + SUPERVISOR + (13 if left else 7) + 12 + 6 + (7 if subtract else 0)
    tail = 0
    if left:
        tail = 8 if dtype == "f32" else 5 + (7 if left >= 2 else 0) + (6 if left == 3 else 0)

    def worker(own: int) -> int:
        each = 3 if not memory_constrained else 1 if own >= 16 else 2
        return 15 + ((6 + each * (own - 1)) if own else 0) + 2 + 1 + tail + 1

    return Estimate(supervisor + W * worker(vectors // W if as_written else ceil_div(vectors, W)), worker(vectors))


# --- moving elements ----------------------------------------------------------------------------------


def fill(dtype: str, n: int) -> Estimate:
    """Fill: PerformanceEstimation.cpp @ f77e6418."""
    if BYTES[dtype] == 4:
        return alone(16 + n // 2 + 6 + n % 2 + 1)
    if BYTES[dtype] == 2:
        return alone({1: 15, 2: 21}.get(n, 26 + n // 4))
    if BYTES[dtype] == 8:
        return alone(5 + n)
    return alone(28 + n // 4 if n < 64 else 39 + n // 8)


def multi_slice(dtype: str, offsets: int, row: int, *, update: bool = False) -> Estimate:
    """multiSlice and multiUpdate: PerformanceEstimation.cpp @ f77e6418. Every worker looks at every offset."""
    each, elements = (3, 4) if BYTES[dtype] == 1 else (2, 2)
    if update:
        return alone(29 + offsets * (19 + each * ceil_div(row, elements)))
    return alone(30 + offsets * (19 + each * ceil_div(row, elements)))


def multi_update_add(dtype: str, offsets: int, row: int) -> Estimate:
    """multiUpdateAdd, not scaled, of rows that are whole vectors: PerformanceEstimation.cpp @ f77e6418."""
    base, overhead = (29, 11) if BYTES[dtype] == 4 else (30, 12)
    return alone(3 + base + offsets * (overhead + (row // VECTOR[dtype] - 1) * 3))


def dynamic_slice(dtype: str, slices: int, n: int) -> Estimate:
    """DynamicSlice1D, `slices` of `n` elements: popopsCycleEstimators.cpp (SDK 3.0 or later)."""
    v = VECTOR[dtype]
    return shared(n, lambda share: 35 + (24 + 2 * (share // v)) * slices, SUPERVISOR + 14)


def histogram(dtype: str, limits: int, n: int) -> Estimate:
    """Histogram1D whose workers share limits: HistogramPerformanceEstimation.cpp @ 612afd8a; pointers not packed."""
    tails = n % 4 if dtype == "f16" else n % 2
    if dtype == "f16":
        each = 17 + 3 * (n // 4) + 3 * (tails & 1) + 3 * (tails >> 1)
    else:
        each = 11 + 3 * (n // 2) + 2 * tails
    return shared(limits, lambda share: 19 + 3 + each * share + 8 + 2 * limits, 0)


def transpose_2d(dtype: str, rows: int, columns: int, matrices: int = 1) -> Estimate:
    """Transpose2D: popopsCycleEstimators.cpp @ 777ed7a4 (2021, the last that has it)."""
    r, c, m = rows, columns, matrices
    if BYTES[dtype] == 4:
        if r % 2 == c % 2 == 0 and r * (c - 2) // 2 < 512 and r < 512:
            return alone(27 + m * (11 + r // 2 * (6 + 3 * (c // 2 - 1))))
        return alone(13 + m * (8 + c * (5 + 2 * r)))
    if r % 4 == c % 4 == 0 and c >= 8 and 1 + 3 * c // 4 < 512:
        return alone(39 + m * (12 + r // 4 * (15 + 4 * (c // 4 - 2))))
    if r % 4 == 0 and c == 4:
        return alone(34 + 15 * m if r == 4 else 30 + m * (37 + 4 * (r // 4 - 2)))
    return alone(15 + m * (8 + c * (5 + 5 * r // 2)))


def transpose_1d(rows: int, columns: int, matrices: int = 1) -> Estimate:
    """Transpose1D of float16, its matrices shared by workers: popopsCycleEstimators.cpp @ 777ed7a4."""
    r, c = rows // 4, columns // 4

    def worker(m: int) -> int:
        if r == c == 1:
            return 29 if m == 1 else 37 + 4 * (m - 2)
        if c == 1:
            return 27 + m * (35 + 4 * (r - 2))
        return 29 + m * (18 + r * (12 + 4 * (c - 2)))

    return Estimate(7 + W * (worker(ceil_div(matrices, W)) - 7), worker(matrices))


# --- searching and sorting ----------------------------------------------------------------------------


def arg_max(dtype: str, n: int) -> Estimate:
    """ReduceMaxClassGather, then ReduceMaxClassSparse of what workers found: popnnCycleEstimators.cpp @ 222ef394."""

    def worker(m: int) -> int:
        return 30 + 3 * (min(m, n) - 1) if dtype in ("f32", "f16") else 22 + ceil_div(n, m) * (6 * m + 25)

    gathered = shared(n, worker, 9)
    return gathered._replace(tile=gathered.tile + W * (27 + 3 * (W - 1)))


def top_k(n: int, k: int) -> Estimate:
    """ReduceMaxNClassSparse by a heap, in order, at worst: popnnCycleEstimators.cpp @ 222ef394."""
    heap = sum(13 + 20 * math.log(i) for i in range(1, k)) + (n - k) * (13 + 20 * math.log(k)) + 8 * k
    return alone(int(12 + 23 + heap + sum(10 + 20 * math.log(i) for i in range(1, k + 1))))


def heap_sort(n: int, *, with_values: bool = False) -> Estimate:
    """HeapSortVertex, at worst: popopsCycleEstimators.cpp (SDK 3.0 or later)."""
    return alone((16 if with_values else 8) * (19 * n * int(math.log2(n)) + 6 * n + 2))


_COMPARE_AND_SWAP = {  # inner, first, firstOuter, item, overhead
    ("f32", False): (13, 13, 3, 17, 40),
    ("int32", False): (12, 12, 3, 22, 42),
    ("f32", True): (11, 8, 11, 4, 23),
    ("int32", True): (17, 17, 5, 30, 43),
}


def compare_and_swap(dtype: str, pairs: int, *, with_values: bool = False) -> Estimate:
    """CompareAndSwapAtDistance, each worker one run of pairs: popopsCycleEstimators.cpp (SDK 3.0 or later)."""
    inner, first, outer, item, overhead = _COMPARE_AND_SWAP[dtype, with_values]
    return shared(pairs, lambda share: overhead + item + first + (share - 1) * inner + outer, 19)


def sort(dtype: str, n: int) -> Estimate:
    """The heap's, or the bitonic network's if that takes less; its runs in one order each."""
    inner, first, outer, item, overhead = _COMPARE_AND_SWAP[dtype if dtype == "int32" else "f32", False]
    network = 0
    for stage in range((n - 1).bit_length()):
        for distance in (2**k for k in range(stage, -1, -1)):
            between = (13 if dtype != "int32" else 17) * (n // 2 // distance - 1)
            network += overhead + item + first + (n // 2 - 1) * inner + outer + between
    return alone(min(network, heap_sort(n).worker))


# --- reductions (each for one worker) ------------------------------------------------------------------


def reduce_continuous(dtype: str, outputs: int, each: int, *, update: bool = False) -> Estimate:
    """ContinuousReduce: reduction/CycleEstimationFunctions.cpp @ b2996457. (It is handed outputs - 1: a slip.)"""
    together = min(ACCUMULATED.get(dtype, 1), 8 // BYTES[dtype])
    return alone(17 + 12 * outputs + outputs * (each // together) + (2 if each % 2 else 0) + update)


def reduce_to_one(dtype: str, n: int, *, out: str | None = None, is_sum: bool = True) -> Estimate:
    """SCALAR_OUTPUT_SINGLE_INPUT: reduction/CycleEstimationFunctions.cpp @ b2996457."""
    elements, cycles = (ACCUMULATED[dtype], 2) if is_sum else (VECTOR[dtype], 1)
    return alone(17 + cycles * n // elements + n % elements + (0 if (out or dtype) == "f32" else 5))


_AFTER_STRIDED = {  # once a vector of results: ADD, MAX
    ("f32", "f32"): (5, 4),
    ("f32", "f16"): (5, 4),
    ("f16", "f16"): (8, 8),
    ("f16", "f32"): (7, 8),
}


def reduce_strided(dtype: str, outputs: int, each: int, *, out: str | None = None, is_sum: bool = True) -> Estimate:
    """STRIDED_REDUCE: reduction/CycleEstimationFunctions.cpp @ b2996457."""
    together = min(ACCUMULATED[dtype], 8 // BYTES[dtype])
    after = _AFTER_STRIDED[dtype, out or dtype][0 if is_sum else 1]
    return alone(15 + ceil_div(outputs, together) * (3 + after + 3 + (each - 1)))


def reduce_default(dtype: str, outputs: int, partials: Sequence[int], *, is_sum: bool = True) -> Estimate:
    """DEFAULT, one region of results, without update: reduction/CycleEstimationFunctions.cpp @ b2996457.

    Args:
        dtype: of what is reduced, and of the results.
        outputs: elements of the region of results.
        partials: elements of each region that is reduced to it.
        is_sum: rather than a product or an extremum.
    """
    v_out, v_in = VECTOR[dtype], 8 // BYTES[dtype]
    v = ACCUMULATED[dtype] if is_sum else v_in
    bits = [1 << i for i in range(v.bit_length()) if (outputs % v) >> i & 1]

    def store(width: int) -> int:
        return 2 * min(width, v_out) + is_sum

    vectors, p = outputs // v, len(partials)
    total = 33 + 24 + 2 * int(math.log2(v))
    total += vectors * ((5 if is_sum else 3) + store(v) + 1) + vectors * p * 10
    total += sum((4 if is_sum else 2) + store(b) + 10 * p for b in bits)
    for size in partials:
        turns = size // outputs
        total += vectors * turns * ((2 if is_sum else 0) + 2 + v // min(v, v_in) + 3)
        total += sum(turns * (5 + b // min(b, v_in)) for b in bits)
    return alone(total)


# --- exchange and synchronization -----------------------------------------------------------------------


def exchange(num_bytes: int, bytes_per_cycle: float = 4, *, pairs_share: bool = False) -> int:
    """ExchangeEstimator.cpp @ 06f1b393: without latency, sync or whole words."""
    return math.ceil(16 * num_bytes / (round(16 * bytes_per_cycle) * (2 if pairs_share else 1)))


def small_exchange(num_bytes: int, bytes_per_cycle: int = 4) -> int:
    """A sync of 90 and an exchange with 100 of its own: popnn/CTCLossPlan.cpp @ 014c3075."""
    return 90 + 100 + num_bytes // bytes_per_cycle


def sync_of_chips(num_chips: int, clock_hertz: float) -> int:
    """15 ns a hop, there and back: poplibs_test/Util.cpp @ f69d60c6."""
    hops = 1 + (num_chips // 2) // 2
    return math.ceil(15e-9 * clock_hertz * hops * 2)
