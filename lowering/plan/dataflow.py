"""Dataflow: which variables every step reads and writes, and which elements are written when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from codelet.views.index import Axis
from codelet.views.tensor import Tensor, Variable, source_text, source_variables
from lowering.plan.elements import Elements
from lowering.plan.plan import Plan
from lowering.plan.steps import (
    AbortStep,
    CallStep,
    CopyStep,
    ExecuteStep,
    FunctionBody,
    PrintStep,
    RepeatStep,
    RotateStep,
    Step,
    StreamStep,
    SwitchStep,
    UndefStep,
    WhileStep,
    bodies,
    with_bodies,
)


def _ordered(variables: Iterable[Variable]) -> tuple[Variable, ...]:
    return tuple(sorted(set(variables), key=lambda variable: variable.number))


def _named(tensor: Tensor) -> list[Variable]:
    return list(source_variables(tensor.source))


def _of_all(steps: Iterable[Step]) -> tuple[list[Variable], list[Variable]]:
    own = list(steps)
    return [v for step in own for v in step.reads], [v for step in own for v in step.writes]


def _beside(step: RepeatStep | WhileStep | SwitchStep) -> tuple[list[Variable], list[Variable]]:
    """What a step reads and writes beside what it is made of."""
    if isinstance(step, RepeatStep):
        return [], [] if step.index is None else [step.index]
    if isinstance(step, WhileStep):
        flag = [] if step.abort is None else [step.abort]
        return _named(step.predicate) + flag, flag
    return _named(step.control), []


def flow_step(step: Step) -> Step:
    """A step with its reads and writes filled in; those of what it is made of are there already, and are included."""
    match step:
        case ExecuteStep():
            connected = [
                (f, f.tensor.source) for family in step.families for f in family.fields if f.tensor is not None
            ]
            reads = [variable for f, source in connected if f.is_read for variable in source_variables(source)]
            writes = [variable for f, source in connected if f.is_written for variable in source_variables(source)]
        case CopyStep(source, destination):
            reads, writes = _named(source), _named(destination)
        case RotateStep():
            return step
        case RepeatStep() | WhileStep() | SwitchStep():
            reads, writes = _beside(step)
            inside = _of_all(inner for body in bodies(step) for inner in body)
            reads, writes = reads + inside[0], writes + inside[1]
        case CallStep():
            function = step.function
            pairs = list(zip(function.parameters, step.arguments, strict=True))
            given = [variable for p, tensor in pairs if p in function.reads for variable in _named(tensor)]
            # What an argument holds is kept where the body does not write its parameter.
            given += [variable for k in function.written for variable in _named(step.arguments[k])]
            reads = given + [variable for variable in function.reads if variable not in function.parameters]
            writes = [variable for k in function.written for variable in _named(step.arguments[k])]
            writes += [variable for variable in function.writes if variable not in function.parameters]
        case PrintStep():
            reads, writes = _named(step.tensor), []
        case AbortStep():
            reads, writes = [*_named(step.predicate), step.abort], [step.abort]
        case StreamStep():
            own = _named(step.tensor)
            reads, writes = ([], own) if step.stream.is_input else (own, [])
        case UndefStep():
            reads, writes = [], []
        case _:
            raise AssertionError(step)
    return replace(step, reads=_ordered(reads), writes=_ordered(writes))


class _Flow:
    """Fills in the reads and writes of steps, each step and the body of each function once."""

    def __init__(self) -> None:
        self.made: dict[Step | FunctionBody, Step | FunctionBody] = {}

    def body(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        return tuple([self.step(step) for step in steps])

    def function(self, function: FunctionBody) -> FunctionBody:
        if function.reads or function.writes:
            return function  # filled in before
        if function not in self.made:
            body = self.body(function.body)
            reads, writes = _of_all(body)
            self.made[function] = replace(function, body=body, reads=_ordered(reads), writes=_ordered(writes))
        return self.made[function]  # type: ignore[return-value]

    def step(self, step: Step) -> Step:
        if step not in self.made:
            filled = step
            if isinstance(step, CallStep):
                filled = replace(step, function=self.function(step.function))
            elif bodies(step):
                filled = with_bodies(step, [self.body(body) for body in bodies(step)])
            self.made[step] = flow_step(filled)
        return self.made[step]  # type: ignore[return-value]


def flow(plan: Plan) -> Plan:
    """The plan with reads and writes of every step, in order."""
    return replace(plan, steps=_Flow().body(plan.steps))


# --- elements -----------------------------------------------------------------------------------------


class ElementSet:
    """A set of elements of the graph: of each variable that has any, which."""

    def __init__(self) -> None:
        self._held: dict[Variable, Elements] = {}

    def copy(self) -> ElementSet:
        """A set with the same elements."""
        made = ElementSet()
        made._held = dict(self._held)
        return made

    def _of(self, variable: Variable) -> Elements:
        return self._held.get(variable) or Elements.nothing(variable.size)

    def add_variable(self, variable: Variable) -> None:
        """Add all elements of a variable."""
        self._held[variable] = Elements.everything(variable.size)

    def remove_variable(self, variable: Variable) -> None:
        """Remove all elements of a variable."""
        self._held.pop(variable, None)

    def flags(self, variable: Variable) -> np.ndarray:
        """Which elements of a variable are in the set, bool of shape (size,); not to be written to."""
        return self._of(variable).as_flags()

    def add(self, tensor: Tensor, axes: tuple[Axis, ...]) -> None:
        """Add the elements of a view at all positions of the grid.

        Raises:
            SizeError: they are too many to be told apart one by one.
        """
        source = tensor.source
        if isinstance(source, Variable):
            held = self._of(source)
            if not held.is_all:
                self._held[source] = held | Elements.of_view(tensor.index, axes, source.size, source.name)
            return
        touched = Elements.of_view(tensor.index, axes, source.size, source_text(source))
        if touched.is_all:
            for part, _ in source.regions():
                self.add(part, ())
            return
        marked = touched.as_flags().reshape(source.shape)
        for part, box in source.regions():
            chosen = marked[box]
            if chosen.all():
                self.add(part, ())
            elif chosen.any():
                self.add(part.flatten()[np.flatnonzero(chosen)], ())

    def remove(self, tensor: Tensor) -> None:
        """Remove the elements of a view without symbols."""
        gone = ElementSet()
        gone.add(tensor, ())
        for variable, elements in gone._held.items():
            self._held[variable] = self._of(variable) - elements

    def bind(self, source: Tensor, destination: Tensor) -> None:
        """Hold of each element of `destination` what is held of that of `source`; padding counts as held."""
        if all(self._of(variable).is_all for variable in source_variables(source.source)):
            self.add(destination, ())
            return
        elements = source.elements().reshape(-1)
        held = elements < 0
        for variable in source_variables(source.source):
            inside = (elements >= variable.first_element) & (elements < variable.first_element + variable.size)
            held[inside] = self.flags(variable)[elements[inside] - variable.first_element]
        targets = destination.elements().reshape(-1)
        for variable in source_variables(destination.source):
            inside = (targets >= variable.first_element) & (targets < variable.first_element + variable.size)
            flags = self.flags(variable).copy()
            flags[targets[inside] - variable.first_element] = held[inside]
            self._held[variable] = Elements.of_flags(flags)

    def equals(self, other: ElementSet) -> bool:
        """Whether two sets hold the same elements."""
        return all(self._of(variable).equals(other._of(variable)) for variable in {*self._held, *other._held})

    def intersect(self, other: ElementSet) -> None:
        """Keep only what the other set holds too."""
        self._held = {variable: own & other._of(variable) for variable, own in self._held.items()}

    def unite(self, other: ElementSet) -> None:
        """Hold what the other set holds as well."""
        for variable, others in other._held.items():
            self._held[variable] = self._of(variable) | others

    def includes(self, other: ElementSet) -> bool:
        """Whether it holds all that the other set holds."""
        return all((others - self._of(variable)).first is None for variable, others in other._held.items())

    def replace(self, other: ElementSet) -> None:
        """Hold what the other set holds."""
        self._held = dict(other._held)

    def first_missing(self, tensor: Tensor, axes: tuple[Axis, ...]) -> int | None:
        """The graph's number of an element of a view that is not in the set; None when all are.

        Raises:
            SizeError: they are too many to be told apart one by one.
        """
        if all(self._of(variable).is_all for variable in source_variables(tensor.source)):
            return None
        needed = ElementSet()
        needed.add(tensor, axes)
        for variable, wanted in needed._held.items():
            missing = (wanted - self._of(variable)).first
            if missing is not None:
                return variable.first_element + missing
        return None
