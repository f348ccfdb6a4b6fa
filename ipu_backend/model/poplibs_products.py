"""PopLibs' forms for products: the matrix unit, dot products and outer products on the vector unit.

In come sizes of a product and how the vertex runs; out comes what it takes. A product has `groups` that have nothing
in common, each `positions` of `depth` channels by `depth` channels of `columns` results, and sums it over a `kernel`.

Sources, of PopLibs: lib/poplin/PerformanceEstimation.hpp in the last version found (QUARTER convolutions, so 3.0 or
later), by function; lib/poplin/poplinCycleEstimators.cpp @ f9d7e152, `weightsPerConvUnit`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from codelet.tracing.cases import ever, greatest, least, taken, where
from ipu_backend.model.costs import Cost, Mode, ceil_div, sourced
from ipu_backend.model.dtypes import is_float8, name_of
from ipu_backend.model.shared import cheapest

WEIGHT_LOAD_BYTES = 16
"""What a tile loads of weights in a cycle, from interleaved memory."""


@dataclass(frozen=True)
class ProductSizes:
    """The sizes of a product.

    Attributes:
        lines: rows of the field, with all of the batch; one for a matrix.
        width: positions in one of them; a matrix's rows.
        depth: input channels of a group: what is summed over beside the kernel.
        columns: output channels of a group.
        kernel: sizes of the kernel; none for a matrix product.
        groups: such products, each with operands of its own.
    """

    lines: int
    width: int
    depth: int
    columns: int
    kernel: tuple[int, ...] = ()
    groups: int = 1

    @property
    def positions(self) -> int:
        """Of the field, with all of the batch."""
        return self.lines * self.width

    @property
    def results(self) -> int:
        """Elements of the result."""
        return self.groups * self.positions * self.columns

    @property
    def summed(self) -> int:
        """Products in each result."""
        return self.depth * math.prod(self.kernel)


# --- the matrix unit -----------------------------------------------------------------------------------


class MatrixUnit(NamedTuple):
    """A tile's matrix unit for operands of one dtype and sums of another.

    Attributes:
        kind: of the operands: "quarter" for float8, "half" or "float".
        float_sums: whether it sums in float32.
        inputs: channels that are summed over in one pass: the weights that each of its units holds.
        units: what it computes in one pass: results of a position.
        itemsize: bytes of a weight.
    """

    kind: str
    float_sums: bool
    inputs: int
    units: int
    itemsize: int

    @property
    def core(self) -> int:
        """Cycles of a worker for one position."""
        return 8 if self.kind == "float" else 4

    @property
    def kept(self) -> tuple[int, int]:
        """Cycles that a worker saves where it finds its state of the pass before: in all, and by input groups.

        `conv1x1WorkerRetentionSavings`.
        """
        return (7, 3) if self.kind == "half" and (self.float_sums or self.units == 16) else (0, 0)

    def load(self, height: int = 1) -> int:
        """Cycles of the supervisor to load the weights of a pass.

        `getConvPartialAmpSupervisorWeightLoadCycleEstimate`: half as fast for filters of height 4.
        """
        return ceil_div(self.units * self.inputs * self.itemsize, WEIGHT_LOAD_BYTES // (2 if height == 4 else 1))

    def pass_cycles(self, n: int, *, zeroing: bool) -> int:
        """Cycles of a worker for `n` positions in one pass, which sets its results rather than adds where `zeroing`.

        `getConvPartial1x1SupervisorInnerLoopCycleEstimateHalfFloat` and `...Quarter`. Three positions take less than
        two, as published.

        >>> MatrixUnit("half", False, 16, 16, 2).pass_cycles(13, zeroing=False)
        78
        """
        short = least(n, 3)
        more = self.core * greatest(0, n - 3)
        if self.kind == "quarter":
            return 20 + taken((0, 17, 22, 29), short) - (5 if zeroing and n else 0) + more
        if self.kind == "half" and (self.float_sums or self.units == 16):
            return taken((20, 31, 40, 36), short) + (1 if zeroing else 2) + more
        each = 8 if self.kind == "float" and self.units == 16 else 4 if self.float_sums else 2
        start = (24, 47, 46, 46) if self.kind == "float" else (24, 39, 40, 41)
        return taken(start, short) + (2 + each * n if zeroing and n else 0) + more

    def row_cycles(self, n: int) -> int:
        """Cycles of a worker for one row of `n` positions, at one position of a kernel.

        `getConvPartialnx1WorkerCycles` and `...Quarter`.
        """
        short, more = least(n, 3), self.core * greatest(0, n - 3)
        if self.kind == "quarter":
            return 22 + taken((0, 17, 22, 29), short) + more
        stride = self.kind == "half" and self.units == (8 if self.float_sums else 16)
        return 3 + taken((17, 33, 44, 45) if self.kind == "float" else (17, 29, 33 + stride, 34), short) + more


def matrix_unit(dtype: Any, mode: Mode, *, float_sums: bool) -> MatrixUnit | None:
    """The matrix unit for operands of a dtype; None where the machine has none.

    W workers at a position in `core` cycles of theirs each make a position in `core` cycles of the tile, so that a
    pass has `core * macs` weights. How many of them one unit holds is the depth of its pipeline, 4, times what it
    loads in a cycle: 16 in float16, 8 in float32, 32 in float8. Sums of float16 in float32 run at half the rate.
    """
    kind, inputs, macs, core = {
        "float32": ("float", 8, mode.machine.float32_macs_per_cycle, 8),
        "float16": ("half", 16, mode.machine.float16_macs_per_cycle, 4),
    }.get(name_of(dtype), ("quarter", 32, mode.machine.float8_macs_per_cycle if is_float8(dtype) else 0, 4))
    if not macs:
        return None
    halved = 2 if kind == "half" and float_sums else 1
    units = max(1, core * macs // inputs // halved)
    return MatrixUnit(kind, float_sums or kind == "float", inputs, units, np.dtype(dtype).itemsize)


def _field_cycles(unit: MatrixUnit, product: ProductSizes, mode: Mode) -> Cost:
    """A product without a kernel: `getConvPartial1x1SupervisorOuterLoopCycleEstimate...`, or one worker's part of it.

    Output channels are one group, in as many passes as the units need; in float8, groups of one pass each.
    """
    inner, passes = ceil_div(product.depth, unit.inputs) - 1, ceil_div(product.columns, unit.units)
    groups, load = product.groups, unit.load()
    n = mode.share(product.positions)
    first, again = unit.pass_cycles(n, zeroing=True), unit.pass_cycles(n, zeroing=False)
    if mode.workers == 1:  # the supervisor's part, in cycles of a worker
        of_first, of_again = (ceil_div(own + load, mode.machine.num_workers) for own in (7, 6))
        return sourced(groups * passes * (of_first + first + inner * (of_again + again)))
    # The supervisor starts workers one after another, and waits for the last where all take as long.
    last = where(product.positions % mode.workers == 0, 14, 0)
    if unit.kind == "quarter":
        worker = 2 + passes * (6 + 20 + first + inner * (17 + again))
        return sourced(groups * worker, 46 + groups * (9 + passes * (21 + load + last + inner * (6 + load + last))))
    saved, saved_later = unit.kept
    common = 1 if unit.float_sums or unit.units == 16 else 0
    worker = saved + saved_later * ((inner + 1) * groups - 1)
    worker += groups * passes * (first - saved + inner * (again - saved))
    later = inner * (16 - common + 19 + passes * (6 + load + last))
    return sourced(worker, 50 + groups * (12 + common + later + 11 + 19 - common + passes * (7 + load + last)))


def _lines_of_worker(product: ProductSizes, mode: Mode) -> tuple[int, int]:
    """How many lines of the field a worker has, and how long they are: cut where there are fewer than workers."""
    several = product.lines >= mode.workers
    return where(several, mode.share(product.lines), 1), where(several, product.width, mode.share(product.positions))


def _kernel_cycles(unit: MatrixUnit, product: ProductSizes, height: int, mode: Mode) -> Cost:
    """A product with a kernel, `height` rows of it in one pass: `getConvPartialnx1Supervisor...`.

    The results are zeroed first. Then for each group, block of input channels and of results, and position of the
    kernel, the supervisor loads weights, and each worker goes through its list of lines.
    """
    tall, *others = product.kernel
    outer, inner = ceil_div(tall, height), math.prod(others)
    groups, results = product.groups, product.groups * ceil_div(product.columns, unit.units)
    blocks = results * ceil_div(product.depth, unit.inputs // height)
    passes, load = blocks * outer * inner, unit.load(height)
    lines, width = _lines_of_worker(product, mode)
    row, of_height = unit.row_cycles(width), {4: 60, 2: 46}.get(height, 15) + 3
    last = where(product.positions % mode.workers == 0, 9, 0)
    if unit.kind == "quarter":
        worker = 18 + lines * row
        if mode.workers == 1:
            return sourced(passes * (ceil_div(load, mode.machine.num_workers) + worker))
        worker = passes * worker + 5 * groups + 8 * results + blocks * (8 + outer * (20 + 13 * (inner - 1)))
        supervisor = 83 + 7 * groups + 10 * results + blocks * (13 + outer * (16 + 2 * load + 8 * (inner - 1)))
        return sourced(worker, supervisor + passes * last)
    itemsize = 4 if unit.float_sums else 2
    vectors = ceil_div(mode.share(product.positions * unit.units), mode.machine.vector_bytes // itemsize)
    zeroing, start = results * (vectors + 5), 17 if unit.float_sums else 18
    if mode.workers == 1:
        of_load = ceil_div(load + of_height, mode.machine.num_workers)
        return sourced(zeroing + passes * (of_load + start + lines * row))
    worker = 9 + (9 if unit.float_sums else 10) + zeroing + passes * (start + lines * (row - 9))
    supervisor = 109 + 17 * results + 6 * (results - groups) + groups + 6 * (groups - 1) + 1
    supervisor += 16 * groups + 14 * (blocks // greatest(1, results // groups)) + 14 * blocks
    supervisor += blocks * outer * (14 + 12 * inner) + passes * (load + of_height + last)
    return sourced(worker, supervisor)


def matrix_unit_cycles(unit: MatrixUnit, product: ProductSizes, mode: Mode) -> Cost:
    """A product on the matrix unit: for each block of weights the load of it, then the pass of all positions.

    A kernel of one position is none. Of a kernel, 1, 2 or 4 rows go in one pass, whatever takes least.
    """
    if math.prod(product.kernel) == 1:
        return _field_cycles(unit, product, mode)
    forms = [_kernel_cycles(unit, product, height, mode) for height in (1, 2, 4) if unit.inputs >= 4 * height]
    return cheapest(forms, mode)


# --- the vector unit -----------------------------------------------------------------------------------


def dot_cycles(n: int, vector: int, *, half: bool = False, float_sums: bool = True) -> int:
    """Cycles of a worker for a dot product of `n` channels, once it runs: of two such, where half sums in half.

    `getDenseDotProductCycles`; `vector` elements are loaded at once, or fewer where that does not divide `n`.

    >>> dot_cycles(16, 2), dot_cycles(15, 2)
    (15, 38)
    """
    two = half and not float_sums
    base = 11 if two else 7
    if not ever(n % vector != 0):
        return base + n // vector
    width = next(w for w in (vector // 2, vector // 4, 1) if w and n % w == 0)
    return base + (2 if two else 1) + 2 * (n // width)


def horizontal_mac_cycles(product: ProductSizes, vector: int, mode: Mode, *, half: bool, float_sums: bool) -> Cost:
    """A product as dot products on the vector unit: `getConvPartialHorizontalMacSupervisorCycleEstimate`.

    Workers share the field's positions. Channels are padded to whole vectors, as the planner does: it is never slower.
    """
    lines, width = _lines_of_worker(product, mode)
    two = half and not float_sums
    dot = dot_cycles(ceil_div(product.depth, vector) * vector, vector, half=half, float_sums=float_sums)
    channels = ceil_div(product.columns, 2) if two else product.columns
    row = 19 + width * (7 + channels * dot)
    worker = product.groups * (16 + math.prod(product.kernel) * (16 + lines * row))
    if mode.workers == 1:
        return sourced(worker)
    return sourced(
        worker + (9 if float_sums else 10),
        (63 if half else 58) + product.groups * (23 + 15 + 10),
    )


def outer_product_cycles(width: int, channels: int, groups: int = 1, *, half: bool = False) -> int:
    """Cycles of one worker for outer products of `width` and `channels` elements; channels padded where faster.

    `getOuterProductCycleEstimate`.

    >>> outer_product_cycles(4, 10)
    68
    """
    fewest, step, base = (12, 4, 10) if half else (6, 2, 11)
    padded = greatest(fewest, ceil_div(channels, step) * step)
    by_vector = 6 + (padded - fewest) // step
    by_element = 10 + (ceil_div(5 * channels, 2) if half else 2 * channels)
    return 25 + groups * (base + width * least(by_vector, by_element))


def scaled_add_cycles(n: int, vector: int, workers: int, *, subtracts: bool) -> tuple[int, int]:
    """`x += s * y` of `n` elements, s a tensor: of each worker, and of the supervisor.

    lib/popops/PerformanceEstimation.cpp @ f77e6418, `scaledArithmeticSupervisor`: 3 cycles a vector, in which it is
    loaded and stored. Vectors left over by the division among workers are not counted there, by a slip (`< 0` of an
    unsigned number); here they are, as hardware does (tessellate-ipu, tests/linalg/test_tile_linalg_jacobi.py).

    >>> scaled_add_cycles(1000, 2, 6, subtracts=False)
    (274, 63)
    """
    vectors, left = divmod(n, vector)
    tail = 0
    if left:
        tail = 8 if vector == 2 else 5 + (7 if left >= 2 else 0) + (6 if left == 3 else 0)
    own = ceil_div(vectors, workers)
    worker = 15 + (6 + 3 * (own - 1) if own else 0) + 2 + 1 + tail + 1
    return worker, 21 + 6 + 11 + (13 if left else 7) + 12 + 6 + (7 if subtracts else 0)


def vertical_mac_cycles(product: ProductSizes, mode: Mode, *, float_sums: bool) -> Cost:
    """A convolution of each channel by itself, in float16: `getConvPartialVerticalMacSupervisorCycleEstimate`.

    Workers share the field; 4 channels go together where float16 is summed in float32, else 8, and each position of
    the field is a product of as many vectors as the kernel has positions (that reading of the source is ours). The
    source adds up the sums of workers afterwards, which its own precedence of operators leaves in doubt: as written.
    """
    together = 4 if float_sums else 8
    groups, kernel = ceil_div(product.groups, together), math.prod(product.kernel)
    positions = mode.share(product.positions)
    each = 3 + 2 * (kernel - 1) + 7 + 5 if float_sums else 3 + 3 * (kernel - 1) + 7 + 15
    worker = groups * ((19 if float_sums else 13) + positions * each)
    if mode.workers == 1:
        return sourced(worker)
    zeroing = 4 + ceil_div(product.positions * together, 2 if float_sums else 4)
    sums = (9 if float_sums else 10) + (9 + 2 * 5 if float_sums else 7 + 5) * positions
    return sourced(worker, 61 + 14 + 1 + groups * (zeroing + 32 + 24 + sums))
