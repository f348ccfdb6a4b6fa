"""Split exceptions: vertices added one at a time, affine but for a few, are split into those that are and the rest.

In comes a family as it was gathered, over one axis in the order in which its vertices were added. Out come
families over parts of that axis: a few long segments over which all fields are those of nested loops, and
what lies between them as one family more. Kept together, a thousand regular vertices and three odd ones would
read through tables.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from codelet.graphs.family import Family, Field, VertexState
from codelet.views.affine import Table
from codelet.views.grids import Axis, Grid, Key
from codelet.views.index import Index
from codelet.views.tensor import Tensor

MOST_PARTS = 8
"""A family is split into at most this many: each is emitted by itself."""

SHORTEST = 16
"""Vertices of a segment, at least."""

_MOST_STEPS = 64  # of the search, so that tables without any order cost little


# --- segments -----------------------------------------------------------------------------------------


def _alike(blocks: np.ndarray) -> np.ndarray:
    """Which of the second dimension's blocks are the first one moved."""
    return (blocks - blocks[:, :, :1] == blocks[:, :1] - blocks[:, :1, :1]).all(axis=(0, 2))


def _loops_prefix(columns: np.ndarray) -> int:
    """How many of the first positions are those of nested loops over which all columns are affine, as whole loops."""
    size, n = 1, columns.shape[1]
    while (count := n // size) > 1:
        starts = columns[:, : count * size : size]
        steps = np.diff(starts)
        breaks = np.flatnonzero((steps != steps[:, :1]).any(axis=0))
        count = int(breaks[0]) + 1 if len(breaks) else count
        alike = _alike(columns[:, : count * size].reshape(len(columns), count, size))
        count = count if alike.all() else int(np.argmin(alike))
        if count < 2:
            break
        size *= count
    return size


def _segment_length(columns: np.ndarray) -> int:
    """`_loops_prefix`, looking only so far ahead as the loops go."""
    window = 1024
    while True:
        found = _loops_prefix(columns[:, :window])
        if window >= columns.shape[1] or found < window // 4:
            return found
        window *= 2


def _equal_runs(columns: np.ndarray) -> int | None:
    """Of how many runs of equal length and steps the columns consist; None where they do not."""
    steps = np.diff(columns)
    breaks = np.flatnonzero((steps != steps[:, :1]).any(axis=0))
    run = int(breaks[0]) + 1 if len(breaks) else columns.shape[1]
    count = columns.shape[1] // run
    if run == 1 or columns.shape[1] % run or not _alike(columns.reshape(len(columns), count, run)).all():
        return None
    return count


def find_segments(columns: np.ndarray) -> list[range]:
    """The long segments of positions over which all columns are affine in nested loops; [] where that is not most.

    Args:
        columns: of shape `(number of columns, n)`.
    """
    n = columns.shape[1]
    least = max(SHORTEST, n // 32)
    segments: list[range] = []
    start = steps = skipped = 0
    while start < n:
        length = _segment_length(columns[:, start:])
        if length >= least:
            segments.append(range(start, start + length))
            start += length
        else:
            # One of the few may begin what looks like a loop of its own: the next vertex may begin a longer one.
            start, skipped = start + 1, skipped + 1
        steps += 1
        if steps > _MOST_STEPS or 4 * skipped > n:
            return []
    parts, runs = len(segments) + (skipped > 0), _equal_runs(columns)
    # Runs of equal length need no more than a table of their starts, which a few of them make a small one.
    return segments if parts <= MOST_PARTS and (runs is None or parts == 1 or 4 * parts <= runs) else []


# --- parts of families --------------------------------------------------------------------------------


def _taken_index(index: Index, axis: Axis, part: Axis, positions: np.ndarray) -> Index:
    """An index at some positions of its axis, which is renamed."""
    assert not index.symbols
    names: dict[Key, Key] = {axis: part}
    tables = []
    for table in index.tables:
        values = table.values
        if axis in table.keys:
            values = np.take(values, positions, table.keys.index(axis))
        tables.append(Table(tuple(names.get(key, key) for key in table.keys), values, table.scale))
    return Index(index.offset, index.shape, index.strides, (), tuple(tables))


def changed_fields(
    family: Family, change: Callable[[Index], Index], arrange: Callable[[np.ndarray], np.ndarray]
) -> tuple[Field, ...]:
    """The fields of a family with other indices, and other arrays of vertex state that have a value for each vertex."""
    fields: list[Field] = []
    for field in family.fields:
        state = field.state
        if field.tensor is not None:
            field = replace(field, tensor=Tensor(field.tensor.source, change(field.tensor.index)))
        elif state is not None and state.index is not None:
            field = replace(field, state=VertexState(index=change(state.index)))
        elif state is not None and state.array is not None and state.array.ndim > len(field.type.shape):
            field = replace(field, state=VertexState(array=arrange(state.array)))
        fields.append(field)
    return tuple(fields)


def _taken(family: Family, positions: np.ndarray) -> Family:
    """Some of the vertices of a family over one axis."""
    (axis,) = family.axes
    (part,) = Grid([range(len(positions))]).axes
    take = lambda index: _taken_index(index, axis, part, positions)  # noqa: E731
    fields = changed_fields(family, take, lambda array: array[positions])
    lines = None if family.line_of_vertex is None else family.line_of_vertex[positions]
    tile = None if family.tile is None else take(family.tile)
    return replace(family, axes=(part,), fields=fields, tile=tile, line_of_vertex=lines)


def _columns(family: Family) -> np.ndarray | None:
    """What varies over the axis of a gathered family, of shape `(fields, vertices)`; None if more than offsets do."""
    columns = []
    for field in family.fields:
        index = field.tensor.index if field.tensor is not None else field.state.index if field.state else None
        if index is None:
            continue  # an array has a value for each vertex, wherever they go
        if index.symbols:
            return None
        for table in index.tables:
            if table.keys != family.axes:
                return None
            columns.append(table.values * table.scale)
    if family.tile is not None:
        columns += [table.values * table.scale for table in family.tile.tables]
    return np.stack(columns) if columns else None


def split_exceptions(family: Family) -> tuple[Family, ...]:
    """A gathered family as its regular segments, in order, and what is left; itself where that gains nothing."""
    if not family.is_gathered or family.rows or len(family.axes) != 1 or family.num_vertices < 2 * SHORTEST:
        return (family,)
    columns = _columns(family)
    segments = [] if columns is None else find_segments(columns)
    if not segments or len(segments[0]) == family.num_vertices:
        return (family,)
    parts = [np.arange(segment.start, segment.stop) for segment in segments]
    left = np.setdiff1d(np.arange(family.num_vertices), np.concatenate(parts))
    return tuple(_taken(family, part) for part in (*parts, left) if len(part))
