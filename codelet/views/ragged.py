"""Ragged dimensions: those whose length depends on the vertex.

A field that holds the messages a node receives has as many elements as the node has neighbours. All
vertices' elements stand one after another in one flat dimension, as in a sparse matrix of compressed
rows, and `Rows` says which of them are whose. So a ragged view is an ordinary view of all the elements
that any vertex sees, which no longer depends on the symbols that choose the row.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from codelet.errors import OutOfBoundsError, SymbolError, ViewError
from codelet.saving import Unchanging
from codelet.tracing.lengths import NAMES
from codelet.views.index import Axis, Index, Table, as_index, filled, from_values, on_common_axes, row_major, union_axes
from codelet.views.integers import narrowed
from codelet.views.operators import NoNumber, shown

MAX_ELEMENTS = 2**31 - 1
"""The most elements that all vertices together may have of a ragged dimension."""


class RowLength(int):
    """The number of elements of all rows together, in the shape of a view of which every vertex sees one row.

    In print it is the symbol for the length of a row: `(n, 3)`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return NAMES[0]


class Rows(Unchanging):
    """Whose elements are whose in a flat dimension: a row for each position of `axes`, in row-major order.

    Attributes:
        axes: the grid axes that choose a row.
        offsets: where each row starts among all elements, and where the last one ends: int64, one more
            than there are rows, never decreasing, from 0.
    """

    def __init__(self, axes: tuple[Axis, ...], lengths: np.ndarray):
        self.axes = axes
        self.offsets = np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)])
        self.offsets.flags.writeable = False
        if self.total > MAX_ELEMENTS:
            raise ViewError(
                "a ragged view has too many elements",
                given=f"{self.total:,} elements at all positions of the grid",
                expected=f"at most {MAX_ELEMENTS:,}",
            )

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.offsets) - 1

    @property
    def total(self) -> int:
        """The number of elements of all rows."""
        return int(self.offsets[-1])

    @functools.cached_property
    def lengths(self) -> np.ndarray:
        """The number of elements of each row."""
        return np.diff(self.offsets)

    @functools.cached_property
    def owners(self) -> np.ndarray:
        """The row of each element, int32."""
        return np.repeat(np.arange(self.count, dtype=np.int32), self.lengths)

    @functools.cached_property
    def places(self) -> np.ndarray:
        """The place of each element within its row, int64."""
        return np.arange(self.total) - self.offsets[self.owners]

    @functools.cached_property
    def key(self) -> Hashable:
        """Equal for rows of the same lengths over the same axes."""
        return self.axes, self.offsets.tobytes()

    def row(self, positions: Mapping[Axis, int]) -> slice:
        """The elements of the row at a position of the grid."""
        number = 0
        for axis in self.axes:
            number = number * axis.extent + positions[axis]
        return slice(int(self.offsets[number]), int(self.offsets[number + 1]))

    def position(self, axis: Axis) -> np.ndarray:
        """The position along one of `axes` of each element's row."""
        after = math.prod(other.extent for other in self.axes[self.axes.index(axis) + 1 :])
        return self.owners // after % axis.extent

    def spread(self, index: Index) -> Index:
        """An index of shape () that may depend on `axes`, at every element: of shape (total,), without them."""
        own = [axis for axis in index.axes if axis in self.axes]
        if not own:
            return index.broadcast_to((self.total,))
        where = [from_values(self.position(axis), (0,), (self.total,)) for axis in own]
        return index.lifted(own).compose(where, (self.total,))

    def __repr__(self) -> str:
        if not self.count:
            return "no rows"
        least, most = int(self.lengths.min()), int(self.lengths.max())
        return f"{self.count:,} rows of {least:,} to {most:,}, {self.total:,} in all"


class Together(NamedTuple):
    """Rows of several kinds over one grid: the axes of all, and for each position the number of each kind's row.

    `numbers` is of shape (positions of `axes`, kinds of rows), `lengths` as well: those of the rows.
    """

    axes: tuple[Axis, ...]
    numbers: np.ndarray
    lengths: np.ndarray


def together(kinds: Sequence[Rows]) -> Together:
    """Rows of several kinds, over the axes of all of them."""
    axes = union_axes([rows.axes for rows in kinds])
    extents = [axis.extent for axis in axes]
    numbers = []
    for rows in kinds:
        own = np.arange(rows.count).reshape([axis.extent if axis in rows.axes else 1 for axis in axes])
        numbers.append(np.broadcast_to(own, extents).reshape(-1))
    lengths = [rows.lengths[own] for rows, own in zip(kinds, numbers, strict=True)]
    return Together(axes, np.stack(numbers, 1), np.stack(lengths, 1))


def groups_of(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lengths that occur together, each once, in order, and for each position which of them it has.

    `lengths` is of shape (positions, kinds of rows).
    """
    if lengths.shape[1] == 1:
        # As numpy.unique, which sorts: lengths are small numbers.
        occurs = np.bincount(lengths[:, 0]) > 0
        return np.flatnonzero(occurs)[:, None], (np.cumsum(occurs) - 1)[lengths[:, 0]]
    found, group_of = np.unique(lengths, axis=0, return_inverse=True)
    return found, group_of.reshape(-1)


def _refused(what: str, use: str, given: str) -> SymbolError:
    return SymbolError(
        f"{what} has no {use}",
        given=given,
        expected="a row for a dimension of a tensor, as in x[table[i]]",
        fix="compute with the entries before they are made a ragged table, or with the elements within the codelet",
    )


class Ragged(NoNumber, Unchanging):
    """An index with a ragged dimension, made by a ragged table or by a slice whose length depends on a symbol.

    Attributes:
        index: at all elements of all rows; it does not depend on the axes of the rows.
        dimension: the one of `index` along which they stand.
        rows: which elements are whose.
    """

    __slots__ = ("dimension", "index", "rows")

    def __init__(self, index: Index, dimension: int, rows: Rows):
        self.index = index
        self.dimension = dimension
        self.rows = rows

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The grid axes it depends on."""
        return union_axes([self.index.axes, self.rows.axes])

    def over(self, axes: Sequence[Axis]) -> Ragged:
        """It over axes that stand for all of its own; see `common_axes`."""
        if set(self.axes) <= set(axes):
            return self
        extents = tuple(axis.extent for axis in self.rows.axes)
        rows, number = self.rows, row_major(extents).bound(self.rows.axes).over(axes)
        numbers = number.values(number.axes).reshape(-1)
        own = Rows(number.axes, rows.lengths[numbers])
        shape = (*self.index.shape[: self.dimension], own.total, *self.index.shape[self.dimension + 1 :])
        inner = [Index(0, shape, tuple(int(k == d) for k in range(len(shape)))) for d in range(len(shape))]
        inner[self.dimension] = stretched(rows.offsets[numbers], 1, own).rekeyed({0: self.dimension}, shape)
        return compose_ragged(self.index.over(axes), inner, self.dimension, own)

    def _refuse(self, use: str, given: str) -> SymbolError:
        return _refused("a row of another length at each vertex", use, given)

    def __repr__(self) -> str:
        return f"Ragged({self.rows} at {self.index.text()})"


class RaggedTable(NoNumber, Unchanging):
    """Rows of integers of different lengths, looked up by a symbol. Made by `table` with `offsets`."""

    __slots__ = ("offsets", "values")

    def __init__(self, values: object, offsets: object):
        entries, ends = as_index(np.asarray(values)), np.asarray(offsets)
        if entries is None or entries.ndim != 1:
            raise SymbolError(
                "a ragged table holds something other than integers in one dimension",
                given=values,
                expected="the entries of all rows, one row after another",
            )
        if ends.ndim != 1 or not len(ends) or not np.issubdtype(ends.dtype, np.integer):
            raise SymbolError(
                "the offsets of a ragged table are not integers in one dimension",
                given=offsets,
                expected="where each row starts, and where the last one ends",
            )
        if ends[0] < 0 or ends[-1] > entries.size or (np.diff(ends) < 0).any():
            raise SymbolError(
                "the offsets of a ragged table do not cut its entries into rows",
                given=f"offsets from {ends[0]} to {ends[-1]} for {entries.size} entries",
                expected="offsets that never decrease, from 0 to the number of entries",
            )
        self.values = entries
        self.offsets = ends.astype(np.int64)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: object) -> Index | Ragged:
        """A row, by a number; or a row for each vertex, by a symbol or an index expression.

        Raises:
            OutOfBoundsError: a row that is not there.
            ViewError: something that is no number and no index expression.
        """
        chosen = as_index(row)
        if chosen is None or chosen.shape:
            raise ViewError(
                "a ragged table is not looked up by one position",
                given=shown(row),
                expected="a number, a symbol or an index expression",
            )
        ends = chosen.bounds()
        if ends is not None and not 0 <= ends[0] <= ends[1] < len(self):
            raise OutOfBoundsError(
                "a row of a ragged table is not there",
                given=f"rows {ends[0]} to {ends[1]}",
                expected=f"0 to {len(self) - 1}",
            )
        if chosen.fixed is not None:
            entries = self.values[int(self.offsets[chosen.fixed]) : int(self.offsets[chosen.fixed + 1])]
            return entries.mentioning(chosen.axes)
        axes = chosen.without_idle_symbols().axes
        numbers = chosen.values_over(axes).reshape(-1)
        rows = Rows(axes, np.diff(self.offsets)[numbers])
        entries = self.values[stretched(self.offsets[numbers], 1, rows)]
        return Ragged(entries.mentioning([axis for axis in chosen.axes if axis not in axes]), 0, rows)

    def _refuse(self, use: str, given: str) -> SymbolError:
        return _refused("a ragged table", use, given)

    def __repr__(self) -> str:
        return f"table of {Rows((), np.diff(self.offsets))}"


def stretched(starts: np.ndarray, step: int, rows: Rows) -> Index:
    """`start + step * place in the row` at every element, for a start for each row: of shape (total,)."""
    shift = (starts - step * rows.offsets[:-1])[rows.lengths > 0]
    if not len(shift):
        return filled(0, (rows.total,))
    strided = Index(int(shift[0]), (rows.total,), (step,))
    if (shift == shift[0]).all():
        return strided
    moved = np.repeat(shift - shift[0], rows.lengths[rows.lengths > 0])
    return Index(strided.offset, strided.shape, strided.strides, (), (Table((0,), narrowed(moved), 1),))


def ragged_slice(start: Index, span: Index, step: int) -> Ragged:
    """A slice from `start` to `start + span`, where `span` depends on symbols; empty where that is no way to go.

    Args:
        start: the first position, of shape ().
        span: how far it goes, of shape ().
        step: from one position to the next.
    """
    start, span = on_common_axes([start, span])
    axes = span.without_idle_symbols().axes
    lengths = np.maximum(0, -(-span.values_over(axes).reshape(-1) // step))
    rows = Rows(axes, lengths)
    tables = tuple(table for table in start.tables if set(table.keys) & set(rows.axes))
    own = start.only(rows.axes, tables, start.offset).without_idle_symbols()
    others = [axis for axis in (*start.axes, *span.axes) if axis not in rows.axes]
    rest = start.only(others, tuple(t for t in start.tables if not any(t is o for o in tables)), 0).mentioning(others)
    if set(own.axes) <= set(rows.axes):
        inside = stretched(np.broadcast_to(own.values(rows.axes).reshape(-1), rows.count), step, rows)
    else:
        inside = rows.spread(own) + from_values(step * rows.places, (0,), (rows.total,))
    return Ragged(inside + rest, 0, rows)


def compose_ragged(index: Index, items: Sequence[Index], dimension: int, rows: Rows) -> Ragged:
    """`index[items[0], items[1], ...]`, where the index and the items may depend on the axes of rows.

    Args:
        index: what is indexed.
        items: an index of the result's shape for each dimension of `index`.
        dimension: the ragged dimension of the result.
        rows: the rows of the result.
    """
    shape = items[0].shape
    whole = [Index(0, shape, tuple(int(k == d) for k in range(len(shape)))) for d in range(len(shape))]

    def own_rows(over: Index, positions: Sequence[Index]) -> Index:
        own = [axis for axis in over.axes if axis in rows.axes]
        where = [from_values(rows.position(axis), (dimension,), shape) for axis in own]
        return over.lifted(own).compose([*where, *positions], shape)

    inner = [own_rows(item, whole) if set(item.axes) & set(rows.axes) else item for item in items]
    return Ragged(own_rows(index, inner), dimension, rows)
