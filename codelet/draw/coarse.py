"""A graph of few nodes for one of many points: stretches of points as one node, links between two counted.

Stretches are of vertices in the order of their tiles, where those are known, and else in that of their numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from codelet.draw.groups import Groups
from codelet.draw.libraries import compiled, side_by_side
from codelet.draw.links import Links

MOST_NODES = 60_000
"""About how many nodes there are at most: below 65,536, whatever the rounding, so that a node is 16 bits."""


@dataclass(frozen=True, eq=False)
class CoarseGraph:
    """Nodes that stand for stretches of points, and the links between them.

    Attributes:
        node: uint16, the node of every point.
        order: int32, the vertices node by node; empty where their numbers are in that order.
        group: int32, the group of every node.
        size: int64, the number of points of each node.
        degree: float64, the number of links of the points of each node, those within it twice.
        source: int32, one end of each pair of nodes that links join.
        target: int32, the other end.
        weight: float32, by how many.
    """

    node: np.ndarray
    order: np.ndarray
    group: np.ndarray
    size: np.ndarray
    degree: np.ndarray
    source: np.ndarray
    target: np.ndarray
    weight: np.ndarray

    @property
    def num_nodes(self) -> int:
        """The number of nodes."""
        return len(self.group)


@compiled
def _count_pairs(
    node: np.ndarray,
    order: np.ndarray,
    first: np.ndarray,
    source: np.ndarray,
    begin: int,
    end: int,
    last: int,
    pairs: np.ndarray,
) -> tuple[int, int]:
    """Count the links to vertices from the place `begin` to `end` by the nodes of both ends, in the order of targets.

    Args:
        node: the node of every point.
        order: the vertices at all places, node by node; empty where their numbers are their places.
        first: where the links to each vertex begin.
        source: where each link comes from.
        begin: the place of the first vertex, which begins a node.
        end: the place behind the last.
        last: the number of nodes.
        pairs: int64 of shape (room, 3), where the nodes of source and target and the number of links go; room for
            those of any one node.

    Returns:
        The place to go on with, which begins a node, and how many pairs there are.
    """
    counts = np.zeros(last, np.int64)
    seen = np.empty(last, np.int32)
    filled = 0
    place = begin
    while place < end:
        target = node[order[place] if len(order) else place]
        if filled + last > len(pairs):
            break
        num_seen = 0
        while place < end:
            v = order[place] if len(order) else place
            if node[v] != target:
                break
            for k in range(first[v], first[v + 1]):
                other = node[source[k]]
                if counts[other] == 0:
                    seen[num_seen] = other
                    num_seen += 1
                counts[other] += 1
            place += 1
        for k in range(num_seen):
            pairs[filled, 0] = seen[k]
            pairs[filled, 1] = target
            pairs[filled, 2] = counts[seen[k]]
            counts[seen[k]] = 0
            filled += 1
    return place, filled


def _nodes_of_groups(groups: Groups, most: int) -> tuple[np.ndarray, np.ndarray]:
    """The node at every place among the points, in stretches of about equal size, and the group of every node."""
    sizes = groups.sizes
    total = int(sizes.sum())
    wanted = np.maximum(np.minimum(sizes, 4), np.rint(sizes * (most / max(1, total))).astype(np.int64))
    counts = np.minimum(wanted, sizes)
    begins = np.concatenate([[0], np.cumsum(counts)[:-1]])
    node = np.empty(total, np.uint16)
    for group in range(len(sizes)):
        own = np.arange(sizes[group], dtype=np.int64) * counts[group] // max(1, sizes[group])
        node[groups.first[group] : groups.first[group + 1]] = begins[group] + own
    return node, np.repeat(np.arange(len(sizes), dtype=np.int32), counts)


def order_of_tiles(groups: Groups, tile: np.ndarray | None) -> np.ndarray:
    """The vertices, group by group, in the order of their tiles, int32; empty where that is the order of numbers."""
    order = np.zeros(0, np.int32)
    if tile is None:
        return order
    for begin, end in pairwise(np.minimum(groups.first, len(tile)).tolist()):
        # What has no tile has the greatest number there is, and comes last.
        own = tile[begin:end].view(f"u{tile.itemsize}")
        if (own[1:] < own[:-1]).any():
            if not len(order):
                order = np.arange(len(tile), dtype=np.int32)
            order[begin:end] = begin + np.argsort(own, kind="stable")
    return order


def coarsen(links: Links, groups: Groups, tile: np.ndarray | None = None, most: int = MOST_NODES) -> CoarseGraph:
    """Stretches of points as nodes, about `most` of them and no more than 65,535.

    Args:
        links: the links.
        groups: the groups of the points.
        tile: as `tiles_of` gives it: groups are cut in the order of tiles, or of numbers where none are known.
        most: how many nodes.
    """
    node, group = _nodes_of_groups(groups, min(most, 65_535 - 4 * len(groups.sizes)))
    num_nodes, num_vertices = len(group), links.num_vertices
    order = order_of_tiles(groups, tile)
    ends = np.zeros(2, np.int64)
    if num_vertices:  # shares begin where nodes do
        places = np.searchsorted(links.first, np.linspace(0, links.num_links, 5)[1:-1].astype(np.int64))
        cuts = np.searchsorted(node[:num_vertices], node[np.minimum(places, num_vertices - 1)])
        ends = np.array([0, *cuts, num_vertices])
    if len(order):
        node[order] = node[:num_vertices].copy()

    def count(share: tuple[int, int]) -> list[np.ndarray]:
        begin, end = share
        room = np.empty((max(1 << 20, num_nodes), 3), np.int64)
        found = []
        while begin < end:
            begin, filled = _count_pairs(node, order, links.first, links.source, begin, end, num_nodes, room)
            found.append(room[:filled].copy())
        return found

    shares = list(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))
    parts = [part for own in side_by_side(count, shares) for part in own]
    pairs = np.concatenate([np.zeros((0, 3), np.int64), *parts])
    degree = np.bincount(pairs[:, 0], pairs[:, 2], num_nodes) + np.bincount(pairs[:, 1], pairs[:, 2], num_nodes)
    # A pair and its reverse are one.
    low, high = np.minimum(pairs[:, 0], pairs[:, 1]), np.maximum(pairs[:, 0], pairs[:, 1])
    key, where = np.unique((low * num_nodes + high)[low != high], return_inverse=True)
    weight = np.bincount(where, pairs[low != high, 2], len(key)).astype(np.float32)
    size = np.bincount(node, minlength=num_nodes)
    source, target = np.divmod(key, max(1, num_nodes))
    return CoarseGraph(node, order, group, size, degree, source.astype(np.int32), target.astype(np.int32), weight)
