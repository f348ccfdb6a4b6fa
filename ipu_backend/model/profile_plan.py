"""Profiling: what a placed plan costs, counted.

In come a plan, the tile of every vertex, the bytes that every step exchanges, and the memory of every tile. Out
comes its `Profile`: nothing needs to run for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codelet.graphs.edge_counts import count_edges
from codelet.graphs.family import Family, counted
from codelet.graphs.vertex_cycles import family_cycles
from codelet.target import VertexCycles
from codelet.views.sources import source_text
from ipu_backend.model.dtypes import guess_text
from ipu_backend.model.machine import Machine
from ipu_backend.model.profile import Profile
from ipu_backend.model.step_profile import StepProfile
from ipu_backend.model.vertex_tiles import VertexTiles
from lowering.machine.step_cycles import MovingStep, StepTimes, StepTraffic, moving_moments, run_of, step_traffic
from lowering.pipeline import MachinePlan
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep, StreamStep, SwitchStep, WhileStep
from lowering.plan.timeline import timeline


@dataclass(frozen=True, eq=False)
class MemoryUse:
    """What the tiles' memories hold.

    Attributes:
        by_kind: for each kind of occupant (variables, code, ...) its bytes on each tile, int64 of shape
            (num_tiles,): of addresses taken, so that the kinds add up to what is full.
        used_bytes: for each step, what the variables that it reads or writes take on all tiles together, int64.
        other_live_bytes: for each step, what else is live.
    """

    by_kind: Mapping[str, np.ndarray]
    used_bytes: np.ndarray
    other_live_bytes: np.ndarray


def _as_assembly(own: VertexCycles) -> int:
    return own.counted if own.if_assembly is None else own.if_assembly


def _copy_name(step: CopyStep | StreamStep) -> str:
    if isinstance(step, CopyStep):
        return f"copy {source_text(step.source.source)} -> {source_text(step.destination.source)}"
    own = source_text(step.tensor.source)
    return f"receive {step.stream.name} -> {own}" if step.stream.is_input else f"send {own} -> {step.stream.name}"


def _notes(plan: Plan) -> Iterator[str]:
    """What of the time of a program depends on values, and how it is counted."""
    steps = [moment.step for moment in timeline(plan).moments]
    if any(isinstance(step, SwitchStep) for step in steps):
        yield "of the branches of an If or Switch the one that takes longest counts; the others have 0 iterations"
    if any(isinstance(step, StreamStep) for step in steps):
        yield "streams count for the time of the host's link; what the host itself takes is left out"
    for step in dict.fromkeys(steps):
        if isinstance(step, WhileStep):
            turns, said, _ = step.counted_turns
            over = source_text(step.predicate.source)
            yield f"the RepeatWhile over {over} counts for {counted(turns, 'iteration', 'iterations')}, {said}"
    estimated = [family for family in plan.families if family.codelet.codelet.hints.cycles is None]
    dtypes = (field.type.dtype for family in estimated for field in family.fields)
    target = plan.graph.target
    has_float8 = isinstance(target, Machine) and target.tables.has_float8
    yield from filter(None, (guess_text(dtype, has_float8) for dtype in sorted(set(dtypes), key=str)))


def _supposed_notes(cycles: Mapping[str, int], if_assembly: Mapping[str, int]) -> Iterator[str]:
    """How much it matters that codelets of which nobody says how they are made are taken for compiled."""
    own, less = sum(cycles[codelet] for codelet in if_assembly), sum(if_assembly.values())
    if own != less:
        yield (
            f"codelets without issue= are taken for compiled: of the {sum(cycles.values()):,} cycles on one worker "
            f"{own:,} are theirs, which as assembly would be {less:,}"
        )


def profile_plan(
    plan: Plan,
    vertex_tiles: Mapping[Family, np.ndarray],
    traffic: Sequence[StepTraffic],
    memory: MemoryUse,
) -> Profile:
    """What a placed plan costs on the machine.

    Args:
        plan: without calls, before anything is fused.
        vertex_tiles: for each family of the plan the tile of each vertex, int32 of shape (num_vertices,).
        traffic: of each step, in the order of `moving_steps`.
        memory: of each tile, and of each step in the same order.

    Raises:
        CyclesError: a codelet's own `cycles=` fails.
    """
    target, moments = plan.graph.target, list(moving_moments(timeline(plan)))
    assert len(moments) == len(traffic) == len(memory.used_bytes) == len(memory.other_live_bytes)
    assert all(by_tile.shape == (target.num_tiles,) for by_tile in memory.by_kind.values())

    times = StepTimes(vertex_tiles, target)
    alone = [times.of(moment.step, moved) for moment, moved in zip(moments, traffic, strict=True)]  # type: ignore[arg-type]
    run = run_of(plan, alone)

    by_codelet: dict[str, int] = {}
    as_assembly: dict[str, int] = {}
    supposed: set[str] = set()
    steps = []
    for number, (moment, moved) in enumerate(zip(moments, traffic, strict=True)):
        step, repeats = moment.step, run.turns[number]
        families = step.families if isinstance(step, ExecuteStep) else ()
        for family in families:
            codelet, own = family.codelet.name, family_cycles(family, target)
            cycles = less = repeats * own.total(family.num_vertices)
            if any(each.if_assembly is not None for each in own.distinct):
                supposed.add(codelet)
                less = repeats * own.total(family.num_vertices, _as_assembly)
            by_codelet[codelet] = by_codelet.get(codelet, 0) + cycles
            as_assembly[codelet] = as_assembly.get(codelet, 0) + less
        steps.append(
            StepProfile(
                step.name if isinstance(step, ExecuteStep) else _copy_name(step),  # type: ignore[arg-type]
                repeats,
                sum(family.num_vertices for family in families),
                run.cycles[number],
                moved.received_bytes,
                int(memory.used_bytes[number]),
                int(memory.other_live_bytes[number]),
                run.hidden[number],
                any(loop.is_guess for loop in moment.loops),
            )
        )
    by_codelet = dict(sorted(by_codelet.items(), key=lambda item: -item[1]))
    if_assembly = {codelet: as_assembly[codelet] for codelet in by_codelet if codelet in supposed}
    return Profile(
        target,
        tuple(steps),
        by_codelet,
        dict(memory.by_kind),
        sum(family.num_vertices for family in plan.families),
        sum(count_edges(family) for family in plan.families),
        len(plan.variables),
        len({moment.step.name for moment in moments if isinstance(moment.step, ExecuteStep)}),
        VertexTiles(plan.graph, vertex_tiles),
        if_assembly,
        (*_notes(plan), *_supposed_notes(by_codelet, if_assembly)),
    )


def _memory_use(machine: MachinePlan) -> MemoryUse:
    """Bytes of addresses by kind, and bytes live at every step."""
    memory, liveness = machine.memory, machine.liveness
    by_kind: dict[str, np.ndarray] = {}
    for own in memory.occupants:
        if own.moments is None:
            by_kind[own.kind] = by_kind.get(own.kind, 0) + own.num_bytes
    shared = memory.bytes_by_tile - sum(by_kind.values(), np.zeros_like(memory.bytes_by_tile))
    by_kind["not always live"] = shared
    used, other = [], []
    everywhere = liveness.live_bytes().sum(axis=1)
    for moment in liveness.timeline.moments:
        if isinstance(moment.step, MovingStep):
            own = sum(v.size * v.dtype.itemsize for v in {*moment.reads, *moment.writes})
            used.append(own)
            other.append(max(0, int(everywhere[moment.number]) - own))
    return MemoryUse(by_kind, np.asarray(used, np.int64), np.asarray(other, np.int64))


def profile_machine(machine: MachinePlan) -> Profile:
    """What a plan on the machine costs.

    Args:
        machine: what `plan_machine` found.

    Raises:
        CyclesError: a codelet's own `cycles=` fails.
    """
    plan = machine.placement.plan
    steps = [moment.step for moment in moving_moments(timeline(plan))]
    traffic = {step: step_traffic(step, machine.exchange) for step in dict.fromkeys(steps)}  # type: ignore[arg-type]
    moved = [traffic[step] for step in steps]
    counted = profile_plan(plan, machine.placement.vertex_tiles, moved, _memory_use(machine))
    return replace(counted, machine=machine)
