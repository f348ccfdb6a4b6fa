"""Programs of steps: collected steps, as programs again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace

from codelet.programs.control import Repeat, RepeatWhile, Switch
from codelet.programs.copies import Copy
from codelet.programs.functions import Call, Function
from codelet.programs.program import Execute, Program
from codelet.programs.program import Sequence as ProgramSequence
from codelet.programs.tensor_steps import AbortOn, Print, WriteUndef
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor, whole_view
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
from lowering.plan.timeline import without_calls
from lowering.plan.walk import all_steps, bodies, with_bodies


def is_unit(step: CallStep) -> bool:
    """Whether a step is no call of a program, but steps that the backward pass runs again: such have no name."""
    return not step.function.name


def function_of(plan: Plan, function: FunctionBody) -> Function:
    """The function of the graph that a function of its plan is."""
    return next(own for own in plan.graph.functions if own.name == function.name)


def program_of(plan: Plan, step: Step, inside: Sequence[Program]) -> Program:
    """The program of a step of a plan before any pass that only lowering knows of, given those of its bodies."""
    graph = plan.graph
    match step:
        case ExecuteStep(name, families):
            of_vertices = (family.compute_set for family in families)
            return Execute(next(of_vertices, None) or next(own for own in graph.compute_sets if own.name == name))
        case CopyStep(source, destination):
            return Copy(source, destination)
        case StreamStep(stream, tensor):
            return Copy(stream, tensor) if stream.is_input else Copy(tensor, stream)
        case RepeatStep(count, _, index):
            counter = None if index is None else whole_view(index)
            return Repeat(count, inside[0], index=counter, recompute=step.recompute)
        case WhileStep(_, predicate):
            condition, body = inside
            bounds = {"max_iterations": step.max_iterations, "trip_count": step.turns}
            return RepeatWhile(condition, predicate, body, until=step.until, **bounds).told(step.bound)
        case SwitchStep(control, values):
            return Switch(control, dict(zip(values, inside, strict=False)), inside[-1])
        case CallStep(function, arguments):
            if is_unit(step):
                return ProgramSequence(*inside)
            own = function_of(plan, function)
            return Call(own, **dict(zip(own.parameters, arguments, strict=True)))
        case PrintStep(tensor, text):
            return Print(tensor, text)
        case AbortStep(predicate):
            return AbortOn(predicate, plan.messages[step.code - 1])
        case UndefStep(tensor):
            return WriteUndef(tensor)
    raise AssertionError(step)


def _is_read(step: Step, left: ElementSet) -> bool:
    """Whether a step, or any within it, reads an element."""
    for touch in step.touches():
        if touch.is_read and not set(left.variables).isdisjoint(touch.variables):
            own = ElementSet()
            own.add(touch.tensor, touch.axes)
            if not (own & left).is_empty:
                return True
    return any(_is_read(inner, left) for body in bodies(step) for inner in body)


def _is_overwritten(destination: Tensor, steps: Iterable[Step]) -> bool:
    """Whether steps overwrite all of a tensor before they read any of it."""
    left = ElementSet()
    left.add(destination, ())
    for step in steps:
        if _is_read(step, left):
            return False
        for touch in step.touches():
            if touch.mode != "read" and not bodies(step) and not set(left.variables).isdisjoint(touch.variables):
                own = ElementSet()
                own.add(touch.tensor, touch.axes)
                left = left - own
        if left.is_empty:
            return True
    return False


def _without_idle(steps: Sequence[Step], kept: Collection[Step]) -> tuple[Step, ...]:
    """Steps without the copies that nothing reads, but for those that are kept."""
    found: list[Step] = []  # from the last on, since what only an idle copy reads is idle too
    for step in reversed(steps):
        if bodies(step) and not isinstance(step, CallStep):
            step = with_bodies(step, [_without_idle(own, kept) for own in bodies(step)])
        if not isinstance(step, CopyStep) or step in kept or not _is_overwritten(step.destination, reversed(found)):
            found.append(step)
    return tuple(reversed(found))


def has_derivative(step: CallStep) -> bool:
    """Whether a call is of a function whose derivatives are a codelet's."""
    return step.function.derivative is not None


def without_calls_or_idle_copies(plan: Plan, steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps with calls as copies and bodies, but without copies to and from parameters that nothing reads.

    On the machine these are harmless; in a program they would read elements that may have no value yet. The copies of
    the steps themselves
    stay: they run wherever the steps do, and then their operands have to be there. So do calls of functions with custom
    derivatives.
    """
    return _without_idle(without_calls(replace(plan, steps=tuple(steps)), has_derivative).steps, {*all_steps(steps)})


def _without(steps: Sequence[Step], gone: Collection[Step]) -> tuple[Step, ...]:
    """Steps without some, in those that they are made of too, but for functions."""
    inside = lambda step: with_bodies(step, [_without(own, gone) for own in bodies(step)])  # noqa: E731
    left = (step for step in steps if step not in gone)
    return tuple(inside(step) if bodies(step) and not isinstance(step, CallStep) else step for step in left)


def with_open_calls(plan: Plan, keep: Callable[[CallStep], bool]) -> Plan:
    """A plan with calls, but those kept, as copies and bodies, without copies to and from parameters in vain.

    A step that reads a parameter, or overwrites it, may be part of a function whose call is kept.
    """
    opened = without_calls(plan, keep)
    alone = without_calls(opened, has_derivative).steps
    read = {*all_steps(_without_idle(alone, {*all_steps(plan.steps)}))}
    idle = {step for step in all_steps(opened.steps) if isinstance(step, CopyStep) and step not in read}
    return replace(opened, steps=_without(opened.steps, idle))


def called_once(plan: Plan) -> Callable[[CallStep], bool]:
    """Whether a call is the only one of its function in a program."""
    counts = Counter(step.function for step in all_steps(plan.steps) if isinstance(step, CallStep))
    return lambda step: counts[step.function] == 1


def parameters_of(plan: Plan) -> set[Variable]:
    """The parameters of all functions that are called, which hold nothing between calls."""
    calls = (step for step in all_steps(plan.steps) if isinstance(step, CallStep))
    return {own for step in calls for own in step.function.parameters}


def writes_of(steps: Iterable[Step]) -> set[Variable]:
    """The variables of which steps write, or end, any element."""
    found: set[Variable] = set()
    for step in steps:
        found.update(step.writes)
        if isinstance(step, UndefStep):
            found.update(variable for touch in step.touches() for variable in touch.variables)
        for body in bodies(step):
            found |= writes_of(body)
    return found
