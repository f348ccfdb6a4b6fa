"""Homes: over which tiles an array is spread that operations of a graph have read or written.

What nothing has touched yet may live on the tiles that read it: the placement puts it there. What one compute set has
written, or read by blocks of its own, lies where that has it: the next one that cuts it likewise receives nothing, any
other receives its blocks. So planners that are told the homes of operands count what is exchanged between operations.

A home is the block of a tile along each dimension, on tiles one after another, the last dimension fastest.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from weakref import WeakKeyDictionary

import codelet as cl
from codelet.ops.blocks import Cut
from codelet.views.sources import Patchwork, Variable, source_variables

Home = tuple[int, ...]
"""The block of a tile along each dimension; none at all where it is not known."""

ELSEWHERE: Home = ()
"""On tiles that no way to cut an array is known to meet."""

Grid = tuple[tuple[int, int], ...]
"""Extents and blocks, from the last dimension, neighbours joined where that leaves the blocks: whatever the shape."""

_GRIDS: WeakKeyDictionary[cl.Graph, dict[int, Grid]] = WeakKeyDictionary()
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


def _blocks_along(grid: Grid, shape: Sequence[int]) -> Home:
    """The blocks of a grid along the dimensions of a shape; `ELSEWHERE` where they are none."""
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


def _whole(tensor: cl.Tensor) -> Variable | None:
    """The variable of which a tensor is all elements in order; None where it is something else."""
    source = tensor.source
    if not isinstance(source, Variable) or tensor.size != source.size or not tensor.index.is_strided:
        return None
    strides = [math.prod(tensor.shape[d + 1 :]) for d in range(tensor.ndim)]
    pairs = zip(tensor.shape, tensor.index.strides, strides, strict=True)
    return source if all(extent == 1 or own == due for extent, own, due in pairs) else None


def home_of(tensor: cl.Tensor) -> Home | None:
    """Where a tensor lies; None where it may lie with what reads it."""
    grids = _GRIDS.get(tensor.graph)
    if grids is None:
        return None
    if isinstance(tensor.source, Patchwork):
        return ELSEWHERE if any(own.number in grids for own in source_variables(tensor.source)) else None
    grid = grids.get(tensor.source.number)
    if grid is None:
        return None
    return ELSEWHERE if _whole(tensor) is None else _blocks_along(grid, tensor.shape)


_NOWHERE: Grid = ((0, 1),)
"""A grid that is along no dimensions."""


def settle(tensor: cl.Tensor, blocks: Sequence[int] | None = None) -> None:
    """Note that a tensor has been touched: read, or written.

    Args:
        tensor: of one variable, else nothing is noted.
        blocks: those of the tiles that touched it, along its dimensions; None where they are of no such form.
    """
    if isinstance(tensor.source, Variable):
        known = blocks is not None and _whole(tensor) is not None
        grid = _grid_of(tensor.shape, blocks) if known and blocks is not None else _NOWHERE
        _GRIDS.setdefault(tensor.graph, {})[tensor.source.number] = grid


def is_at_home(home: Home | None, cuts: Sequence[Cut], axes: Sequence[int]) -> bool:
    """Whether blocks of an array lie where a grid that is cut so reads them.

    Args:
        home: of the array.
        cuts: of all dimensions of the grid.
        axes: those that the array has, in order.
    """
    if any(cut.parts > 1 for a, cut in enumerate(cuts) if a not in axes):
        return False
    return home is None or home == tuple(cuts[a].block for a in axes)
