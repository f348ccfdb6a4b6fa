"""Prune: what no output needs is neither run nor carried from turn to turn.

In comes a checked plan, out the same without the families, copies and repeats that no output depends on,
and with what each repeat has to carry. Variables are live or not as a whole, backwards from the outputs, in
repeats to a fixed point; what only ever feeds itself is dead. A write ends the life of the value before it
where emission makes the array anew: a variable that is written so in every turn, before it is read, is
carried only if something after the loop reads it. Vertices with effects (`jax.debug.print`) always run.

Source: strongly live variables, in F. Nielson, H. R. Nielson and C. Hankin, Principles of Program Analysis, 1999.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from codelet.views.index import Index
from codelet.views.tensor import Variable, source_variables
from lowering.fast.writes import plan_writes
from lowering.plan.dataflow import flow_step
from lowering.plan.plan import Plan
from lowering.plan.steps import (
    CallStep,
    CopyStep,
    ExecuteStep,
    FunctionBody,
    RepeatStep,
    RotateStep,
    Step,
    StreamStep,
    SwitchStep,
    UndefStep,
    WhileStep,
    has_effects,
)

Live = frozenset[Variable]


def written_through(step: ExecuteStep | CopyStep | StreamStep, variable: Variable) -> list[Index]:
    """The access maps through which a step writes a variable by itself, not as a part of a join."""
    written = (touch for touch in step.touches() if touch.is_written and not touch.is_empty)
    return [touch.tensor.index for touch in written if touch.tensor.source is variable]


def _before(step: ExecuteStep | CopyStep | StreamStep, live: Live) -> Live:
    """What is live before a step that runs."""
    through = {variable: written_through(step, variable) for variable in step.writes}
    made = {v for v, indices in through.items() if indices and not plan_writes(v.shape, indices).needs_old}
    return (live - made) | set(step.reads)


def _prune_execute(step: ExecuteStep, live: Live) -> tuple[list[Step], Live]:
    families = []
    for family in step.families:
        written = [field.tensor for field in family.fields if field.is_written and field.tensor is not None]
        needed = any(variable in live for tensor in written for variable in source_variables(tensor.source))
        if needed or family.codelet.has_effects:
            families.append(family)
    if not families:
        return [], live
    pruned = flow_step(replace(step, families=tuple(families)))
    assert isinstance(pruned, ExecuteStep)
    return [pruned], _before(pruned, live)


def _prune_rotate(step: RotateStep, live: Live) -> tuple[list[Step], Live]:
    order = step.variables
    sources = {before for before, variable in zip((order[-1], *order), order, strict=False) if variable in live}
    return ([step], (live - set(order)) | sources) if sources else ([], live)


def _copies_behind(body: Sequence[Step], start: Live, after: Live) -> list[CopyStep]:
    """Copies to make behind a loop, each of what it carries to what would be carried only to come out equal."""
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
            found[source] = CopyStep(step.destination, step.source, step.writes, step.reads)
    return list(found.values())


class _Pruner:
    """Prunes steps backwards. What is needed of what a function writes grows until all its calls are served."""

    def __init__(self) -> None:
        self.needed: dict[FunctionBody, Live] = {}
        self.pruned: dict[FunctionBody, FunctionBody] = {}
        self.known: dict[tuple[Step, Live], tuple[list[Step], Live]] = {}  # in this round, of steps with bodies

    def function(self, function: FunctionBody, needed: Live) -> FunctionBody:
        """A function with what is left of its body for all that its calls need."""
        needed |= self.needed.get(function, frozenset())
        if function not in self.pruned or needed != self.needed[function]:
            self.needed[function] = needed
            body, before = self.steps(function.body, needed)
            ordered = lambda variables: tuple(sorted(variables, key=lambda variable: variable.number))  # noqa: E731
            self.pruned[function] = replace(function, body=body, reads=ordered(before), writes=ordered(needed))
        return self.pruned[function]

    def call(self, step: CallStep, live: Live) -> tuple[list[Step], Live]:
        if not live & set(step.writes) and not has_effects(step):
            return [], live
        given = dict(zip(step.function.parameters, step.arguments, strict=True))
        needed = frozenset(
            variable
            for variable in step.function.writes
            if live & (set(source_variables(given[variable].source)) if variable in given else {variable})
        )
        function = self.function(step.function, needed)
        made = flow_step(replace(step, function=function))
        return [made], (live - set(function.writes)) | set(made.reads)

    def turns(self, step: RepeatStep, after: Live) -> tuple[RepeatStep, Live]:
        """A repeat with what is left of its body and what it carries; and what is live before it."""
        counter = frozenset() if step.index is None else frozenset([step.index])
        between = after
        while True:
            body, start = self.steps(step.body, between)
            if start - counter <= between:
                break
            between |= start - counter
        index = step.index if counter & (start | after) else None
        pruned = flow_step(replace(step, body=body, index=index))
        assert isinstance(pruned, RepeatStep)
        carried = tuple(variable for variable in pruned.writes if variable in between)
        return replace(pruned, carried=carried), start - counter

    def repeat(self, step: RepeatStep, live: Live) -> tuple[list[Step], Live]:
        if not step.count:
            return [], live
        pruned, start = self.turns(step, live)
        behind = _copies_behind(pruned.body, start, live)
        if behind:
            live = live - {variable for copy in behind for variable in copy.writes}
            live |= {variable for copy in behind for variable in copy.reads}
            pruned, start = self.turns(step, live)
        if not pruned.body and pruned.index not in live:
            return [*behind], live
        return [pruned, *behind], start

    def switch(self, step: SwitchStep, live: Live) -> tuple[list[Step], Live]:
        pruned = [self.steps(branch, live) for branch in step.branches]
        made = flow_step(replace(step, branches=tuple(branch for branch, _ in pruned)))
        if not any(branch for branch, _ in pruned):
            return [], live
        return [made], frozenset().union(source_variables(step.control.source), *(before for _, before in pruned))

    def while_loop(self, step: WhileStep, live: Live) -> tuple[list[Step], Live]:
        if not live & set(step.writes) and not has_effects(step):
            return [], live
        flag = frozenset() if step.abort is None else frozenset([step.abort])
        look = live | set(source_variables(step.predicate.source)) | flag
        while True:
            condition, before = self.steps(step.condition, look)
            body, start = self.steps(step.body, before)
            if start <= look:
                return [flow_step(replace(step, condition=condition, body=body))], before
            look |= start

    def made_of_others(self, step: RepeatStep | SwitchStep | WhileStep, live: Live) -> tuple[list[Step], Live]:
        """As `step`, of one with bodies: once for each need, since loops around it ask again and again."""
        if (step, live) not in self.known:
            match step:
                case RepeatStep():
                    found = self.repeat(step, live)
                case SwitchStep():
                    found = self.switch(step, live)
                case WhileStep():
                    found = self.while_loop(step, live)
            self.known[step, live] = found
        return self.known[step, live]

    def step(self, step: Step, live: Live) -> tuple[list[Step], Live]:
        """What is left of a step, given what is live after it; and what is live before it."""
        match step:
            case ExecuteStep():
                return _prune_execute(step, live)
            case RotateStep():
                return _prune_rotate(step, live)
            case RepeatStep() | SwitchStep() | WhileStep():
                return self.made_of_others(step, live)
            case CopyStep():
                return ([step], _before(step, live)) if live & set(step.writes) else ([], live)
            case CallStep():
                return self.call(step, live)
            case StreamStep():
                return [step], _before(step, live)  # whether needed or not: the next value is the next copy's
            case UndefStep():
                return [], live
        needed = has_effects(step) or bool(live & set(step.writes))
        return ([step], live | set(step.reads)) if needed else ([], live)

    def steps(self, steps: Sequence[Step], live: Live) -> tuple[tuple[Step, ...], Live]:
        kept: list[Step] = []
        for step in reversed(steps):
            own, live = self.step(step, live)
            kept = own + kept
        return tuple(kept), live


def prune(plan: Plan) -> Plan:
    """The plan without what no output needs. Reading what nothing has written must be ruled out already."""
    live = frozenset(variable for tensor in plan.outputs for variable in source_variables(tensor.source))
    live |= frozenset() if plan.abort is None else frozenset([plan.abort])
    pruner = _Pruner()
    while True:
        before = dict(pruner.pruned)
        pruner.known.clear()
        steps, _ = pruner.steps(plan.steps, live)
        if before == pruner.pruned:
            return replace(plan, steps=steps)
