"""What one step of a program costs on the machine, for all its turns; and what is told of it and of a whole program."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codelet.deprecated import old_attribute
from codelet.errors import CodeletError
from lowering.machine.phases import KINDS, Phase, StepCycles


class FigureError(CodeletError, ValueError):
    """A figure that a profile does not have."""


def check_kinds(kinds: Sequence[object]) -> None:
    """See that phases are of some kinds.

    Raises:
        FigureError: a kind that no phase is of.
    """
    for kind in kinds:
        if not isinstance(kind, str) or kind not in KINDS:
            raise FigureError("a profile has no such kind of phase", given=f"{kind!r:.80}", expected=", ".join(KINDS))


class CountedByKind:
    """What is told of cycles that are counted by the kinds of phases; of a step, for all its turns."""

    @abstractmethod
    def cycles_of(self, *kinds: str) -> int:
        """Cycles of the phases of some kinds."""

    @property
    def compute_cycles(self) -> int:
        """By how much computing prolongs the program: cycles of the slowest tile, if all wait before."""
        return self.cycles_of("compute")

    @property
    def exchange_cycles(self) -> int:
        """Cycles of the busiest tile in exchanges, before it computes or after."""
        return self.cycles_of("exchange")

    @property
    def sync_cycles(self) -> int:
        """Cycles in which tiles wait for each other."""
        return self.cycles_of("sync")

    @property
    def external_exchange_cycles(self) -> int:
        """Cycles of the busiest link between chips."""
        return self.cycles_of("external exchange")

    @property
    def external_sync_cycles(self) -> int:
        """Cycles in which chips wait for each other."""
        return self.cycles_of("external sync")

    @property
    def host_cycles(self) -> int:
        """Cycles in which all wait for what moves from or to the host."""
        return self.cycles_of("host")


@dataclass(frozen=True, eq=False)
class StepProfile(CountedByKind):
    """One step, for all turns that the repeats around it make.

    Attributes:
        name: the compute set, or the copy.
        iterations: its turns; 0 in a branch that is not counted, since another takes longer.
        num_vertices: vertices that run in one turn.
        cycles: the phases of one turn, by tile.
        received_bytes: of all tiles in one turn.
        used_bytes: what its variables take, on all tiles together.
        other_live_bytes: what else is live meanwhile.
        hidden_cycles: in which the host moves something while others run, for all turns.
        turns_are_guessed: whether nobody says how often one of the loops around it turns.
    """

    name: str
    iterations: int
    num_vertices: int
    cycles: StepCycles
    received_bytes: int
    used_bytes: int = 0
    other_live_bytes: int = 0
    hidden_cycles: int = 0
    turns_are_guessed: bool = False
    repeats = old_attribute("StepProfile.repeats", "iterations")

    @property
    def phases(self) -> tuple[Phase, ...]:
        """Those of one turn: what vertices read moves before they compute, what they write elsewhere after that."""
        return self.cycles.phases

    def cycles_of(self, *kinds: str) -> int:
        """Cycles of the phases of some kinds, for all turns.

        Raises:
            FigureError: a kind that no phase is of.
        """
        check_kinds(kinds)
        return sum(map(self.prolongs, (phase for phase in self.phases if phase.kind in kinds)))

    def prolongs(self, phase: Phase) -> int:
        """By how many cycles one of its phases prolongs the program, for all turns."""
        return self.iterations * phase.cycles - (self.hidden_cycles if phase.kind == "host" else 0)

    def _rest_on(self, what: str) -> int:
        return round(self.iterations * sum(phase.cycles * getattr(phase, what) for phase in self.phases))

    @property
    def compute_by_tile(self) -> np.ndarray:
        """Cycles of one turn that each tile computes for, int64 of shape (num_tiles,)."""
        return self.cycles.by_tile("compute")

    @property
    def launch_cycles(self) -> int:
        """Of those in which tiles compute, while vertices are started."""
        return self._rest_on("launch")

    @property
    def exchange_before_cycles(self) -> int:
        """Cycles of the busiest tile before it computes, for all turns."""
        return self.iterations * self.cycles.before("exchange")

    @property
    def exchange_after_cycles(self) -> int:
        """Cycles of the busiest tile after that, for all turns."""
        return self.exchange_cycles - self.exchange_before_cycles

    @property
    def total_cycles(self) -> int:
        """All of them."""
        return self.iterations * self.cycles.total - self.hidden_cycles

    @property
    def fitted_cycles(self) -> int:
        """Of all, those that rest on constants fitted to measurements."""
        return 0 if self.turns_are_guessed else self._rest_on("fitted")

    @property
    def guessed_cycles(self) -> int:
        """Of all, those that rest on guesses: where it is guessed how often a loop turns, all."""
        if self.turns_are_guessed:
            return self.total_cycles
        return min(self._rest_on("guessed"), self.total_cycles - self.fitted_cycles)

    @property
    def sourced_cycles(self) -> int:
        """Of all, those that rest on what is published, and on what users say of their codelets."""
        return self.total_cycles - self.fitted_cycles - self.guessed_cycles

    @property
    def balance(self) -> float:
        """Mean over slowest tile while it computes, from 0 to 1; 1 where nothing is computed."""
        slowest = self.compute_by_tile.max(initial=0)
        return float(self.compute_by_tile.mean() / slowest) if slowest else 1.0
