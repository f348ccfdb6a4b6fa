"""The cost of convolutions: the cycles of one way to cut them, and an estimate of all ways at once.

A tile receives elements that others read too, of its patch of the field and of its kernels; elements that it alone
reads live there. The estimates are arrays, over all combinations of cuts, with rates that a few vertices of the target
give.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from codelet.graphs.stages import Cut
from codelet.ops.convolved import CODELETS, Blocks, ByRole, Convolved, Kind, convolve, parts_of, static_values
from codelet.ops.planning import block_sizes, combined
from codelet.ops.prices import StepCost, costs_of, grouped, step_costs, vertex_cycles
from codelet.ops.ways import Ways
from codelet.ops.windows import WindowedDimension
from codelet.target import Target, VertexCycles
from codelet.views.line import Phase

# --- prices -----------------------------------------------------------------------------------------------


def _read(field: WindowedDimension, results: Any, taps: Any, over: Any, kernel_over: Any) -> tuple[Any, Any]:
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


class OperandElements(NamedTuple):
    """Elements that a tile has: of both operands, of these from others, and of results."""

    operands: Any
    received: Any
    results: Any


def _in_words(length: Any, of_word: int) -> Any:
    """How many times the elements of cut rows of a length are received, where words hold several of them."""
    return (length + of_word - 1) / np.maximum(1, length)


def _moved(own: Convolved, blocks: ByRole, over: ByRole, word_bytes: int) -> OperandElements:
    """The operands of a tile, by the sizes of its blocks and over how many tiles each dimension is cut: numbers or
    arrays.
    """
    of_word = max(1, word_bytes // own.dtype.itemsize)
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
    images_received, kernels_received = there - np.where(over.out_channels > 1, 0, alone), np.where(several, kernels, 0)
    if own.rank and of_word > 1:
        length, _ = _read(own.fields[-1], blocks.fields[-1], blocks.kernel[-1], over.fields[-1], over.kernel[-1])
        is_cut = (over.fields[-1] > 1) | (over.kernel[-1] > 1)
        images_received = images_received * np.where(is_cut, _in_words(length, of_word), 1)
        taps_cut = np.where(over.kernel[-1] > 1, _in_words(blocks.kernel[-1], of_word), 1)
        kernels_received = kernels_received * taps_cut
    received = images_received + kernels_received
    results = blocks.groups * blocks.batch * blocks.out_channels
    for d, field in enumerate(own.fields):
        results = results * blocks.fields[d] * len(field.phases)
    return OperandElements(there + kernels, received, results)


def _types(own: Convolved, kind: Kind, grains: ByRole) -> dict[str, tuple[tuple[Any, ...], np.dtype]]:
    """The shapes of the fields of vertices; the dimensions that a product of matrices sums over are as one."""
    if kind == "patch":
        reaches = (f.reach(n, k) for f, n, k in zip(own.fields, grains.fields, grains.kernel, strict=True))
        window: tuple[Any, ...] = (grains.in_channels, *reaches)
    else:
        window = (grains.in_channels * math.prod(grains.kernel),)
    kernel = (grains.in_channels, *grains.kernel) if kind == "patch" else window
    if kind == "element":
        return {"x": (window, own.dtype), "w": (kernel, own.dtype)}
    return {"x": ((grains.batch, *window), own.dtype), "w": ((grains.out_channels, *kernel), own.dtype)}


def num_partials(cuts: Sequence[Cut]) -> int:
    """How many partial sums each result has."""
    vertices = parts_of([cut.vertices for cut in cuts])
    return vertices.in_channels * math.prod(vertices.kernel)


def _ways_of_phase(ways: Ways, phase: Sequence[Phase]) -> Ways:
    """The ways of one phase: `cuts_of_phase`."""
    rank, (extents, blocks, grains) = len(phase), (own.copy() for own in (ways.extents, ways.blocks, ways.grains))
    for d, one in enumerate(phase):
        field, kernel = 2 + d, 3 + rank + d
        for sizes in (extents, blocks, grains):
            sizes[field] = np.minimum(sizes[field], one.count)
            sizes[kernel] = np.where(ways.extents[kernel] == one.taps, sizes[kernel], max(1, one.taps))
    return Ways(ways.names, extents, blocks, grains)


def price(
    target: Target, own: Convolved, ways: Ways, which: np.ndarray
) -> tuple[StepCost, OperandElements, np.ndarray]:
    """The cost of the products of a convolution, the operands of a tile, and how many partial sums each result has:
    columns.

    Args:
        target: the machine.
        own: the convolution.
        ways: to cut it.
        which: the codelet of each: twice the number of its kind, and one more for those of one worker.
    """
    moved = _moved(own, parts_of(list(ways.blocks)), parts_of(list(ways.parts)), target.word_bytes)
    vertices = parts_of(list(ways.vertices))
    count = functools.reduce(np.multiply, vertices.kernel, vertices.in_channels)
    dtypes = {own.out_dtype: count == 1, own.partials: count > 1}
    if len(dtypes) == 1:
        dtypes = {own.partials: count > 0}
    groups = []
    for number, (dtype, of_dtype) in itertools.product(range(2 * len(CODELETS)), dtypes.items()):
        flags = (which == number) & of_dtype
        if flags.any():
            kind, pair = list(CODELETS.items())[number // 2]
            codelet = pair.worker if number % 2 else pair.shared
            groups.append((kind, costs_of(target, codelet, **static_values(own, kind, dtype)), flags))
    each: list[tuple[VertexCycles, np.ndarray]] = []
    for phase in own.phases:
        if all(one.taps for one in phase):
            ours = _ways_of_phase(ways, phase)
            of_kind = (
                (flags, cost.of(_types(own, kind, parts_of(list(ours.grains[:, flags])))))
                for kind, cost, flags in groups
            )
            each.append((grouped(target, len(ways), of_kind), ours.vertices_of_tile.prod(axis=0)))
    itemsizes = np.where(count > 1, own.partials.itemsize, own.out_dtype.itemsize)
    sums_of_tile = parts_of(list(ways.vertices_of_tile)).in_channels
    held = moved.operands * own.dtype.itemsize + moved.results * sums_of_tile * itemsizes
    (first, _), *others = each
    received = moved.received * own.dtype.itemsize
    step = step_costs(
        target, "convolve", ways, lambda *_: first, received_bytes=received, tile_bytes=held, others=others
    )
    return step, moved, count


# --- estimates of all ways at once ------------------------------------------------------------------------


class _TileRates(NamedTuple):
    """The cycles of a product on a tile, about.

    Attributes:
        channels: the numbers that a pass of the matrix unit sums over, and makes results of.
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
def _rates(target: Target, dtype: np.dtype, partials: np.dtype) -> _TileRates:
    """The rates of products, by the cycles of a few."""
    static = {"strides": (1, 1), "dilations": (1, 1), "partials": partials.name, "dtype": partials.name}

    def cycles(field: int, channels: int, results: int) -> float:
        side = {"x": ((1, channels, field + 2, field + 2), dtype), "w": ((results, channels, 3, 3), dtype)}
        return vertex_cycles(target, convolve.shared, side, **static).tile_cycles(target.num_workers)

    channels = 16 if dtype.itemsize == 2 else 8
    passes = 9 * (64 // channels) ** 2
    small, large = cycles(6, 64, 64) / passes, cycles(30, 64, 64) / passes
    of_position = (large - small) / (900 - 36)
    short, long = cycles(12, 8, 1) / (144 * 9), cycles(12, 64, 1) / (144 * 9)
    of_product = (long - short) / 56
    return _TileRates(channels, max(0.0, small - 36 * of_position), of_position, short - 8 * of_product, of_product)


def _computed(own: Convolved, rates: _TileRates, blocks: ByRole) -> Any:
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


def _products(own: Convolved, blocks: ByRole) -> Any:
    """How many products a tile has for its block of results, of all phases together."""
    products = blocks.groups * blocks.batch * blocks.out_channels * blocks.in_channels
    for field, results, taps in zip(own.fields, blocks.fields, blocks.kernel, strict=True):
        if len(own.phases) == 1:
            products = products * results * taps
        else:  # of which some have fewer taps, or results
            products = products * sum(np.minimum(results, phase.count) * phase.taps for phase in field.phases)
    return products


_COMBINATIONS = 1 << 18
"""So many combinations of cuts are estimated at most: where there are more sizes, every second is left out."""


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
        sizes = block_sizes(extent, multiple, target.num_tiles)
        if is_kernel or d == 2 + rank:  # parts of a sum are of one size
            sizes = [size for size in sizes if extent % size == 0] or [extent]
        found.append(sizes)
    while math.prod(map(len, found)) > _COMBINATIONS:
        longest = max(found, key=len)
        longest[1:-1] = longest[1:-1][1::2]
    return found


def estimates(
    target: Target, own: Convolved, grains: Blocks | None, memory: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The blocks of all ways, an estimate of each, and a lower bound of its compute."""
    sizes = _sizes(target, own, grains)
    grid, counts = combined([extent for _, extent in own.dimensions], sizes, target.num_tiles)
    blocks, over, rates = parts_of(list(grid)), parts_of(list(counts)), _rates(target, own.dtype, own.partials)
    moved = _moved(own, blocks, over, target.word_bytes)
    sums = over.in_channels * functools.reduce(np.multiply, over.kernel, 1)
    summed_words = np.where(sums > 1, -(-own.results // target.num_tiles) * sums, 0)
    itemsize = own.partials.itemsize
    exchanged = moved.received * own.dtype.itemsize + summed_words * itemsize
    exchange = exchanged / target.exchange_bytes_per_cycle
    least = 0.9 * rates.of_position / rates.channels**2
    products = _products(own, blocks)
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
    return grid, estimate, least * products
