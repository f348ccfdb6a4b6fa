"""Arithmetic of affine maps: sums, products, quotients, composition, reshapes.

Sums, products with numbers and (wherever the factors divide) `//`, `%` and reshapes stay affine; other results are
tabulated, over no more than they vary over.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self, TypeVar

import numpy as np

from codelet.errors import SymbolError, ViewError
from codelet.views.affine import AffineMap, Table, aligned, is_combined, sorted_symbols
from codelet.views.digits import chains, row_major_strides
from codelet.views.grids import Axis, Key, common_axes, union_axes
from codelet.views.index_text import index_text
from codelet.views.integers import are_equal, divides, narrowed
from codelet.views.operators import NoNumber, shown
from codelet.views.rows import Rows


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if a == b:
        return a
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ViewError("the shapes of two index arrays do not fit together", given=f"{a} and {b}") from None


def _union_keys(groups: Sequence[Sequence[Key]]) -> tuple[Key, ...]:
    axes = union_axes([[key for key in group if isinstance(key, Axis)] for group in groups])
    dimensions = sorted({key for group in groups for key in group if isinstance(key, int)})
    return (*axes, *dimensions)


def _keep_symbols(symbols: dict[Axis, int], tables: tuple[Table, ...], left: tuple[Table, ...]) -> None:
    """Note the axes of tables that cancelled as those of idle symbols."""
    kept = {key for table in left for key in table.keys}
    for key in (key for table in tables for key in table.keys if key not in kept):
        if isinstance(key, Axis):
            symbols.setdefault(key, 0)


def _merged_tables(tables: tuple[Table, ...], more: tuple[Table, ...]) -> tuple[Table, ...]:
    """All tables of two sums, those of one that equal one of the other summed, so that `t[i] + 4 - t[i]` is 4."""
    merged = list(tables)
    for table in more:
        for k, other in enumerate(tables):
            if table.keys == other.keys and are_equal(table.values, other.values):
                merged[k] = Table(other.keys, other.values, merged[k].scale + table.scale)
                break
        else:
            merged.append(table)
    return tuple(table for table in merged if table.scale)


def _renamed_table(table: Table, parts: Sequence[AffineMap]) -> Table | None:
    """The table sliced and renamed, without a copy, when each position is affine in a separate key."""
    where: list[int | slice] = []
    keys: list[Key] = []
    for extent, part in zip(table.values.shape, parts, strict=True):
        if part.tables or len(part.keys) > 1:
            return None
        if not part.keys:
            where.append(part.offset)
            continue
        key = part.keys[0]
        step, length = part.coefficient(key), part.extent(key)
        if key in keys:
            return None
        stop = part.offset + step * length
        where.append(slice(part.offset, stop if 0 <= stop <= extent or step > 0 else None, step))
        keys.append(key)
    return Table(tuple(keys), table.values[tuple(where)], table.scale)


class Arithmetic(AffineMap):
    """Arithmetic on maps: each result is a map of the same class."""

    __slots__ = ()

    # --- operands -------------------------------------------------------------------------------------

    @classmethod
    def operand(cls, other: object) -> Self | None:
        """A value as a map of this class; None if it is no integer."""
        raise NotImplementedError

    def _no_operand(self, symbol: str, other: object) -> Any:
        """The result of an operator on something that is no
        integer: an error, unless the other side words one.
        """
        raise NotImplementedError

    def __add__(self, other: object) -> Self:
        added = self.operand(other)
        if added is None:
            return self._no_operand("+", other)
        left, right = _paired(self, added)
        symbols = dict(left.symbols)
        for axis, coefficient in right.symbols:
            symbols[axis] = symbols.get(axis, 0) + coefficient
        tables = _merged_tables(left.tables, right.tables)
        if len(tables) < len(left.tables) + len(right.tables):
            _keep_symbols(symbols, left.tables, tables)
        return type(self)(
            left.offset + right.offset,
            left.shape,
            tuple(a + b for a, b in zip(left.strides, right.strides, strict=True)),
            sorted_symbols(symbols),
            tables,
        )

    __radd__ = __add__

    def __neg__(self) -> Self:
        return self._scaled(-1)

    def __sub__(self, other: object) -> Self:
        subtracted = self.operand(other)
        return self._no_operand("-", other) if subtracted is None else self + subtracted._scaled(-1)

    def __rsub__(self, other: object) -> Self:
        given = self.operand(other)
        return self._no_operand("-", other) if given is None else self._scaled(-1) + given

    def _scaled(self, factor: int) -> Self:
        if factor == 0:
            return self.filled(0, self.shape).mentioning(self.axes)
        return type(self)(
            self.offset * factor,
            self.shape,
            tuple(s * factor for s in self.strides),
            tuple((axis, c * factor) for axis, c in self.symbols),
            tuple(Table(t.keys, t.values, t.scale * factor) for t in self.tables),
        )

    def __mul__(self, other: object) -> Self:
        factor = self.operand(other)
        if factor is None:
            return self._no_operand("*", other)
        if factor.fixed is not None:
            return self._scaled(factor.fixed).mentioning(factor.axes)
        if self.fixed is not None:
            return factor._scaled(self.fixed).mentioning(self.axes)
        return self._elementwise(np.multiply, factor)

    __rmul__ = __mul__

    def _parts_by(self, modulus: int) -> tuple[Self, Self]:
        """Two indices that sum to it, the first a multiple of `modulus` everywhere."""
        whole = [key for key in self.keys if self.coefficient(key) % modulus == 0]
        rest = [key for key in self.keys if self.coefficient(key) % modulus]
        whole_tables = tuple(t for t in self.tables if divides(modulus // math.gcd(t.scale, modulus), t.values))
        rest_tables = tuple(t for t in self.tables if not any(t is w for w in whole_tables))
        quotient, remainder = divmod(self.offset, modulus)
        return self.only(whole, whole_tables, quotient * modulus), self.only(rest, rest_tables, remainder)

    def _exactly_divided(self, divisor: int) -> Self:
        tables = []
        for keys, values, scale in self.tables:
            common = math.gcd(scale, divisor)
            left = divisor // common  # it divides all values, since `divisor` divides all of values * scale
            divided = values if left == 1 else narrowed(values.astype(np.int64) // left)
            tables.append(Table(keys, divided, scale // common))
        return type(self)(
            self.offset // divisor,
            self.shape,
            tuple(s // divisor for s in self.strides),
            tuple((axis, c // divisor) for axis, c in self.symbols),
            tuple(tables),
        )

    def _divided(self, divisor: object, *, remainder: bool) -> Self:
        """`//` or `%`: the part that divides is divided, or vanishes; the rest is tabulated if it must."""
        number = self.operand(divisor)
        if number is None and isinstance(divisor, NoNumber):
            return NotImplemented  # type: ignore[return-value]
        if number is None or number.fixed is None or number.fixed <= 0:
            raise SymbolError(
                "an index expression is divided by something other than a positive number",
                given=f"{index_text(self)} {'%' if remainder else '//'} {shown(divisor)}",
                expected="a positive integer to the right of // or %",
            )
        modulus = number.fixed
        whole, rest = self._parts_by(modulus)
        for grain in sorted({math.gcd(rest.coefficient(key), modulus) for key in rest.keys} - {0, 1, modulus})[::-1]:
            # What is less than a grain neither carries nor is divided: it need not be tabulated with the rest.
            coarse, fine = rest._parts_by(grain)
            ends = fine.bounds() or (0, 0)
            if coarse.keys and fine.keys and ends[0] >= 0 and ends[1] < grain:
                divided = (whole + coarse)._exactly_divided(grain)._divided(modulus // grain, remainder=remainder)
                return divided._scaled(grain) + fine if remainder else divided
        ends = rest.bounds() or (0, 0)
        quotient = ends[0] // modulus
        if ends[1] // modulus == quotient:
            result = rest + (-quotient * modulus) if remainder else self.filled(quotient, self.shape)
        else:
            keys = rest.keys
            fits = ends[0] >= -(2**31) and max(ends[1], modulus) < 2**31
            values = rest.values_over(keys, np.int32 if fits else np.int64)
            result = self.from_values(values % modulus if remainder else values // modulus, keys, self.shape)
        result = result if remainder else whole._exactly_divided(modulus) + result
        return result.mentioning((*self.axes, *number.axes))

    def __floordiv__(self, divisor: object) -> Self:
        return self._divided(divisor, remainder=False)

    def __mod__(self, divisor: object) -> Self:
        return self._divided(divisor, remainder=True)

    def _elementwise(self, operation: np.ufunc, other: Self) -> Self:
        """The result of an operation on integers, tabulated over all that either varies over."""
        left, right = _paired(self, other)
        keys = _union_keys([left.keys, right.keys])
        values = operation(left.values_over(keys), right.values_over(keys))
        return self.from_values(values, keys, left.shape).mentioning((*left.axes, *right.axes))

    def mentioning(self, axes: Sequence[Axis]) -> Self:
        """It as if the symbols of `axes` were written in it as well; those that are not in it are idle."""
        if not axes:
            return self
        own: set[Key] = {axis for axis, _ in self.symbols}
        own.update(key for table in self.tables for key in table.keys)
        missing = [axis for axis in axes if axis not in own]
        if not missing:
            return self
        symbols = sorted_symbols({**dict(self.symbols), **dict.fromkeys(missing, 0)})
        noted = type(self)(self.offset, self.shape, self.strides, symbols, self.tables)
        return noted.over(common_axes(noted.axes)) if is_combined(noted) else noted

    def over(self, axes: Sequence[Axis]) -> Self:
        """It over axes that stand for all of its axes; see `common_axes`."""
        moved = [axis for axis in self.axes if axis not in axes]
        if not moved:
            return self
        hosts = [next(axis for axis in axes if own in axis.ancestors) for own in moved]
        where = [self.from_values(h.ancestors[own], (h,), ()) for own, h in zip(moved, hosts, strict=True)]
        inner = [index.broadcast_to(self.shape) for index in where]
        inner += [type(self)(0, self.shape, tuple(int(k == d) for k in range(self.ndim))) for d in range(self.ndim)]
        return self.lifted(moved).compose(inner, self.shape)

    def compose(self, inner: Sequence[Self], shape: tuple[int, ...]) -> Self:
        """`self[inner[0], inner[1], ...]` for one index of shape `shape` per dimension, all in bounds."""
        outer, *inner = on_common_axes([self, *inner])
        total = type(self)(outer.offset, shape, (0,) * len(shape), outer.symbols)
        for stride, index in zip(outer.strides, inner, strict=True):
            if stride:
                total = total + index._scaled(stride)
            elif index.symbols or index.tables:
                total = total.mentioning(index.axes)
        for table in outer.tables:
            total = total + self._table_at(table, inner, shape)
        return total

    def _table_at(self, table: Table, inner: Sequence[Self], shape: tuple[int, ...]) -> Self:
        """A table read at computed positions."""
        parts = [inner[key] if isinstance(key, int) else type(self)(0, (), (), ((key, 1),)) for key in table.keys]
        renamed = _renamed_table(table, parts)
        if renamed is None:
            keys = _union_keys([part.keys for part in parts])
            where = tuple(aligned(part.values_over(part.keys), part.keys, keys) for part in parts)
            values = np.broadcast_to(table.values[where], np.broadcast_shapes(*(w.shape for w in where)))
            return self.from_values(values, keys, shape)._scaled(table.scale)
        if not renamed.keys:
            return self.filled(int(renamed.values) * renamed.scale, shape)
        return type(self)(0, shape, (0,) * len(shape), (), (renamed,))

    def unravelled(self, shape: Sequence[int]) -> list[Self]:
        """The position along each dimension of an array, of elements that it numbers in row-major order."""
        return [self // stride % extent for stride, extent in zip(row_major_strides(shape), shape, strict=True)]

    def _coalesced(self) -> Self:
        """Neighbouring dimensions that tile one another merged, so that a reshape may split them anew."""
        tabled = {key for table in self.tables for key in table.keys}
        groups = chains(
            range(self.ndim),
            lambda outer, d: not {*outer, d} & tabled and self.strides[outer[-1]] == self.strides[d] * self.shape[d],
        )
        place = {group[-1]: k for k, group in enumerate(groups)}
        tables = tuple(
            Table(tuple(place[key] if isinstance(key, int) else key for key in t.keys), t.values, t.scale)
            for t in self.tables
        )
        shape = tuple(math.prod(self.shape[d] for d in group) for group in groups)
        strides = tuple(self.strides[group[-1]] for group in groups)
        return type(self)(self.offset, shape, strides, self.symbols, tables)

    def reshape(self, shape: tuple[int, ...]) -> Self:
        """Its elements, in row-major order, in another shape of the same size."""
        if shape == self.shape:
            return self
        if 0 in shape:
            return self.filled(0, shape).mentioning(self.axes)
        return self.take_flat(type(self)(0, shape, row_major_strides(shape)))

    def take_flat(self, positions: Self) -> Self:
        """Its elements at flat positions, those in row-major order."""
        merged = self._coalesced()
        if merged.shape == (self.size,) and merged.strides == (1,) and not (merged.symbols or merged.tables):
            return positions + merged.offset if merged.offset else positions
        return merged.compose(positions.unravelled(merged.shape), positions.shape)

    def spread(self, rows: Rows) -> Self:
        """A map of shape () that may depend on the axes of rows, at every element: of shape (total,), without them."""
        own = [axis for axis in self.axes if axis in rows.axes]
        if not own:
            return self.broadcast_to((rows.total,))
        where = [self.from_values(rows.position(axis), (0,), (rows.total,)) for axis in own]
        return self.lifted(own).compose(where, (rows.total,))


Map = TypeVar("Map", bound=Arithmetic)


def on_common_axes(indices: Sequence[Map]) -> list[Map]:
    """The same indices, those of them that share symbols over the combined axis of these."""
    if not any(map(is_combined, indices)):
        return list(indices)
    common = common_axes(axis for index in indices for axis in index.axes)
    return [index.over(common) for index in indices]


def _paired(left: Map, right: Map) -> tuple[Map, Map]:
    """Two indices over common axes, of one shape."""
    if (left.symbols or left.tables) and (right.symbols or right.tables):
        left, right = on_common_axes([left, right])
    shape = broadcast_shapes(left.shape, right.shape)
    return left.broadcast_to(shape), right.broadcast_to(shape)
