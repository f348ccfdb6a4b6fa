"""Rematerialisation: the steps of a forward pass that run a second time, before the backward pass reads their results.

In come the steps of the forward pass, the reads of the backward pass for each, and events. These are stretches of steps
that run again, and stretches that the backward pass goes back through. Out come single steps in order. Of a stretch
that runs again those steps do whose results are read behind it, before they would be recomputed anyway. They are the
same compute sets, which write the same variables, so that no vertex is added. A variable is dead between its last
reader in the forward pass and its recomputation. A value that is still there is not recomputed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

from codelet.views.sources import Variable
from codelet.views.tensor import whole_view
from lowering.adjoint.programs import writes_of
from lowering.plan.elements import ElementSet
from lowering.plan.steps import CopyStep, ExecuteStep, Step
from lowering.plan.walk import has_effects


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


class Event(NamedTuple):
    """A stretch of steps that runs again, or that the backward pass goes back through.

    Attributes:
        first: the place of the first step.
        end: the place behind the last.
        is_back: whether the backward pass goes back through them.
    """

    first: int
    end: int
    is_back: bool


class Turn(NamedTuple):
    """One step in its iteration.

    Attributes:
        number: its place.
        is_back: whether the backward pass goes back through it; else it runs again.
        ended: the variables whose old values end before it runs again, which it and later steps make anew.
    """

    number: int
    is_back: bool
    ended: tuple[Variable, ...] = ()


def is_plain(step: Step, variable: Variable) -> bool:
    """Whether a step gives a variable values that do not depend on those it has, and does nothing else to be seen."""
    if not isinstance(step, (ExecuteStep, CopyStep)) or has_effects(step):
        return False
    return not any(touch.mode == "update" and variable in touch.variables for touch in step.touches())


class Chain:
    """The steps of a forward pass, and the values that the backward pass reads of them.

    Attributes:
        steps: they.
        needed: the values that the backward pass reads where it goes back through each.
        writes: the variables that each writes.
        writers: the places of the steps that write each variable.
    """

    def __init__(self, steps: Sequence[Step], needed: Sequence[Collection[Variable]], given: Collection[Variable]):
        self.steps, self.needed = steps, needed
        self.writes = [writes_of([step]) for step in steps]
        self.writers: dict[Variable, list[int]] = {}
        for number, own in enumerate(self.writes):
            for variable in own:
                self.writers.setdefault(variable, []).append(number)
        self._plain = {
            variable
            for variable, places in self.writers.items()
            if variable not in given and all(is_plain(steps[k], variable) for k in places)
        }

    def makeable(self, segments: Sequence[Segment]) -> frozenset[Variable]:
        """The variables that can be recomputed.

        Only steps of one segment that may run again write them, none of which adds to the old value; and all that they
        their operands have their old values: recomputed too, or written by nobody later. A variable that somebody reads
        before it is written is not recomputed, since its first value is gone.
        """
        home = {k: own for own in segments if own.is_again for k in range(own.first, own.end)}
        found = {v for v in self._plain if len({home.get(k) for k in self.writers[v]} - {None}) == 1}
        found = {v for v in found if all(k in home for k in self.writers[v])}

        def fails(variable: Variable) -> bool:
            for k in self.writers[variable]:
                if not self.writes[k] <= found:
                    return True
                for own in self.steps[k].reads:
                    places = self.writers.get(own, [-1])
                    if places[-1] > k and not (own in found and home[places[0]] is home[k]):
                        return True
            return False

        while failing := {variable for variable in found if fails(variable)}:
            found -= failing
        return frozenset(found)

    def remaking(self, event: Event, wanted: Collection[Variable], makeable: Collection[Variable]) -> list[int]:
        """The steps of a stretch that make variables again, in order."""
        here = lambda v: v in makeable and event.first <= self.writers[v][0] < event.end  # noqa: E731
        chosen, waiting = set[int](), [variable for variable in wanted if here(variable)]
        while waiting:
            for k in self.writers[waiting.pop()]:
                if k not in chosen:
                    chosen.add(k)
                    waiting += [own for own in (*self.steps[k].reads, *self.writes[k]) if here(own)]
        return sorted(chosen)

    def read_back(self, first: int, end: int) -> set[Variable]:
        """The values that the backward pass reads where it goes back through a stretch of steps."""
        return set[Variable]().union(*self.needed[first:end])

    def _ended(self, chosen: Sequence[int]) -> Iterator[tuple[int, Variable]]:
        """The variables that several of some steps make, and the first of these: none of them replaces all of one."""
        for variable in set[Variable]().union(*(self.writes[k] for k in chosen)):
            places = self.writers[variable]
            if len(places) > 1:
                written = ElementSet()
                for touch in (touch for k in places for touch in self.steps[k].touches()):
                    if touch.is_written and variable in touch.variables:
                        written.add(touch.tensor, touch.axes)
                if written.first_missing(whole_view(variable), ()) is None:
                    yield places[0], variable

    def turns(self, events: Sequence[Event], makeable: Collection[Variable]) -> list[Turn]:
        """The steps that run again and those that are gone back through, in order."""
        found: list[Turn] = []
        wanted = set[Variable]()
        for place in range(len(events) - 1, -1, -1):
            event = events[place]
            if event.is_back:
                wanted |= self.read_back(event.first, event.end)
                found += [Turn(k, True) for k in range(event.first, event.end)]
                continue
            before = events[place - 1] if place else None
            there = set[Variable]()
            if before is not None and before.is_back and before.first == event.end:
                there = {v for v in self.read_back(*before[:2]) if len(self.writers.get(v, ())) == 1}
            left = [variable for variable in makeable if variable not in there]
            chosen = self.remaking(event, wanted, frozenset(left))
            ended: dict[int, list[Variable]] = {}
            for first, variable in self._ended(chosen):
                ended.setdefault(first, []).append(variable)
            for k in reversed(chosen):
                own = sorted(ended.get(k, ()), key=lambda variable: variable.number)
                found.append(Turn(k, False, tuple(own)))
            made = {v for k in chosen for v in self.writes[k]}
            wanted = (wanted - made) | {v for k in chosen for v in self.steps[k].reads if v not in made}
        return found[::-1]
