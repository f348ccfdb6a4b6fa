"""Touched elements: what the vertices of every tile read and write, wherever it lives.

In come a placement and steps, out come runs of element numbers (`lowering/plan/runs.py`). A field's access map is taken
apart: what a tile's vertices read without gaps between is one run by arithmetic, over the dimensions of the
field and over the stretches of the grid's axes along which the tile is the same; what is left is listed, by
blocks, and what follows in a block joined. The tile and the element are one number, so that all tiles' sets
are one set.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from codelet.graphs.family import Family
from codelet.graphs.vertices import free_axes, vertex_numbers
from codelet.views.index import Index
from codelet.views.sources import Patch, Patchwork, Source, Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.machine.multicast import Multicast, leading_tiles, merged
from lowering.machine.placement import Placement
from lowering.plan.pieces import Pieces, pieces_of, side_by_side
from lowering.plan.runs import NONE, Runs, stretches, union, union_of
from lowering.plan.steps import CopyStep, ExecuteStep

_BLOCK = 1 << 22
"""How many runs are listed at once."""

_REPEATED = 8
"""How often an element may be touched for each of them to be compared with the tile that it lives on."""

_FEW = 8
"""Positions along a dimension that are compared before all are."""


# --- what each tile touches of a source ---------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class TilePattern:
    """An array of tiles, with the dimensions along which it does not change folded.

    Attributes:
        tiles: of extent 1 along each dimension in which it is the same everywhere.
        splits: (dimension, positions) of dimensions that were split in two, the last first: the tile is the same
            over as many positions of the second.
    """

    tiles: np.ndarray
    splits: tuple[tuple[int, int], ...]


def tile_pattern(tiles: np.ndarray) -> TilePattern:
    """Tiles over a grid, with the dimensions along which they do not change folded."""
    splits = []
    for d in reversed(range(tiles.ndim)):
        extent = tiles.shape[d]
        if extent == 1:
            continue
        along = np.moveaxis(tiles, d, 0)
        others = tuple(range(1, tiles.ndim))
        changes = np.flatnonzero((along[1:] != along[:-1]).any(axis=others)) + 1
        run = math.gcd(extent, int(np.gcd.reduce(changes))) if len(changes) < extent - 1 else 1
        if run > 1:
            tiles = tiles[(slice(None),) * d + (slice(None, None, run),)]
        if 1 < run < extent:
            tiles = np.expand_dims(tiles, d + 1)
            splits.append((d, run))
    return TilePattern(tiles, tuple(splits))


def _listed(index: Index, tiles: np.ndarray, length: int, space: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The ends of a stretch of `length` at each position of an index, by blocks, joined to those listed before."""
    count, rows = index.size, index.shape[0] if index.shape else 1
    if index.ndim > 1 and count // rows > _BLOCK:
        for k in range(rows):
            yield from _listed(index[k], tiles[k % tiles.shape[0]], length, space)
        return
    step = max(1, _BLOCK // max(1, count // rows))
    for start in range(0, rows, step):
        block = index[start : start + step] if index.shape else index
        own = tiles[start : start + step] if index.shape and tiles.shape[0] > 1 else tiles
        begins = (block.values() + own.astype(np.int64) * space).reshape(-1)
        moved = np.diff(begins)
        breaks = np.flatnonzero((moved < 0) | (moved > length)) + 1
        first = np.concatenate([[0], breaks])
        last = np.concatenate([breaks, [len(begins)]]) - 1
        yield begins[first], begins[last] + length


def touched_runs(index: Index, pattern: TilePattern, space: int) -> Runs:
    """The positions that the tiles touch, as runs of `tile * space + position`.

    Args:
        index: positions in a source, of a shape without symbols.
        pattern: the tile that touches each, of `tile_pattern`; its array has a dimension for each of the index's
            leading ones, and is the same over the others.
        space: more than any position, so that no run of one tile meets that of the next.
    """
    if 0 in index.shape:
        return NONE
    for d, inner in pattern.splits:
        index = index.reshape((*index.shape[:d], index.shape[d] // inner, inner, *index.shape[d + 1 :]))
    tiles = pattern.tiles.reshape((*pattern.tiles.shape, *[1] * (index.ndim - pattern.tiles.ndim)))
    # Turn the dimensions without tables to go forward, so that one stride can hold another.
    tabled = {key for table in index.tables for key in table.keys}
    for d in range(index.ndim):
        if d not in tabled and index.strides[d] < 0:
            turned = (slice(None),) * d + (slice(None, None, -1),)
            index, tiles = index[turned], tiles[turned]
    length, kept = 1, []
    for d in sorted(range(index.ndim), key=lambda d: index.strides[d]):
        if index.shape[d] == 1 and d not in tabled:
            continue
        if d not in tabled and tiles.shape[d] == 1 and index.strides[d] <= length:
            length += index.strides[d] * (index.shape[d] - 1)
        else:
            kept.append(d)
    kept.sort(key=lambda d: (d not in tabled, -index.strides[d]))
    gone = tuple(d for d in range(index.ndim) if d not in kept)
    order = (*gone, *kept)
    index, tiles = index.transpose(order)[(0,) * len(gone)], tiles.transpose(order)[(0,) * len(gone)]
    starts, stops = zip(*_listed(index, tiles, length, space), strict=True)
    return union(np.concatenate(starts), np.concatenate(stops))


# --- what each tile touches of the graph --------------------------------------------------------------


def _pieces(source: Patchwork) -> Pieces:
    """The elements at the positions of a source of several variables or with padding, which is none."""
    return side_by_side([_patch_pieces(patch, patch.variable) for patch in source.patches if patch.variable])


def _patch_pieces(patch: Patch, variable: Variable) -> Pieces:
    """The elements at the places of a patch: those along its last dimensions together, where both run on."""
    places, index, length = patch.places, patch.index, 1
    while places.ndim and all(
        own.is_strided and (own.strides[-1] == length or own.shape[-1] == 1) for own in (places, index)
    ):
        length *= places.shape[-1]
        places, index = places[..., 0], index[..., 0]
    return pieces_of(places.values(), index.values() + variable.first_element, length)


def _touched_by(step: ExecuteStep, *, written: bool) -> list[tuple[Family, Tensor]]:
    """The families of a step with the views that they write through, or that they read through."""
    touches = [own for own in step.touches() if not own.is_empty and (own.is_written if written else own.is_read)]
    return [(touch.family, touch.tensor) for touch in touches if touch.family]


class Touches:
    """What tiles touch through views, as runs of `tile * num_elements + element`."""

    def __init__(self, placement: Placement):
        self.placement = placement
        self.num_elements = len(placement.element_tiles)
        self._pieces: dict[Source, Pieces] = {}
        self._patterns: dict[Family, TilePattern] = {}

    def through(self, source: Source, index: Index, pattern: TilePattern) -> Runs:
        """What is touched through an index without symbols."""
        if isinstance(source, Variable):
            return touched_runs(index + source.first_element, pattern, self.num_elements)
        if source not in self._pieces:
            self._pieces[source] = _pieces(source)
        space = source.size + 1
        touched = touched_runs(index, pattern, space)
        tiles = touched.starts // space
        found = Pieces(touched.starts, touched.stops, touched.starts - tiles * space).then(self._pieces[source])
        moved = found.origins + found.starts // space * self.num_elements
        return union(moved, moved + found.lengths)

    def by_family(self, family: Family, tensor: Tensor) -> Runs:
        """What is touched by the vertices of a family through a field."""
        tiles = self.placement.vertex_tiles[family]
        if tensor.rows is not None:
            own = tiles[vertex_numbers(family, tensor)]
            return self.through(tensor.source, tensor.index.lifted(free_axes(family, tensor)), tile_pattern(own))
        if family not in self._patterns:
            self._patterns[family] = tile_pattern(tiles.reshape(family.extents))
        return self.through(tensor.source, tensor.index.lifted(family.axes), self._patterns[family])

    def by_fields(self, step: ExecuteStep, *, written: bool) -> Runs:
        """What is touched by a step's vertices through the fields that they write, or that they read."""
        return union_of([self.by_family(*own) for own in _touched_by(step, written=written)])

    def multicast_by_family(self, family: Family, tensor: Tensor, *, may_share: bool) -> Multicast:
        """The same as `by_family`, once for all tiles that touch the same, if that is asked."""
        variables = frozenset(source_variables(tensor.source))
        axes = [axis for axis in family.axes if axis in tensor.axes]
        if may_share and tensor.rows is None and len(axes) < len(family.axes):
            tiles = self.placement.vertex_tiles[family].reshape(family.extents)
            free = tuple(d for d, axis in enumerate(family.axes) if axis not in axes)
            if found := leading_tiles(tiles, free, self.placement.num_tiles):
                leading, leaders = found
                runs = self.through(tensor.source, tensor.index.lifted(axes), tile_pattern(leading))
                return Multicast(runs, leaders, variables)
        return Multicast(self.by_family(family, tensor), np.arange(self.placement.num_tiles), variables)

    def is_at_home(self, family: Family, tensor: Tensor) -> bool:
        """True if all that a family touches through a view is seen to live with the vertices that touch it."""
        if not isinstance(tensor.source, Variable) or tensor.rows is not None or tensor.index.tables:
            return False
        if family.num_vertices * tensor.size > _REPEATED * (family.num_vertices + tensor.source.size):
            return False
        homes = tensor.index.strided_view(self.placement.tiles_of(tensor.source), (*family.axes, *range(tensor.ndim)))
        tiles = self.placement.vertex_tiles[family].reshape([*family.extents, *[1] * tensor.ndim])
        few = tuple(slice(None, None, 1 + extent // _FEW) for extent in homes.shape)
        return bool((homes[few] == tiles[few]).all() and (homes == tiles).all())

    def multicast_away(self, step: ExecuteStep, *, written: bool) -> list[Multicast]:
        """What a step's vertices read, or write, of what may live elsewhere; no variable is in two of them."""
        fields = [own for own in _touched_by(step, written=written) if not self.is_at_home(*own)]
        found = [self.multicast_by_family(*own, may_share=not written) for own in fields]
        return merged(found, max(1, self.num_elements))

    def away_by_copy(self, source: Variable, to: Variable) -> Runs:
        """What of a variable the tiles of another, which it is copied to, have not at home."""
        tiles = self.placement.tiles_of(to)
        runs, tiles = stretches(np.where(tiles == self.placement.tiles_of(source), -1, tiles))
        (moved,) = np.nonzero(tiles >= 0)
        origins = tiles[moved].astype(np.int64) * self.num_elements + source.first_element
        return union(origins + runs.starts[moved], origins + runs.stops[moved])

    def by_copy(self, step: CopyStep) -> Runs:
        """What of a copy's source is touched by the tiles of its destination."""
        if not step.source.size:
            return NONE
        source, to = step.source, step.destination
        if to.is_whole_variable:
            assert isinstance(to.source, Variable)
            tiles = self.placement.tiles_of(to.source).reshape(to.shape)
        else:
            tiles = np.asarray(self.placement.element_tiles[to.elements()])
        return self.through(source.source, source.index, tile_pattern(tiles))

    def read_by(self, step: ExecuteStep | CopyStep) -> Runs:
        """What is touched by what a step reads through, or copies."""
        return self.by_copy(step) if isinstance(step, CopyStep) else self.by_fields(step, written=False)
