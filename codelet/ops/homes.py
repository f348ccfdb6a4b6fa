"""Homes: over which tiles an array is spread that operations of a graph have read or written.

A tensor that nothing has touched yet may live on the tiles that read it: the placement puts it there. A tensor that one
compute set has written, or read by blocks of its own, lies where that has it. The next one that cuts it likewise
receives nothing, any other receives its blocks. So planners that know the homes of operands count the exchange between
operations.

A home is the block of a tile along each dimension, on tiles one after another, the last dimension fastest.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from codelet.graphs.graph import Graph
from codelet.graphs.stages import Cut
from codelet.ops.ways import Ways
from codelet.views.sources import Patchwork, Variable, source_variables
from codelet.views.tensor import Tensor

Home = tuple[int, ...]
"""The block of a tile along each dimension; none at all where it is not known."""

ELSEWHERE: Home = ()
"""On tiles that no way to cut an array is known to meet."""

Grid = tuple[tuple[int, int], ...]
"""Extents and blocks, from the last dimension, neighbours joined where that leaves the blocks: whatever the shape."""

_GRIDS: WeakKeyDictionary[Graph, dict[int, Grid]] = WeakKeyDictionary()
"""Of the variables of each graph, by number; none of those that nothing has touched."""


def _grid_of(shape: Sequence[int], blocks: Sequence[int]) -> Grid:
    found: list[tuple[int, int]] = []
    for extent, block in reversed([pair for pair in zip(shape, blocks, strict=True) if pair[0] != 1]):
        last = found[-1] if found else None
        if last is not None and last[1] >= last[0]:
            found[-1] = extent * last[0], block * last[0]
        elif last is not None and block == 1 and last[0] % last[1] == 0:
            found[-1] = extent * last[0], last[1]
        else:
            found.append((extent, block))
    return tuple(found)


def stretch(extents: Sequence[int], blocks: Sequence[int]) -> int | None:
    """The block of a tile along an array that is cut so, as one dimension; None where tiles have no stretches of it."""
    grid = _grid_of(extents, blocks)
    return grid[0][1] if len(grid) == 1 else None if grid else 1


def _blocks_along(grid: Grid, shape: Sequence[int]) -> Home:
    """The blocks of a grid along the dimensions of a shape; `ELSEWHERE` where they are none."""
    if grid == _NOWHERE:
        return ELSEWHERE
    left, blocks = list(grid), []
    for extent in reversed(shape):
        if extent == 1:
            blocks.append(1)
            continue
        if not left or left[0][0] % extent:
            return ELSEWHERE
        whole, block = left[0]
        if whole > extent and block % extent and extent % block:
            return ELSEWHERE
        blocks.append(min(extent, block))
        left[0] = whole // extent, max(1, block // extent)
        if left[0][0] == 1:
            left.pop(0)
    return tuple(reversed(blocks))


def _order(tensor: Tensor) -> list[int] | None:
    """The dimensions of a tensor in the order in which they lie; None where it is not all of one variable."""
    source = tensor.source
    if not isinstance(source, Variable) or tensor.size != source.size or not tensor.index.is_strided:
        return None
    strides = tensor.index.strides
    order = sorted(range(tensor.ndim), key=lambda d: (-strides[d], tensor.shape[d] > 1))
    due = 1
    for d in reversed(order):
        if tensor.shape[d] > 1 and strides[d] != due:
            return None
        due *= tensor.shape[d]
    return order


def _follow_memory(shape: Sequence[int], blocks: Sequence[int], order: Sequence[int]) -> bool:
    """Whether blocks of dimensions that lie in an order are on the same tiles as if they were cut in that order."""
    cut = [d for d in order if blocks[d] < shape[d]]
    return cut == sorted(cut)


def home_of(tensor: Tensor) -> Home | None:
    """Where a tensor lies; None where it may lie with its reader."""
    grids = _GRIDS.get(tensor.graph)
    if grids is None:
        return None
    if isinstance(tensor.source, Patchwork):
        return ELSEWHERE if any(own.number in grids for own in source_variables(tensor.source)) else None
    grid = grids.get(tensor.source.number)
    if grid is None:
        return None
    order = _order(tensor)
    found = ELSEWHERE if order is None else _blocks_along(grid, [tensor.shape[d] for d in order])
    if not found or order is None:
        return ELSEWHERE
    blocks = tuple(found[order.index(d)] for d in range(tensor.ndim))
    return blocks if _follow_memory(tensor.shape, blocks, order) else ELSEWHERE


_NOWHERE: Grid = ((0, 1),)
"""A grid that is along no dimensions."""


def settle(tensor: Tensor, blocks: Sequence[int] | None = None) -> None:
    """Note that a tensor has been touched: read, or written.

    Args:
        tensor: of one variable, else nothing is noted.
        blocks: those of the tiles that touched it, along its dimensions; None where they are of no such form.
    """
    if not isinstance(tensor.source, Variable):
        return
    grid, order = _NOWHERE, _order(tensor)
    if blocks is not None and order is not None and _follow_memory(tensor.shape, blocks, order):
        grid = _grid_of([tensor.shape[d] for d in order], [blocks[d] for d in order])
    _GRIDS.setdefault(tensor.graph, {})[tensor.source.number] = grid


def settle_read(tensor: Tensor, cuts: Sequence[Cut], axes: Sequence[int]) -> None:
    """Note that a tensor has been read block by block: elements that nothing had touched live with their only reader.

    Args:
        tensor: the tensor that is read, with the axes.
        cuts: of all dimensions of a grid.
        axes: those that the tensor has, in order.
    """
    if home_of(tensor) is None and not _is_shared(cuts, axes):
        settle(tensor, [cuts[a].block for a in axes] if _is_in_order(cuts, axes) else None)


class Moved(NamedTuple):
    """Elements of an array that move between tiles: the most that a tile receives, and the most that one sends.

    Both are columns over ways to cut the reader of the array, int64.
    """

    received: np.ndarray
    sent: np.ndarray


def _is_shared(cuts: Sequence[Cut], axes: Sequence[int]) -> bool:
    return any(cut.parts > 1 for a, cut in enumerate(cuts) if a not in axes)


def _is_in_order(cuts: Sequence[Cut], axes: Sequence[int]) -> bool:
    """Whether blocks follow one another on the tiles as an array's dimensions do."""
    return _follow_memory([cut.extent for cut in cuts], [cut.block for cut in cuts], axes)


@functools.lru_cache(maxsize=1 << 14)
def _moved_in_order(home: Home, extents: tuple[int, ...], blocks: tuple[int, ...]) -> tuple[int, int]:
    """The elements received and sent by tiles that read blocks one after another of blocks on other tiles."""
    theirs, ours = _grid_of(extents, home), _grid_of(extents, blocks)
    if theirs == ours:
        return 0, 0
    if len(theirs) != 1 or len(ours) != 1:
        return math.prod(blocks), math.prod(home)
    # Stretches: of each tile there are some elements that it has and reads.
    (extent, held), (_, read) = theirs[0], ours[0]
    tiles = np.arange(-(-extent // min(held, read)))
    starts, stops = (np.minimum(extent, np.multiply.outer((held, read), tiles + k)) for k in (0, 1))
    there = np.maximum(0, stops.min(axis=0) - starts.max(axis=0))
    most = (stops - starts - there).max(axis=1)
    return int(most[1]), int(most[0])


def moved_elements(home: Home | None, ways: Ways, axes: Sequence[int]) -> Moved:
    """The movement where blocks of an array are read.

    Args:
        home: where it lies.
        ways: to cut all dimensions of the grid of blocks.
        axes: those that the array has, in order.
    """
    own, count = list(axes), len(ways)
    shared = (np.delete(ways.parts, own, axis=0) > 1).any(axis=0)
    block = ways.blocks[own].prod(axis=0)
    if home is None:
        return Moved(np.where(shared, block, 0), np.zeros(count, np.int64))
    received, sent = block, np.where(shared, math.prod(home) if home else 0, math.prod(home))
    moves = [(a, b) for k, a in enumerate(own) for b in own[k + 1 :] if b < a]
    if home:
        there = ~shared
        for a, b in moves:  # blocks of these follow one another otherwise than the array does
            there = there & ~((ways.parts[a] > 1) & (ways.parts[b] > 1))
        extents, places = tuple(ways.extents[own, :1].ravel().tolist()), np.flatnonzero(there)
        found = [_moved_in_order(home, extents, tuple(each)) for each in ways.blocks[own][:, places].T.tolist()]
        received[places], sent[places] = np.array(found, np.int64).reshape(-1, 2).T
    return Moved(received, sent)
