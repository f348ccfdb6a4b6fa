"""Who last gave every element its value, while a program runs: the program without its numbers.

An element holds the number of the vertex that wrote it, or `NOTHING`. One that had its value from the start, from a
stream or by counting a loop's iterations holds itself as an origin: element `e` as -2 - e. Copies move the contents of
elements. Where a program has a branch, by an `If` or by the trip count of a loop, an element may have one of several
writers. Then there are several rows of them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np

from codelet.draw.link_kernels import write_runs
from codelet.graphs.edge_blocks import blocks_of_field
from codelet.graphs.family import Family
from codelet.graphs.graph import Graph
from codelet.programs.compute_sets import ComputeSet
from codelet.programs.control import If, Repeat, RepeatWhile, Switch
from codelet.programs.copies import Copy
from codelet.programs.functions import Call
from codelet.programs.program import Execute, Program, Recording, Sequence
from codelet.programs.tensor_steps import WriteUndef
from codelet.programs.walk import Touched
from codelet.views.tensor import Tensor

NOTHING = -1
"""What an element holds that has no value, and padding."""

Visit = Callable[[Family, np.ndarray], None]


class Writers:
    """Runs programs on the contents of elements.

    Args:
        graph: the graph.
        visit: called for each family that runs, before any vertex of its compute set writes, with the family and the
            contents of elements, of shape (possibilities, elements); it may put numbers in the place of origins.
    """

    def __init__(self, graph: Graph, visit: Visit):
        self._visit = visit
        self._families: dict[ComputeSet, list[tuple[Family, int]]] = {}
        number = 0
        for family in graph.families:
            self._families.setdefault(family.compute_set, []).append((family, number))
            number += family.num_vertices
        self._writes = Touched(is_read=False)
        num_elements = sum(variable.size + 1 for variable in graph.sources)
        dtype = np.dtype(np.int32 if num_elements < 2**31 - 2 else np.int64)
        self.held = np.arange(-2, -2 - num_elements, -1, dtype=dtype)[None]

    def run(self, program: Program) -> None:
        """Run a program."""
        match program:
            case Execute(compute_set):
                self._execute(compute_set)
            case Recording():
                for compute_set in program.compute_sets:
                    self._execute(compute_set)
            case Sequence(programs):
                for part in programs:
                    self.run(part)
            case Copy(source, destination):
                if isinstance(destination, Tensor):
                    self._copy(source if isinstance(source, Tensor) else None, destination)
            case Repeat(count, body, index):
                self._repeat(count, body, index)
            case RepeatWhile(condition, _, body):
                self._repeat_while(condition, body, program.max_iterations)
            case If(_, then, otherwise):
                self._choose([then, otherwise])
            case Switch(_, cases, default):
                self._choose([*cases.values(), default])
            case Call():
                self._call(program)
            case WriteUndef(tensor):
                self._set(tensor, NOTHING)

    def _execute(self, compute_set: ComputeSet) -> None:
        families = self._families.get(compute_set, [])
        for family, _ in families:
            self._visit(family, self.held)
        for family, number in families:
            for field in family.fields:
                if field.is_written:
                    for block in blocks_of_field(family, field):
                        for held in self.held:
                            write_runs(held, number, block.vertex, block.first, block.offset, block.length)

    def _set(self, tensor: Tensor, value: Any) -> None:
        self.held[:, tensor.elements().reshape(-1)] = value

    def _copy(self, source: Tensor | None, destination: Tensor) -> None:
        """Copy the contents of elements; a value from the host is an origin."""
        to = destination.elements().reshape(-1)
        if source is None:
            self.held[:, to] = -2 - to
            return
        of = source.elements().reshape(-1)
        moved = self.held[:, of]
        moved[:, of < 0] = NOTHING
        self.held[:, to] = moved

    def _repeat(self, count: int, body: Program, index: Tensor | None) -> None:
        """Iterations until one changes nothing: all that follow are like it."""
        for _ in range(count):
            before = self.held.copy()
            if index is not None:
                self._copy(None, index)
            self.run(body)
            if np.array_equal(before, self.held):
                return

    def _repeat_while(self, condition: Program, body: Program, max_iterations: int | None) -> None:
        """Any number of iterations: the possible contents after none, one, two and so on, until nothing is new."""
        self.run(condition)
        for _ in itertools.count() if max_iterations is None else range(max_iterations):
            before = self.held
            self.held = before.copy()
            self.run(body)
            self.run(condition)
            self.held = _either([before, self.held])
            if np.array_equal(before, self.held):
                return

    def _choose(self, programs: list[Program]) -> None:
        before, after = self.held, []
        for program in programs:
            self.held = before.copy()
            self.run(program)
            after.append(self.held)
        self.held = _either(after)

    def _call(self, call: Call) -> None:
        function, arguments = call.function, call.arguments
        written = self._writes.of_function(function)
        for name, parameter in function.parameters.items():
            self._copy(arguments[name], parameter)
        self.run(function.body)
        for name, parameter in function.parameters.items():
            if parameter.source in written:
                self._copy(parameter, arguments[name])
        for parameter in function.parameters.values():
            self._set(parameter, NOTHING)


def _either(cases: list[np.ndarray]) -> np.ndarray:
    """The possible contents of each element in any of several
    cases: each possibility once, in ascending order, the last repeated.

    So the same possibilities are always the same rows.
    """
    rows = np.concatenate(cases)
    rows.sort(axis=0)
    new = np.ones(rows.shape, bool)
    new[1:] = rows[1:] != rows[:-1]
    most = int(new.sum(axis=0).max(initial=1))
    if most == 1:
        return rows[:1]
    place = np.cumsum(new, axis=0) - 1
    found = np.repeat(rows[-1:], most, axis=0)
    for k in range(len(rows)):
        fresh = new[k]
        found[place[k][fresh], np.flatnonzero(fresh)] = rows[k][fresh]
    return found
