"""Symbols: in place of loops over vertices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, SupportsIndex, overload

import numpy as np
from jax.core import Tracer

from codelet.errors import SymbolError
from codelet.views.affine import Table
from codelet.views.arithmetic import on_common_axes
from codelet.views.conditions import Condition
from codelet.views.grids import Axis, Grid, combined_axis, union_axes
from codelet.views.index import Index, as_index
from codelet.views.operators import shown
from codelet.views.ragged_tables import RaggedTable


def _ends(size: object) -> tuple[Index, Index, int] | None:
    """Start, stop and step of a symbol's range: of a count, a range, or a slice, by numbers or by symbols."""
    if isinstance(size, range):
        return Index(size.start), Index(size.stop), size.step
    listed = (size.start, size.stop, size.step) if isinstance(size, slice) else (0, size, 1)
    start, stop = (as_index(0 if end is None and k == 0 else end) for k, end in enumerate(listed[:2]))
    step = as_index(1 if listed[2] is None else listed[2])
    if start is None or stop is None or step is None or start.shape or stop.shape or not step.constant:
        return None
    return start, stop, step.constant


def _dependent(start: Index, stop: Index, step: int, name: str | None, grid: Grid, place: int) -> tuple[Axis, Index]:
    """The combined axis of a symbol whose range depends on others, and the symbol."""
    start, stop = on_common_axes([start, stop])
    parents = union_axes([start.axes, stop.axes])
    firsts, lasts = (np.ravel(end.values(parents)) for end in (start, stop))
    counts = np.maximum(0, -((firsts - lasts) // step))
    owners = np.repeat(np.arange(len(counts)), counts)
    numbers = firsts[owners] + step * (np.arange(len(owners)) - (np.cumsum(counts) - counts)[owners])
    # All numbers it takes at any position, so that a position among them is what the combined axis holds.
    low, high = (int(numbers.min()), int(numbers.max())) if len(numbers) else (0, -1)
    apart = int(np.gcd.reduce(firsts[counts > 0] - low, initial=abs(step)))
    (symbol,) = Grid([range(low, high + 1, apart)], [name]).axes
    positions = np.unravel_index(owners, [axis.extent for axis in parents])
    ancestors = {**dict(zip(parents, positions, strict=True)), symbol: (numbers - low) // apart}
    axis = combined_axis(ancestors, len(numbers), grid, place)
    return axis, Index(low, (), (), (), (Table((axis,), axis.ancestors[symbol], apart),))


Size = SupportsIndex | Index | range | slice
"""How many values a symbol takes, or which: a number, another symbol, or a range, whose ends may be by symbols."""


@overload
def grid(size: Size, /) -> Index: ...
@overload
def grid(first: Size, second: Size, /) -> tuple[Index, Index]: ...
@overload
def grid(first: Size, second: Size, third: Size, /) -> tuple[Index, Index, Index]: ...
@overload
def grid(*sizes: Size, **named: Size) -> Any: ...
def grid(*sizes: object, **named: object) -> Any:
    """Symbols that run over all combinations of `sizes`, as nested loops would.

    Args:
        sizes: for each symbol its number of values (0, 1, ...), or their range. A size may depend on other symbols, as
            in a triangular loop: after `i = grid(n)`, `grid(i)` runs over range(i) for each i. The ends of a range, as
            `slice(start, stop)` or `slice(start, stop, step)`, may be index expressions: `grid(slice(i + 1, n))` runs
            over range(i + 1, n). Vertices with such symbols have one axis for all combinations, in the order of nested
            loops. So has an omitted output, and an array over the grid.
        named: sizes of more symbols, by their printed names.

    Returns:
        The symbol itself for one size, else a tuple of symbols, in the order given.

    Raises:
        SymbolError: a size that is not a non-negative integer, a range, or either of these by symbols.

    >>> import codelet as cl
    >>> row, part = cl.grid(4, 8)
    >>> 16 * part + 3
    Index(3 + 16*i0)
    >>> row, part = cl.grid(row=4, part=8)
    >>> 8 * row + part
    Index(8*row + part)
    >>> i = cl.grid(4)
    >>> j = cl.grid(i)
    >>> (10 * i + j).values(j.axes).tolist()
    [10, 20, 21, 30, 31, 32]
    """
    given = [*((size, None) for size in sizes), *((size, name) for name, size in named.items())]
    if not given:
        raise SymbolError("a grid has no sizes", given="grid()", expected="one size for each symbol")
    ends = []
    for size, _ in given:
        found = _ends(size)
        if found is None or (not isinstance(size, (range, slice)) and (found[1].constant or 0) < 0):
            raise SymbolError(
                "a grid has a size that is not a count",
                given=shown(size),
                expected="non-negative integers or ranges",
                fix="a size may be a symbol too, and a range slice(start, stop) with index expressions as ends",
            )
        ends.append(found)
    fixed = [start.fixed is not None and stop.fixed is not None for start, stop, _ in ends]
    plain = [range(a.offset, b.offset, c) if known else range(0) for (a, b, c), known in zip(ends, fixed, strict=True)]
    made = Grid(plain, [name for _, name in given])
    axes, symbols = list(made.axes), []
    for k, ((start, stop, step), known) in enumerate(zip(ends, fixed, strict=True)):
        if known:
            values = axes[k].values
            symbol = Index(values.start, (), (), ((axes[k], values.step),))
            symbols.append(symbol.mentioning((*start.axes, *stop.axes)))
        else:
            axes[k], symbol = _dependent(start, stop, step, given[k][1], made, k)
            symbols.append(symbol)
    made.axes = tuple(axes)
    return symbols[0] if len(symbols) == 1 else tuple(symbols)


class SymbolNames(NamedTuple):
    """The printed names of axes, and of the symbols that combined axes stand for."""

    of_axes: tuple[str, ...]
    of_symbols: tuple[tuple[Axis, str], ...]


def _symbol_of(value: object) -> Axis | None:
    """The axis whose symbol a value is, as `grid` returns it."""
    if not isinstance(value, Index) or value.shape:
        return None
    varying = value.keys
    if len(varying) != 1 or not isinstance(axis := varying[0], Axis):
        return None
    if not value.tables and not axis.ancestors:
        found = axis.values
        return axis if (value.offset, value.coefficient(axis)) == (found.start, found.step) else None
    if len(value.tables) == 1 and not value.coefficient(axis):
        (table,) = value.tables
        for symbol, positions in axis.ancestors.items():
            if table.values is positions and (value.offset, table.scale) == (symbol.values.start, symbol.values.step):
                return symbol
    return None


def symbol_names(axes: Sequence[Axis], variables: Mapping[str, object]) -> SymbolNames:
    """The names of the symbols of `axes`.

    They are those given to `grid`; else the names in the user's `variables`; else i0, i1, ...
    """
    if not axes:
        return SymbolNames((), ())
    found: dict[Axis, str] = {}
    for name, value in variables.items():
        symbol = _symbol_of(value)
        # An interactive shell keeps its last result under names of underscores.
        if symbol is not None and (symbol not in found or found[symbol].startswith("_")):
            found[symbol] = name
    taken: set[str] = set()

    def named(symbol: Axis, otherwise: str) -> str:
        name = base = symbol.name or found.get(symbol, otherwise)
        number = 2
        while name in taken:
            name, number = f"{base}_{number}", number + 1
        taken.add(name)
        return name

    of_axes: list[str] = []
    of_symbols: list[tuple[Axis, str]] = []
    for k, axis in enumerate(axes):
        if axis.ancestors:
            own = [(symbol, named(symbol, f"i{k}.{n}")) for n, symbol in enumerate(axis.symbols)]
            of_symbols += own
            of_axes.append(f"({', '.join(name for _, name in own)})")
        else:
            of_axes.append(named(axis, f"i{k}"))
    return SymbolNames(tuple(of_axes), tuple(of_symbols))


# --- choosing -------------------------------------------------------------------------------------------


def _both(function: str, a: object, b: object) -> tuple[Index, Index]:
    """Two operands as indices."""
    operands = as_index(a), as_index(b)
    for value, operand in zip((a, b), operands, strict=True):
        if operand is None:
            raise SymbolError(
                f"cl.{function} is given something other than an integer",
                given=shown(value),
                expected="integers, symbols, index expressions or tables",
            )
        if operand.constant is not None and not -(2**63) <= operand.constant < 2**63:
            raise SymbolError(
                f"cl.{function} is given a number that no index holds",
                given=shown(value),
                expected="integers of 64 bits",
            )
    return operands  # type: ignore[return-value]


def _plain(index: Index, *given: object) -> Any:
    """An index as a plain number where nothing but plain numbers was given."""
    return index.constant if all(isinstance(value, (int, np.integer, np.bool_)) for value in given) else index


def minimum(a: object, b: object) -> Any:
    """The smaller of two index expressions, position by position. Of two plain integers it is an integer.

    Args:
        a: an integer or an index expression.
        b: the same.

    Raises:
        SymbolError: not an integer.

    >>> import codelet as cl
    >>> i = cl.grid(4)
    >>> cl.minimum(i + 1, 3).values(i.axes).tolist()
    [1, 2, 3, 3]
    """
    left, right = _both("minimum", a, b)
    return _plain(left.minimum(right), a, b)


def maximum(a: object, b: object) -> Any:
    """The larger of two index expressions, position by position. Of two plain integers it is an integer.

    Args:
        a: an integer or an index expression.
        b: the same.

    Raises:
        SymbolError: not an integer.

    >>> import codelet as cl
    >>> i = cl.grid(4)
    >>> cl.maximum(i - 1, 0).values(i.axes).tolist()
    [0, 0, 1, 2]
    """
    left, right = _both("maximum", a, b)
    return _plain(left.maximum(right), a, b)


def where(condition: object, a: object, b: object) -> Any:
    """Select between two index expressions by a condition. With plain numbers alone the result is a number.

    Args:
        condition: a comparison of index expressions, such as `i < 3`; combine several with `&` and `|`.
        a: the value if the condition holds.
        b: the value if it does not.

    Raises:
        SymbolError: not a condition, or `a` or `b` is not an integer.

    >>> import codelet as cl
    >>> i = cl.grid(4)
    >>> cl.where(i == 0, 3, i - 1).values(i.axes).tolist()
    [3, 0, 1, 2]
    """
    left, right = _both("where", a, b)
    plain = isinstance(condition, (bool, np.bool_))
    if plain or (isinstance(condition, np.ndarray) and condition.dtype == bool):
        condition = Condition(as_index(np.asarray(condition).astype(np.int32)))  # type: ignore[arg-type]
    if not isinstance(condition, Condition):
        raise SymbolError(
            "cl.where is given something other than a condition",
            given=shown(condition),
            expected="a comparison of index expressions, as in cl.where(i < 3, a, b)",
        )
    # Where the condition is 1 the first is left, else the second: by a product only where it is not known.
    truth = condition.index
    chosen = (left - right) * truth + right
    return chosen.constant if plain and isinstance(chosen, Index) and chosen.constant is not None else chosen


# --- tables ---------------------------------------------------------------------------------------------


@overload
def table(values: object) -> Index: ...
@overload
def table(values: object, *, offsets: object) -> RaggedTable: ...
def table(values: object, *, offsets: object = None) -> Index | RaggedTable:
    """An integer array that symbols look up: edges from data, such as those of a sparse matrix.

    Args:
        values: integers, of any shape. With fewer symbols than axes, a lookup gives an array of indices.
        offsets: for rows of different lengths, concatenated in `values`: where each row starts, and where the last one
            ends, shape (rows + 1,), as in a matrix of compressed rows (CSR). A lookup gives each vertex one row, and
            its field as many elements.

    Raises:
        SymbolError: values that are not integers, or offsets that do not partition them into rows.

    >>> import codelet as cl
    >>> senders = cl.table([3, 1, 2])
    >>> e = cl.grid(3)
    >>> senders[e].values(e.axes).tolist()
    [3, 1, 2]
    >>> i = cl.grid(2)
    >>> cl.table([3, 1, 2], offsets=[0, 1, 3])[i]
    Ragged(2 rows of 1 to 2, 3 in all at table[3][f0])
    """
    if isinstance(values, Tracer) or isinstance(offsets, Tracer):
        raise SymbolError(
            "a table is traced: which edges there are must be known while the graph is built",
            given=values if isinstance(values, Tracer) else offsets,
            expected="an array whose numbers are known, of NumPy's, say",
            fix="make the table outside jax.jit, jax.grad and jax.vmap; or give the numbers to a codelet as a field",
        )
    if offsets is not None:
        return RaggedTable(values, offsets)
    index = None if isinstance(values, Index) else as_index(np.asarray(values))
    if index is None:
        raise SymbolError("a table holds something other than integers", given=values, expected="an integer array")
    return index
