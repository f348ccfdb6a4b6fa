"""The tiles of elements: of each variable the stretches of elements that lie on one tile.

A graph has thousands of millions of elements, and most variables lie on their tiles in ranges or blocks. So a variable
is held by its stretches, where these are long, and by a tile for each of its elements otherwise.
"""

from __future__ import annotations

import functools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np

from codelet.graphs.linear import linear_stops
from codelet.views.sources import Variable
from lowering.plan.plan import Plan
from lowering.plan.runs import NONE, Runs, stretches

_FIRST = attrgetter("first_element")

_LONG = 8
"""Stretches of so many elements in the mean are held as such."""

_FEW = 16
"""A variable's tiles are listed where more than one in so many of its elements are asked for."""


def tile_dtype(num_tiles: int) -> type[np.signedinteger]:
    """Of numbers of tiles: a graph has hundreds of millions of elements, each with one."""
    return np.int16 if num_tiles <= np.iinfo(np.int16).max else np.int32


@dataclass(frozen=True, eq=False)
class VariableTiles:
    """The tile of each element of a variable, -1 for none.

    Attributes:
        size: how many elements there are.
        tiles: of each stretch of elements on one tile, or of each element.
        stops: one more than the position of the last of each stretch, which begins where the one before ends; None
            where `tiles` has an entry for each element.
    """

    size: int
    tiles: np.ndarray
    stops: np.ndarray | None = None

    @classmethod
    def of(cls, tiles: np.ndarray) -> VariableTiles:
        """Held in the shorter way.

        Args:
            tiles: of each element; the array is kept.
        """
        runs, own = stretches(tiles)
        return cls(len(tiles), tiles) if _LONG * len(own) > len(tiles) else cls.of_stretches(runs.stops, own)

    @classmethod
    def of_stretches(cls, stops: np.ndarray, tiles: np.ndarray) -> VariableTiles:
        """Held in the shorter way, of the maximal stretches of elements on one tile.

        Args:
            stops: where each ends.
            tiles: of each.
        """
        size = int(stops[-1]) if len(stops) else 0
        if _LONG * len(tiles) > size:
            return cls(size, np.repeat(tiles, np.diff(stops, prepend=0)))
        return cls(size, tiles, stops.astype(np.int32 if size < 1 << 31 else np.int64))

    @classmethod
    def nowhere(cls, size: int, dtype: Any) -> VariableTiles:
        """Of elements none of which has a tile."""
        return cls.of_stretches(np.full(min(1, size), size), np.full(min(1, size), -1, dtype))

    def values(self) -> np.ndarray:
        """The tile of each element, of shape (size,); not to be written to."""
        return self.tiles if self.stops is None else np.repeat(self.tiles, np.diff(self.stops, prepend=0))

    def stretches(self) -> tuple[Runs, np.ndarray]:
        """The maximal stretches of elements on one tile, side by side, and the tile of each."""
        if self.stops is None:
            return stretches(self.tiles)
        if not self.size:
            return NONE, self.tiles
        stops = self.stops.astype(np.int64)
        return Runs(np.append(0, stops[:-1]), stops), self.tiles

    def at(self, positions: np.ndarray) -> np.ndarray:
        """The tiles of elements at some positions."""
        if self.stops is None:
            return self.tiles[positions]
        if _FEW * positions.size > self.size:
            return self.values()[positions]
        return self.tiles[np.searchsorted(self.stops, positions, side="right")]

    def counts(self, num_tiles: int) -> np.ndarray:
        """How many elements each tile has, int64 of shape (num_tiles,)."""
        runs, tiles = self.stretches()
        lived = tiles >= 0
        # Sums of integers below 2**53, which floats hold exactly.
        return np.bincount(tiles[lived], runs.lengths[lived], num_tiles).astype(np.int64)

    def is_same(self, other: VariableTiles) -> bool:
        """Whether all elements are on the same tiles."""
        if self.tiles is other.tiles and self.stops is other.stops:
            return True
        if self.stops is None or other.stops is None:  # how they are held depends on the tiles alone
            return self.stops is other.stops and np.array_equal(self.tiles, other.tiles)
        return np.array_equal(self.tiles, other.tiles) and np.array_equal(self.stops, other.stops)


def on_tiles_in_order(size: int, num_tiles: int, *, grain: int, least: int) -> VariableTiles:
    """A variable mapped linearly; arguments as of `linear_stops`."""
    stops = np.array(linear_stops(size, num_tiles, grain=grain, least=least), np.int64)
    return VariableTiles.of_stretches(stops, np.arange(len(stops), dtype=tile_dtype(num_tiles)))


def in_order(variables: Iterable[Variable]) -> list[Variable]:
    """Variables in the order of their elements."""
    return sorted(variables, key=_FIRST)


def elements_by_variable(
    variables: Sequence[Variable], elements: np.ndarray
) -> Iterator[tuple[Variable, np.ndarray | slice, np.ndarray]]:
    """Elements by their variables: which of them, in order, and their positions there; not those of no variable.

    Args:
        variables: of which, in the order of their elements.
        elements: by the graph's numbers, of shape (elements,).
    """
    if not len(elements):
        return
    least, most = int(elements.min()), int(elements.max())
    near = variables[max(0, bisect_right(variables, least, key=_FIRST) - 1) : bisect_right(variables, most, key=_FIRST)]
    if len(near) == 1 and near[0].first_element <= least and most < near[0].first_element + near[0].size:
        yield near[0], slice(None), elements - near[0].first_element
    elif near:
        owners = np.searchsorted([own.first_element for own in near], elements, side="right") - 1
        by_owner = np.argsort(owners, kind="stable")
        ends = np.searchsorted(owners[by_owner], np.arange(len(near) + 1))
        for variable, start, stop in zip(near, ends[:-1], ends[1:], strict=True):
            chosen = by_owner[start:stop]
            positions = elements[chosen] - variable.first_element
            inside = positions < variable.size
            if inside.any():
                yield variable, chosen[inside], positions[inside]


class ElementTiles:
    """The tile of each element of a plan, by the graph's numbers; -1 for the numbers between variables.

    `numpy.asarray` gives all of them as one array.

    Args:
        count: one more than the greatest number of an element, and then one.
        by_variable: the tiles of the elements of each variable.
        dtype: of tiles.
    """

    def __init__(self, count: int, by_variable: Mapping[Variable, VariableTiles], dtype: Any):
        self._count, self._by_variable, self.dtype = count, by_variable, np.dtype(dtype)

    @functools.cached_property
    def _variables(self) -> list[Variable]:
        return in_order(self._by_variable)

    @classmethod
    def of(cls, plan: Plan, tiles: np.ndarray) -> ElementTiles:
        """Held by variables.

        Args:
            plan: of which.
            tiles: of each number of an element; the array is copied.
        """
        tiles = np.array(tiles)
        cut = {v: VariableTiles.of(tiles[v.first_element : v.first_element + v.size]) for v in plan.variables}
        return cls(len(tiles), cut, tiles.dtype)

    def __len__(self) -> int:
        return self._count

    def of_variable(self, variable: Variable) -> VariableTiles:
        """The tiles of the elements of a variable."""
        own = self._by_variable.get(variable)
        return VariableTiles.nowhere(variable.size, self.dtype) if own is None else own

    def __getitem__(self, elements: Any) -> np.ndarray:
        """The tiles of some elements: in an array of any shape, or one."""
        numbers = np.asarray(elements)
        flat = numbers.reshape(-1)
        found = np.full(len(flat), -1, self.dtype)
        for variable, chosen, positions in elements_by_variable(self._variables, flat):
            found[chosen] = self._by_variable[variable].at(positions)
        return found.reshape(numbers.shape)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        found = np.full(self._count, -1, self.dtype if dtype is None else dtype)
        for variable, own in self._by_variable.items():
            found[variable.first_element : variable.first_element + variable.size] = own.values()
        return found
