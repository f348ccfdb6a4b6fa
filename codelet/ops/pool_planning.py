"""The planner of poolings: how large the patches of results of tiles and vertices are, along each dimension.

In come the windows along all dimensions, those that are not pooled of one element; out comes a `Plan`. A tile receives
the halo of its patch, which its neighbours read too, and all of what was made on other tiles.

Source: PopLibs' plan of poolings (lib/popnn/PoolPlan.cpp) cuts batch, channels and field by the cycles of its vertices.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.graphs.stages import Cut
from codelet.ops.blocks import near, num_tiles
from codelet.ops.pairs import Pair, told
from codelet.ops.planning import (
    MEMORY_SHARE,
    Option,
    Plan,
    StepCost,
    block_sizes,
    cheapest,
    combined,
    step_cost,
    vertex_cycles,
)
from codelet.ops.windows import WindowedDimension
from codelet.target import Target, VertexCycles
from codelet.tracing.codelets import Codelet
from codelet.views.line import Phase


@dataclass(frozen=True)
class Pooled:
    """A compute set of patches of results, each of the windows of them.

    Attributes:
        name: of the compute set.
        fields: the windows along each dimension.
        windows: the fields that are patches of what windows move over, with their dtypes.
        results: the fields that are patches of the size of the results, with theirs.
        dtype: of the results.
        codelets: what makes them.
        is_elsewhere: whether what it reads was made on other tiles.
        static: static values, by name, besides those of the windows.
    """

    name: str
    fields: tuple[WindowedDimension, ...]
    windows: tuple[tuple[str, np.dtype], ...]
    results: tuple[tuple[str, np.dtype], ...]
    dtype: np.dtype
    codelets: Pair
    is_elsewhere: bool = False
    static: tuple[tuple[str, Any], ...] = ()

    @property
    def phases(self) -> list[tuple[Phase, ...]]:
        """A phase of each dimension, in all combinations."""
        return list(itertools.product(*(field.phases for field in self.fields)))

    def taps(self, phase: Sequence[Phase]) -> tuple[int, ...]:
        """The number of each tap of a phase among those of the whole window; they count from its end."""
        of_dimension = [
            [field.taps - 1 - (own.tap + own.tap_step * k) for k in range(own.taps)]
            for field, own in zip(self.fields, phase, strict=True)
        ]
        sizes = [field.taps for field in self.fields]
        return tuple(int(np.ravel_multi_index(each, sizes)) for each in itertools.product(*of_dimension))

    def values(self, phase: Sequence[Phase]) -> dict[str, Any]:
        """The static values of the codelet for one phase."""
        values = {
            **dict(self.static),
            "window": tuple(own.taps for own in phase),
            "strides": tuple(field.stride for field in self.fields),
            "dilation": tuple(field.step for field in self.fields),
        }
        if "numbers" in self.codelets.shared.static:
            values["numbers"] = self.taps(phase)
        return {name: value for name, value in values.items() if name in self.codelets.shared.static}

    def __str__(self) -> str:
        sizes = ", ".join(
            f"{field.results:,} of {field.taps} by {field.stride}" if field.taps > 1 else f"{field.results:,}"
            for field in self.fields
        )
        return f"{self.name}, {self.codelets.shared.name} of {self.dtype}: {sizes}"


def _names(rank: int) -> list[str]:
    return [f"dimension {d}" for d in range(rank)]


def cuts_of_phase(cuts: Sequence[Cut], phase: Sequence[Phase]) -> tuple[Cut, ...]:
    """The cuts of one phase, of fewer results perhaps."""
    return tuple(
        Cut(cut.name, own.count, min(cut.block, own.count), min(cut.grain, own.count))
        for cut, own in zip(cuts, phase, strict=True)
    )


# --- prices -----------------------------------------------------------------------------------------------


def _bytes(own: Pooled, blocks: Sequence[Any], over: Sequence[Any]) -> tuple[Any, Any]:
    """What a tile receives and what it holds, of blocks that are cut over so many tiles: numbers or arrays."""
    there = alone = results = 1
    for field, size, parts in zip(own.fields, blocks, over, strict=True):
        taps = max(one.taps for one in field.phases)
        reach = field.reach(size, taps)
        read = np.minimum(np.minimum(reach, size * taps), field.extent)
        common = np.maximum(0, reach - field.stride * size)
        there, results = there * read, results * size
        alone = alone * np.maximum(0, read - np.minimum(parts - 1, 2) * common)
    width = sum(dtype.itemsize for _, dtype in own.windows)
    out = results * len(own.phases)
    beside = sum(dtype.itemsize for _, dtype in own.results)
    received = (there if own.is_elsewhere else there - alone) * width
    return received, there * width + out * (beside + own.dtype.itemsize)


def _cycles(target: Target, own: Pooled, codelet: Codelet, cuts: Sequence[Cut], phase: Sequence[Phase]) -> VertexCycles:
    grains = [cut.grain for cut in cuts]
    patch = tuple(field.reach(n, one.taps) for field, n, one in zip(own.fields, grains, phase, strict=True))
    types: dict[str, tuple[tuple[int, ...], np.dtype]] = {name: (patch, dtype) for name, dtype in own.windows}
    types.update({name: (tuple(grains), dtype) for name, dtype in own.results})
    return vertex_cycles(target, codelet, types, **own.values(phase))


def _price(target: Target, own: Pooled, codelet: Codelet, cuts: tuple[Cut, ...]) -> list[StepCost]:
    each: list[tuple[VertexCycles, int]] = []
    for phase in own.phases:
        if all(one.taps for one in phase):
            ours = cuts_of_phase(cuts, phase)
            count = math.prod(cut.vertices_of_tile for cut in ours)
            each.append((_cycles(target, own, codelet, ours, phase), count))
    received, held = _bytes(own, [cut.block for cut in cuts], [cut.parts for cut in cuts])
    first, *others = each
    step = step_cost(
        target, own.name, cuts, first[0], received_bytes=int(received), tile_bytes=int(held), others=others
    )
    return [step]


# --- the ways there are -----------------------------------------------------------------------------------

_COMBINATIONS = 1 << 17
"""So many combinations of cuts are looked at at most: where there are more sizes, every second is left out."""

_PRICED = 48
"""Of so many of them, those of the least estimates, the cycles are counted."""


@functools.lru_cache(maxsize=1024)
def _rate(target: Target, own: Pooled) -> float:
    """Cycles of a tile for a result, about."""
    phase = next(phase for phase in own.phases if all(one.taps for one in phase))
    sizes = [min(one.count, 8) for one in phase]
    cuts = [Cut(name, one.count, n, n) for name, one, n in zip(_names(len(sizes)), phase, sizes, strict=True)]
    return _cycles(target, own, own.codelets.shared, cuts, phase).tile_cycles(target.num_workers) / math.prod(sizes)


def _grains_of(own: Pooled, grain: int) -> tuple[int, ...]:
    """The patch of a vertex that has about so many results, from the last dimension."""
    sizes, left = [], grain
    for field in reversed(own.fields):
        sizes.append(near(field.phases[0].count, left))
        left = max(1, left // sizes[-1])
    return tuple(reversed(sizes))


def _options(target: Target, own: Pooled, grain: int | None) -> Iterator[Option]:
    fixed = None if grain is None else _grains_of(own, grain)
    extents = [field.phases[0].count for field in own.fields]
    sizes = [block_sizes(n, fixed[d] if fixed else 1, target.num_tiles) for d, n in enumerate(extents)]
    while math.prod(map(len, sizes)) > _COMBINATIONS:
        longest = max(sizes, key=len)
        longest[1:-1] = longest[1:-1][1::2]
    grid, over = combined(extents, sizes, target.num_tiles)
    received, _ = _bytes(own, grid, over)
    exchange = received / target.exchange_bytes_per_cycle
    step = np.where(received > 0, target.sync_cycles + target.exchange_overhead_cycles, 0)
    estimate = exchange + step + functools.reduce(np.multiply, grid, 1) * len(own.phases) * _rate(target, own)
    for k in np.argsort(estimate, kind="stable")[:_PRICED]:
        blocks = tuple(int(axis[k]) for axis in grid)
        ways = [(own.codelets.shared, fixed or blocks)]
        if fixed is not None:
            vertices = math.prod(-(-block // n) for block, n in zip(blocks, fixed, strict=True))
            ways = [(own.codelets.for_vertices(vertices, target.num_workers), fixed)]
        else:
            for d, block in enumerate(blocks):
                if block > 1:
                    share = -(-block // target.num_workers)
                    ways.append((own.codelets.worker, (*blocks[:d], share, *blocks[d + 1 :])))
        for codelet, grains in ways:
            cuts = tuple(
                Cut(name, n, min(-(-block // one) * one, n), one)
                for name, n, block, one in zip(
                    _names(len(blocks)), extents, blocks, map(min, blocks, grains), strict=True
                )
            )
            if num_tiles(cuts) <= target.num_tiles:
                price = functools.partial(_price, target, own, codelet, cuts)
                yield Option(cuts, float(exchange[k]), price, told(codelet))


@functools.lru_cache(maxsize=1024)
def plan_pooled(target: Target, own: Pooled, grain: int | None = None, memory_share: float = MEMORY_SHARE) -> Plan:
    """How a pooling is spread over the tiles of a machine: the same plan for the same sizes.

    Args:
        target: the machine.
        own: the pooling.
        grain: about how many results a vertex has; None for the planner to choose.
        memory_share: of a tile's memory, what the operation may take.
    """
    return cheapest(str(own), target, _options(target, own, grain), memory_share)
