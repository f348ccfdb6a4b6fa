"""Initialized: every element that is read has been given a value, by the host or by an earlier step.

In come a plan and the elements that have a value before it; out comes which have one afterwards. Of each element a
step says that it has a value then, that it has none, or that nothing changes. Where ways meet, an element has a value
that has one on all of them. See `lowering/plan/solver.py`.

Source: definite assignment, A. Aho, M. Lam, R. Sethi and J. Ullman, Compilers (2006), chapter 9.3.
"""

from __future__ import annotations

import functools
from collections.abc import Collection

from codelet.errors import UninitializedReadError
from codelet.views.sources import Variable
from lowering.plan.elements import ElementSet
from lowering.plan.plan import Plan
from lowering.plan.solver import Elementwise
from lowering.plan.steps import CallStep, FunctionBody, Step
from lowering.plan.touch import Touch, wholly_written

_FEW = 4  # sets of elements with which a function was looked through that are remembered


class _Reader(Elementwise[ElementSet]):
    """Goes through the steps of a plan and checks the reads of each; a fact is the elements that have a value."""

    forward = True

    def __init__(self, plan: Plan):
        super().__init__(ElementSet(), ElementSet.of_variables(plan.variables))
        self.plan = plan
        self.passed: dict[FunctionBody, list[ElementSet]] = {}
        self.touches = functools.cache(self._touches)
        self.written = functools.cache(lambda step: wholly_written(self.touches(step)))

    def _touches(self, step: Step) -> list[Touch]:
        """The variables that a step touches without the flag of aborts, which has a value always."""
        return [touch for touch in step.touches() if touch.tensor.source is not self.plan.abort]

    def meet(self, one: ElementSet, other: ElementSet) -> ElementSet:
        return one & other

    def copied(self, fact: ElementSet) -> ElementSet:
        return fact.copy()

    def own(self, step: Step, fact: ElementSet) -> ElementSet:
        whole = self.written(step)
        for variable in whole:
            fact.add_variable(variable)
        for touch in self.touches(step):
            if touch.is_written:
                if touch.tensor.source not in whole:
                    fact.add(touch.tensor, touch.axes)
            elif touch.mode == "end":
                fact.remove(touch.tensor)
        return fact

    def enter(self, step: CallStep, fact: ElementSet) -> ElementSet:
        within = fact.copy()
        for parameter, argument in zip(step.function.parameters, step.arguments, strict=True):
            within.bind(argument, self.plan.graph.variable(parameter.name))
        return within

    def leave(self, step: CallStep, reached: ElementSet, fact: ElementSet) -> ElementSet:
        for k in step.function.written:
            fact.bind(self.plan.graph.variable(step.function.parameters[k].name), step.arguments[k])
        for parameter in step.function.parameters:
            fact.remove_variable(parameter)
        return fact

    def looks_into(self, step: CallStep, fact: ElementSet) -> bool:
        """Unless nothing less was there when the function was looked at before."""
        passed = self.passed.setdefault(step.function, [])
        if any(fact.includes(before) for before in passed):
            return False
        passed[:] = [*passed[1 - _FEW :], fact]
        return True

    def look(self, step: Step, fact: ElementSet) -> None:
        for touch in self.touches(step):
            if touch.is_read:
                self.need(fact, touch)

    def need(self, written: ElementSet, touch: Touch) -> None:
        """See that all elements of a view have a value."""
        missing = written.first_missing(touch.tensor, touch.axes)
        if missing is None:
            return
        variable, _ = self.plan.graph.locate(missing)
        name = variable.name
        raise UninitializedReadError(
            f"{self.plan.graph.element_text(missing)} is read by {touch.by()} before anything has given it a value",
            expected=f"that {name!r} is given a value from outside, or written by an earlier step",
            fix=variable.mend,
            line=touch.line,
        )


def given_elements(plan: Plan) -> ElementSet:
    """The elements that have a value before anything runs: those of inputs and constants."""
    return ElementSet.of_variables(v for v in plan.variables if v.value is not None or v in plan.inputs)


def check_initialized(plan: Plan, written: ElementSet) -> ElementSet:
    """Every element that is read was given a value before, or is written by an earlier step.

    Args:
        plan: the plan.
        written: the elements with a value before it.

    Returns:
        The elements with a value after it.

    Raises:
        UninitializedReadError: naming the element and its reader.
    """
    reader = _Reader(plan)
    after = reader.visit(plan.steps, written)
    for tensor in plan.outputs:
        reader.need(after, Touch("read", tensor, lambda: "the caller"))
    return after


def written_by(plan: Plan) -> ElementSet:
    """The elements that have a value after a plan, wherever all that it reads before writing it has one before.

    Args:
        plan: without calls but of functions with derivatives.
    """
    before = [*read_before_written(plan, ()), *(variable for variable in plan.variables if variable.value is not None)]
    return _Finder(plan).visit(plan.steps, ElementSet.of_variables(before))


class _Finder(_Reader):
    """Goes through the steps of a plan for elements without a value where they are read."""

    def __init__(self, plan: Plan):
        super().__init__(plan)
        self.found: set[Variable] = set()

    def need(self, written: ElementSet, touch: Touch) -> None:
        """Keep the variables of which an element has no value."""
        self.found |= written.missing(touch.tensor, touch.axes).keys()


def read_and_written(plan: Plan, given: Collection[Variable]) -> tuple[frozenset[Variable], ElementSet]:
    """The elements that a plan, without calls, may read that none of its steps has written before, and those with a
    value after it.

    By the rule of `check_initialized`: of the branches of a choice any may have run, and of a loop no iteration.

    Args:
        plan: the plan.
        given: the variables that have a value before it.

    Returns:
        The variables of which it may read an element first, and the elements that have a value on every way.
    """
    finder = _Finder(plan)
    after = finder.visit(plan.steps, ElementSet.of_variables(given))
    return frozenset(finder.found), after


def read_before_written(plan: Plan, given: Collection[Variable]) -> frozenset[Variable]:
    """The variables of which a plan, without calls, may read an element first: those of `read_and_written`."""
    return read_and_written(plan, given)[0]
