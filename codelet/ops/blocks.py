"""Blocks: dimensions cut over tiles and over the vertices of each tile, and the vertices added block by block.

In come the cuts of a grid of elements and a codelet that makes a block of any size; vertices are added for all blocks:
one family for those of full size, and where no number of vertices divides a dimension one more for those at its end.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block, Cut, Stage
from codelet.tracing.codelets import Codelet
from codelet.views.symbols import grid


def whole(name: str, extent: int) -> Cut:
    """A dimension that is not cut."""
    return Cut(name, extent, max(1, extent), max(1, extent))


def near(extent: int, size: int) -> int:
    """A block of about so many elements: one that divides a dimension where one is from 0.7 to 1.4 times as large.

    Then all vertices are alike, and none at the end is smaller.

    >>> near(4096, 11), near(9216, 11), near(13, 11), near(8, 11)
    (8, 12, 13, 8)
    """
    size = max(1, min(extent, size))
    divisors = [n for n in range(-(-7 * size // 10), min(extent, 14 * size // 10) + 1) if extent % n == 0]
    return min(divisors, key=lambda n: abs(n - size), default=size)


def cuts_of(dimensions: Iterable[tuple[str, int]], blocks: Iterable[int], grains: Iterable[int]) -> tuple[Cut, ...]:
    """The cuts of dimensions into blocks of about these sizes, each of a whole number of grains.

    Args:
        dimensions: the name of each, and its extent.
        blocks: elements of a tile.
        grains: elements of a vertex; no more than that.
    """
    cuts = []
    for (name, extent), block, grain in zip(dimensions, blocks, grains, strict=True):
        grain = min(grain, block)
        cuts.append(Cut(name, extent, min(-(-block // grain) * grain, max(1, extent)), grain))
    return tuple(cuts)


def num_tiles(cuts: Sequence[Cut]) -> int:
    """How many tiles have a part of a grid."""
    return math.prod(cut.parts for cut in cuts)


def num_vertices(cuts: Sequence[Cut]) -> int:
    """How many vertices a grid is cut into."""
    return math.prod(cut.vertices for cut in cuts)


def _pieces(cut: Cut) -> Iterator[tuple[int, int, int]]:
    """Vertices of one size along a dimension: the first, how many, and their size."""
    full, left = divmod(cut.extent, cut.grain)
    if full:
        yield 0, full, cut.grain
    if left:
        yield full, 1, left


def add_blocks(
    graph: Graph,
    compute_set: str,
    codelet: Codelet,
    cuts: Sequence[Cut],
    fields: Callable[..., Mapping[str, Any]],
    *,
    first_tile: int = 0,
    parts: Sequence[int] | None = None,
) -> None:
    """Add a vertex for every block of a grid of elements. Blocks follow one another on the tiles, the last cut fastest.

    Args:
        graph: where.
        compute_set: the name of one.
        codelet: makes a block, whatever its size; all of its results must be among the fields.
        cuts: of the dimensions, each by another name.
        fields: from a `Block` for each dimension to the vertex's fields.
        first_tile: the tile of the first block.
        parts: over how many tiles each dimension is cut, where another grid that shares the tiles has more.
    """
    over = [cut.parts for cut in cuts] if parts is None else parts
    strides = [math.prod(over[d + 1 :]) for d in range(len(cuts))]
    for pieces in itertools.product(*map(_pieces, cuts)):
        several = {cut.name: n for cut, (_, n, _) in zip(cuts, pieces, strict=True) if n > 1}
        symbols = grid(**several) if several else ()
        by_name = dict(zip(several, symbols if isinstance(symbols, tuple) else (symbols,), strict=True))
        numbers = [first + by_name.get(cut.name, 0) for cut, (first, _, _) in zip(cuts, pieces, strict=True)]
        blocks = [
            Block(number, slice(number * cut.grain, number * cut.grain + size))
            for cut, number, (_, _, size) in zip(cuts, numbers, pieces, strict=True)
        ]
        tile: Any = first_tile
        for cut, number, stride in zip(cuts, numbers, strides, strict=True):
            if cut.parts > 1:
                tile = tile + number // cut.vertices_of_tile * stride
        graph.add_vertex(compute_set, codelet, tile=tile, **fields(*blocks))
    if num_vertices(cuts):
        graph.note_stage(Stage(codelet, tuple(cuts), fields))
