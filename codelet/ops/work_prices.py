"""The cost of a work: its vertices, by their sizes, and the step of all of them, of many ways to cut it at once."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.ops.blockwise import Work
from codelet.ops.homes import Moved, moved_elements
from codelet.ops.prices import POINTER_BYTES, Costs, StepCost, by_group, costs_of, moved_cycles, step_costs
from codelet.ops.ways import Ways, product_of
from codelet.target import Target
from codelet.tracing.codelets import Codelet


def work_costs(target: Target, work: Work, codelet: Codelet, is_partial: bool) -> Costs:
    """The costs of vertices by their sizes: numbers, or columns of these."""
    own = costs_of(target, codelet, **work.values_of(codelet, is_partial))
    return lambda sizes: own.of({f.name: (tuple(sizes[a] for a in f.axes), f.dtype) for f in work.fields})


def _pointers(work: Work, ways: Ways) -> Any:
    """Bytes that a tile keeps for where edges begin: of each element that lies apart; and of rows, where so many edges
    are kept for each vertex that it counts.
    """
    rows = [own.axes[:-1] for own in (*work.fields, *work.results)] * work.turns
    apart = [field.axes for field in work.fields if field.is_scattered]
    of_vertex = sum((product_of(ways.grains, axes) for axes in (*rows, *apart)), np.int64(0))
    return POINTER_BYTES * of_vertex * ways.vertices_of_tile.prod(axis=0)


def work_price(
    target: Target, work: Work, ways: Ways, which: np.ndarray, moves: Sequence[Moved] | None = None
) -> StepCost:
    """The cost of a work, without sums of partial results, with the codelets of these numbers: columns.

    Args:
        target: the machine.
        work: the work.
        ways: to cut its axes.
        which: the codelet of each.
        moves: the movement of each field, if it is known.
    """
    moves = moves or [moved_elements(field.home, ways, field.axes) for field in work.fields]
    parts = product_of(ways.vertices, work.summed) > 1
    is_partial = [parts & work.may_be_partial(result) for result in work.results]
    costs = functools.cache(lambda group: work_costs(target, work, work.pair[group // 2], bool(group % 2)))
    received = sent = there = 0
    held = _pointers(work, ways)
    for field, moved in zip(work.fields, moves, strict=True):
        block = product_of(ways.blocks, field.axes) * field.dtype.itemsize
        held = held + block
        there = there + np.where(moved.received > 0, 0, block if field.home else 0)
        received = received + moved.received * field.dtype.itemsize
        sent = sent + moved.sent * field.dtype.itemsize
    for result, partial in zip(work.results, is_partial, strict=True):
        each = np.where(
            partial, product_of(ways.vertices_of_tile, work.summed) * result.partials.itemsize, result.dtype.itemsize
        )
        held = held + each * product_of(ways.blocks, result.axes)
    groups = 2 * which + (is_partial[0] if is_partial else 0)
    vertex = by_group(target, groups, lambda group, sizes: costs(group)(sizes))
    own_bytes: dict[str, Any] = {"received_bytes": received, "sent_bytes": sent, "tile_bytes": held}
    return step_costs(target, work.name, ways, vertex, **own_bytes, there_bytes=there, edges=work.counts_edges)


def later_cycles(target: Target, work: Work, ways: Ways) -> Any:
    """Cycles of the exchange by which results come to where they are wanted, if they are made elsewhere."""
    later: Any = 0
    for result in work.results:
        if result.wanted:
            moved = (own * result.dtype.itemsize for own in moved_elements(result.wanted, ways, result.axes))
            received, sent = moved
            cycles = target.sync_cycles + moved_cycles(target, received, ways.num_tiles, sent)
            later = later + np.where((received > 0) | (sent > 0), cycles, 0)
    return later
