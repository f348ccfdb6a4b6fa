"""Parts: the elements of a source that one device has, as an array of its own.

A part is a product of positions, a set along each dimension of the source or the one set of its flat form. In come
access maps of the source, out come those of the part: what steps evenly by dimensions still does, since the positions
along each dimension are a stretch, or looked up in a table of those that there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from codelet.views.access import Access, Dimension, Term, flat_terms
from codelet.views.affine import Table, sorted_symbols
from codelet.views.digits import row_major_strides
from codelet.views.grids import Axis, Key
from codelet.views.index import Index
from codelet.views.integers import narrowed
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


def _dimensions(index: Index, shape: tuple[int, ...], by: tuple[int, ...]) -> Access:
    """The access map of an array of a shape, by its dimensions or flat."""
    if by == shape:
        found = Access.of(index, shape)
        assert found.shape == shape
        return found
    offset, terms, backwards = flat_terms(index)
    return Access.by_dimension(by, (Dimension(offset, tuple(terms)),), backwards)


def _positions(term: Term, is_reversed: bool) -> np.ndarray:
    """The positions of a term, over its keys."""
    if term.table is not None:
        return term.positions().astype(np.int64)
    (extent,) = term.extents
    places = np.arange(extent, dtype=np.int64)
    return term.grain * (places[::-1] if is_reversed else places)


class _IndexSum:
    """An index as it is added up."""

    def __init__(self, shape: tuple[int, ...]):
        self.shape = shape
        self.offset = 0
        self.coefficients: dict[Key, int] = {}
        self.tables: list[Table] = []

    def step(self, key: Key, by: int) -> None:
        self.coefficients[key] = self.coefficients.get(key, 0) + by

    def index(self) -> Index:
        strides = tuple(self.coefficients.get(d, 0) for d in range(len(self.shape)))
        symbols = {axis: step for axis, step in self.coefficients.items() if isinstance(axis, Axis) and step}
        return Index(self.offset, self.shape, strides, sorted_symbols(symbols), tuple(self.tables))


def _add_stretch(made: _IndexSum, own: Dimension, first: int, weight: int, backwards: frozenset[Key]) -> None:
    """Positions along a dimension of which there is a stretch."""
    made.offset += weight * (own.start - first)
    for term in own.terms:
        if term.table is not None:
            made.tables.append(Table(term.keys, narrowed(term.positions()), weight))
            continue
        (key,), (extent,) = term.keys, term.extents
        if key in backwards:
            made.offset += weight * term.grain * (extent - 1)
        made.step(key, -weight * term.grain if key in backwards else weight * term.grain)


def _add_places(made: _IndexSum, own: Dimension, held: np.ndarray, weight: int, backwards: frozenset[Key]) -> None:
    """Positions along a dimension, by their places among those that there are."""
    keys = tuple(dict.fromkeys(key for term in own.terms for key in term.keys))
    total = np.full((1,) * len(keys), own.start, np.int64)
    extents: dict[Key, int] = {}
    for term in own.terms:
        extents.update(zip(term.keys, term.extents, strict=True))
        values = _positions(term, any(key in backwards for key in term.keys))
        order = sorted(range(len(term.keys)), key=lambda k, keys_=term.keys: keys.index(keys_[k]))
        ones = [1] * len(keys)
        for key, extent in zip(term.keys, term.extents, strict=True):
            ones[keys.index(key)] = extent
        total = total + values.transpose(order).reshape(ones)
    total = np.broadcast_to(total, [extents[key] for key in keys])
    places = np.searchsorted(held, total)
    if not keys:
        made.offset += weight * int(places)
    else:
        made.tables.append(Table(keys, np.ascontiguousarray(narrowed(places)), weight))


def in_part(index: Index, shape: tuple[int, ...], part: Part) -> Index:
    """The access map of a part, from one of its source, all of whose elements it has.

    Args:
        index: flat positions of the source.
        shape: of the source.
        part: by the dimensions of the source, if the index is, or by its flat form.
    """
    made = _IndexSum(index.shape)
    if index.is_empty:
        return Index(0, index.shape, (0,) * index.ndim)
    access = _dimensions(index, shape, part.shape)
    for own, held, weight in zip(access.dimensions, part.sets, row_major_strides(part.extents), strict=True):
        if isinstance(held, range):
            _add_stretch(made, own, held.start, weight, access.reversed_keys)
        else:
            _add_places(made, own, held, weight, access.reversed_keys)
    return made.index()


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
