"""Streams: how many values a program takes from each stream, and gives to it.

The number is fixed where the program is lowered: values come and go stacked along a first axis. A choice takes
as many whichever way it goes, and a loop on a condition none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import jax

from codelet.copies import Stream
from codelet.errors import ProgramError
from lowering.plan import CallStep, Plan, RepeatStep, Step, StreamStep, SwitchStep, WhileStep, bodies


def _refused(stream: Stream, what: str) -> ProgramError:
    return ProgramError(
        f"how many values of stream {stream.name!r} are copied depends on {what}",
        given=stream,
        expected="as many whenever the program runs",
        fix="copy outside, or in a Repeat; of a choice, as often in every case",
    )


def count_values(steps: Sequence[Step]) -> Counter[Stream]:
    """How many values of each stream some steps copy.

    Raises:
        ProgramError: a number that depends on data.
    """
    total: Counter[Stream] = Counter()
    for step in steps:
        match step:
            case StreamStep():
                total[step.stream] += 1
            case RepeatStep():
                total.update({stream: step.count * n for stream, n in count_values(step.body).items()})
            case CallStep():
                total += count_values(step.function.body)
            case WhileStep():
                for stream in count_values((*step.condition, *step.body)):
                    raise _refused(stream, "how often a loop runs")
            case SwitchStep():
                counts = [count_values(branch) for branch in step.branches]
                for count in counts:
                    for stream in (counts[0] - count) + (count - counts[0]):
                        raise _refused(stream, "a choice")
                total += counts[0]
            case _:
                assert not bodies(step), step
    return +total


def fed_types(plan: Plan) -> list[jax.ShapeDtypeStruct]:
    """The types of the values of a plan's input streams, stacked, in order."""
    counts = count_values(plan.steps)
    return [jax.ShapeDtypeStruct((counts[s], *s.shape), s.dtype) for s in plan.streams if s.is_input]


def check_streams(plan: Plan) -> None:
    """The number of values of every stream is known.

    Raises:
        ProgramError: one that depends on data.
    """
    count_values(plan.steps)
