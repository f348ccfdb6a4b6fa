"""What an elementwise operation takes of a worker, by how its operands come: the rows of tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from ipu_backend.model.costs import ceil_div

WIDTH = 0
"""In place of a number of elements: those of a vector."""


@dataclass(frozen=True, slots=True)
class Row:
    """What an operation takes of a worker that runs it alone.

    Attributes:
        cycles: of one iteration.
        elements: of one iteration, or `WIDTH`.
        overhead: what is added to `cycles`, to load, store and go round; 0 where they are all in.
        arithmetic: of one iteration, without what loads, stores and goes round: its part of an iteration that it
            shares.
        base: of the vertex: its entry, the set-up of the loop, its exit.
        supervisor: of the tile, where all workers share the vertex.
        rounds_once: whether elements are rounded up to iterations after they are multiplied by the cycles, as PopLibs
            does for operations of one operand; else before.
    """

    cycles: int
    elements: int
    overhead: int = 0
    arithmetic: int = 1
    base: int = 0
    supervisor: int = 0
    rounds_once: bool = False

    def worker(self, n: int, width: int, workers: int) -> int:
        """Cycles of one of `workers`, for `n` elements, of which a vector has `width`."""
        turn, elements = self.cycles + self.overhead, self.elements or width
        loop = turn * (n + elements - 1) // elements if self.rounds_once else turn * ceil_div(n, elements)
        return self.base + loop


@dataclass(frozen=True, slots=True)
class CastRow(Row):
    """What a cast takes: iterations of a power of two of elements, then what is left of them by halves.

    PopLibs, lib/popops/PerformanceEstimation.cpp @ f77e6418: Cast1D, Cast1DSingleWorker.
    """

    def worker(self, n: int, width: int, workers: int) -> int:
        """Cycles of one of `workers`, for `n` elements."""
        turns, left = divmod(n, self.elements)
        core = 19 + self.cycles * turns + self.elements.bit_length() - 1 + 2 * left.bit_count()
        return core + (5 if workers == 1 else 18)


class Rows(NamedTuple):
    """What an operation takes for one dtype.

    Attributes:
        plain: of as many elements each, into another variable.
        in_place: into what one of them is read from; None for as `plain`.
        by_scalar: of two operands, of which one is one number; None for as `plain`.
        by_scalar_in_place: both; None for as `by_scalar`.
        is_vertex: whether a library has it as a vertex of its own; else it is but part of a loop.
        is_guess: whether its numbers are a guess.
    """

    plain: Row
    in_place: Row | None = None
    by_scalar: Row | None = None
    by_scalar_in_place: Row | None = None
    is_vertex: bool = True
    is_guess: bool = False

    def row(self, by_scalar: bool, in_place: bool) -> Row:
        """The one for operands that come so."""
        if by_scalar and self.by_scalar is not None:
            return (in_place and self.by_scalar_in_place) or self.by_scalar
        return (in_place and self.in_place) or self.plain


class Loop(NamedTuple):
    """The loop that an elementwise equation is, or is part of.

    Attributes:
        rows: what it takes.
        width: elements of a vector of its dtype.
        lanes: elements that one instruction computes; 0 for any number.
    """

    rows: Rows
    width: int
    lanes: int


class Conversion(NamedTuple):
    """What it takes to compute with a dtype that is converted when it is read, and when it is written.

    Attributes:
        read: cycles, for how many elements.
        written: the same.
        is_guess: whether the numbers are a guess: of instructions that each element takes in software.
    """

    read: tuple[int, int]
    written: tuple[int, int]
    is_guess: bool

    def read_cycles(self, n: int) -> int:
        """To read `n` elements."""
        return self.read[0] * ceil_div(n, self.read[1])

    def written_cycles(self, n: int) -> int:
        """To write `n` elements."""
        return self.written[0] * ceil_div(n, self.written[1])


IN_SOFTWARE = Conversion(read=(1, 1), written=(5, 1), is_guess=True)
"""A shift to widen; to round two shifts, an and, and two sums. A guess, by counting instructions."""
