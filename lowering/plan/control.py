"""Control: in which order the parts of a step may run, said here alone.

A step is made of parts: what it does itself, and its bodies. What walks over programs by the order in which they
run (the timeline, and whoever solves equations over it) asks here, and knows no kind of step by its name.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import NamedTuple

from lowering.plan.steps import CallsStep, CallStep, RepeatStep, Step, SwitchStep, WhileStep

OUTSIDE = -1
"""Stands for what comes right before a step, and for what comes right after it."""


class Part(NamedTuple):
    """A part of a step.

    Attributes:
        body: which of the step's bodies it is; None for what the step does itself.
        after: the numbers of the parts that may run right before it, `OUTSIDE` for what comes before the step.
        deeper: by how many loops it is deeper than the step.
        branch: which of the branches of a choice it is; None for what is none.
        turns: how often it runs each time that the step does; of a branch, where it is chosen.
    """

    body: int | None
    after: tuple[int, ...]
    deeper: int = 0
    branch: int | None = None
    turns: int = 1


class Way(NamedTuple):
    """How control goes through a step, in one direction.

    Attributes:
        order: the number of each part, and those of the parts from which it is reached, `OUTSIDE` where from without;
            each part behind one that it is reached from.
        ends: the numbers of the parts behind which the step is left, `OUTSIDE` where none may run.
    """

    order: tuple[tuple[int, tuple[int, ...]], ...]
    ends: tuple[int, ...]


@dataclass(frozen=True)
class Control:
    """How control goes through a step.

    Attributes:
        parts: in the order of the program's text.
        ends: the numbers of the parts that may be the last, `OUTSIDE` where none may run.
    """

    parts: tuple[Part, ...]
    ends: tuple[int, ...]

    @functools.cached_property
    def is_loop(self) -> bool:
        """Whether a part may run again."""
        return any(j >= k for k, part in enumerate(self.parts) for j in part.after)

    @functools.cached_property
    def forward(self) -> Way:
        """The way that control goes."""
        return Way(tuple((k, part.after) for k, part in enumerate(self.parts)), self.ends)

    @functools.cached_property
    def backward(self) -> Way:
        """The way against it."""
        sources = [tuple(j for j, part in enumerate(self.parts) if k in part.after) for k in range(len(self.parts))]
        sources = [(*own, *[OUTSIDE] * (k in self.ends)) for k, own in enumerate(sources)]
        order = [OUTSIDE]
        while len(order) <= len(sources):
            order.append(max(k for k, own in enumerate(sources) if k not in order and not set(order).isdisjoint(own)))
        starts = tuple(k for k, part in enumerate(self.parts) if OUTSIDE in part.after)
        return Way(tuple((k, sources[k]) for k in order[1:]), starts or self.ends)


_ALONE = Control((Part(None, (OUTSIDE,)),), (0,))
_NEVER = Control((), (OUTSIDE,))
_CALL = Control((Part(0, (OUTSIDE,)),), (0,))


@functools.cache
def _repeat(turns: int) -> Control:
    again = (1,) if turns > 1 else ()
    return Control((Part(None, (OUTSIDE, *again), turns=turns), Part(0, (0,), 1, turns=turns)), (1,))


@functools.cache
def _while(turns: int) -> Control:
    looks = turns + 1  # the last of them finds that there is no more to do
    condition, look = Part(0, (OUTSIDE, 2), 1, turns=looks), Part(None, (0,), turns=looks)
    return Control((condition, look, Part(1, (1,), 1, turns=turns)), (1,))


@functools.cache
def _switch(count: int) -> Control:
    branches = [Part(k, (0,), branch=k) for k in range(count)]
    return Control((Part(None, (OUTSIDE,)), *branches), tuple(range(1, count + 1)))


def control(step: Step) -> Control:
    """How control goes through a step, by its kind."""
    match step:
        case RepeatStep():
            return _repeat(step.count) if step.count else _NEVER
        case WhileStep():
            return _while(step.counted_turns.number)
        case SwitchStep():
            return _switch(len(step.branches))
        case CallStep() | CallsStep():
            return _CALL
    return _ALONE
