"""The planner of elementwise operations: how the elements of arrays that share dimensions are cut over tiles.

In come dimensions, and which of them each operand has; out comes a `Plan`. An operand without a dimension is the same
all along it, so that tiles which share the dimension receive it.

Source: PopLibs spreads elementwise operations evenly over all tiles (lib/popops/ElementWise.cpp).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.ops.homes import Home, moved_elements
from codelet.ops.pairs import Pair, told
from codelet.ops.plan_cache import kept_on_disk
from codelet.ops.planning import MEMORY_FRACTION, Offers, Plan, best_of, block_sizes
from codelet.ops.prices import POINTER_BYTES, Costs, StepCost, by_group, costs_of, least_to_move, step_costs
from codelet.ops.ways import Vertices, Ways, of_grain, product_of, ways_of
from codelet.target import Target
from codelet.tracing.codelets import Codelet

_CANDIDATES = 3
"""So many of the ways to cut the dimensions over tiles, those of the least bounds, are looked at for every size of rows
but for a factor of four: how fast rows are that share an operand depends on how long they are."""


@dataclass(frozen=True)
class ElementOperand:
    """An operand.

    Attributes:
        dimensions: those that it has, in order.
        dtype: its own.
        home: where it lies: see `homes.py`.
        is_scattered: whether its elements lie apart, so that each is an edge, and a pointer, of its own.
    """

    dimensions: tuple[int, ...]
    dtype: np.dtype
    home: Home | None = None
    is_scattered: bool = False


@dataclass(frozen=True)
class Elements:
    """An elementwise operation, as far as its cost goes.

    Attributes:
        extents: of the dimensions, which every result has.
        operands: what each element of the results is made of.
        results: their dtypes.
    """

    extents: tuple[int, ...]
    operands: tuple[ElementOperand, ...]
    results: tuple[np.dtype, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Of the dimensions, in print."""
        return ("elements",) if len(self.extents) == 1 else tuple(f"d{d}" for d in range(len(self.extents)))

    def missing(self, operand: ElementOperand) -> tuple[int, ...]:
        """The dimensions that an operand has not."""
        return tuple(d for d in range(len(self.extents)) if d not in operand.dimensions)

    @property
    def static(self) -> dict[str, object]:
        """The static values of its codelet."""
        return {"dimensions": tuple(own.dimensions for own in self.operands)}

    def __str__(self) -> str:
        operands = ", ".join(f"{own.dtype}{list(own.dimensions)}" for own in self.operands)
        sizes = " x ".join(f"{extent:,}" for extent in self.extents) or "1"
        return f"{sizes} elements of {operands} to {', '.join(map(str, self.results))}"


def _cost(target: Target, own: Elements, codelet: Codelet) -> Costs:
    """What vertices take by how much they have of each dimension: numbers, or columns of these."""
    costs, pairs = costs_of(target, codelet, **own.static), list(enumerate(own.operands))
    return lambda sizes: costs.of({f"x{k}": (tuple(sizes[d] for d in x.dimensions), x.dtype) for k, x in pairs})


def _price(target: Target, own: Elements, codelets: Pair, ways: Ways, which: np.ndarray) -> StepCost:
    costs = functools.cache(lambda k: _cost(target, own, codelets[k]))
    vertex = by_group(target, which, lambda k, sizes: costs(k)(sizes))
    received, sent, there = 0, 0, 0
    held = ways.blocks.prod(axis=0) * sum(dtype.itemsize for dtype in own.results)
    for operand in own.operands:
        block = product_of(ways.blocks, operand.dimensions) * operand.dtype.itemsize
        held = held + block
        if operand.is_scattered:
            vertices = ways.vertices_of_tile.prod(axis=0)
            held = held + POINTER_BYTES * vertices * product_of(ways.grains, operand.dimensions)
        moved = moved_elements(operand.home, ways, operand.dimensions)
        there = there + np.where(moved.received > 0, 0, block if operand.home else 0)
        received = received + moved.received * operand.dtype.itemsize
        sent = sent + moved.sent * operand.dtype.itemsize
    own_bytes: dict[str, Any] = {
        "received_bytes": received,
        "sent_bytes": sent,
        "tile_bytes": held,
        "there_bytes": there,
    }
    return step_costs(target, "map", ways, vertex, **own_bytes, edges=True)


def _rate(target: Target, own: Elements, codelet: Codelet) -> float:
    """Cycles of a tile for an element, in blocks of such forms that little else counts."""
    rank = len(own.extents)
    forms = {(*(1 for _ in range(rank - 1)), 1 << 11), (1 << 11, *(1 for _ in range(rank - 1))), (1 << 11,) * rank}
    found = []
    for form in forms:
        left, sizes = 1 << 12, []
        for extent, most in zip(reversed(own.extents), reversed(form[:rank]), strict=True):
            sizes.insert(0, max(1, min(extent, most, left)))
            left //= sizes[0]
        found.append(sizes)
    columns = np.array(found, np.int64).reshape(len(found), rank).T
    own_cycles = _cost(target, own, codelet)(columns if rank else ())
    return float(np.min(own_cycles.tile_cycles(target.num_workers) / columns.prod(axis=0)))


def _multiple(target: Target, own: Elements, d: int, grain: int) -> int:
    """What a tile's elements along a dimension come in multiples of: vectors for all workers, along the last."""
    if grain > 1 or d < len(own.extents) - 1:
        return grain
    vector = max(1, 8 // max(dtype.itemsize for dtype in (*(operand.dtype for operand in own.operands), *own.results)))
    many = target.num_workers * vector
    return many if own.extents[d] >= 4 * many else 1


def _sizes(target: Target, own: Elements, d: int, grain: int) -> list[int]:
    """The blocks of tiles along a dimension that are worth trying: any number of them, and those of operands."""
    operands = (operand for operand in own.operands if operand.home and d in operand.dimensions)
    homes = {operand.home[operand.dimensions.index(d)] for operand in operands if operand.home}
    sizes = block_sizes(own.extents[d], _multiple(target, own, d, grain), target.num_tiles)
    return sorted({*sizes, *(size for size in homes if size % grain == 0 or size >= own.extents[d])}, reverse=True)


def _blocks(target: Target, own: Elements, rate: float, grains: tuple[int, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Bounds below the cycles that blocks of tiles take, the least ones, and these blocks."""
    extents = own.extents
    cut = sorted(sorted(range(len(extents)), key=lambda d: -extents[d])[:3])  # more are not cut over tiles
    choices = [np.array(_sizes(target, own, d, grains[d])) for d in cut]
    every = np.array(extents, np.int64)[:, None] * np.ones(math.prod(map(len, choices)), np.int64)
    if cut:
        every[cut] = [grid.reshape(-1) for grid in np.meshgrid(*choices, indexing="ij")]
    parts = -(-np.array(extents, np.int64)[:, None] // every)
    num_bytes = np.zeros(every.shape[1])
    for operand in own.operands:
        received = parts[list(own.missing(operand))].prod(axis=0) > 1
        if operand.home is not None:
            blocks = every[list(operand.dimensions)]
            received |= not operand.home or (blocks != np.array(operand.home)[:, None]).any(axis=0)
        sent = math.prod(operand.home) if operand.home else 0
        elements = np.maximum(every[list(operand.dimensions)].prod(axis=0), sent)
        num_bytes += received * elements * operand.dtype.itemsize
    bounds = num_bytes / target.exchange_bytes_per_cycle + rate * every.prod(axis=0)
    bounds += target.launch_cycles + np.where(num_bytes > 0, least_to_move(target), 0)
    bounds[parts.prod(axis=0) > target.num_tiles] = np.inf
    order = np.argsort(bounds, kind="stable")
    order = order[np.isfinite(bounds[order])]
    sizes = np.log2(every[-1][order]).astype(int) // 2 if extents else 0 * order
    chosen = np.concatenate([order[sizes == size][:_CANDIDATES] for size in np.unique(sizes)])
    return bounds[chosen], every[:, chosen]


def _grains(own: Elements, grain: int) -> tuple[int, ...]:
    """The block of a vertex of about so many elements: a stretch of them, the last dimension first."""
    sizes: list[int] = []
    for extent in reversed(own.extents):
        sizes.insert(0, min(extent, max(1, grain)))
        grain //= sizes[0]
    return tuple(sizes)


def _shares(blocks: np.ndarray, num_workers: int) -> Iterator[np.ndarray]:
    """Blocks of vertices for the workers of a tile: lines along the last or the longest other dimension, or shares."""
    last, size = len(blocks) - 1, blocks.prod(axis=0)
    longest = blocks[:-1].argmax(axis=0)
    at = np.arange(len(blocks))[:, None]
    for own in (at == last, at == longest):
        parts = -(-num_workers // (size // np.where(own, blocks, 1).prod(axis=0)))
        yield np.where(own, -(-blocks // parts), 1)
    for own in (at == longest, at == last):
        yield np.where(own, -(-blocks // num_workers), blocks)


def _ways(target: Target, blocks: np.ndarray, fixed: tuple[int, ...] | None) -> Iterator[Vertices]:
    """How blocks are cut into vertices: with codelets of which numbers, into what grains, and which blocks."""
    every = np.ones(blocks.shape[1], bool)
    if fixed is not None:
        yield of_grain(blocks, fixed, target.num_workers)
    elif len(blocks) < 2:
        yield 0, blocks, every
        yield 1, -(-blocks // target.num_workers), every
    else:
        earlier: list[np.ndarray] = []
        for grains in _shares(blocks, target.num_workers):
            known = [(grains == other).all(axis=0) for other in earlier]
            yield 1, grains, ~functools.reduce(np.logical_or, known, ~every)
            earlier.append(grains)


def _offers(target: Target, own: Elements, codelets: Pair, grain: int | None) -> Offers:
    fixed = None if grain is None else _grains(own, grain)
    of_worker = _rate(target, own, codelets.worker) / target.num_workers  # all of them do as much at once
    rate = 0.9 * min(_rate(target, own, codelets.shared), of_worker)
    bounds, blocks = _blocks(target, own, rate, fixed or tuple(1 for _ in own.extents))
    dimensions, vertices = list(zip(own.names, own.extents, strict=True)), _ways(target, blocks, fixed)
    ways, which, place = ways_of(dimensions, blocks, vertices, target.num_tiles)
    step = _price(target, own, codelets, ways, which)
    return Offers(ways, [step], bounds[place], [told(codelet) for codelet in codelets], which)


@functools.lru_cache(maxsize=1024)
@kept_on_disk
def plan_elements(
    target: Target,
    own: Elements,
    codelets: Pair,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
) -> Plan:
    """How an elementwise operation is spread over the tiles of a machine: the same plan for the same sizes.

    Args:
        target: the machine.
        own: the operation.
        codelets: what it is made of.
        grain: about how many elements a vertex has; None for the planner to choose.
        memory_fraction: of a tile's memory, what the operation may take.
    """
    return best_of(str(own), target, _offers(target, own, codelets, grain), memory_fraction)
