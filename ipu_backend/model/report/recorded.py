"""The record of a profile: all tables filled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.draw.groups import layers_by_name
from codelet.errors import CodeletError, written
from codelet.tracing.defined_at import defined_at
from ipu_backend.model.report.record import Columns, Record
from ipu_backend.model.report.recorded_graph import placements_table, variables_table, vertices_table
from ipu_backend.model.report.recorded_memory import (
    live_bytes,
    lives_table,
    occupants_table,
    residents_table,
    tiles_table,
)
from ipu_backend.model.report.recorded_steps import (
    LayerOf,
    moments_table,
    moved_tables,
    step_tiles_table,
    steps_table,
)

if TYPE_CHECKING:
    from ipu_backend.model.profile import Profile


class ReportError(CodeletError, ValueError):
    """A report of a profile without a plan, or with an invalid title."""


def record_of(profile: Profile, title: str = "", layer_of: LayerOf | None = None) -> Record:
    """The tables of a profile.

    Args:
        profile: made by `Engine.profile`, so that it has a plan.
        title: the name of the program.
        layer_of: a function from the name of a compute set or variable to its layer, "" for none. Default: the scopes
            of its name.

    Raises:
        ReportError: a profile without a plan on the machine.
    """
    machine = profile.machine
    if machine is None:
        raise ReportError(
            "a report is made of a profile that knows no plan",
            given=repr(profile),
            expected="what Engine.profile gives",
            fix="cl.Engine(graph).profile().write_report('report.html')",
        )
    placement, memory, liveness = machine.placement, machine.memory, machine.liveness
    compute_sets = [family.compute_set.name for family in placement.vertex_tiles]
    layer_of = layer_of or layers_by_name(compute_sets)
    steps = steps_table(profile, liveness, layer_of)
    step_tiles = step_tiles_table(profile, liveness)
    traffic, moves = moved_tables(liveness)
    turns: dict[str, int] = {}
    for name, own, kind in zip(steps["name"].tolist(), steps["turns"].tolist(), steps["kind"].tolist(), strict=True):
        if kind == "compute":
            turns[name] = turns.get(name, 0) + own
    moments = moments_table(liveness)
    tables: dict[str, Columns] = {
        "steps": steps,
        "moments": {**moments, "live_bytes": live_bytes(memory)},
        "tiles": tiles_table(profile, memory, step_tiles, steps["turns"]),
        "step_tiles": step_tiles,
        "traffic": traffic,
        "moves": moves,
        "occupants": occupants_table(memory),
        "residents": residents_table(memory),
        "lives": lives_table(memory),
        "variables": variables_table(placement, memory, layer_of),
        "codelets": _codelets(profile),
        "vertices": vertices_table(profile, placement, turns, layer_of),
        "placements": placements_table(placement),
    }
    return Record(_about(profile, title), tables)


def _codelets(profile: Profile) -> Columns:
    """A row for each codelet, those that take the most cycles first."""
    machine = profile.machine
    assert machine is not None
    found = profile.codelet_frame
    lines: dict[str, str] = {}
    vertices: dict[str, int] = {}
    for family in machine.placement.vertex_tiles:
        name, own = family.codelet.name, family.codelet.codelet
        lines.setdefault(name, written(defined_at(own)))
        vertices[name] = vertices.get(name, 0) + family.num_vertices
    names = found["name"].tolist()
    return {
        "name": np.array(names, np.str_),
        "line": np.array([lines.get(name, "") for name in names], np.str_),
        "vertices": np.array([vertices.get(name, 0) for name in names], np.int64),
        "cycles": found["cycles"],
        "if_assembly_cycles": found["if_assembly_cycles"],
        "is_supposed": np.array([name in profile.cycles_if_assembly for name in names], np.bool_),
    }


def _about(profile: Profile, title: str) -> dict[str, Any]:
    target = profile.target
    kinds = ("compute", "exchange", "sync", "external exchange", "external sync", "host")
    return {
        "title": title or "program",
        "target": repr(target),
        "num_tiles": target.num_tiles,
        "num_chips": target.num_chips,
        "num_workers": target.num_workers,
        "bytes_per_tile": target.bytes_per_tile,
        "clock_hertz": target.clock_hertz,
        "num_vertices": profile.num_vertices,
        "num_edges": profile.num_edges,
        "num_variables": profile.num_variables,
        "num_compute_sets": profile.num_compute_sets,
        "total_cycles": profile.total_cycles,
        "seconds": profile.seconds,
        "cycles": {kind: profile.cycles_of(kind) for kind in kinds},
        "sourced_cycles": profile.sourced_cycles,
        "fitted_cycles": profile.fitted_cycles,
        "guessed_cycles": profile.guessed_cycles,
        "tile_balance": profile.tile_balance,
        "total_bytes": int(profile.memory_by_tile.sum()),
        "kept": profile.kept_text,
        "memory_kinds": list(profile.memory),
        "notes": list(profile.notes),
    }
