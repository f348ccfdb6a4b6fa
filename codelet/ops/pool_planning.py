"""The planner of poolings: how large the patches of results of tiles and vertices are, along each dimension.

In come the windows along all dimensions, those that are not pooled of one element; out comes a `Plan`. A tile receives
the halo of its patch, which its neighbours read too, and all elements that were made on other tiles.

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
from codelet.ops.blocks import near
from codelet.ops.pairs import Pair, told
from codelet.ops.plan_cache import kept_on_disk
from codelet.ops.planning import MEMORY_FRACTION, Offers, Plan, best_of, block_sizes, combined, is_uncut, uncut
from codelet.ops.prices import Costs, StepCost, by_group, costs_of, step_costs
from codelet.ops.ways import Vertices, Ways, of_grain, ways_of
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
        windows: the fields that are patches of windowed tensors, with their dtypes.
        results: the fields that are patches of the size of the results, with theirs.
        dtype: of the results.
        codelets: make them.
        is_elsewhere: whether its operands were made on other tiles.
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


def _bytes(own: Pooled, blocks: np.ndarray, over: np.ndarray) -> tuple[Any, Any]:
    """The elements that a tile receives and stores, of blocks that are cut over so many tiles: numbers or arrays."""
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


def _cost(target: Target, own: Pooled, codelet: Codelet, phase: Sequence[Phase]) -> Costs:
    """The costs of vertices that make patches of results of one phase: numbers, or columns of these."""
    costs = costs_of(target, codelet, **own.values(phase))

    def of(grains: Any) -> VertexCycles:
        patch = tuple(field.reach(n, one.taps) for field, n, one in zip(own.fields, grains, phase, strict=True))
        types: dict[str, tuple[tuple[Any, ...], np.dtype]] = {name: (patch, dtype) for name, dtype in own.windows}
        return costs.of({**types, **{name: (tuple(grains), dtype) for name, dtype in own.results}})

    return of


def _price(target: Target, own: Pooled, ways: Ways, which: np.ndarray) -> StepCost:
    each: list[tuple[VertexCycles, np.ndarray]] = []
    every = np.arange(len(ways))
    for phase in own.phases:
        if all(one.taps for one in phase):
            counts = np.array([one.count for one in phase], np.int64)[:, None]
            grains = np.minimum(ways.grains, counts)
            cost = functools.cache(lambda k, phase=phase: _cost(target, own, own.codelets[k], phase))
            vertex = by_group(target, which, lambda k, sizes, cost=cost: cost(k)(sizes))
            each.append((vertex(tuple(grains), every), (-(-np.minimum(ways.blocks, counts) // grains)).prod(axis=0)))
    received, held = _bytes(own, ways.blocks, ways.parts)
    (first, _), *others = each
    return step_costs(target, own.name, ways, lambda *_: first, received_bytes=received, tile_bytes=held, others=others)


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
    vertex = _cost(target, own, own.codelets.shared, phase)(sizes)
    return vertex.tile_cycles(target.num_workers) / math.prod(sizes)


def _grains_of(own: Pooled, grain: int) -> tuple[int, ...]:
    """The patch of a vertex that has about so many results, from the last dimension."""
    sizes, left = [], grain
    for field in reversed(own.fields):
        sizes.append(near(field.phases[0].count, left))
        left = max(1, left // sizes[-1])
    return tuple(reversed(sizes))


def _ways(target: Target, own: Pooled, blocks: np.ndarray, fixed: tuple[int, ...] | None) -> Iterator[Vertices]:
    """How patches of tiles are made: by the codelets of which numbers, in what grains, and which of them."""
    every, workers = np.ones(blocks.shape[1], bool), target.num_workers
    if fixed is not None:
        yield of_grain(blocks, fixed, workers)
        return
    yield 0, blocks, every
    for d, block in enumerate(blocks):
        grains = blocks.copy()
        grains[d] = -(-block // workers)
        yield 1, grains, block > 1


def _offers(target: Target, own: Pooled, grain: int | None) -> Offers:
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
    chosen = np.argsort(estimate, kind="stable")[:_PRICED]
    blocks = grid[:, chosen]
    dimensions = zip(_names(len(extents)), extents, strict=True)
    ways, which, place = ways_of(dimensions, blocks, _ways(target, own, blocks, fixed), target.num_tiles)
    details = [told(codelet) for codelet in own.codelets]
    return Offers(ways, [_price(target, own, ways, which)], exchange[chosen][place], details, which)


@functools.lru_cache(maxsize=1024)
@kept_on_disk
def plan_pooled(
    target: Target, own: Pooled, grain: int | None = None, memory_fraction: float = MEMORY_FRACTION
) -> Plan:
    """How a pooling is spread over the tiles of a machine: the same plan for the same sizes.

    Args:
        target: the machine.
        own: the pooling.
        grain: about how many results a vertex has; None for the planner to choose.
        memory_fraction: the fraction of a tile's memory that the operation may take.
    """
    if is_uncut(grain):
        extents = [field.phases[0].count for field in own.fields]
        return uncut(str(own), zip(_names(len(extents)), extents, strict=True), told(own.codelets.shared))
    return best_of(str(own), target, _offers(target, own, grain), memory_fraction)
