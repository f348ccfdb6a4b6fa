"""What parts of a vertex take, and how the vertex runs: what every rule for cycles is given, and what it gives."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codelet.errors import CodeletError
from codelet.tracing.cases import where

if TYPE_CHECKING:
    from ipu_backend.model.machine import Machine


class CyclesError(CodeletError, ValueError):
    """A codelet's own `cycles=` or `trip_count=` that fails, or returns something else than a number."""


class UnknownCyclesWarning(UserWarning):
    """A primitive whose cycles no rule knows, or a loop whose turns nobody knows."""


def ceil_div(a: int, b: int) -> int:
    """`a / b`, rounded up."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Cost:
    """What part of a vertex takes.

    Attributes:
        worker: cycles of each worker that runs it: of the slowest, where they share it.
        supervisor: cycles of the tile besides, in which no worker runs.
        fitted: how many of both together rest on constants fitted to measurements.
        guessed: how many rest on guesses; the others have a source.
    """

    worker: int = 0
    supervisor: int = 0
    fitted: int = 0
    guessed: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.worker + other.worker,
            self.supervisor + other.supervisor,
            self.fitted + other.fitted,
            self.guessed + other.guessed,
        )

    def __mul__(self, turns: int) -> Cost:
        return Cost(turns * self.worker, turns * self.supervisor, turns * self.fitted, turns * self.guessed)

    def __bool__(self) -> bool:
        return bool(self.worker or self.supervisor)

    @property
    def counted(self) -> int:
        """Its cycles on one worker and on the supervisor."""
        return self.worker + self.supervisor


FREE = Cost()
"""What takes no time."""


def sourced(worker: int, supervisor: int = 0) -> Cost:
    """Cycles that a source gives."""
    return Cost(worker, supervisor)


def fitted(worker: int, supervisor: int = 0) -> Cost:
    """Cycles by constants that were fitted to measurements."""
    return Cost(worker, supervisor, fitted=worker + supervisor)


def guessed(worker: int, supervisor: int = 0) -> Cost:
    """Cycles that are a guess."""
    return Cost(worker, supervisor, guessed=worker + supervisor)


def either(condition: Any, one: Cost, other: Cost) -> Cost:
    """One cost where a condition holds, another elsewhere."""
    if isinstance(condition, bool):
        return one if condition else other
    pairs = ((getattr(one, name), getattr(other, name)) for name in Cost.__slots__)
    return Cost(*(a if a is b else where(condition, a, b) for a, b in pairs))


@dataclass(frozen=True)
class Mode:
    """How a vertex runs.

    Attributes:
        machine: on what.
        workers: how many workers share its work.
        compiled: whether its loops issue one instruction after another, rather than load and store beside arithmetic.
        vectorised: whether compiled loops take vectors.
        turns: of each of its while loops; None for not known.
        causes: what nobody knows of what the vertex takes, each in a sentence; whoever asks tells the user.
    """

    machine: Machine
    workers: int = 1
    compiled: bool = False
    vectorised: bool = False
    turns: int | None = None
    causes: dict[str, None] = field(default_factory=dict, compare=False, repr=False)

    def tell(self, cause: str) -> None:
        """Say what nobody knows, and what is counted in its place: `UnknownCyclesWarning`, once for a codelet."""
        self.causes[cause] = None

    def share(self, count: int) -> int:
        """How many of some equal parts the worker with most of them has."""
        return ceil_div(count, self.workers)
