"""Counts of edges: how many each vertex of a family has, by arithmetic on access maps where these are affine."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Iterable
from weakref import WeakKeyDictionary

import numpy as np

from codelet.graphs.family import Family, Field
from codelet.graphs.vertices import has_same_steps, over_axes, starts_by_vertex, starts_of_runs
from codelet.views.index import Index
from codelet.views.rows import Rows
from codelet.views.sources import Patchwork, Source, Variable, source_elements
from codelet.views.tensor import Tensor

_KNOWN: WeakKeyDictionary[Field, np.ndarray] = WeakKeyDictionary()
"""Counts of fields whose elements had to be listed, over the axes of their indices."""


def edges_by_vertex(family: Family) -> np.ndarray:
    """The exact number of edges of each vertex of a family.

    Of shape `(extents of the family's axes)`, or extents of 1 along axes over which all have as many.
    """
    total = np.zeros([1] * len(family.axes), np.int64)
    for field in family.fields:
        total = total + edges_of_field(family, field)
    return total


def edges_of_field(family: Family, field: Field) -> np.ndarray | int:
    """The exact number of edges of a field of each vertex: as `edges_by_vertex`, or a number that all have."""
    if field.tensor is None or not math.prod(field.type.shape):
        return 0
    if field.tensor.rows is not None:
        return _ragged_edges(family, field, field.tensor)
    is_element = not field.type.shape and isinstance(field.tensor.source, Variable)
    return 1 if is_element else _field_edges(family, field, field.tensor)


def count_edges(family: Family) -> int:
    """The exact number of edges of all vertices of a family."""
    each = edges_by_vertex(family)
    return int(each.sum()) * (family.num_vertices // max(1, each.size))


def counted_together(families: Iterable[Family]) -> list[Family]:
    """Families, the edges of whose fields that read one padded or joined tensor are counted at once, and then known."""
    found = list(families)
    by_source: dict[Patchwork, list[Field]] = {}
    for field in (field for family in found for field in family.fields):
        tensor = field.tensor
        if tensor is None or tensor.rows is not None or not isinstance(tensor.source, Patchwork) or field in _KNOWN:
            continue
        if math.prod(field.type.shape):
            by_source.setdefault(tensor.source, []).append(field)
    for source, fields in by_source.items():
        elements = _Elements(source)
        _KNOWN.update((field, elements.counts(field.tensor.index)) for field in fields if field.tensor is not None)
    return found


class _Elements:
    """The elements at the positions of a source, and how many runs of them begin up to each."""

    def __init__(self, source: Source):
        self.at = source_elements(source)

    @functools.cached_property
    def begun(self) -> np.ndarray:
        """Of a patchwork, for each position."""
        kind = np.int32 if len(self.at) < 2**31 else np.int64
        return np.cumsum(starts_of_runs(self.at[None])[0], dtype=kind)

    def counts(self, index: Index) -> np.ndarray:
        """The number of edges of a view of the source, for each position of its axes, in order."""
        last = index.ndim - 1
        is_rows = index.ndim and index.strides[-1] == 1 and not any(last in table.keys for table in index.tables)
        if not is_rows or not isinstance(self.at, np.ndarray):
            listed = (self.at[block].reshape(len(block), -1) for _, block in index.blocks(index.axes))
            return np.concatenate([starts_of_runs(each).sum(axis=1) for each in listed])
        firsts = dataclasses.replace(index, shape=index.shape[:-1], strides=index.strides[:-1])
        rows = (own.reshape(len(own), -1) for _, own in firsts.blocks(index.axes, limit=1 << 18))
        return np.concatenate([self._counts_of_rows(first, first + index.shape[-1] - 1) for first in rows])

    def _counts_of_rows(self, first: np.ndarray, last: np.ndarray) -> np.ndarray:
        """Of rows of positions, of shape (vertices, rows of each), by the first and the last position of each."""
        begin, end = self.at[first], self.at[last]
        inside = (begin >= 0) + self.begun[last] - self.begun[first]
        goes_on = (end[:, :-1] >= 0) & (begin[:, 1:] == end[:, :-1] + 1)
        return inside.sum(axis=1) - goes_on.sum(axis=1)


def _field_edges(family: Family, field: Field, tensor: Tensor) -> np.ndarray | int:
    index = tensor.index
    if has_same_steps(tensor):
        # When dimension d moves on, the steps within it start again.
        runs, within, outer = 1, 0, index.size
        for extent, stride in reversed(list(zip(index.shape, index.strides, strict=True))):
            outer //= extent
            if stride - within != 1:
                runs += outer * (extent - 1)
            within += stride * (extent - 1)
        return runs
    axes = index.axes
    if field not in _KNOWN:
        _KNOWN[field] = _Elements(tensor.source).counts(index)
    return over_axes(_KNOWN[field], axes, family.axes)


def _ragged_edges(family: Family, field: Field, tensor: Tensor) -> np.ndarray:
    assert tensor.rows is not None
    if field not in _KNOWN:
        _KNOWN[field] = _counts_of_rows(tensor, tensor.rows)
    return over_axes(_KNOWN[field], (*tensor.index.axes, *tensor.rows.axes), family.axes)


def _counts_of_rows(tensor: Tensor, rows: Rows) -> np.ndarray:
    """The edges of each row of a ragged tensor, over the axes of its index and then of its rows."""
    axes = tensor.index.axes
    elements = source_elements(tensor.source)[tensor.index.values(axes)]
    positions = math.prod(axis.extent for axis in axes)
    place = [1] * elements.ndim
    place[len(axes) + tensor.ragged_dimension] = rows.total
    kind = np.int32 if positions * rows.count <= np.iinfo(np.int32).max else np.int64
    first = np.arange(positions, dtype=kind).reshape([axis.extent for axis in axes] + [1] * tensor.ndim)
    owners = first * kind(rows.count) + rows.owners.astype(kind).reshape(place)
    whose, elements = np.broadcast_to(owners, elements.shape).reshape(-1), elements.reshape(-1)
    if (whose[1:] < whose[:-1]).any():  # the elements of each vertex stay in the field's order
        order = np.argsort(whose, kind="stable")
        whose, elements = whose[order], elements[order]
    return np.bincount(whose[starts_by_vertex(elements, whose)], minlength=positions * rows.count)
