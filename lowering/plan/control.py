"""Control: in which order the parts of a step may run, said here alone.

A step is made of parts: what it does itself, and its bodies. What walks over programs by the order in which they
run (the timeline, and whoever solves equations over it) asks here, and knows no kind of step by its name.
"""

from __future__ import annotations

from typing import NamedTuple

from lowering.plan.steps import CallStep, RepeatStep, Step, SwitchStep, WhileStep

OUTSIDE = -1
"""Stands for what comes right before a step, and for what comes right after it."""


class Part(NamedTuple):
    """A part of a step.

    Attributes:
        body: its steps; None for what the step does itself.
        after: the numbers of the parts that may run right before it, `OUTSIDE` for what comes before the step.
        deeper: by how many loops it is deeper than the step.
        branch: which of the branches of a choice it is; None for what is none.
    """

    body: tuple[Step, ...] | None
    after: tuple[int, ...]
    deeper: int = 0
    branch: int | None = None


class Control(NamedTuple):
    """How control goes through a step.

    Attributes:
        parts: in the order of the program's text.
        ends: the numbers of the parts that may be the last, `OUTSIDE` where none may run.
        turns: how often the parts run; 1 where that is not known.
    """

    parts: tuple[Part, ...]
    ends: tuple[int, ...]
    turns: int = 1

    @property
    def is_loop(self) -> bool:
        """Whether a part may run again."""
        return any(j >= k for k, part in enumerate(self.parts) for j in part.after)

    @property
    def starts(self) -> tuple[int, ...]:
        """The numbers of the parts that may be the first."""
        return tuple(k for k, part in enumerate(self.parts) if OUTSIDE in part.after)

    def before(self, k: int) -> tuple[int, ...]:
        """The numbers of the parts that may run right after one, `OUTSIDE` for what comes after the step."""
        following = tuple(j for j, part in enumerate(self.parts) if k in part.after)
        return (*following, *[OUTSIDE] * (k in self.ends))


_ALONE = Control((Part(None, (OUTSIDE,)),), (0,))
_NEVER = Control((), (OUTSIDE,))


def control(step: Step) -> Control:
    """How control goes through a step, by its kind."""
    match step:
        case RepeatStep(count=0):
            return _NEVER
        case RepeatStep():
            next_turn = (1,) if step.count > 1 else ()
            return Control((Part(None, (OUTSIDE, *next_turn)), Part(step.body, (0,), 1)), (1,), step.count)
        case WhileStep():
            look = Part(step.condition, (OUTSIDE, 2), 1), Part(None, (0,)), Part(step.body, (1,), 1)
            return Control(look, (1,))
        case SwitchStep():
            branches = tuple([Part(branch, (0,), branch=k) for k, branch in enumerate(step.branches)])
            return Control((Part(None, (OUTSIDE,)), *branches), tuple(range(1, len(branches) + 1)))
        case CallStep():
            return Control((Part(step.function.body, (OUTSIDE,)),), (0,))
    return _ALONE
