"""The planner of operations that are done block by block: how large the blocks of each axis are.

In comes a `Work` of `blockwise.py`, out comes a `Plan`. First sizes that are far apart are tried, then those between
the neighbours of the best. A sum of partial results is a work as well, of one step or of several; so many are asked for
while products and convolutions are planned that only a few sizes are tried.

Source: PopLibs plans reductions by how much every tile has to reduce, then the sums of partials of all
(lib/popops/reduction/ReductionPlan.cpp, lib/popops/Reduction.cpp); by which costs is ours.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from jax import lax

from codelet.graphs.stages import Cut
from codelet.ops.blocks import cuts_of, num_tiles
from codelet.ops.blockwise import Axis, Field, Result, Work
from codelet.ops.homes import ELSEWHERE, Home, moved_elements, stretch
from codelet.ops.pairs import told
from codelet.ops.planning import (
    MEMORY_SHARE,
    Option,
    Plan,
    StepCost,
    block_sizes,
    cheapest,
    least_to_move,
    step_cost,
    vertex_cycles,
)
from codelet.target import Target, VertexCycles
from codelet.tracing.codelets import Codelet, codelet


@codelet(workers=6, issue="assembly")
def add_up(partials, *, dtype):
    """The sums of the rows of (partials, outputs), in the dtype of the partials, as `dtype`."""
    return lax.reduce_sum(partials, (0,)).astype(dtype)  # traced in half the time of `jnp.sum`, the same


# --- prices -----------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def _vertex(target: Target, work: Work, codelet: Codelet, grains: tuple[int, ...], cuts: Any) -> VertexCycles:
    inputs = {field.name: (tuple(grains[a] for a in field.axes), field.dtype) for field in work.fields}
    return vertex_cycles(target, codelet, inputs, **work.values(codelet, cuts))


def _size(sizes: Sequence[int], axes: Sequence[int]) -> int:
    return math.prod(sizes[a] for a in axes)


def home_of_partials(work: Work, result: Result, cuts: Sequence[Cut]) -> Home:
    """Where partial results lie, by (partials, outputs): all those of an output on one tile, or on several."""
    if any(cuts[a].parts > 1 for a in work.summed):
        return ELSEWHERE
    own = [cuts[a] for a in result.axes]
    each = stretch([cut.extent for cut in own], [cut.block for cut in own])
    return ELSEWHERE if each is None else (work.num_partials(cuts), each)


def _price(
    target: Target, work: Work, codelet: Codelet, cuts: tuple[Cut, ...], edges: bool = False
) -> Iterator[StepCost]:
    of_size = lambda sizes: _vertex(target, work, codelet, sizes, cuts)  # noqa: E731
    vertex, at_edges = of_size(tuple(cut.grain for cut in cuts)), of_size if edges else None
    blocks = [cut.block for cut in cuts]
    received = sent = held = 0
    for field in work.fields:
        held += _size(blocks, field.axes) * field.dtype.itemsize
        moved = moved_elements(field.home, cuts, field.axes)
        received += moved.received * field.dtype.itemsize
        sent += moved.sent * field.dtype.itemsize
    for result in work.results:
        partial = work.is_partial(result, cuts)
        each = math.prod(cuts[a].vertices_of_tile for a in work.summed) if partial else 1
        held += each * _size(blocks, result.axes) * (result.partials if partial else result.dtype).itemsize
    own_bytes: dict[str, Any] = {"received_bytes": received, "sent_bytes": sent, "tile_bytes": held}
    yield step_cost(target, work.step_name(cuts), cuts, vertex, **own_bytes, at_edges=at_edges)
    for result in work.results:
        if work.is_partial(result, cuts) and result.add is not None:
            outputs = math.prod(work.axes[a].extent for a in result.axes)
            options = result.partials, result.dtype, result.add, home_of_partials(work, result, cuts)
            yield from plan_sum(target, work.num_partials(cuts), outputs, *options).steps


# --- the ways there are -----------------------------------------------------------------------------------

_PRICED = 40
"""So many of the ways, those of the least bounds, are priced at most in each of the two rounds."""

_APART = 1.4
"""By which factor sizes of the first round are apart."""


def _homes(work: Work, a: int, grain: int) -> list[int]:
    """The blocks of an axis in which fields lie, of whole grains."""
    found = {field.home[field.axes.index(a)] for field in work.fields if field.home and a in field.axes}
    return sorted(size for size in found if size % grain == 0 or size >= work.axes[a].extent)


def _sizes(target: Target, axis: Axis, grain: int, homes: Sequence[int]) -> list[int]:
    """The blocks of an axis that are worth trying, the largest first."""
    if axis.role == "whole":
        return [max(1, axis.extent)]
    return sorted({*block_sizes(axis.extent, grain, target.num_tiles), *homes}, reverse=True)


def _thinned(sizes: list[int], of_workers: int) -> list[int]:
    """Sizes that are far apart, with the least of so many elements that every worker has a vertex."""
    if len(sizes) <= 6:
        return sizes
    kept = [sizes[0]]
    least = min((size for size in sizes if size >= of_workers), default=0)
    for size in sizes[1:]:
        if size * _APART <= kept[-1] or size in (least, sizes[-1]):
            kept.append(size)
    return kept


def _grains(work: Work, grain: int) -> tuple[int, ...]:
    """The block of a vertex of about so many elements: all that is whole, then what is summed, from the last axis."""
    left = max(1, grain // math.prod(axis.extent for axis in work.axes if axis.role == "whole"))
    sizes = {a: axis.extent for a, axis in enumerate(work.axes) if axis.role == "whole"}
    for role in ("summed", "kept"):
        for a in reversed(range(len(work.axes))):
            if work.axes[a].role == role:
                sizes[a] = max(1, min(work.axes[a].extent, left))
                left //= sizes[a]
    return tuple(sizes[a] for a in range(len(work.axes)))


@functools.lru_cache(maxsize=1024)
def _rate(target: Target, work: Work) -> float:
    """Cycles that a tile takes for an element at least, about: in a block of some thousands."""
    sizes = [1] * len(work.axes)
    for a in sorted(range(len(work.axes)), key=lambda a: work.axes[a].role != "whole"):
        sizes[a] = max(1, min(work.axes[a].extent, 1 << 12 if work.axes[a].role == "whole" else 64))
    cuts = tuple(Cut(axis.name, axis.extent, size, size) for axis, size in zip(work.axes, sizes, strict=True))
    cycles = _vertex(target, work, work.codelet, tuple(sizes), cuts).tile_cycles(target.num_workers)
    return 0.5 * cycles / math.prod(sizes)


def _blocks(target: Target, work: Work, choices: Sequence[Sequence[int]]) -> list[tuple[float, tuple[int, ...]]]:
    """Blocks of all axes with about a bound below the cycles of each, those of the least."""
    grid = np.meshgrid(*(np.array(own, np.int64) for own in choices), indexing="ij")
    parts = [-(-axis.extent // size) for axis, size in zip(work.axes, grid, strict=True)]
    one = np.ones((), np.int64)
    tiles = math.prod(parts, start=one)
    moved = 0 * tiles
    for field in work.fields:
        num_bytes = math.prod((grid[a] for a in field.axes), start=one) * field.dtype.itemsize
        others = math.prod((parts[a] for a in range(len(parts)) if a not in field.axes), start=one)
        away = others > 1
        sent = 0
        if field.home is not None:
            pairs = zip(field.axes, field.home, strict=False)
            away = away | ~math.prod((grid[a] == size for a, size in pairs), start=np.full((), bool(field.home)))
            sent = math.prod(field.home) * field.dtype.itemsize if field.home else 0
        moved = moved + np.where(away, np.maximum(num_bytes, sent), 0)
    count = math.prod((parts[a] for a in work.summed), start=one)
    bound = moved / target.exchange_bytes_per_cycle + math.prod(grid, start=one) * _rate(target, work)
    bound = bound + target.launch_cycles + np.where(moved > 0, least_to_move(target), 0)
    for result in work.results:
        if not set(work.summed) <= set(result.axes):
            outputs = math.prod(work.axes[a].extent for a in result.axes)
            words = -(-outputs * count // target.num_tiles) * result.partials.itemsize
            again = least_to_move(target) + target.launch_cycles
            bound = bound + np.where(count > 1, words / target.exchange_bytes_per_cycle + again, 0)
    flat = np.where(tiles <= target.num_tiles, bound, np.inf).reshape(-1)
    order = np.argsort(flat, kind="stable")[:_PRICED]
    columns = [own.reshape(-1) for own in grid]
    return [(float(flat[k]), tuple(int(own[k]) for own in columns)) for k in order if np.isfinite(flat[k])]


def _ways(
    target: Target, work: Work, blocks: tuple[int, ...], fixed: tuple[int, ...] | None
) -> Iterator[tuple[Codelet, tuple[int, ...]]]:
    """With which codelets a block may be done, and how it is cut into vertices."""
    if fixed is not None:
        vertices = math.prod(-(-block // own) for block, own in zip(blocks, fixed, strict=True))
        yield work.pair.for_vertices(vertices, target.num_workers), fixed
        return
    if work.codelet.hints.workers > 1:
        yield work.codelet, blocks
        return
    kept = [a for a, axis in enumerate(work.axes) if axis.role == "kept"]
    main = max(kept, key=lambda a: blocks[a], default=None)
    shares = {blocks[main], -(-blocks[main] // target.num_workers), 1} if main is not None else {0}
    for share in sorted(shares):
        yield work.codelet, tuple(share if a == main else block for a, block in enumerate(blocks))


def _ways_of(
    target: Target, work: Work, bound: float, blocks: tuple[int, ...], fixed: tuple[int, ...] | None
) -> Iterator[Option]:
    """The options of one choice of blocks."""
    for chosen, grains in _ways(target, work, blocks, fixed):
        cuts = cuts_of([(axis.name, axis.extent) for axis in work.axes], blocks, grains)
        if num_tiles(cuts) <= target.num_tiles:
            price = functools.partial(_price, target, work, chosen, cuts)
            yield Option(cuts, bound, price, told(chosen), functools.partial(price, edges=True))


def _options(
    target: Target, work: Work, choices: Sequence[Sequence[int]], fixed: tuple[int, ...] | None
) -> list[Option]:
    return [
        option
        for bound, blocks in _blocks(target, work, choices)
        for option in _ways_of(target, work, bound, blocks, fixed)
    ]


@functools.lru_cache(maxsize=4096)
def plan_work(target: Target, work: Work, grain: int | None = None, memory_share: float = MEMORY_SHARE) -> Plan:
    """How a work is spread over the tiles of a machine: the same plan for the same sizes.

    Args:
        target: the machine.
        work: what is done; no axis of it is empty.
        grain: about how many elements a vertex has; None for the planner to choose.
        memory_share: of a tile's memory, what the operation may take.
    """
    fixed = None if grain is None else _grains(work, grain)
    homes = [_homes(work, a, fixed[a] if fixed else 1) for a in range(len(work.axes))]
    pairs = enumerate(zip(work.axes, homes, strict=True))
    every = [_sizes(target, axis, fixed[a] if fixed else 1, own) for a, (axis, own) in pairs]
    first = [
        sorted(
            {*_thinned(sizes, fixed[a] * target.num_workers if fixed else 1), *set(homes[a]).intersection(sizes)},
            reverse=True,
        )
        for a, sizes in enumerate(every)
    ]
    options = _options(target, work, first, fixed)
    best = cheapest(str(work), target, options, memory_share)
    if first != every:
        between = []
        for all_sizes, some, cut in zip(every, first, best.cuts, strict=True):
            near = min(range(len(some)), key=lambda k: abs(some[k] - cut.block))
            most, least = some[max(0, near - 1)], some[min(len(some) - 1, near + 1)]
            own = [size for size in all_sizes if least <= size <= most]
            between.append([*own[:: max(1, len(own) // 12)], some[near]])
        seen = {option.cuts for option in options}
        more = [option for option in _options(target, work, between, fixed) if option.cuts not in seen]
        best = cheapest(str(work), target, [*options, *more], memory_share)
    return best


# --- sums of partials ---------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4096)
def sum_work(
    count: int,
    num_outputs: int,
    dtype: np.dtype,
    out_dtype: np.dtype,
    codelet: Codelet = add_up,
    home: Home = ELSEWHERE,
) -> Work:
    """The work of adding up `count` partials of each of some outputs, which lie there."""
    axes = Axis("partials", count, "summed"), Axis("outputs", num_outputs, "kept")
    fields = (Field("partials", (0, 1), np.dtype(dtype), home),)
    results = (Result("out", (1,), np.dtype(out_dtype), np.dtype(dtype), codelet),)
    return Work("add up", axes, fields, results, codelet)


@functools.lru_cache(maxsize=1024)
def _least_of_vertex(target: Target, work: Work) -> float:
    """What a vertex takes at least that adds up: nine tenths of what the small ones do, each of its form."""
    cycles = []
    for sizes in itertools.product((2, 3, 4), (1, 2, 3, 4, 8)):
        cuts = tuple(Cut(axis.name, size, size, size) for axis, size in zip(work.axes, sizes, strict=True))
        cycles.append(_vertex(target, work, work.codelet, sizes, cuts).tile_cycles(target.num_workers))
    return 0.9 * min(cycles)


def _least(target: Target, work: Work, num_bytes: float, *, moves: bool) -> float:
    """What a step takes at least whose tiles go through so many bytes each to add: no rule has more than 16 a cycle."""
    exchange = least_to_move(target) + num_bytes / target.exchange_bytes_per_cycle
    few = sum_work(2, 1, work.fields[0].dtype, work.results[0].dtype, work.codelet)
    computed = max(_least_of_vertex(target, few), num_bytes / 16)
    return (exchange if moves else 0) + target.launch_cycles + computed


@functools.lru_cache(maxsize=4096)
def plan_sum(
    target: Target,
    count: int,
    num_outputs: int,
    dtype: np.dtype,
    out_dtype: np.dtype,
    codelet: Codelet = add_up,
    home: Home = ELSEWHERE,
) -> Plan:
    """How `count` partials of each of some outputs are added up.

    Args:
        target: the machine.
        count: of partials.
        num_outputs: what each has partials of.
        dtype: of the partials.
        out_dtype: of the sums.
        codelet: what adds up: a field `partials` of shape (partials, outputs), and perhaps a static `dtype`.
        home: where the partials lie, by these two dimensions.
    """
    work = sum_work(count, num_outputs, dtype, out_dtype, codelet, home)
    options: list[Option] = []
    vectors, itemsize = 4 * target.num_workers, np.dtype(dtype).itemsize
    # One step; or several, the first of groups of a power of two up to the root.
    for groups in {1, *(-(-count // 2**k) for k in range(1, count.bit_length() // 2 + 1) if count >= 8)}:
        each, tiles = -(-count // groups), max(1, target.num_tiles // groups)
        # What adds up the sums of groups, on all tiles.
        least = (
            _least(target, work, groups * num_outputs * itemsize / target.num_tiles, moves=True) if groups > 1 else 0.0
        )
        # The more tiles the better, but for what every vertex takes however small it is.
        shares = {-(-num_outputs // max(1, tiles >> k)) for k in range(4)}
        sizes = {min(num_outputs, -(-share // n) * n) for share in shares for n in (1, 4, 8, vectors)}
        for size in sorted(sizes | set(home[1:] if groups == 1 else ())):
            bound = least + _least(target, work, each * size * itemsize, moves=not home)
            options += _ways_of(target, work, bound, (each, size), None)
    return cheapest(str(work), target, options)


def priced(target: Target, work: Work, like: Plan) -> Plan:
    """The plan of a work that is cut as another one is: on the tiles where that has left its operands."""
    codelet = work.pair.of(like.detail("workers"))
    steps = tuple(_price(target, work, codelet, like.cuts, edges=True))
    return Plan(str(work), like.cuts, steps, told(codelet))
