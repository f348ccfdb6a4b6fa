"""Lists of points for each vertex of a family: the points that its fields read, found by several threads."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from codelet.draw.libraries import SHARES, side_by_side
from codelet.draw.link_kernels import collect_sources, unite
from codelet.graphs.edge_blocks import EdgeBlock, blocks_of_field
from codelet.graphs.family import Family, Field

_ROOM = 1 << 22
_MOST = 2**31 - 1


class Points(NamedTuple):
    """For each vertex of a family a list of points, in which none is twice.

    Attributes:
        counts: int32, how many there are for each vertex.
        points: int32, all of them, vertex by vertex.
    """

    counts: np.ndarray
    points: np.ndarray

    @classmethod
    def none(cls, num_vertices: int) -> Points:
        """No points for any vertex."""
        return cls(np.zeros(num_vertices, np.int32), np.zeros(0, np.int32))


class PointLists:
    """Makes lists of points. The points seen by each vertex are remembered in an array for each thread."""

    def __init__(self) -> None:
        self._stamps = [np.zeros(0, np.int32) for _ in range(SHARES)]
        self._epoch = 0

    def expect(self, num_points: int) -> None:
        """Make room for points of numbers below `num_points`."""
        if len(self._stamps[0]) < num_points:
            new = np.full(max(num_points - len(self._stamps[0]), len(self._stamps[0]) // 4), -1, np.int32)
            self._stamps = [np.concatenate([stamp, new]) for stamp in self._stamps]

    def of_field(self, family: Family, field: Field, held: np.ndarray) -> Points:
        """The points that the elements of a field hold; negative numbers are none."""
        counts = np.zeros(family.num_vertices, np.int32)
        epoch = self._next_epoch(family.num_vertices)
        found = [np.zeros(0, np.int32)]
        for block in blocks_of_field(family, field):
            parts = zip(_shares(block, len(self._stamps)), self._stamps, strict=True)
            for own in side_by_side(lambda part: _collected(held, *part, epoch, counts), parts):
                found.extend(own)
        return Points(counts, np.concatenate(found))

    def united(self, lists: Sequence[Points]) -> Points:
        """Several lists for each vertex as one."""
        if len(lists) == 1:
            return lists[0]
        counts = np.zeros(len(lists[0].counts), np.int32)
        ends = np.zeros((len(lists), len(counts) + 1), np.int64)
        for own, row in zip(lists, ends, strict=True):
            np.cumsum(own.counts, out=row[1:])
        ends += np.cumsum([0, *(len(own.points) for own in lists[:-1])])[:, None]
        points = np.concatenate([own.points for own in lists])
        out = np.empty(len(points), np.int32)
        filled = unite(points, ends, self._stamps[0], self._next_epoch(len(counts)), counts, out)
        return Points(counts, out[:filled].copy())

    def _next_epoch(self, num_vertices: int) -> int:
        """A number above all that stamps hold, which stays below their most with a vertex's number on top."""
        if self._epoch + num_vertices > _MOST:
            self._epoch = 0
            for stamp in self._stamps:
                stamp.fill(-1)
        epoch = self._epoch
        self._epoch += num_vertices
        return epoch


def _shares(block: EdgeBlock, count: int) -> Sequence[EdgeBlock]:
    """A block in parts of about as many rows, the rows of each vertex in one of them."""
    places = np.linspace(0, len(block.vertex), count + 1).astype(int)[1:-1]
    cuts = [0, *np.searchsorted(block.vertex, block.vertex[places]), len(block.vertex)]
    parts = []
    for start, stop in pairwise(cuts):
        own = slice(start, stop)
        length = block.length if len(block.length) == 1 else block.length[own]
        parts.append(block._replace(vertex=block.vertex[own], first=block.first[own], length=length))
    return parts


def _collected(
    held: np.ndarray, block: EdgeBlock, stamp: np.ndarray, epoch: int, counts: np.ndarray
) -> list[np.ndarray]:
    """The contents of the elements of a block's edges, in pieces."""
    found = []
    columns = block.vertex, block.first, block.offset, block.length
    # Room for any one row.
    longest = int(block.length.max(initial=0)) * len(block.offset)
    room = np.empty(max(_ROOM, longest), np.int32)
    row = 0
    while row < len(block.vertex):
        row, filled = collect_sources(held, row, *columns, stamp, epoch, counts, room)
        found.append(room[:filled].copy())
    return found
