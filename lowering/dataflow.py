"""Dataflow: which variables every step reads and writes, and which elements are written when."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from codelet.index import Axis, Index
from codelet.tensor import Tensor, Variable, source_variables
from lowering.plan import (
    AbortStep,
    CallStep,
    CopyStep,
    ExecuteStep,
    FunctionBody,
    Plan,
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
    """A set of elements of the graph, as one flag for each element of each variable that has any."""

    def __init__(self) -> None:
        self._flags: dict[Variable, np.ndarray | bool] = {}  # True alone stands for all of a variable

    def copy(self) -> ElementSet:
        """A set with the same elements."""
        made = ElementSet()
        made._flags = {v: flags if flags is True else flags.copy() for v, flags in self._flags.items()}  # type: ignore[union-attr]
        return made

    def add_variable(self, variable: Variable) -> None:
        """Add all elements of a variable."""
        self._flags[variable] = True

    def remove_variable(self, variable: Variable) -> None:
        """Remove all elements of a variable."""
        self._flags.pop(variable, None)

    def flags(self, variable: Variable) -> np.ndarray:
        """Which elements of a variable are in the set, bool of shape (size,); not to be written to."""
        return self._array(variable)

    def add(self, tensor: Tensor, axes: tuple[Axis, ...]) -> None:
        """Add the elements of a view at all positions of the grid."""
        if tensor.is_whole_variable:
            self.add_variable(tensor.source)  # type: ignore[arg-type]
            return
        if isinstance(tensor.source, Variable):
            variable = tensor.source
            flags = self._flags.get(variable, False)
            if flags is True:
                return
            if flags is False:
                flags = np.zeros(variable.size, bool)
            assert isinstance(flags, np.ndarray)
            _mark(flags, tensor.index, axes)
            self._flags[variable] = True if flags.all() else flags
            return
        marked = np.zeros(tensor.source.size, bool)
        _mark(marked, tensor.index, axes)
        for part, box in tensor.source.regions():
            chosen = marked.reshape(tensor.source.shape)[box]
            if chosen.all():
                self.add(part, ())
            elif chosen.any():
                self.add(part.flatten()[np.flatnonzero(chosen)], ())

    def _array(self, variable: Variable) -> np.ndarray:
        """The flags of a variable, as an array to be read."""
        return np.broadcast_to(self._flags.get(variable, False), variable.size)

    def remove(self, tensor: Tensor) -> None:
        """Remove the elements of a view without symbols."""
        if tensor.is_whole_variable:
            self._flags.pop(tensor.source, None)  # type: ignore[arg-type]
            return
        gone = ElementSet()
        gone.add(tensor, ())
        for variable in gone._flags:
            self._flags[variable] = self._array(variable) & ~gone._array(variable)

    def bind(self, source: Tensor, destination: Tensor) -> None:
        """Hold of each element of `destination` what is held of that of `source`; padding counts as held."""
        if all(self._flags.get(variable) is True for variable in source_variables(source.source)):
            self.add(destination, ())
            return
        elements = source.elements().reshape(-1)
        held = elements < 0
        for variable in source_variables(source.source):
            inside = (elements >= variable.first_element) & (elements < variable.first_element + variable.size)
            held[inside] = self._array(variable)[elements[inside] - variable.first_element]
        targets = destination.elements().reshape(-1)
        for variable in source_variables(destination.source):
            inside = (targets >= variable.first_element) & (targets < variable.first_element + variable.size)
            flags = self._array(variable).copy()
            flags[targets[inside] - variable.first_element] = held[inside]
            self._flags[variable] = flags

    def equals(self, other: ElementSet) -> bool:
        """Whether two sets hold the same elements."""
        variables = {*self._flags, *other._flags}
        pairs = ((self._flags.get(v, False), other._flags.get(v, False), v) for v in variables)
        return all(a is b or bool((self._array(v) == other._array(v)).all()) for a, b, v in pairs)

    def intersect(self, other: ElementSet) -> None:
        """Keep only what the other set holds too."""
        for variable, own in list(self._flags.items()):
            others = other._flags.get(variable, False)
            if others is False:
                del self._flags[variable]
            elif others is not True:
                self._flags[variable] = others.copy() if own is True else own & others  # type: ignore[union-attr]

    def unite(self, other: ElementSet) -> None:
        """Hold what the other set holds as well."""
        for variable, others in other._flags.items():
            own = self._flags.get(variable, False)
            if others is True or own is False:
                self._flags[variable] = True if others is True else others.copy()  # type: ignore[union-attr]
            elif own is not True:
                self._flags[variable] = own | others

    def includes(self, other: ElementSet) -> bool:
        """Whether it holds all that the other set holds."""
        pairs = ((self._flags.get(v, False), others, v) for v, others in other._flags.items())
        return all(own is True or not (others & ~self._array(v)).any() for own, others, v in pairs)

    def replace(self, other: ElementSet) -> None:
        """Hold what the other set holds."""
        self._flags = other.copy()._flags

    def first_missing(self, tensor: Tensor, axes: tuple[Axis, ...]) -> int | None:
        """The graph's number of an element of a view that is not in the set; None when all are."""
        flags = [self._flags.get(variable, False) for variable in source_variables(tensor.source)]
        if all(flag is True for flag in flags):
            return None
        needed = ElementSet()
        needed.add(tensor, axes)
        for variable, wanted in needed._flags.items():
            have = self._flags.get(variable, False)
            if have is True:
                continue
            missing = np.broadcast_to(wanted, variable.size) & ~np.broadcast_to(have, variable.size)
            if missing.any():
                return variable.first_element + int(np.argmax(missing))
        return None


def _mark(flags: np.ndarray, index: Index, axes: tuple[Axis, ...]) -> None:
    """Set the flags an index names, at all positions of the grid."""
    keys = index.keys
    if 0 in index.shape or any(axis.extent == 0 for axis in axes):
        return
    if index.tables:
        flags[index.values_over(keys)] = True
        return
    index.strided_view(flags, keys)[...] = True
