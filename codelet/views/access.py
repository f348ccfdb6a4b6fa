"""Accesses: where a view stands along each dimension of an array, at every position of its keys.

Keys are grid axes, and dimensions of a field. Along each dimension of the array there is one `Line`,

    (start + sum over keys of step * place + tables) / divisor

A position that the divisor does not divide, or that is outside of the array, is a *hole*: nothing is there, as between
the elements that a convolution dilates, and in the padding around them. A *rounded* line rounds down instead, and has
no holes: it is the number of the block that a position is in.

An `Index` is flat, and fast for single vertices; an `Access` is made of it where dimensions are asked for, of the
array's own or of these with neighbours made one. Cuts, windows, strides, padding, and what is solved for another key,
as gradients are, all keep the form; where a divided line is to run without its divisor, `phases` takes it apart.

In the terms of polyhedral compilers a line is a quasi-affine expression, and an access a relation from a set of places
to elements. Source: C. Ancourt and F. Irigoin, Scanning polyhedra with DO loops, 1991; V. Dumoulin and F. Visin, A
guide to convolution arithmetic for deep learning, 2016, for the phases of transposed convolutions.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from codelet.refused import Refused
from codelet.views.affine import Table, sorted_symbols
from codelet.views.boxes import Box
from codelet.views.digits import row_major_strides
from codelet.views.grids import Axis, Key
from codelet.views.index import Index
from codelet.views.integers import affine_length, common_divisor, narrowed

# --- terms ------------------------------------------------------------------------------------------------


class Lookup(NamedTuple):
    """Positions from data, `scale * values + shift`. The values are the graph's own: no copy is made of them."""

    values: np.ndarray
    scale: int
    shift: int

    def divided(self, divisor: int) -> Lookup:
        """All positions, counted from the least, divided by what divides them."""
        if self.scale % divisor == 0:
            return Lookup(self.values, self.scale // divisor, self.shift // divisor)
        return Lookup(self.positions(np.int64) // divisor, 1, 0)

    def positions(self, dtype: Any) -> np.ndarray:
        """The positions, which must fit the dtype, as an array of it."""
        if (self.scale, self.shift) == (1, 0):
            return self.values.astype(dtype, copy=False)
        # Computed as int64 by blocks and cut to the dtype. A product that does not fit is cut to what is
        # congruent to it, and so the sum, which fits, is right.
        made = np.empty(self.values.shape, dtype)
        np.multiply(self.values, self.scale, out=made, dtype=np.int64, casting="unsafe")
        return np.add(made, self.shift, out=made, dtype=np.int64, casting="unsafe")


class Term(NamedTuple):
    """What a dimension's position depends on: `grain * place` along one key, or a table over keys.

    Positions count from the term's least value, so they are never negative; `table` is in units of the
    dimension. `grain` divides every position; `reach` is the greatest.
    """

    keys: tuple[Key, ...]
    extents: tuple[int, ...]
    grain: int
    reach: int
    table: Lookup | None

    def positions(self, start: int = 0, scale: int = 1) -> np.ndarray:
        """`start` plus `scale` times the positions of a table, as int32 where they fit."""
        assert self.table is not None
        values, own, shift = self.table
        return Lookup(values, own * scale, shift * scale + start).positions(
            dtype_of_positions(start, scale * self.reach)
        )

    def divided(self, weight: int) -> Term:
        """It in units of a weight, which divides all of it."""
        table = None if self.table is None else self.table.divided(weight)
        return self._replace(grain=self.grain // weight, reach=self.reach // weight, table=table)


def dtype_of_positions(start: int, reach: int) -> Any:
    """The dtype of positions from `start` to `start + reach`."""
    return np.int32 if start >= -(2**31) and start + reach < 2**31 else np.int64


class Dimension(NamedTuple):
    """The least position along a dimension, and what is added to it: terms that are never negative."""

    start: int
    terms: tuple[Term, ...]


def _table_term(keys: tuple[Key, ...], values: np.ndarray, scale: int) -> tuple[int, Term | None, bool]:
    """The least of `scale * values` along keys, the rest of it, if any, and whether that runs backwards along a key."""
    low, high = int(values.min()), int(values.max())
    least, reach = min(low * scale, high * scale), (high - low) * abs(scale)
    if not reach:
        return least, None, False
    if values.ndim == 1 and affine_length(values) == len(values):  # a table may turn out to be affine
        stride = (int(values[1]) - int(values[0])) * scale
        return least, Term(keys, values.shape, abs(stride), reach, None), stride < 0
    grain = common_divisor(values, low) * abs(scale)
    return least, Term(keys, values.shape, grain, reach, Lookup(values, scale, -least)), False


def _index_table(index: Index, keys: tuple[Key, ...]) -> tuple[np.ndarray, int]:
    """What an index adds up to along keys of tables: values and a scale."""
    own = tuple(table for table in index.tables if set(table.keys) <= set(keys))
    if len(own) == 1 and not any(map(index.coefficient, keys)):
        return own[0].values.transpose([own[0].keys.index(key) for key in keys]), own[0].scale
    return narrowed(index.only(keys, own, 0).values_over(keys)), 1


def flat_terms(index: Index) -> tuple[int, list[Term], frozenset[Key]]:
    """The offset of the least element read, the terms from there on, and the keys that run backwards."""
    offset, terms, backwards = index.offset, [], set()
    tabled: set[Key] = set()
    for keys in index.table_groups:
        tabled.update(keys)
        least, term, is_reversed = _table_term(keys, *_index_table(index, keys))
        offset += least
        backwards.update(keys if is_reversed else ())
        if term is not None:
            terms.append(term)
    for key in index.keys:
        step, extent = index.digit(key)
        if key not in tabled and extent > 1:
            reach = abs(step) * (extent - 1)
            terms.append(Term((key,), (extent,), abs(step), reach, None))
            if step < 0:
                offset -= reach
                backwards.add(key)
    return offset, terms, frozenset(backwards)


def _by_dimension(shape: tuple[int, ...], offset: int, terms: Sequence[Term]) -> tuple[Dimension, ...] | int:
    """The terms assigned to dimensions, in units of them; or the number of one that they do not keep to."""
    weights = row_major_strides(shape)
    assigned: list[list[Term]] = [[] for _ in shape]
    for term in terms:
        at = next(d for d, weight in enumerate(weights) if term.grain % weight == 0)
        assigned[at].append(term)
    starts = np.unravel_index(offset, shape) if shape else ()
    dimensions = []
    for d, (weight, extent, start, own) in enumerate(zip(weights, shape, starts, assigned, strict=True)):
        if int(start) + sum(term.reach // weight for term in own) >= extent:
            return d
        own.sort(key=lambda term: term.grain, reverse=True)
        dimensions.append(Dimension(int(start), tuple(term.divided(weight) for term in own)))
    return tuple(dimensions)


# --- lines ------------------------------------------------------------------------------------------------


class Part(NamedTuple):
    """A part of a key: it steps by `stride` through what is read, so many times.

    `key` is the key that it is a part of, of which it is `weight` positions.
    """

    key: Key
    weight: int
    stride: int
    extent: int


def _order(key: Key | Part) -> tuple[int, ...]:
    """The place of a key among all: dimensions of fields, then axes; parts of keys by how far they step."""
    if isinstance(key, Part):
        return (2, -key.stride, *_order(key.key), key.weight)
    return (0, key) if isinstance(key, int) else (1, *key.sort_key)


@dataclass(frozen=True, slots=True)
class Line:
    """Where an access stands along one dimension; see the module's docstring.

    Attributes:
        start: at the first place along all keys, but for tables, and before it is divided.
        steps: by how much it moves along keys, or parts of keys; sorted, none zero.
        divisor: at least 1; without a factor in common with the start and all steps.
        rounded: whether it is rounded down, rather than a hole where the divisor does not divide.
        tables: what is added for places along keys, never negative; only with a divisor of 1.
    """

    start: int
    steps: tuple[tuple[Any, int], ...] = ()
    divisor: int = 1
    rounded: bool = False
    tables: tuple[Term, ...] = ()

    @staticmethod
    def of(
        start: int,
        steps: Mapping[Any, int] | None = None,
        divisor: int = 1,
        *,
        rounded: bool = False,
        tables: tuple[Term, ...] = (),
    ) -> Line:
        """The line in its one form: without common factors, and without steps of zero."""
        kept = {key: step for key, step in (steps or {}).items() if step}
        if rounded and divisor > 1:
            common = math.gcd(divisor, *kept.values())
            start = start // common * common  # what it has beside whole blocks of that never carries over
        else:
            common = math.gcd(divisor, start, *kept.values()) * (-1 if divisor < 0 else 1) if divisor != 1 else 1
        ordered = sorted(kept.items(), key=lambda own: _order(own[0]))
        divisor //= common
        made = tuple((key, step // common) for key, step in ordered)
        return Line(start // common, made, divisor, rounded and divisor > 1, tables)

    @property
    def by(self) -> dict[Key, int]:
        """The step along each key that it moves along evenly."""
        return dict(self.steps)

    @property
    def keys(self) -> set[Key]:
        """All that it depends on."""
        return {key for key, _ in self.steps} | {key for table in self.tables for key in table.keys}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Line) and self._form == other._form

    def __hash__(self) -> int:
        return hash(self._form)

    @property
    def _form(self) -> tuple[Any, ...]:
        numbers = tuple((table.keys, table.positions().tobytes()) for table in self.tables)
        return self.start, self.steps, self.divisor, self.rounded, numbers

    def at(self, places: Mapping[Key, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        """The position at places along keys, and whether one is there; the array's ends are not asked.

        Args:
            places: arrays that broadcast against each other, int64.
        """
        number = np.asarray(self.start)
        for key, step in self.steps:
            number = number + step * places[key]
        for table in self.tables:
            number = number + table.positions()[tuple(places[key] for key in table.keys)]
        is_there = np.ones(number.shape, bool) if self.rounded else number % self.divisor == 0
        return number // self.divisor, is_there

    def moved(self, by: int) -> Line:
        """It, so many positions on."""
        return replace(self, start=self.start + by * self.divisor)

    def after(self, inner: Mapping[Key, Line], extents: Mapping[Key, int] | None = None) -> Line | Refused:
        """It with keys given by other lines, none of them rounded: composition.

        Args:
            inner: the place along each key of it that is given.
            extents: of the keys of these, where tables are looked up by them.
        """
        tables = self._tables_after(inner, extents or {})
        if isinstance(tables, Refused):
            return tables
        own = [(key, step, inner[key]) for key, step in self.steps if key in inner]
        if any(line.rounded for _, _, line in own):
            return Refused("it steps along what is rounded")
        if any(line.tables for _, _, line in own) and self.divisor > 1:
            return Refused("it divides what a table says")
        divided = [(step, line.divisor) for _, step, line in own if line.divisor > 1]
        whole = math.prod(divisor for _, divisor in divided)
        if divided and (self.rounded or tables):
            return Refused("it rounds what is divided, or adds a table to it")
        if len(divided) > 1 or any(math.gcd(step, divisor) > 1 for step, divisor in divided):
            return Refused("it is somewhere where what it steps along is nowhere")
        start, steps = self.start * whole, {key: step * whole for key, step in self.steps if key not in inner}
        for _, step, line in own:
            times = step * (whole // line.divisor)
            start += times * line.start
            for key, by in line.steps:
                steps[key] = steps.get(key, 0) + times * by
            for table in line.tables:
                if times < 0:
                    return Refused("a table runs backwards")
                numbers = Lookup(table.positions(scale=times), 1, 0)
                tables = (*tables, Term(table.keys, table.extents, table.grain * times, table.reach * times, numbers))
        return Line.of(start, steps, self.divisor * whole, rounded=self.rounded, tables=tables)

    def _tables_after(self, inner: Mapping[Key, Line], extents: Mapping[Key, int]) -> tuple[Term, ...] | Refused:
        """Its tables, looked up by what lines say."""
        found = []
        for table in self.tables:
            lines = [inner.get(key, Line(0, ((key, 1),))) for key in table.keys]
            if any(line.divisor > 1 or line.tables for line in lines):
                return Refused("a table is looked up by what is divided, or by another table")
            keys = sorted({key for line in lines for key in line.keys}, key=_order)
            known = {**dict(zip(table.keys, table.extents, strict=True)), **extents}
            places = dict(zip(keys, np.ix_(*(np.arange(known[key]) for key in keys)), strict=True))
            at = tuple(line.at(places)[0] for line in lines)
            if any(np.any(own < 0) or np.any(own >= n) for own, n in zip(at, table.extents, strict=True)):
                return Refused("a table is looked up where it ends")
            shape = tuple(known[key] for key in keys)
            values = np.broadcast_to(table.positions()[at], shape)
            found.append(Term(tuple(keys), shape, table.grain, table.reach, Lookup(values, 1, 0)))
        return tuple(found)

    def solved(self, key: Key, position: Key) -> Line | Refused:
        """The place along one key by the position, as a key, and all other keys: what inverses and gradients need."""
        step = self.by.get(key)
        if step is None or self.rounded or self.tables:
            return Refused("the key moves it by a table, or does not, or it is rounded")
        sign = 1 if step > 0 else -1
        steps: dict[Key, int] = {name: -sign * by for name, by in self.steps if name is not key and name != key}
        steps[position] = steps.get(position, 0) + sign * self.divisor
        return Line.of(-sign * self.start, steps, abs(step))

    def ends(self, extents: Mapping[Key, int]) -> tuple[int, int]:
        """The least and the greatest of what is divided; of tables a bound."""
        low = high = self.start
        for key, step in self.steps:
            reach = step * (extents[key] - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high + sum(table.reach for table in self.tables)

    def simplified(self, extents: Mapping[Key, int]) -> Line:
        """It without keys of one place, and plain where it is rounded but what does not divide stays in one block."""
        steps = {key: step for key, step in self.steps if extents.get(key, 2) > 1}
        made = Line.of(self.start, steps, self.divisor, rounded=self.rounded, tables=self.tables)
        if not made.rounded:
            return made
        whole = {key: step for key, step in steps.items() if step % made.divisor == 0}
        rest = Line.of(made.start, {key: step for key, step in steps.items() if key not in whole})
        low, high = rest.ends(extents)
        if low // made.divisor != high // made.divisor:
            return made
        return Line.of(low // made.divisor, {key: step // made.divisor for key, step in whole.items()})

    def __str__(self) -> str:
        return self.text({key: f"k{key}" if isinstance(key, int) else key.name or "axis" for key in self.keys})

    def text(self, names: Mapping[Key, str]) -> str:
        """It as an expression, by names of its keys."""
        terms = [f"{'' if step == 1 else f'{step}*'}{names[key]}" for key, step in self.steps]
        terms += [f"table[{', '.join(names[key] for key in table.keys)}]" for table in self.tables]
        text = " + ".join(([str(self.start)] if self.start or not terms else []) + terms).replace("+ -", "- ")
        return text if self.divisor == 1 else f"({text}) {'//' if self.rounded else '/'} {self.divisor}"


# --- accesses ---------------------------------------------------------------------------------------------


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
        while not isinstance(found := _by_dimension(tried, offset, terms), tuple):
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
        """Each dimension by its least position and what is added to it; of an access without divisors."""
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
        """It in blocks of a size along a key, numbered by another, and one of what is left over: see `joined`."""
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
            positions: what the position along each dimension is called.
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


# --- divided lines without their divisors -------------------------------------------------------------------


class Phase(NamedTuple):
    """Places at which a divided line over two keys has none: `first + apart*q` along one, `tap + tap_step*t` the other.

    Attributes:
        first: of the places along the key, and by how many these are `apart`.
        count: of these.
        tap: the first place along the other key, and by how many these are apart: `tap_step`.
        taps: of these; 0 where there is nothing.
        line: the position, by `q` and `t`, which are called as the two keys are.
    """

    first: int
    apart: int
    count: int
    tap: int
    tap_step: int
    taps: int
    line: Line


def phases(line: Line, key: Key, extent: int, tap: Key, taps: int) -> list[Phase]:
    """The phases of a line over a key and the taps of a window, of each remainder of the key's places.

    Strided windows come apart here: forward of inputs among zeros, and backward by strides.

    >>> from codelet.views.access import Line, phases
    >>> [(own.tap, own.taps, str(own.line)) for own in phases(Line.of(1, {0: 1, 1: 1}, 2), 0, 6, 1, 3)]
    [(1, 1, '1 + k0 + k1'), (0, 2, '1 + k0 + k1')]
    """
    steps = {name: step for name, step in line.steps if name not in (key, tap)}
    assert not steps, steps
    own, divisor = line.by, line.divisor
    a, b = own.get(key, 0), own.get(tap, 0)
    apart, tap_step = divisor // math.gcd(a, divisor), divisor // math.gcd(b, divisor)
    plain = Line.of(0, {key: a * apart // divisor, tap: b * tap_step // divisor}).steps
    found = []
    for first in range(min(apart, extent)):
        begin = line.start + a * first
        at = next((t for t in range(min(taps, tap_step)) if (begin + b * t) % divisor == 0), None)
        count, number = -(-(extent - first) // apart), 0 if at is None else -(-(taps - at) // tap_step)
        start, at = (begin + b * (at or 0)) // divisor, at or 0
        found.append(Phase(first, apart, count, at, tap_step, number, Line(start, plain)))
    return found
