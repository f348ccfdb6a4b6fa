"""Where the nodes of a mesh start: unfolded, by how many links they are from a few nodes far apart.

Pivot MDS of U. Brandes and C. Pich, "Eigensolver methods for progressive multidimensional scaling of large data" (Graph
Drawing 2006).
"""

from __future__ import annotations

import numpy as np

from codelet.draw.coarse import CoarseGraph
from codelet.draw.libraries import compiled

_PIVOTS = 32
_LEAST_HOPS = 32
"""From how many links between the two ends of a graph on it may be a mesh."""
_FILLING = 1 / 4
"""And of the square root of its nodes: what fills a plane is as wide, networks are much less."""


@compiled
def _hops(first: np.ndarray, other: np.ndarray, start: int, hops: np.ndarray, queue: np.ndarray) -> int:
    """How many links each node is from one, -1 where none lead there; returns how many nodes are reached."""
    hops[:] = -1
    hops[start] = 0
    queue[0] = start
    begin, end = 0, 1
    while begin < end:
        node = queue[begin]
        begin += 1
        for k in range(first[node], first[node + 1]):
            if hops[other[k]] < 0:
                hops[other[k]] = hops[node] + 1
                queue[end] = other[k]
                end += 1
    return end


def unfolded(coarse: CoarseGraph) -> np.ndarray | None:
    """Places of nodes, about as far from each other as they are by links; None for a graph that is no mesh.

    A graph is no mesh if it has several parts, is wide in few links. Nor is it one if it has many nodes of a group that
    none is nearer to than to the others, as the summands of a sum: they would lie on one spot.

    Returns:
        float64 of shape (nodes, 2), of mean square 1 from their middle, which is 0.
    """
    count = coarse.num_nodes
    if count < _LEAST_HOPS:
        return None
    ends = np.concatenate([coarse.source, coarse.target])
    other = np.concatenate([coarse.target, coarse.source])[np.argsort(ends, kind="stable")]
    first = np.concatenate([[0], np.cumsum(np.bincount(ends, minlength=count))])
    hops, queue = np.empty(count, np.int32), np.empty(count, np.int64)
    # The two ends of the graph: a node far from any, and one far from that.
    pivot = 0
    for _ in range(2):
        if _hops(first, other, pivot, hops, queue) < count:
            return None
        pivot = int(hops.argmax())
    if hops.max() < max(_LEAST_HOPS, _FILLING * np.sqrt(count)):
        return None
    columns, nearest = [], hops.copy()
    for _ in range(min(_PIVOTS, count)):
        _hops(first, other, pivot, hops, queue)
        columns.append(hops.copy())
        nearest = np.minimum(nearest, hops)
        pivot = int(nearest.argmax())
    away = np.stack([*columns, coarse.group])
    away = away[:, np.lexsort(away)]
    if (away[:, 1:] != away[:, :-1]).any(axis=0).sum() < count / 2:
        return None
    squares = np.stack(columns, 1).astype(float) ** 2
    centred = squares - squares.mean(axis=0) - squares.mean(axis=1, keepdims=True) + squares.mean()
    # Not by BLAS, whose sums depend on how many threads it has.
    _, vectors = np.linalg.eigh(np.einsum("ni,nj->ij", centred, centred))
    # Either sign of a vector is right: one is taken.
    vectors = vectors[:, :-3:-1]
    vectors = vectors * np.where(vectors[np.abs(vectors).argmax(axis=0), [0, 1]] < 0, -1, 1)
    place = np.einsum("ni,ij->nj", centred, vectors)
    return place / np.sqrt((place**2).sum(axis=1).mean())
