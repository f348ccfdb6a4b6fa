"""What every step of a placed plan takes, and a run of it.

In come a plan, the tile of every vertex, and what every step moves. What a vertex reads moves before it computes, what
it writes elsewhere moves after that: each an exchange of its own, with a sync before it, and neither where nothing
moves. The phases of steps follow one another as `lowering/machine/phases.py` says.

Of the branches of a choice one runs: the one that takes longest counts.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from codelet.graphs.family import Family
from codelet.graphs.vertex_cycles import family_cycles
from codelet.superstep import (
    STRIDED_CYCLES,
    Copied,
    PlacedVertices,
    Traffic,
    copy_cycles,
    exchange_cycles,
    tile_cycles,
)
from codelet.target import Target
from lowering.machine.chips import external_exchange_cycles, external_sync_cycles
from lowering.machine.exchange import Exchange
from lowering.machine.host import hidden_cycles, host_cycles
from lowering.machine.phases import Phase, StepCycles, in_a_row
from lowering.plan.plan import Plan
from lowering.plan.steps import CopyStep, ExecuteStep, StreamStep
from lowering.plan.timeline import Moment, Timeline, timeline

MovingStep = ExecuteStep | CopyStep | StreamStep
"""A step that exchanges or computes."""


@dataclass(frozen=True, eq=False)
class StepTraffic:
    """What one iteration of a step moves.

    Attributes:
        before: to the tiles that compute, before they do; None for nothing.
        after: from them to where what they wrote lives; None for nothing.
        copied: from one place of a tile's own memory to another; None for nothing.
        received_bytes: of all tiles.
        host_cycles: in which it moves to or from the host; 0 for nothing.
    """

    before: Traffic | None = None
    after: Traffic | None = None
    copied: Copied | None = None
    received_bytes: int = 0
    host_cycles: int = 0


def moving_moments(line: Timeline) -> Iterator[Moment]:
    """The moments that exchange or compute, in order."""
    return (moment for moment in line.moments if isinstance(moment.step, MovingStep))


# --- what moves ---------------------------------------------------------------------------------------


def step_traffic(step: MovingStep, exchange: Exchange) -> StepTraffic:
    """What one iteration of a step moves."""
    placement = exchange.placement
    if isinstance(step, StreamStep):
        elements = step.tensor.elements().reshape(-1)
        own = np.bincount(placement.element_tiles[elements[elements >= 0]], minlength=placement.num_tiles)
        num_bytes, none = own * step.tensor.dtype.itemsize, np.zeros(placement.num_tiles, np.int64)
        words = -(-num_bytes // placement.plan.graph.target.word_bytes)
        moved = Traffic(words, none) if step.stream.is_input else Traffic(none, words)
        received = int(num_bytes.sum()) if step.stream.is_input else 0
        return StepTraffic(moved, None, None, received, host_cycles(num_bytes, placement.plan.graph.target))
    moved = exchange.steps[step]
    received = sum(int(transfer.received_bytes.sum()) for transfer in (moved.before, moved.after))
    return StepTraffic(moved.before.traffic, moved.after.traffic, moved.copied, received)


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
        self._arrival = target.arrival_cycles()
        self._compute: dict[tuple[Family, ...], Phase] = {}

    def compute(self, families: tuple[Family, ...]) -> Phase:
        """The phase in which the vertices of a compute set run.

        What of it rests on fits and on guesses is that of all its vertices, and that a launch is a fit.

        Raises:
            CyclesError: a codelet's own `cycles=` fails.
        """
        if families not in self._compute:
            target = self.target
            placed = [PlacedVertices(self.vertex_tiles[own], family_cycles(own, target)) for own in families]
            by_tile = tile_cycles(placed, target.num_tiles, target.num_workers, target.launch_cycles)
            whole, fitted, guessed = (
                sum(cycles.total(len(tiles), attrgetter(what)) for tiles, cycles in placed)
                for what in ("counted", "fitted", "guessed")
            )
            # The slowest tile has vertices, if any has.
            launch = min(1.0, target.launch_cycles / max(1, int(by_tile.max(initial=0))))
            share = (1 - launch) / max(1, whole)
            self._compute[families] = Phase("compute", by_tile, None, launch, launch + fitted * share, guessed * share)
        return self._compute[families]

    def copy(self, copied: Copied) -> Phase:
        """The phase in which tiles copy within their memory."""
        by_tile = copy_cycles(copied, self.target.num_workers)
        strided = int(copied.strided_elements.sum()) * STRIDED_CYCLES
        in_rows = int(copied.row_bytes.sum()) / 8
        launch = self.target.launch_cycles * (by_tile > 0)
        most = max(1, int((by_tile + launch).max(initial=0)))
        launched = int(launch.max(initial=0)) / most
        guessed = (1 - launched) * in_rows / max(1, in_rows + strided)
        return Phase("compute", by_tile + launch, None, launched, float(by_tile.any()) - guessed, guessed)

    def exchange(self, traffic: Traffic | None) -> tuple[Phase, ...]:
        """The phases in which something moves: none where nothing does."""
        if traffic is None or traffic.is_empty:
            return ()
        cycles = exchange_cycles(traffic, self.target, self._arrival) + self.target.exchange_overhead_cycles
        sync, exchange = Phase("sync", self.target.sync_cycles), Phase("exchange", cycles)
        if traffic.bytes_between is None:
            return sync, exchange
        between = external_exchange_cycles(traffic.bytes_between, self.target)
        external_sync = Phase("external sync", external_sync_cycles(self.target))
        return sync, external_sync, exchange, Phase("external exchange", between)

    def host(self, moved: StepTraffic) -> tuple[Phase, ...]:
        """The phases in which something moves to or from the host, as the tiles exchange it: the slower decides."""
        phases = self.exchange(moved.before)
        if not phases:
            return ()
        sync, exchange = phases
        overhead = self.target.host_overhead_cycles
        cycles = overhead + max(moved.host_cycles, exchange.slowest)
        return sync, Phase("host", cycles, fitted=overhead / max(1, cycles))

    def of(self, step: MovingStep, moved: StepTraffic) -> StepCycles:
        """The phases of one iteration of a step by itself.

        Raises:
            CyclesError: a codelet's own `cycles=` fails.
        """
        computed = self.copy(moved.copied) if moved.copied else self.compute(getattr(step, "families", ()))
        before = self.host(moved) if isinstance(step, StreamStep) else self.exchange(moved.before)
        return StepCycles((*before, computed, *self.exchange(moved.after)))


def counted_moments(line: Timeline, cycles: Mapping[int, int]) -> frozenset[int]:
    """The moments that count: of the branches of each choice those of the one that takes longest, the first of equals.

    Args:
        line: the moments of a program.
        cycles: of moments by their numbers, of all iterations; those that are left out take none.
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


@dataclass(frozen=True, eq=False)
class Run:
    """A run of a program.

    Attributes:
        moments: those that exchange or compute, in order.
        cycles: the phases of one iteration of each.
        turns: how often each runs; 0 in a branch that is not counted, since another takes longer.
        hidden: of each, cycles in which the host moves something while others run, of all iterations.
    """

    moments: tuple[Moment, ...]
    cycles: tuple[StepCycles, ...]
    turns: tuple[int, ...]
    hidden: tuple[int, ...]

    @property
    def total_cycles(self) -> int:
        """Cycles of all iterations of all steps."""
        return sum(turns * own.total for turns, own in zip(self.turns, self.cycles, strict=True)) - sum(self.hidden)


def run_of(plan: Plan, steps: Iterable[StepCycles] | Callable[[MovingStep], StepCycles]) -> Run:
    """What a run of a plan takes.

    Args:
        plan: without calls.
        steps: of each step that exchanges or computes, what one iteration takes by itself, in order, or by the step.
    """
    line = timeline(plan)
    moments = tuple(moving_moments(line))
    if callable(steps):
        once = functools.cache(steps)
        steps = [once(moment.step) for moment in moments]  # type: ignore[arg-type]
    found = in_a_row(line, {moment.number: own for moment, own in zip(moments, steps, strict=True)})
    cycles = {moment.number: moment.turns * found[moment.number].total for moment in moments}
    counted = counted_moments(line, cycles)
    turns = {moment.number: moment.turns if moment.number in counted else 0 for moment in moments}
    hidden = hidden_cycles(line, found, turns)
    columns = ((found[m.number], turns[m.number], hidden.get(m.number, 0)) for m in moments)
    return Run(moments, *zip(*columns, strict=True)) if moments else Run((), (), (), ())


def total_cycles(exchange: Exchange) -> int:
    """Cycles of a run of a placed plan, by all that the model knows.

    Raises:
        CyclesError: a codelet's own `cycles=` fails.
    """
    plan = exchange.placement.plan
    times = StepTimes(exchange.placement.vertex_tiles, plan.graph.target)
    return run_of(plan, lambda step: times.of(step, step_traffic(step, exchange))).total_cycles


def least_cycles(plan: Plan, vertex_tiles: Mapping[Family, np.ndarray]) -> int:
    """What a run of a placed plan takes at least, whatever has to move: what its tiles compute, if they never wait.

    Args:
        plan: without calls.
        vertex_tiles: for each family the tile of each vertex.

    Raises:
        CyclesError: a codelet's own `cycles=` fails.
    """
    times = StepTimes(vertex_tiles, plan.graph.target)
    return run_of(plan, lambda step: times.of(step, StepTraffic())).total_cycles
