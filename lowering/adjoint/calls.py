"""Calls: the adjoint of a function is one function, called backwards as often as the function is forwards.

In come the calls of a function, one by one, as the backward pass comes to them. Out come calls of its adjoint: one
function for each set of its results that have a cotangent. Copies to the parameters and back are gone back through by
the caller; the cotangents of all that the function touches are the same variables at every call.

Values of the forward pass are arguments of the adjoint, which every call gives where it finds them: for a variable that
the body does not write, the value before the call; for one that it writes, the value that it leaves. A variable that
the body overwrites itself it saves, as a program does, in variables of the function. So every call finds a copy of them
there, which it saves. Where values are recomputed, a function is a unit (`units.py`) of its adjoint, which is given its
first values alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal, NamedTuple

from codelet.programs.functions import Call, Function
from codelet.programs.program import Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor, whole_view
from lowering.adjoint.added import new_variable
from lowering.adjoint.checkpoints import unit
from lowering.adjoint.forward import forward_program
from lowering.adjoint.programs import function_of, without_calls_or_idle_copies
from lowering.adjoint.saved import Body, Saved
from lowering.check.initialized import written_by
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from lowering.plan.elements import Elements, ElementSet
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, FunctionBody
from lowering.plan.walk import all_steps

if TYPE_CHECKING:
    from lowering.adjoint.backward import Backward


class ForwardValue(NamedTuple):
    """A value of a function's forward pass that its adjoint reads.

    Attributes:
        variable: whose.
        when: before its call or after it; or after it, of a variable in which the forward pass saves something.
    """

    variable: Variable
    when: Literal["before", "after", "saved"]


class Adjoint(NamedTuple):
    """The adjoint of a function for a choice of cotangents.

    Attributes:
        function: the called function.
        values: its arguments, in the order of its parameters, and which elements of each it reads.
        left: which elements of the function's variables have cotangents afterwards.
    """

    function: Function
    values: dict[ForwardValue, Elements]
    left: ElementSet


@dataclass(eq=False)
class Frame:
    """A function that is called in the forward pass, while its adjoints are made.

    Attributes:
        function: it.
        body: its steps.
        saved: the values that its forward pass saves.
        overlapped: variables that its body writes, and a call may overwrite as it copies back.
        parameters: the variable in its adjoints for each value that they read.
        needed: which elements of the value they read.
        is_again: whether its adjoint runs it again, from its first values, rather than that more is kept.
        direct: the variables that the adjoint which is being made reads where they are.
        adjoints: by the variables that have cotangents after the call, and those that are read where they are.
    """

    function: FunctionBody
    body: Body
    saved: Saved
    overlapped: ElementSet
    is_again: bool = False
    parameters: dict[ForwardValue, Variable] = field(default_factory=dict)
    needed: dict[ForwardValue, Elements] = field(default_factory=dict)
    direct: frozenset[Variable] = frozenset()
    adjoints: dict[tuple[frozenset[Variable], frozenset[Variable]], Adjoint] = field(default_factory=dict)
    _before: list[Program] | None = None
    _forward: Function | None = None

    def given(self, variable: Variable, when: Literal["before", "after", "saved"], needed: Elements) -> Variable:
        """The variable with a value in the adjoint."""
        if variable in self.direct or variable.value is not None:
            return variable
        if when == "after" and variable not in self.function.writes:
            when = "before"
        value = ForwardValue(variable, when)
        if value not in self.parameters and self.is_again and variable in self._read:
            self.parameters[value], self.needed[value] = variable, needed
        elif value not in self.parameters:
            held = self.saved.held_by(variable) if when == "saved" else None
            name = f"given/{(variable if held is None else held.origin).name}"
            self.parameters[value] = new_variable(variable.graph, name, variable)
            self.needed[value] = needed
        self.needed[value] |= needed
        return self.parameters[value]

    @property
    def _read(self) -> set[Variable]:
        """The parameters that its body reads alone, which may be those of an adjoint that runs it again."""
        return {*self.function.parameters} - {*self.function.writes}

    @property
    def is_changed(self) -> bool:
        """Whether the forward pass does more in it than its steps; when all adjoints are made."""
        if self._before is None:
            self._before = self.saved.settle(self.body)
        return self.body.is_changed

    def forward(self, plan: Plan) -> Function:
        """The function that the forward pass calls; when all adjoints are made."""
        if self._forward is None:
            self._forward = function_of(plan, self.function)
            if self.is_changed:
                own, graph = self._forward, plan.graph
                program = ProgramSequence(*(self._before or ()), forward_program(plan, self.body))
                self._forward = graph.add_function(program, own.parameters, name=graph.free_name(own.name))
        return self._forward

    @property
    def touched(self) -> list[Variable]:
        """The variables that its body reads or writes."""
        return list(dict.fromkeys((*self.function.writes, *self.function.reads)))


def new_frame(back: Backward, function: FunctionBody) -> Frame:
    """A function, before any adjoint of it is made."""
    plan = replace(back.plan, steps=without_calls_or_idle_copies(back.plan, function.body))
    calls = [own for own in all_steps(back.plan.steps) if isinstance(own, CallStep) and own.function is function]
    back_to = {v for own in calls for k in function.written for v in source_variables(own.arguments[k].source)}
    overlapped = ElementSet.of_variables(back_to.intersection(function.writes))
    is_again = back.is_again(function)
    own = replace(function, body=(unit(function.body),)) if is_again else function
    frame = Frame(own, Body(own.body), Saved(back.graph, written_by(plan)), overlapped, is_again)

    def given(variable: Variable) -> Variable:
        return frame.given(variable, "saved", Elements.everything(variable.size)) if back.frame is frame else variable

    frame.saved.given = given
    return frame


def call_backwards(back: Backward, body: Body, number: int, step: CallStep) -> None:
    """Go back through a call."""
    function = step.function
    arguments = [(whole_view(own), given) for own, given in zip(function.parameters, step.arguments, strict=True)]
    for k in reversed(function.written):
        back.copy(*arguments[k])
    if function not in back.frames:
        back.frames[function] = new_frame(back, function)
    frame = back.frames[function]
    varied = [own for own in frame.touched if own in back.flows.varied]
    pattern = frozenset(own for own in varied if own in function.writes and back.present.of(own).first is not None)
    if pattern:
        body.calls[number] = frame
        within = _begin(back, frame, pattern, varied)
        adjoint = _adjoint(back, frame, pattern, within, _direct(back, frame, step))
        given = {
            own.name: _argument(back, body, number, step, frame, value, needed)
            for own, (value, needed) in zip(
                (frame.parameters[value] for value in adjoint.values), adjoint.values.items(), strict=True
            )
        }
        back.sums.programs.append(Call(adjoint.function, **given))
        written = ElementSet.of_variables(own for own in varied if own in function.writes)
        back.present = (back.present - written) | adjoint.left
    for own, given in reversed(arguments):
        back.copy(given, own)


def _begin(back: Backward, frame: Frame, pattern: frozenset[Variable], varied: Sequence[Variable]) -> ElementSet:
    """Check that the cotangents of a function's variables are there as at all other calls; which are there."""
    function, within = frame.function, ElementSet.of_variables(pattern)
    back.fill(within)
    after = back.flows.before(function.body, within)
    for own in varied:
        if own not in function.writes and own not in function.parameters and after.of(own).first is not None:
            received = ElementSet({own: after.of(own)})
            back.fill(received)
            within = within | received
    return within


def _direct(back: Backward, frame: Frame, step: CallStep) -> frozenset[Variable]:
    """The variables that the function reads alone, and that hold the same still when the backward pass comes to it."""
    later = back.later | back.written(step)
    hidden = {*frame.function.writes, *frame.function.parameters}
    return frozenset(
        own
        for own in frame.function.reads
        if own not in hidden
        and later.of(own).first is None
        and back.saved.certain.of(own).is_all
        and (back.frame is None or own in back.frame.direct)
    )


def _adjoint(
    back: Backward, frame: Frame, pattern: frozenset[Variable], within: ElementSet, direct: frozenset[Variable]
) -> Adjoint:
    """The adjoint of a function, made once for each choice of cotangents."""
    key = pattern, direct
    if key not in frame.adjoints:
        outer = back.saved, back.frame, back.later, back.needed, back.present, back.shared
        own = {*frame.function.writes, *frame.function.parameters}
        back.shared = outer[-1] | {variable for variable in frame.touched if variable not in own}
        back.saved, back.frame, back.later, back.present = frame.saved, frame, frame.overlapped, within
        frame.direct = direct
        programs = back.inside(frame.body)
        left = back.present
        back.saved, back.frame, back.later, back.needed, back.present, back.shared = outer
        program = ProgramSequence(*frame.body.prelude, *programs)
        read = {v for own in flow(collect(back.graph, program, (), ())).steps for v in own.reads}
        values = {value: frame.needed[value] for value, own in frame.parameters.items() if own in read}
        named = {own.name: whole_view(own) for own in (frame.parameters[value] for value in values)}
        made = back.graph.add_function(program, named, name=back.graph.free_name(frame.function.name))
        frame.adjoints[key] = Adjoint(made, values, left)
    return frame.adjoints[key]


def _argument(
    back: Backward, body: Body, number: int, step: CallStep, frame: Frame, value: ForwardValue, needed: Elements
) -> Tensor:
    """The argument of a call for its adjoint for a value."""
    variable, when = value
    if when == "saved":
        held = frame.saved.held_by(variable)
        copy = back.saved.copy_of(body, number + 1, variable, Elements.everything(variable.size), held)
        return Tensor(copy, whole_view(variable).index)  # which may be a row of one of another shape
    places = dict(zip(frame.function.parameters, step.arguments, strict=True))
    tensor = places.get(variable, whole_view(variable))
    if when == "before":
        return back.given_part(body, number, tensor, needed, back.later | back.written(step))
    return back.given_part(body, number + 1, tensor, needed, back.later)
