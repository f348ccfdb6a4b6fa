"""Kernels over edges, compiled by numba: those that no array operation says."""

from __future__ import annotations

import numpy as np

from codelet.draw.libraries import compiled


@compiled
def write_runs(
    held: np.ndarray, number: int, vertex: np.ndarray, first: np.ndarray, offset: np.ndarray, length: np.ndarray
) -> None:
    """Give the elements of edges the numbers of their vertices, from `number` on."""
    rows, columns = length.shape
    for n in range(len(vertex)):
        whose = vertex[n] + number
        for k in range(len(offset)):
            start = first[n] + offset[k]
            for element in range(start, start + length[n % rows, k % columns]):
                held[element] = whose


@compiled
def claim_origins(
    held: np.ndarray,
    claimed: np.ndarray,
    variables: np.ndarray,
    last: np.ndarray,
    num_points: int,
    vertex: np.ndarray,
    first: np.ndarray,
    offset: np.ndarray,
    length: np.ndarray,
) -> int:
    """Give the origins that elements of edges hold points, and let the elements hold these.

    Origin `e` is stored as -2 - e. One without a point is given that of the origin before it, where the same vertex
    reads both and both are elements of one variable, and else a new one.

    Args:
        held: the content of each element.
        claimed: the point of every origin; 0 where it has none.
        variables: the first element of every variable, in ascending order, and the end of all.
        last: of the last origin given a point the vertex, and where its variable begins and ends; it is written to.
        num_points: how many points there are before.
        vertex: with the next three the edges, as in `EdgeBlock`.
        first: see `vertex`.
        offset: see `vertex`.
        length: see `vertex`.

    Returns:
        How many points there are.
    """
    rows, columns = length.shape
    for n in range(len(vertex)):
        for k in range(len(offset)):
            start = first[n] + offset[k]
            for element in range(start, start + length[n % rows, k % columns]):
                if held[element] < -1:
                    origin = -2 - held[element]
                    if claimed[origin] == 0:
                        if last[0] != vertex[n] or origin < last[1] or origin >= last[2]:
                            place = np.searchsorted(variables, origin, side="right")
                            last[0] = vertex[n]
                            last[1] = variables[place - 1]
                            last[2] = variables[place]
                            num_points += 1
                        claimed[origin] = num_points - 1
                    held[element] = claimed[origin]
    return num_points


@compiled
def collect_sources(
    held: np.ndarray,
    row: int,
    vertex: np.ndarray,
    first: np.ndarray,
    offset: np.ndarray,
    length: np.ndarray,
    stamp: np.ndarray,
    epoch: int,
    counts: np.ndarray,
    found: np.ndarray,
) -> tuple[int, int]:
    """Collect the contents of the elements of edges, each once for a vertex, from row `row` on, as long as there is
    room.

    Args:
        held: the content of each element.
        row: the row of edges to begin with.
        vertex: with the next three the edges, as in `EdgeBlock`.
        first: see `vertex`.
        offset: see `vertex`.
        length: see `vertex`.
        stamp: for each possible number, the last vertex that it was found for, from `epoch` on.
        epoch: the number added to the vertices' numbers in `stamp`, above all that is in it.
        counts: how many were found for each vertex, which is added to.
        found: where they go, one vertex behind the other; room for those of any one row.

    Returns:
        The row to go on with, and how many were found.
    """
    rows, columns = length.shape
    filled = 0
    for n in range(row, len(vertex)):
        total = 0
        for k in range(len(offset)):
            total += length[n % rows, k % columns]
        if filled + total > len(found):
            return n, filled
        v = vertex[n]
        before = filled
        last = -1
        for k in range(len(offset)):
            start = first[n] + offset[k]
            for element in range(start, start + length[n % rows, k % columns]):
                whose = held[element]
                if whose != last:
                    last = whose
                    if whose >= 0 and stamp[whose] != v + epoch:
                        stamp[whose] = v + epoch
                        found[filled] = whose
                        filled += 1
        counts[v] += filled - before
    return len(vertex), filled


@compiled
def unite(
    sources: np.ndarray, ends: np.ndarray, stamp: np.ndarray, epoch: int, counts: np.ndarray, out: np.ndarray
) -> int:
    """Several lists of sources for each of some vertices as one, each source once, in the order in which they come.

    Args:
        sources: all lists, one behind the other.
        ends: int64 of shape (lists of a vertex, vertices + 1): list `p` of vertex `v` is from `ends[p, v]` to
            `ends[p, v + 1]`.
        stamp: as of `collect_sources`.
        epoch: as of `collect_sources`.
        counts: set to how many there are for each vertex.
        out: where they go.

    Returns:
        How many there are.
    """
    filled = 0
    for v in range(len(counts)):
        before = filled
        for p in range(len(ends)):
            for k in range(ends[p, v], ends[p, v + 1]):
                source = sources[k]
                if stamp[source] != v + epoch:
                    stamp[source] = v + epoch
                    out[filled] = source
                    filled += 1
        counts[v] = filled - before
    return filled
