"""Edges in blocks: columns over the edges of many vertices at once, made on demand from access maps.

An edge is a maximal run of consecutive elements, in a field's order. Where a field's access map has the same steps at
every vertex, all vertices have the same runs, moved by where each begins. A block is then two short columns, the
vertices' first elements and the runs' places behind them, and never one entry for each edge until someone asks for it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from codelet.graphs.family import Family, Field
from codelet.graphs.vertices import (
    free_axes,
    has_same_steps,
    over_axes,
    starts_by_vertex,
    starts_of_runs,
    vertex_numbers,
)
from codelet.views.sources import source_elements
from codelet.views.tensor import Tensor

BLOCK = 1 << 22
"""About how many edges, or elements that are looked at one by one, are held at once."""


class EdgeColumns(NamedTuple):
    """Edges one by one: int64 columns of equal length."""

    vertex: np.ndarray
    start: np.ndarray
    length: np.ndarray


class EdgeBlock(NamedTuple):
    """Edges of some vertices of a family, of one field.

    Edge `k` of vertex `vertex[n]` is of the elements from `first[n] + offset[k]` on, `length[n, k]` of them. Elements
    are numbered through the graph (`Graph.locate` gives the variable). Vertices are in ascending order, the edges of
    each in the field's; a vertex of several rows, where its edges are like nobody else's, is there once for each.

    Attributes:
        family: the family.
        field: the field that they are of.
        vertex: int64 of shape (n,): the vertices' numbers in the family.
        first: int64 of shape (n,): where the edges of each begin.
        offset: int64 of shape (k,): how far behind that each edge begins.
        length: int64 that broadcasts to (n, k): the number of elements.
    """

    family: Family
    field: Field
    vertex: np.ndarray
    first: np.ndarray
    offset: np.ndarray
    length: np.ndarray

    def __repr__(self) -> str:
        return f"<EdgeBlock of field {self.field.name!r} of {self.family!r}: {self.num_edges:,} edges>"

    @property
    def num_edges(self) -> int:
        """The number of edges."""
        return len(self.vertex) * len(self.offset)

    @property
    def columns(self) -> EdgeColumns:
        """The edges one by one, vertex by vertex."""
        shape = len(self.vertex), len(self.offset)
        start = (self.first[:, None] + self.offset).reshape(-1)
        length = np.broadcast_to(self.length, shape).reshape(-1)
        return EdgeColumns(np.repeat(self.vertex, len(self.offset)), start, length)


def edge_blocks(family: Family, limit: int = BLOCK) -> Iterator[EdgeBlock]:
    """All edges of a family, field by field, in blocks of about `limit` edges."""
    for field in family.fields:
        yield from blocks_of_field(family, field, limit)


def blocks_of_field(family: Family, field: Field, limit: int = BLOCK) -> Iterator[EdgeBlock]:
    """The edges of one field, in blocks of about `limit` edges; none of vertex state."""
    tensor = field.tensor
    if tensor is None or not math.prod(field.type.shape) or not family.num_vertices:
        return
    if tensor.rows is not None:
        yield from _single(family, field, *_ragged_elements(family, tensor))
        return
    if has_same_steps(tensor):
        yield from _moved(family, field, tensor, limit)
        return
    elements = source_elements(tensor.source)
    for number, block in tensor.index.blocks(family.axes, limit):
        rows = elements[block].reshape(len(block), -1)
        vertex = np.repeat(np.arange(number, number + len(rows)), rows.shape[1])
        yield from _single(family, field, vertex, rows.reshape(-1))


def _moved(family: Family, field: Field, tensor: Tensor, limit: int) -> Iterator[EdgeBlock]:
    """Edges that are the same runs at every vertex, moved."""
    index = tensor.index
    zeros = (0,) * index.ndim
    begins = index[zeros]
    steps = index.only(range(index.ndim), (), 0).values().reshape(1, -1)
    own = starts_of_runs(steps - steps.min())[0]
    offset = steps[0, own]
    length = np.diff(np.append(np.flatnonzero(own), steps.size))[None]
    first = over_axes(begins.values(begins.axes), begins.axes, family.axes)
    first = np.broadcast_to(first, family.extents).reshape(-1)
    first = source_elements(tensor.source)[first]
    at_once = max(1, limit // len(offset))
    for start in range(0, family.num_vertices, at_once):
        part = first[start : start + at_once]
        yield EdgeBlock(family, field, np.arange(start, start + len(part)), part, offset, length)


def _single(family: Family, field: Field, vertex: np.ndarray, elements: np.ndarray) -> Iterator[EdgeBlock]:
    """Edges put together of elements one by one, in the order of vertices; padding is of no edge."""
    if not (elements >= 0).any():
        return
    starts = starts_by_vertex(elements, vertex)
    run = np.cumsum(starts)[elements >= 0] - 1
    length = np.bincount(run, minlength=int(starts.sum()))[:, None]
    yield EdgeBlock(family, field, vertex[starts], elements[starts], np.zeros(1, np.int64), length)


def _ragged_elements(family: Family, tensor: Tensor) -> tuple[np.ndarray, np.ndarray]:
    """The vertex of every element of a ragged field, and the element, by vertex and then in the field's order."""
    elements = source_elements(tensor.source)[tensor.index.values(free_axes(family, tensor))]
    vertex = np.broadcast_to(vertex_numbers(family, tensor), elements.shape).reshape(-1)
    order = np.argsort(vertex, kind="stable")
    return vertex[order], elements.reshape(-1)[order]
