"""Walks over steps: what they are made of, others in its place, all of them in order, and whether any has effects."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lowering.plan.steps import (
    CallsStep,
    CallStep,
    ExecuteStep,
    FunctionBody,
    PrintStep,
    RepeatStep,
    Step,
    StreamStep,
    SwitchStep,
    WhileStep,
)
from lowering.plan.touch import Touch


def bodies(step: Step) -> tuple[tuple[Step, ...], ...]:
    """The lists of steps that a step is made of; a call's is that of its function."""
    match step:
        case RepeatStep():
            return (step.body,)
        case WhileStep():
            return (step.condition, step.body)
        case SwitchStep():
            return step.branches
        case CallStep():
            return (step.function.body,)
        case CallsStep():
            return (step.calls,)
    return ()


def with_bodies(step: Step, made: Sequence[tuple[Step, ...]]) -> Step:
    """A step made of other lists of steps. Not for calls, which share theirs."""
    match step:
        case RepeatStep():
            return replace(step, body=made[0])
        case WhileStep():
            return replace(step, condition=made[0], body=made[1])
        case SwitchStep():
            return replace(step, branches=tuple(made))
    assert not made
    return step


class Rewriter:
    """Writes steps anew, each of those with bodies, and each function, once, however often they stand in a program.

    Whoever uses it says what becomes of the steps of one body.
    """

    def __init__(self) -> None:
        self._steps: dict[Step, Step] = {}
        self._functions: dict[FunctionBody, FunctionBody] = {}

    def body(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """What becomes of the steps of a body."""
        raise NotImplementedError

    def around(self, step: Step) -> Step:
        """A step with what it is made of written anew; itself where it is made of nothing."""
        if step not in self._steps:
            if isinstance(step, CallStep):
                self._steps[step] = replace(step, function=self.function(step.function))
            else:
                self._steps[step] = with_bodies(step, [self.body(body) for body in bodies(step)])
        return self._steps[step]

    def function(self, function: FunctionBody) -> FunctionBody:
        """A function with its body written anew."""
        if function not in self._functions:
            self._functions[function] = replace(function, body=self.body(function.body))
        return self._functions[function]


def all_steps(steps: Sequence[Step]) -> Iterator[Step]:
    """Every step and, after it, those it is made of; those of a function after its first call."""
    functions: set[FunctionBody] = set()
    waiting = list(reversed(steps))
    while waiting:
        step = waiting.pop()
        yield step
        if isinstance(step, CallStep):
            if step.function in functions:
                continue
            functions.add(step.function)
        for body in reversed(bodies(step)):
            waiting += reversed(body)


def all_reads(steps: Sequence[Step]) -> Iterator[tuple[Step, Touch]]:
    """What every step reads, and those that it is made of."""
    return ((step, touch) for step in all_steps(steps) for touch in step.touches() if touch.is_read)


def has_effects(step: Step) -> bool:
    """Whether a step does more than to give variables values: prints, or takes or gives values of streams."""
    return any(
        isinstance(part, (PrintStep, StreamStep))
        or (isinstance(part, ExecuteStep) and any(family.codelet.has_effects for family in part.families))
        for part in all_steps((step,))
    )
