"""Parts: the elements of a source that one device has, as an array of its own.

A part is a product of positions, a set along each dimension of the source or the one set of its flat form. In come
access maps of the source, out come those of the part: what steps evenly by dimensions still does, since the positions
along each dimension are a stretch, or looked up in a table of those that there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codelet.views.access import Access
from codelet.views.digits import row_major_strides
from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.integers import narrowed
from codelet.views.line import Line, open_grid
from codelet.views.terms import Lookup, Term
from lowering.plan.pieces import Pieces, pieces_of

Positions = range | np.ndarray
"""Positions along a dimension, rising: a stretch, or any."""


@dataclass(frozen=True, eq=False)
class Part:
    """Elements of a source, as an array.

    Attributes:
        shape: that of the source, or of its flat form.
        sets: the positions along each dimension.
        extents: the shape of the array, which may have room for more.
    """

    shape: tuple[int, ...]
    sets: tuple[Positions, ...]
    extents: tuple[int, ...]

    @property
    def size(self) -> int:
        """Of the array."""
        return math.prod(self.extents)

    @property
    def count(self) -> int:
        """How many elements it has."""
        return math.prod(map(len, self.sets))

    def with_positions(self, d: int, positions: Positions, extent: int) -> Part:
        """It with other positions along a dimension, in an array of an extent along it."""
        sets, extents = (
            (*self.sets[:d], positions, *self.sets[d + 1 :]),
            (*self.extents[:d], extent, *self.extents[d + 1 :]),
        )
        return Part(self.shape, sets, extents)

    def pieces(self) -> Pieces:
        """The flat position in the source of what stands at the places of the array, as far as it has any."""
        theirs, own = row_major_strides(self.shape), row_major_strides(self.extents)
        starts, origins, length = np.zeros(1, np.int64), np.zeros(1, np.int64), 1
        is_whole = True
        for d in reversed(range(len(self.shape))):
            positions = self.sets[d]
            if is_whole and isinstance(positions, range):
                length *= len(positions)
                origins = origins + (positions.start if len(positions) else 0) * theirs[d]
                is_whole = len(positions) == self.shape[d] == self.extents[d]
                continue
            is_whole, numbers = False, np.asarray(positions, np.int64)
            starts = (np.arange(len(numbers))[:, None] * own[d] + starts).reshape(-1)
            origins = (numbers[:, None] * theirs[d] + origins).reshape(-1)
        return pieces_of(starts, origins, length)

    @property
    def flat(self) -> Part | None:
        """It by flat positions of the source, where these follow each other as the places of the array do."""
        if len(self.shape) == 1 and isinstance(self.sets[0], range):
            return self
        pieces = self.pieces()
        if len(pieces.starts) > 1 or (len(pieces.starts) and pieces.starts[0]):
            return None
        start = int(pieces.origins[0]) if len(pieces.starts) else 0
        return Part((math.prod(self.shape),), (range(start, start + self.count),), (self.size,))


def whole_part(shape: tuple[int, ...]) -> Part:
    """All of a source."""
    return Part(shape, tuple(map(range, shape)), shape)


# --- access maps of parts -------------------------------------------------------------------------------


def keeps_to_dimensions(index: Index, shape: tuple[int, ...]) -> bool:
    """Whether an access map of an array of a shape is by its dimensions."""
    return index.is_empty or Access.of(index, shape).shape == shape


def _listed(line: Line, held: np.ndarray, extents: Mapping[Key, int]) -> Line:
    """A line by the places of its positions among those that there are."""
    keys = tuple(key for key in extents if key in line.keys)
    shape = tuple(extents[key] for key in keys)
    positions, _ = line.at(open_grid(keys, extents))
    places = narrowed(np.searchsorted(held, np.broadcast_to(positions, shape)))
    return Line(0, tables=(Term(keys, shape, 1, len(held) - 1, Lookup(places, 1, 0)),)) if keys else Line(int(places))


def in_part(index: Index, part: Part) -> Index:
    """The access map of a part, from one of its source, all of whose elements it has.

    Args:
        index: flat positions of the source.
        part: by the dimensions of the source, if the index is, or by its flat form.
    """
    if index.is_empty:
        return Index(0, index.shape, (0,) * index.ndim)
    access = Access.of(index, part.shape)
    assert access.shape == part.shape
    lines = (
        line.moved(-held.start) if isinstance(held, range) else _listed(line, held, access.extents)
        for line, held in zip(access.lines, part.sets, strict=True)
    )
    return replace(access, shape=part.extents, lines=tuple(lines)).index()


# --- parts that hold what is needed ---------------------------------------------------------------------


WASTE = 2
"""So many times what is needed a part of stretches may be larger before positions are listed."""


def part_of(along: Sequence[np.ndarray], shape: tuple[int, ...], may_list: Sequence[bool]) -> Part:
    """The smallest part of stretches that has some elements; or of tables, along dimensions where that is much smaller.

    Args:
        along: the positions along each dimension at which there are any of the elements.
        shape: that of the source, or of its flat form.
        may_list: along which dimensions positions may be in a table.
    """
    if not all(map(len, along)):
        return Part(shape, (range(0),) * len(shape), (0,) * len(shape))
    hulls = [range(int(own[0]), int(own[-1]) + 1) for own in along]
    chosen: list[Positions] = [
        own if may and len(hull) > WASTE * len(own) else hull
        for own, hull, may in zip(along, hulls, may_list, strict=True)
    ]
    return Part(shape, tuple(chosen), tuple(map(len, chosen)))
