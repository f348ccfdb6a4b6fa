"""What a record has of the graph: its variables, codelets, and vertices by compute set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.errors import written
from codelet.graphs.edge_counts import count_edges
from codelet.graphs.family import Family
from codelet.graphs.phases import PHASES, phase_of
from codelet.graphs.vertex_cycles import family_cycles
from codelet.views.sources import type_text
from ipu_backend.model.report.record import Columns, columns_of
from ipu_backend.model.report.recorded_steps import LayerOf
from lowering.machine.memory import Memory
from lowering.machine.placement import Placement

if TYPE_CHECKING:
    from ipu_backend.model.profile import Profile


def variables_table(placement: Placement, memory: Memory, layer_of: LayerOf) -> Columns:
    """A row for each variable of the program, by its number in the graph."""
    graph = placement.plan.graph
    places = {variable: number for number, own in enumerate(memory.occupants) for variable in own.variables}
    rows: list[dict[str, Any]] = []
    for variable in placement.plan.variables:
        counts = placement.counts_of(variable)
        rows.append(
            {
                "variable": variable.number,
                "name": variable.name,
                "type": type_text(variable.dtype, variable.shape),
                "is_constant": variable.value is not None,
                "layer": layer_of(variable.name),
                "phase": PHASES[phase_of(variable.name)],
                "line": written(graph.lines.get(variable.name)),
                "bytes": variable.size * variable.dtype.itemsize,
                "tiles": int(np.count_nonzero(counts)),
                "most_bytes": int(counts.max(initial=0)) * variable.dtype.itemsize,
                "occupant": places.get(variable, -1),
            }
        )
    types: dict[str, type] = {"variable": int, "name": str, "type": str, "is_constant": bool, "layer": str}
    return columns_of(
        rows, types | {"phase": str, "line": str, "bytes": int, "tiles": int, "most_bytes": int, "occupant": int}
    )


_REDUCTIONS = {
    "reduce_sum": "sum",
    "reduce_prod": "prod",
    "reduce_max": "max",
    "reduce_min": "min",
    "reduce_and": "all",
    "reduce_or": "any",
}
"""The functions of cl.ops that reduce as a primitive does."""


def _reduction(family: Family) -> tuple[int, str]:
    """How many elements of a field a vertex reduces to fewer, the most, and what of cl.ops does that."""
    longest, rows = [0, ""], max((int(own.lengths.max(initial=0)) for own in family.rows.values()), default=0)
    jaxpr = family.codelet.jaxpr.jaxpr
    for eqn in jaxpr.eqns:
        operand = eqn.invars[0] if eqn.invars else None
        if eqn.primitive.name in _REDUCTIONS and operand in jaxpr.invars:
            shapes = (own.aval.shape for own in (operand, eqn.outvars[0]))  # type: ignore[union-attr]
            before, after = (math.prod(n if isinstance(n, int) else rows for n in shape) for shape in shapes)
            if before > max(longest[0], after):
                longest = [before, _REDUCTIONS[eqn.primitive.name]]
    return longest[0], longest[1]


def vertices_table(profile: Profile, placement: Placement, turns: dict[str, int], layer_of: LayerOf) -> Columns:
    """A row for each compute set and codelet: its vertices, edges, cycles on one worker, and tiles."""
    rows: list[dict[str, Any]] = []
    for family, tiles in placement.vertex_tiles.items():
        name, cycles = family.compute_set.name, family_cycles(family, profile.target)
        reduced, reduction = _reduction(family)
        rows.append(
            {
                "compute_set": name,
                "codelet": family.codelet.name,
                "layer": layer_of(name),
                "phase": PHASES[phase_of(name)],
                "line": family.line(0).written if family.num_vertices else "",
                "vertices": family.num_vertices,
                "workers": profile.target.num_workers if any(own.shared for own in cycles.distinct) else 1,
                "edges": count_edges(family),
                "turns": turns.get(name, 0),
                "cycles": cycles.total(family.num_vertices) * turns.get(name, 0),
                "tiles": len(np.unique(tiles)),
                "tiles_are_given": family.tile is not None,
                "reduced": reduced,
                "reduction": reduction,
            }
        )
    types: dict[str, type] = dict.fromkeys(("compute_set", "codelet", "layer", "phase", "line"), str)
    types |= dict.fromkeys(("vertices", "workers", "edges", "turns", "cycles", "tiles"), int)
    return columns_of(rows, types | {"tiles_are_given": bool, "reduced": int, "reduction": str})


def placements_table(placement: Placement) -> Columns:
    """A row for each placement that was compared, the chosen one first."""
    rows = [
        {
            "way": own.way,
            "is_chosen": k == 0,
            "cycles": own.cycles,
            "is_bound": own.num_bytes is None,
            "bytes": -1 if own.num_bytes is None else own.num_bytes,
            "fits": own.fits,
        }
        for k, own in enumerate(placement.tried)
    ]
    types: dict[str, type] = {"way": str, "is_chosen": bool, "cycles": int, "is_bound": bool, "bytes": int}
    return columns_of(rows, types | {"fits": bool})
