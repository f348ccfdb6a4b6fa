"""Live variables: which variables of a plan hold a value that is still needed, at every moment of its program.

In come a plan and what holds a value before and after it. Out come, moment by moment, the variables that something may
have written and that something may read before all of them is written anew; wherever their elements live. What memory
is planned by asks here, and so does what is recomputed in a backward pass to save some.

Source: live variables and reaching definitions as data-flow equations over a flow graph, A. Aho, M. Lam,
R. Sethi and J. Ullman, Compilers (2006), chapter 9.2.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import numpy as np

from codelet.views.sources import Variable
from codelet.views.tensor import whole_view
from lowering.check.initialized import read_and_written, read_before_written
from lowering.plan.elements import ElementSet
from lowering.plan.plan import Plan
from lowering.plan.solver import Elementwise
from lowering.plan.steps import RepeatStep, Step, UndefStep
from lowering.plan.timeline import Moment, Timeline
from lowering.plan.touch import wholly_written

# --- what is kept -------------------------------------------------------------------------------------


class Lifetimes(NamedTuple):
    """The variables that hold a value before a program starts, after it ends, or both.

    Attributes:
        kept: from before it starts until after it ends.
        given: from before it starts until it ends their life itself, which it may read before that.
        results: until after it ends, from where it writes them, on whatever way all of each: of a program that ends the
            life of anything alone.
    """

    kept: frozenset[Variable]
    given: frozenset[Variable]
    results: frozenset[Variable]


def lifetimes(plan: Plan, keep: Collection[Variable] | None = None) -> Lifetimes:
    """Which variables hold a value beyond a program.

    Kept are those that the caller names, constants, and those of which the program may read elements that it has
    not written yet, on whatever way it takes; but for those whose life the program itself ends last. An input that it
    writes and that is no output is none of them unless it is read first: what it was given nobody reads.

    A program that ends any says what it needs of what it was given: what is kept of the rest, and all of it written
    before any of it is read, its results, then is live from there on. What is written in part, in one branch of a
    choice or in a loop of perhaps no iterations still holds what was given elsewhere, or otherwise, and is kept.

    Args:
        plan: the plan.
        keep: what must be kept; default: `plan.lasting`.
    """
    kept = set(plan.lasting if keep is None else keep)
    kept |= {variable for variable in plan.variables if variable.value is not None}
    ended = plan.ended
    if not ended:
        return Lifetimes(frozenset(kept | read_before_written(plan, kept)), frozenset(), frozenset())
    read_first, has_value = read_and_written(plan, ())
    results = frozenset(v for v in kept - read_first if has_value.first_missing(whole_view(v), ()) is None)
    return Lifetimes(frozenset(kept | read_first) - ended - results, ended & read_first, results)


# --- live variables -----------------------------------------------------------------------------------


_REPLACED: weakref.WeakKeyDictionary[Step, frozenset[Variable]] = weakref.WeakKeyDictionary()
"""What was found of a step: programs made of the same steps in another order are compared."""


def _replaced(moment: Moment) -> frozenset[Variable]:
    """The variables of which a moment writes every element, or ends the life of, and reads none."""
    step = moment.step
    if step not in _REPLACED:
        _REPLACED[step] = frozenset(_found_replaced(moment))
    return _REPLACED[step]


def _found_replaced(moment: Moment) -> set[Variable]:
    if isinstance(moment.step, UndefStep):
        tensor = moment.step.tensor
        return {tensor.source} if tensor.is_whole_variable else set()  # type: ignore[return-value]
    candidates = set(moment.writes) - set(moment.reads)
    if isinstance(moment.step, RepeatStep) or not candidates:
        return candidates  # the head of a loop sets all of what counts the turns
    touches = list(moment.step.touches())
    whole = candidates & wholly_written(touches)
    rest, written = candidates - whole, ElementSet()
    for touch in touches:
        if touch.is_written and not rest.isdisjoint(touch.variables):
            written.add(touch.tensor, touch.axes)
    return whole | {variable for variable in rest if written.first_missing(whole_view(variable), ()) is None}


class _Bits(Elementwise[int]):
    """A question asked of each of some variables, which are bits of a number; `facts` are those that reach moments."""

    def __init__(self, moments: Sequence[Moment], variables: Sequence[Variable]):
        super().__init__(0, (1 << len(variables)) - 1)
        self.number = {variable: 1 << k for k, variable in enumerate(variables)}
        self.once = {moment.step: moment for moment in moments}
        self.reads = {step: self.bits(moment.reads) for step, moment in self.once.items()}
        self.writes = {step: self.bits(moment.writes) for step, moment in self.once.items()}
        self.facts: list[int] = []

    def bits(self, chosen: Collection[Variable]) -> int:
        """Some variables as a number."""
        return sum({self.number[variable] for variable in chosen if variable in self.number})

    def meet(self, one: int, other: int) -> int:
        return one | other

    def look(self, step: Step, fact: int) -> None:
        self.facts.append(fact)


class _Written(_Bits):
    """Which variables something may have written."""

    forward = True

    def own(self, step: Step, fact: int) -> int:
        return fact | self.writes[step]


class _Needed(_Bits):
    """Which variables something may read before all of them is written anew."""

    forward = False

    def __init__(self, moments: Sequence[Moment], variables: Sequence[Variable]):
        super().__init__(moments, variables)
        self.kept = {step: ~self.bits(_replaced(moment)) for step, moment in self.once.items()}

    def own(self, step: Step, fact: int) -> int:
        return self.reads[step] | (fact & self.kept[step])


def flags_of(numbers: Sequence[int], count: int) -> np.ndarray:
    """The lowest bits of numbers, bool of shape (numbers, count)."""
    width = -(-count // 8)
    rows = np.frombuffer(b"".join(number.to_bytes(width, "little") for number in numbers), np.uint8)
    bits = np.unpackbits(rows.reshape(len(numbers), width), axis=1, count=count, bitorder="little")
    return bits.astype(bool)


def bits_of(flags: np.ndarray) -> list[int]:
    """A number for each row of flags, of which they are the bits: the inverse of `flags_of`."""
    return [int.from_bytes(row.tobytes(), "little") for row in np.packbits(flags, axis=1, bitorder="little")]


class LiveVariables(NamedTuple):
    """The variables that are live at each moment, as bits of numbers.

    Attributes:
        variables: of the bits, the lowest first.
        before: for each moment those that are live before it.
        after: those after it.
        during: those at it.
    """

    variables: tuple[Variable, ...]
    before: list[int]
    after: list[int]
    during: list[int]

    def num_bytes(self, of_variable: Callable[[Variable], int]) -> np.ndarray:
        """Bytes that are live at each moment, int64 of shape (moments,), by those that a variable takes."""
        sizes = np.array([of_variable(variable) for variable in self.variables], np.int64)
        return flags_of(self.during, len(sizes)) @ sizes


def live_variables(plan: Plan, line: Timeline, held: Lifetimes, variables: Sequence[Variable]) -> LiveVariables:
    """Which of some variables are live at each moment of a plan.

    Args:
        plan: without calls.
        line: its moments.
        held: the variables that hold a value beyond it.
        variables: those asked for, none of which is kept.
    """
    moments = line.moments
    written, needed = _Written(moments, variables), _Needed(moments, variables)
    written.visit(plan.steps, written.bits(held.given))
    needed.visit(plan.steps, needed.bits(held.results))
    live = LiveVariables(tuple(variables), [], [], [])
    for moment, has, wanted in zip(moments, written.facts, reversed(needed.facts), strict=True):
        before, after = needed.own(moment.step, wanted) & has, wanted & written.own(moment.step, has)
        live.before.append(before)
        live.after.append(after)
        live.during.append(before | after | written.reads[moment.step] | written.writes[moment.step])
    return live
