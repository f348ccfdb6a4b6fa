"""Candidates: each way to place what a graph leaves open, alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

import numpy as np

from codelet.graphs.family import Family
from codelet.graphs.linear import linear_tiles
from codelet.target import Target
from lowering.check.sizes import check_host_size
from lowering.machine.blocks import block_tiles, chosen_parts, has_blocks, row_tiles
from lowering.machine.constrained import constrained
from lowering.machine.irregular import Partitioner, place_by_partition
from lowering.machine.placement import Placement
from lowering.machine.placer import GivenTiles, Placer, tiles_in_order
from lowering.machine.step_cycles import least_cycles
from lowering.machine.votes import sharing
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.timeline import timeline

Obvious = Literal["spread", "rounds", "dealt", "columns", "before"]
"""Ways that anyone would try by hand."""

Way = Literal[
    "linear", "bytes", "rows", "blocks", "spread", "rounds", "dealt", "columns", "before", "partition", "hypergraph",
    "breadth_first",
]  # fmt: skip
"""How to place what the graph leaves open; see `place.py`."""

OBVIOUS: tuple[Obvious, ...] = get_args(Obvious)
"""All of them, in the order in which they are tried."""

PARTITIONS: tuple[Partitioner, ...] = get_args(Partitioner)
"""The ways by partition."""

WAYS: tuple[Way, ...] = ("bytes", "blocks", "rows", "linear", *OBVIOUS, *PARTITIONS)
"""Of equals the first is taken."""

MOST_OBVIOUS = 1 << 16
"""Plans with more vertices are not placed by the obvious ways, which are like the others with many on each tile."""

SLACK = 0.25
"""By how much of what the fullest tile must compute one may compute more, before vertices leave their neighbours."""


def _follow_all(placer: Placer) -> None:
    """Go through the program and place what each step needs, by what is known then."""
    for moment in timeline(placer.plan).moments:
        placer.map_linearly(moment.reads)
        if isinstance(moment.step, ExecuteStep):
            placer.follow_bytes(moment.step, moment.step.families)
        elif isinstance(moment.step, CopyStep):
            placer.follow_copy(moment.step)


def _lay_out(placer: Placer, lay: Callable[[Family, Target], np.ndarray]) -> None:
    """Place families of several axes: laid out, but for those that read elements that are placed.

    What they write goes with them, and then what they alone read.
    """
    moments = timeline(placer.plan).moments
    for moment in moments:
        if isinstance(moment.step, CopyStep) and placer.knows(moment.step.source):
            placer.follow_copy(moment.step)
        elif isinstance(moment.step, ExecuteStep):
            for family in moment.step.families:
                if family in placer.vertices or not has_blocks(family) or not family.num_vertices:
                    continue
                known = [f for f in family.fields if f.tensor is not None and placer.knows(f.tensor)]
                if any(sharing(family, field) == 1 for field in known):
                    placer.follow_bytes(moment.step, (family,), SLACK)
                else:
                    placer.put(family, lay(family, placer.plan.graph.target))
    for moment in moments:
        if isinstance(moment.step, ExecuteStep):
            for family in moment.step.families:
                if family in placer.vertices and family.num_vertices:
                    placer.follow_reader(family)


def _lay_as(placer: Placer, lay: Callable[[Family, np.ndarray | None], np.ndarray]) -> None:
    """Place every family by a way, what it writes with it, and what it reads with the first that reads it.

    Args:
        placer: the tiles known so far.
        lay: the tiles of a family, of which it is given those of the family before it with as many vertices.
    """
    steps = [moment.step for moment in timeline(placer.plan).moments if isinstance(moment.step, ExecuteStep)]
    before: dict[int, np.ndarray] = {}
    for step in steps:
        for family in step.families:
            if family.num_vertices and family not in placer.vertices:
                placer.put(family, lay(family, before.get(family.num_vertices)))
            if family.num_vertices:
                before.setdefault(family.num_vertices, placer.vertices[family])
    placer.follow_copies()
    for follow in (placer.follow_reader, placer.follow_first_reader):
        for step in steps:
            for family in step.families:
                if family.num_vertices:
                    follow(family)
    placer.map_linearly(placer.plan.variables, spread=True)


def _lay_obviously(placer: Placer, way: Obvious) -> None:
    target = placer.plan.graph.target

    def lay(family: Family, before: np.ndarray | None) -> np.ndarray:
        count = family.num_vertices
        if way == "before" and before is not None:
            return before
        if way == "dealt":
            return (np.arange(count) % target.num_tiles).astype(np.int32)
        in_order = linear_tiles(count, target.num_tiles, grain=target.num_workers if way == "rounds" else 1, least=1)
        if way == "columns" and len(family.extents) > 1:
            turned = in_order.reshape(family.extents[::-1]).transpose(range(len(family.extents))[::-1])
            return np.ascontiguousarray(turned).reshape(-1)
        return tiles_in_order(family, target) if way == "before" else in_order

    _lay_as(placer, lay)


def lay_in_blocks(family: Family, target: Target) -> np.ndarray:
    """The tiles of a family's vertices cut into blocks: int32 of shape (vertices,)."""
    return block_tiles(family.extents, chosen_parts(family, target))


def ways_of(plan: Plan) -> list[Way]:
    """The ways that may differ for a plan, in the order in which they are tried.

    Where all vertices have tiles, rows are no other than blocks, and what is laid out in order is mostly where it is by
    bytes: tried after that, little has to be planned anew.
    """
    free = [family for family in plan.families if family.tile is None]
    several, given = any(map(has_blocks, free)), len(free) < len(plan.families)
    left_out: set[str] = {*PARTITIONS, *(() if several else ("rows",) if given else ("rows", "blocks"))}
    order = WAYS if free else ("bytes", "linear", "blocks", "rows")
    few = 0 < sum(family.num_vertices for family in free) <= MOST_OBVIOUS
    return [way for way in order if way not in left_out and (few or way not in OBVIOUS)]


def least_of_rows(plan: Plan) -> int:
    """What a plan takes at least with families in rows, and the others as evenly as laid out in order."""
    target = plan.graph.target
    laid = {
        family: row_tiles(family, target)
        if family.tile is None and has_blocks(family)
        else tiles_in_order(family, target)
        for family in plan.families
    }
    return least_cycles(plan, laid)


def least_in_order(plan: Plan) -> int:
    """What a plan takes at least with all vertices without a tile laid out in order, by rounds or one on each tile."""
    target = plan.graph.target
    in_rounds = {family: tiles_in_order(family, target) for family in plan.families}
    alone = {
        family: tiles if family.tile is not None else linear_tiles(len(tiles), target.num_tiles, grain=1, least=1)
        for family, tiles in in_rounds.items()
    }
    least = least_cycles(plan, in_rounds)
    differs = any(not np.array_equal(in_rounds[family], alone[family]) for family in plan.families)
    return min(least, least_cycles(plan, alone)) if differs else least


def place_by(plan: Plan, way: Way, given: GivenTiles | None = None) -> Placement:
    """Where everything lives by one way alone.

    Args:
        plan: without calls.
        way: which.
        given: the tiles that its graph gives elements, if they are known already.

    Raises:
        SizeError: it would take more memory than this computer has.
        CyclesError: a codelet's own `cycles=` fails.
        PlacementError: constraints that cannot be met.
    """
    check_host_size(plan)
    if way in PARTITIONS and (found := place_by_partition(plan, way)) is not None:
        return constrained(found)
    placer = Placer(plan, given)
    if way in OBVIOUS:
        _lay_obviously(placer, way)
    if way in ("rows", "blocks"):
        _lay_out(placer, row_tiles if way == "rows" else lay_in_blocks)
    if way not in ("linear", *OBVIOUS):
        _follow_all(placer)
    return constrained(placer.placement())
