"""Constraints met: a placement with what is to be together on one tile, and what is to be apart on several.

In comes a placement by any way, and the groups of elements that constraints make. Out comes the placement with each
group on one tile: that which was given one of its elements, else that where most of what vertices write of it lies.
Where two groups that are to be apart meet, the later goes to the tile with the least to hold. Vertices without `tile=`
go with the first element that they write.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from codelet.errors import PlacementError
from codelet.graphs.family import Family
from codelet.graphs.vertices import free_axes, vertex_numbers
from codelet.views.tensor import Tensor
from lowering.check.constraints import PlacedTogether, placement_groups
from lowering.machine.element_tiles import ElementTiles
from lowering.machine.placement import Placement
from lowering.plan.runs import sums_of

_WRITTEN = 1 << 10
"""An element that vertices write says more than so many others of where a group lies: vertices are even on tiles."""


def _written(family: Family, tensor: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The elements that a family writes through a view, and the vertex that writes each."""
    if tensor.rows is None:
        elements = tensor.elements(family.axes)
        numbers = np.arange(family.num_vertices).reshape((*family.extents, *[1] * tensor.ndim))
    else:
        elements = tensor.elements(free_axes(family, tensor))
        numbers = vertex_numbers(family, tensor)
    numbers = np.broadcast_to(numbers, elements.shape)
    written = elements >= 0
    return elements[written], numbers[written]


def _where_they_lie(placement: Placement, groups: PlacedTogether) -> np.ndarray:
    """The tile of each group as it would be without the others."""
    count, num_tiles = len(groups.tiles), placement.num_tiles
    weights = np.ones(len(placement.element_tiles), np.int64)
    for family in placement.plan.families:
        for field in family.fields:
            if field.is_written and field.tensor is not None and field.tensor.size:
                weights[_written(family, field.tensor)[0]] = _WRITTEN
    tiles = placement.element_tiles[groups.elements].astype(np.int64)
    lived = tiles >= 0
    keys, sums = sums_of(groups.group[lived] * num_tiles + tiles[lived], weights[groups.elements[lived]])
    found = np.zeros(count, np.int64)
    for k in np.lexsort((-keys, sums)):  # the last that is written is the heaviest, the first of equals
        found[keys[k] // num_tiles] = keys[k] % num_tiles
    return np.where(groups.tiles >= 0, groups.tiles, found)


def _with_tiles_of_their_own(placement: Placement, groups: PlacedTogether, tiles: np.ndarray) -> np.ndarray:
    """Tiles of groups with the tiles shared out among sets that are apart: each to the set that has most there."""
    num_tiles = placement.num_tiles
    for sets in groups.several:
        counts = np.stack([np.bincount(tiles[own], minlength=num_tiles) for own in sets]).astype(np.float64)
        for k, own in enumerate(sets):
            given = groups.tiles[own]
            counts[k, given[given >= 0]] = np.inf
        owner = counts.argmax(axis=0)
        owner[counts.max(axis=0) == 0] = -1
        for k, own in enumerate(sets):
            if len(own) and not (owner == k).any():
                rich = np.bincount(owner[owner >= 0], minlength=len(sets)).argmax()
                spare = np.where(owner == -1, -1.0, np.where(owner == rich, counts[rich], np.inf))
                owner[int(spare.argmin())] = k
        for k, own in enumerate(sets):
            (mine,) = np.nonzero(owner == k)
            wrong = own[(owner[tiles[own]] != k) & (groups.tiles[own] < 0)]
            if len(mine):
                tiles[wrong] = mine[np.arange(len(wrong)) % len(mine)]
    return tiles


def _apart(placement: Placement, groups: PlacedTogether, tiles: np.ndarray) -> np.ndarray:
    """Tiles of groups no two of which that are to be apart are on one.

    Raises:
        PlacementError: there is no tile left for one.
    """
    near: dict[int, list[int]] = {}
    for one, other in groups.apart.tolist():
        near.setdefault(one, []).append(other)
        near.setdefault(other, []).append(one)
    room = placement.bytes_by_tile.astype(np.int64)
    sizes = np.bincount(groups.group, minlength=len(tiles))
    settled = groups.tiles >= 0
    # Those that were given tiles first, then those that have the most to be apart from.
    for k in sorted(near, key=lambda k: (not settled[k], -len(near[k]), k)):
        taken = {int(tiles[other]) for other in near[k] if settled[other]}
        if not settled[k] and int(tiles[k]) in taken:
            free = np.ones(placement.num_tiles, bool)
            free[list(taken)] = False
            if not free.any():
                element = int(groups.elements[groups.group == k][0])
                raise PlacementError(
                    "no tile is left for what is to be apart",
                    given=f"{placement.plan.graph.element_text(element)}, apart from what lies on all "
                    f"{placement.num_tiles:,} tiles",
                    expected="fewer elements that are all apart from each other than there are tiles",
                    fix="put some of them together, or take a machine with more tiles",
                )
            tiles[k] = int(np.flatnonzero(free)[room[free].argmin()])
            room[tiles[k]] += sizes[k]
        settled[k] = True
    return tiles


def constrained(placement: Placement) -> Placement:
    """A placement that meets the constraints of its graph.

    Raises:
        PlacementError: it cannot.
    """
    graph = placement.plan.graph
    groups = placement_groups(graph)
    if groups is None:
        return placement
    known = groups.elements < len(placement.element_tiles)
    groups = groups._replace(elements=groups.elements[known], group=groups.group[known])
    tiles = _with_tiles_of_their_own(placement, groups, _where_they_lie(placement, groups))
    tiles = _apart(placement, groups, tiles)
    lived = placement.element_tiles[groups.elements] >= 0
    before = np.asarray(placement.element_tiles)
    elements = before.copy()
    elements[groups.elements[lived]] = tiles[groups.group[lived]]
    moved = elements != before
    vertices = dict(placement.vertex_tiles)
    for family, laid in placement.vertex_tiles.items():
        if family.tile is not None:
            continue
        for field in family.fields:
            if field.is_written and field.tensor is not None and field.tensor.size:
                written, numbers = _written(family, field.tensor)
                if moved[written].any():
                    own = laid.copy()
                    chosen = moved[written]
                    own[numbers[chosen][::-1]] = elements[written[chosen]][::-1]
                    vertices[family] = own
                break
    orders = {} if moved.any() else placement.orders
    homes = ElementTiles.of(placement.plan, elements)
    return replace(placement, element_tiles=homes, vertex_tiles=vertices, orders=orders)
