"""The time of one step on each tile: of its vertices, of its exchange, of its copies.

In come NumPy columns over vertices and over tiles; out come cycles for each tile.

On a tile the vertices of a compute set are dealt to the worker threads longest first, each to the thread that is free
first (Graham, "Bounds on Multiprocessing Timing Anomalies", 1969). The threads take turns to issue an instruction, so
that a thread runs at one `num_workers`-th of the clock, alone or not.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from codelet.target import FamilyCycles, Target, VertexCycles


class PlacedVertices(NamedTuple):
    """Vertices of a compute set on their tiles.

    Attributes:
        tiles: the tile of each vertex, of shape (vertices,), integers.
        cycles: of each vertex.
    """

    tiles: np.ndarray
    cycles: FamilyCycles


class Traffic(NamedTuple):
    """The traffic of one exchange, in words of each tile: int64 of shape (num_tiles,).

    Attributes:
        received_words: from other tiles.
        sent_words: to other tiles, words to several counted once.
        received_paired: how many of those received go to whole pairs, at twice the rate; None for none.
        sent_paired: the same of those sent.
        bytes_between: the traffic from each chip to each other, int64 of shape (num_chips, num_chips); None for
            nothing.
    """

    received_words: np.ndarray
    sent_words: np.ndarray
    received_paired: np.ndarray | None = None
    sent_paired: np.ndarray | None = None
    bytes_between: np.ndarray | None = None

    @property
    def is_empty(self) -> bool:
        """Whether nothing moves."""
        return not (self.received_words.any() or self.sent_words.any())


class Copied(NamedTuple):
    """The bytes that each tile copies from one place of its memory to another, int64 of shape (num_tiles,).

    Attributes:
        row_bytes: bytes of elements that stay neighbours of others.
        strided_elements: the other elements.
    """

    row_bytes: np.ndarray
    strided_elements: np.ndarray


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


def _deal(loads: np.ndarray, cycles: int | np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The loads of workers after equal vertices are dealt, each to the worker with the least load.

    In units of `cycles` worker i stands at level l_i with a rest r_i < 1, and its next vertices start at l_i,
    l_i + 1, ... plus r_i. The first vertices dealt are those that start first: below some level all of them,
    and of those at that level the ones with the smallest rests. The level is the largest x with
    sum(max(0, x - l_i)) <= count; as that sum is the largest of k x - (the k smallest l_i summed) over k, it is
    the smallest of (count + the k smallest l_i summed) / k.

    Args:
        loads: of shape (tiles, workers), cycles.
        cycles: of one vertex, above 0: of all tiles, or of each, of shape (tiles, 1).
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


def tile_cycles(
    placed: Sequence[PlacedVertices], num_tiles: int, num_workers: int, launch_cycles: int = 0
) -> np.ndarray:
    """Cycles that each tile computes for in a step, int64 of shape (num_tiles,).

    V vertices of c cycles on a tile take `ceil(V / num_workers) * num_workers * c`. Those that all workers share run
    one after another, and while the supervisor computes no worker does.

    Args:
        placed: the vertices of the step.
        num_tiles: of the machine.
        num_workers: threads of a tile.
        launch_cycles: of a tile that has any of the vertices, before they run.

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
    total[np.unique(tiles)] += launch_cycles
    for own, vertices in placed:
        alone = vertices.numbers(lambda own: own.tile_cycles(num_workers) if own.shared else own.supervisor)
        if alone.any():
            each = alone[0] if vertices.of_vertex is None else alone[vertices.of_vertex]
            total += np.bincount(own, np.broadcast_to(each, own.shape), num_tiles).astype(np.int64)
    return total


def few_kinds_cycles(kinds: Sequence[tuple[VertexCycles, np.ndarray]], num_workers: int) -> np.ndarray:
    """Cycles that each tile computes for with some vertices of a few kinds, without the launch, int64.

    Args:
        kinds: the cost of a vertex of each kind, columns over tiles; and how many of them each tile has.
        num_workers: threads of a tile.
    """
    of_worker, counts = [], []
    total = np.zeros(len(kinds[0][1]), np.int64)
    for vertex, count in kinds:
        total = total + count * (vertex.tile_cycles(num_workers) if vertex.shared else vertex.supervisor)
        if not vertex.shared:
            of_worker.append(np.broadcast_to(vertex.worker, total.shape))
            counts.append(count)
    if not of_worker:
        return total
    worker, dealt = np.array(of_worker), np.array(counts)
    longest = (-(-dealt // num_workers) * worker).sum(axis=0)
    if (several := np.flatnonzero((dealt > 0).sum(axis=0) > 1)).size:  # kinds on a tile: only these need to be dealt
        loads = np.zeros((len(several), num_workers), np.int64)
        for place in np.argsort(-worker[:, several], axis=0, kind="stable"):
            cycles, count = worker[place, several], dealt[place, several]
            loads = _deal(loads, np.maximum(cycles, 1)[:, None], np.where(cycles > 0, count, 0))
        longest[several] = loads.max(axis=1)
    return total + num_workers * longest


def exchange_cycles(traffic: Traffic, target: Target, arrival: np.ndarray) -> np.ndarray:
    """Cycles that each tile exchanges for, int64 of shape (num_tiles,).

    A tile sends and receives at once, `exchange_bytes_per_cycle` each, and twice that to whole pairs. What it receives
    has been under way besides: N words arrive N and `arrival` cycles after the first is sent. PopLibs' planners also
    assume that a tile, until it is done, always has something to send or to receive (ExchangeEstimator.cpp @ 06f1b393).

    Args:
        traffic: the traffic.
        target: the machine.
        arrival: `target.arrival_cycles()`.
    """

    def busy(words: np.ndarray, paired: np.ndarray | None) -> np.ndarray:
        halves = 2 * words if paired is None else 2 * words - paired
        return -(-halves * target.word_bytes // (2 * target.exchange_bytes_per_cycle))

    received = busy(traffic.received_words, traffic.received_paired)
    sent = busy(traffic.sent_words, traffic.sent_paired)
    return np.maximum(received, sent) + np.where(traffic.received_words > 0, arrival, 0)


STRIDED_CYCLES = 8
"""Of a worker for an element that is copied from or to a stride: Poplar's model of DstStridedCopyDA32, 801 for 100."""


def copy_cycles(copied: Copied, num_workers: int) -> np.ndarray:
    """Cycles of each tile that copies within its memory, int64; a tile that copies nothing takes none.

    The workers share it out: in a row 8 bytes at a time by a loop like PopLibs' fill, which is a guess; element by
    element elsewhere, as Poplar's copies do.
    """
    share = -(-np.asarray(copied.row_bytes, np.int64) // (8 * num_workers))
    alone = -(-np.asarray(copied.strided_elements, np.int64) // num_workers)
    own = np.where(share > 0, 23 + share, 0) + np.where(alone > 0, 1 + STRIDED_CYCLES * alone, 0)
    return num_workers * own
