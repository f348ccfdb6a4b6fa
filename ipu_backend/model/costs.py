"""The cost of parts of a vertex, and how the vertex runs: arguments and results of every rule for cycles."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from codelet.errors import CodeletError
from codelet.tracing.cases import where

if TYPE_CHECKING:
    from ipu_backend.model.machine import Machine


class CyclesError(CodeletError, ValueError):
    """A codelet's `cycles=` or `trip_count=` fails, or does not return a number."""


class UnknownCyclesWarning(UserWarning):
    """A primitive without a rule for its cycles, or a loop without a known trip count."""


def ceil_div(a: int, b: int) -> int:
    """`a / b`, rounded up."""
    return -(-a // b)


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of part of a vertex.

    Attributes:
        worker: cycles of each worker that runs it; of the slowest, if several share it.
        supervisor: additional cycles of the tile, in which no worker runs.
        fitted: how many of both together come from constants fitted to measurements.
        guessed: how many are guesses; the others have a source.
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
        machine: the machine.
        workers: how many workers share the vertex.
        compiled: True if its loops issue one instruction at a time; False if they load and store beside arithmetic.
        vectorised: True if compiled loops use vectors.
        turns: the trip count of each of its while loops; `None` if unknown.
        causes: unknown parts of its cost, each in a sentence, which the caller reports to the user.
    """

    machine: Machine
    workers: int = 1
    compiled: bool = False
    vectorised: bool = False
    turns: int | None = None
    causes: dict[str, None] = field(default_factory=dict, compare=False, repr=False)

    def tell(self, cause: str) -> None:
        """Report an unknown part of the cost and its substitute: `UnknownCyclesWarning`, once for a codelet."""
        self.causes[cause] = None

    def share(self, count: int) -> int:
        """The largest number of equal parts that one worker gets."""
        return ceil_div(count, self.workers)
