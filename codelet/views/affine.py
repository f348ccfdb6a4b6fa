"""Affine maps: integer arrays that depend on grid symbols, as data.

An `AffineMap` of shape `s` is a function: given a position along every grid axis it depends on, it is an integer array
of shape `s`. It is stored as

    offset + sum(stride_k * position in dimension k) + sum(coefficient_a * position on axis a) + tables

where a table is an integer array over some of those dimensions and axes. Arithmetic on maps (`arithmetic.py`) stays
affine wherever the factors divide; other results become a table, so the form is closed under every operation and
evaluation is always exact. In the terms of polyhedral compilers it is a quasi-affine access function with an explicit
table where it is not.

Operations on a map return its class: `Index`, which users see, has all that stands in the classes below it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.lib.stride_tricks import as_strided

from codelet.errors import ViewError
from codelet.saving import Unchanging
from codelet.views.digits import Digit, are_nested, ends
from codelet.views.grids import Axis, Key
from codelet.views.integers import combined, integer_dtype, narrowed, unwritable
from codelet.views.operators import NoNumber
from codelet.views.rows import Rows


class Table(NamedTuple):
    """A term `scale * values[positions along keys]` of an `Index`.

    `values` are int32 where all fit, as most do, else int64: tables are most of the memory of a graph of irregular
    edges. So nothing may be added to them or multiplied with them that is not int64.
    """

    keys: tuple[Key, ...]
    values: np.ndarray
    scale: int

    def __deepcopy__(self, memo: dict[int, Any]) -> Table:
        return self


def aligned(values: np.ndarray, keys: Sequence[Key], order: Sequence[Key]) -> np.ndarray:
    """`values`, whose axes are `keys`, with one axis for each of `order`, of extent 1 where absent."""
    position = {key: k for k, key in enumerate(keys)}
    present = [position[key] for key in order if key in position]
    arranged = values.transpose(present)
    extents = iter(arranged.shape)
    return arranged.reshape([next(extents) if key in position else 1 for key in order])


def sorted_symbols(symbols: dict[Axis, int]) -> tuple[tuple[Axis, int], ...]:
    return tuple(sorted(symbols.items(), key=lambda item: item[0].sort_key))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AffineMap(NoNumber, Unchanging):
    """An integer array of shape `shape` that depends on grid symbols; see the module's docstring.

    Invariants: `strides` has one entry per dimension; `symbols` is sorted by grid and axis; every table
    varies over existing dimensions, each at most once; no axis stands for another that is there too.

    A symbol that was written and cancels, as in `0 * i`, is idle: it is kept with a coefficient of zero, since a loop
    over it would add as many vertices. A map in a family has no idle symbols any more; its axes have.
    """

    offset: int
    shape: tuple[int, ...] = ()
    strides: tuple[int, ...] = ()
    symbols: tuple[tuple[Axis, int], ...] = ()
    tables: tuple[Table, ...] = ()

    # --- made of nothing ------------------------------------------------------------------------------

    @classmethod
    def filled(cls, value: int, shape: tuple[int, ...]) -> Self:
        """The one of `shape` that is `value` everywhere."""
        return cls(value, shape, (0,) * len(shape))

    @classmethod
    def from_values(cls, values: np.ndarray, keys: tuple[Key, ...], shape: tuple[int, ...]) -> Self:
        """The one of `shape` with the given values along `keys`, and constant along everything else."""
        if not keys:
            return cls.filled(int(values), shape)
        values = unwritable(np.ascontiguousarray(narrowed(values)))
        return cls(0, shape, (0,) * len(shape), (), (Table(keys, values, 1),))

    @classmethod
    def stretched(cls, starts: np.ndarray, step: int, rows: Rows) -> Self:
        """`start + step * place in the row` at every element, for a start for each row: of shape (total,)."""
        if not rows.total:
            return cls.filled(0, (0,))
        first, least, most = None, 0, 0
        for own in rows.blocks():
            shift = (starts[own.first : own.first + len(own.lengths)] - step * own.offsets)[own.lengths > 0]
            if len(shift):
                first = int(shift[0]) if first is None else first
                least, most = min(least, int(shift.min()) - first), max(most, int(shift.max()) - first)
        assert first is not None
        if not least and not most:
            return cls(first, (rows.total,), (step,))
        moved = np.empty(rows.total, integer_dtype(least, most))
        for own in rows.blocks():
            shift = starts[own.first : own.first + len(own.lengths)] - step * own.offsets - first
            moved[own.elements] = np.repeat(shift, own.lengths)
        return cls(first, (rows.total,), (step,), (), (Table((0,), unwritable(moved), 1),))

    # --- what it is -----------------------------------------------------------------------------------

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """The number of elements at each position of the grid."""
        return math.prod(self.shape)

    @property
    def is_empty(self) -> bool:
        """Whether there are no positions."""
        return 0 in self.shape or any(axis.extent == 0 for axis in self.axes)

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The grid axes of all symbols written in it, idle ones too, in the order in which they were made."""
        found = {axis for axis, _ in self.symbols}
        for table in self.tables:
            found.update(key for key in table.keys if isinstance(key, Axis))
        return tuple(sorted(found, key=lambda axis: axis.sort_key))

    @property
    def constant(self) -> int | None:
        """Its value when it is one number, written without symbols, else None."""
        return self.offset if not (self.shape or self.symbols or self.tables) else None

    @property
    def fixed(self) -> int | None:
        """Its value when it is one number at all positions of the grid, whatever was written, else None."""
        return self.offset if not (self.shape or self.tables or any(c for _, c in self.symbols)) else None

    @property
    def is_strided(self) -> bool:
        """Whether it is an offset with strides: no symbols, no tables."""
        return not self.symbols and not self.tables

    def extent(self, key: Key) -> int:
        """The number of positions along a dimension or axis."""
        return self.shape[key] if isinstance(key, int) else key.extent

    def coefficient(self, key: Key) -> int:
        """The affine coefficient of a dimension or axis."""
        if isinstance(key, int):
            return self.strides[key]
        return dict(self.symbols).get(key, 0)

    def digit(self, key: Key) -> Digit:
        """The terms by which it depends on a dimension or axis, without tables."""
        return Digit(self.coefficient(key), self.extent(key))

    @property
    def keys(self) -> tuple[Key, ...]:
        """The axes and then the dimensions along which it varies: idle symbols are not among them."""
        tabled = {key for table in self.tables for key in table.keys}
        idle = {axis for axis, c in self.symbols if not c} - tabled
        dimensions = (d for d, n in enumerate(self.shape) if (self.strides[d] and n != 1) or d in tabled)
        return (*(axis for axis in self.axes if axis not in idle), *dimensions)

    @property
    def table_groups(self) -> list[tuple[Key, ...]]:
        """The keys of tables, those of tables that share a key together."""
        groups: list[set[Key]] = []
        for table in self.tables:
            keys = set(table.keys)
            for group in [group for group in groups if group & keys]:
                groups.remove(group)
                keys |= group
            groups.append(keys)
        return [tuple(key for key in self.keys if key in group) for group in groups]

    def values_over(self, keys: Sequence[Key], dtype: Any = np.int64) -> np.ndarray:
        """Its values, with one array axis for each of `keys`, which must include all it varies over.

        `dtype` must hold the values themselves. The summands need not fit: they are computed as int64 and cut to
        congruent numbers, and then so is the sum. They are not to be written to: they may be those of a table.
        """
        parts: list[np.ndarray] = []
        for place, key in enumerate(keys):
            coefficient = self.coefficient(key)
            if coefficient:
                steps = np.arange(self.extent(key), dtype=np.int64)
                np.multiply(steps, coefficient, out=steps)
                parts.append(
                    steps.astype(dtype, copy=False).reshape([-1 if k == place else 1 for k in range(len(keys))])
                )
        for table in self.tables:
            part = aligned(table.values, table.keys, keys)
            as_is = table.scale == 1
            parts.append(part.astype(dtype, copy=False) if as_is else combined(np.multiply, part, table.scale, dtype))
        total = parts.pop(0) if parts else np.zeros([1] * len(keys), dtype)
        for part in sorted(parts, key=lambda part: part.size):
            total = combined(np.add, total, part, dtype)
        total = combined(np.add, total, self.offset, dtype) if self.offset else total
        return np.broadcast_to(total, [self.extent(key) for key in keys])

    def values(self, axes: Sequence[Axis] = ()) -> np.ndarray:
        """All its values: shape `(extents of axes..., *self.shape)`, int64; `axes` must cover those of the map."""
        return self.values_over((*axes, *range(self.ndim)))

    def bounds(self) -> tuple[int, int] | None:
        """The least and greatest value over all positions, exactly; None where there are no positions."""
        keys = self.keys
        if self.is_empty:
            return None
        low = high = self.offset
        tabled = [key for table in self.tables for key in table.keys]
        if len(set(tabled)) < len(tabled) or any(self.coefficient(key) for key in tabled):
            # Terms that share an axis do not reach their extremes together: look at the sum itself.
            together = dict.fromkeys(tabled)
            part = self.only(together, self.tables, 0).values_over(tuple(together))
            low, high = low + int(part.min()), high + int(part.max())
            keys = tuple(key for key in keys if key not in together)
        else:
            for table in self.tables:
                reached = int(table.values.min()) * table.scale, int(table.values.max()) * table.scale
                low, high = low + min(reached), high + max(reached)
        least, most = ends(map(self.digit, keys))
        return low + least, high + most

    def strided_view(self, array: np.ndarray, keys: Sequence[Key]) -> np.ndarray:
        """The elements of a flat array that it names, with one axis for each of `keys`; it has no tables."""
        assert not self.tables
        extents = [self.extent(key) for key in keys]
        strides = [self.coefficient(key) * array.itemsize for key in keys]
        # What NumPy does not know itself (float8, bfloat16, int4) need not have a name by which memory is described.
        raw = array if array.dtype.isbuiltin == 1 else array.view(np.dtype((np.void, array.itemsize)))
        return as_strided(raw[self.offset :], extents, strides).view(array.dtype)

    @property
    def is_one_to_one(self) -> bool:
        """Whether it has no tables, and its digits are nested: then no two values agree."""
        return not self.tables and are_nested(map(self.digit, self.keys))

    # --- parts of it -----------------------------------------------------------------------------------

    def without_idle_symbols(self) -> Self:
        """It with the symbols alone along which it varies."""
        kept = tuple((axis, c) for axis, c in self.symbols if c)
        if len(kept) == len(self.symbols):
            return self
        return type(self)(self.offset, self.shape, self.strides, kept, self.tables)

    def only(self, keys: Iterable[Key], tables: tuple[Table, ...], offset: int) -> Self:
        """The part of it made of `offset`, `tables` and the affine terms of `keys`."""
        wanted = set(keys)
        strides = tuple(s if d in wanted else 0 for d, s in enumerate(self.strides))
        symbols = tuple((axis, c) for axis, c in self.symbols if axis in wanted)
        return type(self)(offset, self.shape, strides, symbols, tables)

    def at(self, positions: dict[Axis, int]) -> Self:
        """It at fixed positions along some grid axes."""
        offset = self.offset + sum(c * positions[axis] for axis, c in self.symbols if axis in positions)
        symbols = tuple((axis, c) for axis, c in self.symbols if axis not in positions)
        tables = []
        for table in self.tables:
            where = tuple(slice(None) if isinstance(k, int) or k not in positions else positions[k] for k in table.keys)
            keys = tuple(k for k in table.keys if isinstance(k, int) or k not in positions)
            values = table.values[where]
            if keys:
                tables.append(Table(keys, values, table.scale))
            else:
                offset += int(values) * table.scale
        return type(self)(offset, self.shape, self.strides, symbols, tuple(tables))

    # --- its dimensions and axes --------------------------------------------------------------------------

    def broadcast_to(self, shape: tuple[int, ...]) -> Self:
        """The same values repeated over `shape`, by NumPy's rules."""
        if shape == self.shape:
            return self
        if np.broadcast_shapes(shape, self.shape) != shape:
            raise ViewError("a shape cannot be broadcast", given=self.shape, expected=f"a shape that fits {shape}")
        lead = len(shape) - self.ndim
        kept = [d for d in range(self.ndim) if self.shape[d] == shape[lead + d]]
        strides = [0] * len(shape)
        for d in kept:
            strides[lead + d] = self.strides[d]
        tables = []
        for table in self.tables:
            dropped = tuple(k for k, key in enumerate(table.keys) if isinstance(key, int) and key not in kept)
            keys = [key for k, key in enumerate(table.keys) if k not in dropped]
            renamed = tuple(key + lead if isinstance(key, int) else key for key in keys)
            tables.append(Table(renamed, table.values.squeeze(dropped) if dropped else table.values, table.scale))
        return type(self)(self.offset, shape, tuple(strides), self.symbols, tuple(tables))

    def with_trailing_ones(self, count: int) -> Self:
        """It with `count` more dimensions of extent 1 at the end."""
        shape, strides = (*self.shape, *[1] * count), (*self.strides, *[0] * count)
        return type(self)(self.offset, shape, strides, self.symbols, self.tables)

    def transpose(self, order: Sequence[int]) -> Self:
        """Its dimensions in another order."""
        place = {d: k for k, d in enumerate(order)}
        tables = tuple(
            Table(tuple(place[key] if isinstance(key, int) else key for key in t.keys), t.values, t.scale)
            for t in self.tables
        )
        shape, strides = tuple(self.shape[d] for d in order), tuple(self.strides[d] for d in order)
        return type(self)(self.offset, shape, strides, self.symbols, tables)

    def rekeyed(self, names: dict[Key, Key], shape: tuple[int, ...]) -> Self:
        """It with its dimensions and axes renamed: those not in `names` keep theirs. Extents must agree."""
        strides = [0] * len(shape)
        symbols: dict[Axis, int] = {}
        for key in (*range(self.ndim), *(axis for axis, _ in self.symbols)):
            target, coefficient = names.get(key, key), self.coefficient(key)
            if isinstance(target, int):
                strides[target] += coefficient
            elif coefficient or not isinstance(key, int):
                symbols[target] = symbols.get(target, 0) + coefficient
        tables = tuple(Table(tuple(names.get(k, k) for k in t.keys), t.values, t.scale) for t in self.tables)
        return type(self)(self.offset, shape, tuple(strides), sorted_symbols(symbols), tables)

    def lifted(self, axes: Sequence[Axis]) -> Self:
        """It with the grid axes `axes` as leading dimensions instead."""
        names: dict[Key, Key] = {axis: k for k, axis in enumerate(axes)}
        names.update({d: d + len(axes) for d in range(self.ndim)})
        return self.rekeyed(names, (*(axis.extent for axis in axes), *self.shape))

    def bound(self, axes: Sequence[Axis]) -> Self:
        """The inverse of `lifted`: the leading dimensions become the grid axes `axes`."""
        names: dict[Key, Key] = dict(enumerate(axes))
        names.update({d: d - len(axes) for d in range(len(axes), self.ndim)})
        return self.rekeyed(names, self.shape[len(axes) :])


def is_combined(index: AffineMap) -> bool:
    """Whether a combined axis is among those of an index."""
    return any(axis.ancestors for axis, _ in index.symbols) or any(
        isinstance(key, Axis) and key.ancestors for table in index.tables for key in table.keys
    )
