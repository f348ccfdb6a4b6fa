"""Accesses: where a view stands along each dimension of an array, at every place of its keys: a line for each.

An `Index` is flat, and fast for single vertices; an `Access` is made of it where dimensions are asked for, those of the
array or those with neighbours made one. Cuts, windows, strides, padding, and solutions for another key, as in
gradients, all keep the form. Positions outside of the array are holes, as those are that a line leaves out.

In the terms of polyhedral compilers an access is a relation from a set of places to elements.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

from codelet.refused import Refused
from codelet.views.affine import Table, sorted_symbols
from codelet.views.boxes import Box
from codelet.views.digits import row_major_strides
from codelet.views.grids import Axis, Key
from codelet.views.index import Index
from codelet.views.line import Line
from codelet.views.terms import Dimension, Term, by_dimension, flat_terms


def _line_of(dimension: Dimension, backwards: Collection[Key]) -> Line:
    """The line of a dimension, of whose keys some run backwards."""
    start, steps = dimension.start, {}
    for term in dimension.terms:
        if term.table is None:
            (key,) = term.keys
            steps[key] = -term.grain if key in backwards else term.grain
            start += term.reach if key in backwards else 0
    return Line.of(start, steps, tables=tuple(term for term in dimension.terms if term.table is not None))


@dataclass(frozen=True)
class Access:
    """An access to an array of `shape`: a line for each dimension, over keys of some extents."""

    shape: tuple[int, ...]
    lines: tuple[Line, ...]
    extents: Mapping[Key, int]

    @staticmethod
    def of(index: Index, shape: tuple[int, ...]) -> Access:
        """An index into an array by its dimensions, or by those of it with as few as must be made one with another.

        Args:
            index: flat positions in the array, at least one.
            shape: of the array.
        """
        offset, terms, backwards = flat_terms(index)
        tried = shape if shape or not terms else (1,)
        while not isinstance(found := by_dimension(tried, offset, terms), tuple):
            assert found, (shape, index)
            tried = (*tried[: found - 1], tried[found - 1] * tried[found], *tried[found + 1 :])
        extents = {key: index.extent(key) for key in (*index.axes, *range(index.ndim))}
        return Access.by_dimension(tried, found, backwards, extents)

    @staticmethod
    def by_dimension(
        shape: tuple[int, ...],
        dimensions: Sequence[Dimension],
        backwards: Collection[Key] = (),
        extents: Mapping[Key, int] | None = None,
    ) -> Access:
        """The access of dimensions, of whose keys some run backwards; over the keys of these if no others are given."""
        if extents is None:
            terms = [term for own in dimensions for term in own.terms]
            extents = {key: n for term in terms for key, n in zip(term.keys, term.extents, strict=True)}
        made = Access(shape, tuple(_line_of(own, backwards) for own in dimensions), extents)
        made.__dict__["dimensions"] = tuple(dimensions)  # which is what it would compute
        return made

    @functools.cached_property
    def dimensions(self) -> tuple[Dimension, ...]:
        """Each dimension by its least position and the terms added to it; of an access without divisors."""
        found = []
        for line in self.lines:
            assert line.divisor == 1, line
            terms = []
            for key, step in line.steps:
                if (extent := self.extents[key]) > 1:
                    terms.append(Term((key,), (extent,), abs(step), abs(step) * (extent - 1), None))
            terms = sorted((*terms, *line.tables), key=lambda term: term.grain, reverse=True)
            found.append(Dimension(line.ends(self.extents)[0], tuple(terms)))
        return tuple(found)

    @functools.cached_property
    def reversed_keys(self) -> frozenset[Key]:
        """The keys that run backwards."""
        return frozenset(key for line in self.lines for key, step in line.steps if step < 0)

    @property
    def digit_shape(self) -> tuple[int, ...]:
        """The shape, its dimensions split where several keys count along one as digits do, if they divide it."""
        shape: list[int] = []
        for extent, (_, terms) in zip(self.shape, self.dimensions, strict=True):
            rest = extent
            for k, outer in enumerate(terms[:-1]):
                if outer.grain > sum(term.reach for term in terms[k + 1 :]) and rest % outer.grain == 0:
                    shape.append(rest // outer.grain)
                    rest = outer.grain
            shape.append(rest)
        return tuple(shape)

    # --- what it names ------------------------------------------------------------------------------------

    def index(self) -> Index:
        """The flat positions, over its axes, with its dimensions of a field; of an access without divisors."""
        weights = row_major_strides(self.shape)
        fields = sum(isinstance(key, int) for key in self.extents)
        steps: dict[Key, int] = dict.fromkeys(range(fields), 0)
        offset, tables = 0, []
        for line, weight in zip(self.lines, weights, strict=True):
            assert line.divisor == 1, line
            offset += line.start * weight
            for key, step in line.steps:
                steps[key] = steps.get(key, 0) + step * weight
            for keys, _, _, _, (values, scale, shift) in line.tables:  # type: ignore[misc]
                offset += shift * weight
                tables.append(Table(keys, values, scale * weight))
        shape = tuple(self.extents[d] for d in range(fields))
        symbols = sorted_symbols({key: step for key, step in steps.items() if isinstance(key, Axis)})
        return Index(offset, shape, tuple(steps[d] for d in range(fields)), symbols, tuple(tables))

    def box(self) -> Box:
        """The least box around all positions, holes among them, whatever the array's ends are; of tables a bound."""
        found = []
        for line in self.lines:
            low, high = line.ends(self.extents)
            first = low // line.divisor if line.rounded else -(-low // line.divisor)
            found.append((first, high // line.divisor + 1))
        return tuple(found)

    # --- cut, and put together ----------------------------------------------------------------------------

    def after(self, inner: Mapping[Key, Line], extents: Mapping[Key, int]) -> Access | Refused:
        """It with the places along keys given by lines over others; composition.

        Args:
            inner: a line for each key that is replaced.
            extents: of all keys there are then.
        """
        lines = [line.after(inner, extents) for line in self.lines]
        refused = next((line for line in lines if isinstance(line, Refused)), None)
        return refused or Access(self.shape, tuple(line for line in lines if isinstance(line, Line)), extents)

    def _must_after(self, inner: Mapping[Key, Line], extents: Mapping[Key, int]) -> Access:
        made = self.after(inner, extents)
        assert isinstance(made, Access), made
        return made

    def restricted(self, key: Key, places: range) -> Access:
        """It at some places of a key, which are counted from the first of them on."""
        line = Line.of(places.start, {key: places.step})
        return self._must_after({key: line}, {**self.extents, key: len(places)})

    def split(self, key: Key, outer: Key, inner: Key, count: int) -> Access:
        """It with a key as two, of which the inner has `count` places, a divisor of the key's."""
        assert self.extents[key] % count == 0, (key, self.extents[key], count)
        extents = {name: n for name, n in self.extents.items() if name != key}
        extents |= {outer: self.extents[key] // count, inner: count}
        return self._must_after({key: Line.of(0, {outer: count, inner: 1})}, extents)

    def merged(self, outer: Key, inner: Key, name: Key) -> Access | Refused:
        """It with two keys as one, where along every dimension the outer goes on where the inner ends."""
        count, lines = self.extents[inner], []
        for line in self.lines:
            steps = line.by
            step, over = steps.pop(inner, 0), steps.pop(outer, 0)
            tabled = {key for table in line.tables for key in table.keys}
            if (self.extents[outer] > 1 and over != count * step) or tabled & {outer, inner}:
                return Refused("one of two keys does not go on where the other ends")
            if name in steps:
                return Refused("there is a key of that name")
            steps[name] = over if count == 1 < self.extents[outer] else step
            lines.append(Line.of(line.start, steps, line.divisor, rounded=line.rounded, tables=line.tables))
        extents = {key: n for key, n in self.extents.items() if key not in (outer, inner)}
        return Access(self.shape, tuple(lines), {**extents, name: self.extents[outer] * count})

    def cut(self, key: Key, size: int, block: Key) -> list[Access]:
        """It in blocks of a size along a key, numbered by another, and one of the rest: see `joined`."""
        full, left = divmod(self.extents[key], size)
        parts = []
        if full:
            parts.append(self.restricted(key, range(full * size)).split(key, block, key, size))
        if left:
            rest = self.restricted(key, range(full * size, full * size + left))
            parts.append(replace(rest, extents={**rest.extents, block: 1}))
        return parts

    def inverse(self, positions: Sequence[Key]) -> dict[Key, Line] | Refused:
        """The place along each key by the positions along dimensions; holes where no place is.

        Args:
            positions: the name of the position along each dimension.
        """
        found: dict[Key, Line] = {key: Line(0) for key, n in self.extents.items() if n == 1}
        for line, position in zip(self.lines, positions, strict=True):
            moving = [key for key in line.keys if self.extents[key] > 1]
            if len(moving) > 1 or line.tables:
                return Refused("several keys, or a table, move along one dimension")
            for key in moving:
                own = line.simplified(self.extents).solved(key, position)
                if isinstance(own, Refused):
                    return own
                found.setdefault(key, own)
        if len(found) < len(self.extents):
            return Refused("every element is named at several places")
        return found

    def padded(self, widths: Sequence[tuple[int, int]]) -> Access:
        """It into an array with so many positions more before and behind along each dimension."""
        lines = tuple(line.moved(before) for line, (before, _) in zip(self.lines, widths, strict=True))
        shape = tuple(n + before + after for n, (before, after) in zip(self.shape, widths, strict=True))
        return Access(shape, lines, self.extents)


def joined(parts: Sequence[Access], key: Key) -> Access | Refused:
    """The access that some are parts of, each going on along a key where another ends: the inverse of `cut`."""
    moving = next((d for d, line in enumerate(parts[0].lines) if line.by.get(key)), None)
    if moving is None:
        return parts[0] if len(parts) == 1 else Refused("nothing moves along the key")
    step = parts[0].lines[moving].by[key]
    first, *rest = sorted(parts, key=lambda own: own.lines[moving].start * (1 if step > 0 else -1))
    total = first.extents[key]
    for own in rest:
        expected = [replace(line, start=line.start + line.by.get(key, 0) * total) for line in first.lines]
        if list(own.lines) != expected or {**own.extents, key: 0} != {**first.extents, key: 0}:
            return Refused("one does not go on where another ends")
        total += own.extents[key]
    return Access(first.shape, first.lines, {**first.extents, key: total})
