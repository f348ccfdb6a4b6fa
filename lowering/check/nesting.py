"""Nesting: a program that is nested deeper than JAX can follow is refused, before JAX runs out of stack.

JAX traces and compiles nested programs by recursion, some 15 to 21 of Python's frames a level. With jax 0.10, Python
3.11 and the usual limit of 1000 frames it fails at 46 repeats, 49 bounded loops, 63 branches, 66 calls. Checking and
planning need three, and go as deep as programs may be nested.
"""

from __future__ import annotations

import contextlib
import operator
import sys
from collections.abc import Iterator, Sequence

from codelet.errors import ProgramError
from lowering.plan.steps import CallStep, FunctionBody, RepeatStep, Step, SwitchStep, WhileStep
from lowering.plan.walk import bodies

_FRAMES = {RepeatStep: 21, WhileStep: 20, SwitchStep: 16, CallStep: 15}
_BESIDE = 80  # frames of JAX and ours that are there at any depth


_frames = operator.itemgetter(1)


class _Depths:
    """How deep steps are nested, and how many frames that takes; of each function once."""

    def __init__(self) -> None:
        self.known: dict[Step | FunctionBody, tuple[int, int]] = {}

    def of(self, steps: Sequence[Step]) -> tuple[int, int]:
        return max(map(self.step, steps), key=_frames, default=(0, 0))

    def step(self, step: Step) -> tuple[int, int]:
        key = step.function if isinstance(step, CallStep) else step
        if key not in self.known:
            levels, frames = max(map(self.of, bodies(step)), key=_frames, default=(0, 0))
            own = _FRAMES.get(type(step), 0)
            self.known[key] = levels + (own > 0), frames + own
        return self.known[key]


def _frames_in_use() -> int:
    frame, count = sys._getframe(), 0
    while frame is not None:
        frame, count = frame.f_back, count + 1
    return count


def _too_deep(levels: int, frames: int) -> ProgramError:
    limit = -(-(frames * 3 // 2 + 500) // 1000) * 1000
    return ProgramError(
        "a program is nested too deep for JAX to compile",
        given=f"{levels} loops, choices and calls within one another",
        expected=f"what fits Python's stack of {sys.getrecursionlimit()} frames, some 20 for each",
        fix=f"sys.setrecursionlimit({limit}), or nest less: one Repeat of more iterations, one Switch of more cases",
    )


@contextlib.contextmanager
def nesting_told(steps: Sequence[Step]) -> Iterator[None]:
    """Code that handles steps inside may run out of stack: report then that they are nested too deep.

    Raises:
        ProgramError: they are, or will be where JAX compiles them.
    """
    levels, frames = _Depths().of(steps)
    if levels and frames + _frames_in_use() + _BESIDE > sys.getrecursionlimit():
        raise _too_deep(levels, frames)
    try:
        yield
    except RecursionError:
        if levels < 2:
            raise  # something else is at fault
        raise _too_deep(levels, frames) from None
