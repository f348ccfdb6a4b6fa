"""The planner of convolutions: how to cut batch, groups, channels, field and kernel over tiles and vertices.

In come the sizes of a convolution; out comes a `Plan`. A vertex makes a block of results from a patch of the field and
a block of kernels; where input channels or the kernel are cut, it makes partial sums, and `codelet/ops/partials.py`
adds them up. Of all combinations of cuts an estimate is made; those of the least estimates are priced.

Source: the splits of PopLibs (lib/poplin/ConvPlan.cpp): field, batch, output channels, input channels, kernel, groups.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from codelet.graphs.stages import Cut
from codelet.ops.blocks import cuts_of, near, num_tiles
from codelet.ops.conv_prices import costs_of, estimates, moved_by, price
from codelet.ops.convolved import CODELETS, Blocks, Convolved, Kind, parts_of
from codelet.ops.pairs import told
from codelet.ops.planning import MEMORY_SHARE, Option, Plan, cheapest, least_to_move, repeated
from codelet.target import Target
from codelet.tracing.codelets import Codelet

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


def _ways(own: Convolved, blocks: Blocks, workers: int, *, alone: bool) -> Iterator[tuple[Kind, Codelet, Blocks]]:
    """How the blocks of tiles are made by vertices: of all workers, or of one each."""
    rank = own.rank
    shared = (1, *blocks[1:])
    single = (*shared[:2], *(1,) * rank, *shared[2 + rank :])
    kind = _kind_of(own, shared)
    if kind != "element":
        yield kind, CODELETS[kind].shared, shared
    if kind == "patch" and math.prod(blocks[2 : 2 + rank]) <= _POSITIONS and _kind_of(own, single) != "element":
        yield "position", CODELETS["position"].shared, single
    if not alone and kind != "element":
        return
    for d in (1, *range(2, 2 + rank), 3 + 2 * rank):
        if shared[d] > 1:
            grains = _share(shared, d, workers)
            kind_of_share = _kind_of(own, grains)
            yield kind_of_share, CODELETS[kind_of_share].worker, grains
    if blocks[0] > 1 or kind == "element":
        yield kind, CODELETS[kind].worker, shared


def options(
    target: Target, own: Convolved, grain: int | None = None, memory: int = 1 << 30, priced: int = _PRICED
) -> Iterator[Option]:
    """The ways to cut a convolution, those of the least estimates.

    Args:
        target: the machine.
        own: the convolution.
        grain: about how many multiply-adds a vertex has; None for the planner to choose.
        memory: bytes of a tile.
        priced: of how many ways to cut tiles.
    """
    fixed = None if grain is None else _grains_of(own, grain)
    grid, estimate, least = estimates(target, own, fixed, memory)
    found: list[tuple[float, Kind, Codelet, tuple[Cut, ...]]] = []
    number = min(priced, len(estimate))
    chosen = np.argpartition(estimate, number - 1)[:number]
    for place, k in enumerate(chosen[np.argsort(estimate[chosen], kind="stable")]):
        blocks = tuple(int(axis[k]) for axis in grid)
        if fixed is not None:
            vertices = math.prod(-(-block // own) for block, own in zip(blocks, fixed, strict=True))
            kind = _kind_of(own, fixed)
            ways: list[tuple[Kind, Codelet, Blocks]] = [
                (kind, CODELETS[kind].for_vertices(vertices, target.num_workers), fixed)
            ]
        else:
            ways = list(_ways(own, blocks, target.num_workers, alone=place < max(1, priced // 4)))
        for kind, codelet, grains in ways:
            cuts = cuts_of(own.dimensions, blocks, grains)
            if num_tiles(cuts) <= target.num_tiles:
                found.append((float(least[k]), kind, codelet, cuts))
    costs = costs_of(target, own)
    every = moved_by(target, own, [cuts for *_, cuts in found]) if found else []
    for (computed, kind, codelet, cuts), moved in zip(found, every, strict=True):
        bound = target.launch_cycles + computed
        if moved.received:
            bound += least_to_move(target) + moved.received * own.dtype.itemsize / target.exchange_bytes_per_cycle
        count = functools.partial(price, target, own, costs, kind, codelet, cuts, moved)
        yield Option(cuts, bound, count, told(codelet))


def _in_turns(own: Convolved) -> Iterator[list[tuple[str, int, Convolved]]]:
    """A convolution in ever more turns: what may be cut into them, into how many, and the convolution of one turn."""
    extents = {"batch": own.batch, "groups": own.groups, "out_channels": own.out_channels}
    turns, most = 1, max(extents.values())
    while turns < most:
        turns *= 2
        parts = {name: -(-extent // min(turns, extent)) for name, extent in extents.items() if 2 * extent > turns}
        yield [(name, -(-extents[name] // part), replace(own, **{name: part})) for name, part in parts.items()]


@functools.lru_cache(maxsize=1024)
def plan_convolved(
    target: Target, own: Convolved, grain: int | None = None, memory_share: float = MEMORY_SHARE
) -> Plan:
    """How a convolution is spread over the tiles of a machine: the same plan for the same sizes.

    Where the blocks of all tiles do not fit their memory at once, it is done in turns, each of a part of the batch, the
    groups or the output channels; where that does not help, or a grain is given, the plan is the one that takes least
    memory of all.

    Args:
        target: the machine.
        own: the convolution.
        grain: about how many multiply-adds a vertex has; None for the planner to choose.
        memory_share: of a tile's memory, what the operation may take.
    """
    if not own.results or not own.summed or not any(all(p.taps for p in phase) for phase in own.phases):
        return Plan(str(own), (), ())
    memory = int(memory_share * target.bytes_per_tile)

    def planned(part: Convolved) -> Plan:
        return cheapest(str(own), target, options(target, part, grain, memory), memory_share)

    plan = planned(own)
    if plan.tile_bytes <= memory or grain is not None:
        return plan
    for ways in _in_turns(own):
        plans = [repeated(planned(part), turns, f"turns of {name.replace('_', ' ')}") for name, turns, part in ways]
        fits = [found for found in plans if found.tile_bytes <= memory]
        if fits:
            return min(fits, key=lambda found: found.total_cycles)
    return plan
