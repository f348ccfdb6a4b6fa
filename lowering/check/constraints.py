"""Constraints on a placement: groups of elements that lie on one tile, and pairs of groups that may not.

In comes a graph. Out come the groups of its elements, by `graph.place(together=...)`, with the tiles that were given
any of them, and the pairs that `graph.place(apart=...)` makes. An element that nothing constrains is in no group.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from codelet.errors import PlacementError
from codelet.graphs.graph import Graph
from lowering.plan.components import components

_MOST_PAIRS = 1 << 22
"""More pairs of groups apart than this are refused."""


class PlacedTogether(NamedTuple):
    """Elements that lie together.

    Attributes:
        elements: the graph's numbers of the elements that constraints name, rising.
        group: the number of the group of each, from 0.
        tiles: the tile that was given an element of each group, -1 where none was: int32.
        apart: pairs of groups that lie on different tiles, int64 of shape (pairs, 2), the less first.
        several: sets of groups no two of which share a tile, though those of one set may. It is a list for each
            position of a constraint of which a view has several groups.
    """

    elements: np.ndarray
    group: np.ndarray
    tiles: np.ndarray
    apart: np.ndarray
    several: tuple[tuple[np.ndarray, ...], ...] = ()


def _given_tiles(graph: Graph, elements: np.ndarray, group: np.ndarray, count: int) -> np.ndarray:
    """The tile that was given each group.

    Raises:
        PlacementError: two were.
    """
    tiles = np.full(count, -1, np.int32)
    if not graph.has_tile_mapping:
        return tiles
    given = graph.element_tiles[elements]
    (own,) = np.nonzero(given >= 0)
    tiles[group[own][::-1]] = given[own][::-1]
    (wrong,) = np.nonzero((given >= 0) & (given != tiles[group]))
    if len(wrong):
        first = own[group[own] == group[wrong[0]]][0]
        raise PlacementError(
            "elements that are to be together were given different tiles",
            given=f"{graph.element_text(int(elements[first]))} on tile {given[first]}, "
            f"{graph.element_text(int(elements[wrong[0]]))} on tile {given[wrong[0]]}",
            expected="one tile for all that graph.place(together=...) names",
            fix="give one of them a tile alone, and leave the others to the placement pass",
        )
    return tiles


def _pairs_apart(graph: Graph, elements: np.ndarray, group: np.ndarray) -> Iterator[np.ndarray]:
    """Pairs of groups that are to be apart, by constraint.

    Raises:
        PlacementError: they are to be together too, or are too many.
    """
    for constraint in graph.placement_constraints:
        if constraint.is_together:
            continue
        groups = [group[np.searchsorted(elements, own)] for own in constraint.elements()]
        for k, one in enumerate(groups):
            for other in groups[k + 1 :]:
                if one.size * other.shape[1] > _MOST_PAIRS:
                    raise PlacementError(
                        "too many elements are to be apart from each other",
                        given=f"{one.size:,} and {other.size:,} elements, {one.size * other.shape[1]:,} pairs, "
                        f"by {constraint}",
                        expected=f"at most {_MOST_PAIRS:,} pairs",
                        fix="put the elements of each view together, or give them tiles",
                    )
                pairs = np.stack(np.broadcast_arrays(one[:, :, None], other[:, None, :]), axis=-1).reshape(-1, 2)
                same = pairs[:, 0] == pairs[:, 1]
                if same.any():
                    element = int(elements[group == pairs[same][0, 0]][0])
                    raise PlacementError(
                        "elements are to be on one tile and on different ones",
                        given=f"{graph.element_text(element)}, by {constraint}",
                        expected="views that have no element in common, and are not together",
                        fix="leave one of the two constraints out",
                    )
                yield np.unique(np.sort(pairs, axis=1), axis=0)


def _several(graph: Graph, elements: np.ndarray, group: np.ndarray) -> Iterator[tuple[np.ndarray, ...]]:
    """The sets of groups of which the views of constraints apart are, where they are of several."""
    for constraint in graph.placement_constraints:
        if constraint.is_together:
            continue
        views = [group[np.searchsorted(elements, own)] for own in constraint.elements()]
        for k in range(len(views[0])):
            sets = tuple(np.unique(own[k]) for own in views)
            if max(map(len, sets)) > 1:
                yield sets


def placement_groups(graph: Graph) -> PlacedTogether | None:
    """The constraints of a graph on its elements; `None` where it has none.

    Raises:
        PlacementError: constraints that contradict each other, or tiles that were given.
    """
    if not graph.placement_constraints:
        return None
    named = [constraint.elements() for constraint in graph.placement_constraints]
    elements = np.unique(np.concatenate([own.reshape(-1) for views in named for own in views]))
    ends, others = [], []
    for constraint, views in zip(graph.placement_constraints, named, strict=True):
        if constraint.is_together:
            rows = np.searchsorted(elements, np.concatenate(views, axis=1))
            if rows.size:
                ends.append(np.repeat(rows[:, :1], rows.shape[1], axis=1).reshape(-1))
                others.append(rows.reshape(-1))
    joined = [np.concatenate(own) if own else np.zeros(0, np.int64) for own in (ends, others)]
    _, group = np.unique(components(joined[0], joined[1], len(elements)), return_inverse=True)
    group = group.reshape(-1)
    count = int(group.max(initial=-1)) + 1
    tiles = _given_tiles(graph, elements, group, count)
    pairs = list(_pairs_apart(graph, elements, group))
    apart = np.unique(np.concatenate(pairs), axis=0) if pairs else np.zeros((0, 2), np.int64)
    groups = PlacedTogether(elements, group, tiles, apart, tuple(_several(graph, elements, group)))
    _check_apart(graph, groups)
    return groups


def _check_apart(graph: Graph, groups: PlacedTogether) -> None:
    """See that no two groups that are to be apart were given one tile.

    Raises:
        PlacementError: naming both.
    """
    one, other = groups.tiles[groups.apart].T if len(groups.apart) else np.zeros((2, 0), np.int32)
    (wrong,) = np.nonzero((one == other) & (one >= 0))
    if len(wrong):
        names = [
            graph.element_text(int(groups.elements[groups.group == own][0])) for own in groups.apart[wrong[0]].tolist()
        ]
        raise PlacementError(
            "elements that are to be apart were given one tile",
            given=f"{names[0]} and {names[1]} on tile {one[wrong[0]]}",
            expected="different tiles for what graph.place(apart=...) names",
            fix="give one of them another tile, or leave it to the placement pass",
        )
