"""Which blocks of a work are likely to take the least, of all that tiles may have: those that are worth pricing.

In comes a `Work`, out come blocks of all its axes, as columns, with an estimate of each. The estimate has the compute
of a tile, by how the time of a vertex grows along each axis, its exchange, and the sums of partial results.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.ops.blockwise import Axis, Work
from codelet.ops.homes import Home
from codelet.ops.planning import block_sizes, combined
from codelet.ops.prices import least_to_move
from codelet.ops.ways import product_of
from codelet.ops.work_prices import work_costs
from codelet.target import Target

_PRICED, _KINDS = 24, 24
"""So many blocks of tiles, those that are likely to take the least, are priced; and of so many kinds of them the best,
since estimates of one kind compare better than those of two."""

_PRICED_BY_ONE_TRACE = 4
"""So many times as many where one trace of a codelet tells what vertices of all sizes take."""

_COMBINATIONS = 1 << 15
"""So many blocks are compared at most: where there are more, every second size is left out at first."""

_ALONE = 64
"""How long an axis is at most for it to be asked how the time of a vertex grows with it."""

_SHORT = 4
"""How long what is summed is at least then."""

_OF_SUM, _ADDED_BYTES = 260, 6
"""About what it takes a vertex that adds up partials besides, and how many bytes of these it adds in a cycle."""


def _homes(work: Work, a: int, grain: int = 1) -> set[int]:
    """The blocks of an axis in which fields lie, or results are wanted, of whole grains."""
    placed = [(own.home, own.axes) for own in work.fields] + [(own.wanted, own.axes) for own in work.results]
    extent = work.axes[a].extent
    sizes = {min(extent, home[axes.index(a)]) for home, axes in placed if home and a in axes}
    return {size for size in sizes if size % grain == 0 or size == extent}


def _sizes(target: Target, axis: Axis, multiple: int, homes: set[int]) -> list[int]:
    """The blocks of an axis that are worth trying, multiples of a number and homes, the largest first."""
    if axis.role == "whole":
        return [max(1, axis.extent)]
    return sorted({*block_sizes(axis.extent, multiple, target.num_tiles), *homes}, reverse=True)


def _computed(target: Target, work: Work, blocks: np.ndarray) -> Any:
    """About the cycles in which a tile computes blocks.

    They are assumed to grow with the elements along each axis by as much for each, as those of loops within loops do.
    So they follow from the cost of blocks that are short or long along each axis.
    """
    ends = [_ends(axis) for axis in work.axes]
    corners = list(itertools.product(*((0, 1) if short < long else (1,) for short, long in ends)))
    sizes = [[own[end] for own, end in zip(ends, corner, strict=True)] for corner in corners]
    vertex = work_costs(target, work, work.codelet, False)(np.array(sizes, np.int64).reshape(len(corners), len(ends)).T)
    cycles = np.atleast_1d(vertex.tile_cycles(target.num_workers))
    if work.codelet.hints.workers == 1:  # all workers do as much at once
        cycles = cycles / target.num_workers
    along = [_along(*own) for own in zip(blocks, work.axes, ends, strict=True)]
    computed: Any = 0.0
    for corner, taken in zip(corners, cycles, strict=True):
        for own, end in zip(along, corner, strict=True):
            taken = taken * (own if end else 1 - own)
        computed = computed + taken
    return np.maximum(computed, cycles.min())


def _along(block: np.ndarray, axis: Axis, ends: tuple[int, int]) -> Any:
    """How far from the short end of an axis to the long one blocks are; 1 where both are the same."""
    short, long = ends
    if short == long:
        return 1
    together = np.where(block < 4 * axis.multiple, block, -(-block // axis.multiple) * axis.multiple)
    return (together - short) / (long - short)


def _ends(axis: Axis) -> tuple[int, int]:
    """Sizes along an axis, a short one and a long one, which show how the time of a vertex grows with it."""
    if axis.role == "whole":
        return max(1, axis.extent), max(1, axis.extent)
    long = max(1, min(axis.extent, _ALONE))
    return max(1, min(long // 2, max(1 if axis.role == "kept" else _SHORT, axis.multiple))), long


def _moved(work: Work, blocks: np.ndarray, parts: np.ndarray) -> Any:
    """About the most bytes that a tile moves, with the cost of results that are made elsewhere than wanted."""
    moved, every = 0, range(len(parts))
    for field in work.fields:
        num_bytes = product_of(blocks, field.axes) * field.dtype.itemsize
        away = product_of(parts, (a for a in every if a not in field.axes)) > 1
        sent = 0
        if field.home is not None:
            away = away | ~_lies(blocks, field.axes, field.home)
            sent = math.prod(field.home) * field.dtype.itemsize if field.home else 0
        moved = moved + np.where(away, np.maximum(num_bytes, sent), 0)
    for result in work.results:
        if result.wanted:
            num_bytes = math.prod(result.wanted) * result.dtype.itemsize
            moved = moved + np.where(_lies(blocks, result.axes, result.wanted), 0, num_bytes)
    return moved


def _lies(blocks: np.ndarray, axes: Sequence[int], home: Home) -> Any:
    """Whether blocks are those of a home."""
    pairs = zip(axes, home, strict=False)
    return functools.reduce(np.logical_and, (blocks[a] == size for a, size in pairs), np.bool_(bool(home)))


def _estimates(
    target: Target, work: Work, choices: Sequence[Sequence[int]], memory: int
) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of all combinations of sizes that are on so many tiles as there are; and an estimate of each."""
    extents = [axis.extent for axis in work.axes]
    blocks, parts = combined(extents, choices, target.num_tiles)
    moved = _moved(work, blocks, parts)
    estimate = _computed(target, work, blocks) + moved / target.exchange_bytes_per_cycle + target.launch_cycles
    estimate = estimate + np.where(moved > 0, least_to_move(target), 0)
    count, held = product_of(parts, work.summed), np.int64(0)
    for result in work.results:
        itemsize = result.dtype.itemsize
        if work.may_be_partial(result):
            outputs, itemsize = math.prod(extents[a] for a in result.axes), result.partials.itemsize
            estimate = estimate + (0 if result.add is None else _likely_of_sums(target, count, outputs, itemsize))
        held = held + product_of(blocks, result.axes) * itemsize
    for field in work.fields:
        is_there = bool(field.home) & _lies(blocks, field.axes, field.home or ())  # and is not taken anew
        held = held + np.where(is_there, 0, product_of(blocks, field.axes) * field.dtype.itemsize)
    estimate = np.where(held > memory, 1e9 + held, 0) + estimate
    return blocks, np.broadcast_to(estimate, blocks.shape[1:])


def _likely_of_sums(target: Target, count: Any, num_outputs: int, itemsize: int) -> Any:
    """An estimate of adding up `count` partials of some outputs, if they are several, in one step or two."""

    def step(partials: Any, outputs: Any) -> Any:
        num_bytes = partials * np.ceil(outputs / target.num_tiles) * itemsize
        fixed = least_to_move(target) + target.launch_cycles + _OF_SUM
        return fixed + num_bytes / target.exchange_bytes_per_cycle + num_bytes / _ADDED_BYTES

    root = np.ceil(np.sqrt(count))
    in_two = step(root, num_outputs * np.ceil(count / root)) + step(np.ceil(count / root), num_outputs)
    return np.where(count > 1, np.minimum(step(count, num_outputs), in_two), 0)


def _thinned(choices: Sequence[list[int]], always: Sequence[set[int]]) -> list[list[int]]:
    """So few sizes of each axis that not too many combinations are compared: of the longest lists every second."""
    found = list(choices)
    while math.prod(map(len, found)) > _COMBINATIONS:
        longest = max(range(len(found)), key=lambda a: len(found[a]))
        sizes = found[longest]
        chosen = {sizes[0], *sizes[::2], sizes[-1], *always[longest].intersection(sizes)}
        if len(chosen) == len(sizes):
            break
        found[longest] = sorted(chosen, reverse=True)
    return found


def _between(every: Sequence[list[int]], some: Sequence[list[int]], best: Sequence[int]) -> list[list[int]]:
    """All sizes of each axis between the neighbours, among some, of one."""
    found = []
    for sizes, few, own in zip(every, some, best, strict=True):
        at = few.index(own)
        most, least = few[max(0, at - 1)], few[min(len(few) - 1, at + 1)]
        found.append([size for size in sizes if least <= size <= most])
    return found


def likely_blocks(
    target: Target, work: Work, grains: tuple[int, ...] | None, memory: int
) -> tuple[np.ndarray, np.ndarray]:
    """The blocks of all axes that are likely to take the least, and an estimate of each."""
    axes = range(len(work.axes))
    grains = grains or tuple(1 for _ in axes)
    homes = [_homes(work, a, grain) for a, grain in enumerate(grains)]
    fine = [_sizes(target, *own) for own in zip(work.axes, grains, homes, strict=True)]
    together = [
        axis.multiple if grain == 1 and axis.extent >= 4 * axis.multiple else grain
        for axis, grain in zip(work.axes, grains, strict=True)
    ]
    rough = [_sizes(target, *own) for own in zip(work.axes, together, homes, strict=True)]
    every = [sorted({*a, *b}, reverse=True) for a, b in zip(fine, rough, strict=True)]
    some = _thinned(every, [set(own) for own in rough])
    blocks, estimates = _estimates(target, work, some, memory)
    if some != every:
        near = _thinned(_between(every, some, blocks[:, estimates.argmin()].tolist()), [set() for _ in axes])
        more, others = _estimates(target, work, near, memory)
        blocks, once = np.unique(np.append(blocks, more, axis=1), axis=1, return_index=True)
        estimates = np.append(estimates, others)[once]
    times = _PRICED_BY_ONE_TRACE if work.is_for_all_sizes else 1
    chosen = _promising(estimates, blocks, [axis.extent for axis in work.axes], times)
    return estimates[chosen], blocks[:, chosen]


def _promising(estimates: np.ndarray, blocks: np.ndarray, extents: Sequence[int], times: int) -> np.ndarray:
    """The ways of the least estimates; and of each kind of ways the best, by which axes are whole, or cut to ones."""
    order = np.argsort(estimates, kind="stable")
    kinds = np.zeros(len(order), np.int64)
    for own, extent in zip(blocks[:, order], extents, strict=True):
        rough = np.where(own == 1, 1, 2 + np.minimum(5, np.log2(own).astype(np.int64) // 2))
        kinds = 8 * kinds + np.where(own == extent, 0, rough)
    _, first = np.unique(kinds, return_index=True)
    chosen = [*order[: times * _PRICED], *order[np.sort(first)[: times * _KINDS]]]
    return np.array(list(dict.fromkeys(chosen)), np.int64)
