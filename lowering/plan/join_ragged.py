"""Join ragged: vertices added one at a time whose fields differ in length alone become one ragged family.

In come the families of a compute set, out come fewer: `total(x[start[i]:stop[i]])` added in a loop is a family for
each length, which all together are what a slice with symbolic ends would have made. The vertices are
ordered by what they write first, as a symbol would have them.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

import numpy as np

from codelet.errors import CodeletTraceError
from codelet.graphs.connect import Kinds
from codelet.graphs.family import Family, Field, VertexState
from codelet.tracing.statics import restored
from codelet.tracing.trace_ragged import trace_ragged
from codelet.views.affine import Table
from codelet.views.grids import Axis, Grid
from codelet.views.index import Index
from codelet.views.integers import narrowed
from codelet.views.rows import Rows
from codelet.views.tensor import Tensor

FEWEST = 4
"""Families that differ in length alone become one from this number on."""


def _key(family: Family) -> Hashable:
    """What families have in common that can become one."""
    fields = []
    for field in family.fields:
        own: Hashable = field.type.shape, field.state is not None and field.state.index is not None
        if field.tensor is not None:
            index = field.tensor.index
            own = field.tensor.source, index.strides, tuple(table.keys[1:] for table in index.tables)
        fields.append((field.name, field.kind, len(field.type.shape), field.type.dtype, field.type.weak, own))
    return family.codelet.codelet, family.codelet.variant, family.tile is None, tuple(fields)


def _has_elements(tensor: Tensor) -> bool:
    """Whether a view names its elements one by one, rather than by where they start."""
    return any(isinstance(key, int) for table in tensor.index.tables for key in table.keys)


def _start(tensor: Tensor) -> Index:
    """Where the elements of a view start, at every vertex."""
    index = tensor.index
    return Index(index.offset, (), (), index.symbols, index.tables)


def _joined_table(indices: Sequence[Index], axis: Axis, order: np.ndarray) -> Table:
    """The offsets of all vertices along one axis."""
    values = np.concatenate([index.values(index.axes) for index in indices])
    return Table((axis,), narrowed(values[order]), 1)


def _joined_tensor(tensors: Sequence[Tensor], counts: Sequence[int], axis: Axis, order: np.ndarray) -> Tensor | None:
    """Views of all vertices as one, ragged where their lengths differ; None where that cannot be told."""
    first = tensors[0]
    shapes = np.asarray([tensor.shape for tensor in tensors]).reshape(len(tensors), -1)
    differ = np.flatnonzero((shapes != shapes[0]).any(axis=0))
    elements = _has_elements(first)
    if len(differ) > 1 or (elements and first.ndim != 1):
        return None
    if not len(differ) and elements:
        values = np.concatenate([tensor.index.values(tensor.index.axes) for tensor in tensors])[order]
        return Tensor(first.source, Index(0, first.shape, (0,), (), (Table((axis, 0), narrowed(values), 1),)))
    if not len(differ):
        starts = _joined_table(list(map(_start, tensors)), axis, order)
        return Tensor(first.source, Index(0, first.shape, first.index.strides, (), (starts,)))
    at = int(differ[0])
    lengths = np.repeat(shapes[:, at], counts)[order]
    rows = Rows((axis,), lengths)
    if elements:
        own = [row for tensor in tensors for row in tensor.index.values(tensor.index.axes)]
        entries = np.concatenate([own[k] for k in order])
        return Tensor(first.source, Index(0, (rows.total,), (0,), (), (Table((0,), narrowed(entries), 1),)), rows, 0)
    starts = _joined_table(list(map(_start, tensors)), axis, order)
    shape, strides = list(first.shape), list(first.index.strides)
    shape[at], step, strides[at] = rows.total, strides[at], 0
    inside = Index.stretched(starts.values.astype(np.int64), step, rows).rekeyed({0: at}, tuple(shape))
    return Tensor(first.source, Index(0, tuple(shape), tuple(strides)) + inside, rows, at)


def _joined_state(states: Sequence[VertexState], axis: Axis, order: np.ndarray) -> VertexState:
    """Constants of all vertices."""
    if states[0].index is not None:
        indices = [state.index for state in states if state.index is not None]
        return VertexState(index=Index(0, (), (), (), (_joined_table(indices, axis, order),)))
    return VertexState(array=np.concatenate([state.array for state in states if state.array is not None])[order])


def _joined(families: Sequence[Family]) -> Family | None:
    """Families as one; None where they cannot be."""
    counts = [family.num_vertices for family in families]
    by_name = [{field.name: field for field in family.fields} for family in families]
    outputs = [next(field.tensor for field in family.fields if field.is_written) for family in families]
    if any(tensor is None or _has_elements(tensor) for tensor in outputs):
        return None
    firsts = [_start(tensor) for tensor in outputs if tensor is not None]
    order = np.argsort(np.concatenate([index.values(index.axes) for index in firsts]), kind="stable")
    axis = Grid([range(sum(counts))]).axes[0]
    kinds = Kinds()
    fields: dict[str, Field] = {}
    for name, field in by_name[0].items():
        if field.tensor is None:
            states = [own[name].state for own in by_name]
            fields[name] = replace(field, state=_joined_state([s for s in states if s], axis, order))
            continue
        own_tensors = [own[name].tensor for own in by_name]
        tensor = _joined_tensor([t for t in own_tensors if t is not None], counts, axis, order)
        if tensor is None:
            return None
        fields[name] = replace(field, tensor=tensor, type=kinds.type_of(tensor))
    traced = families[0].codelet
    if not kinds.rows:
        return None
    inputs = {name: fields[name].type for name in traced.inputs}
    try:
        with restored(traced.settings):
            codelet = trace_ragged(traced.codelet, inputs, traced.static, kinds.lengths())
    except CodeletTraceError:
        return None  # what it returns follows no length, or is of another type at some
    if any(fields[name].type[:2] != kind[:2] for name, kind in codelet.outputs.items()):
        return None
    tiles = [family.tile for family in families if family.tile is not None]
    tile = Index(0, (), (), (), (_joined_table(tiles, axis, order),)) if tiles else None
    lines = tuple(dict.fromkeys(line for family in families for line in family.lines))
    place = {line: k for k, line in enumerate(lines)}
    numbers = [np.asarray([place[line] for line in family.lines])[family.line_of_vertex] for family in families]
    return replace(
        families[0],
        codelet=codelet,
        axes=(axis,),
        fields=tuple(fields.values()),
        tile=tile,
        lines=lines,
        line_of_vertex=np.concatenate(numbers)[order],
    )


def join_rows(families: Sequence[Family]) -> list[Family]:
    """Families of a compute set, those that differ in the lengths of their fields alone as one."""
    groups: dict[Hashable, list[Family]] = {}
    for family in families:
        groups.setdefault(_key(family) if family.is_gathered else family, []).append(family)
    found: list[Family] = []
    for group in groups.values():
        joined = _joined(group) if len(group) >= FEWEST else None
        found += group if joined is None else [joined]
    return found
