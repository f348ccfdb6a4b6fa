"""What every step of a placed plan takes: its phases, each as long as its slowest tile.

In come a plan, the tile of every vertex, and what every step moves. A step is sync, exchange and compute: what a
vertex reads moves before it computes. What it writes elsewhere moves after it, in an exchange with a sync of its
own, which is left out where nothing moves so.

Of the branches of a choice one runs: the one that takes longest counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from codelet.graphs.family import Family
from codelet.target import Target
from codelet.views.tensor import Tensor
from lowering.machine.exchange import Exchange, Transfer
from lowering.machine.placement import Placement
from lowering.machine.superstep import PlacedVertices, copy_cycles, exchange_cycles, tile_cycles
from lowering.machine.vertex_cycles import family_cycles
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep, StreamStep
from lowering.plan.timeline import Moment, Timeline, timeline

MovingStep = ExecuteStep | CopyStep | StreamStep
"""A step that exchanges or computes."""


@dataclass(frozen=True, eq=False)
class Traffic:
    """What one exchange moves. All are bytes for each tile, int64 of shape (num_tiles,).

    Attributes:
        received_bytes: from other tiles.
        sent_bytes: to other tiles, a message to many tiles counted once.
        shared_bytes: of those received, what the other tile of the pair receives too; None for none.
    """

    received_bytes: np.ndarray
    sent_bytes: np.ndarray
    shared_bytes: np.ndarray | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing moves."""
        return not (self.received_bytes.any() or self.sent_bytes.any())

    def cycles(self, target: Target) -> np.ndarray:
        """Cycles that each tile exchanges for, int64 of shape (num_tiles,)."""
        return exchange_cycles(self.received_bytes, self.sent_bytes, target, self.shared_bytes)


@dataclass(frozen=True, eq=False)
class StepTraffic:
    """What one turn of a step moves.

    Attributes:
        before: to the tiles that compute, before they do.
        after: from them to where what they wrote lives; None for nothing.
        copied_bytes: from one place of a tile's own memory to another, int64 of shape (num_tiles,); None for none.
    """

    before: Traffic
    after: Traffic | None = None
    copied_bytes: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class StepCycles:
    """The phases of one turn of a step, by tile: int64 of shape (num_tiles,).

    Attributes:
        before: cycles of the exchange before the tiles compute.
        compute: cycles that they compute for.
        after: cycles of the exchange after that; None where there is none, and no sync for it.
        sync: cycles of each sync.
    """

    before: np.ndarray
    compute: np.ndarray
    after: np.ndarray | None
    sync: int

    @property
    def total(self) -> int:
        """Cycles of one turn: its syncs, and of each phase the slowest tile."""
        phases = [phase for phase in (self.before, self.compute, self.after) if phase is not None]
        return (len(phases) - 1) * self.sync + sum(int(phase.max(initial=0)) for phase in phases)


def moving_moments(line: Timeline) -> Iterator[Moment]:
    """The moments that exchange or compute, in order."""
    return (moment for moment in line.moments if isinstance(moment.step, MovingStep))


# --- what moves ---------------------------------------------------------------------------------------


def _bytes_by_tile(tensor: Tensor, placement: Placement) -> np.ndarray:
    """What the elements of a view take on the tiles where they live, int64 of shape (num_tiles,)."""
    elements = tensor.elements().reshape(-1)
    tiles = placement.element_tiles[elements[elements >= 0]]
    return np.bincount(tiles, minlength=placement.num_tiles) * tensor.dtype.itemsize


def _moved(transfer: Transfer) -> Traffic:
    shared = np.repeat(transfer.shared_bytes, 2)[: len(transfer.received_bytes)]
    return Traffic(transfer.received_bytes, transfer.sent_bytes, shared)


def step_traffic(step: MovingStep, exchange: Exchange) -> StepTraffic:
    """What one turn of a step moves."""
    placement = exchange.placement
    if isinstance(step, StreamStep):
        none, own = np.zeros(placement.num_tiles, np.int64), _bytes_by_tile(step.tensor, placement)
        return StepTraffic(Traffic(own, none) if step.stream.is_input else Traffic(none, own))
    moved = exchange.steps[step]
    if isinstance(step, CopyStep):
        copied = np.maximum(0, _bytes_by_tile(step.destination, placement) - moved.before.received_bytes)
        return StepTraffic(_moved(moved.before), copied_bytes=copied)
    return StepTraffic(_moved(moved.before), _moved(moved.after))


# --- what that takes ----------------------------------------------------------------------------------


class StepTimes:
    """The cycles of steps, each found once.

    Args:
        vertex_tiles: for each family the tile of each vertex.
        target: the machine.
    """

    def __init__(self, vertex_tiles: Mapping[Family, np.ndarray], target: Target):
        self.vertex_tiles = vertex_tiles
        self.target = target
        self._compute: dict[tuple[Family, ...], np.ndarray] = {}

    def compute(self, step: MovingStep, copied_bytes: np.ndarray | None = None) -> np.ndarray:
        """Cycles that each tile computes for, int64 of shape (num_tiles,)."""
        families = step.families if isinstance(step, ExecuteStep) else ()
        if families not in self._compute:
            tiles, target = self.vertex_tiles, self.target
            placed = [PlacedVertices(tiles[family], family_cycles(family, target)) for family in families]
            self._compute[families] = tile_cycles(placed, target.num_tiles, target.num_workers)
        found = self._compute[families]
        return found if copied_bytes is None else found + copy_cycles(copied_bytes, self.target.num_workers)

    def of(self, step: MovingStep, moved: StepTraffic) -> StepCycles:
        """The phases of one turn of a step.

        Raises:
            CyclesError: a codelet's own `cycles=` fails.
        """
        after = None if moved.after is None or moved.after.is_empty else moved.after.cycles(self.target)
        compute = self.compute(step, moved.copied_bytes)
        return StepCycles(moved.before.cycles(self.target), compute, after, self.target.sync_cycles)


def counted_moments(line: Timeline, cycles: Mapping[int, int]) -> frozenset[int]:
    """The moments that count: of the branches of each choice those of the one that takes longest, the first of equals.

    Args:
        line: the moments of a program.
        cycles: of moments by their numbers, of all turns; those that are left out take none.
    """
    counted = {moment.number for moment in line.moments}
    choices: dict[int, dict[int, list[int]]] = {}
    for moment in line.moments:
        for choice, branch in moment.branches:
            choices.setdefault(choice, {}).setdefault(branch, []).append(moment.number)
    for choice in sorted(choices, reverse=True):  # what is inside another choice stands behind it
        totals = {
            branch: sum(cycles.get(number, 0) for number in numbers if number in counted)
            for branch, numbers in choices[choice].items()
        }
        longest = max(sorted(totals), key=lambda branch: totals[branch])
        for branch, numbers in choices[choice].items():
            if branch != longest:
                counted.difference_update(numbers)
    return frozenset(counted)


def _sum_of(plan: Plan, of_step: Callable[[MovingStep], int]) -> int:
    """Cycles of a run of a plan, from those of one turn of each step."""
    line, once = timeline(plan), functools.cache(of_step)
    cycles = {moment.number: moment.turns * once(moment.step) for moment in moving_moments(line)}
    counted = counted_moments(line, cycles)
    return sum(own for number, own in cycles.items() if number in counted)


def total_cycles(exchange: Exchange) -> int:
    """Cycles of a run of a placed plan, by all that the model knows.

    Raises:
        CyclesError: a codelet's own `cycles=` fails.
    """
    plan = exchange.placement.plan
    times = StepTimes(exchange.placement.vertex_tiles, plan.graph.target)
    return _sum_of(plan, lambda step: times.of(step, step_traffic(step, exchange)).total)


def least_cycles(placement: Placement) -> int:
    """What a run of a placed plan takes at least, whatever has to move: its syncs, and what its tiles compute.

    Raises:
        CyclesError: a codelet's own `cycles=` fails.
    """
    plan = placement.plan
    times = StepTimes(placement.vertex_tiles, plan.graph.target)
    return _sum_of(plan, lambda step: times.target.sync_cycles + int(times.compute(step).max(initial=0)))
