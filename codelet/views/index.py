"""Integer arrays that depend on grid symbols: what users index with, and the access maps of views.

An `Index` of shape `s` is a function: given a position along every grid axis it depends on, it is an
integer array of shape `s`. It is held as

    offset + sum(stride_k * position in dimension k) + sum(coefficient_a * position on axis a) + tables

where a table is an integer array over some of those dimensions and axes. Sums, products with numbers,
slices and (wherever the factors divide) `//`, `%` and reshapes stay affine; what does not becomes a
table, so the form is closed under every operation and evaluation is always exact.

As the expression `16*p + 3` an `Index` is what a user writes between brackets; as the `index` of a
tensor it maps a position in the view to a flat element of what is viewed. In the terms of polyhedral
compilers it is a quasi-affine access function with an explicit table where it is not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.core import Tracer
from numpy.lib.stride_tricks import as_strided

from codelet.errors import SymbolError, ViewError
from codelet.saving import Unchanging
from codelet.views.grids import Axis as Axis
from codelet.views.grids import Grid as Grid
from codelet.views.grids import Key as Key
from codelet.views.grids import common_axes
from codelet.views.grids import union_axes as union_axes
from codelet.views.index_text import index_text
from codelet.views.integer_operators import IntegerOperators
from codelet.views.integers import are_equal, combined, divides, narrowed
from codelet.views.operators import NoNumber, shown


class Table(NamedTuple):
    """A term `scale * values[positions along keys]` of an `Index`.

    `values` are int32 where all fit, as most do, else int64: tables are what a graph of irregular edges
    holds most of. So nothing may be added to them or multiplied with them that is not int64.
    """

    keys: tuple[Key, ...]
    values: np.ndarray
    scale: int

    def __deepcopy__(self, memo: dict[int, Any]) -> Table:
        return self


def _aligned(values: np.ndarray, keys: Sequence[Key], order: Sequence[Key]) -> np.ndarray:
    """`values`, whose axes are `keys`, with one axis for each of `order`, of extent 1 where absent."""
    position = {key: k for k, key in enumerate(keys)}
    present = [position[key] for key in order if key in position]
    arranged = values.transpose(present)
    extents = iter(arranged.shape)
    return arranged.reshape([next(extents) if key in position else 1 for key in order])


class Index(IntegerOperators, Unchanging):
    """An integer array of shape `shape` that depends on grid symbols; see the module's docstring.

    Invariants: `strides` has one entry per dimension; `symbols` is sorted by grid and axis; every table
    varies over existing dimensions, each at most once; no axis stands for another that is there too.
    Instances are never changed after they are made.

    A symbol that was written and cancels, as in `0 * i`, is idle: it is kept with a coefficient of zero, since
    a loop over it would add as many vertices. What a family holds has no idle symbols any more; its axes have.
    """

    __slots__ = ("offset", "shape", "strides", "symbols", "tables")

    def __init__(
        self,
        offset: int,
        shape: tuple[int, ...] = (),
        strides: tuple[int, ...] = (),
        symbols: tuple[tuple[Axis, int], ...] = (),
        tables: tuple[Table, ...] = (),
    ):
        self.offset = offset
        self.shape = shape
        self.strides = strides
        self.symbols = symbols
        self.tables = tables

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

    @property
    def keys(self) -> tuple[Key, ...]:
        """The axes and then the dimensions along which it varies: idle symbols are not among them."""
        tabled = {key for table in self.tables for key in table.keys}
        idle = {axis for axis, c in self.symbols if not c} - tabled
        dimensions = (d for d, n in enumerate(self.shape) if (self.strides[d] and n != 1) or d in tabled)
        return (*(axis for axis in self.axes if axis not in idle), *dimensions)

    def values_over(self, keys: Sequence[Key], dtype: Any = np.int64) -> np.ndarray:
        """Its values, with one array axis for each of `keys`, which must include all it varies over.

        `dtype` must hold the values themselves. What they are summed from need not fit: it is computed as
        int64 and cut to what is congruent to it, and then so is the sum. They are not to be written to:
        they may be those of a table.
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
            part = _aligned(table.values, table.keys, keys)
            as_is = table.scale == 1
            parts.append(part.astype(dtype, copy=False) if as_is else combined(np.multiply, part, table.scale, dtype))
        total = parts.pop(0) if parts else np.zeros([1] * len(keys), dtype)
        for part in sorted(parts, key=lambda part: part.size):
            total = combined(np.add, total, part, dtype)
        total = combined(np.add, total, self.offset, dtype) if self.offset else total
        return np.broadcast_to(total, [self.extent(key) for key in keys])

    def values(self, axes: Sequence[Axis] = ()) -> np.ndarray:
        """All its values: shape `(extents of axes..., *self.shape)`, int64; `axes` must cover its own."""
        return self.values_over((*axes, *range(self.ndim)))

    def blocks(self, axes: Sequence[Axis], limit: int = 1 << 22) -> Iterator[tuple[int, np.ndarray]]:
        """Its values for all positions of `axes`, in blocks of about `limit` elements.

        Yields the number of the block's first position, in row-major order, and an array of shape
        `(positions in the block, *self.shape)`.
        """
        per_position = max(1, self.size)
        count = math.prod(axis.extent for axis in axes)
        if not axes or count * per_position <= limit:
            if count:
                yield 0, self.values(axes).reshape(count, *self.shape)
            return
        first, rest = axes[0], axes[1:]
        inside = count // first.extent
        lifted = self.lifted([first])
        step = max(1, limit // (inside * per_position))
        for start in range(0, first.extent, step):
            part = lifted[start : start + step]
            if inside * per_position <= limit:
                # The lifted axis follows those of the rest: bring it to the front.
                moved = np.moveaxis(part.values(rest), len(rest), 0)
                yield start * inside, moved.reshape(len(moved) * inside, *self.shape)
            else:
                for number, block in part[0].blocks(rest, limit):
                    yield start * inside + number, block

    def bounds(self) -> tuple[int, int] | None:
        """The least and greatest value over all positions, exactly; None where there are no positions."""
        keys = self.keys
        if 0 in self.shape or any(axis.extent == 0 for axis in self.axes):
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
                ends = int(table.values.min()) * table.scale, int(table.values.max()) * table.scale
                low, high = low + min(ends), high + max(ends)
        for key in keys:
            reach = self.coefficient(key) * (self.extent(key) - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def strided_view(self, array: np.ndarray, keys: Sequence[Key]) -> np.ndarray:
        """The elements of a flat array that it names, with one axis for each of `keys`; it has no tables."""
        assert not self.tables
        extents = [self.extent(key) for key in keys]
        strides = [self.coefficient(key) * array.itemsize for key in keys]
        return as_strided(array[self.offset :], extents, strides)

    @property
    def is_one_to_one(self) -> bool:
        """Whether it has no tables, and each stride exceeds all that the smaller add up to: no two values agree."""
        reach = 0
        for stride, extent in sorted((abs(self.coefficient(key)), self.extent(key)) for key in self.keys):
            if stride <= reach:
                return False
            reach += stride * (extent - 1)
        return not self.tables

    def mentioning(self, axes: Sequence[Axis]) -> Index:
        """It as if the symbols of `axes` were written in it as well; those that are not in it are idle."""
        if not axes:
            return self
        own: set[Key] = {axis for axis, _ in self.symbols}
        own.update(key for table in self.tables for key in table.keys)
        missing = [axis for axis in axes if axis not in own]
        if not missing:
            return self
        symbols = _sorted_symbols({**dict(self.symbols), **dict.fromkeys(missing, 0)})
        noted = Index(self.offset, self.shape, self.strides, symbols, self.tables)
        return noted.over(common_axes(noted.axes)) if _is_combined(noted) else noted

    def without_idle_symbols(self) -> Index:
        """It with the symbols alone along which it varies."""
        kept = tuple((axis, c) for axis, c in self.symbols if c)
        if len(kept) == len(self.symbols):
            return self
        return Index(self.offset, self.shape, self.strides, kept, self.tables)

    def only(self, keys: Iterable[Key], tables: tuple[Table, ...], offset: int) -> Index:
        """The part of it made of `offset`, `tables` and the affine terms of `keys`."""
        wanted = set(keys)
        strides = tuple(s if d in wanted else 0 for d, s in enumerate(self.strides))
        symbols = tuple((axis, c) for axis, c in self.symbols if axis in wanted)
        return Index(offset, self.shape, strides, symbols, tables)

    # --- arithmetic -----------------------------------------------------------------------------------

    def broadcast_to(self, shape: tuple[int, ...]) -> Index:
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
        return Index(self.offset, shape, tuple(strides), self.symbols, tuple(tables))

    def with_trailing_ones(self, count: int) -> Index:
        """It with `count` more dimensions of extent 1 at the end."""
        shape, strides = (*self.shape, *[1] * count), (*self.strides, *[0] * count)
        return Index(self.offset, shape, strides, self.symbols, self.tables)

    def __add__(self, other: object) -> Index:
        added = as_index(other)
        if added is None:
            return self._no_operand("+", other)
        left, right = _paired(self, added)
        symbols = dict(left.symbols)
        for axis, coefficient in right.symbols:
            symbols[axis] = symbols.get(axis, 0) + coefficient
        tables = _merged_tables(left.tables, right.tables)
        if len(tables) < len(left.tables) + len(right.tables):
            _keep_symbols(symbols, left.tables, tables)
        return Index(
            left.offset + right.offset,
            left.shape,
            tuple(a + b for a, b in zip(left.strides, right.strides, strict=True)),
            _sorted_symbols(symbols),
            tables,
        )

    __radd__ = __add__

    def __neg__(self) -> Index:
        return self._scaled(-1)

    def __sub__(self, other: object) -> Index:
        subtracted = as_index(other)
        return self._no_operand("-", other) if subtracted is None else self + subtracted._scaled(-1)

    def __rsub__(self, other: object) -> Index:
        given = as_index(other)
        return self._no_operand("-", other) if given is None else self._scaled(-1) + given

    def _scaled(self, factor: int) -> Index:
        if factor == 0:
            return filled(0, self.shape).mentioning(self.axes)
        return Index(
            self.offset * factor,
            self.shape,
            tuple(s * factor for s in self.strides),
            tuple((axis, c * factor) for axis, c in self.symbols),
            tuple(Table(t.keys, t.values, t.scale * factor) for t in self.tables),
        )

    def __mul__(self, other: object) -> Index:
        factor = as_index(other)
        if factor is None:
            return self._no_operand("*", other)
        if factor.fixed is not None:
            return self._scaled(factor.fixed).mentioning(factor.axes)
        if self.fixed is not None:
            return factor._scaled(self.fixed).mentioning(self.axes)
        return self._elementwise(np.multiply, factor)

    __rmul__ = __mul__

    def _parts_by(self, modulus: int) -> tuple[Index, Index]:
        """Two indices that sum to it, the first a multiple of `modulus` everywhere."""
        whole = [key for key in self.keys if self.coefficient(key) % modulus == 0]
        rest = [key for key in self.keys if self.coefficient(key) % modulus]
        whole_tables = tuple(t for t in self.tables if divides(modulus // math.gcd(t.scale, modulus), t.values))
        rest_tables = tuple(t for t in self.tables if not any(t is w for w in whole_tables))
        quotient, remainder = divmod(self.offset, modulus)
        return self.only(whole, whole_tables, quotient * modulus), self.only(rest, rest_tables, remainder)

    def _exactly_divided(self, divisor: int) -> Index:
        tables = []
        for keys, values, scale in self.tables:
            common = math.gcd(scale, divisor)
            left = divisor // common  # it divides all values, since `divisor` divides all of values * scale
            divided = values if left == 1 else narrowed(values.astype(np.int64) // left)
            tables.append(Table(keys, divided, scale // common))
        return Index(
            self.offset // divisor,
            self.shape,
            tuple(s // divisor for s in self.strides),
            tuple((axis, c // divisor) for axis, c in self.symbols),
            tuple(tables),
        )

    def _divided(self, divisor: object, *, remainder: bool) -> Index:
        """`//` or `%`: the part that divides is divided, or vanishes; the rest is tabulated if it must."""
        number = as_index(divisor)
        if number is None and isinstance(divisor, NoNumber):
            return NotImplemented  # type: ignore[return-value]
        if number is None or number.fixed is None or number.fixed <= 0:
            raise SymbolError(
                "an index expression is divided by something other than a positive number",
                given=f"{self.text()} {'%' if remainder else '//'} {shown(divisor)}",
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
            result = rest + (-quotient * modulus) if remainder else filled(quotient, self.shape)
        else:
            keys = rest.keys
            fits = ends[0] >= -(2**31) and max(ends[1], modulus) < 2**31
            values = rest.values_over(keys, np.int32 if fits else np.int64)
            result = from_values(values % modulus if remainder else values // modulus, keys, self.shape)
        result = result if remainder else whole._exactly_divided(modulus) + result
        return result.mentioning((*self.axes, *number.axes))

    def __floordiv__(self, divisor: object) -> Index:
        return self._divided(divisor, remainder=False)

    def __mod__(self, divisor: object) -> Index:
        return self._divided(divisor, remainder=True)

    # --- element by element; the operators are of `IntegerOperators` ------------------------------------

    def _operand(self, other: object) -> Index | None:
        return as_index(other)

    def _elementwise(self, operation: np.ufunc, other: Index) -> Index:
        """What an operation on integers gives, tabulated over all that either varies over."""
        left, right = _paired(self, other)
        keys = _union_keys([left.keys, right.keys])
        values = operation(left.values_over(keys), right.values_over(keys))
        return from_values(values, keys, left.shape).mentioning((*left.axes, *right.axes))

    # --- views ----------------------------------------------------------------------------------------

    def __len__(self) -> int:
        if not self.shape:
            raise self._refuse("`len`", f"len({self.text()})")
        return self.shape[0]

    def __iter__(self) -> Iterator[Index]:
        return (self[k] for k in range(len(self)))

    def __getitem__(self, items: object) -> Any:
        """The index at some of its positions, by NumPy's rules of indexing.

        It is a `Ragged` where the number of positions depends on a symbol.
        """
        if self.is_strided:
            basic = take_basic(self, items)
            if basic is not None:
                return basic
        from codelet.views.indexing import take

        return take(self, items)

    def compose(self, inner: Sequence[Index], shape: tuple[int, ...]) -> Index:
        """`self[inner[0], inner[1], ...]` for one index of shape `shape` per dimension, all in bounds."""
        outer, *inner = on_common_axes([self, *inner])
        total = Index(outer.offset, shape, (0,) * len(shape), outer.symbols)
        for stride, index in zip(outer.strides, inner, strict=True):
            if stride:
                total = total + index._scaled(stride)
            elif index.symbols or index.tables:
                total = total.mentioning(index.axes)
        for table in outer.tables:
            total = total + _compose_table(table, inner, shape)
        return total

    def transpose(self, order: Sequence[int]) -> Index:
        """Its dimensions in another order."""
        place = {d: k for k, d in enumerate(order)}
        tables = tuple(
            Table(tuple(place[key] if isinstance(key, int) else key for key in t.keys), t.values, t.scale)
            for t in self.tables
        )
        shape, strides = tuple(self.shape[d] for d in order), tuple(self.strides[d] for d in order)
        return Index(self.offset, shape, strides, self.symbols, tables)

    def _coalesced(self) -> Index:
        """Neighbouring dimensions that tile one another merged, so that a reshape may split them anew."""
        tabled = {key for table in self.tables for key in table.keys}
        groups: list[list[int]] = []
        for d in range(self.ndim):
            previous = groups[-1][-1] if groups else None
            if (
                previous is not None
                and not {previous, d} & tabled
                and self.strides[previous] == self.strides[d] * self.shape[d]
            ):
                groups[-1].append(d)
            else:
                groups.append([d])
        place = {group[-1]: k for k, group in enumerate(groups)}
        tables = tuple(
            Table(tuple(place[key] if isinstance(key, int) else key for key in t.keys), t.values, t.scale)
            for t in self.tables
        )
        shape = tuple(math.prod(self.shape[d] for d in group) for group in groups)
        strides = tuple(self.strides[group[-1]] for group in groups)
        return Index(self.offset, shape, strides, self.symbols, tables)

    def reshape(self, shape: tuple[int, ...]) -> Index:
        """Its elements, in row-major order, in another shape of the same size."""
        if shape == self.shape:
            return self
        if 0 in shape:
            return filled(0, shape).mentioning(self.axes)
        merged = self._coalesced()
        flat = row_major(shape)
        inner = [
            flat // stride % extent
            for stride, extent in zip(row_major(merged.shape).strides, merged.shape, strict=True)
        ]
        return merged.compose(inner, shape)

    # --- grid axes ------------------------------------------------------------------------------------

    def rekeyed(self, names: dict[Key, Key], shape: tuple[int, ...]) -> Index:
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
        return Index(self.offset, shape, tuple(strides), _sorted_symbols(symbols), tables)

    def lifted(self, axes: Sequence[Axis]) -> Index:
        """It with the grid axes `axes` as leading dimensions instead."""
        names: dict[Key, Key] = {axis: k for k, axis in enumerate(axes)}
        names.update({d: d + len(axes) for d in range(self.ndim)})
        return self.rekeyed(names, (*(axis.extent for axis in axes), *self.shape))

    def bound(self, axes: Sequence[Axis]) -> Index:
        """The inverse of `lifted`: the leading dimensions become the grid axes `axes`."""
        names: dict[Key, Key] = dict(enumerate(axes))
        names.update({d: d - len(axes) for d in range(len(axes), self.ndim)})
        return self.rekeyed(names, self.shape[len(axes) :])

    def over(self, axes: Sequence[Axis]) -> Index:
        """It over axes that stand for all of its own; see `common_axes`."""
        moved = [axis for axis in self.axes if axis not in axes]
        if not moved:
            return self
        hosts = [next(axis for axis in axes if own in axis.ancestors) for own in moved]
        where = [from_values(h.ancestors[own], (h,), ()) for own, h in zip(moved, hosts, strict=True)]
        inner = [index.broadcast_to(self.shape) for index in where]
        inner += [Index(0, self.shape, tuple(int(k == d) for k in range(self.ndim))) for d in range(self.ndim)]
        return self.lifted(moved).compose(inner, self.shape)

    def at(self, positions: dict[Axis, int]) -> Index:
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
        return Index(offset, self.shape, self.strides, symbols, tuple(tables))

    def __repr__(self) -> str:
        return f"Index({self.text()})" if not self.shape else f"Index({self.text()}, shape={self.shape})"

    def text(self, names: dict[Axis, str] | None = None) -> str:
        """The expression in symbols and dimensions; `names` says what the symbols of grid axes are called."""
        return index_text(self, names)


def row_major(shape: tuple[int, ...]) -> Index:
    """The positions of an array of `shape`, numbered in row-major order."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    return Index(0, shape, tuple(strides))


def _is_combined(index: Index) -> bool:
    """Whether a combined axis is among those of an index."""
    return any(axis.ancestors for axis, _ in index.symbols) or any(
        isinstance(key, Axis) and key.ancestors for table in index.tables for key in table.keys
    )


def on_common_axes(indices: Sequence[Index]) -> list[Index]:
    """The same indices, those of them that share symbols over the combined axis of these."""
    if not any(map(_is_combined, indices)):
        return list(indices)
    common = common_axes(axis for index in indices for axis in index.axes)
    return [index.over(common) for index in indices]


def _paired(left: Index, right: Index) -> tuple[Index, Index]:
    """Two indices over common axes, of one shape."""
    if (left.symbols or left.tables) and (right.symbols or right.tables):
        left, right = on_common_axes([left, right])
    shape = broadcast_shapes(left.shape, right.shape)
    return left.broadcast_to(shape), right.broadcast_to(shape)


def _union_keys(groups: Sequence[Sequence[Key]]) -> tuple[Key, ...]:
    axes = union_axes([[key for key in group if isinstance(key, Axis)] for group in groups])
    dimensions = sorted({key for group in groups for key in group if isinstance(key, int)})
    return (*axes, *dimensions)


def _sorted_symbols(symbols: dict[Axis, int]) -> tuple[tuple[Axis, int], ...]:
    return tuple(sorted(symbols.items(), key=lambda item: item[0].sort_key))


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


def filled(value: int, shape: tuple[int, ...]) -> Index:
    """The index of `shape` that is `value` everywhere."""
    return Index(value, shape, (0,) * len(shape))


def from_values(values: np.ndarray, keys: tuple[Key, ...], shape: tuple[int, ...]) -> Index:
    """The index of `shape` with the given values along `keys`, and constant along everything else."""
    if not keys:
        return filled(int(values), shape)
    values = np.ascontiguousarray(narrowed(values))
    values.flags.writeable = False
    return Index(0, shape, (0,) * len(shape), (), (Table(keys, values, 1),))


def as_index(value: object) -> Index | None:
    """A number, an integer array or an index as an `Index`; None when it is none of these."""
    if isinstance(value, Index):
        return value
    if isinstance(value, (bool, np.bool_, NoNumber, Tracer)):
        return None
    if isinstance(value, (int, np.integer)):
        return Index(int(value))
    if isinstance(value, (np.ndarray, list, tuple)) or hasattr(value, "__array__"):
        array = np.asarray(value)
        if array.size == 0:
            array = array.astype(np.int64)
        if np.issubdtype(array.dtype, np.integer):
            held = narrowed(array)
            held = held.copy() if np.may_share_memory(held, array) else held  # the user may write to theirs
            return from_values(held, tuple(range(array.ndim)), array.shape)
    return None


def broadcast_shapes(a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    if a == b:
        return a
    try:
        return np.broadcast_shapes(a, b)
    except ValueError:
        raise ViewError("the shapes of two index arrays do not fit together", given=f"{a} and {b}") from None


# --- composing ------------------------------------------------------------------------------------------


def take_basic(index: Index, items: object) -> Index | None:
    """Indexing of a strided index by plain numbers and slices; None when it is anything else.

    Graphs of single vertices are built of little else: it is written to be fast.
    """
    if type(items) is not tuple:
        items = (items,)
    shape, strides, offset = index.shape, index.strides, index.offset
    if len(items) > len(shape):
        return None
    kept_shape: list[int] = []
    kept_strides: list[int] = []
    d = 0
    for item in items:
        extent = shape[d]
        if type(item) is int:
            if item < 0:
                item += extent
            if not 0 <= item < extent:
                return None
            offset += item * strides[d]
        elif type(item) is slice:
            start, stop, step = item.start, item.stop, item.step
            if step is not None or type(start) is not int or type(stop) is not int or not 0 <= start < stop <= extent:
                try:
                    start, stop, step = item.indices(extent)
                except (TypeError, ValueError, SymbolError):
                    return None
                length = len(range(start, stop, step))
                start = start if length else 0
                kept_shape.append(length)
                kept_strides.append(step * strides[d])
            else:
                kept_shape.append(stop - start)
                kept_strides.append(strides[d])
            offset += start * strides[d]
        else:
            return None
        d += 1
    return Index(offset, (*kept_shape, *shape[d:]), (*kept_strides, *strides[d:]))


def _compose_table(table: Table, inner: Sequence[Index], shape: tuple[int, ...]) -> Index:
    """A table read at computed positions."""
    parts = [inner[key] if isinstance(key, int) else Index(0, (), (), ((key, 1),)) for key in table.keys]
    renamed = _renamed_table(table, parts)
    if renamed is None:
        keys = _union_keys([part.keys for part in parts])
        where = tuple(_aligned(part.values_over(part.keys), part.keys, keys) for part in parts)
        values = np.broadcast_to(table.values[where], np.broadcast_shapes(*(w.shape for w in where)))
        return from_values(values, keys, shape)._scaled(table.scale)
    if not renamed.keys:
        return filled(int(renamed.values) * renamed.scale, shape)
    return Index(0, shape, (0,) * len(shape), (), (renamed,))


def _renamed_table(table: Table, parts: Sequence[Index]) -> Table | None:
    """The table sliced and renamed, without a copy, when each position is affine in a key of its own."""
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
