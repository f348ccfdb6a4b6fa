"""Recompute: values of the forward pass that are not kept, but made again when the backward pass comes to them.

The steps of a program are cut into segments. What crosses from one segment to the next is kept; before the backward
pass goes back through a segment, those of its compute sets run again that make what is read there. They are the same
compute sets, which write the same variables: no vertex is added, and a variable holds nothing between its last reader
in the forward pass and the second time it is made, so that its memory is others'.

Source: T. Chen, B. Xu, C. Zhang and C. Guestrin, Training Deep Nets with Sublinear Memory Cost (2016).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import accumulate, groupby, islice, pairwise
from typing import Literal, NamedTuple, get_args

import numpy as np

from codelet.errors import ProgramError
from codelet.views.sources import Variable
from lowering.adjoint.programs import writes_of
from lowering.plan.steps import CopyStep, ExecuteStep, Step
from lowering.plan.walk import has_effects

Kind = Literal["all", "every", "sqrt", "scopes"]


@dataclass(frozen=True)
class Recompute:
    """What of a forward pass is made again in the backward pass rather than kept.

    Made by `Recompute.all()`, `every(k)`, `sqrt()` and `scopes(...)`.

    Attributes:
        kind: how its steps are cut into segments.
        steps: of `every`: the compute sets of a segment.
        patterns: of `scopes`: for the names of scopes, in which `*` stands for anything.
    """

    kind: Kind
    steps: int = 0
    patterns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in (kinds := get_args(Kind)):
            raise ProgramError("nothing is made again in such a way", given=repr(self.kind), expected=", ".join(kinds))

    @staticmethod
    def all() -> Recompute:
        """Keep nothing that compute sets make: the whole forward pass runs again."""
        return Recompute("all")

    @staticmethod
    def every(steps: int) -> Recompute:
        """Keep what there is after every so many compute sets.

        Raises:
            ProgramError: a number that counts no steps.
        """
        if isinstance(steps, bool) or not isinstance(steps, (int, np.integer)) or steps < 1:
            raise ProgramError(
                "a forward pass cannot be kept so often", given=repr(steps), expected="a positive number of steps"
            )
        return Recompute("every", int(steps))

    @staticmethod
    def sqrt() -> Recompute:
        """Keep what crosses between as many segments as take least memory: of n equal layers about the root of n."""
        return Recompute("sqrt")

    @staticmethod
    def scopes(*patterns: str) -> Recompute:
        """Make again what is made in scopes of the graph whose names match a pattern, each by itself.

        Raises:
            ProgramError: no pattern, or one that is no name.
        """
        if not patterns or not all(isinstance(own, str) for own in patterns):
            raise ProgramError(
                "scopes that are made again are named by patterns",
                given=f"{patterns!r:.80}",
                expected="names, in which * stands for anything: cl.Recompute.scopes('layer*', 'head')",
            )
        return Recompute("scopes", patterns=patterns)


class Segment(NamedTuple):
    """Steps of a program, from one place to another.

    Attributes:
        first: the place of the first.
        end: the place behind the last.
        is_again: whether they run again in the backward pass.
    """

    first: int
    end: int
    is_again: bool


def segments_of(policy: Recompute | None, steps: Sequence[Step]) -> list[Segment]:
    """The segments of a program's steps, in order."""
    count = len(steps)
    if policy is None or not count:
        return [Segment(0, count, False)]
    if policy.kind == "all":
        return [Segment(0, count, True)]
    if policy.kind == "scopes":
        found = list(_of_scopes(policy.patterns, steps))
        if not any(own.is_again for own in found):
            names = (step.name for step in steps if isinstance(step, ExecuteStep))
            raise ProgramError(
                "no compute set of the program is in a scope that is to be made again",
                given=", ".join(policy.patterns),
                expected=f"patterns for scopes of what runs outside of loops: {', '.join(islice(names, 8))}",
            )
        return found
    if policy.kind == "every":
        ran = accumulate(isinstance(step, ExecuteStep) for step in steps)
        cuts = [k for k, number in enumerate(ran) if isinstance(steps[k], ExecuteStep) and number > 1]
        ends = cuts[policy.steps - 1 :: policy.steps]
    else:
        ends = _cheapest(steps)
    # What the last segment makes is there still.
    places = [0, *ends, count]
    return [Segment(a, b, b < count) for a, b in pairwise(places)]


def _of_scopes(patterns: Collection[str], steps: Sequence[Step]) -> Iterator[Segment]:
    def scope(step: Step) -> str | None:
        if not isinstance(step, ExecuteStep):
            return None
        parts = step.name.split("/")
        names = ("/".join(parts[:k]) for k in range(1, len(parts)))
        return next((name for name in names if any(fnmatchcase(name, pattern) for pattern in patterns)), None)

    first = 0
    for name, group in groupby(steps, scope):
        end = first + len(list(group))
        yield Segment(first, end, name is not None)
        first = end


def _num_bytes(variables: Collection[Variable]) -> int:
    return sum(variable.size * variable.dtype.itemsize for variable in variables)


def _cheapest(steps: Sequence[Step]) -> list[int]:
    """Where to cut steps so that what crosses, and what the largest segment makes, take least memory together."""
    count = len(steps)
    writes = [writes_of([step]) for step in steps]
    made, last = set[Variable](), dict[Variable, int]()
    for k, step in enumerate(steps):
        last.update(dict.fromkeys((v for v in step.reads if v in made), k))
        made |= writes[k]
    crossing = [0] * (count + 1)
    for k, own in enumerate(writes):
        for variable in own:
            for at in range(k + 1, last.get(variable, k) + 1):
                crossing[at] += _num_bytes([variable])
    sizes = [0, *accumulate(_num_bytes(own) for own in writes)]
    best: tuple[int, list[int]] = sizes[-1], []
    for parts in range(2, count + 1):
        cuts: list[int] = []
        for part in range(1, parts):
            low = (cuts[-1] if cuts else 0) + 1
            aim = next(k for k, size in enumerate(sizes) if size * parts >= sizes[-1] * part)
            near = range(max(low, aim - count // (2 * parts)), min(count, aim + count // (2 * parts) + 1))
            if near:
                cuts.append(min(near, key=lambda k: (crossing[k], abs(k - aim))))
        ends = [0, *cuts, count]
        largest = max(sizes[b] - sizes[a] for a, b in pairwise(ends))
        best = min(best, (sum(crossing[k] for k in cuts) + largest, cuts))
    return best[1]


def made_again(
    steps: Sequence[Step], segment: Segment, needed: Collection[Variable], writers: dict[Variable, list[int]]
) -> list[int]:
    """The places of those steps of a segment that make variables again, in order.

    A variable is made again if only steps of the segment write it, none of which adds to what is there, and if all that
    they read is what it was: made again too, or written by nobody later.

    Args:
        steps: of the program.
        segment: of them.
        needed: what the backward pass reads.
        writers: the places of the steps that write each variable.
    """
    inside = range(segment.first, segment.end)
    again = {
        variable
        for variable, places in writers.items()
        if places[0] >= segment.first
        and places[-1] < segment.end
        and all(_is_plain(steps[k], variable) for k in places)
    }

    def fails(variable: Variable) -> bool:
        for k in writers[variable]:
            if not writes_of([steps[k]]) <= again:
                return True
            if any(own not in again and writers.get(own, [-1])[-1] > k for own in steps[k].reads):
                return True
        return False

    while failing := {variable for variable in again if fails(variable)}:
        again -= failing
    wanted, waiting = set[int](), [variable for variable in needed if variable in again]
    while waiting:
        for k in writers[waiting.pop()]:
            if k not in wanted:
                wanted.add(k)
                waiting += [own for own in (*steps[k].reads, *steps[k].writes) if own in again]
    return [k for k in inside if k in wanted]


def _is_plain(step: Step, variable: Variable) -> bool:
    """Whether a step gives a variable values that do not depend on those it has, and does nothing else to be seen."""
    if not isinstance(step, (ExecuteStep, CopyStep)) or has_effects(step):
        return False
    return not any(touch.mode == "update" and variable in touch.variables for touch in step.touches())
