"""What a loop of elementwise operations takes, alone or fused, from assembly or from C++.

In come the operations that share a loop, and what it loads and stores; out comes what it takes.

- One operation in assembly takes its row of the tables; of a matrix and a vector, what `vector_broadcasts.py` says.
- Several in assembly take max(A, L + S) an iteration of one vector, with arithmetic A, loads L and stores S:
  instructions are issued in pairs, one of which loads or stores, and the loop is the hardware's.
- What is compiled takes A + L + S an iteration of one element, and 3 to go round; or of one vector where its author
  says that it is written so, and 1; or nothing to go round where it stores nothing (`compiled_loops.py` says whence).
- One element takes no loop, and no base.
- A reduction of what a loop computes is an operation of the loop that accumulates: it adds to A, and stores once for
  each of its results.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from codelet.tracing.cases import least
from ipu_backend.model.compiled_loops import BEGIN_CYCLES, RESULT_CYCLES, compiled_loop, turn_overhead
from ipu_backend.model.costs import Cost, Mode, ceil_div, fitted, sourced
from ipu_backend.model.rows import Conversion, Loop, Row
from ipu_backend.model.shared import SUPERVISOR_CYCLES, shared
from ipu_backend.model.vector_broadcasts import MatrixAndVector


class LoopOperation(NamedTuple):
    """An operation in a loop.

    Attributes:
        loop: what it takes.
        by_scalar: whether it takes one number beside one operand.
        on_matrix: how it takes a vector beside a matrix, if it does.
    """

    loop: Loop
    by_scalar: bool
    on_matrix: MatrixAndVector | None = None

    def arithmetic(self, elements: int) -> int:
        """Its cycles in an iteration of so many elements."""
        plain = self.loop.rows.plain
        return ceil_div(plain.arithmetic * elements, plain.elements or self.loop.width)

    def row(self, in_place: bool) -> Row:
        """Its row where it runs alone."""
        return self.loop.rows.row(self.by_scalar, in_place)


class Accumulation(NamedTuple):
    """A reduction in a loop.

    Attributes:
        arithmetic: of an iteration.
        results: how many it has, each of neighbouring elements.
    """

    arithmetic: int
    results: int

    def ending(self, mode: Mode) -> Cost:
        """What it takes beside its turns: its results; and where workers share one, what each of them has found."""
        kind = fitted if mode.compiled else sourced
        found = kind(RESULT_CYCLES * mode.share(self.results))
        if mode.workers == 1 or self.results >= mode.workers:
            return found
        partials = mode.workers * self.results
        if mode.compiled:
            return found + compiled_loop(partials, 2, mode, results=self.results)
        return found + shared(BEGIN_CYCLES + RESULT_CYCLES * self.results + 2 * partials, mode)


@dataclass(eq=False)
class FusedLoop:
    """Elementwise operations that share a loop over the elements of one shape.

    Attributes:
        shape: of their results; () for all that have one element.
        operations: what they take.
        results: what they compute, in order.
        reads: what they read that they do not compute, one number aside where there are more elements, in order; and
            how it is converted, if it is.
        accumulations: reductions of what it computes, by their results.
    """

    shape: tuple[int, ...]
    operations: list[LoopOperation] = field(default_factory=list)
    results: dict[Any, Conversion | None] = field(default_factory=dict)
    reads: dict[Any, Conversion | None] = field(default_factory=dict)
    accumulations: dict[Any, Accumulation] = field(default_factory=dict)

    @property
    def is_vertex(self) -> bool:
        """Whether a library has it as a vertex."""
        return len(self.operations) == 1 and not self.accumulations and self.operations[0].loop.rows.is_vertex

    @property
    def size(self) -> int:
        """Elements of each result."""
        return math.prod(self.shape)

    def cost(self, stored: Sequence[Any], in_place: bool, mode: Mode) -> Cost:
        """What it takes.

        Args:
            stored: those of its results that are stored.
            in_place: whether one of them is stored where it is read from.
            mode: how the vertex runs.
        """
        if not mode.compiled and self.is_vertex and self.operations[0].on_matrix and mode.machine.tables.folds:
            whole = self.operations[0].on_matrix.cost(in_place, mode)
            if whole is not None:
                return whole
        has_turns, share = self.size > 1, mode.share(self.size)
        lanes = min((own.loop.lanes for own in self.operations if own.loop.lanes), default=4)
        elements = lanes if has_turns and (mode.vectorised or not mode.compiled) else 1
        turns = ceil_div(share, elements)

        arithmetic = [operation.arithmetic(elements) for operation in self.operations]
        arithmetic += [own.arithmetic for own in self.accumulations.values()]
        moved = len(self.reads) + len(stored)
        conversions = [
            *((own, own.read_cycles(elements)) for own in self.reads.values() if own is not None),
            *((own, own.written_cycles(elements)) for own in map(self.results.get, stored) if own is not None),
        ]
        guesses = [a for own, a in zip(self.operations, arithmetic, strict=False) if own.loop.rows.is_guess]
        guesses += [cycles for own, cycles in conversions if own.is_guess]

        base = max(operation.row(in_place=False).base for operation in self.operations) if has_turns else 0
        fits = turns * turn_overhead(mode, stores=bool(stored)) if mode.compiled and has_turns else 0
        if mode.compiled:
            worker = base + turns * (sum(arithmetic) + moved) + fits
        elif has_turns and self.is_vertex:
            worker = self.operations[0].row(in_place).worker(share, self.operations[0].loop.width, mode.workers)
        else:
            worker = base + turns * max(sum(arithmetic), moved)
        worker += turns * sum(cycles for _, cycles in conversions)
        ways = [own.row(in_place).supervisor for own in self.operations]
        supervisor = SUPERVISOR_CYCLES if SUPERVISOR_CYCLES in ways else max(ways)  # of two operands, of one, a cast
        shares = has_turns and mode.workers > 1
        found = Cost(worker, supervisor if shares else 0, fits, least(turns * sum(guesses), worker))
        return sum((own.ending(mode) for own in self.accumulations.values()), found)
