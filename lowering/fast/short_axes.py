"""Short axes: axes that only vertex state tells apart are one axis again when a family runs.

In the normal form an axis is split wherever something that varies along it steps irregularly: a flag that is 1 for
four vertices and 0 for the next four makes an axis of 4 and one of 2. XLA unrolls loops over such short axes, which
costs five times as much to compile and nothing less to run. Where all edges cross axes as one, the state is a
table instead: the 136 stages of a bitonic sort of 65,536 elements compile in 2 s of CPU time rather than 8.
"""

from __future__ import annotations

import math
from dataclasses import replace

from codelet.graphs.family import Family, Field, VertexState
from codelet.views.digits import chains
from codelet.views.grids import Axis, Grid, Key
from codelet.views.index import Index
from codelet.views.tensor import Tensor
from lowering.plan.collect import goes_on

SHORT = 64
"""Axes of at most this many positions are worth merging."""

MAX_MERGED = 1 << 16
"""Positions of a merged axis: a table of more does not stay in the cache beside what the vertices read."""


def _groups(family: Family) -> list[list[Axis]]:
    """The axes of a family, neighbours together that all edges cross as one, where that merges a short one."""
    edges = [field.tensor.index for field in family.fields if field.tensor is not None]
    crossed, tabled = goes_on(edges), {key for edge in edges for table in edge.tables for key in table.keys}

    def follows(group: list[Axis], axis: Axis) -> bool:
        count = math.prod(own.extent for own in (*group, axis))
        is_short = min(group[-1].extent, axis.extent) <= SHORT and count <= MAX_MERGED
        return is_short and not {group[-1], axis} & tabled and crossed(group, axis)

    return chains(family.axes, follows)


def _over(index: Index, axes: tuple[Axis, ...], positions: list[Index]) -> Index:
    """An index with given positions in the place of axes."""
    own = [Index(0, index.shape, tuple(int(d == k) for d in range(index.ndim))) for k in range(index.ndim)]
    spread = [position.with_trailing_ones(index.ndim).broadcast_to(index.shape) for position in positions]
    return index.lifted(axes).compose([*spread, *own], index.shape)


def merge_short_axes(family: Family) -> Family:
    """A family with the axes merged that only vertex state tells apart, if some of them are short."""
    states = [(field.state, len(field.type.shape)) for field in family.fields if field.state is not None]
    is_split = any(state.index is not None and state.index.axes for state, _ in states)
    has_arrays = any(state.array is not None and state.array.ndim > rank for state, rank in states)
    if family.rows or has_arrays or not is_split:
        return family
    groups = _groups(family)
    if len(groups) == len(family.axes):
        return family
    merged = Grid([range(math.prod(axis.extent for axis in group)) for group in groups]).axes
    positions = []
    for group, axis in zip(groups, merged, strict=True):
        positions += Index(0, (), (), ((axis, 1),)).unravelled([part.extent for part in group])
    names: dict[Key, Key] = {group[-1]: axis for group, axis in zip(groups, merged, strict=True)}
    gone = {axis: 0 for group in groups for axis in group[:-1]}

    def moved(field: Field) -> Field:
        if field.tensor is not None:
            index = field.tensor.index
            return replace(field, tensor=Tensor(field.tensor.source, index.at(gone).rekeyed(names, index.shape)))
        assert field.state is not None
        index = field.state.index
        return field if index is None else replace(field, state=VertexState(index=_over(index, family.axes, positions)))

    labels = tuple("*".join(family.axis_names[family.axes.index(axis)] for axis in group) for group in groups)
    fields = tuple(map(moved, family.fields))
    return replace(family, axes=merged, axis_names=labels, fields=fields, tile=None, line_of_vertex=None)
