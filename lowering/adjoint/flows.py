"""Flows: which cotangents there are at a place of the backward pass, and how a step changes them.

In come a plan and the variables whose values depend on those differentiated with respect to. Of each step out comes
which elements have a cotangent before it, given those that have one behind it: a written variable loses its cotangent,
a read one gains one. A variable without one has a cotangent of zero, and no memory is allocated for it. Loops go to a
fixed point, branches meet in all that any of them leaves.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from codelet.errors import at_line
from codelet.graphs.family import Family, Field
from codelet.programs.compute_sets import ComputeSet
from codelet.tracing.adjoints import AdjointCodelet, adjoint_of, is_smooth, smooth_inputs
from codelet.tracing.field_types import FieldType
from codelet.tracing.unchanged import check_unchanged
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, whole_view
from lowering.adjoint.fields import is_injective, places_of
from lowering.adjoint.whole_convolutions import as_whole_convolution
from lowering.join.join import composed_families
from lowering.plan.elements import ElementSet
from lowering.plan.plan import Plan
from lowering.plan.steps import (
    CallStep,
    CopyStep,
    ExecuteStep,
    RepeatStep,
    Step,
    StreamStep,
    SwitchStep,
    UndefStep,
    WhileStep,
)
from lowering.plan.walk import all_steps


def is_float(variable: Variable) -> bool:
    """Whether there are derivatives by a variable."""
    return is_smooth(FieldType(variable.shape, variable.dtype))


def families_of(step: ExecuteStep | CallStep) -> tuple[Family, ...]:
    """The families of a compute set; of a call of a function with a derivative, its codelet's one vertex."""
    if isinstance(step, ExecuteStep):
        return step.families
    function, derivative = step.function, step.function.derivative
    assert derivative is not None
    given = dict(zip(function.parameters, step.arguments, strict=True))
    traced, fields = derivative.codelet, []
    for name, own in zip(traced.inputs, derivative.inputs, strict=True):
        kind = "inout" if name in traced.outputs else "in"
        fields.append(Field(name, kind, traced.inputs[name], given[own]))
    for name, own in zip(traced.outputs, derivative.outputs, strict=True):
        if name not in traced.inputs:
            fields.append(Field(name, "out", traced.outputs[name], given[own]))
    compute_set = ComputeSet(step.arguments[0].graph, function.name, -1, None, None)
    return (Family(compute_set, traced, (), (), tuple(fields), None, ()),)


def _moves(step: Step) -> Iterator[tuple[set[Variable], set[Variable]]]:
    """The variables from which a step takes values, and those whose new values vary smoothly with these."""
    if isinstance(step, CopyStep):
        yield set(source_variables(step.source.source)), set(source_variables(step.destination.source))
    for family in families_of(step) if isinstance(step, (ExecuteStep, CallStep)) else ():
        connected = {
            own.name: set(source_variables(own.tensor.source)) for own in family.fields if own.tensor is not None
        }
        for name, read in smooth_inputs(family.codelet).items():
            if name in connected:
                yield set().union(*(connected[own] for own in read if own in connected)), connected[name]


def moves_of(plan: Plan) -> list[tuple[set[Variable], set[Variable]]]:
    """For every move of values: the variables from which they are taken, and those that receive the results.

    Args:
        plan: without calls but of functions with derivatives.
    """
    kept = [step for step in all_steps(plan.steps) if not isinstance(step, CallStep) or step.function.derivative]
    return [move for step in kept for move in _moves(step)]


def reached(start: Collection[Variable], moves: Sequence[tuple[set[Variable], set[Variable]]]) -> frozenset[Variable]:
    """The variables of floats to which moves lead from some others, again and again; those others included."""
    found, before = set(start), -1
    while len(found) > before:
        before = len(found)
        for source, destination in moves:
            if not found.isdisjoint(source):
                found.update(filter(is_float, destination))
    return frozenset(found)


def varied_variables(plan: Plan, wrt: Collection[Variable]) -> frozenset[Variable]:
    """The variables whose values may depend on those of some others, these included.

    Args:
        plan: without calls but of functions with derivatives.
        wrt: the others.
    """
    return reached({variable for variable in wrt if is_float(variable)}, moves_of(plan))


@dataclass(frozen=True, eq=False)
class FamilyFlow:
    """The adjoint of a family.

    Attributes:
        family: the family.
        adjoint: the adjoint of its codelet; None where no cotangent goes through it.
        written: all elements that it writes.
        received: the elements that it reads, and gives contributions to, by field.
    """

    family: Family
    adjoint: AdjointCodelet | None
    written: ElementSet
    received: Mapping[str, ElementSet]

    def is_straight(self, name: str, present: ElementSet) -> bool:
        """Whether a contribution is written where the cotangent is, or added there: where no other field gives any."""
        tensor, received = self.family.by_name[name].tensor, self.received[name]
        assert tensor is not None
        if not isinstance(tensor.source, Variable) or not is_injective(places_of(self.family, tensor)):
            return False
        if any(not (received & other).is_empty for own, other in self.received.items() if own != name):
            return False
        return (received & present).is_empty or (received & self.written).is_empty

    def of(self, names: Collection[str]) -> FamilyFlow:
        """The rest of it where only some fields' contributions are still to be made."""
        assert self.adjoint is not None
        of, lengths = [*self.adjoint.fields.cotangents], self.family.lengths
        left = adjoint_of(self.family.codelet, names, of, lengths) if names else None
        return replace(self, adjoint=left, received={name: self.received[name] for name in names})


class Flows:
    """Which cotangents there are at each place of a backward pass; a fact is the elements that have one.

    Attributes:
        plan: of the forward pass, without calls.
        varied: the variables whose values depend on those differentiated with respect to: no others have cotangents.
        composed: convolutions that stand for the families of compute sets which add up their partial sums.
    """

    def __init__(self, plan: Plan, varied: frozenset[Variable]):
        self.plan, self.varied = plan, varied
        self.touched = functools.cache(self._touched)
        self._families: dict[Step, tuple[Family, ...]] = {
            step: families
            for step, families in composed_families(plan).items()
            if all(as_whole_convolution(family) is not None for family in families)
        }
        self.composed = {family for families in self._families.values() for family in families}

    def families(self, step: ExecuteStep | CallStep) -> tuple[Family, ...]:
        """The families of a compute set; of a call of a function with a derivative, its codelet's one vertex."""
        if step not in self._families:
            self._families[step] = families_of(step)
        return self._families[step]

    def elements(self, tensor: Tensor, family: Family | None = None) -> ElementSet:
        """The elements of a view that may have cotangents, at all vertices of a family."""
        found = ElementSet()
        if not self.varied.isdisjoint(source_variables(tensor.source)):
            found.add(tensor, () if family is None else family.axes)
            for variable in found.variables:
                if variable not in self.varied:
                    found.remove_variable(variable)
        return found

    def _touched(self, family: Family, field: Field) -> ElementSet:
        assert field.tensor is not None
        return self.elements(field.tensor, family)

    def of_family(self, family: Family, present: ElementSet) -> FamilyFlow:
        """The adjoint of a family where some elements have cotangents."""
        written, of = ElementSet(), []
        for field in family.fields:
            if field.is_written and family.num_vertices:
                own = self.touched(family, field)
                written = written | own
                if not (own & present).is_empty:
                    of.append(field.name)
        wrt = []
        for field in family.fields if family.num_vertices else ():
            connected = field.is_read and field.tensor is not None and field.tensor.size
            if connected and not self.touched(family, field).is_empty:
                wrt.append(field.name)
        line, adjoint = family.lines[0] if family.lines else None, None
        with at_line(line):
            if of and wrt:
                check_unchanged(family.codelet, line, family.lengths)  # since its function is traced anew
                adjoint = adjoint_of(family.codelet, wrt, of, family.lengths)
        names = () if adjoint is None else adjoint.fields.contributions
        received = {name: self.touched(family, family.by_name[name]) for name in names}
        return FamilyFlow(family, adjoint, written, received)

    def before(self, steps: Sequence[Step], present: ElementSet) -> ElementSet:
        """The elements that have cotangents before some steps, given those behind them."""
        for step in reversed(steps):
            present = self._before(step, present)
        return present

    def _before(self, step: Step, present: ElementSet) -> ElementSet:
        match step:
            case CallStep() if step.function.derivative is None:
                arguments = [*zip(map(whole_view, step.function.parameters), step.arguments, strict=True)]
                for k in reversed(step.function.written):
                    present = self._before_copy(*arguments[k], present)
                present = self.before(step.function.body, present)
                for own, given in reversed(arguments):
                    present = self._before_copy(given, own, present)
                return present
            case ExecuteStep() | CallStep():
                flows = [self.of_family(family, present) for family in self.families(step)]
                for flow in flows:
                    present = present - flow.written
                for flow in flows:
                    for own in flow.received.values():
                        present = present | own
                return present
            case CopyStep(source, destination):
                return self._before_copy(source, destination, present)
            case StreamStep(_, tensor):
                return present - self.elements(tensor) if step.stream.is_input else present
            case UndefStep(tensor):
                return present - self.elements(tensor)
            case RepeatStep():
                return self.around(step, present) if step.count else present
            case WhileStep():
                return self.around(step, self.before(step.condition, present))
            case SwitchStep(_, _, branches):
                return functools.reduce(ElementSet.__or__, [self.before(branch, present) for branch in branches])
        return present

    def _before_copy(self, source: Tensor, destination: Tensor, present: ElementSet) -> ElementSet:
        written = self.elements(destination)
        if (written & present).is_empty:
            return present
        return (present - written) | self.elements(source)

    def around(self, step: RepeatStep | WhileStep, present: ElementSet) -> ElementSet:
        """The elements that have cotangents wherever an iteration of a loop begins or ends, given those behind it."""
        turn = step.body if isinstance(step, RepeatStep) else (*step.condition, *step.body)
        while True:
            more = present | self.before(turn, present)
            if present.includes(more):
                return more
            present = more
