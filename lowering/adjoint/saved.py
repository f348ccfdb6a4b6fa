"""Saved values: residuals of the forward pass that are overwritten before the backward pass reads them.

A value is that of a variable at a place of the program: as the last step that wrote it left it. A variable that nothing
writes any more is read where it is, unless only one branch has made it. Of any other a copy is taken as soon as it is
made; in loops one for each iteration, in a row of an array, which the same iteration of the backward loop takes out
again.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from codelet.graphs.graph import Graph
from codelet.graphs.phases import SAVED
from codelet.ops.turns import put_turn, take_turn
from codelet.programs.copies import Copy
from codelet.programs.functions import Function
from codelet.programs.program import Program
from codelet.views.index import Index
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor, whole_view
from lowering.adjoint.added import new_tensor, new_vertices, variable_of, zeros
from lowering.adjoint.counters import Counters
from lowering.adjoint.counting import place_of
from lowering.adjoint.programs import writes_of
from lowering.plan.elements import Elements, ElementSet
from lowering.plan.plan import Plan
from lowering.plan.steps import RepeatStep, Step, WhileStep


class Loop:
    """A loop while its program and that of its backward pass are made.

    Attributes:
        step: the loop.
        turns: how often its parts run at most.
        is_counted: whether anybody has asked for the number of the iteration.
    """

    def __init__(self, graph: Graph, step: RepeatStep | WhileStep, turns: int):
        self.graph, self.step, self.turns = graph, step, turns
        self.is_counted = False

    @functools.cached_property
    def turn(self) -> Tensor:
        """The number of the iteration, in the forward pass."""
        self.is_counted = True
        return new_tensor(self.graph, "turn", (), "int32")

    @functools.cached_property
    def back(self) -> Tensor:
        """The number of the iteration that the backward pass goes back through."""
        self.is_counted = True
        return new_tensor(self.graph, "back", (), "int32")


class Called(Protocol):
    """A function that is called in the forward pass; see `calls.py`."""

    @property
    def is_changed(self) -> bool:
        """Whether the forward pass does more in it than its steps."""
        ...

    def forward(self, plan: Plan) -> Function:
        """The functions that the forward pass calls."""
        ...


@dataclass(eq=False)
class Body:
    """A list of steps at one place of a program.

    Attributes:
        steps: they.
        around: the body that the step is in that this one is of, and the place of that step; None outside of all.
        loop: the loop whose part it is; None for a branch.
        is_again: whether it runs again before the backward pass goes back through it, so that its values are saved
            there, and for one time.
        before: further steps before each step, by its place, and at the end.
        prelude: the steps where the backward pass begins to go back through it.
        forward: the place of an iteration among all iterations of all loops around, in the forward pass.
        backward: likewise in the backward pass.
        children: the bodies of its steps, by their places, of those steps that the backward pass goes through.
        calls: the functions that its steps call, by their places, likewise.
        instead: the steps that the forward pass runs in the place of others.
    """

    steps: tuple[Step, ...]
    around: tuple[Body, int] | None = None
    loop: Loop | None = None
    is_again: bool = False
    before: dict[int, list[Program]] = field(default_factory=dict)
    prelude: list[Program] = field(default_factory=list)
    forward: Tensor | None = None
    backward: Tensor | None = None
    children: dict[int, tuple[Body, ...]] = field(default_factory=dict)
    calls: dict[int, Called] = field(default_factory=dict)
    instead: dict[int, Program] = field(default_factory=dict)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Those around it, the outermost first, as far as its values are saved iteration by iteration."""
        if self.is_again:
            return ()
        outer = () if self.around is None else self.around[0].loops
        return outer if self.loop is None else (*outer, self.loop)

    @property
    def is_branch(self) -> bool:
        """Whether it is a branch, which may not run: then nothing is made in it, whatever variables hold otherwise."""
        return self.around is not None and self.loop is None and not self.is_again

    @property
    def scope(self) -> str:
        """The scope of copies of its values: they are the forward pass's, unless it runs again."""
        if self.is_again:
            return "again"
        return SAVED if self.around is None else self.around[0].scope

    @property
    def inner(self) -> Iterator[Body]:
        """The bodies of its steps that the backward pass goes through."""
        return itertools.chain.from_iterable(self.children.values())

    @property
    def is_changed(self) -> bool:
        """Whether the forward pass does more here than its steps."""
        counted = self.loop is not None and self.loop.is_counted
        inside = (own.is_changed for own in self.inner if not own.is_again)
        return (
            counted
            or bool(self.before or self.instead)
            or any(inside)
            or any(own.is_changed for own in self.calls.values())
        )

    def writer(self, variable: Variable, number: int) -> int | None:
        """The place of the last step before another that writes a variable."""
        return next((k for k in range(number - 1, -1, -1) if variable in writes_of([self.steps[k]])), None)

    def made(self, number: int, variable: Variable) -> tuple[Body, int]:
        """Where the value is made that a variable has before a step: the body, and before which step of it."""
        body = self
        while True:
            writer = body.writer(variable, number)
            if writer is not None:
                return body, writer + 1
            is_carried = body.loop is not None and variable in writes_of([body.loop.step])
            if body.around is None or body.is_again or is_carried:
                return body, 0
            body, number = body.around


@dataclass(eq=False)
class _SavedValue:
    """A value that is saved.

    Attributes:
        variable: of which.
        body: where it is made.
        number: before which step there.
        needed: which of its elements are read.
        held: the variable with it in the backward pass.
        stack: the variable with those of all iterations, where it is made in loops.
        of: the value of a function's forward pass that it is, as a call left it; None for that of a step.
    """

    variable: Variable
    body: Body
    number: int
    needed: Elements
    held: Variable
    stack: Tensor | None
    of: _SavedValue | None = None

    @property
    def origin(self) -> Variable:
        """The variable that the forward pass has the value in."""
        return self.variable if self.of is None else self.of.origin

    @property
    def elements(self) -> Elements:
        """The elements that are saved: those that any backward pass needs, which is known when all are made."""
        return self.needed if self.of is None else self.of.elements if self.of.stack is None else self.needed


class Saved:
    """The saved values of a forward pass; asked for by the backward pass, while that is made.

    Attributes:
        graph: where.
        certain: the elements that have a value after the forward pass, whatever it has chosen.
        values: the saved values: by the body where each is made, before which step there, and of which variable.
        settled: those of them of which it is noted where they are saved.
        given: the variable with the value of a variable of the forward pass in the backward pass; that itself, unless a
            call gives it.
        counters: the counters of loops, which are recomputed rather than saved.
        together: the elements that the backward pass of a compute set may read: of a value they are saved together.
    """

    def __init__(self, graph: Graph, certain: ElementSet, given: Callable[[Variable], Variable] = lambda own: own):
        self.graph, self.certain, self.given = graph, certain, given
        self.values: dict[tuple[Body, int, Variable], _SavedValue] = {}
        self.settled: set[_SavedValue] = set()
        self.together = ElementSet()
        self.counters = Counters(graph, certain, self.saved_already)

    def value(
        self,
        body: Body,
        number: int,
        variable: Variable,
        needed: Elements,
        later: ElementSet,
        read: set[Variable] | None = None,
    ) -> Variable:
        """The variable with the value of a variable before a step, when the backward pass reads it.

        Args:
            body: the body that the step is in.
            number: its place there.
            variable: whose value.
            needed: which of its elements are read.
            later: the elements that are written later in the forward pass.
            read: where the variables go that are read in its place; None where none may be.
        """
        is_kept = (needed & later.of(variable)).first is None
        if is_kept and (needed - self.certain.of(variable)).first is None:
            return variable
        needed |= self.together.of(variable) & later.of(variable)
        body, number = body.made(number, variable)
        counted = self.counters.value(body, number, variable, later, read)
        return self.copy_of(body, number, variable, needed) if counted is None else counted

    def copy_of(
        self, body: Body, number: int, variable: Variable, needed: Elements, of: _SavedValue | None = None
    ) -> Variable:
        """The variable with a copy of a variable's value, taken right before a step.

        Args:
            body: the body that the step is in.
            number: its place there.
            variable: whose value.
            needed: which of its elements are read.
            of: the value of a function's that it is.
        """
        key = body, number, variable
        if key not in self.values:
            self.values[key] = self._saved(variable, body, number, needed, of)
        else:
            self.values[key].needed |= needed
        own = self.values[key]
        return own.held if own.stack is not None else self.given(own.held)

    def saved_already(self, body: Body, number: int, variable: Variable, needed: Elements) -> Variable | None:
        """The variable with a copy of a variable's value, taken right before a step, if these elements are saved."""
        own = self.values.get((body, number, variable))
        if own is None or (needed - own.needed).first is not None:
            return None
        return self.copy_of(body, number, variable, needed)

    def held_by(self, variable: Variable) -> _SavedValue | None:
        """The value that a variable, or the rows of one, hold."""
        for own in self.values.values():
            if variable is (own.held if own.stack is None else variable_of(own.stack)):
                return own
        return None

    def likenesses(self) -> dict[Variable, Variable]:
        """The variables that hold values, or values made again, and those of which; stacks hold several, row by row."""
        found = {made: of for (_, _, of), made in self.counters.found.items() if made is not None}
        found |= {own.held: own.variable for own in self.values.values()}
        return found | {variable_of(own.stack): own.variable for own in self.values.values() if own.stack is not None}

    def count_of(self, body: Body, number: int, loop: Loop) -> Tensor:
        """How many iterations a loop on a condition has had, in the backward pass.

        Args:
            body: the body that the loop is in.
            number: its place there.
            loop: the loop.
        """
        variable = variable_of(loop.turn)
        if not body.loops and not body.is_branch:
            return Tensor(self.given(variable), Index(0))
        return Tensor(self.copy_of(body, number + 1, variable, Elements.everything(1)), Index(0))

    def _saved(
        self, variable: Variable, body: Body, number: int, needed: Elements, of: _SavedValue | None
    ) -> _SavedValue:
        graph, loops = self.graph, body.loops
        with graph.scope(body.scope):
            name = graph.free_name((variable if of is None else of.origin).name)
            if not loops:
                held = graph.add_variable(name, variable.shape, variable.dtype)
                return _SavedValue(variable, body, number, needed, variable_of(held), None, of)
            turns = 1
            for loop in loops:
                turns *= loop.turns
            stack = graph.add_variable(name, (turns, *variable.shape), variable.dtype)
        _, backward = self._places(body)
        with graph.record() as taken:
            row = take_turn(graph, whole_view(self.given(variable_of(stack))), backward)
        body.prelude.append(taken)
        return _SavedValue(variable, body, number, needed, variable_of(row), stack, of)

    def _places(self, body: Body) -> tuple[Tensor, Tensor]:
        """The place of an iteration among those of all loops around a body, forward and backward."""
        if body.forward is None or body.backward is None:
            outer = None if body.around is None else body.around[0]
            if body.loop is None or outer is None or not outer.loops:
                assert body.loop is not None or outer is not None
                body.forward, body.backward = (
                    (body.loop.turn, body.loop.back) if body.loop is not None else self._places(outer)  # type: ignore[arg-type]
                )
            else:
                forward, backward = self._places(outer)
                with self.graph.scope(body.scope):
                    body.forward = self._place(forward, body.loop.turn, body.loop.turns, body.before.setdefault(0, []))
                body.backward = self._place(backward, body.loop.back, body.loop.turns, body.prelude)
        return body.forward, body.backward

    def _place(self, outer: Tensor, inner: Tensor, turns: int, programs: list[Program]) -> Tensor:
        placing, made = new_vertices(self.graph, "place", place_of, outer=outer, inner=inner, turns=turns)
        programs.append(placing)
        return made

    def settle(self, body: Body) -> list[Program]:
        """Note in a body, and in those within it, the steps that save values there; the steps before all of it."""
        found: list[Program] = []
        for number in sorted({number for own, number, _ in self.values if own is body}):
            for key, value in self.values.items():
                if key[:2] == (body, number) and value not in self.settled:
                    self.settled.add(value)
                    found += self._save(value)
        for own in body.inner:
            found += self.settle(own)
        return found

    def _save(self, own: _SavedValue) -> list[Program]:
        """Save a value where it is made."""
        graph, before = self.graph, own.body.before.setdefault(own.number, [])
        source, elements = whole_view(own.variable), own.elements
        if own.stack is None:
            before += [Copy(a, b) for a, b in parts(source, whole_view(own.held), elements)]
            return [zeros(whole_view(own.held))] if own.body.is_branch else []
        with graph.scope(own.body.scope):
            first: list[Program] = [zeros(own.stack)]
            if not elements.is_all:
                row = new_tensor(graph, "row", own.variable.shape, own.variable.dtype)
                first.append(zeros(row))
                before += [Copy(a, b) for a, b in parts(source, row, elements)]
                source = row
            with graph.record() as put:
                put_turn(graph, source, own.stack, self._places(own.body)[0])
            before.append(put)
        return first


def parts(source: Tensor, destination: Tensor, elements: Elements) -> Sequence[tuple[Tensor, Tensor]]:
    """Some elements of two tensors of one shape, as views."""
    if elements.is_all:
        return [(source, destination)]
    return [(Tensor(source.source, own), Tensor(destination.source, own)) for own in elements.indices()]
