"""Backward: the steps of a program in reverse, each as a function of cotangents, as vertices of the same graph.

In come a plan, which elements have cotangents where (`flows.py`), and a variable for the cotangents of each variable.
Out comes the program of the backward pass; values of the forward pass come from `saved.py`.

A vertex becomes one of the codelet's adjoint, over the same grid. Where nobody else reads the operand of a field, its
contribution is written where the cotangent of that is, or added there; otherwise all contributions are kept, and summed
by whoever receives them (`sums.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from codelet.graphs.family import Family, Field
from codelet.programs.control import Revolve
from codelet.programs.copies import Copy
from codelet.programs.program import Program
from codelet.tracing.adjoints import AdjointFields
from codelet.tracing.codelets import Codelet
from codelet.views.grids import Axis
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.adjoint.added import new_tensor, new_variable
from lowering.adjoint.calls import Frame, call_backwards
from lowering.adjoint.contributions import Contributions
from lowering.adjoint.control_flow import go_back_through_repeat, go_back_through_switch, go_back_through_while
from lowering.adjoint.fields import constant_of, contributions_of, is_injective, places_of
from lowering.adjoint.flows import FamilyFlow, Flows
from lowering.adjoint.gathered import as_gathering
from lowering.adjoint.programs import has_derivative, is_unit, without_calls_or_idle_copies
from lowering.adjoint.recompute import BackwardStep
from lowering.adjoint.revolved import go_back_revolved
from lowering.adjoint.saved import Body, Saved
from lowering.adjoint.shifted import Contribution
from lowering.adjoint.sums import Sums, of_other_variables
from lowering.adjoint.units import go_back_again
from lowering.adjoint.whole_contributions import contribute_as_wholes
from lowering.adjoint.whole_lookups import go_back_through_lookups
from lowering.adjoint.whole_operations import WholeOperations, go_back_as_whole
from lowering.check.initialized import written_by
from lowering.plan.elements import Elements, ElementSet
from lowering.plan.plan import Plan
from lowering.plan.steps import (
    CallStep,
    CopyStep,
    ExecuteStep,
    FunctionBody,
    RepeatStep,
    Step,
    StreamStep,
    SwitchStep,
    UndefStep,
    WhileStep,
)
from lowering.plan.walk import bodies


@dataclass
class _Beside:
    """The vertices that go back through a compute set, as far as they are added, beside which more may run.

    Attributes:
        place: that of their compute set among the programs; None before there are any.
        taken: the elements that they write straight to cotangents.
    """

    place: int | None = None
    taken: ElementSet = field(default_factory=ElementSet)


def _source_size(field: Field) -> int:
    """How many elements there are of what a field reads."""
    return 0 if field.tensor is None else field.tensor.source.size


def _read_by(flows: Iterable[FamilyFlow]) -> ElementSet:
    """The elements that the vertices of a forward pass read and those that go back through them may read."""
    names = ((flow.family, name) for flow in flows if flow.adjoint is not None for name in flow.adjoint.fields.inputs)
    views = ((family.by_name[name].tensor, family.axes) for family, name in names)
    return ElementSet.of_views((tensor, axes) for tensor, axes in views if tensor is not None)


class Backward:
    """The backward pass of a plan, made step by step.

    Attributes:
        graph: where it is added.
        flows: which elements have cotangents where.
        contributions: how contributions come to cotangents.
        saved: the residuals of the forward pass.
        operations: the operations that steps are of.
        asked: the variables by which gradients are asked for, which come in the shapes of these.
        is_again: whether a function runs again before the backward pass goes back through a call of it.
        frame: the function whose adjoint is being made, whose calls give the values that it reads; None outside of all.
        frames: the functions that were gone back through.
        cotangents: the variable that holds those of each variable.
        present: the elements that have a cotangent where the backward pass has come to.
        later: the elements that the forward pass writes after that place.
        needed: the variables of the forward pass that are read to go back through a step.
        shared: those that the function which is gone back through reads as others do, to which these contribute too.
        disturbed: those that may hold something else afterwards, since steps run again that began with another value.
    """

    def __init__(
        self,
        plan: Plan,
        flows: Flows,
        asked: Collection[Variable],
        is_again: Callable[[FunctionBody], bool] = lambda function: False,
    ):
        self.plan, self.graph, self.flows = plan, plan.graph, flows
        self.saved = Saved(self.graph, written_by(self.alone(plan.steps)))
        self.operations = WholeOperations(self.graph, plan)
        self.asked = frozenset(asked)
        self.is_again = is_again
        self.frame: Frame | None = None
        self.frames: dict[FunctionBody, Frame] = {}
        self.sums = Sums(self.graph)
        self.contributions = Contributions(self.sums, flows, self.cotangent)
        self.cotangents: dict[Variable, Variable] = {}
        self.present, self.later = ElementSet(), ElementSet()
        self.needed: set[Variable] = set()
        self.disturbed: set[Variable] = set()
        self.shared: frozenset[Variable] = frozenset()
        self._writes: dict[Step, ElementSet] = {}

    # --- what there is ------------------------------------------------------------------------------------

    def cotangent(self, variable: Variable) -> Variable:
        """The variable that holds the cotangents of another."""
        if variable not in self.cotangents:
            self.cotangents[variable] = new_variable(self.graph, variable.name, variable)
        return self.cotangents[variable]

    def adopt(self, tensor: Tensor, slope: Tensor, first: int) -> bool:
        """Have the array of a gradient be that of a variable's cotangents; False where it cannot be.

        Args:
            tensor: the tensor that the gradient is with respect to.
            slope: the gradient.
            first: the number of the first variable that was made for it: those before it belong to others.
        """
        variable, made = tensor.source, slope.source
        if not isinstance(variable, Variable) or not isinstance(made, Variable) or self.frame is not None:
            return False
        is_all = tensor.size == variable.size == made.size and is_injective(tensor.index)
        is_all = is_all and (made.shape == variable.shape or variable not in self.asked)
        places = [(own.index.offset, own.index.strides, own.index.is_strided) for own in (tensor, slope)]
        is_other = variable in self.cotangents or made in self.cotangents.values()
        if not is_all or places[0] != places[1] or not tensor.index.is_strided or is_other:
            return False
        if made.number < first or made.dtype != variable.dtype or made.value is not None:
            return False
        self.cotangents[variable] = made
        self.present = self.present | ElementSet.of_variables([variable])
        return True

    def cotangents_of(self, tensor: Tensor) -> Tensor:
        """The view of cotangents that a view of variables has."""
        variables = source_variables(tensor.source)
        return of_other_variables(tensor, {variable: self.cotangent(variable) for variable in variables})

    def likenesses(self) -> dict[Variable, Variable]:
        """The variables that hold something of another, element by element or row by row: of which."""
        return {made: of for of, made in self.cotangents.items()} | self.saved.likenesses()

    def alone(self, steps: Sequence[Step]) -> Plan:
        """Steps as a plan without calls."""
        return replace(self.plan, steps=without_calls_or_idle_copies(self.plan, steps))

    def fill(self, elements: ElementSet) -> None:
        """Give elements without a cotangent one of zero, where they are to have one."""
        for variable in elements.variables:
            if variable in self.flows.varied:
                missing = elements.of(variable) - self.present.of(variable)
                if missing.first is not None:
                    self.sums.zero(self.cotangent(variable), missing)
        self.present = self.present | elements

    def given(self, body: Body, number: int, tensor: Tensor, axes: Sequence[Axis], later: ElementSet) -> Tensor:
        """A view of the forward pass before a step, for the backward pass."""
        needed = ElementSet()
        needed.add(tensor, tuple(axes))
        return self._given(body, number, tensor, needed, later)

    def given_part(self, body: Body, number: int, tensor: Tensor, elements: Elements, later: ElementSet) -> Tensor:
        """A view of the forward pass before a step, of which the backward pass reads some elements, by their places."""
        needed, flat = ElementSet(), tensor.flatten()
        for own in [tensor] if elements.is_all else [flat[at.values().reshape(-1)] for at in elements.indices()]:
            needed.add(own, ())
        return self._given(body, number, tensor, needed, later)

    def _given(self, body: Body, number: int, tensor: Tensor, needed: ElementSet, later: ElementSet) -> Tensor:
        variables = source_variables(tensor.source)
        self.needed.update(variables)
        others = {v: self.value(body, number, v, needed.of(v), later) for v in variables}
        return of_other_variables(tensor, others) if any(own is not v for v, own in others.items()) else tensor

    def value(self, body: Body, number: int, variable: Variable, needed: Elements, later: ElementSet) -> Variable:
        """The variable with the value of a variable of the forward pass before a step, of which some
        elements are read.
        """
        frame = self.frame
        if frame is None:
            return self.saved.value(body, number, variable, needed, later, self.needed)
        is_lost = (needed & later.of(variable)).first is not None
        if is_lost and body.made(number, variable) == (frame.body, 0):
            return frame.given(variable, "before", needed)
        own = self.saved.value(body, number, variable, needed, later)
        return frame.given(variable, "after", needed) if own is variable else own

    # --- contributions ------------------------------------------------------------------------------------

    def contribute(self, name: str, values: Tensor, to: Tensor) -> None:
        """Add values to the cotangents of a tensor's elements."""
        given = Contribution(name, "", {"": values}, to.index, to.source, self.flows.elements(to))
        self.present = self.contributions.add([given], self.present, self._unknown())

    def _unknown(self) -> ElementSet:
        """The elements that may have a cotangent though none is present."""
        return ElementSet.of_variables(self.shared) - self.present

    def _family(
        self,
        body: Body,
        number: int,
        flow: FamilyFlow,
        later: ElementSet,
        received: ElementSet,
        kept: ElementSet,
        beside: _Beside,
        together: Mapping[str, Tensor] | None,
    ) -> list[Contribution]:
        """Run the adjoint of a family; its contributions beside those that go straight to cotangents.

        Args:
            body: the body that its compute set is run in.
            number: the place of the step there.
            flow: its adjoint.
            later: the elements that are written after the vertices have read: by themselves, too.
            received: the elements to which the families of the compute set contribute.
            kept: the elements whose cotangents are still to be read when all of them have run.
            beside: the families of the compute set that have run.
            together: by field, where it writes its contributions together with others; None where it is part of no
                whole one.
        """
        flow, contributions = self._gathered(body, number, flow, later), list[Contribution]()
        if together is None:
            flow, contributions = self.contributions.linear(flow, self.present, received, kept)
        flow, looked_up = go_back_through_lookups(self, body, number, flow, later)
        contributions += looked_up
        family, adjoint, step = flow.family, flow.adjoint, flow.family.compute_set.name
        if adjoint is None:
            return contributions
        names, fields, taken = adjoint.fields, self.read(body, number, family, adjoint.fields, later), ElementSet()
        for name, own in names.contributions.items():
            field, gets = family.by_name[name], flow.received[name]
            assert field.tensor is not None
            if own in names.cotangents.values():
                taken = taken | gets  # what comes out takes the place of what came in
            elif together is not None and name in together:
                fields[own] = together[name]
            elif flow.is_straight(name, self.present):
                if not (gets & self.present).is_empty:
                    self.fill(gets)
                    adjoint = adjoint.adding([name])
                taken = taken | gets
                fields[own] = self.cotangents_of(field.tensor)
            else:
                held, fields[own] = contributions_of(self.graph, f"{step}/{name}", family, field)
                places = places_of(family, field.tensor)
                contributions.append(Contribution(step, name, {"": held}, places, field.tensor.source, gets))
        if family.tile is not None:
            fields["tile"] = family.tile
        self._run(step, adjoint, fields, taken, beside)
        self.present = self.present | taken
        return contributions

    def read(
        self, body: Body, number: int, family: Family, names: AdjointFields, later: ElementSet
    ) -> dict[str, object]:
        """The operands of vertices that go back through a family before a step, by the fields of their codelet."""
        fields = dict[str, object]()
        # The largest is asked for first: if it is saved, what is taken of it need not be.
        for name, own in sorted(names.inputs.items(), key=lambda pair: -_source_size(family.by_name[pair[0]])):
            field = family.by_name[name]
            if field.tensor is None:
                fields[own] = constant_of(self.graph, field, family.axes)
            else:
                fields[own] = self.given(body, number, field.tensor, family.axes, later)
        for name, own in names.results.items():
            tensor = family.by_name[name].tensor
            assert tensor is not None
            fields[own] = self.given(body, number + 1, tensor, family.axes, self.later)
        for name, own in names.cotangents.items():
            tensor = family.by_name[name].tensor
            assert tensor is not None
            fields[own] = self.cotangents_of(tensor)
        return fields

    def _run(self, step: str, adjoint: Codelet, fields: dict[str, object], taken: ElementSet, beside: _Beside) -> None:
        """Run the vertices of a family's adjoint, in the compute set of those that ran before where they may.

        The elements that one family of a compute set writes no other touches, so that none reads a cotangent which
        another receives. Two that receive the same add to it one after the other; so are gathered contributions.
        """
        place = beside.place
        between = [] if place is None else self.sums.programs[place + 1 :]
        if place is not None and all(isinstance(own, Copy) for own in between) and (taken & beside.taken).is_empty:
            self.sums.run_beside(place, adjoint, **fields)  # between are zeros for what it adds to
        else:
            self.sums.run(step, adjoint, **fields)
            beside.taken = ElementSet()
        beside.place, beside.taken = len(self.sums.programs) - 1, beside.taken | taken

    def _gathered(self, body: Body, number: int, flow: FamilyFlow, later: ElementSet) -> FamilyFlow:
        """Gather the contributions of a family that can be gathered; the rest of it."""
        family, adjoint = flow.family, flow.adjoint
        assert adjoint is not None
        left = []
        for name in adjoint.fields.contributions:
            field, received = family.by_name[name], flow.received[name]
            assert field.tensor is not None
            found = None if is_injective(places_of(family, field.tensor)) else as_gathering(family, name)
            if found is not None:
                assert found.other.tensor is not None
                assert found.out.tensor is not None
                own = [v for v in source_variables(field.tensor.source) if v in self.flows.varied]
                own = [(v, self.cotangent(v)) for v in own]
                slopes = self.cotangents_of(found.out.tensor)
                others = self.given(body, number, found.other.tensor, family.axes, later)
                meets = not (received & self.present).is_empty
                if meets:
                    self.fill(received)
                if self.sums.gather(f"{family.compute_set.name}/{name}", found, slopes, others, own, meets):
                    self.present = self.present | received
                    continue
            left.append(name)
        return flow.of(left) if len(left) < len(adjoint.fields.contributions) else flow

    # --- steps --------------------------------------------------------------------------------------------

    def steps(self, body: Body) -> None:
        """Go back through the steps of a body."""
        for piece in reversed(self.pieces(body)):
            self.sums.programs += piece.programs

    def pieces(self, body: Body) -> list[BackwardStep]:
        """The adjoint of each step of a body."""
        outer, around, found = self.sums.programs, self.needed, []
        wholes, first = self.operations.of_body(body.steps), len(body.steps)
        for number in range(len(body.steps) - 1, -1, -1):
            self.sums.programs, self.needed = [], set()
            step = body.steps[number]
            if number in wholes and go_back_as_whole(self, body, wholes[number]):
                first = wholes[number].first
            elif number < first:
                self._step(body, number, step)
            self.later = self.later | self.written(step)
            found.append(BackwardStep(self.sums.programs, frozenset(self.needed)))
        self.sums.programs, self.needed = outer, around.union(*(piece.needed for piece in found))
        return found[::-1]

    def written(self, step: Step) -> ElementSet:
        """The elements that a step writes, or ends."""
        if step not in self._writes:
            found = ElementSet()
            for touch in step.touches():
                if touch.is_written or touch.mode == "end":
                    found.add(touch.tensor, touch.axes)
            for own in bodies(step):
                for inner in own:
                    found = found | self.written(inner)
            self._writes[step] = found
        return self._writes[step]

    def _step(self, body: Body, number: int, step: Step) -> None:
        match step:
            case CallStep() if is_unit(step):
                go_back_again(self, body, number, step)
            case CallStep() if not has_derivative(step):
                call_backwards(self, body, number, step)
            case ExecuteStep() | CallStep():
                self._execute(body, number, step)
            case CopyStep(source, destination):
                self.copy(source, destination)
            case StreamStep(_, tensor) if step.stream.is_input:
                self.present = self.present - self.flows.elements(tensor)
            case UndefStep(tensor):
                self.present = self.present - self.flows.elements(tensor)
            case RepeatStep() if step.count and isinstance(step.recompute, Revolve):
                go_back_revolved(self, body, number, step)
            case RepeatStep() if step.count:
                go_back_through_repeat(self, body, number, step)
            case WhileStep():
                go_back_through_while(self, body, number, step)
            case SwitchStep():
                go_back_through_switch(self, body, number, step)

    def _execute(self, body: Body, number: int, step: ExecuteStep | CallStep) -> None:
        flows = [self.flows.of_family(family, self.present) for family in self.flows.families(step)]
        for flow in flows:
            if flow.adjoint is not None:
                for name in flow.adjoint.fields.cotangents:
                    self.fill(self.flows.touched(flow.family, flow.family.by_name[name]))
        self.saved.together = _read_by(flows) if len(flows) > 1 else ElementSet()
        written, received = ElementSet(), ElementSet()
        for flow in flows:
            written = written | flow.written
            received = functools.reduce(ElementSet.__or__, flow.received.values(), received)
        self.present = self.present - written
        kept, beside = written | self._unknown(), _Beside()
        flows, held, found = contribute_as_wholes(self, body, number, flows, received, kept)
        for flow in flows:
            own = held.get(flow.family)
            if flow.adjoint is not None:
                found += self._family(body, number, flow, self.later | self.written(step), received, kept, beside, own)
        self.saved.together = ElementSet()
        self.present = self.contributions.add(found, self.present, written | self._unknown())

    def copy(self, source: Tensor, destination: Tensor) -> None:
        """Go back through a copy."""
        written = self.flows.elements(destination)
        if (written & self.present).is_empty or not source.size:
            return
        if self.flows.varied.isdisjoint(source_variables(source.source)):
            self.present = self.present - written
            return
        self.fill(written)
        values = self.cotangents_of(destination)
        if not set(source_variables(source.source)).isdisjoint(source_variables(destination.source)):
            apart = new_tensor(self.graph, "copied", values.shape, values.dtype)
            self.sums.programs.append(Copy(values, apart))
            values = apart
        self.present = self.present - written
        self.contribute("copy", values, source)

    def inside(self, body: Body, around: ElementSet | None = None) -> list[Program]:
        """The adjoint of a body; beyond it, some elements have cotangents, whatever it leaves."""
        outer, self.sums.programs = self.sums.programs, []
        self.steps(body)
        if around is not None:
            self.fill(around)
        programs, self.sums.programs = self.sums.programs, outer
        return programs
