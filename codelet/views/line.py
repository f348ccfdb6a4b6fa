"""Lines: where a view stands along one dimension of an array, at every place of its keys.

    (start + sum over keys of step * place + tables) / divisor

Keys are grid axes, dimensions of a field, and parts of these. A position that the divisor does not divide is a *hole*:
nothing is there, as between the elements that a convolution dilates. A *rounded* line rounds down instead, and has no
holes: it is the number of the block that a position is in. Where a divided line is to run without its divisor, `phases`
takes it apart.

In the terms of polyhedral compilers a line is a quasi-affine expression. Source: C. Ancourt and F. Irigoin, Scanning
polyhedra with DO loops, 1991; V. Dumoulin and F. Visin, A guide to convolution arithmetic for deep learning, 2016, for
the phases of transposed convolutions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from codelet.refused import Refused
from codelet.views.grids import Key
from codelet.views.terms import Lookup, Term


class Part(NamedTuple):
    """A part of a key: it steps by `stride` through the source, so many times.

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


def open_grid(keys: Sequence[Key], extents: Mapping[Key, int]) -> dict[Key, np.ndarray]:
    """All places along keys, as arrays that broadcast against each other: a dimension for each key, in order."""
    return dict(zip(keys, np.ix_(*(np.arange(extents[key]) for key in keys)), strict=True))


@dataclass(frozen=True, slots=True)
class Line:
    """Where an access stands along one dimension; see the module's docstring.

    Attributes:
        start: at the first place along all keys, but for tables, and before it is divided.
        steps: by how much it moves along keys, or parts of keys; sorted, none zero.
        divisor: at least 1; without a factor in common with the start and all steps.
        rounded: whether it is rounded down, rather than a hole where the divisor does not divide.
        tables: the offsets for places along keys, never negative; only with a divisor of 1.
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
        divided = [(step, line.divisor) for _, step, line in own if line.divisor > 1]
        if any(line.tables for _, _, line in own) and (self.divisor > 1 or divided):
            return Refused("it divides what a table says")
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
        """Its tables, looked up by the values of lines."""
        found = []
        for table in self.tables:
            lines = [inner.get(key, Line(0, ((key, 1),))) for key in table.keys]
            if any(line.divisor > 1 or line.tables for line in lines):
                return Refused("a table is looked up by what is divided, or by another table")
            keys = sorted({key for line in lines for key in line.keys}, key=_order)
            known = {**dict(zip(table.keys, table.extents, strict=True)), **extents}
            places = open_grid(keys, known)
            at = tuple(line.at(places)[0] for line in lines)
            if any(np.any(own < 0) or np.any(own >= n) for own, n in zip(at, table.extents, strict=True)):
                return Refused("a table is looked up where it ends")
            shape = tuple(known[key] for key in keys)
            values = np.broadcast_to(table.positions()[at], shape)
            found.append(Term(tuple(keys), shape, table.grain, table.reach, Lookup(values, 1, 0)))
        return tuple(found)

    def solved(self, key: Key, position: Key) -> Line | Refused:
        """The place along one key by the position, as a key, and all other keys: as inverses and gradients need."""
        step = self.by.get(key)
        if step is None or self.rounded or self.tables:
            return Refused("the key moves it by a table, or does not, or it is rounded")
        sign = 1 if step > 0 else -1
        steps: dict[Key, int] = {name: -sign * by for name, by in self.steps if name is not key and name != key}
        steps[position] = steps.get(position, 0) + sign * self.divisor
        return Line.of(-sign * self.start, steps, abs(step))

    def ends(self, extents: Mapping[Key, int]) -> tuple[int, int]:
        """The least and the greatest dividend; of tables a bound."""
        low = high = self.start
        for key, step in self.steps:
            reach = step * (extents[key] - 1)
            low, high = low + min(0, reach), high + max(0, reach)
        return low, high + sum(table.reach for table in self.tables)

    def simplified(self, extents: Mapping[Key, int]) -> Line:
        """It without keys of one place, and plain where it is rounded but the remainder stays in one block."""
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

    >>> from codelet.views.line import Line, phases
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
