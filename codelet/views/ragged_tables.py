"""Ragged tables: rows of integers of different lengths, as of a matrix of compressed rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codelet.errors import OutOfBoundsError, SymbolError, ViewError
from codelet.saving import Unchanging
from codelet.views.index import Index, as_index
from codelet.views.integers import unwritable
from codelet.views.operators import NoNumber, shown
from codelet.views.ragged import Ragged, refused_use
from codelet.views.rows import Rows


@dataclass(frozen=True, init=False, slots=True, eq=False, repr=False)
class RaggedTable(NoNumber, Unchanging):
    """Rows of integers of different lengths, looked up by a symbol. Made by `table` with `offsets`.

    Attributes:
        values: the entries of all rows, one row after another.
        offsets: where each row starts among them, and where the last one ends: int64.
    """

    values: Index
    offsets: np.ndarray

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
        object.__setattr__(self, "values", entries)
        object.__setattr__(self, "offsets", unwritable(ends.astype(np.int64)))

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
        entries = self.values[Index.stretched(self.offsets[numbers], 1, rows)]
        return Ragged(entries.mentioning([axis for axis in chosen.axes if axis not in axes]), 0, rows)

    def _refuse(self, use: str, given: str) -> SymbolError:
        return refused_use("a ragged table", use, given)

    def __repr__(self) -> str:
        return f"table of {Rows((), np.diff(self.offsets))}"
