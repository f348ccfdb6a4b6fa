"""Tiles: which exist, which elements a user maps to which of them, and which are to be on one tile or on several."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from codelet.errors import (
    PlacementError,
    TileError,
)
from codelet.graphs.connect import own_tensor
from codelet.graphs.linear import linear_tiles
from codelet.graphs.variables import Variables
from codelet.schema import are_wholes, is_index
from codelet.views.grids import Axis, common_axes, union_axes
from codelet.views.index import Index, as_index
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor, views_padding

if TYPE_CHECKING:
    from codelet.graphs.graph import Graph


class TileMapping(NamedTuple):
    """Tiles given to the elements of a view, both over the same axes."""

    tensor: Tensor
    tile: Index


class Constraint(NamedTuple):
    """The views to be on one tile, or on tiles apart, at each position of some axes.

    Attributes:
        is_together: whether all elements of the views lie on one tile; else no two views have elements on one.
        tensors: the views.
        axes: of their symbols.
    """

    is_together: bool
    tensors: tuple[Tensor, ...]
    axes: tuple[Axis, ...]

    def elements(self) -> list[np.ndarray]:
        """The elements of each view, by the graph's numbers: of shape (positions, elements)."""
        found = []
        for tensor in self.tensors:
            numbers = tensor.elements(self.axes)
            extents = [axis.extent for axis in self.axes]
            numbers = np.broadcast_to(numbers, (*extents, *tensor.shape))
            found.append(numbers.reshape(math.prod(extents), -1))
        return found

    def __str__(self) -> str:
        return f"graph.place({'together' if self.is_together else 'apart'}=[{', '.join(map(str, self.tensors))}])"


def tile_index(tile: object) -> Index:
    """A tile as an index.

    Raises:
        TileError: something that is none.
    """
    index = as_index(tile)
    if index is None:
        raise TileError(
            "a tile is not an integer",
            given=repr(tile),
            expected="an integer, an index expression, or an integer array over the grid",
        )
    return index


class Tiles:
    """The tiles of a graph's target, and the mappings by hand.

    Attributes:
        mappings: in the order in which they were given: later ones replace earlier ones.
        constraints: in the order in which they were given.
        num_tiles: known once a tile is checked, so that a target is asked for only then; 0 before.
    """

    def __init__(self, graph: Graph):
        self._graph = graph
        self.mappings: list[TileMapping] = []
        self.constraints: list[Constraint] = []
        self.num_tiles = 0

    def check(self, low: int, high: int) -> None:
        """See that tiles from `low` to `high` exist.

        Raises:
            TileError: naming one that does not.
        """
        self.num_tiles = self._graph.target.num_tiles
        if low < 0 or high >= self.num_tiles:
            raise TileError(
                "a tile does not exist",
                given=low if low < 0 else high,
                expected=f"0 to {self.num_tiles - 1}, on {self._graph.target}",
                fix=f"for each i of n, `i % {self.num_tiles}` deals them out to the tiles in turn, and "
                f"`i * {self.num_tiles} // n` in blocks",
            )

    def named(self, tensor: Tensor | str) -> Tensor:
        """A view of the graph, or the variable of a name.

        Raises:
            TileError: something else.
            ForeignGraphError: a view of another graph.
        """
        own = self._graph.variable(tensor) if isinstance(tensor, str) else tensor
        if not isinstance(own, Tensor):
            raise TileError(
                "what is mapped to tiles is not a tensor",
                given=repr(own),
                expected="what graph.add_variable or graph.variable returns, or a view of it",
            )
        return own_tensor(self._graph, own)

    def _unpadded(self, tensor: Tensor | str) -> Tensor:
        named = self.named(tensor)
        if named.rows is not None or views_padding(named):
            raise TileError(
                f"{'ragged rows' if named.rows is not None else 'padding'} cannot be placed",
                given=named,
                expected="a view of elements of variables, as many for each position",
            )
        return named

    def constrain(self, tensors: Sequence[Tensor | str], *, is_together: bool) -> None:
        """Constrain views to be on one tile, or on tiles apart; see `Graph.place`."""
        what = "together" if is_together else "apart"
        if isinstance(tensors, (str, Tensor)) or not isinstance(tensors, Sequence) or not tensors:
            raise PlacementError(
                f"`{what}=` of graph.place is no list of tensors",
                given=repr(tensors),
                expected="views or names of variables of this graph",
                fix=f"graph.place({what}=[x[i], y[i]])",
            )
        views = tuple(self._unpadded(tensor) for tensor in tensors)
        num_tiles = self._graph.target.num_tiles
        if not is_together and len(views) > num_tiles:
            raise PlacementError(
                "more views are to be apart than there are tiles",
                given=f"{len(views):,} views",
                expected=f"at most {num_tiles:,}, on {self._graph.target}",
                fix="put some of them together",
            )
        axes = common_axes([axis for view in views for axis in view.axes])
        self.constraints.append(Constraint(is_together, tuple(view.over(axes) for view in views), axes))

    def map_linearly(self, tensor: Tensor | str, tiles: object, grain: int, least: int) -> None:
        """Lay the elements of a view on tiles in order; see `Graph.map_linearly`."""
        view = self._unpadded(tensor)
        count = self._graph.target.num_tiles
        if tiles is None:
            names = np.arange(count)
        elif is_index(tiles):
            names = np.arange(int(tiles))  # type: ignore[call-overload]
        elif are_wholes(tiles, 0):
            names = np.array([int(tile) for tile in tiles], np.int64)  # type: ignore[union-attr]
        else:
            raise TileError(
                "`tiles=` says no tiles",
                given=repr(tiles),
                expected="how many to use, from tile 0 on, or the numbers of tiles in order",
            )
        if view.axes:
            raise TileError(
                "a view with symbols cannot be laid out in order",
                given=view,
                expected="a view without symbols",
                fix="graph.map_linearly(x), or graph.set_tile_mapping(x[i], ...) for an expression of the symbols",
            )
        if not len(names):
            raise TileError("there is no tile to lay elements on", given=repr(tiles), expected="one tile at least")
        self.check(int(names.min()), int(names.max()))
        laid = linear_tiles(view.size, len(names), grain=grain, least=least)
        self.map(view, names[laid].astype(np.int32).reshape(view.shape))

    def map(self, tensor: Tensor | str, tile: object) -> None:
        """Say on which tiles the elements of a view live; see `Graph.set_tile_mapping`."""
        tensor = self.named(tensor)
        index = tile_index(tile)
        named = {symbol for axis in tensor.axes for symbol in (axis, *axis.ancestors)}
        stray = set(index.axes) - {axis for symbol in named for axis in (symbol, *symbol.grid.axes)}
        if stray:
            raise TileError(
                "a tile mapping has a symbol that its tensor does not have",
                given=f"{index} for {tensor}",
                expected="symbols of the view that is mapped",
                fix="map a view by the symbol, as in graph.set_tile_mapping(x[i], i // 4)",
            )
        axes = common_axes((*tensor.axes, *index.axes))
        tensor, index = tensor.over(axes), index.over(axes).without_idle_symbols()
        if tensor.rows is not None and not index.shape:
            shape: list[int] = [1] * tensor.ndim
            shape[tensor.ragged_dimension] = tensor.rows.total
            index = index.spread(tensor.rows).rekeyed({0: tensor.ragged_dimension}, tuple(shape))
            index = index.broadcast_to(tensor.shape)
        if index.shape not in ((), tensor.shape):
            raise TileError(
                "a tile mapping does not fit its tensor",
                given=f"an array of shape {index.shape}",
                expected=f"a tile, or an array of shape {tensor.shape}: a tile for each element",
            )
        if views_padding(tensor):
            raise TileError(
                "a tile mapping names padding, which is an element of no variable and lives nowhere",
                given=tensor,
                expected="a view of elements of variables alone",
                fix="map the tensor that was padded",
            )
        if (ends := index.bounds()) is not None:
            self.check(*ends)
        self.mappings.append(TileMapping(tensor, index.broadcast_to(tensor.shape)))

    def of_elements(self, variables: Variables) -> np.ndarray:
        """The tile of every element, by the graph's number for it; -1 where none is given."""
        tiles = np.full(variables.num_elements, -1, np.int32)
        for tensor, tile in self.mappings:
            axes = union_axes([tensor.index.axes, tile.axes])
            keys, source = (*axes, *range(tensor.ndim)), tensor.source
            if (
                isinstance(source, Variable)
                and tensor.size
                and tensor.index.is_one_to_one
                and axes == tensor.index.axes
            ):
                own = tiles[source.first_element : source.first_element + source.size]
                tensor.index.strided_view(own, keys)[...] = tile.values_over(keys, np.int32)
            else:
                tiles[tensor.elements(axes)] = tile.values_over(keys, np.int32)
        for constant, destination in variables.copied.values():
            own = constant.elements()
            if self.mappings and (tiles[own] < 0).all():
                first = destination.elements().reshape(-1)[:1] if isinstance(destination, Tensor) else []
                tiles[own] = max(0, *tiles[first], 0)
        return tiles
