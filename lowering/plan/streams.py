"""Streams: how many values a program takes from each stream, and gives to it.

Values come and go stacked along a first axis. Their number may depend on data, in a choice or a loop on a condition, as
long as it has a bound: it is then counted, and the most that there may be are given, or room is made for them. Of an
input stream it needs no bound where an engine runs the program, which asks the host for each value when it is taken.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax

from codelet.errors import Line, ProgramError
from codelet.programs.copies import Stream
from lowering.plan.plan import Plan
from lowering.plan.steps import CallsStep, CallStep, FunctionBody, RepeatStep, Step, StreamStep, SwitchStep, WhileStep
from lowering.plan.walk import bodies


class Sent(NamedTuple):
    """What was sent to a stream to which a number of values goes that depends on data.

    Attributes:
        values: of shape (most, *shape of a value), where `most` is how many there may be; zeros behind those sent.
        count: how many were sent, an int32.
    """

    values: Any
    count: Any


class Taken(NamedTuple):
    """How many values of an input stream a program took, where that depends on data.

    Attributes:
        count: how many of those that were given, from the first on; an int32.
    """

    count: Any


class _Count(NamedTuple):
    """How many values are copied at least, and at most."""

    least: int
    most: float

    @property
    def is_fixed(self) -> bool:
        return self.least == self.most


_NONE = _Count(0, 0)
_Counts = dict[Stream, _Count]


def _refused(stream: Stream, what: str, fix: str, line: Line | None) -> ProgramError:
    problem = f"how many values of stream {stream.name!r} are copied depends on {what}"
    expected = "a number that is known not to be exceeded"
    return ProgramError(problem, given=stream, expected=expected, fix=fix, line=line)


def _no_bound(stream: Stream, line: Line | None) -> ProgramError:
    fix = "max_iterations= for the loop, or copy outside, or in a Repeat"
    if stream.is_input:
        fix += "; cl.Engine runs it as it is, and asks the host for each value when it is taken"
    return _refused(stream, "how often a loop without a bound runs", fix, line)


def _add(total: _Counts, more: _Counts, times: int = 1) -> None:
    for stream, (least, most) in more.items():
        own = total.get(stream, _NONE)
        total[stream] = _Count(own.least + least * times, own.most + (most * times if times else 0))


class _Counter:
    """Counts the values that steps copy; those of each function once."""

    def __init__(self) -> None:
        self.functions: dict[FunctionBody, _Counts] = {}
        self.unbounded: dict[Stream, Line | None] = {}  # input streams of loops without a bound, with their lines

    def of(self, steps: Sequence[Step]) -> _Counts:
        total: _Counts = {}
        for step in steps:
            match step:
                case StreamStep():
                    _add(total, {step.stream: _Count(1, 1)})
                case RepeatStep():
                    _add(total, self.of(step.body), step.count)
                case CallStep():
                    if step.function not in self.functions:
                        self.functions[step.function] = self.of(step.function.body)
                    _add(total, self.functions[step.function])
                case CallsStep():
                    _add(total, self.of(step.calls))
                case WhileStep():
                    _add(total, self.loop(step))
                case SwitchStep():
                    _add(total, self.choice(step))
                case _:
                    assert not bodies(step), step
        return total

    def loop(self, step: WhileStep) -> _Counts:
        look, turn = self.of(step.condition), self.of(step.body)
        total: _Counts = {}
        for stream in {**look, **turn}:
            of_look, of_turn = look.get(stream, _NONE), turn.get(stream, _NONE)
            most, turns = math.inf, step.max_iterations
            if turns is not None:
                most = of_look.most * (turns + 1) + of_turn.most * turns
            elif not stream.is_input:
                raise _no_bound(stream, step.line)
            else:
                self.unbounded.setdefault(stream, step.line)
            total[stream] = _Count(of_look.least, most)
        return total

    def choice(self, step: SwitchStep) -> _Counts:
        counts = [self.of(branch) for branch in step.branches]
        total: _Counts = {}
        for stream in dict.fromkeys(stream for count in counts for stream in count):
            own = [count.get(stream, _NONE) for count in counts]
            total[stream] = _Count(min(count.least for count in own), max(count.most for count in own))
        return total


def count_values(steps: Sequence[Step]) -> Counter[Stream]:
    """How many values of each stream some steps copy at most.

    Raises:
        ProgramError: a number that depends on data, and has no bound.
    """
    counter = _Counter()
    counts = counter.of(steps)
    for stream, line in counter.unbounded.items():
        if math.isinf(counts[stream].most):
            raise _no_bound(stream, line)
    return +Counter({stream: int(count.most) for stream, count in counts.items()})


def copied_streams(steps: Sequence[Step]) -> frozenset[Stream]:
    """The streams of which some steps may copy a value."""
    return frozenset(stream for stream, count in _Counter().of(steps).items() if count.most)


def unsure_streams(steps: Sequence[Step]) -> frozenset[Stream]:
    """The streams of which some steps copy a number of values that depends on data."""
    return frozenset(stream for stream, count in _Counter().of(steps).items() if not count.is_fixed)


def unsure_inputs(steps: Sequence[Step]) -> frozenset[Stream]:
    """The input streams among `unsure_streams`."""
    return frozenset(stream for stream in unsure_streams(steps) if stream.is_input)


def copied_by_stream(plan: Plan, arrays: Sequence[Any]) -> dict[Stream, Any]:
    """What was copied of the streams of a plan, from the arrays that `emit` gives.

    Of each output stream the values, stacked, or `Sent`; of an input stream `Taken`, where the number depends on data.
    """
    unsure, following = unsure_streams(plan.steps), iter(arrays)
    found: dict[Stream, Any] = {}
    for stream in plan.streams:
        if stream.is_input:
            if stream in unsure:
                found[stream] = Taken(next(following))
        else:
            found[stream] = Sent(next(following), next(following)) if stream in unsure else next(following)
    return found


def fed_types(plan: Plan) -> list[jax.ShapeDtypeStruct]:
    """The types of the values of a plan's input streams, stacked, in order."""
    counts = count_values(plan.steps)
    return [jax.ShapeDtypeStruct((counts[s], *s.shape), s.dtype) for s in plan.streams if s.is_input]


def check_streams(plan: Plan) -> None:
    """The number of values of every output stream has a bound.

    Raises:
        ProgramError: one that depends on data.
    """
    copied_streams(plan.steps)
