"""Zeros: few copies of zeros are left in a plan, and each is of all of a variable.

A variable without a value is an array of zeros where fast execution first needs it. On the machine it holds anything,
so the backward pass copies zeros to the elements of cotangents that no contribution reaches, border by border.
In comes a plan, out the same with other copies of zeros:

- None is left to elements that hold nothing but zero there. Which may hold something else is found by
  `lowering/plan/solver.py`, so copies in loops go too, where nothing else in the loop writes these elements.
- Steps that write a part of a variable and zeros to all others, before anything reads it, write into an array of zeros
  instead. A loop then carries no such variable from turn to turn, and XLA makes it where it is read.

Copies to all of a variable stay. Variables that functions touch are left alone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence, Set
from dataclasses import dataclass, replace

import numpy as np

from codelet.views.index import Index
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor, whole_view
from lowering.plan.dataflow import flow_step, ordered
from lowering.plan.elements import Elements, ElementSet
from lowering.plan.plan import Plan
from lowering.plan.solver import Elementwise
from lowering.plan.steps import CallStep, CopyStep, Step
from lowering.plan.walk import all_steps, bodies, with_bodies


def _is_of_zeros(tensor: Tensor) -> bool:
    """Whether a view is of a constant all of whose bits are zero, as those of -0.0 are not."""
    source = tensor.source
    if not isinstance(source, Variable) or source.value is None:
        return False
    return not np.ascontiguousarray(source.value).reshape(-1).view(np.uint8).any()


class _NonZero(Elementwise[ElementSet]):
    """Finds the copies of zeros to nothing but zeros; a fact is the elements that may hold something else.

    Attributes:
        watched: the variables that are asked about.
        needed: the copies of zeros that anywhere write one to such an element.
    """

    forward = True

    def __init__(self, zeros: Set[Step], watched: Collection[Variable]):
        super().__init__(ElementSet(), ElementSet.of_variables(watched))
        self.zeros, self.watched, self.needed = zeros, frozenset(watched), set[Step]()

    def meet(self, one: ElementSet, other: ElementSet) -> ElementSet:
        return one | other

    def copied(self, fact: ElementSet) -> ElementSet:
        return fact.copy()

    def own(self, step: Step, fact: ElementSet) -> ElementSet:
        for touch in step.touches():
            if touch.is_written and not self.watched.isdisjoint(touch.variables):
                change = fact.remove if step in self.zeros else fact.add
                change(touch.tensor, touch.axes)
        return fact

    def look(self, step: Step, fact: ElementSet) -> None:
        if isinstance(step, CopyStep) and step in self.zeros:
            written = ElementSet()
            written.add(step.destination, ())
            if not (written & fact).is_empty:
                self.needed.add(step)


@dataclass
class _PartsWritten:
    """Steps of a body that write parts of a variable, one after another, with nothing that reads it between.

    Attributes:
        start: the place of the first of them.
        written: the elements that they write.
        zeros: by their places, those that copy zeros to elements which none before them writes.
    """

    start: int
    written: Elements
    zeros: dict[int, Step]


def _parts_written(step: Step) -> dict[Variable, Elements]:
    """Of each variable that a step writes, and does not read, the elements."""
    parts: dict[Variable, Elements] = {}
    for touch in () if bodies(step) else step.touches():
        source = touch.tensor.source
        if touch.is_written and isinstance(source, Variable) and source not in step.reads:
            elements = Elements.of_view(touch.tensor.index, touch.axes, source.size, source.name)
            parts[source] = parts.get(source, Elements.nothing(source.size)) | elements
    return parts


def _zeros_to_all(variable: Variable, like: Step) -> Step:
    """A copy to all of a variable of the zero that another copies."""
    assert isinstance(like, CopyStep)
    zero = Tensor(like.source.source, Index(0, variable.shape, (0,) * len(variable.shape)))
    return flow_step(CopyStep(zero, whole_view(variable), line=like.line))


@dataclass(frozen=True)
class _FewerZeros:
    """Writes bodies anew with few copies of zeros.

    Attributes:
        zeros: the copies of zeros.
        idle: those that write them to nothing but zeros.
        watched: the variables that are looked at.
    """

    zeros: Set[Step]
    idle: Set[Step]
    watched: frozenset[Variable]

    def filled(self, steps: Sequence[Step]) -> Iterator[tuple[Variable, _PartsWritten]]:
        """The variables of which steps write a part, and zeros to all others, before any reads it."""
        unfinished: dict[Variable, _PartsWritten] = {}
        for k, step in enumerate(steps):
            touched = self.watched.intersection((*step.reads, *step.writes))
            written = _parts_written(step) if touched else {}
            for variable in ordered(touched):
                parts, elements = unfinished.pop(variable, None), written.get(variable)
                if elements is None or elements.is_all:
                    continue
                parts = parts or _PartsWritten(k, Elements.nothing(variable.size), {})
                if step in self.zeros and (elements & parts.written).first is None:
                    parts.zeros[k] = step
                parts.written = parts.written | elements
                if not parts.written.is_all:
                    unfinished[variable] = parts
                elif any(copy not in self.idle for copy in parts.zeros.values()):
                    yield variable, parts

    def body(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """What becomes of the steps of a body, and of those in its loops and choices."""
        places = [[self.around(step)] if step not in self.idle else [] for step in steps]
        for variable, parts in self.filled(steps):
            zeros = list(parts.zeros.items())
            for k, _ in zeros:
                places[k] = []
            places[parts.start].insert(0, _zeros_to_all(variable, zeros[0][1]))
        return tuple(step for place in places for step in place)

    def around(self, step: Step) -> Step:
        """A step with what it is made of written anew; functions stay as they are."""
        if isinstance(step, CallStep):
            return step
        inside = [self.body(body) for body in bodies(step)]
        return step if inside == [*bodies(step)] else flow_step(with_bodies(step, inside))


def copy_few_zeros(plan: Plan) -> Plan:
    """The plan with few copies of zeros, each to all of a variable where that may be."""
    each = [*dict.fromkeys(all_steps(plan.steps))]
    zeros = {step for step in each if isinstance(step, CopyStep) and _is_of_zeros(step.source)}
    calls = [step for step in each if isinstance(step, CallStep)]
    called = {variable for step in calls for flow in (step, step.function) for variable in (*flow.reads, *flow.writes)}
    parts = {step for step in zeros if not step.destination.is_whole_variable and called.isdisjoint(step.writes)}
    watched = frozenset(variable for step in parts for variable in step.writes)
    if not watched:
        return plan
    asked = _NonZero(zeros, watched)
    asked.visit(plan.steps, ElementSet.of_variables(watched.intersection(plan.inputs)))
    steps = _FewerZeros(zeros, parts - asked.needed, watched).body(plan.steps)
    return plan if steps == plan.steps else replace(plan, steps=steps)
