"""Initialized: every element that is read has been given a value, by the host or by an earlier step.

In come a plan and the elements that have a value before it; out comes which have one afterwards. Of each element a
step says that it has a value then, that it has none, or that nothing changes. So what any number of turns of a loop do
is what one turn does, and is found once for each body (what it gives a value, and what it leaves one, from nothing
and from everything); and a body is looked through once, with what has a value whenever a turn begins. The time is
linear in the program, however deep its loops are nested.

Source: definite assignment, as a data-flow problem with meet over all paths: A. Aho, M. Lam, R. Sethi and J. Ullman,
Compilers (2006), chapter 9.3.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import NamedTuple

from codelet.errors import Line, UninitializedReadError
from codelet.views.index import Axis
from codelet.views.tensor import Tensor, Variable
from lowering.plan.elements import ElementSet
from lowering.plan.plan import Plan
from lowering.plan.steps import (
    AbortStep,
    CallStep,
    CopyStep,
    ExecuteStep,
    FunctionBody,
    PrintStep,
    RepeatStep,
    Step,
    StreamStep,
    SwitchStep,
    UndefStep,
    WhileStep,
)

_FEW = 4  # sets of elements with which a function was looked through that are remembered


class _Effect(NamedTuple):
    """What some steps do: `given` has a value afterwards in any case, of the others those of `left` that had one."""

    given: ElementSet
    left: ElementSet

    def on(self, written: ElementSet) -> ElementSet:
        """What has a value afterwards."""
        after = written.copy()
        after.intersect(self.left)
        after.unite(self.given)
        return after


class _Reader:
    """Looks through the steps of a plan."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.effects: dict[Hashable, _Effect] = {}
        self.passed: dict[FunctionBody, list[ElementSet]] = {}

    def need(
        self, written: ElementSet, tensor: Tensor, by: str, line: Line | None, axes: tuple[Axis, ...] = ()
    ) -> None:
        """See that all elements of a view have a value."""
        missing = written.first_missing(tensor, axes)
        if missing is None:
            return
        variable, _ = self.plan.graph.locate(missing)
        name = variable.name
        raise UninitializedReadError(
            f"{self.plan.graph.element_text(missing)} is read by {by} before anything has given it a value",
            expected=f"that {name!r} is given a value from outside, or written by an earlier step",
            fix=f"inputs=[{name!r}, ...] where the graph is lowered, or engine.write({{{name!r}: ...}})",
            line=line,
        )

    def effect(self, key: Hashable, steps: Sequence[Step], index: Variable | None = None) -> _Effect:
        """What some steps do, after a variable that counts them is set."""
        if key not in self.effects:
            given, left = ElementSet(), ElementSet()
            for variable in self.plan.variables:
                left.add_variable(variable)
            for written in (given, left):
                if index is not None:
                    written.add_variable(index)
                self.follow(written, steps, looking=False)
            self.effects[key] = _Effect(given, left)
        return self.effects[key]

    def follow(self, written: ElementSet, steps: Sequence[Step], *, looking: bool) -> None:
        """Go through steps, `written` being what has a value; `looking` at what they read."""
        for step in steps:
            if looking:
                self.look(written, step)
            match step:
                case ExecuteStep():
                    for family in step.families:
                        for field in family.fields:
                            if field.is_written and field.tensor is not None:
                                written.add(field.tensor, family.axes)
                case CopyStep():
                    written.add(step.destination, ())
                case RepeatStep():
                    self.repeat(written, step, looking)
                case WhileStep():
                    self.loop(written, step, looking)
                case SwitchStep():
                    ends = [written.copy() for _ in step.branches]
                    for end, branch in zip(ends, step.branches, strict=True):
                        self.follow(end, branch, looking=looking)
                    written.replace(ends[0])
                    for end in ends[1:]:
                        written.intersect(end)
                case CallStep():
                    self.call(written, step, looking)
                case StreamStep():
                    if step.stream.is_input:
                        written.add(step.tensor, ())
                case UndefStep():
                    written.remove(step.tensor)
                case _:
                    assert isinstance(step, (PrintStep, AbortStep)), step

    def look(self, written: ElementSet, step: Step) -> None:
        """See that what a step reads, beside what it is made of, has a value."""
        match step:
            case ExecuteStep():
                for family in step.families:
                    for field in family.fields:
                        if field.is_read and field.tensor is not None:
                            by = f"field {field.name!r} of codelet {family.codelet.name!r} in compute set {step.name!r}"
                            self.need(written, field.tensor, by, family.lines[0], family.axes)
            case CopyStep():
                self.need(written, step.source, f"a copy to {step.destination}", step.line)
            case SwitchStep():
                self.need(written, step.control, "a choice between programs", step.line)
            case PrintStep():
                self.need(written, step.tensor, "a print", step.line)
            case AbortStep():
                self.need(written, step.predicate, "the predicate of an abort", step.line)
            case StreamStep() if not step.stream.is_input:
                self.need(written, step.tensor, f"a copy to stream {step.stream.name!r}", step.line)

    def repeat(self, written: ElementSet, step: RepeatStep, looking: bool) -> None:
        if not step.count:
            return
        after = self.effect(step, step.body, step.index).on(written)
        if looking:
            if step.count > 1:
                written.intersect(after)
            if step.index is not None:
                written.add_variable(step.index)
            self.follow(written, step.body, looking=True)
        written.replace(after)

    def loop(self, written: ElementSet, step: WhileStep, looking: bool) -> None:
        """There may be no turn, and there may be several."""
        condition = self.effect((step, "condition"), step.condition)
        body = self.effect((step, "body"), step.body)
        first = condition.on(written)  # where the predicate is looked at for the first time, and then from turn to turn
        second = condition.on(body.on(first))
        turning = first.copy()
        turning.intersect(second)
        if looking:
            # The condition runs first, and after any turn; the body where the predicate was looked at.
            written.intersect(body.on(first))
            written.intersect(body.on(second))
            self.follow(written, step.condition, looking=True)
            self.need(turning, step.predicate, "the predicate of a loop", step.line)
            self.follow(turning.copy(), step.body, looking=True)
        written.replace(turning)

    def call(self, written: ElementSet, step: CallStep, looking: bool) -> None:
        function = step.function
        parameters = [self.plan.graph.variable(variable.name) for variable in function.parameters]
        for parameter, argument in zip(parameters, step.arguments, strict=True):
            written.bind(argument, parameter)
        effect = self.effect(function, function.body)
        if looking:
            passed = self.passed.setdefault(function, [])
            if not any(written.includes(before) for before in passed):
                self.follow(written.copy(), function.body, looking=True)
                passed[:] = [*passed[1 - _FEW :], written.copy()]
        written.replace(effect.on(written))
        for k in function.written:
            written.bind(parameters[k], step.arguments[k])
        for parameter in parameters:
            written.remove(parameter)


def given_elements(plan: Plan) -> ElementSet:
    """The elements that have a value before anything runs: those of inputs and constants."""
    written = ElementSet()
    for variable in plan.variables:
        if variable.value is not None or variable in plan.inputs:
            written.add_variable(variable)
    return written


def check_initialized(plan: Plan, written: ElementSet) -> None:
    """Every element that is read was given a value before, or is written by an earlier step.

    `written` holds what has a value before the plan runs, and afterwards what has one then.

    Raises:
        UninitializedReadError: naming the element and what reads it.
    """
    reader = _Reader(plan)
    reader.follow(written, plan.steps, looking=True)
    for tensor in plan.outputs:
        reader.need(written, tensor, "the caller", None)


class _Finder(_Reader):
    """Looks through the steps of a plan for what has no value where it is read, and takes it as given from then on."""

    def __init__(self, plan: Plan):
        super().__init__(plan)
        self.found: set[Variable] = set()

    def need(
        self, written: ElementSet, tensor: Tensor, by: str, line: Line | None, axes: tuple[Axis, ...] = ()
    ) -> None:
        """Keep the variables of which an element has no value."""
        while (missing := written.first_missing(tensor, axes)) is not None:
            variable, _ = self.plan.graph.locate(missing)
            self.found.add(variable)
            written.add_variable(variable)


def read_before_written(plan: Plan, given: Collection[Variable]) -> frozenset[Variable]:
    """The variables of which a plan may read an element that none of its steps has written before.

    By the rule of `check_initialized`: of the branches of a choice any may have run, and of a loop no turn.

    Args:
        plan: the plan.
        given: those that have a value before it.
    """
    written = ElementSet()
    for variable in given:
        written.add_variable(variable)
    finder = _Finder(plan)
    finder.follow(written, plan.steps, looking=True)
    return frozenset(finder.found)
