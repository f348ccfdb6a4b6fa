"""The planner of operations that are done block by block: how their axes are cut over tiles and vertices.

In comes a `Work` of `blockwise.py`, out comes a `Plan`: of the blocks that are likely to take the least
(`likely_blocks.py`), each made of vertices in several ways, the cheapest. Products, elementwise operations, reductions,
rows and random numbers are works. A sum of partial results is a work as well, of one step or of several; so many are
asked for while others are planned that only a few sizes are tried.

Source: PopLibs plans products as it does convolutions (lib/poplin/ConvPlan.cpp) and spreads elementwise operations
evenly (lib/popops/ElementWise.cpp). It plans reductions by how much every tile has to reduce, then the sums of partials
of all (lib/popops/reduction/ReductionPlan.cpp, lib/popops/Reduction.cpp); by which costs is ours.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from jax import lax

from codelet.graphs.stages import Cut
from codelet.ops.blockwise import Axis, Field, Result, Work
from codelet.ops.homes import ELSEWHERE, Home, Moved, moved_elements, stretch
from codelet.ops.likely_blocks import likely_blocks
from codelet.ops.pairs import told
from codelet.ops.plan_cache import kept_on_disk
from codelet.ops.planning import MEMORY_FRACTION, Offers, Plan, Steps, best_of, beyond, is_uncut, uncut
from codelet.ops.prices import StepCost, least_to_move
from codelet.ops.ways import Vertices, Ways, of_grain, product_of, ways_of
from codelet.ops.work_prices import later_cycles, work_costs, work_price
from codelet.target import Target
from codelet.tracing.codelets import Codelet, codelet
from codelet.tracing.field_types import SizeNames, sizes_named

of_partials = sizes_named(lambda static, ranks: SizeNames((("partials", "outputs"),)))
"""Says of a codelet of partial results, of shape (partials, outputs), that it is the same for all sizes."""


@codelet(workers=6, issue="assembly")
@of_partials
def add_up(partials, *, dtype):
    """The sums of the rows of (partials, outputs), in the dtype of the partials, as `dtype`."""
    return lax.reduce_sum(partials, (0,)).astype(dtype)  # traced in half the time of `jnp.sum`, the same


# --- prices -----------------------------------------------------------------------------------------------


def home_of_partials(work: Work, result: Result, cuts: Sequence[Cut]) -> Home:
    """Where partial results lie, by (partials, outputs): all those of an output on one tile, or on several."""
    if any(cuts[a].parts > 1 for a in work.summed):
        return ELSEWHERE
    own = [cuts[a] for a in result.axes]
    each = stretch([cut.extent for cut in own], [cut.block for cut in own])
    return ELSEWHERE if each is None else (work.num_partials(cuts), each)


def _finished(target: Target, work: Work, ways: Sequence[Sequence[Cut]], steps: Sequence[Steps]) -> list[Steps]:
    """The steps with each of some ways, given those without sums of partial results."""
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
    """A lower bound of those steps: columns."""
    count, moves = product_of(ways.vertices, work.summed), product_of(ways.parts, work.summed) > 1
    partial = [each for each in work.results if work.may_be_partial(each) and each.add is not None]
    outputs = [math.prod(work.axes[a].extent for a in each.axes) for each in partial]
    pairs = ((each.add or add_up, n, (each.partials, each.dtype)) for each, n in zip(partial, outputs, strict=True))
    return sum(least_of_sums(target, count, n, dtypes, add, moves) for add, n, dtypes in pairs)


# --- the ways there are -----------------------------------------------------------------------------------


def _grains(work: Work, grain: int) -> tuple[int, ...]:
    """The block of a vertex of about so many elements: all whole axes, then the summed ones, from the last axis."""
    left = max(1, grain // math.prod(axis.extent for axis in work.axes if axis.role == "whole"))
    sizes = {a: axis.extent for a, axis in enumerate(work.axes) if axis.role == "whole"}
    for role in ("summed", "kept"):
        for a in reversed(range(len(work.axes))):
            if work.axes[a].role == role:
                sizes[a] = max(1, min(work.axes[a].extent, left))
                left //= sizes[a]
    return tuple(sizes[a] for a in range(len(work.axes)))


def _ways(target: Target, work: Work, blocks: np.ndarray, fixed: tuple[int, ...] | None) -> Iterator[Vertices]:
    """How blocks are cut into vertices: with codelets of which numbers, into what grains, and for which blocks.

    All workers of a tile share one vertex; or each has others: a share along one of the axes; or a line of the block,
    which is asked of codelets that need no trace for it.
    """
    every = np.ones(blocks.shape[1], bool)
    if fixed is not None:
        yield of_grain(blocks, fixed, target.num_workers)
        return
    kept = [a for a, axis in enumerate(work.axes) if axis.role == "kept"]
    is_shared = work.codelet.hints.workers > 1
    if is_shared or not kept:
        yield 0, blocks, every
    if (is_shared and work.pair.worker is work.codelet) or not kept:
        return
    number = int(is_shared)
    earlier: list[np.ndarray] = []
    ways: list[Iterable[np.ndarray]] = [_shares(blocks, kept, target.num_workers)]
    if work.is_for_all_sizes and len(kept) > 1:
        ways.append(_lines(blocks, kept, target.num_workers))
    if not is_shared:
        ways.append([blocks, _ones(blocks, kept)])
    for grains in itertools.chain(*ways):
        known = [(grains == other).all(axis=0) for other in earlier]
        yield number, grains, ~functools.reduce(np.logical_or, known, ~every)
        earlier.append(grains)


def _shares(blocks: np.ndarray, kept: Sequence[int], num_workers: int) -> Iterator[np.ndarray]:
    """Blocks of single workers: shares along each of the axes that are kept."""
    for a in kept:
        grains = blocks.copy()
        grains[a] = -(-blocks[a] // num_workers)
        yield grains


def _lines(blocks: np.ndarray, kept: Sequence[int], num_workers: int) -> Iterator[np.ndarray]:
    """Blocks of single workers: lines along each of the axes that are kept, or parts of lines where there are few."""
    for a in kept:
        grains = _ones(blocks, kept)
        count = blocks[kept].prod(axis=0) // blocks[a]
        grains[a] = -(-blocks[a] // -(-num_workers // count))
        yield grains


def _ones(blocks: np.ndarray, kept: Sequence[int]) -> np.ndarray:
    """Blocks of one result."""
    grains = blocks.copy()
    grains[list(kept)] = 1
    return grains


def _preference(work: Work, ways: Ways, step: StepCost) -> Any:
    """Of ways of the same cycles those of the least are taken: a column.

    What a tile has lies in the fewest stretches, where operands or results have a home: others find it so. Of a work by
    itself a tile holds the fewest bytes, in the fewest stretches.
    """
    stretches = sum(ways.stretches(own.axes) for own in (*work.fields, *work.results))
    homes = [*(own.home for own in work.fields), *(own.wanted for own in work.results)]
    lies = any(home is not None for home in homes)
    return stretches if lies else step.tile_bytes + stretches / (1 + np.max(stretches, initial=0))


def _offers(
    target: Target, work: Work, estimates: np.ndarray, blocks: np.ndarray, fixed: tuple[int, ...] | None
) -> Offers:
    """The steps with some blocks of tiles, of which these are the estimates."""
    dimensions, vertices = [(axis.name, axis.extent) for axis in work.axes], _ways(target, work, blocks, fixed)
    ways, which, place = ways_of(dimensions, blocks, vertices, target.num_tiles)
    step = work_price(target, work, ways, which)
    return Offers(
        ways,
        [step],
        estimates[place],
        [told(codelet) for codelet in work.pair],
        which,
        _preference(work, ways, step),
        later_cycles(target, work, ways),
        finish=lambda some, steps: _finished(target, work, [ways.at(k) for k in some], steps),
        least_to_finish=_least_of_sums(target, work, ways),
    )


@functools.lru_cache(maxsize=4096)
@kept_on_disk
def plan_work(
    target: Target,
    work: Work,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    grains: tuple[int, ...] | None = None,
) -> Plan:
    """How a work is spread over the tiles of a machine: the same plan for the same sizes.

    Args:
        target: the machine.
        work: the work to plan; no axis of it is empty.
        grain: about how many elements a vertex has; None for the planner to choose.
        memory_fraction: the fraction of a tile's memory that the operation may take.
        grains: the block of a vertex along each axis, if it is known.
    """
    if is_uncut(grain):
        return uncut(work.name, [(axis.name, axis.extent) for axis in work.axes], told(work.codelet))
    fixed = grains if grain is None else _grains(work, grain)
    estimates, blocks = likely_blocks(target, work, fixed, int(memory_fraction * target.bytes_per_tile))
    return best_of(str(work), target, _offers(target, work, estimates, blocks, fixed), memory_fraction)


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
    """A lower bound of a vertex that adds up: nine tenths of the small ones', each of its form."""
    sizes = np.array([*itertools.product((2, 3, 4), (1, 2, 3, 4, 8))], np.int64).T
    own = work_costs(target, sum_work(2, 1, dtype, out_dtype, codelet), codelet, False)(sizes)
    return 0.9 * float(np.min(own.tile_cycles(target.num_workers)))


def _least(target: Target, codelet: Codelet, dtypes: tuple[np.dtype, np.dtype], num_bytes: Any, moves: Any) -> Any:
    """A lower bound of a step whose tiles read so many bytes each to add: no rule has more than 16 a cycle."""
    exchange = least_to_move(target) + num_bytes / target.exchange_bytes_per_cycle
    computed = np.maximum(_least_of_vertex(target, *dtypes, codelet), num_bytes / 16)
    return np.where(moves, exchange, 0) + target.launch_cycles + computed


def least_of_sums(
    target: Target, count: Any, num_outputs: int, dtypes: tuple[np.dtype, np.dtype], codelet: Codelet, moves: Any = True
) -> Any:
    """A lower bound of adding up `count` partials of each of some outputs, if they are several: columns."""
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
        num_outputs: the number of results with partials.
        dtypes: of the partials, and of the sums.
        codelet: adds up: a field `partials` of shape (partials, outputs), and perhaps a static `dtype`.
    """
    known = _sums_known(target, num_outputs, dtypes, codelet)
    if new := [partials for partials in dict.fromkeys(asked) if partials not in known]:
        known.update(zip(new, _planned_sums(target, new, num_outputs, dtypes, codelet), strict=True))
    return [known[partials] for partials in asked]


def _in_order(places: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """Ways by their kinds, then the better first."""
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
    step: Any = work_price(target, work, ways, which, [Moved(*moved)])
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
    step = work_price(target, work, Ways.like([like.cuts]), which).at(0)
    [steps] = _finished(target, work, [like.cuts], [(step,)])
    return Plan(str(work), like.cuts, steps, told(codelet))
