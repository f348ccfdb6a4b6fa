"""Ragged dimensions: those whose length depends on the vertex.

A field that holds the messages a node receives has as many elements as the node has neighbours. All
vertices' elements stand one after another in one flat dimension, as in a sparse matrix of compressed
rows, and `Rows` says which of them are whose. So a ragged view is an ordinary view of all the elements
that any vertex sees, which no longer depends on the symbols that choose the row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from codelet.errors import SymbolError
from codelet.saving import Unchanging
from codelet.views.arithmetic import on_common_axes
from codelet.views.digits import row_major_strides
from codelet.views.grids import Axis, union_axes
from codelet.views.operators import NoNumber
from codelet.views.rows import Rows

if TYPE_CHECKING:
    from codelet.views.index import Index


def refused_use(what: str, use: str, given: str) -> SymbolError:
    return SymbolError(
        f"{what} has no {use}",
        given=given,
        expected="a row for a dimension of a tensor, as in x[table[i]]",
        fix="compute with the entries before they are made a ragged table, or with the elements within the codelet",
    )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Ragged(NoNumber, Unchanging):
    """An index with a ragged dimension, made by a ragged table or by a slice whose length depends on a symbol.

    Attributes:
        index: at all elements of all rows; it does not depend on the axes of the rows.
        dimension: the one of `index` along which they stand.
        rows: which elements are whose.
    """

    index: Index
    dimension: int
    rows: Rows

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The grid axes it depends on."""
        return union_axes([self.index.axes, self.rows.axes])

    def over(self, axes: Sequence[Axis]) -> Ragged:
        """It over axes that stand for all of its axes; see `common_axes`."""
        if set(self.axes) <= set(axes):
            return self
        extents = tuple(axis.extent for axis in self.rows.axes)
        rows, index = self.rows, type(self.index)
        number = index(0, extents, row_major_strides(extents)).bound(rows.axes).over(axes)
        numbers = number.values(number.axes).reshape(-1)
        own = Rows(number.axes, rows.counts[numbers])
        shape = (*self.index.shape[: self.dimension], own.total, *self.index.shape[self.dimension + 1 :])
        inner = [index(0, shape, tuple(int(k == d) for k in range(len(shape)))) for d in range(len(shape))]
        inner[self.dimension] = index.stretched(rows.offsets[numbers], 1, own).rekeyed({0: self.dimension}, shape)
        return compose_ragged(self.index.over(axes), inner, self.dimension, own)

    def _refuse(self, use: str, given: str) -> SymbolError:
        return refused_use("a row of another length at each vertex", use, given)

    def __repr__(self) -> str:
        return f"Ragged({self.rows} at {self.index.text()})"


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
        inside = start.stretched(np.broadcast_to(own.values(rows.axes).reshape(-1), rows.count), step, rows)
    else:
        inside = own.spread(rows) + start.from_values(step * rows.places, (0,), (rows.total,))
    return Ragged(inside + rest, 0, rows)


def compose_ragged(index: Index, items: Sequence[Index], dimension: int, rows: Rows) -> Ragged:
    """`index[items[0], items[1], ...]`, where the index and the items may depend on the axes of rows.

    Args:
        index: the indexed map.
        items: an index of the result's shape for each dimension of `index`.
        dimension: the ragged dimension of the result.
        rows: the rows of the result.
    """
    shape = items[0].shape
    whole = [type(index)(0, shape, tuple(int(k == d) for k in range(len(shape)))) for d in range(len(shape))]

    def own_rows(over: Index, positions: Sequence[Index]) -> Index:
        own = [axis for axis in over.axes if axis in rows.axes]
        where = [index.from_values(rows.position(axis), (dimension,), shape) for axis in own]
        return over.lifted(own).compose([*where, *positions], shape)

    inner = [own_rows(item, whole) if set(item.axes) & set(rows.axes) else item for item in items]
    return Ragged(own_rows(index, inner), dimension, rows)
