"""Candidates: each way to place what a graph leaves open, alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from codelet.graphs.family import Family
from codelet.target import Target
from lowering.check.sizes import check_host_size
from lowering.machine.blocks import block_tiles, chosen_parts, has_blocks, row_tiles
from lowering.machine.placement import Placement
from lowering.machine.placer import Placer, tiles_in_order
from lowering.machine.step_cycles import least_cycles
from lowering.machine.votes import sharing
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.timeline import timeline

Way = Literal["linear", "bytes", "rows", "blocks"]
"""How to place what the graph leaves open; see `place.py`."""

WAYS: tuple[Way, ...] = ("bytes", "blocks", "rows", "linear")
"""Of equals the first is taken."""

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
    """Place families of several axes: laid out, but for those that read elements of their own that are placed.

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
    left_out = set() if several else {"rows"} if given else {"rows", "blocks"}
    order = WAYS if free else ("bytes", "linear", "blocks", "rows")
    return [way for way in order if way not in left_out]


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
    """What a plan takes at least with all vertices that have no tile laid out in order."""
    return least_cycles(plan, {family: tiles_in_order(family, plan.graph.target) for family in plan.families})


def place_by(plan: Plan, way: Way) -> Placement:
    """Where everything lives by one way alone.

    Args:
        plan: without calls.
        way: which.

    Raises:
        SizeError: it would take more memory than this computer has.
        CyclesError: a codelet's own `cycles=` fails.
    """
    check_host_size(plan)
    placer = Placer(plan)
    if way in ("rows", "blocks"):
        _lay_out(placer, row_tiles if way == "rows" else lay_in_blocks)
    if way != "linear":
        _follow_all(placer)
    return placer.placement()
