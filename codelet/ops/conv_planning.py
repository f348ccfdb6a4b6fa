"""The planner of convolutions: how to cut batch, groups, channels, field and kernel over tiles and vertices.

In come the sizes of a convolution; out comes a `Plan`. A vertex makes a block of results from a patch of the field, with
its halo, and a block of kernels; where input channels or the kernel are cut, it makes partial sums, and
`codelet/ops/partials.py` adds them up. Where a vertex has one position of the results, it is a matrix product, summed
over channels and kernel together: what a gradient by the kernel is made of.

Of all combinations of cuts an estimate is made at once, as arrays; those of the least estimates are priced.

Source: the splits of PopLibs (lib/poplin/ConvPlan.cpp): field, batch, output channels, input channels, kernel, groups.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from codelet.ops.blocks import Cut, num_tiles, whole
from codelet.ops.partials import add_up, plan_sum
from codelet.ops.planning import MEMORY_SHARE, Option, Plan, StepCost, block_sizes, cheapest, step_cost, vertex_cycles
from codelet.ops.windows import Along, Phase
from codelet.target import Target, VertexCycles

Kind = Literal["patch", "position", "element"]
"""What a vertex makes: a patch of the results, results at one position, or one result."""

Blocks = tuple[int, ...]
"""A size along each dimension, in the order of `Convolved.dimensions`."""


@dataclass(frozen=True)
class Convolved:
    """A convolution: out[n, g, f, y] is the sum of x[n, g, c, windows] * w[g, f, c, taps].

    Attributes:
        batch: positions n.
        groups: g, that have nothing in common.
        out_channels: f of a group.
        in_channels: c of a group.
        fields: the spatial dimensions.
        dtype: of both operands.
        partials: what is summed in.
        out_dtype: of the results.
    """

    batch: int
    groups: int
    out_channels: int
    in_channels: int
    fields: tuple[Along, ...]
    dtype: np.dtype
    partials: np.dtype
    out_dtype: np.dtype

    @property
    def rank(self) -> int:
        """How many spatial dimensions there are."""
        return len(self.fields)

    @property
    def phases(self) -> list[tuple[Phase, ...]]:
        """A phase of each spatial dimension, in all combinations."""
        return list(itertools.product(*(field.phases for field in self.fields)))

    @property
    def results(self) -> int:
        """How many results there are."""
        return self.batch * self.groups * self.out_channels * math.prod(field.results for field in self.fields)

    @property
    def summed(self) -> int:
        """How many products each result has, zeros between elements counted."""
        return self.in_channels * math.prod(field.taps for field in self.fields)

    @property
    def dimensions(self) -> tuple[tuple[str, int], ...]:
        """What can be cut, in the order in which blocks follow one another on tiles; results of one phase."""
        names = _axis_names(self.rank)
        fields = [(f"field {name}", max((p.count for p in own.phases), default=0)) for name, own in self._named(names)]
        kernel = [(f"kernel {name}", max((p.taps for p in own.phases), default=0)) for name, own in self._named(names)]
        return (
            ("groups", self.groups),
            ("batch", self.batch),
            *fields,
            ("in channels", self.in_channels),
            *kernel,
            ("out channels", self.out_channels),
        )

    def _named(self, names: Sequence[str]) -> list[tuple[str, Along]]:
        return list(zip(names, self.fields, strict=True))

    def __str__(self) -> str:
        sizes = ", ".join(f"{name} {extent:,}" for name, extent in self.dimensions if extent != 1)
        phases = f", {len(self.phases)} phases" if len(self.phases) > 1 else ""
        return f"a convolution of {self.dtype} in {self.partials}: {sizes or 'one product'}{phases}"


def _axis_names(rank: int) -> list[str]:
    return ["z", "y", "x"][3 - rank :] if rank <= 3 else [str(d) for d in range(rank)]


class Parts(NamedTuple):
    """Numbers along the dimensions of a convolution, by what they are."""

    groups: Any
    batch: Any
    fields: tuple[Any, ...]
    in_channels: Any
    kernel: tuple[Any, ...]
    out_channels: Any


def parts_of(values: Sequence[Any]) -> Parts:
    """Numbers in the order of `Convolved.dimensions` by what they are."""
    rank = (len(values) - 4) // 2
    groups, batch, *rest = values
    *between, out_channels = rest
    return Parts(groups, batch, tuple(between[:rank]), between[rank], tuple(between[rank + 1 :]), out_channels)


def cuts_of_phase(cuts: Sequence[Cut], phase: Sequence[Phase]) -> tuple[Cut, ...]:
    """The cuts of one phase: of fewer results perhaps, and of its taps, which are not cut where there are several."""
    rank = len(phase)
    own = list(cuts)
    for d, one in enumerate(phase):
        field, kernel = cuts[2 + d], cuts[3 + rank + d]
        own[2 + d] = Cut(field.name, one.count, min(field.block, one.count), min(field.grain, one.count))
        own[3 + rank + d] = kernel if kernel.extent == one.taps else whole(kernel.name, max(1, one.taps))
    return tuple(own)


# --- codelets ---------------------------------------------------------------------------------------------


def _patch(x, w, *, strides, dilations, partials, dtype):
    found = lax.conv_general_dilated(
        x, w, strides, "VALID", rhs_dilation=dilations, preferred_element_type=jnp.dtype(partials)
    )
    return found.astype(dtype)


def _position(x, w, *, partials, dtype):
    summed = tuple(range(1, x.ndim))
    return lax.dot_general(x, w, ((summed, summed), ((), ())), preferred_element_type=jnp.dtype(partials)).astype(dtype)


@cl.codelet(workers=6, issue="assembly")
def convolve(x, w, *, strides, dilations, partials, dtype):
    """A patch of results: images (batch, channels, field) by kernels (results, channels, taps), shared by workers."""
    return _patch(x, w, strides=strides, dilations=dilations, partials=partials, dtype=dtype)


@cl.codelet(issue="assembly")
def convolve_of_worker(x, w, *, strides, dilations, partials, dtype):
    """The same of one worker."""
    return _patch(x, w, strides=strides, dilations=dilations, partials=partials, dtype=dtype)


@cl.codelet(workers=6, issue="assembly")
def multiply_windows(x, w, *, partials, dtype):
    """Results at one position: windows (batch, channels, taps) by kernels (results, channels, taps)."""
    return _position(x, w, partials=partials, dtype=dtype)


@cl.codelet(issue="assembly")
def multiply_windows_of_worker(x, w, *, partials, dtype):
    """The same of one worker."""
    return _position(x, w, partials=partials, dtype=dtype)


@cl.codelet(issue="assembly")
def multiply_window(x, w, *, partials, dtype):
    """One result: a window (channels, taps) by a kernel."""
    every = tuple(range(x.ndim))
    return lax.dot_general(x, w, ((every, every), ((), ())), preferred_element_type=jnp.dtype(partials)).astype(dtype)


CODELETS: dict[tuple[Kind, bool], cl.Codelet] = {
    ("patch", True): convolve,
    ("patch", False): convolve_of_worker,
    ("position", True): multiply_windows,
    ("position", False): multiply_windows_of_worker,
    ("element", False): multiply_window,
}
"""By what a vertex makes, and whether the workers of a tile share it."""


def static_values(own: Convolved, kind: Kind, dtype: np.dtype) -> dict[str, Any]:
    """The static values of a codelet that makes results of a dtype."""
    values: dict[str, Any] = {"partials": own.partials.name, "dtype": dtype.name}
    if kind == "patch":
        values["strides"] = tuple(field.stride for field in own.fields)
        values["dilations"] = tuple(field.step for field in own.fields)
    return values


# --- prices -----------------------------------------------------------------------------------------------


def _read(field: Along, results: Any, taps: Any, over: Any, kernel_over: Any) -> tuple[Any, Any]:
    """Elements along a dimension that a tile reads for some results and taps, and how many of them no other does.

    Args:
        field: the dimension.
        results: of the tile.
        taps: of the tile.
        over: how many tiles the results are cut over.
        kernel_over: how many the taps are cut over.
    """
    reach = field.reach(results, taps)
    read = np.minimum(reach, results * taps)
    shift = np.where(over > 1, field.stride * results, field.step * taps)
    common = np.maximum(0, reach - shift) * read // np.maximum(1, reach)
    others = np.minimum(np.maximum(over, kernel_over) - 1, 2)
    in_padding = np.where(np.maximum(over, kernel_over) == 2, min(field.widths), 0)
    there = np.minimum(read - in_padding, field.extent)
    alone = np.where((over > 1) & (kernel_over > 1), 0, np.maximum(0, there - others * common))
    return there, alone


class _Moved(NamedTuple):
    """Elements that a tile has: of both operands, of these from others, and of results."""

    operands: Any
    received: Any
    results: Any


def _moved(own: Convolved, blocks: Parts, over: Parts) -> _Moved:
    """What a tile has, by the sizes of its blocks and over how many tiles each dimension is cut: numbers or arrays."""
    images = blocks.groups * blocks.batch * blocks.in_channels
    there, alone = images, images
    for d, field in enumerate(own.fields):
        read, not_shared = _read(field, blocks.fields[d], blocks.kernel[d], over.fields[d], over.kernel[d])
        there, alone = there * read, alone * not_shared
    kernels = blocks.groups * blocks.out_channels * blocks.in_channels
    several = over.batch > 1
    for d, field in enumerate(own.fields):
        kernels = kernels * (blocks.kernel[d] if len(field.phases) == 1 else field.taps)
        several = several | (over.fields[d] > 1)
    received = there - np.where(over.out_channels > 1, 0, alone) + np.where(several, kernels, 0)
    results = blocks.groups * blocks.batch * blocks.out_channels
    for d, field in enumerate(own.fields):
        results = results * blocks.fields[d] * len(field.phases)
    return _Moved(there + kernels, received, results)


def _types(own: Convolved, kind: Kind, grains: Parts) -> dict[str, tuple[tuple[int, ...], np.dtype]]:
    """The shapes of the fields of a vertex."""
    if kind == "patch":
        reaches = (f.reach(n, k) for f, n, k in zip(own.fields, grains.fields, grains.kernel, strict=True))
        window: tuple[int, ...] = (grains.in_channels, *reaches)
    else:
        window = (grains.in_channels, *grains.kernel)
    kernel = (grains.in_channels, *grains.kernel)
    if kind == "element":
        return {"x": (window, own.dtype), "w": (kernel, own.dtype)}
    return {"x": ((grains.batch, *window), own.dtype), "w": ((grains.out_channels, *kernel), own.dtype)}


def num_partials(cuts: Sequence[Cut]) -> int:
    """How many partial sums each result has."""
    vertices = parts_of([cut.vertices for cut in cuts])
    return vertices.in_channels * math.prod(vertices.kernel)


def _cycles(
    target: Target, own: Convolved, kind: Kind, shared: bool, cuts: Sequence[Cut], dtype: np.dtype
) -> VertexCycles:
    grains = parts_of([cut.grain for cut in cuts])
    return vertex_cycles(target, CODELETS[kind, shared], _types(own, kind, grains), **static_values(own, kind, dtype))


def _price(
    target: Target, own: Convolved, kind: Kind, shared: bool, cuts: tuple[Cut, ...]
) -> list[StepCost]:
    """What the compute sets of a convolution take."""
    count = num_partials(cuts)
    dtype = own.partials if count > 1 else own.out_dtype
    each: list[tuple[VertexCycles, int]] = []
    for phase in own.phases:
        if all(one.taps and one.count for one in phase):
            ours = cuts_of_phase(cuts, phase)
            of_tile = math.prod(cut.vertices_of_tile for cut in ours)
            each.append((_cycles(target, own, kind, shared, ours, dtype), of_tile))
    blocks, over = parts_of([cut.block for cut in cuts]), parts_of([np.int64(cut.parts) for cut in cuts])
    moved = _moved(own, blocks, over)
    sums_of_tile = -(-blocks.in_channels // parts_of([cut.grain for cut in cuts]).in_channels)
    held = int(moved.operands) * own.dtype.itemsize + int(moved.results) * sums_of_tile * dtype.itemsize
    received = int(moved.received) * own.dtype.itemsize
    first, *others = each
    step = step_cost(target, "convolve", cuts, first[0], received_bytes=received, tile_bytes=held, others=others)
    if count == 1:
        return [step]
    return [step, *plan_sum(target, count, own.results, own.partials, own.out_dtype, add_up).steps]


# --- estimates of all ways at once ------------------------------------------------------------------------


class _Rates(NamedTuple):
    """What a product takes on a tile, about: cycles.

    Attributes:
        channels: what a pass of the matrix unit sums over, and makes results of.
        of_pass: each pass.
        of_position: each position of a pass.
        of_dot: each dot product of channels on the vector unit.
        of_product: each product in one.
    """

    channels: int
    of_pass: float
    of_position: float
    of_dot: float
    of_product: float


@functools.lru_cache(maxsize=64)
def _rates(target: Target, dtype: np.dtype, partials: np.dtype) -> _Rates:
    """The rates of products, by the cycles of a few."""
    static = {"strides": (1, 1), "dilations": (1, 1), "partials": partials.name, "dtype": partials.name}

    def cycles(field: int, channels: int, results: int) -> float:
        side = {"x": ((1, channels, field + 2, field + 2), dtype), "w": ((results, channels, 3, 3), dtype)}
        return vertex_cycles(target, convolve, side, **static).tile_cycles(target.num_workers)

    channels = 16 if dtype.itemsize == 2 else 8
    passes = 9 * (64 // channels) ** 2
    small, large = cycles(6, 64, 64) / passes, cycles(30, 64, 64) / passes
    of_position = (large - small) / (900 - 36)
    short, long = cycles(12, 8, 1) / (144 * 9), cycles(12, 64, 1) / (144 * 9)
    of_product = (long - short) / 56
    return _Rates(channels, max(0.0, small - 36 * of_position), of_position, short - 8 * of_product, of_product)


def _computed(own: Convolved, rates: _Rates, blocks: Parts) -> Any:
    """About the cycles in which a tile computes its block of results, however that is done."""
    parts = lambda n: -(-n // rates.channels)  # noqa: E731
    positions, taps = functools.reduce(np.multiply, blocks.fields, 1), functools.reduce(np.multiply, blocks.kernel, 1)
    columns = parts(blocks.out_channels)
    patch = parts(blocks.in_channels) * taps * columns * (rates.of_pass + rates.of_position * blocks.batch * positions)
    windows = parts(blocks.in_channels * taps) * columns * positions
    windows = windows * (rates.of_pass + rates.of_position * blocks.batch)
    dots = blocks.batch * positions * blocks.out_channels
    each = np.minimum(
        taps * (rates.of_dot + rates.of_product * blocks.in_channels),
        2 * rates.of_dot + rates.of_product * blocks.in_channels * taps,
    )
    phases = len(own.phases)
    return phases * blocks.groups * np.minimum(np.minimum(patch, windows), dots * each)


_COMBINATIONS = 1 << 18
"""So many combinations of cuts are estimated at most: where there are more sizes, every second is left out."""

_PRICED = 96
"""Of so many of them, those of the least estimates, the cycles are counted."""


def _sizes(target: Target, own: Convolved, grains: Blocks | None) -> list[list[int]]:
    """The blocks of tiles that are tried of each dimension."""
    rank, channels = own.rank, 16 if own.dtype.itemsize == 2 else 8
    found = []
    for d, (_, extent) in enumerate(own.dimensions):
        multiple = 1 if grains is None else grains[d]
        is_kernel, is_channels = 3 + rank <= d < 3 + 2 * rank, d in (2 + rank, 3 + 2 * rank)
        if is_kernel and len(own.phases) > 1:
            found.append([extent])
            continue
        if grains is None and is_channels and extent >= 2 * channels:
            multiple = channels
        found.append(block_sizes(extent, multiple, target.num_tiles))
    while math.prod(map(len, found)) > _COMBINATIONS:
        longest = max(found, key=len)
        longest[1:-1] = longest[1:-1][1::2]
    return found


def _estimates(
    target: Target, own: Convolved, grains: Blocks | None, memory: int
) -> tuple[list[np.ndarray], np.ndarray, np.ndarray]:
    """The blocks of all ways, what each takes about, and a number of cycles that it takes at least."""
    sizes = _sizes(target, own, grains)
    grid = [axis.reshape(-1) for axis in np.meshgrid(*(np.array(s, np.int64) for s in sizes), indexing="ij")]
    extents = [extent for _, extent in own.dimensions]
    counts = [-(-extent // size) for extent, size in zip(extents, grid, strict=True)]
    tiles = functools.reduce(np.multiply, counts)
    fits = tiles <= target.num_tiles
    grid, counts, tiles = [g[fits] for g in grid], [c[fits] for c in counts], tiles[fits]
    blocks, over, rates = parts_of(grid), parts_of(counts), _rates(target, own.dtype, own.partials)
    moved = _moved(own, blocks, over)
    sums = over.in_channels * functools.reduce(np.multiply, over.kernel, 1)
    summed_words = np.where(sums > 1, -(-own.results // target.num_tiles) * sums, 0)
    exchanged = moved.received * own.dtype.itemsize + summed_words * own.partials.itemsize
    exchange = exchanged / target.exchange_bytes_per_cycle
    least = 0.9 * rates.of_position / rates.channels**2
    products = moved.results * blocks.in_channels * functools.reduce(np.multiply, blocks.kernel, 1)
    if grains is None:
        computed = _computed(own, rates, blocks)
    else:
        vertices = functools.reduce(np.multiply, [-(-g // n) for g, n in zip(grid, grains, strict=True)])
        computed = vertices * (rates.of_dot + rates.of_product * math.prod(grains))
        least = 0.0
    step = target.sync_cycles + target.exchange_overhead_cycles
    estimate = computed + exchange + np.where(moved.received > 0, step, 0)
    estimate = estimate + np.where(sums > 1, 2 * step + summed_words, 0)
    held = moved.operands * own.dtype.itemsize + moved.results * own.partials.itemsize
    estimate = np.where(held > memory, estimate + 1e9 + held, estimate)
    return grid, estimate, exchange + least * products


# --- the ways there are -----------------------------------------------------------------------------------


def _grains_of(own: Convolved, grain: int) -> Blocks:
    """The block of a vertex that has about so many multiply-adds: all that is summed, a square of channels and field."""
    extents = parts_of([extent for _, extent in own.dimensions])
    left, kernel, fields = grain, list(extents.kernel), list(extents.fields)
    for d in reversed(range(own.rank)):
        if len(own.phases) == 1:
            kernel[d] = min(kernel[d], left)
        left = max(1, left // max(1, kernel[d]))
    in_channels = min(extents.in_channels, left)
    left = max(1, left // max(1, in_channels))
    out_channels = min(extents.out_channels, max(1, math.isqrt(left)))
    left //= out_channels
    for d in reversed(range(own.rank)):
        fields[d] = min(fields[d], max(1, left))
        left //= max(1, fields[d])
    return (1, min(extents.batch, max(1, left)), *fields, in_channels, *kernel, out_channels)


def _cuts(own: Convolved, blocks: Blocks, grains: Blocks) -> tuple[Cut, ...]:
    """The cuts of blocks into grains, of which each block has a whole number."""
    cuts = []
    for (name, extent), block, grain in zip(own.dimensions, blocks, grains, strict=True):
        grain = min(grain, block)
        cuts.append(Cut(name, extent, min(-(-block // grain) * grain, extent), grain))
    return tuple(cuts)


def _kind_of(own: Convolved, grains: Blocks) -> Kind:
    """What vertices of a grain make."""
    parts = parts_of(grains)
    if math.prod(parts.fields) > 1:
        return "patch"
    return "element" if parts.batch == parts.out_channels == 1 else "position"


def _share(blocks: Blocks, d: int, workers: int) -> Blocks:
    """Blocks with one dimension cut into shares of workers."""
    return (*blocks[:d], -(-blocks[d] // workers), *blocks[d + 1 :])


_POSITIONS = 64
"""At most so many positions of a tile are vertices of their own."""


def _ways(own: Convolved, blocks: Blocks, workers: int, *, alone: bool) -> Iterator[tuple[Kind, bool, Blocks]]:
    """How the blocks of tiles are made by vertices: of all workers, or of one each."""
    rank = own.rank
    shared = (1, *blocks[1:])
    single = (*shared[:2], *(1,) * rank, *shared[2 + rank :])
    kind = _kind_of(own, shared)
    if kind != "element":
        yield kind, True, shared
    if kind == "patch" and math.prod(blocks[2 : 2 + rank]) <= _POSITIONS and _kind_of(own, single) != "element":
        yield "position", True, single
    if not alone and kind != "element":
        return
    for d in (1, *range(2, 2 + rank), 3 + 2 * rank):
        if shared[d] > 1:
            grains = _share(shared, d, workers)
            yield _kind_of(own, grains), False, grains
    if blocks[0] > 1 or kind == "element":
        yield kind, False, shared


def _options(target: Target, own: Convolved, grain: int | None, memory: int) -> Iterator[Option]:
    fixed = None if grain is None else _grains_of(own, grain)
    grid, estimate, least = _estimates(target, own, fixed, memory)
    number = min(_PRICED, len(estimate))
    chosen = np.argpartition(estimate, number - 1)[:number]
    for place, k in enumerate(chosen[np.argsort(estimate[chosen], kind="stable")]):
        blocks = tuple(int(axis[k]) for axis in grid)
        if fixed is not None:
            ways = [(_kind_of(own, fixed), False, fixed)]
            vertices = math.prod(-(-block // own) for block, own in zip(blocks, fixed, strict=True))
            if vertices < target.num_workers and ways[0][0] != "element":
                ways = [(ways[0][0], True, fixed)]
        else:
            ways = list(_ways(own, blocks, target.num_workers, alone=place < _PRICED // 4))
        for kind, shared, grains in ways:
            cuts = _cuts(own, blocks, grains)
            if num_tiles(cuts) <= target.num_tiles:
                price = functools.partial(_price, target, own, kind, shared, cuts)
                yield Option(cuts, float(least[k]), price, (("codelet", CODELETS[kind, shared].name),))


@functools.lru_cache(maxsize=1024)
def plan_convolved(
    target: Target, own: Convolved, grain: int | None = None, memory_share: float = MEMORY_SHARE
) -> Plan:
    """How a convolution is spread over the tiles of a machine: the same plan for the same sizes.

    Args:
        target: the machine.
        own: the convolution.
        grain: about how many multiply-adds a vertex has; None for the planner to choose.
        memory_share: of a tile's memory, what the operation may take.
    """
    if not own.results or not own.summed or not any(all(p.taps for p in phase) for phase in own.phases):
        return Plan(str(own), (), ())
    memory = int(memory_share * target.bytes_per_tile)
    return cheapest(str(own), target, _options(target, own, grain, memory), memory_share)
