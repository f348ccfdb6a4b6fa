"""A placement: the tile of every element and of every vertex of a plan."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from codelet.errors import TileError
from codelet.graphs.family import Family, counted
from codelet.schema import is_whole
from codelet.target import Target
from codelet.views.sources import Variable
from lowering.machine.element_tiles import ElementTiles, VariableTiles, in_order
from lowering.machine.words import Words, number_words
from lowering.plan.pieces import Pieces, pieces_of, side_by_side
from lowering.plan.plan import Plan


@dataclass(frozen=True)
class Candidate:
    """A placement that was compared with others.

    Attributes:
        way: how it was made.
        cycles: of a run, by the cost model; where it is no better for that alone, what it takes at least.
        num_bytes: of variables on the fullest tile, with what that receives in a step; `None` where that is not known.
        fits: whether the variables fit the tiles.
    """

    way: str
    cycles: int
    num_bytes: int | None = None
    fits: bool = True

    def __str__(self) -> str:
        least, rest = ("at least ", "") if self.num_bytes is None else ("", f", {self.num_bytes:,} bytes")
        return f"{self.way}: {least}{self.cycles:,} cycles{rest}{'' if self.fits else ', out of memory'}"


@dataclass(frozen=True, eq=False)
class Placement:
    """Where everything lives.

    Attributes:
        plan: what was placed.
        num_tiles: tiles of the target; all tile numbers below are less.
        element_tiles: the tile of each element, by the graph's number for it.
        vertex_tiles: for each family of the plan the tile of each vertex, int32 of shape (vertices,), in
            row-major order over the family's axes.
        tried: the placements that were compared, the chosen one first; empty where it was said how to place.
        orders: for each variable whose elements lie on their tiles in another order than their own, the place in that
            order of each of its positions.
    """

    plan: Plan
    num_tiles: int
    element_tiles: ElementTiles
    vertex_tiles: Mapping[Family, np.ndarray]
    tried: tuple[Candidate, ...] = ()
    orders: Mapping[Variable, Pieces] = field(default_factory=dict)

    def tiles_of(self, variable: Variable) -> np.ndarray:
        """The tile of each element of a variable, of shape (size,)."""
        return self.element_tiles.of_variable(variable).values()

    @functools.cached_property
    def laid(self) -> Pieces | None:
        """For each of the graph's numbers that of its place in the order in which elements lie; `None` for the same."""
        if not self.orders:
            return None
        pieces, end = [], 0
        for variable in in_order(self.orders):
            first = variable.first_element
            pieces.append(pieces_of(end, end, first - end))
            pieces.append(self.orders[variable].moved(first, first))
            end = first + variable.size
        pieces.append(pieces_of(end, end, len(self.element_tiles) - end))
        return side_by_side(pieces)

    @functools.cached_property
    def _laid_tiles(self) -> dict[Variable, VariableTiles]:
        return {}

    def laid_tiles_of(self, variable: Variable) -> VariableTiles:
        """The tile of each element of a variable, by its place in the order in which elements lie."""
        own = self.element_tiles.of_variable(variable)
        if variable not in self.orders:
            return own
        if variable not in self._laid_tiles:
            tiles = np.empty(variable.size, self.element_tiles.dtype)
            tiles[self.orders[variable].at(np.arange(variable.size))] = own.values()
            self._laid_tiles[variable] = VariableTiles.of(tiles)
        return self._laid_tiles[variable]

    @functools.cached_property
    def tiles(self) -> np.ndarray:
        """The tiles on which anything lives, rising: int32; the rows of an array of tiles by words of any variable."""
        living = np.zeros(self.num_tiles + 1, bool)  # what has no tile is at the end
        for tiles in self.vertex_tiles.values():
            living[tiles] = True
        for variable in self.plan.variables:
            living[self.element_tiles.of_variable(variable).tiles] = True
        return np.flatnonzero(living[:-1]).astype(np.int32)

    @functools.cached_property
    def _counts(self) -> dict[Variable, np.ndarray]:
        return {}

    def counts_of(self, variable: Variable) -> np.ndarray:
        """How many elements of a variable each tile has, int64 of shape (num_tiles,)."""
        if variable not in self._counts:
            self._counts[variable] = self.element_tiles.of_variable(variable).counts(self.num_tiles)
        return self._counts[variable]

    @functools.cached_property
    def bytes_by_tile(self) -> np.ndarray:
        """What the variables take of each tile, int64 of shape (num_tiles,)."""
        sizes = (self.counts_of(variable) * variable.dtype.itemsize for variable in self.plan.variables)
        return sum(sizes, np.zeros(self.num_tiles, np.int64))

    @functools.cached_property
    def _words(self) -> dict[Variable, Words]:
        return {}

    def words_of(self, variable: Variable) -> Words:
        """Where on its tile each element of a variable lies."""
        if variable not in self._words:
            self._words[variable] = number_words(self.laid_tiles_of(variable), self.tiles, self.orders.get(variable))
        return self._words[variable]

    def __repr__(self) -> str:
        return f"<Placement of {self.plan.graph!r} on {counted(self.num_tiles, 'tile', 'tiles')}>"

    def __str__(self) -> str:
        rows = [f"placement on {counted(self.num_tiles, 'tile', 'tiles')}"]
        for variable in self.plan.variables:
            rows.append(f"  {variable!r}: {_spread_text(self.tiles_of(variable), 'element', 'elements')}")
        for family, tiles in self.vertex_tiles.items():
            what = f"{family.compute_set.name} / {family.codelet.name}"
            rows.append(f"  {what}: {_spread_text(tiles, 'vertex', 'vertices')}")
        if len(self.tried) > 1:
            rows += [f"  {'chosen' if k == 0 else 'tried'} {own}" for k, own in enumerate(self.tried)]
        return "\n".join(rows)


@dataclass(frozen=True, eq=False)
class Changes:
    """What two placements of one plan put on different tiles: variables, some of their elements at least, and families.

    There are none where both are alike.
    """

    variables: frozenset[Variable]
    families: frozenset[Family]

    def __bool__(self) -> bool:
        return bool(self.variables or self.families)


def changes_between(one: Placement, other: Placement) -> Changes:
    """What two placements of one plan put on different tiles."""
    assert one.plan is other.plan
    variables = (
        v
        for v in one.plan.variables
        if one.orders.get(v) is not other.orders.get(v)
        or not one.element_tiles.of_variable(v).is_same(other.element_tiles.of_variable(v))
    )
    families = (own for own, tiles in one.vertex_tiles.items() if not np.array_equal(tiles, other.vertex_tiles[own]))
    return Changes(frozenset(variables), frozenset(families))


def _spread_text(tiles: np.ndarray, one: str, many: str) -> str:
    """How things are spread over tiles: `12 elements on tiles 0 to 3, at most 4 on one`."""
    if not len(tiles):
        return f"no {many}"
    counts = np.bincount(tiles)
    used = np.flatnonzero(counts)
    where = f"tile {used[0]}" if len(used) == 1 else f"{len(used):,} tiles from {used[0]} to {used[-1]}"
    most = "" if len(used) == 1 else f", at most {counts.max():,} on one"
    return f"{counted(len(tiles), one, many)} on {where}{most}"


def num_elements(plan: Plan) -> int:
    """One more than the greatest number of an element of a plan, and then one: the numbers of a graph's elements."""
    return max((variable.first_element + variable.size + 1 for variable in plan.variables), default=0)


def checked_tile(tile: object, target: Target) -> int:
    """The number of a tile that a target has.

    Raises:
        TileError: it has none of that number, or what was given is no integer.
    """
    whole = is_whole(tile)
    if not whole or not 0 <= int(tile) < target.num_tiles:  # type: ignore[call-overload]
        expected = f"{'' if whole else 'an integer, '}0 to {target.num_tiles - 1}, on {target}"
        raise TileError("a tile does not exist", given=repr(tile) if not whole else tile, expected=expected)
    return int(tile)  # type: ignore[call-overload]
