"""Phases: what the time of a program is made of, and which tiles wait for which.

In come the phases of each step, with the cycles that every tile takes. Out come the same, each as long as it lets the
program take longer. The model is Valiant's bulk-synchronous machine ("A Bridging Model for Parallel Computation",
1990), as the IPU is one: tiles wait for each other where they synchronize, which they do only to exchange. Where one
step computes after another and nothing moves between, each tile goes on by itself, so that both together take the
largest sum over tiles, not the sum of the largest. A step's time is by how much it makes that grow: the steps add up.

Such a row of steps ends at anything that is no computing, and also where a loop's body or a branch begins or ends,
where a tile might go on: a body that exchanges nothing takes what its slowest tile takes, each iteration by itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from lowering.plan.steps import UndefStep
from lowering.plan.timeline import Moment, Timeline

KINDS = ("sync", "external sync", "exchange", "external exchange", "host", "compute")
"""What a phase may be, in the order in which they are shown; external is what goes between chips."""


@dataclass(frozen=True, eq=False)
class Phase:
    """A part of one iteration of a step, in which all tiles do the same kind of thing.

    Attributes:
        kind: one of `KINDS`.
        by_tile: cycles of each tile, int64 of shape (num_tiles,), or of every tile.
        overlap: how many cycles of the slowest pass while others are still at what came before; None where all tiles
            wait for one another before.
        launch: which share of it starts vertices, from 0 to 1.
        fitted: which share rests on constants that are fitted to measurements.
        guessed: which share rests on guesses; what is left has a source.
    """

    kind: str
    by_tile: np.ndarray | int
    overlap: int | None = None
    launch: float = 0.0
    fitted: float = 0.0
    guessed: float = 0.0

    @property
    def slowest(self) -> int:
        """Cycles of the tile that takes longest."""
        return int(self.by_tile.max(initial=0)) if isinstance(self.by_tile, np.ndarray) else self.by_tile

    @property
    def cycles(self) -> int:
        """Cycles by which it prolongs the program."""
        return self.slowest - (self.overlap or 0)


@dataclass(frozen=True, eq=False)
class StepCycles:
    """What one turn of a step takes: its phases, in order, among them one in which the tiles compute."""

    phases: tuple[Phase, ...]

    @property
    def total(self) -> int:
        """Cycles of one iteration."""
        return sum(phase.cycles for phase in self.phases)

    def of(self, *kinds: str) -> int:
        """Cycles of the phases of some kinds."""
        return sum(phase.cycles for phase in self.phases if phase.kind in kinds)

    def before(self, *kinds: str) -> int:
        """Cycles of the phases of some kinds before the tiles compute."""
        first = itertools.takewhile(lambda phase: phase.kind != "compute", self.phases)
        return sum(phase.cycles for phase in first if phase.kind in kinds)

    def by_tile(self, kind: str) -> np.ndarray:
        """Cycles of each tile in the phases of a kind: int64 of shape (num_tiles,), or a number for all."""
        return sum((np.asarray(phase.by_tile) for phase in self.phases if phase.kind == kind), np.zeros((), np.int64))


def _goes_on(before: Moment | None, moment: Moment) -> bool:
    """Whether a moment may begin on a tile as soon as that tile is done with the one before."""
    return before is not None and (before.loops, before.branches) == (moment.loops, moment.branches)


def in_a_row(line: Timeline, steps: Mapping[int, StepCycles]) -> dict[int, StepCycles]:
    """The cycles of the steps of a program one after another, which overlap where tiles need not wait.

    Args:
        line: the moments of the program.
        steps: of each moment that takes any time, by its number, what it takes by itself.
    """
    found: dict[int, StepCycles] = {}
    before: Moment | None = None
    computed: np.ndarray | int | None = None  # by tile since all waited; None where nothing
    for moment in line.moments:
        if isinstance(moment.step, UndefStep):
            continue
        if moment.number not in steps:  # a loop's head, or something for the host to do
            before, computed = None, None
            continue
        if not _goes_on(before, moment):
            computed = None
        phases = []
        for phase in steps[moment.number].phases:
            if phase.kind != "compute":
                computed = None
            elif computed is None:
                computed = phase.by_tile
            else:
                until = int(np.max(computed, initial=0))
                computed = computed + phase.by_tile
                phase = replace(phase, overlap=until + phase.slowest - int(np.max(computed, initial=0)))
            phases.append(phase)
        found[moment.number] = StepCycles(tuple(phases))
        before = moment
    return found
