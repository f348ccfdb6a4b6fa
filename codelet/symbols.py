"""Symbols: what users write instead of loops."""

from __future__ import annotations

from typing import Any, overload

import numpy as np

from codelet.errors import SymbolError
from codelet.index import Grid, Index, as_index
from codelet.ragged import RaggedTable


def grid(*sizes: int | range) -> Any:
    """Symbols that run over all combinations of `sizes`, as nested loops would.

    Args:
        sizes: for each symbol how many values it takes (0, 1, ...), or the range of its values.

    Returns:
        The symbol itself for one size, else a tuple of symbols.

    Raises:
        SymbolError: a size that is neither a non-negative integer nor a range.

    >>> import codelet as cl
    >>> row, part = cl.grid(4, 8)
    >>> 16 * part + 3
    Index(3 + 16*i0)
    """
    ranges = []
    for size in sizes:
        if isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size >= 0:
            ranges.append(range(int(size)))
        elif isinstance(size, range):
            ranges.append(size)
        else:
            raise SymbolError(
                "a grid has a size that is not a count",
                given=size,
                expected="non-negative integers or ranges",
            )
    if not ranges:
        raise SymbolError("a grid has no sizes", given="grid()", expected="one size for each symbol")
    symbols = tuple(Index(axis.values.start, (), (), ((axis, axis.values.step),)) for axis in Grid(ranges).axes)
    return symbols[0] if len(symbols) == 1 else symbols


@overload
def table(values: object) -> Index: ...
@overload
def table(values: object, *, offsets: object) -> RaggedTable: ...
def table(values: object, *, offsets: object = None) -> Index | RaggedTable:
    """An integer array to be looked up by symbols: edges from data.

    Args:
        values: integers, of any shape. With fewer symbols than axes, a lookup gives an array of indices.
        offsets: for a table with rows of different lengths, whose entries `values` holds one row after
            another: where each row starts, and where the last one ends, as in a matrix of compressed rows.
            A lookup then gives each vertex a row, and its field as many elements.

    Raises:
        SymbolError: values that are not integers, or offsets that do not cut them into rows.

    >>> import codelet as cl
    >>> senders = cl.table([3, 1, 2])
    >>> e = cl.grid(3)
    >>> senders[e].values(e.axes).tolist()
    [3, 1, 2]
    >>> i = cl.grid(2)
    >>> cl.table([3, 1, 2], offsets=[0, 1, 3])[i]
    Ragged(2 rows of 1 to 2, 3 in all at table[3][f0])
    """
    if offsets is not None:
        return RaggedTable(values, offsets)
    index = None if isinstance(values, Index) else as_index(np.asarray(values))
    if index is None:
        raise SymbolError("a table holds something other than integers", given=values, expected="an integer array")
    return index
