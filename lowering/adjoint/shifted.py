"""Shifted sums: what the vertices of a compute set contribute to a variable at shifted places, as sums of all of it.

In come contributions whose places are affine, and where their sums go. Along each dimension of that a contribution is
given at `start + step*p + by*k`: `p` runs along an axis of the vertices or a dimension of the field, and `k`, if there
is one, along another, where windows overlap. Out come vertices that read each at its inverse place: element
`step*q + r` of phase `r` has the contributions of all `p = q + shift - m*by`, `k = first + m*step` (divided by what
divides both), through a diagonal view of contributions among zeros. So a stencil is one family of sums, and windows of
stride s are one for each phase; no access has a table.

A contribution is a value that is held, or, where it depends on nothing but cotangents, is made of these by the sum
itself: the gradient of a stencil with constant weights is a stencil over cotangents, with the weights mirrored.

Contributions are summed together where that touches fewer elements than one after another: a sum reads all of its
contributions, zeros too, at each element of the box around all of them, and writes it; one more sum for the same
elements reads and writes these once more, and takes a step, which counts as one element for each worker of the machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from codelet.tracing.adjoints import AdjointCodelet
from codelet.views.index import Index
from codelet.views.sources import Source, Variable
from codelet.views.tensor import Tensor
from lowering.adjoint.gathered import Target, boxes_of
from lowering.plan.access import Access, take_apart
from lowering.plan.elements import ElementSet

MOST_PHASES = 64
"""Into so many families sums are taken apart at most; a guess: of more, each is a short one."""


@dataclass(frozen=True, eq=False)
class Contribution:
    """What is contributed to elements of a source.

    Attributes:
        step: the name of what gives it.
        field: through which of its fields.
        given: what it is made of, without symbols: dimensions as `places` has them, and then those of each field.
        places: the flat positions in the source that it is for.
        source: what it is contributed to.
        elements: those of variables that it is for.
        adjoint: what makes it of its one contribution, of fields of one element; None where `given` is one field,
            the contribution itself.
    """

    step: str
    field: str
    given: Mapping[str, Tensor]
    places: Index
    source: Source
    elements: ElementSet
    adjoint: AdjointCodelet | None = None

    @property
    def name(self) -> str:
        """What sums of it alone are called."""
        return f"{self.step}/{self.field}" if self.field else self.step

    @property
    def values(self) -> Tensor:
        """The contribution, where it is held."""
        (held,) = self.given.values()
        return held


# --- contributions by the dimensions of where their sums go -----------------------------------------------


class Along(NamedTuple):
    """How a contribution runs along a dimension: at `start + step*p + by*k`.

    Attributes:
        start: the first position.
        key: the dimension of what is given along which `p` runs; None for the one more that one position is to have.
        extent: of `p`.
        step: by which it runs; 0 where it is one position, which goes with any.
        inner: the dimension of `k`; None where there is none.
        count: of `k`.
        by: its step.
    """

    start: int
    key: int | None
    extent: int
    step: int
    inner: int | None
    count: int
    by: int

    def at(self, step: int, phase: int) -> Phase | None:
        """What there is of it at the elements `step*q + phase`; None where that is nothing."""
        common = math.gcd(self.by, step)
        for first in range(min(self.count, step // common)):
            shift, rest = divmod(phase - self.start - self.by * first, step)
            if not rest:
                return Phase(
                    self, shift, first, -(-(self.count - first) // (step // common)), step // common, self.by // common
                )
        return None


class Phase(NamedTuple):
    """What of a contribution there is at the elements of a phase: `p = q + shift - by*m`, `k = first + step*m`."""

    along: Along
    shift: int
    first: int
    count: int
    step: int
    by: int

    @property
    def range(self) -> range:
        """The `q` at which there is any."""
        return range(-self.shift, self.along.extent - self.shift + (self.count - 1) * self.by)


@dataclass(frozen=True, eq=False)
class Located:
    """A contribution to the elements of a view of a variable.

    Attributes:
        contribution: what is contributed.
        variable: to which variable.
        view: of what holds the sums.
        along: how it runs along each dimension of the view.
    """

    contribution: Contribution
    variable: Variable
    view: Tensor
    along: tuple[Along, ...]

    @property
    def target(self) -> tuple[object, ...]:
        """What it has in common with others that are contributed to the same view."""
        index = self.view.index
        return self.variable, index.offset, index.shape, index.strides


def _along(start: int, terms: Sequence[Any]) -> Along | None:
    if len(terms) > 2 or any(term.table is not None for term in terms):
        return None
    if not terms:
        return Along(start, None, 1, 0, None, 1, 1)
    outer = terms[0]
    if len(terms) == 1:
        return Along(start, outer.keys[0], outer.extents[0], outer.grain, None, 1, 1)
    inner = terms[1]
    return Along(start, outer.keys[0], outer.extents[0], outer.grain, inner.keys[0], inner.extents[0], inner.grain)


def _split(access: Access) -> tuple[int, ...]:
    """The shape with its dimensions split where several keys run along one apart, if they divide it."""
    shape: list[int] = []
    for extent, (_, terms) in zip(access.shape, access.dimensions, strict=True):
        rest = extent
        for outer, inner in itertools.pairwise(terms):
            reach = sum(term.reach for term in terms[terms.index(inner) :])
            if outer.grain > reach and rest % outer.grain == 0:
                shape.append(rest // outer.grain)
                rest = outer.grain
        shape.append(rest)
    return tuple(shape)


def _taken_apart(shape: tuple[int, ...], places: Index) -> Access | None:
    """Places by the dimensions of an array, or of one with some of these split; None where they keep to none."""
    access = take_apart(shape, places)
    if any(term.table is not None for _, terms in access.dimensions for term in terms):
        return None
    finer = _split(access)
    if finer != access.shape:
        other = take_apart(finer, places)
        access = other if other.shape == finer else access
    return access


def _with_dimension(given: Contribution) -> Contribution:
    """A contribution with a dimension more, of extent one."""
    at = (*[slice(None)] * given.places.ndim, None)
    own = {name: tensor[at] for name, tensor in given.given.items()}
    return replace(given, given=own, places=given.places.with_trailing_ones(1))


def located(given: Contribution, held: Mapping[Variable, Tensor]) -> list[Located] | None:
    """A contribution by the dimensions of what it is for; None where it cannot be summed by shifts.

    Args:
        given: it; places that no two dimensions of it share.
        held: the cotangents of each variable that has any.
    """
    places, source = given.places, given.source
    if places.tables or any(n > 1 and d not in places.keys for d, n in enumerate(places.shape)):
        return None
    access = _taken_apart(source.shape, places)
    if access is None:
        return None
    if access.reversed_keys:
        items = tuple(slice(None, None, -1 if d in access.reversed_keys else None) for d in range(places.ndim))
        own = {name: tensor[items] for name, tensor in given.given.items()}
        given = replace(given, given=own, places=places[items])
    along = []
    for start, terms in access.dimensions:
        way = _along(start, terms)
        if way is None:
            return None
        if way.key is None:  # which others may run along
            given, way = _with_dimension(given), way._replace(key=given.places.ndim)
        along.append(way)
    if isinstance(source, Variable):
        targets = [(source, Target(held[source].reshape(access.shape), (0,) * len(access.shape)))]
    else:
        found = boxes_of(access, source, held)
        if found is None:
            return None
        targets = found
    made = []
    for variable, (view, starts) in targets:
        own = [way._replace(start=way.start - first) for way, first in zip(along, starts, strict=True)]
        made.append(Located(given, variable, view, tuple(own)))
    return made


# --- sums -----------------------------------------------------------------------------------------------


class Box(NamedTuple):
    """The elements of one phase of each dimension that have contributions, and these.

    Attributes:
        ranges: of `q` along each dimension.
        steps: of each.
        phases: of each.
        parts: the contributions that there are, with their own phases.
    """

    ranges: tuple[range, ...]
    steps: tuple[int, ...]
    phases: tuple[int, ...]
    parts: tuple[tuple[Located, tuple[Phase, ...]], ...]

    @property
    def volume(self) -> int:
        """How many elements there are."""
        return math.prod(map(len, self.ranges))

    @property
    def reads(self) -> int:
        """How many contributions an element reads."""
        return sum(math.prod(own.count for own in phases) for _, phases in self.parts)


def boxes(members: Sequence[Located]) -> list[Box] | None:
    """The sums of contributions to one view; None where their steps are of different lengths, or too many phases."""
    view, steps = members[0].view, []
    for ways in zip(*(own.along for own in members), strict=True):
        own = {way.step for way in ways if way.extent > 1} or {way.step for way in ways if way.step} or {1}
        if len(own) > 1:
            return None
        steps.append(own.pop())
    if math.prod(steps) > MOST_PHASES:
        return None
    found = []
    for phases in itertools.product(*map(range, steps)):
        parts = []
        for member in members:
            own = [way.at(step, phase) for way, step, phase in zip(member.along, steps, phases, strict=True)]
            if None not in own:
                parts.append((member, tuple(own)))
        ranges = []
        for d, (step, phase) in enumerate(zip(steps, phases, strict=True)):
            last = (view.shape[d] - 1 - phase) // step
            own = [phases[d].range for _, phases in parts]
            start, stop = min((r.start for r in own), default=0), max((r.stop for r in own), default=0)
            ranges.append(range(max(0, start), min(stop, last + 1)))
        box = Box(tuple(ranges), tuple(steps), phases, tuple(parts))
        if parts and box.volume:
            found.append(box)
    return found


def elements_of(box: Box, view: Tensor) -> Tensor:
    """The elements of a view that a box has."""
    return view[
        tuple(
            slice(step * own.start + phase, step * (own.stop - 1) + phase + 1, step)
            for own, step, phase in zip(box.ranges, box.steps, box.phases, strict=True)
        )
    ]


def touched(made: Sequence[Box]) -> int:
    """How many elements sums read and write."""
    return sum(box.volume * (box.reads + 1) for box in made)


def grouped(
    given: Sequence[Located], step: int, may_be: Callable[[Sequence[Located], Sequence[Box]], bool]
) -> Iterator[tuple[list[Located], list[Box]]]:
    """Contributions that are summed together, those to most elements first, and their sums.

    Args:
        given: to views of one variable.
        step: how many elements a further step of the machine counts as.
        may_be: whether sums may be made together.
    """
    groups: list[tuple[list[Located], list[Box]]] = []
    alone = [(own, made) for own in given for made in [boxes([own])] if made]
    for own, made in sorted(alone, key=lambda pair: -sum(box.volume for box in pair[1])):
        apart = touched(made) + sum(box.volume for box in made) + step
        for k, (members, before) in enumerate(groups):
            joined = boxes([*members, own]) if members[0].target == own.target else None
            if joined is None or touched(joined) > touched(before) + apart:
                continue
            if may_be([*members, own], joined):
                groups[k] = [*members, own], joined
                break
        else:
            groups.append(([own], made))
    yield from groups
