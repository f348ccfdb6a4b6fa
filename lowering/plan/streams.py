"""Streams: how many values a program takes from each stream, and gives to it.

Values come and go stacked along a first axis. Of an input stream the number is fixed where the program is lowered: a
choice takes as many whichever way it goes, and a loop on a condition none. Of an output stream it may depend on data,
as long as it has a bound: it is then counted, and room is made for the most that there may be.
"""

from __future__ import annotations

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
    expected = "as many whenever the program runs" if stream.is_input else "a number that is known not to be exceeded"
    return ProgramError(problem, given=stream, expected=expected, fix=fix, line=line)


def _add(total: _Counts, more: _Counts, times: int = 1) -> None:
    for stream, (least, most) in more.items():
        own = total.get(stream, _NONE)
        total[stream] = _Count(own.least + least * times, own.most + most * times)


class _Counter:
    """Counts the values that steps copy; those of each function once."""

    def __init__(self) -> None:
        self.functions: dict[FunctionBody, _Counts] = {}

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
            if stream.is_input:
                raise _refused(stream, "how often a loop runs", "copy outside, or in a Repeat", step.line)
            if step.max_steps is None:
                fix = "max_steps= for the loop, or copy outside, or in a Repeat"
                raise _refused(stream, "how often a loop without a bound runs", fix, step.line)
            of_look, of_turn = look.get(stream, _NONE), turn.get(stream, _NONE)
            turns = step.max_steps
            total[stream] = _Count(of_look.least, of_look.most * (turns + 1) + of_turn.most * turns)
        return total

    def choice(self, step: SwitchStep) -> _Counts:
        counts = [self.of(branch) for branch in step.branches]
        total: _Counts = {}
        for stream in dict.fromkeys(stream for count in counts for stream in count):
            own = [count.get(stream, _NONE) for count in counts]
            found = _Count(min(count.least for count in own), max(count.most for count in own))
            if stream.is_input and not found.is_fixed:
                raise _refused(stream, "a choice", "copy outside, or as often in every case", step.line)
            total[stream] = found
        return total


def count_values(steps: Sequence[Step]) -> Counter[Stream]:
    """How many values of each stream some steps copy at most: of an input stream always so many.

    Raises:
        ProgramError: a number that depends on data, and has no bound, or is of an input stream.
    """
    return +Counter({stream: int(count.most) for stream, count in _Counter().of(steps).items()})


def unsure_streams(steps: Sequence[Step]) -> frozenset[Stream]:
    """The output streams to which some steps send a number of values that depends on data."""
    return frozenset(stream for stream, count in _Counter().of(steps).items() if not count.is_fixed)


def sent_by_stream(plan: Plan, arrays: Sequence[Any]) -> dict[Stream, Any]:
    """What was sent to each output stream of a plan, from the arrays that `emit` gives: stacked, or `Sent`."""
    unsure, following = unsure_streams(plan.steps), iter(arrays)
    outgoing = [stream for stream in plan.streams if not stream.is_input]
    return {s: Sent(next(following), next(following)) if s in unsure else next(following) for s in outgoing}


def fed_types(plan: Plan) -> list[jax.ShapeDtypeStruct]:
    """The types of the values of a plan's input streams, stacked, in order."""
    counts = count_values(plan.steps)
    return [jax.ShapeDtypeStruct((counts[s], *s.shape), s.dtype) for s in plan.streams if s.is_input]


def check_streams(plan: Plan) -> None:
    """The number of values of every input stream is known, and that of every output stream has a bound.

    Raises:
        ProgramError: one that depends on data.
    """
    count_values(plan.steps)
