"""Profiling: what a placed plan costs, counted.

In come a plan, the tile of every vertex, the bytes that every step exchanges, and the memory of every tile. Out
comes its `Profile`: nothing needs to run for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codelet.family import Family
from codelet.target import Target
from codelet.tensor import Tensor, source_text
from codelet.vertices import count_edges
from ipu_backend.cost import FamilyCycles, family_cycles
from ipu_backend.profile import Profile, StepProfile
from ipu_backend.superstep import PlacedVertices, copy_cycles, exchange_cycles, tile_cycles
from lowering.pipeline import MachinePlan
from lowering.place import Placement
from lowering.plan import CopyStep, ExecuteStep, Plan, StreamStep
from lowering.timeline import timeline


@dataclass(frozen=True, eq=False)
class StepTraffic:
    """What one turn of a step moves. All are bytes for each tile, int64 of shape (num_tiles,).

    Attributes:
        received_bytes: from other tiles.
        sent_bytes: to other tiles, a message to many tiles counted once.
        shared_bytes: of those received, what the other tile of the pair receives too; None for none.
        copied_bytes: from one place of the tile's own memory to another; None for none.
    """

    received_bytes: np.ndarray
    sent_bytes: np.ndarray
    shared_bytes: np.ndarray | None = None
    copied_bytes: np.ndarray | None = None


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


def repeated_steps(plan: Plan) -> Iterator[tuple[ExecuteStep | CopyStep | StreamStep, int]]:
    """The steps that exchange or compute, in order, each with the number of turns that loops around it make.

    Traffic and live bytes are given in this order. A loop on a condition counts one turn, since how many it makes
    is not known, and of a choice every branch counts.
    """
    for moment in timeline(plan).moments:
        if isinstance(moment.step, (ExecuteStep, CopyStep, StreamStep)):
            yield moment.step, moment.turns


def _copy_name(step: CopyStep | StreamStep) -> str:
    if isinstance(step, CopyStep):
        return f"copy {source_text(step.source.source)} -> {source_text(step.destination.source)}"
    own = source_text(step.tensor.source)
    return f"receive {step.stream.name} -> {own}" if step.stream.is_input else f"send {own} -> {step.stream.name}"


def _check_by_tile(array: np.ndarray, num_tiles: int) -> None:
    assert array.shape == (num_tiles,)
    assert np.issubdtype(array.dtype, np.integer)


def profile_plan(
    plan: Plan,
    vertex_tiles: Mapping[Family, np.ndarray],
    traffic: Sequence[StepTraffic],
    memory: MemoryUse,
    target: Target | None = None,
) -> Profile:
    """What a placed plan costs on the machine.

    Args:
        plan: without calls, before anything is fused.
        vertex_tiles: for each family of the plan the tile of each vertex, int32 of shape (num_vertices,).
        traffic: of each step, in the order of `repeated_steps`.
        memory: of each tile, and of each step in the same order.
        target: the machine; that of the graph when left off.

    Raises:
        CyclesError: a codelet's own `cycles=` fails.
    """
    target = plan.graph.target if target is None else target
    flat = list(repeated_steps(plan))
    assert len(flat) == len(traffic) == len(memory.used_bytes) == len(memory.other_live_bytes)
    for by_tile in memory.by_kind.values():
        _check_by_tile(by_tile, target.num_tiles)

    cycles: dict[Family, FamilyCycles] = {family: family_cycles(family, target) for family in plan.families}
    in_all = {
        family: int(found.distinct[0]) * family.num_vertices
        if found.of_vertex is None
        else int(np.bincount(found.of_vertex, minlength=len(found.distinct)) @ found.distinct)
        for family, found in cycles.items()
    }
    computed: dict[ExecuteStep, np.ndarray] = {}
    by_codelet: dict[str, int] = {}
    steps = []
    for number, ((step, repeats), moved) in enumerate(zip(flat, traffic, strict=True)):
        _check_by_tile(moved.received_bytes, target.num_tiles)
        _check_by_tile(moved.sent_bytes, target.num_tiles)
        families = step.families if isinstance(step, ExecuteStep) else ()
        if isinstance(step, ExecuteStep):
            name = step.name
            if step not in computed:
                placed = [PlacedVertices(vertex_tiles[family], cycles[family]) for family in families]
                computed[step] = tile_cycles(placed, target.num_tiles, target.num_workers)
            compute = computed[step]
        else:
            name = _copy_name(step)
            compute = np.zeros(target.num_tiles, np.int64)
        if moved.copied_bytes is not None:
            compute = compute + copy_cycles(moved.copied_bytes, target.num_workers)
        for family in families:
            codelet = family.codelet.name
            by_codelet[codelet] = by_codelet.get(codelet, 0) + repeats * in_all[family]
        steps.append(
            StepProfile(
                name,
                repeats,
                sum(family.num_vertices for family in families),
                compute,
                exchange_cycles(moved.received_bytes, moved.sent_bytes, target, moved.shared_bytes),
                target.sync_cycles,
                int(moved.received_bytes.sum()),
                int(memory.used_bytes[number]),
                int(memory.other_live_bytes[number]),
            )
        )
    return Profile(
        target,
        tuple(steps),
        dict(sorted(by_codelet.items(), key=lambda item: -item[1])),
        dict(memory.by_kind),
        sum(family.num_vertices for family in plan.families),
        sum(count_edges(family) for family in plan.families),
        len(plan.variables),
        len({step.name for step, _ in flat if isinstance(step, ExecuteStep)}),
    )


def _bytes_by_tile(tensor: Tensor, placement: Placement) -> np.ndarray:
    """What the elements of a view take on the tiles where they live, int64 of shape (num_tiles,)."""
    elements = tensor.elements().reshape(-1)
    tiles = placement.element_tiles[elements[elements >= 0]]
    return np.bincount(tiles, minlength=placement.num_tiles) * tensor.dtype.itemsize


def _traffic(step: ExecuteStep | CopyStep | StreamStep, machine: MachinePlan) -> StepTraffic:
    placement = machine.placement
    if isinstance(step, StreamStep):
        none, own = np.zeros(placement.num_tiles, np.int64), _bytes_by_tile(step.tensor, placement)
        return StepTraffic(own, none) if step.stream.is_input else StepTraffic(none, own)
    moved = machine.exchange.steps[step]
    shared = np.repeat(moved.before.shared_bytes, 2)[: placement.num_tiles]
    copied = None
    if isinstance(step, CopyStep):
        copied = np.maximum(0, _bytes_by_tile(step.destination, placement) - moved.received_bytes)
    return StepTraffic(moved.received_bytes, moved.sent_bytes, shared, copied)


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
        if isinstance(moment.step, (ExecuteStep, CopyStep, StreamStep)):
            own = sum(v.size * v.dtype.itemsize for v in {*moment.reads, *moment.writes})
            used.append(own)
            other.append(max(0, int(everywhere[moment.number]) - own))
    return MemoryUse(by_kind, np.asarray(used, np.int64), np.asarray(other, np.int64))


def profile_machine(machine: MachinePlan, target: Target | None = None) -> Profile:
    """What a plan on the machine costs.

    Args:
        machine: what `plan_machine` found.
        target: the machine; that of the graph when left off.

    Raises:
        CyclesError: a codelet's own `cycles=` fails.
    """
    plan = machine.placement.plan
    steps = [step for step, _ in repeated_steps(plan)]
    traffic = {step: _traffic(step, machine) for step in dict.fromkeys(steps)}
    moved = [traffic[step] for step in steps]
    return profile_plan(plan, machine.placement.vertex_tiles, moved, _memory_use(machine), target)
