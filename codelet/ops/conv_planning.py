"""The planner of convolutions: how to cut batch, groups, channels, field and kernel over tiles and vertices.

In come the sizes of a convolution; out comes a `Plan`. A vertex makes a block of results from a patch of the field and
a block of kernels; where input channels or the kernel are cut, it makes partial sums, and `codelet/ops/partials.py`
adds them up. Of all combinations of cuts an estimate is made; those of the least estimates are priced.

Source: the splits of PopLibs (lib/poplin/ConvPlan.cpp): field, batch, output channels, input channels, kernel, groups.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np

from codelet.ops.block_planning import add_up, least_of_sums, with_sums
from codelet.ops.blocks import near
from codelet.ops.conv_prices import estimates, price
from codelet.ops.convolved import CODELETS, Blocks, ByRole, Convolved, parts_of
from codelet.ops.pairs import told
from codelet.ops.plan_cache import kept_on_disk
from codelet.ops.planning import MEMORY_FRACTION, Offers, Plan, Steps, best_of, is_uncut, repeated, uncut
from codelet.ops.prices import least_to_move
from codelet.ops.ways import Vertices, of_grain, ways_of
from codelet.target import Target

_ELEMENT = list(CODELETS).index("element")

_PRICED = 96
"""Of so many ways to cut tiles, those of the least estimates, the cycles are counted."""


def _divisor(extent: int, most: int) -> int:
    """The greatest divisor of an extent up to a number: parts of a sum are of one size."""
    return max(n for n in range(1, min(extent, most) + 1) if extent % n == 0)


def _grains_of(own: Convolved, grain: int) -> Blocks:
    """The block of a vertex that has about so many multiply-adds: all that is summed, then a square."""
    extents = parts_of([extent for _, extent in own.dimensions])
    left, kernel, fields = grain, list(extents.kernel), list(extents.fields)
    for d in reversed(range(own.rank)):
        if len(own.phases) == 1:
            kernel[d] = _divisor(kernel[d], left)
        left = max(1, left // max(1, kernel[d]))
    in_channels = _divisor(extents.in_channels, left)
    left = max(1, left // max(1, in_channels))
    out_channels = near(extents.out_channels, math.isqrt(left))
    left //= max(1, out_channels)
    for d in reversed(range(own.rank)):
        fields[d] = near(fields[d], left)
        left //= max(1, fields[d])
    return (1, near(extents.batch, left), *fields, in_channels, *kernel, out_channels)


_POSITIONS = 64
"""At most so many positions of a tile are vertices of their own."""


def _kinds_of(grains: ByRole) -> np.ndarray:
    """The results of vertices of some grains: the numbers of kinds."""
    patches = functools.reduce(np.multiply, grains.fields, 1) > 1
    return np.where(patches, 0, np.where((grains.batch == 1) & (grains.out_channels == 1), 2, 1))


def _ways(blocks: np.ndarray, alone: np.ndarray, workers: int) -> Iterator[Vertices]:
    """How the blocks of tiles are made by vertices, of all workers or of one each.

    Args:
        blocks: of tiles, of shape (dimensions, ways).
        alone: where vertices of one worker are looked at, whatever they make.
        workers: of a tile.

    Returns:
        The codelets by number, even ones of all workers; the grains; and for which blocks.
    """
    rank = (len(blocks) - 4) // 2
    of_fields = slice(2, 2 + rank)
    shared, single = blocks.copy(), blocks.copy()
    shared[0] = single[0] = single[of_fields] = 1
    kinds, of_single = (_kinds_of(parts_of(list(own))) for own in (shared, single))
    yield 2 * kinds, shared, kinds != _ELEMENT
    yield 2 * of_single, single, (kinds == 0) & (blocks[of_fields].prod(axis=0) <= _POSITIONS) & (of_single != _ELEMENT)
    alone = alone | (kinds == _ELEMENT)
    for d in (1, *range(2, 2 + rank), 3 + 2 * rank):
        grains = shared.copy()
        grains[d] = -(-shared[d] // workers)
        yield 2 * _kinds_of(parts_of(list(grains))) + 1, grains, alone & (shared[d] > 1)
    yield 2 * kinds + 1, shared, alone & ((blocks[0] > 1) | (kinds == _ELEMENT))


def offers(target: Target, own: Convolved, grain: int | None, memory: int, priced: int = _PRICED) -> Offers:
    """The ways to cut a convolution, those of the least estimates, and their costs.

    Args:
        target: the machine.
        own: the convolution.
        grain: about how many multiply-adds a vertex has; None for the planner to choose.
        memory: bytes of a tile.
        priced: of how many ways to cut tiles.
    """
    fixed = None if grain is None else _grains_of(own, grain)
    grid, estimate, computed = estimates(target, own, fixed, memory)
    number = min(priced, len(estimate))
    chosen = np.argpartition(estimate, number - 1)[:number]
    chosen = chosen[np.argsort(estimate[chosen], kind="stable")]
    blocks = grid[:, chosen]
    if fixed is not None:
        alone, grains, every = of_grain(blocks, fixed, target.num_workers)
        found = iter([(2 * _kinds_of(parts_of(list(grains))) + alone, grains, every)])
    else:
        found = _ways(blocks, np.arange(number) < max(1, priced // 4), target.num_workers)
    ways, which, place = ways_of(own.dimensions, blocks, found, target.num_tiles)
    chosen = chosen[place]
    step, moved, count = price(target, own, ways, which)
    summed = least_of_sums(target, count, own.results, (own.partials, own.out_dtype), add_up)
    bounds = target.launch_cycles + computed[chosen] + summed
    exchanged = moved.received * own.dtype.itemsize / target.exchange_bytes_per_cycle
    bounds = bounds + np.where(moved.received > 0, least_to_move(target) + exchanged, 0)

    def finish(some: Sequence[int], steps: Sequence[Steps]) -> list[Steps]:
        return with_sums(target, count[some], own.results, (own.partials, own.out_dtype), add_up, steps)

    details = [told(codelet) for pair in CODELETS.values() for codelet in pair]
    return Offers(ways, [step], bounds, details, which, finish=finish, least_to_finish=summed)


def _in_turns(own: Convolved) -> Iterator[list[tuple[str, int, Convolved]]]:
    """A convolution in ever more rounds: the dimension to cut, into how many, and the convolution of one round."""
    extents = {"batch": own.batch, "groups": own.groups, "out_channels": own.out_channels}
    turns, most = 1, max(extents.values())
    while turns < most:
        turns *= 2
        parts = {name: -(-extent // min(turns, extent)) for name, extent in extents.items() if 2 * extent > turns}
        yield [(name, -(-extents[name] // part), replace(own, **{name: part})) for name, part in parts.items()]


def _uncut(own: Convolved) -> Plan:
    """The plan of a convolution that is cut by its groups and positions alone.

    Fast execution makes one convolution of these, or a product, of the arrays as they lie; the phases of a divided one
    it puts together.
    """
    plan = uncut(str(own), own.dimensions)
    apart = {0, *range(2, 2 + own.rank)}
    cuts = tuple(replace(cut, grain=1) if d in apart else cut for d, cut in enumerate(plan.cuts))
    (kind,) = _kinds_of(parts_of([np.array([cut.grain]) for cut in cuts]))
    return replace(plan, cuts=cuts, details=told([*CODELETS.values()][int(kind)].shared))


@functools.lru_cache(maxsize=1024)
@kept_on_disk
def plan_convolved(
    target: Target, own: Convolved, grain: int | None = None, memory_fraction: float = MEMORY_FRACTION
) -> Plan:
    """How a convolution is spread over the tiles of a machine: the same plan for the same sizes.

    Where the blocks of all tiles do not fit their memory at once, it is done in rounds, each of a part of the batch,
    the groups or the output channels; where that does not help, or a grain is given, the plan is the one that takes
    least memory of all.

    Args:
        target: the machine.
        own: the convolution.
        grain: about how many multiply-adds a vertex has; None for the planner to choose.
        memory_fraction: the fraction of a tile's memory that the operation may take.
    """
    if not own.results or not own.summed or not any(all(p.taps for p in phase) for phase in own.phases):
        return Plan(str(own), (), ())
    if is_uncut(grain):
        return _uncut(own)
    memory = int(memory_fraction * target.bytes_per_tile)

    def planned(part: Convolved) -> Plan:
        return best_of(str(own), target, offers(target, part, grain, memory), memory_fraction)

    plan = planned(own)
    if plan.tile_bytes <= memory or grain is not None:
        return plan
    for ways in _in_turns(own):
        plans = [repeated(planned(part), turns, f"turns of {name.replace('_', ' ')}") for name, turns, part in ways]
        fits = [found for found in plans if found.tile_bytes <= memory]
        if fits:
            return min(fits, key=lambda found: found.total_cycles)
    return plan
