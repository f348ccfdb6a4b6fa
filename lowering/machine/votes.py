"""Votes: on which tile most of the bytes of a vertex live, as far as they live anywhere yet.

In come a family and the tile of each element, -1 for none yet; out comes the tile of each vertex, or -1. A few
elements of every field are asked. PopLibs puts its reductions and elementwise operations so.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from codelet.graphs.family import Family, Field
from codelet.graphs.vertices import free_axes, over_axes
from codelet.views.sources import Variable, source_elements
from codelet.views.tensor import Tensor
from lowering.machine.element_tiles import ElementTiles

SAMPLES = 4
"""At how many places, evenly spaced, a field is asked where it lives: exact for fields no larger."""

_VERTICES = 1 << 16
"""Of so many vertices the votes are counted at once."""

_Vote = tuple[np.ndarray, float]
"""For each vertex a tile, over the family's axes or with extents of 1, or -1; and how many bytes speak for it."""


def _element_tiles_at(positions: np.ndarray, tensor: Tensor, element_tiles: ElementTiles) -> np.ndarray:
    """The tiles of elements at flat positions of a tensor's source; -1 for padding and what has none yet."""
    if isinstance(tensor.source, Variable):
        return element_tiles.of_variable(tensor.source).at(positions)
    return element_tiles[source_elements(tensor.source)[positions]]


def _votes_of_rows(family: Family, field: Field, tensor: Tensor, element_tiles: ElementTiles) -> list[_Vote]:
    """What a ragged field says: a few places of each row."""
    rows, free = tensor.rows, free_axes(family, tensor)
    assert rows is not None
    if 0 in tensor.shape or not rows.total:
        return []
    corner = tuple(slice(None) if d == tensor.ragged_dimension else 0 for d in range(tensor.ndim))
    along = tensor.index[corner].values(free)
    lengths, starts = rows.lengths, rows.offsets[:-1]
    each = lengths.mean() * math.prod(n for d, n in enumerate(tensor.shape) if d != tensor.ragged_dimension)
    votes = []
    for part in np.linspace(0, 1, SAMPLES):
        place = starts + np.maximum(0, ((lengths - 1) * part).astype(np.int64))
        tiles = _element_tiles_at(along[..., np.minimum(place, rows.total - 1)], tensor, element_tiles)
        tiles = np.where(lengths > 0, tiles, -1)
        tiles = over_axes(tiles, (*free, *rows.axes), family.axes)
        votes.append((tiles, each * field.type.dtype.itemsize / SAMPLES))
    return votes


def _votes(family: Family, field: Field, element_tiles: ElementTiles) -> list[_Vote]:
    """What a field says about where the vertices of a family should be."""
    tensor = field.tensor
    assert tensor is not None
    if tensor.rows is not None:
        return _votes_of_rows(family, field, tensor, element_tiles)
    index, axes = tensor.index, tensor.index.axes
    if not index.size:
        return []
    places = np.unique(np.linspace(0, index.size - 1, min(index.size, SAMPLES)).round().astype(np.int64))
    at = index[np.unravel_index(places, index.shape)] if index.shape else index.broadcast_to((1,))
    positions = np.moveaxis(at.values(axes), -1, 0)
    tiles = _element_tiles_at(positions, tensor, element_tiles)
    each = index.size * field.type.dtype.itemsize / len(places)
    return [(over_axes(own, axes, family.axes), each) for own in tiles]


def sharing(family: Family, field: Field) -> int:
    """How many vertices name the same elements of a field."""
    assert field.tensor is not None
    return math.prod(axis.extent for axis in family.axes if axis not in field.tensor.axes)


def _counted(named: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The tile with the most bytes of each column, the first named of those with as many; -1 where none is named.

    Args:
        named: a row for each vote, a column for each vertex: int32 of shape (votes, vertices).
        weights: bytes of each vote, float32.
    """
    num_votes, count = named.shape
    # Votes for one tile stand together, in the order in which they are named.
    kind = np.int32 if num_votes * (int(named.max(initial=0)) + 1) < 2**31 else np.int64
    keys = np.ascontiguousarray((named * kind(num_votes) + np.arange(num_votes, dtype=kind)[:, None]).T)
    keys.sort(axis=1)
    best, most, first = np.full(count, -1, np.int32), np.zeros(count, np.float32), np.zeros(count, np.int32)
    tile, since, own = np.full(count, -1, kind), first, most
    for column in keys.T:
        before, (tile, vote) = tile, np.divmod(column, kind(num_votes))
        again = tile == before
        own, since = np.where(again, own, 0) + weights[vote], np.where(again, since, vote)
        better = ((own > most) | ((own == most) & (since < first))) & (tile >= 0)
        best, most, first = (np.where(better, *both) for both in ((tile, best), (own, most), (since, first)))
    return best.astype(np.int32)


def majority(tiles: Sequence[np.ndarray], weights: np.ndarray, extents: tuple[int, ...]) -> np.ndarray:
    """The tile with the most bytes for each vertex, the first named of those with as many; -1 where none is named.

    Args:
        tiles: that each vote names, over the axes or with extents of 1.
        weights: bytes of each vote, float32.
        extents: of the axes.
    """
    count = math.prod(extents)
    if not tiles or not count:
        return np.full(count, -1, np.int32)
    if count > _VERTICES:
        if extents[0] == 1:
            return majority([own[0] for own in tiles], weights, extents[1:])
        half = extents[0] // 2
        parts = (slice(0, half), half), (slice(half, None), extents[0] - half)
        halves = [([own[part] if len(own) > 1 else own for own in tiles], (n, *extents[1:])) for part, n in parts]
        return np.concatenate([majority(own, weights, shape) for own, shape in halves])
    named = [np.broadcast_to(own, extents).reshape(-1) for own in tiles]
    if len(tiles) == 1:
        return named[0].astype(np.int32)
    # What the first vote names has won where those who agree with it have as many bytes as all others.
    best = named[0].astype(np.int32)
    lead = np.where(best >= 0, weights[0], -np.inf).astype(np.float32)
    for own, weight in zip(named[1:], weights[1:], strict=True):
        lead += np.where(own == best, weight, np.where(own >= 0, -weight, np.float32(0)))
    undecided = np.flatnonzero(lead < 0)
    if len(undecided):
        best[undecided] = _counted(np.stack([own[undecided] for own in named]), weights)
    return best


def wanted_tiles(family: Family, element_tiles: ElementTiles) -> np.ndarray:
    """The tile on which most of the bytes of each vertex live, int32 of shape (vertices,); -1 where none do.

    Of tiles with as many bytes the one wins whose elements fewest vertices share.
    """
    connected = sorted((field for field in family.fields if field.tensor is not None), key=partial(sharing, family))
    votes = [vote for field in connected for vote in _votes(family, field, element_tiles)]
    votes = [vote for vote in votes if (vote[0] >= 0).any()]
    weights = np.array([num_bytes for _, num_bytes in votes], np.float32)
    return majority([tiles for tiles, _ in votes], weights, family.extents)
