"""The inverse of an index: which vertex, and which position of its field, names an element.

An index maps positions, along grid axes and along its dimensions, to elements. Where it names no element twice, the
same pairs can be looked up by element, and listed in the order of elements. An adjoint sends the cotangent of an
element back to where it was written or read.

The index is taken apart into nested digits (`digits.py`), which are read off an element's number by division. Keys that
tables, or steps that overlap, tie together are one digit, with a table of the numbers that it has. So slices,
transposes, reshapes, reversals and windows that lie apart are inverted without tables, and a table beside them needs no
more than one of its size.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from codelet.errors import ViewError
from codelet.saving import Unchanging
from codelet.views.affine import Table
from codelet.views.conditions import Condition
from codelet.views.grids import Key
from codelet.views.integers import common_divisor, narrowed

if TYPE_CHECKING:
    from codelet.views.index import Index


class Listed(NamedTuple):
    """Numbers, ascending and each once, and the position of each along several keys, in row-major order."""

    numbers: np.ndarray
    order: np.ndarray


class Part(NamedTuple):
    """The offsets that some keys add to an element's number, from the least: a multiple of `step` up to `reach`.

    Attributes:
        keys: one, of steps that are even; or several, or one, with tables.
        extents: of the keys.
        least: the least number they add.
        step: greater than zero, it divides all others less the least.
        reach: the greatest less the least.
        is_reversed: whether an even step is a step back.
        listed: with tables, the offset less the least, in steps.
    """

    keys: tuple[Key, ...]
    extents: tuple[int, ...]
    least: int
    step: int
    reach: int
    is_reversed: bool = False
    listed: Listed | None = None

    @property
    def count(self) -> int:
        """How many steps reach from the least to the greatest, and one."""
        return self.reach // self.step + 1

    def places(self, order: Index) -> dict[Key, Index]:
        """The position along each key at positions along all of them."""
        return dict(zip(self.keys, order.unravelled(self.extents), strict=True))


class Standing(NamedTuple):
    """Where elements stand in an index.

    Attributes:
        places: for each grid axis and each dimension of the index, the position along it. For an element that is named
            by nobody it is any position, so that the result only needs to be left out.
        is_named: which elements are named at all.
    """

    places: Mapping[Key, Index]
    is_named: Condition


@dataclass(frozen=True, eq=False)
class Inverse(Unchanging):
    """Where elements stand in an index that names none twice. An element that nobody names is not among `elements`.

    Attributes:
        index: the index.
        origin: the least element that it names.
        parts: the offsets of its keys, nested: each step is more than the reach of all parts after it.
    """

    index: Index
    origin: int
    parts: tuple[Part, ...]

    @property
    def keys(self) -> tuple[Key, ...]:
        """The grid axes and the dimensions of the index: all of them, those of extent one too."""
        return (*self.index.axes, *range(self.index.ndim))

    @functools.cached_property
    def elements(self) -> Index:
        """The elements that are named, each once, ascending in row-major order."""
        if self.index.is_empty:
            return self.index.filled(0, (0,))
        counts = tuple(part.count if part.listed is None else len(part.listed.numbers) for part in self.parts)
        strides = tuple(part.step if part.listed is None else 0 for part in self.parts)
        listed = [(d, part.listed, part.step) for d, part in enumerate(self.parts) if part.listed is not None]
        tables = tuple(Table((d,), narrowed(own.numbers), step) for d, own, step in listed)
        return type(self.index)(self.origin, counts, strides, (), tables)

    @functools.cached_property
    def places(self) -> Mapping[Key, Index]:
        """For each key the position along it of each of `elements`."""
        shape = self.elements.shape
        found: dict[Key, Index] = dict.fromkeys(self.keys, self.index.filled(0, shape))
        for d, part in enumerate(self.parts if not self.index.is_empty else ()):
            if part.listed is not None:
                found.update(part.places(self.index.from_values(part.listed.order, (d,), shape)))
                continue
            place = type(self.index)(0, shape, tuple(int(k == d) for k in range(len(shape))))
            found[part.keys[0]] = part.extents[0] - 1 - place if part.is_reversed else place
        return found

    def at(self, elements: Index) -> Standing:
        """Where the elements of another index stand: that of a reader, say, in the index of a writer."""
        shape, nowhere = elements.shape, self.index.filled(0, elements.shape)
        found: dict[Key, Index] = dict.fromkeys(self.keys, nowhere)
        if self.index.is_empty:
            return Standing(found, nowhere != 0)
        rest, is_named = elements - self.origin, nowhere == 0
        for part in self.parts:
            number, rest = divmod(rest, part.step)
            is_named &= (number >= 0) & (number < part.count)
            number = number.maximum(0).minimum(part.count - 1)
            if part.listed is None:
                found[part.keys[0]] = part.count - 1 - number if part.is_reversed else number
                continue
            order = np.full(part.count, -1, np.int64)
            order[part.listed.numbers] = part.listed.order
            looked_up = self.index.from_values(order, (0,), order.shape).compose([number], shape)
            is_named &= looked_up >= 0
            found.update(part.places(looked_up.maximum(0)))
        return Standing(found, is_named & (rest == 0))


def _named_twice(index: Index, first: Mapping[Key, int], second: Mapping[Key, int]) -> ViewError:
    names = {axis: axis.name or f"i{n}" for n, axis in enumerate(index.axes)} | {d: f"f{d}" for d in range(index.ndim)}
    where = [", ".join(f"{name} = {at.get(key, 0)}" for key, name in names.items()) for at in (first, second)]
    line = index.at({axis: first.get(axis, 0) for axis in index.axes})
    element = line.values()[tuple(first.get(d, 0) for d in range(index.ndim))]
    return ViewError(
        "an index that names an element twice has no inverse",
        given=f"{index}, which names element {element} at the positions {' and at '.join(where)}",
        expected="an index that names each element once at most",
    )


def _tabled(index: Index, keys: tuple[Key, ...]) -> Part:
    """The offsets of some keys together, by a table of all of it."""
    extents = tuple(map(index.extent, keys))
    own = tuple(table for table in index.tables if set(table.keys) <= set(keys))
    values = index.only(keys, own, 0).values_over(keys).reshape(-1)
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    twice = np.flatnonzero(ordered[1:] == ordered[:-1])
    if len(twice):
        places = (np.unravel_index(order[k], extents) for k in (twice[0], twice[0] + 1))
        raise _named_twice(index, *(dict(zip(keys, map(int, at), strict=True)) for at in places))
    least, reach = int(ordered[0]), int(ordered[-1] - ordered[0])
    step = common_divisor(ordered, least) or 1
    return Part(keys, extents, least, step, reach, listed=Listed((ordered - least) // step, order))


def inverted(index: Index) -> Inverse:
    """The inverse of an index; see `Index.inverse`."""
    if index.is_empty:
        return Inverse(index, 0, ())
    for key in set(range(index.ndim)).union(index.axes) - set(index.keys):
        if index.extent(key) > 1:
            raise _named_twice(index, {key: 0}, {key: 1})
    parts = [_tabled(index, keys) for keys in index.table_groups]
    tabled = {key for part in parts for key in part.keys}
    for key in (key for key in index.keys if key not in tabled):
        step, extent = index.digit(key)
        reach = step * (extent - 1)
        parts.append(Part((key,), (extent,), min(reach, 0), abs(step), abs(reach), step < 0))
    nested: list[Part] = []
    for part in sorted(parts, key=lambda part: part.step):
        while nested and part.step <= sum(below.reach for below in nested):
            keys = {*part.keys, *nested.pop().keys}
            part = _tabled(index, tuple(key for key in index.keys if key in keys))
        nested.append(part)
    return Inverse(index, index.offset + sum(part.least for part in nested), tuple(nested[::-1]))
