"""Ways: many ways to cut the dimensions of one grid over tiles and vertices, as columns.

In come the blocks of tiles and the grains of vertices along each dimension, a column of each; out comes over how many
tiles and vertices each of the ways is. A way by itself is a `Cut` of each dimension.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.graphs.stages import Cut


@dataclass(frozen=True, eq=False)
class Ways:
    """Ways to cut the dimensions of a grid, as columns.

    Attributes:
        names: of the dimensions.
        extents: of these, int64 of shape (dimensions, ways).
        blocks: elements of a tile, int64 of shape (dimensions, ways).
        grains: elements of a vertex, of the same shape.
    """

    names: tuple[str, ...]
    extents: np.ndarray
    blocks: np.ndarray
    grains: np.ndarray

    @staticmethod
    def of(names: Iterable[str], extents: np.ndarray, blocks: np.ndarray, grains: np.ndarray) -> Ways:
        """Ways with blocks of about some sizes, each of a whole number of grains, as `cuts_of`."""
        grains = np.minimum(grains, blocks)
        return Ways(tuple(names), extents, np.minimum(-(-blocks // grains) * grains, np.maximum(1, extents)), grains)

    @staticmethod
    def like(ways: Sequence[Sequence[Cut]]) -> Ways:
        """Ways that are cut already."""
        sizes = [[(cut.extent, cut.block, cut.grain) for cut in cuts] for cuts in ways]
        return Ways(tuple(cut.name for cut in ways[0]), *np.array(sizes, np.int64).reshape(len(ways), -1, 3).T)

    @functools.cached_property
    def parts(self) -> np.ndarray:
        """Over how many tiles each dimension is cut."""
        return -(-self.extents // self.blocks)

    @functools.cached_property
    def vertices(self) -> np.ndarray:
        """Into how many vertices each dimension is cut."""
        return -(-self.extents // self.grains)

    @functools.cached_property
    def vertices_of_tile(self) -> np.ndarray:
        """How many of them a tile has, that with the most."""
        return -(-self.blocks // self.grains)

    @functools.cached_property
    def num_tiles(self) -> np.ndarray:
        """How many tiles have a part."""
        return self.parts.prod(axis=0)

    @functools.cached_property
    def num_vertices(self) -> np.ndarray:
        """How many vertices there are."""
        return self.vertices.prod(axis=0)

    def stretches(self, axes: Sequence[int]) -> np.ndarray:
        """In how many stretches the block of a tile lies, of an array whose dimensions are these: all that follow the
        last one that is cut are in one.
        """
        found, is_whole = np.ones(len(self), np.int64), np.ones(len(self), bool)
        for a in reversed(axes):
            found = np.where(is_whole, found, found * self.blocks[a])
            is_whole = is_whole & (self.parts[a] == 1)
        return found

    def __len__(self) -> int:
        return self.blocks.shape[1]

    def at(self, way: int) -> tuple[Cut, ...]:
        """The cuts of one way."""
        sizes = (column[:, way].tolist() for column in (self.extents, self.blocks, self.grains))
        return tuple(Cut(*sizes_of_cut) for sizes_of_cut in zip(self.names, *sizes, strict=True))

    def chosen(self, ways: np.ndarray) -> Ways:
        """Some of them, by number or by flag."""
        return Ways(self.names, self.extents[:, ways], self.blocks[:, ways], self.grains[:, ways])


def product_of(sizes: Any, axes: Iterable[int]) -> Any:
    """The product of the sizes along some dimensions: columns."""
    return functools.reduce(np.multiply, (sizes[a] for a in axes), np.int64(1))


Vertices = tuple[Any, np.ndarray, np.ndarray]
"""How tiles' blocks are cut into vertices: the number of a codelet, grains, and of which blocks it is a way."""


def of_grain(blocks: np.ndarray, grains: Sequence[int], num_workers: int) -> Vertices:
    """Blocks cut into vertices of a grain: where a tile has one for each worker, by the second of two codelets."""
    sizes = np.array(grains, np.int64)[:, None] + 0 * blocks
    alone = (-(-blocks // sizes)).prod(axis=0) >= num_workers
    return np.where(alone, 1, 0), sizes, np.ones(blocks.shape[1], bool)


def ways_of(
    dimensions: Iterable[tuple[str, int | np.ndarray]],
    blocks: np.ndarray,
    vertices: Iterable[Vertices],
    most_tiles: int,
) -> tuple[Ways, np.ndarray, np.ndarray]:
    """The ways to make blocks of tiles by vertices that are on so many tiles at most, those of one block together.

    Args:
        dimensions: the name of each, and its extent: a number, or one for each of the blocks.
        blocks: of tiles, int64 of shape (dimensions, blocks).
        vertices: of each way to make blocks the number of a codelet, grains of the shape of the blocks, and for which
            of them it is one.
        most_tiles: on how many.

    Returns:
        The ways; of each the number of its codelet, and that of its block.
    """
    named, extents = list(dimensions), np.empty_like(blocks)
    for row, (_, extent) in zip(extents, named, strict=True):
        row[:] = extent
    every = [(np.broadcast_to(codelet, flags.shape), grains, flags) for codelet, grains, flags in vertices]
    codelets, grains, flags = (np.array(column) for column in zip(*every, strict=True))
    place, way = np.nonzero(flags.T)
    ways = Ways.of((name for name, _ in named), extents[:, place], blocks[:, place], grains[way, :, place].T)
    fits = np.flatnonzero(ways.num_tiles <= most_tiles)
    return ways.chosen(fits), codelets[way, place][fits], place[fits]
