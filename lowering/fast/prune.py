"""Dead-code elimination: steps that no output needs are neither run nor carried from iteration to iteration.

In comes a checked plan, out the same without the families, copies and repeats that no output depends on, and with the
carry of each loop and branch. Variables are live or not as a whole, backwards from the outputs, in loops to a fixed
point; a variable that only ever feeds itself is dead. A write ends the life of the value before it where emission makes
the array anew, or where it writes most of the variable, and all that any step reads of it: nobody needs the rest. A
variable that is written so in every iteration, before it is read, is carried only if something after the loop reads it.
Vertices with effects (`jax.debug.print`) always run. The live variables at each place are found by
`lowering/plan/solver.py`; the remaining steps then follow from it.

Source: strongly live variables, in F. Nielson, H. R. Nielson and C. Hankin, Principles of Program Analysis, 1999.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from codelet.views.index import Index
from codelet.views.sources import Variable, source_variables
from lowering.fast.writes import need_old
from lowering.plan.control import control
from lowering.plan.dataflow import flow_step, ordered
from lowering.plan.elements import Elements, ElementSet
from lowering.plan.plan import Plan
from lowering.plan.solver import Analysis, Solution
from lowering.plan.steps import (
    CallStep,
    CopyStep,
    ExecuteStep,
    FunctionBody,
    RepeatStep,
    RotateStep,
    Step,
    SwitchStep,
    WhileStep,
)
from lowering.plan.touch import Touch
from lowering.plan.walk import all_reads, all_steps, bodies, has_effects, with_bodies

Live = frozenset[Variable]


def written_through(step: Step, variable: Variable) -> list[Index]:
    """The access maps through which a step writes a variable by itself, not as a part of a join."""
    written = (touch for touch in step.touches() if touch.is_written and not touch.is_empty)
    return [touch.tensor.index for touch in written if touch.tensor.source is variable]


def _read_of(plan: Plan) -> Callable[[Variable], Elements]:
    """The elements of a variable that the steps of a plan read; all of outputs, and of what calls read or write."""
    readers: dict[Variable, list[Touch]] = {}
    wholly = {variable for tensor in plan.outputs for variable in source_variables(tensor.source)}
    for step in all_steps(plan.steps):
        if isinstance(step, CallStep):
            called = step.function
            wholly.update((*step.reads, *step.writes, *called.reads, *called.writes, *called.parameters))
    for _, touch in all_reads(plan.steps):
        for variable in touch.variables:
            readers.setdefault(variable, []).append(touch)

    def read(variable: Variable) -> Elements:
        if variable in wholly:
            return Elements.everything(variable.size)
        return ElementSet.of_views((touch.tensor, touch.axes) for touch in readers.get(variable, ())).of(variable)

    return functools.cache(read)


def _makes_all_that_is_read(variable: Variable, touches: Iterable[Touch], read: Callable[[Variable], Elements]) -> bool:
    """Whether a step that writes a part of a variable writes all that any step reads of it, and most of it."""
    made = ElementSet()
    for touch in touches:
        if touch.mode == "write" and touch.tensor.source is variable:
            if touch.tensor.index.tables:  # which would be told apart one by one
                return False
            made.add(touch.tensor, touch.axes)
    own = made.of(variable)
    return 2 * own.count >= variable.size and (read(variable) - own).first is None


def _made_and_read(step: Step, read_of: Callable[[Variable], Elements]) -> tuple[Live, Live]:
    """The variables that a step itself makes anew, and those that it reads."""
    touches = list(step.touches())
    through: dict[Variable, list[Index]] = {}
    for touch in touches:
        if touch.is_written and not touch.is_empty and isinstance(touch.tensor.source, Variable):
            through.setdefault(touch.tensor.source, []).append(touch.tensor.index)
    made = frozenset(
        v
        for v, indices in through.items()
        if indices and (not need_old(v.shape, indices) or _makes_all_that_is_read(v, touches, read_of))
    )
    return made, frozenset(variable for touch in touches if touch.is_read for variable in touch.variables)


def _needed_families(step: ExecuteStep, needed: Live) -> Step:
    """A step with those of its families that write something needed, or have effects."""
    writers = {touch.family for touch in step.touches() if touch.is_written and not needed.isdisjoint(touch.variables)}
    families = [family for family in step.families if family in writers or family.codelet.has_effects]
    return step if len(families) == len(step.families) else flow_step(replace(step, families=tuple(families)))


def _copies_behind(body: Sequence[Step], start: Live, after: Live) -> list[CopyStep]:
    """Copies to make behind a loop, each of a carry to a variable that would be carried only to come out equal."""
    found: dict[Variable, CopyStep] = {}
    for k, step in enumerate(body):
        pair = step.whole_variables if isinstance(step, CopyStep) else None
        later = {variable for other in body[k + 1 :] for variable in other.writes}
        if not isinstance(step, CopyStep) or pair is None or later & set(pair):
            continue
        source, destination = pair
        if source in start and destination in after - start:
            found[destination] = step
        elif destination in start and source in after - start:
            found[source] = CopyStep(step.destination, step.source, reads=step.writes, writes=step.reads)
    return list(found.values())


class _Within(NamedTuple):
    """The live variables within a step with bodies: the copies to make behind it, those live before these,
    and within.
    """

    copies: list[CopyStep]
    after: Live
    solution: Solution[Live]


class _Pruner(Analysis[Live]):
    """Finds which variables are live at every place, and the remaining part of steps.

    The needed results of a function grow until all its calls are served.
    """

    forward = False

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.needed: dict[FunctionBody, Live] = {}
        self.settled = True
        self.functions: dict[FunctionBody, FunctionBody] = {}
        self.has_effects = functools.cache(has_effects)
        read_of = functools.cache(_read_of)  # where a step writes a part of a variable, which is seldom
        self.made_and_read = functools.cache(
            lambda step: _made_and_read(step, lambda variable: read_of(plan)(variable))
        )
        self.needed_families = functools.cache(_needed_families)

    def meet(self, one: Live, other: Live) -> Live:
        return one | other

    def is_needed(self, step: Step, live: Live) -> bool:
        """Whether a step is to run, given the variables live after it."""
        return (not live.isdisjoint(step.writes) or self.has_effects(step)) and bool(control(step).parts)

    def itself(self, step: Step, live: Live) -> Step:
        """The needed rest of a step without bodies."""
        return self.needed_families(step, live.intersection(step.writes)) if isinstance(step, ExecuteStep) else step

    def own(self, step: Step, fact: Live) -> Live:
        if not bodies(step) and not self.is_needed(step, fact):
            return fact
        if isinstance(step, RotateStep):
            order = step.variables
            sources = {before for before, own in zip((order[-1], *order), order, strict=False) if own in fact}
            return (fact - set(order)) | sources
        made, read = self.made_and_read(self.itself(step, fact))
        return (fact - made) | read

    def enter(self, step: CallStep, fact: Live) -> Live:
        function = step.function
        given = dict(zip(function.parameters, step.arguments, strict=True))
        outside = lambda v: source_variables(given[v].source) if v in given else (v,)  # noqa: E731
        needed = frozenset(variable for variable in function.writes if not fact.isdisjoint(outside(variable)))
        if function.derivative is not None:  # which is of all that it writes
            needed |= frozenset(function.derivative.outputs)
        before = self.needed.setdefault(function, needed)
        self.settled &= needed <= before
        self.needed[function] = before | needed
        return self.needed[function]

    def leave(self, step: CallStep, reached: Live, fact: Live) -> Live:
        needed = self.needed[step.function]
        handed_in = fact | frozenset(step.function.looked_at)
        pairs = list(zip(step.function.parameters, step.arguments, strict=True))
        given = {v for own, argument in pairs if own in handed_in for v in source_variables(argument.source)}
        made = {own.source for parameter, own in pairs if parameter in needed and own.is_whole_variable}
        return (reached - needed - made) | (fact - set(step.function.parameters)) | given

    def within(self, step: Step, live: Live) -> _Within:
        """The variables live within a step with bodies, given those live after it: found once for each need."""
        if (step, live) not in self._known:
            copies, after, solution = [], live, super().solve(step, live, self.part)
            if isinstance(step, RepeatStep) and live - solution.beyond:
                copies = _copies_behind(step.body, solution.beyond, live)
            if copies:
                after -= {variable for copy in copies for variable in copy.writes}
                after |= {variable for copy in copies for variable in copy.reads}
                solution = super().solve(step, after, self.part)
            self._known[step, live] = _Within(copies, after, solution)
        return self._known[step, live]

    def solve(self, step: Step, fact: Live, part: Callable[[Step, int | None, Live], Live]) -> Solution[Live]:
        return self.within(step, fact).solution if self.is_needed(step, fact) else Solution({}, fact)

    def settle(self, steps: Sequence[Step], live: Live) -> None:
        """Find the needs of functions."""
        self.settled = False
        while not self.settled:
            self.settled = True
            self._known.clear()
            self.beyond(steps, live)

    def function(self, step: CallStep) -> FunctionBody:
        """A function with the rest of its body for all that its calls need."""
        function = step.function
        if function not in self.functions:
            needed = self.needed[function]
            reads = self.through(step, 0, needed) | frozenset(function.looked_at)
            left = self.left(function.body, needed), ordered(reads), ordered(needed), ordered(needed & reads)
            if left != (function.body, function.reads, function.writes, function.kept):
                body, reads, writes, kept = left
                function = replace(function, body=body, reads=reads, writes=writes, kept=kept)
            self.functions[step.function] = function
        return self.functions[step.function]

    def left_of(self, step: Step, live: Live) -> tuple[list[Step], Live]:
        """The rest of a step, itself where that is all, given the variables live after it; and those live before it."""
        if not self.is_needed(step, live):
            return [], live
        if not bodies(step):
            return [self.itself(step, live)], self.own(step, live)
        copies, after, (reaching, start) = self.within(step, live)
        if isinstance(step, CallStep):
            function = self.function(step)
            return [step if function is step.function else flow_step(replace(step, function=function))], start
        needed = [reaching[k] for k, part in enumerate(control(step).parts) if part.body is not None]
        inside = tuple(map(self.left, bodies(step), needed))
        made = step if inside == bodies(step) else with_bodies(step, inside)
        if isinstance(made, RepeatStep) and made.index is not None and made.index not in reaching[0] | after:
            made = replace(made, index=None)
        made = made if made is step else flow_step(made)
        if isinstance(made, RepeatStep | WhileStep | SwitchStep):
            later = after if isinstance(made, SwitchStep) else frozenset().union(*needed, after)
            carried = tuple(variable for variable in made.writes if variable in later)
            made = made if made.carried == carried else replace(made, carried=carried)
        return [*([made] if self.is_needed(made, after) else []), *copies], start

    def left(self, steps: Sequence[Step], live: Live) -> tuple[Step, ...]:
        """The rest of some steps, given the variables live after them."""
        kept: list[Step] = []
        for step in reversed(steps):
            own, live = self.left_of(step, live)
            kept += reversed(own)
        return tuple(reversed(kept))


def prune(plan: Plan) -> Plan:
    """The plan without steps that no output needs. Reading an element that nothing has written must be ruled out
    already.
    """
    live = frozenset(variable for tensor in plan.outputs for variable in source_variables(tensor.source))
    live |= frozenset() if plan.abort is None else frozenset([plan.abort])
    pruner = _Pruner(plan)
    pruner.settle(plan.steps, live)
    return replace(plan, steps=pruner.left(plan.steps, live))
