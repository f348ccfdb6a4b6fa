"""Blocks: the vertices of a family cut over the grid of its axes, each block on a tile of its own.

Neighbours of a stencil, and the rows and columns of a matrix product, share a tile then. Into how many parts each axis
is cut is chosen by what the largest block computes and reads: squares for a stencil, whose surface is the least.
PopLibs searches for the partitions of a convolution or a matrix product so, by more terms (`ConvPlan.cpp`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence

import numpy as np

from codelet.graphs.family import Family
from codelet.graphs.linear import linear_tiles
from codelet.graphs.vertex_cycles import family_cycles
from codelet.target import Target
from lowering.machine.balance import load_of
from lowering.machine.footprint import readings_of

TRIED = {1: 64, 2: 40, 3: 12, 4: 6}
"""Numbers of parts tried for an axis, by how many axes are cut: some hundred cuts in all."""


def has_blocks(family: Family) -> bool:
    """Whether the grid of a family has more than one axis to be cut along."""
    return sum(extent > 1 for extent in family.extents) > 1


def block_tiles(extents: Sequence[int], parts: Sequence[int]) -> np.ndarray:
    """The tiles of vertices, each axis cut into parts of nearly equal length: int32 of shape (vertices,).

    >>> block_tiles((4, 6), (2, 2)).reshape(4, 6)
    array([[0, 0, 0, 1, 1, 1],
           [0, 0, 0, 1, 1, 1],
           [2, 2, 2, 3, 3, 3],
           [2, 2, 2, 3, 3, 3]], dtype=int32)
    """
    tiles = np.zeros([1] * len(extents), np.int32)
    for d, (extent, count) in enumerate(zip(extents, parts, strict=True)):
        own = (np.arange(extent) * count // extent).astype(np.int32)
        tiles = tiles * count + own.reshape([-1 if k == d else 1 for k in range(len(extents))])
    return np.ascontiguousarray(np.broadcast_to(tiles, extents)).reshape(-1)


def row_tiles(family: Family, target: Target) -> np.ndarray:
    """The tiles of vertices, rows in order: int32 of shape (vertices,).

    A row is all vertices along the last axes: one at least, and as many as leave a row for each tile.
    """
    extents, cut = family.extents, 1
    while cut < len(extents) - 1 and math.prod(extents[:cut]) < target.num_tiles:
        cut += 1
    rows, inside = math.prod(extents[:cut]), math.prod(extents[cut:])
    least = -(-target.num_workers // max(1, inside))
    return np.repeat(linear_tiles(rows, target.num_tiles, grain=1, least=least), inside)


def _counts(extent: int, most: int, tried: int) -> np.ndarray:
    """Numbers of parts up to `most` to cut an axis into, each the least that gives its length of the parts."""
    found = np.unique(-(-extent // -(-extent // np.arange(1, max(1, min(most, extent)) + 1))))
    if len(found) <= tried:
        return found
    return found[np.unique(np.searchsorted(found, np.geomspace(1, found[-1], tried).round()))]


def _cuts(extents: Sequence[int], num_tiles: int) -> Iterator[tuple[int, ...]]:
    """Into how many parts axes may be cut; the longest of them, where there are many."""
    longest = sorted(range(len(extents)), key=lambda d: (-extents[d], d))[: max(TRIED)]
    longest = sorted(d for d in longest if extents[d] > 1)
    tried = [_counts(extents[d], num_tiles, TRIED[len(longest)]).tolist() for d in longest[:-1]]
    for counts in itertools.product(*tried):
        left = num_tiles // math.prod(counts)
        if left:
            parts = [1] * len(extents)
            for d, count in zip(longest, (*counts, min(left, extents[longest[-1]])), strict=True):
                parts[d] = -(-extents[d] // -(-extents[d] // count))
            yield tuple(parts)


def chosen_parts(family: Family, target: Target) -> tuple[int, ...]:
    """Into how many parts each axis of a family is cut.

    Raises:
        CyclesError: the codelet's own `cycles=` fails.
    """
    workers, extents, count = target.num_workers, family.extents, family.num_vertices
    cycles, readings = family_cycles(family, target), readings_of(family)
    together = any(own.shared for own in cycles.distinct)
    each = cycles.total(count, load_of(workers)) / count
    whole = [reading.num_bytes(extents) for reading in readings]

    def cost(parts: tuple[int, ...]) -> tuple[float, int]:
        block = [-(-extent // own) for extent, own in zip(extents, parts, strict=True)]
        largest, used = math.prod(block), math.prod(parts)
        compute = each * (largest if together else -(-largest // workers) * workers)
        # What lives on the tile itself does not move: an even share of what is read at all.
        moved = sum(
            max(0.0, own.num_bytes(block) - num_bytes / used) for own, num_bytes in zip(readings, whole, strict=True)
        )
        return compute + moved / target.exchange_bytes_per_cycle, used

    most = target.num_tiles if together else min(target.num_tiles, -(-count // workers))
    return min(dict.fromkeys(_cuts(extents, most)), key=cost)
