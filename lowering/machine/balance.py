"""Balance: the tiles of vertices, so that no tile computes for much longer than some tile must.

In come the tiles that vertices want, their cycles, and what the tiles have to do already; out come their tiles.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from codelet.target import FamilyCycles, VertexCycles
from lowering.plan.runs import Runs


def load_of(num_workers: int) -> Callable[[VertexCycles], int]:
    """By how much a vertex adds to the load of a tile: for how long it runs, if its workers are never idle."""
    return lambda own: own.tile_cycles(num_workers) if own.shared else own.counted


def least_bound(cycles: Sequence[FamilyCycles], counts: Sequence[int], load: np.ndarray, num_workers: int) -> int:
    """How many cycles of vertices a tile may be given so that no tile computes for longer than some tile must.

    Workers run side by side: a vertex on each takes no longer than one. So equal vertices come in rounds of one for
    each worker, and a round that is begun may be filled.

    Args:
        cycles: of the vertices of a compute set, by family.
        counts: how many vertices each family has.
        load: cycles of the vertices that tiles have been given already.
        num_workers: of a tile.
    """
    weight = load_of(num_workers)
    total = sum(own.total(count, weight) for own, count in zip(cycles, counts, strict=True))
    most = max((weight(each) for own in cycles for each in own.distinct), default=0)
    alike = len({each for own in cycles for each in own.distinct}) == 1
    even = -(-total // len(load))
    if any(each.shared for own in cycles for each in own.distinct):
        num_workers = 1  # which run together
    if alike:
        rounds = -(-even // max(1, num_workers * most))
        return max(rounds * num_workers * most, int(load.max(initial=0)))
    return max(even + most, num_workers * most, int(load.max(initial=0)))


def level_of(load: np.ndarray, more: int) -> float:
    """To what level the least loaded tiles are filled by so many more cycles."""
    ordered = np.sort(load).astype(np.float64)
    until = np.cumsum(ordered)
    levels = (more + until) / np.arange(1, len(load) + 1)  # where the first k tiles share it
    return float(levels[np.argmax(np.append(levels[:-1] <= ordered[1:], True))])


def balanced(wanted: np.ndarray, cycles: FamilyCycles, load: np.ndarray, bound: int, num_workers: int) -> np.ndarray:
    """The tiles of vertices: those wanted, until a tile's load is `bound`; the others go, in order, where least is.

    `load` is what the tiles have already, and is added to.
    """
    num_tiles, each = len(load), cycles.of_each(len(wanted), load_of(num_workers))
    full = load + np.bincount(wanted, each, num_tiles).astype(np.int64)
    if full.max() <= bound:
        load[:] = full
        return wanted
    order = np.argsort(wanted.astype(np.uint16 if num_tiles < 1 << 16 else np.int64), kind="stable")
    until = np.append(0, np.cumsum(each if cycles.of_vertex is None else each[order]))
    stops = np.cumsum(np.bincount(wanted, minlength=num_tiles))
    starts = np.append(0, stops[:-1])
    # The first of each tile's, up to the bound.
    kept = np.clip(np.searchsorted(until, bound - load + until[starts], side="right") - 1, starts, stops)
    load += until[kept] - until[starts]
    moved = np.sort(order[Runs(kept, stops).numbers()])
    cost = each[moved]
    room = np.cumsum(np.maximum(level_of(load, int(cost.sum())) - load, 0))
    to = np.searchsorted(room, np.cumsum(cost) - cost, side="right")
    tiles = wanted.copy()
    tiles[moved] = np.minimum(to, num_tiles - 1)
    load += np.bincount(tiles[moved], cost, num_tiles).astype(np.int64)
    return tiles
