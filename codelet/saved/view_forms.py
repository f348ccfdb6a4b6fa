"""Axes, indices, rows and views in files.

Grids and axes are numbered, so that views that share an axis share it again. An index is its offset, shape, strides,
coefficients and tables; a key of a table is a dimension from 0 on, or the number k of an axis as -1 - k.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.jaxprs.plain import (
    Plain,
    PlainReader,
    PlainWriter,
    check_form,
    dtype_name,
    dtype_named,
    listed,
    text,
    whole,
)
from codelet.views.affine import Table, sorted_symbols
from codelet.views.grids import Axis, Grid, Key
from codelet.views.index import Index
from codelet.views.integers import unwritable
from codelet.views.rows import Rows
from codelet.views.sources import Patch, Patchwork, Source, Variable
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph

_LARGEST = 1 << 62

_MOST_TOGETHER = 1 << 27
"""Positions at which an index is looked at one by one to find its bounds."""


# --- writing ----------------------------------------------------------------------------------------------------


class ViewWriter:
    """Writes axes, indices, rows and views.

    Args:
        values: writes arrays, and numbers of padding.
        axes: all axes that occur; those that they stand for, and the rest of their grids, are written with them.
    """

    def __init__(self, values: PlainWriter, axes: Iterable[Axis]):
        self._values = values
        self._axes: dict[Axis, int] = {}
        self._of_axis: list[Plain] = []
        self._positions: dict[int, tuple[int, np.ndarray]] = {}
        self._of_patchwork: list[Plain] = []
        self._patchworks: dict[int, int] = {}
        self._of_rows: list[Plain] = []
        self._rows: dict[int, tuple[int, Rows]] = {}
        every = _with_ancestors(axes)
        grids = sorted({axis.grid for axis in every}, key=lambda grid: grid.serial)
        numbers = {grid: k for k, grid in enumerate(grids)}
        for axis in every:
            self._add(axis, numbers)
        self._of_grid = [[self._axes[axis] for axis in grid.axes] for grid in grids]

    def _position(self, positions: np.ndarray) -> int:
        """The number of the positions of a symbol, by which its tables are known: they are not equal but the same."""
        if id(positions) not in self._positions:
            self._positions[id(positions)] = self._values.array_apart(positions), positions
        return self._positions[id(positions)][0]

    def _table(self, values: np.ndarray) -> int:
        known = self._positions.get(id(values))
        return self._values.array(values) if known is None else known[0]

    def _add(self, axis: Axis, grids: dict[Grid, int]) -> None:
        ancestors = [[self._axes[item], self._position(positions)] for item, positions in axis.ancestors.items()]
        self._axes[axis] = len(self._of_axis)
        range_ = [axis.values.start, axis.values.stop, axis.values.step]
        self._of_axis.append([grids[axis.grid], axis.sort_key[1], range_, axis.name, ancestors])

    @property
    def plain(self) -> dict[str, Plain]:
        """All axes, patchworks and rows that were written."""
        return {
            "grids": self._of_grid,
            "axes": self._of_axis,
            "rows": self._of_rows,
            "patchworks": self._of_patchwork,
        }

    def axes(self, axes: Iterable[Axis]) -> Plain:
        """The numbers of axes."""
        return [self._axes[axis] for axis in axes]

    def index(self, index: Any) -> Plain:
        """An index."""
        tables = [
            [[key if isinstance(key, int) else -1 - self._axes[key] for key in keys], self._table(values), scale]
            for keys, values, scale in index.tables
        ]
        symbols = [[self._axes[axis], int(coefficient)] for axis, coefficient in index.symbols]
        shape, strides = [int(n) for n in index.shape], [int(n) for n in index.strides]
        return [int(index.offset), shape, strides, symbols, [[*item[:2], int(item[2])] for item in tables]]

    def rows(self, rows: Rows | None) -> int | None:
        """The number of rows, if there are any."""
        if rows is None:
            return None
        if id(rows) not in self._rows:
            self._rows[id(rows)] = len(self._of_rows), rows
            self._of_rows.append([self.axes(rows.axes), self._values.array(rows.counts)])
        return self._rows[id(rows)][0]

    def source(self, source: Source) -> int:
        """The number of a variable; of a patchwork -1 less its number."""
        if isinstance(source, Variable):
            return source.number
        if id(source) not in self._patchworks:
            patches = [
                [
                    None if patch.variable is None else patch.variable.number,
                    None if patch.variable is not None else self._values.scalar(patch.value),
                    self.index(patch.index),
                    self.index(patch.places),
                ]
                for patch in source.patches
            ]
            self._patchworks[id(source)] = len(self._of_patchwork)
            self._of_patchwork.append([dtype_name(source.dtype), [int(n) for n in source.shape], patches])
        return -1 - self._patchworks[id(source)]

    def tensor(self, tensor: Tensor) -> Plain:
        """A view."""
        return [
            self.source(tensor.source),
            self.index(tensor.index),
            self.rows(tensor.rows),
            int(tensor.ragged_dimension),
        ]


def _with_ancestors(axes: Iterable[Axis]) -> list[Axis]:
    """Axes with those that they stand for, and with the rest of all their grids: ancestors first."""
    result: dict[Axis, None] = {}
    waiting = sorted(set(axes), key=lambda axis: axis.sort_key, reverse=True)
    while waiting:
        axis = waiting.pop()
        before = [item for item in axis.ancestors if item not in result]
        if axis in result:
            continue
        if before:
            waiting += [axis, *before]
            continue
        result[axis] = None
        waiting += [item for item in axis.grid.axes if item not in result]
    return [*result]


def axes_of_index(index: Any) -> Iterable[Axis]:
    """The axes that an index names."""
    yield from (axis for axis, _ in index.symbols)
    yield from (key for table in index.tables for key in table.keys if isinstance(key, Axis))


# --- reading ----------------------------------------------------------------------------------------------------


def _shape(plain: Plain) -> tuple[int, ...]:
    sizes = tuple(whole(n) for n in listed(plain))
    check_form(len(sizes) <= 64 and math.prod(sizes) < _LARGEST, "a shape")
    return sizes


class ViewReader:
    """Reads axes, indices, rows and views, each within the bounds of its tensor.

    Args:
        plain: a mapping of the form of `ViewWriter.plain`.
        values: reads arrays, and numbers of padding.
        graph: the graph that is read.
        variables: those of the graph, in order.
    """

    def __init__(self, plain: dict[str, Plain], values: PlainReader, graph: Graph, variables: Sequence[Variable]):
        self._values, self._graph, self._variables = values, graph, variables
        self._axes = self._read_axes(listed(plain["axes"]), listed(plain["grids"]))
        self._rows = [self._read_rows(item) for item in listed(plain["rows"])]
        self._patchworks: list[Patchwork] = []
        for item in listed(plain["patchworks"]):
            self._patchworks.append(self._patchwork(item))

    def _read_axes(self, axes: list[Plain], grids: list[Plain]) -> list[Axis]:
        built = [Grid([]) for _ in grids]
        result: list[Axis] = []
        for plain in axes:
            grid, place, ends, name, ancestors = listed(plain, 5)
            start, stop, step = (whole(n, -_LARGEST, _LARGEST) for n in listed(ends, 3))
            check_form(step != 0 and len(range(start, stop, step)) < _LARGEST, "the range of an axis")
            check_form(name is None or text(name, 1000) is not None, "the name of an axis")
            values, positions = range(start, stop, step), {}
            for pair in listed(ancestors):
                older = result[whole(listed(pair, 2)[0], 0, len(result) - 1)]
                positions[older] = self._positions(pair[1], len(values), older.extent)
            check_form(not positions or values == range(len(values)), "the range of a combined axis")
            owner = built[whole(grid, 0, len(built) - 1)]
            result.append(Axis(owner, whole(place, 0, 1 << 20), values, name, positions))
        for grid, numbers in zip(built, grids, strict=True):
            item = tuple(result[whole(n, 0, len(result) - 1)] for n in listed(numbers))
            check_form(all(axis.grid is grid for axis in item), "the axes of a grid")
            grid.axes = item
        check_form(all(axis in axis.grid.axes or axis.ancestors for axis in result), "an axis without a grid")
        return result

    def _positions(self, number: Plain, length: int, extent: int) -> np.ndarray:
        array = self._integers(number)
        check_form(array.ndim == 1 and len(array) == length, "the positions of a combined axis")
        check_form(not length or (int(array.min()) >= 0 and int(array.max()) < extent), "a position along an axis")
        return array

    def _integers(self, number: Plain) -> np.ndarray:
        array = self._values.array(number)
        check_form(array.dtype in (np.int32, np.int64), "a table of integers")
        return array

    def axis(self, number: Plain) -> Axis:
        """An axis by its number."""
        return self._axes[whole(number, 0, len(self._axes) - 1)]

    def axes(self, plain: Plain) -> tuple[Axis, ...]:
        """Axes by their numbers, each once and in order, none of which another stands for."""
        result = tuple(self.axis(item) for item in listed(plain))
        keys = [axis.sort_key for axis in result]
        check_form(all(a < b for a, b in itertools.pairwise(keys)), "the order of axes")
        older = {before for axis in result for before in axis.ancestors}
        check_form(not older & {*result}, "an axis that is there twice")
        return result

    def index(self, plain: Plain) -> Index:
        """An index."""
        offset, shape, strides, symbols, tables = listed(plain, 5)
        sizes = _shape(shape)
        steps = tuple(whole(n, -_LARGEST, _LARGEST) for n in listed(strides, len(sizes)))
        pairs = [listed(item, 2) for item in listed(symbols)]
        coefficients = {self.axis(axis): whole(number, -_LARGEST, _LARGEST) for axis, number in pairs}
        check_form(len(coefficients) == len(pairs), "a symbol that is there twice")
        read = tuple(self._table(item, sizes) for item in listed(tables))
        index = Index(whole(offset, -_LARGEST, _LARGEST), sizes, steps, sorted_symbols(coefficients), read)
        axes = {*index.axes}
        check_form(not {older for axis in axes for older in axis.ancestors} & axes, "a symbol that is there twice")
        return index

    def _table(self, plain: Plain, shape: tuple[int, ...]) -> Table:
        keys, number, scale = listed(plain, 3)
        named: list[Key] = []
        for item in listed(keys):
            place = whole(item, -_LARGEST, len(shape) - 1)
            named.append(place if place >= 0 else self.axis(-1 - place))
        array = self._integers(number)
        extents = tuple(shape[key] if isinstance(key, int) else key.extent for key in named)
        check_form(0 < len(named) == len(set(named)) and array.shape == extents, "the keys of a table")
        return Table(tuple(named), unwritable(array), whole(scale, -_LARGEST, _LARGEST))

    def bounds(self, index: Index) -> tuple[int, int] | None:
        """The least and greatest value of an index, if it has any."""
        tabled = [key for table in index.tables for key in table.keys]
        if len(set(tabled)) < len(tabled) or any(index.coefficient(key) for key in tabled):
            # Then all of them are looked at together.
            together = math.prod(index.extent(key) for key in set(tabled))
            check_form(together <= _MOST_TOGETHER, "an index of too many positions")
        return index.bounds()

    def check_within(self, index: Index, size: int, what: str) -> None:
        """See that an index names positions from 0 up to a size alone."""
        ends = self.bounds(index)
        check_form(ends is None or (ends[0] >= 0 and ends[1] < size), f"{what} outside of its bounds")

    def _read_rows(self, plain: Plain) -> Rows:
        axes, number = listed(plain, 2)
        item, counts = self.axes(axes), self._values.array(number)
        check_form(counts.dtype.kind == "u" and counts.ndim == 1, "the lengths of rows")
        check_form(len(counts) == math.prod(axis.extent for axis in item), "the number of rows")
        return Rows(item, counts)

    def rows(self, number: Plain) -> Rows | None:
        """Rows by their number, if there are any."""
        return None if number is None else self._rows[whole(number, 0, len(self._rows) - 1)]

    def variable(self, number: Plain) -> Variable:
        """A variable by its number."""
        return self._variables[whole(number, 0, len(self._variables) - 1)]

    def _patchwork(self, plain: Plain) -> Patchwork:
        dtype, shape, patches = listed(plain, 3)
        sizes, read = _shape(shape), []
        for item in listed(patches):
            variable, value, index, places = listed(item, 4)
            source = None if variable is None else self.variable(variable)
            number = self._values.value(value)
            patch = Patch(source, number, self.index(index), self.index(places))
            check_form(patch.index.shape == patch.places.shape and patch.places.size > 0, "the shape of a patch")
            check_form(not patch.index.axes and not patch.places.axes, "a patch with symbols")
            check_form((source is None) == isinstance(number, np.generic), "a patch of padding")
            kind = number.dtype if source is None else source.dtype
            check_form(dtype_name(kind) == dtype, "the dtype of a patch")
            self.check_within(patch.index, 1 if source is None else source.size, "a patch")
            self.check_within(patch.places, math.prod(sizes), "the places of a patch")
            read.append(patch)
        check_form(math.prod(sizes) < _LARGEST and (bool(read) or not math.prod(sizes)), "the patches of a patchwork")
        kind = read[0].variable.dtype if read and read[0].variable is not None else None
        kind = kind or (read[0].value.dtype if read else dtype_named(dtype))
        return Patchwork(self._graph, kind, sizes, tuple(read))

    def source(self, number: Plain) -> Source:
        """A variable or a patchwork by its number."""
        place = whole(number, -len(self._patchworks), len(self._variables) - 1)
        return self._variables[place] if place >= 0 else self._patchworks[-1 - place]

    def tensor(self, plain: Plain) -> Tensor:
        """A view, of elements that are there."""
        source, index, rows, dimension = listed(plain, 4)
        viewed, item = self.source(source), self.index(index)
        self.check_within(item, viewed.size, "a view")
        lengths = self.rows(rows)
        place = whole(dimension, 0, max(0, item.ndim - 1))
        if lengths is not None:
            check_form(item.ndim > place and item.shape[place] == lengths.total, "the rows of a view")
            check_form(not {*item.axes} & {*lengths.axes}, "the axes of rows")
        return Tensor(viewed, item, lengths, place)
