"""Stretches: vertices that each make a stretch of elements, planned over the tiles.

In come a codelet that makes any number of elements, one kind for all workers of a tile together and one for a worker
alone, and what its fields are for so many; out come a `Plan` of one compute set, and its vertices.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

import codelet as cl
from codelet.ops.blocks import Block, Cut, add_blocks
from codelet.ops.followed import follow
from codelet.ops.planning import Option, Plan, StepCost, block_sizes, cheapest, step_cost, vertex_cycles
from codelet.target import Target, VertexCycles

_SLOPE = (2048, 4096)
"""Between these sizes it is looked at what an element takes."""


@dataclass(frozen=True)
class Input:
    """An input field of such a codelet.

    Attributes:
        name: of the field.
        shape: of the field without the dimension of elements, which comes first.
        dtype: of it.
        by_element: whether it has that dimension: elements of one tile alone, which live there. Others are received.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    by_element: bool = True

    def type_of(self, size: int) -> tuple[tuple[int, ...], np.dtype]:
        """Its type for a stretch of so many elements."""
        return ((size,) if self.by_element else ()) + self.shape, self.dtype

    def bytes_of(self, size: int) -> int:
        """Its bytes for a stretch of so many elements."""
        return math.prod(self.type_of(size)[0]) * self.dtype.itemsize


@dataclass(frozen=True)
class StretchCodelets:
    """What makes a stretch of elements, whatever its length.

    Attributes:
        shared: by all workers of a tile together.
        worker: by one.
    """

    shared: cl.Codelet
    worker: cl.Codelet

    def of(self, target: Target, cut: Cut) -> cl.Codelet:
        """Which of them runs the vertices of a cut: that of one worker where a tile has some for each."""
        return self.shared if cut.vertices_of_tile < target.num_workers else self.worker


def codelets_of(function: Callable[..., Any]) -> StretchCodelets:
    """Codelets of a function."""
    return StretchCodelets(cl.codelet(function, workers=6, issue="assembly"), cl.codelet(function, issue="assembly"))


@dataclass(frozen=True)
class Stretch:
    """What makes stretches of elements.

    Attributes:
        codelets: what makes one.
        inputs: their fields.
        out_bytes: of an element of all results.
        static: their static values, by name.
    """

    codelets: StretchCodelets
    inputs: tuple[Input, ...]
    out_bytes: int
    static: tuple[tuple[str, Any], ...] = ()

    def cycles(self, target: Target, codelet: cl.Codelet, size: int) -> VertexCycles:
        """What a vertex of so many elements takes."""
        types = {own.name: own.type_of(size) for own in self.inputs}
        return vertex_cycles(target, codelet, types, **dict(self.static))


@functools.lru_cache(maxsize=256)
def _element_cycles(target: Target, stretch: Stretch) -> float:
    """About what an element takes of a tile, in a stretch so long that nothing else counts."""
    few, many = (
        stretch.cycles(target, stretch.codelets.shared, size).tile_cycles(target.num_workers) for size in _SLOPE
    )
    return (many - few) / (_SLOPE[1] - _SLOPE[0])


def _price(target: Target, stretch: Stretch, cut: Cut) -> list[StepCost]:
    received = sum(own.bytes_of(0) for own in stretch.inputs if not own.by_element) if cut.parts > 1 else 0
    held = sum(own.bytes_of(cut.block) for own in stretch.inputs) + cut.block * stretch.out_bytes
    vertex = stretch.cycles(target, stretch.codelets.of(target, cut), cut.grain)
    return [step_cost(target, stretch.codelets.shared.name, [cut], vertex, received_bytes=received, tile_bytes=held)]


def _options(target: Target, stretch: Stretch, count: int, grain: int | None) -> Iterator[Option]:
    each = 0.9 * _element_cycles(target, stretch)
    for size in block_sizes(count, min(grain or 1, count), target.num_tiles):
        block = min(size, count)
        cut = Cut("elements", count, block, min(grain or block, block))
        price = functools.partial(_price, target, stretch, cut)
        yield Option((cut,), each * block, price)


@functools.lru_cache(maxsize=1024)
def plan_stretches(target: Target, stretch: Stretch, count: int, grain: int | None = None) -> Plan:
    """How elements are spread over the tiles in stretches: the same plan for the same number.

    Args:
        target: the machine.
        stretch: what makes them.
        count: how many there are, one at least.
        grain: about how many a vertex makes; None for the planner to choose.
    """
    return cheapest(f"{stretch.codelets.shared.name} of {count:,}", target, _options(target, stretch, count, grain))


def add_stretches(
    graph: cl.Graph,
    compute_set: str,
    stretch: Stretch,
    count: int,
    fields: Callable[[slice], Mapping[str, Any]],
    grain: int | None = None,
) -> None:
    """Add the vertices of planned stretches.

    Args:
        graph: where.
        compute_set: the name of one.
        stretch: what makes them.
        count: of elements.
        fields: from the elements of a vertex to its fields.
        grain: about how many elements a vertex makes; None for the planner to choose.
    """
    if not count:
        return
    plan = follow(plan_stretches(graph.target, stretch, count, grain))
    codelet = stretch.codelets.of(graph.target, plan.cuts[0])
    static = dict(stretch.static)

    def own(block: Block) -> dict[str, Any]:
        return {**fields(block.elements), **static}

    add_blocks(graph, compute_set, codelet, plan.cuts, own)
