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
from dataclasses import replace
from typing import Any

import numpy as np
from jax import lax

from codelet.graphs.stages import Cut
from codelet.ops.blockwise import Axis, Field, Result, Work
from codelet.ops.homes import ELSEWHERE, Home, Moved, moved_elements, stretch
from codelet.ops.pairs import told
from codelet.ops.plan_cache import kept_on_disk
from codelet.ops.planning import MEMORY_FRACTION, Offers, Plan, Steps, best_of, beyond, block_sizes
from codelet.ops.prices import Costs, StepCost, by_group, costs_of, least_to_move, step_costs
from codelet.ops.ways import Vertices, Ways, of_grain, product_of, ways_of
from codelet.target import Target
from codelet.tracing.codelets import Codelet, codelet
from codelet.tracing.field_types import SizeNames, sizes_named


@codelet(workers=6, issue="assembly")
@sizes_named(lambda static, ranks: SizeNames((("partials", "outputs"),)))
def add_up(partials, *, dtype):
    """The sums of the rows of (partials, outputs), in the dtype of the partials, as `dtype`."""
    return lax.reduce_sum(partials, (0,)).astype(dtype)  # traced in half the time of `jnp.sum`, the same


# --- prices -----------------------------------------------------------------------------------------------


def _costs(target: Target, work: Work, codelet: Codelet, is_partial: bool) -> Costs:
    """What vertices take by their sizes: numbers, or columns of these."""
    own = costs_of(target, codelet, **work.values_of(codelet, is_partial))
    return lambda sizes: own.of({f.name: (tuple(sizes[a] for a in f.axes), f.dtype) for f in work.fields})


def home_of_partials(work: Work, result: Result, cuts: Sequence[Cut]) -> Home:
    """Where partial results lie, by (partials, outputs): all those of an output on one tile, or on several."""
    if any(cuts[a].parts > 1 for a in work.summed):
        return ELSEWHERE
    own = [cuts[a] for a in result.axes]
    each = stretch([cut.extent for cut in own], [cut.block for cut in own])
    return ELSEWHERE if each is None else (work.num_partials(cuts), each)


def _price(target: Target, work: Work, ways: Ways, which: np.ndarray, moves: Sequence[Moved] | None = None) -> StepCost:
    """What a work takes, but the sums of partial results, with the codelets of these numbers: columns.

    Args:
        target: the machine.
        work: what is done.
        ways: to cut its axes.
        which: the codelet of each.
        moves: what moves of each field, if it is known.
    """
    moves = moves or [moved_elements(field.home, ways, field.axes) for field in work.fields]
    parts = product_of(ways.vertices, work.summed) > 1
    is_partial = [parts & (not set(work.summed) <= set(result.axes)) for result in work.results]
    costs = functools.cache(lambda group: _costs(target, work, work.pair[group // 2], bool(group % 2)))
    received = sent = held = 0
    for field, moved in zip(work.fields, moves, strict=True):
        held = held + product_of(ways.blocks, field.axes) * field.dtype.itemsize
        received = received + moved.received * field.dtype.itemsize
        sent = sent + moved.sent * field.dtype.itemsize
    for result, partial in zip(work.results, is_partial, strict=True):
        each = np.where(
            partial, product_of(ways.vertices_of_tile, work.summed) * result.partials.itemsize, result.dtype.itemsize
        )
        held = held + each * product_of(ways.blocks, result.axes)
    vertex = by_group(target, 2 * which + is_partial[0], lambda group, sizes: costs(group)(sizes))
    own_bytes: dict[str, Any] = {"received_bytes": received, "sent_bytes": sent, "tile_bytes": held}
    return step_costs(target, work.name, ways, vertex, **own_bytes, edges=True)


def _finished(target: Target, work: Work, ways: Sequence[Sequence[Cut]], steps: Sequence[Steps]) -> list[Steps]:
    """What it takes with each of some ways, given what it takes but for sums of partial results."""
    every: list[Steps] = [
        (replace(step, name=work.step_name(cuts)),) for cuts, (step,) in zip(ways, steps, strict=True)
    ]
    for result in work.results:
        asked = {
            k: (work.num_partials(cuts), home_of_partials(work, result, cuts))
            for k, cuts in enumerate(ways)
            if work.is_partial(result, cuts) and result.add is not None
        }
        outputs, dtypes = math.prod(work.axes[a].extent for a in result.axes), (result.partials, result.dtype)
        plans = plan_sums(target, list(asked.values()), outputs, dtypes, result.add or add_up)
        for k, plan in zip(asked, plans, strict=True):
            every[k] = (*every[k], *plan.steps)
    return every


def _least_of_sums(target: Target, work: Work, ways: Ways) -> Any:
    """What those steps take at least: columns."""
    count, moves = product_of(ways.vertices, work.summed), product_of(ways.parts, work.summed) > 1
    partial = [each for each in work.results if not set(work.summed) <= set(each.axes) and each.add is not None]
    outputs = [math.prod(work.axes[a].extent for a in each.axes) for each in partial]
    pairs = ((each.add or add_up, n, (each.partials, each.dtype)) for each, n in zip(partial, outputs, strict=True))
    return sum(least_of_sums(target, count, n, dtypes, add, moves) for add, n, dtypes in pairs)


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
    cycles = _costs(target, work, work.codelet, False)(sizes).tile_cycles(target.num_workers)
    return 0.5 * cycles / math.prod(sizes)


def _blocks(target: Target, work: Work, choices: Sequence[Sequence[int]]) -> tuple[np.ndarray, np.ndarray]:
    """About a bound below the cycles of blocks of all axes, those of the least; and these blocks."""
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
    order = order[np.isfinite(flat[order])]
    return flat[order], np.array([own.reshape(-1)[order] for own in grid], np.int64).reshape(len(grid), len(order))


def _ways(target: Target, work: Work, blocks: np.ndarray, fixed: tuple[int, ...] | None) -> Iterator[Vertices]:
    """How blocks are cut into vertices: with codelets of which numbers, into what grains, and for which blocks."""
    every, first = np.ones(blocks.shape[1], bool), np.zeros(blocks.shape[1], np.int64)
    if fixed is not None:
        yield of_grain(blocks, fixed, target.num_workers)
        return
    kept = [a for a, axis in enumerate(work.axes) if axis.role == "kept"]
    if work.codelet.hints.workers > 1 or not kept:
        yield first, blocks, every
        return
    main = np.array(kept)[blocks[kept].argmax(axis=0)]
    whole = np.take_along_axis(blocks, main[None], 0)[0]
    last = first
    for share in (first + 1, -(-whole // target.num_workers), whole):
        grains = blocks.copy()
        np.put_along_axis(grains, main[None], share[None], 0)
        yield first, grains, share > last
        last = share


def _offers(
    target: Target, work: Work, bounds: np.ndarray, blocks: np.ndarray, fixed: tuple[int, ...] | None
) -> Offers:
    """What it takes with some blocks of tiles, which have these bounds."""
    dimensions, vertices = [(axis.name, axis.extent) for axis in work.axes], _ways(target, work, blocks, fixed)
    ways, which, place = ways_of(dimensions, blocks, vertices, target.num_tiles)

    return Offers(
        ways,
        [_price(target, work, ways, which)],
        bounds[place],
        [told(codelet) for codelet in work.pair],
        which,
        finish=lambda some, steps: _finished(target, work, [ways.at(k) for k in some], steps),
        least_to_finish=_least_of_sums(target, work, ways),
    )


@functools.lru_cache(maxsize=4096)
@kept_on_disk
def plan_work(target: Target, work: Work, grain: int | None = None, memory_fraction: float = MEMORY_FRACTION) -> Plan:
    """How a work is spread over the tiles of a machine: the same plan for the same sizes.

    Args:
        target: the machine.
        work: what is done; no axis of it is empty.
        grain: about how many elements a vertex has; None for the planner to choose.
        memory_fraction: of a tile's memory, what the operation may take.
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
    bounds, blocks = _blocks(target, work, first)
    best = best_of(str(work), target, _offers(target, work, bounds, blocks, fixed), memory_fraction)
    if first != every:
        between = []
        for all_sizes, some, cut in zip(every, first, best.cuts, strict=True):
            near = min(range(len(some)), key=lambda k: abs(some[k] - cut.block))
            most, least = some[max(0, near - 1)], some[min(len(some) - 1, near + 1)]
            own = [size for size in all_sizes if least <= size <= most]
            between.append([*own[:: max(1, len(own) // 12)], some[near]])
        more = _blocks(target, work, between)
        bounds, blocks = np.append(bounds, more[0]), np.append(blocks, more[1], axis=1)
        _, once = np.unique(blocks, axis=1, return_index=True)
        once.sort()
        best = best_of(str(work), target, _offers(target, work, bounds[once], blocks[:, once], fixed), memory_fraction)
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
def _least_of_vertex(target: Target, dtype: np.dtype, out_dtype: np.dtype, codelet: Codelet) -> float:
    """What a vertex takes at least that adds up: nine tenths of what the small ones do, each of its form."""
    sizes = np.array([*itertools.product((2, 3, 4), (1, 2, 3, 4, 8))], np.int64).T
    own = _costs(target, sum_work(2, 1, dtype, out_dtype, codelet), codelet, False)(sizes)
    return 0.9 * float(np.min(own.tile_cycles(target.num_workers)))


def _least(target: Target, codelet: Codelet, dtypes: tuple[np.dtype, np.dtype], num_bytes: Any, moves: Any) -> Any:
    """What a step takes at least whose tiles go through so many bytes each to add: no rule has more than 16 a cycle."""
    exchange = least_to_move(target) + num_bytes / target.exchange_bytes_per_cycle
    computed = np.maximum(_least_of_vertex(target, *dtypes, codelet), num_bytes / 16)
    return np.where(moves, exchange, 0) + target.launch_cycles + computed


def least_of_sums(
    target: Target, count: Any, num_outputs: int, dtypes: tuple[np.dtype, np.dtype], codelet: Codelet, moves: Any = True
) -> Any:
    """What it takes at least to add up `count` partials of each of some outputs, if they are several: columns."""
    num_bytes = count * num_outputs * dtypes[0].itemsize / target.num_tiles
    return np.where(count > 1, _least(target, codelet, dtypes, num_bytes, moves), 0)


def _blocks_of_sums(target: Target, count: int, num_outputs: int, home: Home) -> Iterator[tuple[int, int, int]]:
    """Of partials in groups, one or several of them, how many groups, and how many partials and outputs a tile has."""
    vectors = 4 * target.num_workers
    # One step; or several, the first of groups of a power of two up to the root.
    for groups in {1, *(-(-count // 2**k) for k in range(1, count.bit_length() // 2 + 1) if count >= 8)}:
        each, tiles = -(-count // groups), max(1, target.num_tiles // groups)
        # The more tiles the better, but for what every vertex takes however small it is.
        shares = {-(-num_outputs // max(1, tiles >> k)) for k in range(4)}
        sizes = {min(num_outputs, -(-share // n) * n) for share in shares for n in (1, 4, 8, vectors)}
        yield from ((groups, each, size) for size in sorted(sizes | set(home[1:] if groups == 1 else ())))


Partials = tuple[int, Home]
"""How many partials each output has, and where they lie, by (partials, outputs)."""


@functools.lru_cache(maxsize=256)
def _sums_known(
    target: Target, num_outputs: int, dtypes: tuple[np.dtype, np.dtype], codelet: Codelet
) -> dict[Partials, Plan]:
    """The plans of sums of as many outputs."""
    return {}


def plan_sums(
    target: Target,
    asked: Sequence[Partials],
    num_outputs: int,
    dtypes: tuple[np.dtype, np.dtype],
    codelet: Codelet = add_up,
) -> list[Plan]:
    """How partials of each of some outputs are added up, of several numbers of partials, all planned together.

    Args:
        target: the machine.
        asked: how many partials there are, and where they lie.
        num_outputs: what each has partials of.
        dtypes: of the partials, and of the sums.
        codelet: what adds up: a field `partials` of shape (partials, outputs), and perhaps a static `dtype`.
    """
    known = _sums_known(target, num_outputs, dtypes, codelet)
    if new := [partials for partials in dict.fromkeys(asked) if partials not in known]:
        known.update(zip(new, _planned_sums(target, new, num_outputs, dtypes, codelet), strict=True))
    return [known[partials] for partials in asked]


def _in_order(places: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Ways by what they are of, then the better first."""
    return np.lexsort((*places[::-1], numbers))


def _planned_sums(
    target: Target, asked: Sequence[Partials], num_outputs: int, dtypes: tuple[np.dtype, np.dtype], codelet: Codelet
) -> Iterator[Plan]:
    rows = [
        (k, *blocks)
        for k, (count, home) in enumerate(asked)
        for blocks in _blocks_of_sums(target, count, num_outputs, home)
    ]
    numbers, groups, *sizes = np.array(rows, np.int64).T
    counts, blocks = np.array([count for count, _ in asked], np.int64), np.array(sizes)
    moves = np.array([not home for _, home in asked])[numbers]
    # What adds up the sums of groups, on all tiles.
    bounds = least_of_sums(target, groups, num_outputs, dtypes, codelet)
    bounds = bounds + _least(target, codelet, dtypes, blocks.prod(axis=0) * dtypes[0].itemsize, moves)
    work = sum_work(2, num_outputs, *dtypes, codelet)
    dimensions = [("partials", counts[numbers]), ("outputs", num_outputs)]
    ways, which, place = ways_of(dimensions, blocks, _ways(target, work, blocks, None), target.num_tiles)
    numbers, bounds = numbers[place], bounds[place]
    moved = np.zeros((2, len(ways)), np.int64)
    for home in dict.fromkeys(home for _, home in asked):
        flags = np.array([other == home for _, other in asked])[numbers]
        moved[:, flags] = moved_elements(home, ways.chosen(flags), (0, 1))
    step: Any = _price(target, work, ways, which, [Moved(*moved)])
    places = np.array([beyond(target, [step]), step.cycles, ways.num_tiles, ways.num_vertices, bounds])
    more: dict[int, Plan] = {}
    left = ways.vertices[0]
    if (left > 1).any():  # further steps, where they may be better than the second best that need none
        least = places[1] + least_of_sums(target, left, num_outputs, dtypes, codelet, ways.parts[0] > 1)
        alone = np.where(left == 1, places[1] + 1e12 * places[0], np.inf)
        most = np.array([np.partition(np.append(alone[numbers == k], np.inf), 1)[1] for k in range(len(asked))])
        some = np.flatnonzero((left > 1) & (least <= most[numbers])).tolist()
        homes = [ELSEWHERE if ways.parts[0, k] > 1 else (int(left[k]), int(ways.blocks[1, k])) for k in some]
        wanted = [(int(left[k]), home) for k, home in zip(some, homes, strict=True)]
        more = dict(zip(some, plan_sums(target, wanted, num_outputs, dtypes, codelet), strict=True))
        places[1, left > 1] = np.inf
        for k, plan in more.items():
            places[0, k] = max(places[0, k], beyond(target, plan.steps))
            places[1, k] = step.cycles[k] + plan.total_cycles
    order = _in_order(places, numbers)
    first = np.searchsorted(numbers[order], np.arange(len(asked) + 1))
    for k, (count, home) in enumerate(asked):
        work, plans = sum_work(count, num_outputs, *dtypes, codelet, home), []
        for way in order[first[k] : first[k + 1]][:2].tolist():
            cuts, further = ways.at(way), more[way].steps if way in more else ()
            if np.isfinite(places[1, way]):
                steps = (replace(step.at(way), name=work.step_name(cuts)), *further)
                plans.append(Plan(str(work), cuts, steps, told(work.pair[which[way]])))
        number = int(first[k + 1] - first[k])
        yield replace(plans[0], next_best=plans[1] if plans[1:] else None, num_options=number)


def with_sums(
    target: Target,
    counts: np.ndarray,
    num_outputs: int,
    dtypes: tuple[np.dtype, np.dtype],
    codelet: Codelet,
    steps: Sequence[Steps],
) -> list[Steps]:
    """Steps of some ways with those that add up so many partials of each output, which lie anywhere."""
    asked = [(int(count), ELSEWHERE) for count in counts if count > 1]
    plans = iter(plan_sums(target, asked, num_outputs, dtypes, codelet))
    return [(*first, *next(plans).steps) if count > 1 else first for count, first in zip(counts, steps, strict=True)]


def plan_sum(
    target: Target,
    count: int,
    num_outputs: int,
    dtype: np.dtype,
    out_dtype: np.dtype,
    codelet: Codelet = add_up,
    home: Home = ELSEWHERE,
) -> Plan:
    """How `count` partials of each of some outputs are added up: `plan_sums` of one number of them."""
    [plan] = plan_sums(target, [(count, home)], num_outputs, (np.dtype(dtype), np.dtype(out_dtype)), codelet)
    return plan


def priced(target: Target, work: Work, like: Plan) -> Plan:
    """The plan of a work that is cut as another one is: on the tiles where that has left its operands."""
    codelet = work.pair.of(like.detail("workers"))
    which = np.array([codelet is not work.codelet], np.int64)
    step = _price(target, work, Ways.like([like.cuts]), which).at(0)
    [steps] = _finished(target, work, [like.cuts], [(step,)])
    return Plan(str(work), like.cuts, steps, told(codelet))
