"""The time of one step: sync, exchange, compute, each as long as its slowest tile takes.

In come NumPy columns over vertices and over tiles; out come cycles for each tile. The model is Valiant's
bulk-synchronous machine ("A Bridging Model for Parallel Computation", 1990), which the IPU is: a step waits
for all tiles, then they exchange, then each computes alone.

On a tile the vertices of a compute set are dealt to the worker threads longest first (Graham, "Bounds on
Multiprocessing Timing Anomalies", 1969), each to the thread that is free first. The threads take turns to issue
an instruction, so that a thread runs at one `num_workers`-th of the clock, alone or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from codelet.target import Target
from lowering.machine.vertex_cycles import FamilyCycles


class PlacedVertices(NamedTuple):
    """Vertices of a compute set on their tiles.

    Attributes:
        tiles: the tile of each vertex, of shape (vertices,), integers.
        cycles: of each vertex.
    """

    tiles: np.ndarray
    cycles: FamilyCycles


class EqualVertices(NamedTuple):
    """How many vertices of the same cycles a tile has: columns sorted by cycles, the longest first.

    All of shape (different cycles on a tile, summed over tiles), int64.
    """

    tiles: np.ndarray
    cycles: np.ndarray
    counts: np.ndarray


def count_equal_vertices(placed: Sequence[PlacedVertices], num_tiles: int) -> EqualVertices:
    """The vertices of a compute set that one worker runs each, counted by tile and cycles."""
    columns: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []
    for tiles, vertices in placed:
        distinct, of_vertex = vertices.numbers(lambda own: 0 if own.shared else own.worker), vertices.of_vertex
        if of_vertex is None:
            counts = np.bincount(tiles, minlength=num_tiles)
            used = np.flatnonzero(counts)
            columns.append((used, np.full(len(used), distinct[0]), counts[used]))
            continue
        keys = tiles.astype(np.int64) * len(distinct) + of_vertex
        if num_tiles * len(distinct) <= 4 * len(keys) + 2**16:  # cheaper to count than to sort
            counts = np.bincount(keys, minlength=num_tiles * len(distinct))
            used = np.flatnonzero(counts)
            counts = counts[used]
        else:
            used, counts = np.unique(keys, return_counts=True)
        columns.append((used // len(distinct), distinct[used % len(distinct)], counts))
    if not columns:
        return EqualVertices(*(np.zeros(0, np.int64) for _ in range(3)))
    tiles, cycles, counts = (np.concatenate(column).astype(np.int64) for column in zip(*columns, strict=True))
    order = np.argsort(-cycles, kind="stable")
    return EqualVertices(tiles[order], cycles[order], counts[order])


def _deal(loads: np.ndarray, cycles: int, counts: np.ndarray) -> np.ndarray:
    """The loads of workers after equal vertices are dealt, each to the worker with the least load.

    In units of `cycles` worker i stands at level l_i with a rest r_i < 1, and its next vertices start at l_i,
    l_i + 1, ... plus r_i. The first vertices dealt are those that start first: below some level all of them,
    and of those at that level the ones with the smallest rests. The level is the largest x with
    sum(max(0, x - l_i)) <= count; as that sum is the largest of k x - (the k smallest l_i summed) over k, it is
    the smallest of (count + the k smallest l_i summed) / k.

    Args:
        loads: of shape (tiles, workers), cycles.
        cycles: of one vertex, above 0.
        counts: vertices dealt on each tile, of shape (tiles,).
    """
    levels, rests = np.divmod(loads, cycles)
    in_order = np.sort(levels, axis=1).cumsum(axis=1)
    full = ((counts[:, None] + in_order) // np.arange(1, loads.shape[1] + 1)).min(axis=1)
    dealt = np.maximum(full[:, None] - levels, 0)
    left = counts - dealt.sum(axis=1)
    may_take = levels <= full[:, None]
    rank = np.where(may_take, rests, cycles).argsort(axis=1, kind="stable").argsort(axis=1, kind="stable")
    return loads + (dealt + (rank < left[:, None])) * cycles


def tile_cycles(placed: Sequence[PlacedVertices], num_tiles: int, num_workers: int) -> np.ndarray:
    """Cycles that each tile computes for in a step, int64 of shape (num_tiles,).

    V vertices of c cycles on a tile take `ceil(V / num_workers) * num_workers * c`. Those that all workers share run
    one after another, and while the supervisor computes no worker does.

    Args:
        placed: the vertices of the step.
        num_tiles: of the machine.
        num_workers: threads of a tile.

    >>> from codelet.target import VertexCycles
    >>> both = PlacedVertices(np.array([0, 0, 1]), FamilyCycles((VertexCycles(10),)))
    >>> tile_cycles([both], num_tiles=3, num_workers=6)
    array([60, 60,  0])
    """
    tiles, cycles, counts = count_equal_vertices(placed, num_tiles)
    loads = np.zeros((num_tiles, num_workers), np.int64)
    for start, stop in itertools.pairwise(np.flatnonzero(np.diff(cycles, prepend=-1, append=-1))):
        each = int(cycles[start])
        if each:
            dealt = np.bincount(tiles[start:stop], counts[start:stop], num_tiles).astype(np.int64)
            here = np.flatnonzero(dealt)
            loads[here] = _deal(loads[here], each, dealt[here])
    total = num_workers * loads.max(axis=1)
    for own, vertices in placed:
        alone = vertices.numbers(lambda own: own.tile_cycles(num_workers) if own.shared else own.supervisor)
        if alone.any():
            each = alone[0] if vertices.of_vertex is None else alone[vertices.of_vertex]
            total += np.bincount(own, np.broadcast_to(each, own.shape), num_tiles).astype(np.int64)
    return total


def exchange_cycles(
    received_bytes: np.ndarray, sent_bytes: np.ndarray, target: Target, shared_bytes: np.ndarray | None = None
) -> np.ndarray:
    """Cycles that each tile exchanges for in a step, int64 of shape (num_tiles,).

    A tile sends and receives at once, `exchange_bytes_per_cycle` each. That it sends as fast as it receives,
    and that the time a message travels is hidden by the next, are guesses: Graphcore publishes what is
    received.

    Args:
        received_bytes: by each tile.
        sent_bytes: by each tile, a message to many tiles counted once.
        target: its `paired_exchange` says whether what both tiles of a pair receive takes half the time.
        shared_bytes: of those received, the bytes that the other tile of the pair, 2k and 2k + 1, receives
            too; none when left off.
    """
    rate = target.exchange_bytes_per_cycle
    # In half bytes, so that what is shared can count for half of itself.
    received = 2 * np.asarray(received_bytes, np.int64)
    if shared_bytes is not None and target.paired_exchange:
        received = received - np.asarray(shared_bytes, np.int64)
    return np.maximum(-(-received // (2 * rate)), -(-np.asarray(sent_bytes, np.int64) // rate))


def copy_cycles(copied_bytes: np.ndarray, num_workers: int) -> np.ndarray:
    """Cycles of each tile that copies so many bytes within its memory, int64; a tile that copies none takes none.

    The workers share it out, each 8 bytes at a time by a loop like PopLibs' fill: a guess.
    """
    share = -(-np.asarray(copied_bytes, np.int64) // (8 * num_workers))
    return np.where(share > 0, num_workers * (23 + share), 0)
