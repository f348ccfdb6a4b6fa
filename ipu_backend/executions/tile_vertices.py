"""Tile vertices: the vertices of a family as lanes of the tiles they are on.

In come a family and the tile of each of its vertices. Out come batches: vertices of one traced codelet, with the
numbers of the elements of each field. Then for a batch its lanes: on every tile the vertices are the positions
along a few lane axes. Where the vertices of each tile are all combinations of some positions along each axis of
the grid, each axis is a lane axis of its own, so that a field has a dimension only for the axes it depends on;
else those axes along which the tile is the same stay, and the others are one lane axis. An axis of which every
tile has one position is none.

Vertices with ragged fields are a batch for each length that occurs: with many lengths this is slow to compile.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from codelet.graphs.family import Family, Field
from codelet.graphs.vertices import free_axes
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.rows import together
from codelet.views.sources import Source, Variable, assembled
from codelet.views.tensor import Tensor
from ipu_backend.executions.tile_layout import distinct
from lowering.plan.runs import stretches

MOST_IDLE = 2.0
"""How many times the lanes of the fullest tile the combinations of positions may be, so that axes stay apart."""


class Numbers:
    """The numbers of elements at flat positions of sources; padding is `-1 - k` for the k-th of `padding`."""

    def __init__(self) -> None:
        self.padding: list[Any] = []
        self._by_source: dict[Source, np.ndarray] = {}
        self._left: dict[Source, np.ndarray] = {}

    def _of_padding(self, value: Any) -> int:
        self.padding.append(value)
        return -len(self.padding)

    def of_source(self, source: Source) -> np.ndarray:
        """The number at every position of a source, flat."""
        if isinstance(source, Variable):
            return np.arange(source.size) + source.first_element
        if source not in self._by_source:
            self._by_source[source] = assembled(source, np.dtype(np.int64), self.of, self._of_padding)
        return self._by_source[source]

    def of(self, source: Source, positions: np.ndarray) -> np.ndarray:
        """The numbers at some positions of a source."""
        if isinstance(source, Variable):
            return positions + source.first_element
        return self.of_source(source)[positions]

    def follow(self, source: Source, positions: np.ndarray, count: int) -> bool:
        """Whether at each position begin `count` elements that follow each other, or as much of one padding."""
        if isinstance(source, Variable):
            return True
        if source not in self._left:
            numbers = self.of_source(source)
            size = len(numbers)
            runs, _ = stretches(np.where(numbers < 0, numbers - size, numbers - np.arange(size)))
            self._left[source] = np.repeat(runs.stops, runs.lengths) - np.arange(size)
        return bool((self._left[source][positions] >= count).all())


def places_of(numbers: np.ndarray, extents: Sequence[int]) -> list[np.ndarray]:
    """The position along each axis of row-major numbers.

    As `numpy.unravel_index`, which NumPy 2.4.6 gets wrong for more than 8192 numbers in an array whose last
    dimension is of extent 1.
    """
    found = []
    for extent in reversed(extents):
        numbers, place = np.divmod(numbers, extent)
        found.append(place)
    return found[::-1]


class Varying(NamedTuple):
    """Numbers of elements, or values, over some axes of a batch.

    Attributes:
        axes: those of the batch.
        array: with a dimension for each of them, then the field's own but for `inner`, in order.
        inner: those of the field's dimensions along which, the last fastest, one element follows another; only the
            first of these stands in `array`.
        extents: theirs.
    """

    axes: tuple[int, ...]
    array: np.ndarray
    inner: tuple[int, ...] = ()
    extents: tuple[int, ...] = ()

    @property
    def run(self) -> int:
        """How many elements follow each other from each number on."""
        return math.prod(self.extents)

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The field's own dimensions in the order in which they stand here."""
        count = self.array.ndim - len(self.axes) + len(self.inner)
        return (*(d for d in range(count) if d not in self.inner), *self.inner)


@dataclass(frozen=True, eq=False)
class Batch:
    """Vertices of one traced codelet.

    Attributes:
        codelet: what they run.
        tiles: the tile of each, with a dimension for each axis of the batch.
        elements: the numbers of the elements of each field that is connected, by name.
        sources: what these fields view.
        state: the values of each field that holds a constant, by name.
        reads: the names of the connected fields that are read.
        writes: the names of those that are written.
    """

    codelet: TracedCodelet
    tiles: np.ndarray
    elements: dict[str, Varying]
    sources: dict[str, Source]
    state: dict[str, Varying]
    reads: tuple[str, ...]
    writes: tuple[str, ...]


# --- batches --------------------------------------------------------------------------------------------


def _state(own: Field, family: Family) -> Varying:
    """The constants of a field."""
    assert own.state is not None
    index, array = own.state.index, own.state.array
    if index is not None:
        places = tuple(map(family.axes.index, index.axes))
        return Varying(places, index.values(index.axes).astype(own.type.dtype))
    assert array is not None
    over = array.ndim > len(own.type.shape)
    return Varying(tuple(range(len(family.axes))) if over else (), array)


def _following(index: Index) -> tuple[int, ...]:
    """The dimensions of an index along which, the last fastest, one position follows another."""
    tabled = {key for table in index.tables for key in table.keys}
    left = [d for d in range(index.ndim) if d not in tabled and index.shape[d] > 1]
    found: list[int] = []
    size = 1
    while fitting := [d for d in left if index.strides[d] == size]:
        left.remove(fitting[0])
        found.insert(0, fitting[0])
        size *= index.shape[fitting[0]]
    return tuple(found)


def connected(tensor: Tensor, axes: Sequence[Axis], numbers: Numbers) -> Varying:
    """The elements of a view without rows, over those of some axes of which it is."""
    index, own = tensor.index, tensor.index.axes
    inner = _following(index)
    while True:
        positions = index[tuple(0 if d in inner else slice(None) for d in range(index.ndim))].values(own)
        extents = tuple(index.shape[d] for d in inner)
        if not inner or numbers.follow(tensor.source, positions, math.prod(extents)):
            over = tuple(map(axes.index, own))
            return Varying(over, np.asarray(numbers.of(tensor.source, positions)), inner, extents)
        inner = inner[1:]


class _Chosen:
    """Some vertices of a family, by number, along one axis."""

    def __init__(self, family: Family, vertices: np.ndarray):
        self.family = family
        self.vertices = vertices
        places = places_of(vertices, family.extents)
        self.places = dict(zip(family.axes, places, strict=True))

    def number_over(self, axes: Sequence[Axis]) -> np.ndarray:
        """The number of each vertex's position over some axes, in row-major order."""
        number = np.zeros(len(self.vertices), np.int64)
        for axis in axes:
            number = number * axis.extent + self.places[axis]
        return number

    def each(self, varying: Varying) -> Varying:
        """Numbers or values for each of the vertices."""
        axes = [self.family.axes[k] for k in varying.axes]
        if not axes:
            return varying
        return varying._replace(axes=(0,), array=varying.array[tuple(self.places[axis] for axis in axes)])

    def rows(self, tensor: Tensor, numbers: Numbers) -> Varying:
        """The elements of a ragged field, of vertices whose rows are of one length."""
        rows, at = tensor.rows, tensor.ragged_dimension
        assert rows is not None
        free = free_axes(self.family, tensor)
        everything = numbers.of(tensor.source, tensor.index.values(free))
        everything = everything.reshape(math.prod(axis.extent for axis in free), *tensor.shape)
        along = np.moveaxis(everything, at + 1, 1)
        own = self.number_over(rows.axes)
        places = rows.offsets[own][:, None] + np.arange(int(rows.lengths[own[0]]))
        return Varying((0,), np.moveaxis(along[self.number_over(free)[:, None], places], 1, at + 1))


def _batch(family: Family, tiles: np.ndarray, numbers: Numbers, codelet: TracedCodelet, some: _Chosen | None) -> Batch:
    """The vertices of a family, or some, whose rows are of one length."""
    each = (lambda varying: varying) if some is None else some.each
    tensors = {own.name: own.tensor for own in family.fields if own.tensor is not None}
    elements = {}
    for name, tensor in tensors.items():
        ragged = some.rows if some is not None and tensor.rows is not None else None
        elements[name] = ragged(tensor, numbers) if ragged else each(connected(tensor, family.axes, numbers))
    return Batch(
        codelet,
        tiles.reshape(family.extents) if some is None else tiles[some.vertices],
        elements,
        {name: tensor.source for name, tensor in tensors.items()},
        {own.name: each(_state(own, family)) for own in family.fields if own.tensor is None},
        tuple(own.name for own in family.fields if own.is_read and own.tensor is not None),
        tuple(own.name for own in family.fields if own.is_written),
    )


def _by_length(family: Family) -> Iterator[tuple[np.ndarray, TracedCodelet]]:
    """The vertices of a family with rows of each length that occurs, and the codelet for it."""
    everything = np.arange(family.num_vertices)
    if not family.rows:
        yield everything, family.codelet
        return
    kinds = together(family.rows.values())
    of_vertex = kinds.group_of[_Chosen(family, everything).number_over(kinds.axes)]
    for k, row in enumerate(kinds.lengths.tolist()):
        yield np.flatnonzero(of_vertex == k), family.codelet.at(dict(zip(family.rows, row, strict=True)))


def batches(family: Family, tiles: np.ndarray, numbers: Numbers) -> list[Batch]:
    """The vertices of a family as batches.

    Args:
        family: whose vertices.
        tiles: the tile of each, of shape (vertices,).
        numbers: gives the numbers of elements.
    """
    if not family.num_vertices:
        return []
    speaks = family.codelet.has_effects
    if not family.rows and not speaks:
        return [_batch(family, tiles, numbers, family.codelet, None)]
    found = []
    for vertices, codelet in _by_length(family):
        # No lane may stand for a vertex that is another's copy: it would speak twice.
        counts = np.bincount(tiles[vertices])[tiles[vertices]] if speaks else np.zeros(len(vertices))
        for count in np.unique(counts):
            found.append(_batch(family, tiles, numbers, codelet, _Chosen(family, vertices[counts == count])))
    return found


# --- lanes ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Lanes:
    """The vertices of a batch by tile.

    Attributes:
        tiles: the tiles that have any, rising: int32 of shape (rows,).
        extents: of the axes of the batch.
        groups: the axes of each lane axis.
        positions: for each lane axis the positions on each tile, flat over its axes, of shape (rows, lanes); those
            a tile has fewer of begin again from the first.
        counts: for each lane axis how many positions each tile has, of shape (rows,).
    """

    tiles: np.ndarray
    extents: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    positions: tuple[np.ndarray, ...]
    counts: tuple[np.ndarray, ...]

    @property
    def lengths(self) -> tuple[int, ...]:
        """How many lanes each lane axis has."""
        return tuple(own.shape[1] for own in self.positions)

    def real(self, groups: Sequence[int], ndim: int) -> np.ndarray:
        """Which lanes are vertices, over some lane axes and `ndim` dimensions of extent 1: (rows, lanes..., 1...)."""
        found = np.ones((len(self.tiles), *[1] * (len(groups) + ndim)), bool)
        for at, k in enumerate(groups):
            own = np.arange(self.lengths[k]) < self.counts[k][:, None]
            found = found & own.reshape(len(own), *[-1 if j == at else 1 for j in range(len(groups))], *[1] * ndim)
        return found

    def spread(self, varying: Varying, groups: Sequence[int]) -> np.ndarray:
        """What varies over axes of the batch, of each tile over some lane axes: (rows, lanes..., *its shape)."""
        where: dict[int, np.ndarray] = {}
        for at, k in enumerate(groups):
            own = self.positions[k]
            shaped = own.reshape(len(own), *[-1 if j == at else 1 for j in range(len(groups))])
            places = places_of(shaped, [self.extents[a] for a in self.groups[k]])
            where.update(zip(self.groups[k], places, strict=True))
        own = varying.array.shape[len(varying.axes) :]
        shape = (len(self.tiles), *(self.lengths[k] for k in groups))
        made = varying.array[tuple(where[a] for a in varying.axes)] if varying.axes else varying.array
        if not varying.axes:
            made = made.reshape(*[1] * len(shape), *own)
        return np.broadcast_to(made, (*shape, *own))

    def needed(self, varying: Varying) -> tuple[tuple[int, ...], np.ndarray]:
        """What varies over axes of the batch, over only those lane axes it depends on: these, and the array."""
        groups = [k for k, axes in enumerate(self.groups) if set(axes) & set(varying.axes)]
        array = self.spread(varying, groups)
        for at in reversed(range(len(groups))):
            first = array.take([0], axis=at + 1)
            if array.shape[at + 1] == 1 or (array == first).all():
                array = array.take(0, axis=at + 1)
                del groups[at]
        return tuple(groups), array


def _products(tiles: np.ndarray, number: np.ndarray, groups: Sequence[tuple[int, ...]]) -> Lanes | None:
    """The lanes of a batch by groups of axes, if the vertices of each tile are all combinations of positions."""
    rows = int(number.max()) + 1
    extents = tiles.shape
    places = places_of(np.arange(tiles.size), extents)
    positions, counts = [], []
    for axes in groups:
        size = math.prod(extents[a] for a in axes)
        own = np.ravel_multi_index([places[a] for a in axes], [extents[a] for a in axes])
        pairs = distinct(number.astype(np.int64) * size + own)
        row, position = np.divmod(pairs, size)
        count = np.bincount(row, minlength=rows)
        # Those that a tile has fewer of begin again.
        turns = np.arange(int(count.max())) % count[:, None]
        positions.append(position[turns + (np.cumsum(count) - count)[:, None]])
        counts.append(count)
    each = np.bincount(number, minlength=rows)
    if not (np.prod(np.stack([np.ones(rows, np.int64), *counts]), axis=0) == each).all():
        return None
    if math.prod(own.shape[1] for own in positions) > MOST_IDLE * each.max():
        return None
    return Lanes(np.unique(tiles).astype(np.int32), extents, tuple(groups), tuple(positions), tuple(counts))


def lanes_of(tiles: np.ndarray) -> Lanes:
    """The vertices of a batch by tile; see the module's docstring.

    Args:
        tiles: the tile of each vertex, with a dimension for each axis of the batch.

    >>> lanes = lanes_of(np.array([[0, 0, 1], [0, 0, 1], [2, 2, 3]]))
    >>> lanes.groups, lanes.lengths
    (((0,), (1,)), (2, 2))
    """
    number = np.unique(tiles.reshape(-1), return_inverse=True)[1].reshape(-1)
    everything = tuple(range(tiles.ndim))
    same = [a for a in everything if (tiles == tiles.take([0], axis=a)).all()]
    rest = tuple(a for a in everything if a not in same)
    each, some = [(a,) for a in everything], [*((a,) for a in same), rest]
    tried = ([axes for axes in groups if axes] for groups in (each, some, [everything]))
    return next(found for groups in tried if (found := _products(tiles, number, groups)) is not None)
