"""The planner of elementwise operations: how the elements of arrays that share dimensions are cut over tiles and vertices.

In come dimensions, and which of them each operand and each result has; out comes a `Plan`. An operand without a dimension
is the same all along it, so tiles that share the dimension receive it; a result without one is summed over it, from the
partial sums that the blocks along it give (`codelet/ops/partials.py`).

Source: PopLibs spreads elementwise operations evenly over all tiles (lib/popops/ElementWise.cpp).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

import codelet as cl
from codelet.ops.blocks import Cut, num_tiles
from codelet.ops.partials import plan_sum
from codelet.ops.planning import MEMORY_SHARE, Option, Plan, StepCost, block_sizes, cheapest, step_cost, vertex_cycles
from codelet.target import Target

_CANDIDATES = 16
"""So many of the ways to cut the dimensions over tiles, those of the least bounds, are looked at."""


@dataclass(frozen=True)
class Array:
    """An operand or a result: the dimensions that it has, in order, and its dtype."""

    dimensions: tuple[int, ...]
    dtype: np.dtype


@dataclass(frozen=True)
class Elements:
    """An elementwise operation, as far as its cost goes.

    Attributes:
        extents: of the dimensions, one or more elements each.
        operands: what each element of the results is made of.
        results: an array of all dimensions is written element by element, any other is summed over those it has not.
        sums: the dtype of partial sums, for each result.
    """

    extents: tuple[int, ...]
    operands: tuple[Array, ...]
    results: tuple[Array, ...]
    sums: tuple[np.dtype, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the dimensions, in print."""
        return ("elements",) if len(self.extents) == 1 else tuple(f"d{d}" for d in range(len(self.extents)))

    def missing(self, array: Array) -> tuple[int, ...]:
        """The dimensions that an array has not."""
        return tuple(d for d in range(len(self.extents)) if d not in array.dimensions)

    def num_partials(self, cuts: tuple[Cut, ...], result: Array) -> int:
        """How many partial sums each element of a result is made of."""
        return math.prod(cuts[d].vertices for d in self.missing(result))

    def dtypes(self, cuts: tuple[Cut, ...]) -> tuple[str, ...]:
        """What the vertices give of each result: itself, or partial sums of it."""
        pairs = zip(self.results, self.sums, strict=True)
        return tuple((sums if self.num_partials(cuts, own) > 1 else own.dtype).name for own, sums in pairs)

    def static(self, cuts: tuple[Cut, ...]) -> dict[str, object]:
        """The static values of its codelet."""
        return {
            "dimensions": tuple(own.dimensions for own in self.operands),
            "kept": tuple(own.dimensions for own in self.results),
            "sums": tuple(own.name for own in self.sums),
            "dtypes": self.dtypes(cuts),
        }

    def __str__(self) -> str:
        arrays = [f"{own.dtype}{list(own.dimensions)}" for own in (*self.operands, *self.results)]
        return f"{' x '.join(f'{extent:,}' for extent in self.extents) or '1'} elements of {', '.join(arrays)}"


@dataclass(frozen=True)
class ElementCodelets:
    """A codelet of all workers of a tile, and the same of one worker.

    Its fields are x0, x1, ..., blocks of the operands, and out0, out1, ...; its static values those of `Elements.static`.
    """

    shared: cl.Codelet
    worker: cl.Codelet


def _block_bytes(cuts: tuple[Cut, ...], array: Array) -> int:
    return math.prod(cuts[d].block for d in array.dimensions) * array.dtype.itemsize


def _price(target: Target, own: Elements, codelet: cl.Codelet, cuts: tuple[Cut, ...]) -> list[StepCost]:
    types = {
        f"x{k}": (tuple(cuts[d].grain for d in array.dimensions), array.dtype) for k, array in enumerate(own.operands)
    }
    vertex = vertex_cycles(target, codelet, types, **own.static(cuts))
    received = sum(
        _block_bytes(cuts, array) for array in own.operands if any(cuts[d].parts > 1 for d in own.missing(array))
    )
    written = 0
    for array, name in zip(own.results, own.dtypes(cuts), strict=True):
        each = math.prod(cuts[d].vertices_of_tile for d in own.missing(array))
        written += each * _block_bytes(cuts, Array(array.dimensions, np.dtype(name)))
    held = sum(_block_bytes(cuts, array) for array in own.operands) + written
    steps = [step_cost(target, "map", cuts, vertex, received_bytes=received, tile_bytes=held)]
    for array, sums in zip(own.results, own.sums, strict=True):
        count = own.num_partials(cuts, array)
        if count > 1:
            size = math.prod(own.extents[d] for d in array.dimensions)
            steps += plan_sum(target, count, size, sums, array.dtype).steps
    return steps


@functools.lru_cache(maxsize=1024)
def _rate(target: Target, own: Elements, codelet: cl.Codelet) -> float:
    """Cycles of a tile for an element, in a block so large that little else counts."""
    left, sizes = 1 << 14, []
    for extent in reversed(own.extents):
        sizes.insert(0, min(extent, max(1, left)))
        left //= sizes[0]
    whole = tuple(Cut(str(d), extent, extent, extent) for d, extent in enumerate(sizes))
    types = {f"x{k}": (tuple(sizes[d] for d in array.dimensions), array.dtype) for k, array in enumerate(own.operands)}
    return vertex_cycles(target, codelet, types, **own.static(whole)).tile_cycles(target.num_workers) / math.prod(sizes)


def _multiple(target: Target, own: Elements, d: int, grain: int) -> int:
    """What a tile's elements along a dimension come in multiples of: vectors for all workers, along the last."""
    if grain > 1 or d < len(own.extents) - 1:
        return grain
    vector = max(1, 8 // max((array.dtype.itemsize for array in (*own.operands, *own.results)), default=4))
    many = target.num_workers * vector
    return many if own.extents[d] >= 4 * many else 1


def _blocks(target: Target, own: Elements, rate: float, grains: tuple[int, ...]) -> list[tuple[float, tuple[int, ...]]]:
    """Blocks of tiles, those of the least bounds below the cycles that they take, with these bounds."""
    extents = own.extents
    cut = sorted(sorted(range(len(extents)), key=lambda d: -extents[d])[:3])  # more are not cut over tiles
    choices = [np.array(block_sizes(extents[d], _multiple(target, own, d, grains[d]), target.num_tiles)) for d in cut]
    every = np.array(extents, np.int64)[:, None] * np.ones(math.prod(map(len, choices)), np.int64)
    if cut:
        every[cut] = [grid.reshape(-1) for grid in np.meshgrid(*choices, indexing="ij")]
    parts = -(-np.array(extents, np.int64)[:, None] // every)
    num_bytes = np.zeros(every.shape[1])
    for array in own.operands:
        shared = parts[list(own.missing(array))].prod(axis=0) > 1
        num_bytes += shared * every[list(array.dimensions)].prod(axis=0) * array.dtype.itemsize
    for array, sums in zip(own.results, own.sums, strict=True):
        count = parts[list(own.missing(array))].prod(axis=0)
        size = math.prod(extents[d] for d in array.dimensions) * sums.itemsize
        num_bytes += (count > 1) * size * count / target.num_tiles
    bounds = num_bytes / target.exchange_bytes_per_cycle + rate * every.prod(axis=0)
    bounds[parts.prod(axis=0) > target.num_tiles] = np.inf
    chosen = np.argsort(bounds, kind="stable")[:_CANDIDATES]
    return [(float(bounds[k]), tuple(map(int, every[:, k]))) for k in chosen if np.isfinite(bounds[k])]


def _grains(own: Elements, grain: int) -> tuple[int, ...]:
    """The block of a vertex of about so many elements: a stretch of them, the last dimension first."""
    sizes: list[int] = []
    for extent in reversed(own.extents):
        sizes.insert(0, min(extent, max(1, grain)))
        grain //= sizes[0]
    return tuple(sizes)


def _cuts(own: Elements, blocks: tuple[int, ...], grains: tuple[int, ...]) -> tuple[Cut, ...]:
    """The cuts of blocks into grains, of which each block has a whole number."""
    cuts = []
    for name, extent, block, grain in zip(own.names, own.extents, blocks, grains, strict=True):
        grain = min(grain, block)
        cuts.append(Cut(name, extent, min(-(-block // grain) * grain, extent), grain))
    return tuple(cuts)


def _options(target: Target, own: Elements, codelets: ElementCodelets, grain: int | None) -> Iterator[Option]:
    fixed = None if grain is None else _grains(own, grain)
    rate = 0.9 * min(_rate(target, own, codelets.shared), _rate(target, own, codelets.worker))
    for bound, blocks in _blocks(target, own, rate, fixed or tuple(1 for _ in own.extents)):
        ways: list[tuple[cl.Codelet, tuple[int, ...]]] = []
        if fixed is not None:
            vertices = math.prod(-(-block // size) for block, size in zip(blocks, fixed, strict=True))
            ways.append((codelets.worker if vertices >= target.num_workers else codelets.shared, fixed))
        else:
            ways.append((codelets.shared, blocks))
            for d in sorted(range(len(blocks)), key=lambda d: -blocks[d])[:2]:
                share = -(-blocks[d] // target.num_workers)
                ways.append((codelets.worker, (*blocks[:d], share, *blocks[d + 1 :])))
        for codelet, sizes in dict.fromkeys(ways):
            cuts = _cuts(own, blocks, sizes)
            if num_tiles(cuts) <= target.num_tiles:
                what = "workers share" if codelet is codelets.shared else "a worker's"
                price = functools.partial(_price, target, own, codelet, cuts)
                yield Option(cuts, bound, price, (("vertices", what),))


@functools.lru_cache(maxsize=1024)
def plan_elements(
    target: Target,
    own: Elements,
    codelets: ElementCodelets,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
) -> Plan:
    """How an elementwise operation is spread over the tiles of a machine: the same plan for the same sizes.

    Args:
        target: the machine.
        own: the operation.
        codelets: what it is made of.
        grain: about how many elements a vertex has; None for the planner to choose.
        memory_share: of a tile's memory, what the operation may take.
    """
    return cheapest(str(own), target, _options(target, own, codelets, grain), memory_share)


def chosen_codelet(plan: Plan, codelets: ElementCodelets) -> cl.Codelet:
    """The codelet that a plan chose."""
    return codelets.shared if plan.detail("vertices") == "workers share" else codelets.worker
