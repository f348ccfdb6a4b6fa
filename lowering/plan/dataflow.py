"""Dataflow: which variables every step reads and writes, of what it touches itself and of what it is made of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from codelet.views.sources import Variable
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, FunctionBody, RotateStep, Step
from lowering.plan.walk import bodies, with_bodies


def ordered(variables: Iterable[Variable]) -> tuple[Variable, ...]:
    """Variables, each once, in the order in which they were made."""
    return tuple(sorted(set(variables), key=lambda variable: variable.number))


def _of_all(steps: Iterable[Step | FunctionBody]) -> tuple[list[Variable], list[Variable]]:
    own = list(steps)
    return [v for step in own for v in step.reads], [v for step in own for v in step.writes]


def flow_step(step: Step) -> Step:
    """A step with its reads and writes filled in; those of what it is made of are there already, and are included."""
    if isinstance(step, RotateStep):
        return step
    if isinstance(step, CallStep):
        hidden = step.function.parameters
        inside = [[v for v in own if v not in hidden] for own in _of_all([step.function])]
    else:
        inside = _of_all(part for body in bodies(step) for part in body)
    own = list(step.touches())
    reads = [variable for touch in own if touch.is_read for variable in touch.variables]
    writes = [variable for touch in own if touch.is_written for variable in touch.variables]
    return replace(step, reads=ordered(reads + inside[0]), writes=ordered(writes + inside[1]))


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
            reads = [*reads, *function.looked_at]
            self.made[function] = replace(function, body=body, reads=ordered(reads), writes=ordered(writes))
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
