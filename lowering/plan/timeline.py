"""The timeline: what a program does, moment by moment, in the order of its text.

In come the steps of a plan, a tree. Out come the moments: a moment is one step that does something of its own, or the
head of a loop, where the next iteration begins. Which may follow which, `control.py` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from codelet.graphs.graph import Graph
from codelet.views.sources import Variable
from lowering.plan.control import control
from lowering.plan.dataflow import flow_step
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, CopyStep, ExecuteStep, FunctionBody, RotateStep, Step, WhileStep
from lowering.plan.walk import bodies, with_bodies


class Loop(NamedTuple):
    """A loop around a moment.

    Attributes:
        number: of its first moment.
        turns: how often the moment's part of it runs, each time that the loop does.
        is_guess: whether nobody says how often.
    """

    number: int
    turns: int
    is_guess: bool = False


@dataclass(frozen=True, eq=False)
class Moment:
    """One step of a program at one place of it.

    Attributes:
        number: its place among the moments, in the order of the program's text.
        step: what happens: a step without a body, or the loop whose iteration begins.
        turns: how often it happens in a run of the program, where all choices around it are made for it.
        branches: the choices it depends on, the outermost first: the number of the choice, and of its branch.
        loops: those around it, the outermost first.
    """

    number: int
    step: Step
    turns: int
    branches: tuple[tuple[int, int], ...] = ()
    loops: tuple[Loop, ...] = ()

    @property
    def depth(self) -> int:
        """How many loops are around it."""
        return len(self.loops)

    @property
    def reads(self) -> tuple[Variable, ...]:
        """The variables of which it reads any element."""
        if not bodies(self.step):
            return self.step.reads
        return tuple(variable for touch in self.step.touches() if touch.is_read for variable in touch.variables)

    @property
    def writes(self) -> tuple[Variable, ...]:
        """The variables of which it writes any element: the head of a loop sets what counts the iterations."""
        if not bodies(self.step):
            return self.step.writes
        return tuple(variable for touch in self.step.touches() if touch.is_written for variable in touch.variables)

    @property
    def name(self) -> str:
        """What it is, in a few words."""
        if isinstance(self.step, ExecuteStep):
            return f"execute {self.step.name}"
        return next(self.step.lines())

    def __str__(self) -> str:
        turns = f" ({self.turns} times)" if self.turns != 1 else ""
        return f"{self.number:3} {'  ' * self.depth}{self.name.split(' reads ')[0].split(' writes ')[0]}{turns}"


@dataclass(frozen=True, eq=False)
class Timeline:
    """All moments of a program, in the order of its text."""

    moments: tuple[Moment, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.moments))


def _lay_out(
    moments: list[Moment],
    steps: Sequence[Step],
    turns: int,
    branches: tuple[tuple[int, int], ...],
    loops: tuple[Loop, ...],
) -> None:
    """Add the moments of steps."""
    for step in steps:
        assert not isinstance(step, (CallStep, RotateStep)), step
        own, head = control(step), len(moments)
        for part in own.parts:
            if part.body is None:
                moments.append(Moment(len(moments), step, turns * part.turns, branches, loops))
            else:
                inside = branches if part.branch is None else (*branches, (head, part.branch))
                is_guess = isinstance(step, WhileStep) and step.counted_turns.is_guess
                around = (*loops, Loop(head, part.turns, is_guess)) if part.deeper else loops
                _lay_out(moments, bodies(step)[part.body], turns * part.turns, inside, around)


def _without_calls(
    steps: Sequence[Step], graph: Graph, made: dict[FunctionBody, tuple[Step, ...]], keep: Callable[[CallStep], bool]
) -> tuple[Step, ...]:
    found: list[Step] = []
    for step in steps:
        if isinstance(step, CallStep) and not keep(step):
            function = step.function
            named = [graph.variable(parameter.name) for parameter in function.parameters]
            copies = [CopyStep(argument, own) for argument, own in zip(step.arguments, named, strict=True)]
            back = [CopyStep(named[k], step.arguments[k]) for k in function.written]
            if function not in made:
                made[function] = _without_calls(function.body, graph, made, keep)
            found += [*map(flow_step, copies), *made[function], *map(flow_step, back)]
        elif bodies(step) and not isinstance(step, CallStep):
            found.append(with_bodies(step, [_without_calls(body, graph, made, keep) for body in bodies(step)]))
        else:
            found.append(step)
    return tuple(found)


def without_calls(plan: Plan, keep: Callable[[CallStep], bool] = lambda step: False) -> Plan:
    """The plan with calls as what they are on the machine: copies to the parameters, the body, and copies back.

    The bodies of all calls of a function are the same steps.

    Args:
        plan: the plan.
        keep: which calls stay as they are.
    """
    return replace(plan, steps=_without_calls(plan.steps, plan.graph, {}, keep))


def timeline(plan: Plan) -> Timeline:
    """The moments of a plan's program. A loop of no iterations has none.

    How often a loop on a condition turns is what `WhileStep.counted_turns` says.
    """
    moments: list[Moment] = []
    _lay_out(moments, plan.steps, 1, (), ())
    return Timeline(tuple(moments))
