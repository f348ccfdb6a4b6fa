"""Shifted sums: the contributions of a compute set's vertices to a variable at shifted places, as sums of all of it.

In come contributions whose places are affine, and where their sums go. Along each dimension of that a contribution is
given at `start + step*p + by*k`. `p` runs along an axis of the vertices or a dimension of the field, and `k`, if there
is one, along another, where windows overlap. Out come vertices that read each at its inverse place. The line is solved
for `p`, and its phases (`phases` of `views/line.py`) say which `p` and `k` element `step*q + r` has, through a diagonal
view of contributions among zeros. Neighbouring phases at which every contribution goes on with its next `k` are one
run, which is an axis of the sums, or a dimension of their blocks. So a stencil is one family of sums, and windows of
any stride are one for each number of windows that an element lies in; no access has a table.

A contribution is a stored value, or is made by the sum itself of few other elements. Where it depends on nothing but
cotangents, the gradient of a stencil with constant weights is a stencil over these, with the weights mirrored.

Contributions are summed together where that touches fewer elements than one after another. A sum reads all of its
contributions, zeros too, at each element of the box around all of them, and writes it; one more sum for the same
elements reads and writes these once more, and takes a step, which counts as one element for each worker of the machine.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from codelet.refused import Refused
from codelet.tracing.adjoints import AdjointCodelet
from codelet.views.access import Access
from codelet.views.index import Index
from codelet.views.line import Line, Phase, phases
from codelet.views.sources import Source, Variable
from codelet.views.tensor import Tensor
from lowering.adjoint.gathered import SumView, boxes_of
from lowering.plan.elements import ElementSet

MOST_RUNS = 64
"""Into so many runs of phases sums are taken apart at most; a guess: of more, each is a short one."""


@dataclass(frozen=True, eq=False)
class Contribution:
    """A contribution to elements of a source.

    Attributes:
        step: the name of its step.
        field: through which of its fields.
        given: its operands, without symbols: dimensions as `places` has them, and then those of each field.
        places: the flat positions in the source that it is for.
        source: the source that it is for.
        elements: those of variables that it is for.
        adjoint: computes it of its one contribution, of fields of one element; None where `given` is one field, the
            contribution itself.
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
        """The name of sums of it alone."""
        return f"{self.step}/{self.field}" if self.field else self.step

    @property
    def values(self) -> Tensor:
        """The contribution, where it is stored."""
        (held,) = self.given.values()
        return held

    @property
    def num_reads(self) -> int:
        """How many elements one of its elements is made of."""
        return sum(math.prod(own.shape[self.places.ndim :]) for own in self.given.values())


# --- contributions by the dimensions of where their sums go -----------------------------------------------


POSITION, NO_DIMENSION = -1, -2
"""Keys of lines beside the dimensions of contributions: the position in a view, and one that has no places."""


class ShiftedLine(NamedTuple):
    """How a contribution runs along a dimension: at `start + step*p + by*k`.

    Attributes:
        line: the position, by the dimensions of the contribution.
        outer: the dimension of `p`; one of a single place, which goes with any step, where the line has none.
        extent: of `p`.
        inner: the dimension of `k`; `NO_DIMENSION` where there is none.
        taps: how many `k` there are.
    """

    line: Line
    outer: int
    extent: int
    inner: int
    taps: int

    def phases(self, step: int, extent: int) -> list[Phase]:
        """Its part at `step*q + phase` of an extent: `p` by `q` and `m`, and `k = tap + tap_step*m`."""
        solved = Line.of(self.line.start, {**self.line.by, self.outer: step}).solved(self.outer, POSITION)
        assert not isinstance(solved, Refused)
        return phases(solved, POSITION, extent, self.inner, self.taps)

    def ends(self, phase: Phase, places: range = range(1)) -> tuple[int, int]:
        """The least and the greatest `p` of a phase for a range of `q`."""
        low, high = phase.line.ends({POSITION: len(places), self.inner: phase.taps})
        return low + places.start, high + places.start

    def places(self, phase: Phase) -> range:
        """The `q` of a phase at which there is any contribution."""
        low, high = self.ends(phase)
        return range(-high, self.extent - low)


@dataclass(frozen=True, eq=False)
class Shifted:
    """A contribution to the elements of a view of a variable.

    Attributes:
        contribution: the contribution.
        variable: to which variable.
        view: of the sums.
        lines: how it runs along each dimension of the view.
    """

    contribution: Contribution
    variable: Variable
    view: Tensor
    lines: tuple[ShiftedLine, ...]

    @property
    def target(self) -> tuple[object, ...]:
        """Its common part with others that are contributed to the same view."""
        index = self.view.index
        tables = tuple((table.keys, table.scale, table.values.tobytes()) for table in index.tables)
        return self.variable, index.offset, index.shape, index.strides, tables


def _shifted(line: Line, shape: Sequence[int]) -> ShiftedLine | None:
    """A line by the dimensions of a contribution of a shape; None where more than two of these run along it."""
    # Of two with one step it is the shorter that is summed along.
    keys: list[Any] = sorted(line.by, key=lambda key: (line.by[key], shape[key]), reverse=True)  # type: ignore[index]
    if len(keys) > 2:
        return None
    (outer, extent), (inner, taps) = [*((key, shape[key]) for key in keys), *[(NO_DIMENSION, 1)] * 2][:2]
    return ShiftedLine(line, outer, extent, inner, taps)


def _taken_apart(shape: tuple[int, ...], places: Index) -> Access | None:
    """Places by the dimensions of an array, or of one with some of these split; None where they keep to none."""
    access = Access.of(places, shape)
    if any(line.tables for line in access.lines):
        return None
    finer = access.digit_shape
    if finer != access.shape:
        other = Access.of(places, finer)
        access = other if other.shape == finer else access
    return access


def _with_dimension(given: Contribution) -> Contribution:
    """A contribution with a dimension more, of extent one."""
    at = (*[slice(None)] * given.places.ndim, None)
    own = {name: tensor[at] for name, tensor in given.given.items()}
    return replace(given, given=own, places=given.places.with_trailing_ones(1))


def located(given: Contribution, held: Mapping[Variable, Tensor]) -> list[Shifted] | None:
    """A contribution by the dimensions of its source; None where it cannot be summed by shifts.

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
        for key in access.reversed_keys:
            access = access.restricted(key, range(access.extents[key])[::-1])
    lines = []
    for line in access.lines:
        own = _shifted(line, places.shape)
        if own is None:
            return None
        if own.outer == NO_DIMENSION:  # along which others may run
            given, own = _with_dimension(given), own._replace(outer=given.places.ndim)
        lines.append(own)
    if isinstance(source, Variable):
        targets = [(source, SumView(held[source].reshape(access.shape), (0,) * len(access.shape)))]
    else:
        found = boxes_of(access, source, held)
        if found is None:
            return None
        targets = found
    made = []
    for variable, (view, starts) in targets:
        own = (each._replace(line=each.line.moved(-first)) for each, first in zip(lines, starts, strict=True))
        made.append(Shifted(given, variable, view, tuple(own)))
    return made


# --- sums -----------------------------------------------------------------------------------------------


class Span(NamedTuple):
    """The elements `step*q + phase` of a dimension, for a range of `q` and a run of phases."""

    places: range
    step: int
    phases: range


class ShiftedBox(NamedTuple):
    """Elements that have the same contributions: those of a range of `q` and a run of phases of each dimension.

    Attributes:
        spans: the elements, dimension by dimension.
        parts: the contributions that there are, with their phases at the first of each run.
    """

    spans: tuple[Span, ...]
    parts: tuple[tuple[Shifted, tuple[Phase, ...]], ...]

    @property
    def ranges(self) -> tuple[range, ...]:
        """The `q` of each dimension, followed by its phases, counted from the first, where there are several."""
        return tuple(own for q, _, run in self.spans for own in ((q, range(len(run))) if len(run) > 1 else (q,)))

    @property
    def volume(self) -> int:
        """How many elements there are."""
        return math.prod(map(len, self.ranges))

    @property
    def reads(self) -> int:
        """How many contributions an element reads."""
        return sum(math.prod(own.taps for own in phases) for _, phases in self.parts)

    def pairs(self, at: Sequence[Index]) -> list[tuple[Index, Index | None]]:
        """The values for each of `ranges`, dimension by dimension; None where there is one phase alone."""
        rest = iter(at)
        return [(next(rest), next(rest) if len(own.phases) > 1 else None) for own in self.spans]

    def elements(self, view: Tensor, at: Sequence[Index], shape: tuple[int, ...]) -> Tensor:
        """Some of the elements, as a view of where the sums go.

        Args:
            view: where all of them go.
            at: positions in each of `ranges`.
            shape: of each of these.
        """
        places = []
        for (_, step, run), (q, phase) in zip(self.spans, self.pairs(at), strict=True):
            first = q * step + run.start
            places.append(first if phase is None else first + phase)
        return Tensor(view.source, view.index.compose(places, shape))


def _goes_on(first: Phase, later: Phase, phases: int) -> bool:
    """Whether a contribution has the next `k` at each phase up to one so many later, or none at both."""
    if not first.taps:
        return not later.taps
    return (first.tap + phases, first.taps, first.line) == (later.tap, later.taps, later.line)


def _runs(lines: Sequence[ShiftedLine], step: int, extent: int) -> list[tuple[range, tuple[Phase, ...]]]:
    """The phases of a dimension that have contributions, in runs along which all of these go on with the next `k`.

    With each run go the contributions at its first phase.
    """
    found: list[tuple[range, tuple[Phase, ...]]] = []
    for phase, own in enumerate(zip(*(line.phases(step, extent) for line in lines), strict=True)):
        if found:
            run, first = found[-1]
            if all(_goes_on(*pair, len(run)) for pair in zip(first, own, strict=True)):
                found[-1] = range(run.start, phase + 1), first
                continue
        found.append((range(phase, phase + 1), own))
    return [(run, own) for run, own in found if any(phase.taps for phase in own)]


def _spans(step: int, run: range, extent: int, places: Sequence[range]) -> Iterator[Span]:
    """The elements of a run of phases that have any contribution, at places; the extent may cut the last run."""
    start, stop = max(0, min(own.start for own in places)), max(own.stop for own in places)
    whole = min(stop, (extent - run.stop) // step + 1)
    if start < whole:
        yield Span(range(start, whole), step, run)
    last = max(start, whole)
    left = range(run.start, min(run.stop, extent - step * last))
    if last < stop and left:
        yield Span(range(last, last + 1), step, left)


def boxes(members: Sequence[Shifted]) -> list[ShiftedBox] | None:
    """The sums of contributions to one view; None where their steps are of different lengths, or too many runs."""
    view, dimensions = members[0].view, []
    for extent, lines in zip(view.shape, zip(*(own.lines for own in members), strict=True), strict=True):
        steps = {own.line.by[own.outer] for own in lines if own.extent > 1} or {1}
        if len(steps) > 1:
            return None
        (step,) = steps
        dimensions.append([(step, *run) for run in _runs(lines, step, extent)])
    if math.prod(map(len, dimensions)) > MOST_RUNS:
        return None
    found = []
    for runs in itertools.product(*dimensions):
        ways = zip(*(own for _, _, own in runs), strict=True) if runs else [()] * len(members)
        parts = tuple(
            (own, phases) for own, phases in zip(members, ways, strict=True) if all(each.taps for each in phases)
        )
        if not parts:
            continue
        spans = [
            _spans(step, run, view.shape[d], [own.lines[d].places(phases[d]) for own, phases in parts])
            for d, (step, run, _) in enumerate(runs)
        ]
        found += [ShiftedBox(own, parts) for own in itertools.product(*spans)]
    return found


def elements_of(box: ShiftedBox, view: Tensor) -> Tensor:
    """The elements of a view that a box has."""
    shape = tuple(map(len, box.ranges))
    unit = lambda d: tuple(int(k == d) for k in range(len(shape)))  # noqa: E731
    return box.elements(view, [Index(own.start, shape, unit(d)) for d, own in enumerate(box.ranges)], shape)


def touched(made: Sequence[ShiftedBox]) -> int:
    """How many elements sums read and write."""
    return sum(box.volume * (box.reads + 1) for box in made)


def grouped(
    given: Sequence[Shifted], step: int, may_be: Callable[[Sequence[Shifted], Sequence[ShiftedBox]], bool]
) -> Iterator[tuple[list[Shifted], list[ShiftedBox]]]:
    """Contributions that are summed together, those to most elements first, and their sums.

    Args:
        given: to views of one variable.
        step: how many elements a further step of the machine counts as.
        may_be: whether sums may be made together.
    """
    groups: list[tuple[list[Shifted], list[ShiftedBox]]] = []
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
