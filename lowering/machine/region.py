"""Regions: the elements that the tiles touch in a step, where they live, and how many bytes they take.

In come runs of what tiles touch and the variables that these are of. Out comes a numbering of their elements alone,
from 0 on, with a number between variables that is no element: what a step moves is then found and counted among as
many numbers as it touches, however many the graph has.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from codelet.views.sources import Variable
from lowering.machine.element_tiles import in_order
from lowering.machine.placement import Placement
from lowering.plan.pieces import Pieces
from lowering.plan.runs import NONE, Runs, overlaps, union

_SHORT = 4
"""Runs that are shorter on average are cut and counted element by element, which is then faster."""


class Stretches(NamedTuple):
    """Stretches of elements that live on one tile and that another has: arrays of one length.

    Attributes:
        starts: the number of the first element of each.
        stops: one more than that of the last.
        tiles: who has it.
        homes: where it lives, or what is first of it.
    """

    starts: np.ndarray
    stops: np.ndarray
    tiles: np.ndarray
    homes: np.ndarray

    def joined(self, *, by_home: bool = False) -> Stretches:
        """What one tile has of what follows one another as one; not where it lives elsewhere, if that is asked."""
        if not len(self.starts):
            return self
        apart = (self.starts[1:] != self.stops[:-1]) | (self.tiles[1:] != self.tiles[:-1])
        if by_home:
            apart |= self.homes[1:] != self.homes[:-1]
        first = np.append(True, apart)
        return Stretches(self.starts[first], self.stops[np.append(apart, True)], self.tiles[first], self.homes[first])


def _renumbered(runs: Runs, numbers: Pieces, count: int) -> Runs:
    """Runs of `tile * count + number` by what these numbers stand for."""
    tiles = runs.starts // count
    starts = runs.starts - tiles * count
    found = overlaps(starts, starts + runs.lengths, numbers.runs)
    begins = found.starts + numbers.moves[found.second] + tiles[found.first] * count
    return union(begins, begins + found.stops - found.starts)


class Region:
    """The elements of some variables from the first that is touched to the last.

    Attributes:
        placement: where all elements live.
        tiles: who touches each run, rising, int64.
        starts: the number in the region of the first element of each run.
        stops: one more than that of the last.
        num_elements: how many numbers the region has.
        variables: those that are touched, in the order of their elements.
    """

    def __init__(self, touched: Runs, variables: Collection[Variable], placement: Placement):
        self.placement = placement
        count = max(1, len(placement.element_tiles))
        if placement.laid is not None and not placement.orders.keys().isdisjoint(variables):
            touched = _renumbered(touched, placement.laid, count)
        self.tiles = touched.starts // count
        origins = self.tiles * count
        starts, stops = touched.starts - origins, touched.stops - origins
        chosen = in_order(variables) if len(starts) else []
        firsts = np.array([own.first_element for own in chosen], np.int64)
        own = np.searchsorted(firsts, starts, side="right") - 1 if len(chosen) > 1 else np.zeros(len(starts), np.intp)
        low, high = np.full(len(chosen), count), np.zeros(len(chosen), np.int64)
        if len(chosen) == 1:
            low[:], high[:] = starts.min(), stops.max()
        else:
            np.minimum.at(low, own, starts)
            np.maximum.at(high, own, stops)
        touches = low < high
        low, high, chosen = low[touches], high[touches], list(itertools.compress(chosen, touches))
        own = (np.cumsum(touches) - 1)[own]
        self.variables = tuple(chosen)
        self._ends = list(zip(low.tolist(), high.tolist(), strict=True))
        lengths = high - low + 1
        self.num_elements = int(lengths.sum())
        self._firsts = np.cumsum(lengths) - lengths
        self._itemsizes = np.array([own.dtype.itemsize for own in chosen], np.int64)
        self._origins = low - self._firsts
        self.starts, self.stops = starts - self._origins[own], stops - self._origins[own]

    @functools.cached_property
    def stretches(self) -> tuple[Runs, np.ndarray]:
        """Stretches of elements that live on one tile, side by side, and the tile of each, -1 between variables."""
        stops, tiles, end = [], [], 0
        for variable, (low, high) in zip(self.variables, self._ends, strict=True):
            runs, own = self.placement.laid_tiles_of(variable).stretches()
            low, high = low - variable.first_element, high - variable.first_element
            first = int(np.searchsorted(runs.stops, low, side="right"))
            last = int(np.searchsorted(runs.starts, high, side="left"))
            stops += [np.minimum(runs.stops[first:last], high) + (end - low), [end + high - low + 1]]
            tiles += [own[first:last], [-1]]
            end += high - low + 1
        if not stops:
            return NONE, np.zeros(0, np.int32)
        ends = np.concatenate(stops)
        return Runs(np.append(0, ends[:-1]), ends), np.concatenate(tiles).astype(np.int32)

    @functools.cached_property
    def element_tiles(self) -> np.ndarray:
        """The tile of each element, int32; -1 between variables."""
        runs, tiles = self.stretches
        return np.repeat(tiles, runs.lengths)

    def tiles_at(self, elements: np.ndarray) -> np.ndarray:
        """The tiles of some elements, int32."""
        runs, tiles = self.stretches
        if self.is_full(elements) or _SHORT * len(tiles) >= self.num_elements:
            return self.element_tiles[elements]
        return tiles[np.searchsorted(runs.stops, elements, side="right")]

    def sizes(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Bytes of stretches of elements, each of one variable."""
        sizes = self._itemsizes
        if len(sizes) and (sizes == sizes[0]).all():
            return (stops - starts) * sizes[0]
        return (stops - starts) * sizes[np.searchsorted(self._firsts, starts, side="right") - 1]

    def in_graph(self, starts: np.ndarray, stops: np.ndarray, tiles: np.ndarray) -> Runs:
        """Stretches of elements that tiles have, each of one variable, as runs of `tile * count + element`.

        Both the elements and how many there are are the graph's.
        """
        runs, placement = self._laid(starts, stops, tiles), self.placement
        if placement.laid is None or placement.orders.keys().isdisjoint(self.variables):
            return runs
        return _renumbered(runs, placement.laid.inverse(), max(1, len(placement.element_tiles)))

    def _laid(self, starts: np.ndarray, stops: np.ndarray, tiles: np.ndarray) -> Runs:
        """The same, by the places of elements in the order in which they lie."""
        own = np.searchsorted(self._firsts, starts, side="right") - 1
        origins = self._origins[own] + tiles * max(1, len(self.placement.element_tiles))
        return Runs(starts + origins, stops + origins)

    def is_full(self, stretches: np.ndarray) -> bool:
        """Whether so many stretches are counted faster by a flag for each element."""
        return _SHORT * len(stretches) >= self.num_elements

    def away(self, always: np.ndarray | None = None) -> Stretches:
        """What is touched and does not live there.

        Args:
            always: of which tiles all that they touch is given, bool of shape (num_tiles,); default: of none.
        """
        starts, stops, tiles = self.starts, self.stops, self.tiles
        lengths = stops - starts
        if is_long := not len(starts) or lengths.mean() >= _SHORT:
            runs, homes = self.stretches
            found = overlaps(starts, stops, runs)
            starts, stops, own, there = found.starts, found.stops, tiles[found.first], homes[found.second]
        else:
            starts = Runs(starts, stops).numbers()
            stops, own, there = starts + 1, np.repeat(tiles, lengths), self.tiles_at(starts)
        is_away = own != there
        if always is not None:
            is_away |= always[own]
        (chosen,) = np.nonzero(is_away)
        some = Stretches(*(column[chosen] for column in (starts, stops, own, there)))
        return some if is_long else some.joined(by_home=True)

    def by_variable(self, pieces: Stretches) -> dict[Variable, Runs]:
        """Stretches of elements by their variable, as runs of `tile * count + place`, as they lie."""
        starts, stops, tiles, _ = pieces.joined()
        own, runs = np.searchsorted(self._firsts, starts, side="right") - 1, self._laid(starts, stops, tiles)
        found = ((variable, own == k) for k, variable in enumerate(self.variables))
        return {variable: Runs(runs.starts[chosen], runs.stops[chosen]) for variable, chosen in found if chosen.any()}

    def parts(self, paired: Runs) -> Runs:
        """All elements in parts of which all or none are in a set of some."""
        ends = np.stack([paired.starts, paired.stops], axis=1).reshape(-1)
        starts = np.append(0, ends[np.append(ends[:1] > 0, ends[1:] > ends[:-1])])
        return Runs(starts, np.append(starts[1:], self.num_elements))

    def among(self, elements: np.ndarray, paired: Runs) -> np.ndarray:
        """Whether each of some elements is in a set."""
        if self.is_full(elements):
            flags = np.zeros(self.num_elements, bool)
            flags[paired.numbers()] = True
            return flags[elements]
        return np.searchsorted(paired.starts, elements, "right") > np.searchsorted(paired.stops, elements, "right")

    def cut(self, starts: np.ndarray, stops: np.ndarray, parts: Runs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Stretches cut where parts end, in any order: their ends, and of which stretch each is."""
        (one,), (many,) = np.nonzero(stops - starts == 1), np.nonzero(stops - starts > 1)
        found = overlaps(starts[many], stops[many], parts)
        columns = (starts[one], found.starts), (stops[one], found.stops), (one, many[found.first])
        begins, ends, which = map(np.concatenate, columns)
        return begins, ends, which

    def once(self, starts: np.ndarray, stops: np.ndarray, *parts: Runs) -> tuple[np.ndarray, np.ndarray]:
        """Stretches that may overlap: each element once, cut where no stretch, home or part goes on."""
        if not self.is_full(starts):
            # Elements are even numbers and what joins two of them odd ones, so that what only touches stays apart.
            runs = union(2 * starts, 2 * stops - 1)
            starts, stops = runs.starts // 2, runs.stops // 2 + 1
            for own in (self.stretches[0], *parts):
                starts, stops, _ = self.cut(starts, stops, own)
            return starts, stops
        # Flags for each element, and whether it goes on from the one before.
        begins, ends = (np.bincount(own, minlength=self.num_elements + 1) for own in (starts, stops))
        covered = np.cumsum(begins - ends)[:-1] > 0
        joined = np.cumsum(np.append(0, begins[:-1]) - ends)[:-1] > 0
        joined[1:] &= self.element_tiles[1:] == self.element_tiles[:-1]
        for own in parts:
            joined[own.starts] = False
        return np.flatnonzero(covered & ~joined), np.flatnonzero(covered & ~np.append(joined[1:], False)) + 1
