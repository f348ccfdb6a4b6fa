"""Sizes: whether a plan fits, before anything is made for it.

Planning the machine takes a few numbers for each element and each vertex, and a graph of a line may have a million
millions of both. So the memory needed is counted first, and compared with the memory there is.
"""

from __future__ import annotations

from collections.abc import Collection

from codelet.errors import OutOfTileMemoryError
from codelet.views.sources import Variable
from lowering.host_memory import bytes_text, check_host_memory
from lowering.plan.plan import Plan

ELEMENT_BYTES = 6
"""What planning takes of this computer's memory for each element of a variable: its tile by two placements that are
compared, and by one that is made, where neighbours lie apart. A step of GPT-2 takes 3 in all on four chips, of 1,540
million elements and 29 million vertices."""

VERTEX_BYTES = 40
"""The same for each vertex: the tiles that it may go to, and what speaks for them."""


def check_host_size(plan: Plan) -> None:
    """See that a plan can be planned on the machine in this computer's memory.

    Raises:
        SizeError: it cannot.
    """
    elements = sum(variable.size for variable in plan.variables)
    vertices = sum(family.num_vertices for family in plan.families)
    num_bytes = ELEMENT_BYTES * elements + VERTEX_BYTES * vertices
    check_host_memory(num_bytes, f"the plan of {elements:,} elements and {vertices:,} vertices on tiles")


def check_machine_size(plan: Plan, keep: Collection[Variable] | None = None) -> None:
    """See that the variables of a plan that are there at once fit the tiles' memories together, whatever their tiles.

    Args:
        plan: the plan.
        keep: the variables that are always there; default: `plan.lasting`.

    Raises:
        OutOfTileMemoryError: they do not: naming the largest.
    """
    target = plan.graph.target
    there = target.num_tiles * target.bytes_per_tile
    always, ended = plan.lasting if keep is None else keep, plan.ended
    kept = dict.fromkeys(variable for variable in always if variable not in ended)
    # Of what is not always there one variable at least is there at once.
    others = {variable for step in plan.steps for variable in (*step.reads, *step.writes)} - kept.keys()
    size = lambda variable: variable.size * variable.dtype.itemsize  # noqa: E731
    at_once = [*kept, *sorted(others, key=size)[-1:]]
    total = sum(map(size, at_once))
    if total <= there:
        return
    largest = sorted(at_once, key=size, reverse=True)[:5]
    raise OutOfTileMemoryError(
        f"the variables that are there at once take {bytes_text(total)}, more than all tiles together have",
        given="\n".join(f"{size(variable):,} bytes: {variable!r}" for variable in largest),
        expected=f"at most {there:,} bytes on {target}",
        fix="fewer or smaller variables, or a machine of more tiles: cl.IPU(num_tiles=...)",
    )
