"""Ragged tables: rows of integers of different lengths, as of a matrix of compressed rows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codelet.errors import OutOfBoundsError, SymbolError, ViewError
from codelet.saving import Unchanging
from codelet.views.digits import row_major_strides
from codelet.views.grids import Axis
from codelet.views.index import Index, as_index
from codelet.views.operators import NoNumber, shown
from codelet.views.ragged import Ragged, refused_use
from codelet.views.rows import Rows


@dataclass(frozen=True, init=False, slots=True, eq=False, repr=False)
class RaggedTable(NoNumber, Unchanging):
    """Rows of integers of different lengths, looked up by a symbol. Made by `table` with `offsets`.

    Attributes:
        values: the entries of all rows, one row after another.
        start: where the first row starts among them.
        rows: how long each is.
    """

    values: Index
    start: int
    rows: Rows

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
        if ends[0] < 0 or ends[-1] > entries.size or (ends[1:] < ends[:-1]).any():
            raise SymbolError(
                "the offsets of a ragged table do not cut its entries into rows",
                given=f"offsets from {ends[0]} to {ends[-1]} for {entries.size} entries",
                expected="offsets that never decrease, from 0 to the number of entries",
            )
        object.__setattr__(self, "values", entries)
        object.__setattr__(self, "start", int(ends[0]))
        object.__setattr__(self, "rows", Rows((), np.diff(ends)))

    @property
    def offsets(self) -> np.ndarray:
        """Where each row starts among the entries, and where the last one ends: int64."""
        return self.rows.offsets + self.start

    def __len__(self) -> int:
        return self.rows.count

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
            own = self.rows.elements(chosen.fixed)
            return self.values[self.start + own.start : self.start + own.stop].mentioning(chosen.axes)
        axes = chosen.without_idle_symbols().axes
        lengths = self.rows.counts
        if _numbers_in_order(chosen, axes) and len(lengths) == math.prod(axis.extent for axis in axes):
            rows, entries = Rows(axes, lengths), self.values[self.start : self.start + self.rows.total]
        else:
            numbers = chosen.values_over(axes).reshape(-1)
            rows = Rows(axes, lengths[numbers])
            entries = self.values[Index.stretched(self.offsets[numbers], 1, rows)]
        return Ragged(entries.mentioning([axis for axis in chosen.axes if axis not in axes]), 0, rows)

    def _refuse(self, use: str, given: str) -> SymbolError:
        return refused_use("a ragged table", use, given)

    def __repr__(self) -> str:
        return f"table of {self.rows}"


def _numbers_in_order(index: Index, axes: Sequence[Axis]) -> bool:
    """Whether an index of shape () numbers the positions of some axes, in row-major order."""
    steps = dict(zip(axes, row_major_strides([axis.extent for axis in axes]), strict=True))
    return not index.tables and not index.offset and all(index.coefficient(axis) == steps[axis] for axis in axes)
