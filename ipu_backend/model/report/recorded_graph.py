"""What a record has of the graph: its variables, codelets, and vertices by compute set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.errors import written
from codelet.graphs.edge_counts import count_edges
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


def vertices_table(profile: Profile, placement: Placement, turns: dict[str, int], layer_of: LayerOf) -> Columns:
    """A row for each compute set and codelet: its vertices, edges, cycles on one worker, and tiles."""
    rows: list[dict[str, Any]] = []
    for family, tiles in placement.vertex_tiles.items():
        name, cycles = family.compute_set.name, family_cycles(family, profile.target)
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
            }
        )
    types: dict[str, type] = dict.fromkeys(("compute_set", "codelet", "layer", "phase", "line"), str)
    types |= dict.fromkeys(("vertices", "workers", "edges", "turns", "cycles", "tiles"), int)
    return columns_of(rows, types | {"tiles_are_given": bool})
