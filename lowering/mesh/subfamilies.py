"""Subfamilies: some of the vertices of a family, as a family.

In comes a flag for each vertex. What is a stretch along each axis stays affine: an axis that one dimension of a
variable merged with others is split for it. Anything else is a list of vertices, and their fields read by tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from codelet.graphs.family import Family, Field, VertexState
from codelet.views.grids import Axis, Grid, combined_axis
from codelet.views.index import Index
from codelet.views.rows import Rows
from codelet.views.tensor import Tensor
from lowering.plan.split_exceptions import changed_fields


def distinct(values: np.ndarray) -> np.ndarray:
    """Values for each vertex of a family, the first alone along axes where all are one element of the array."""
    return values[tuple(slice(1) if step == 0 else slice(None) for step in values.strides)]


def _stretch(places: np.ndarray) -> slice | None:
    """Rising places as a slice; None where they are none."""
    steps = np.diff(places)
    if len(steps) and (steps != steps[0]).any():
        return None
    return slice(int(places[0]), int(places[-1]) + 1, int(steps[0]) if len(steps) else 1)


def _box(chosen: np.ndarray) -> tuple[slice, ...] | None:
    """The slice along each axis of flags, where those that are set are all of a box of evenly spaced places."""
    few, found = distinct(chosen), list[slice]()
    for k, n in enumerate(chosen.shape):
        along = np.asarray(few.any(axis=tuple(d for d in range(chosen.ndim) if d != k)))
        own = _stretch(np.flatnonzero(along)) if len(along) == n else slice(0, n, 1)
        if own is None:
            return None
        found.append(own)
    inside = few[tuple(own if few.shape[k] == chosen.shape[k] else slice(None) for k, own in enumerate(found))]
    return tuple(found) if inside.all() else None


def _changed(
    family: Family,
    axes: tuple[Axis, ...],
    change: Callable[[Index], Index],
    arrange: Callable[[np.ndarray], np.ndarray],
) -> Family:
    """A family over other axes, without what says where its vertices were written and lie."""
    fields = changed_fields(family, change, arrange)
    return replace(
        family,
        axes=axes,
        axis_names=tuple(f"p{k}" for k in range(len(axes))),
        fields=fields,
        tile=None,
        line_of_vertex=None,
        inside=(),
    )


class GridBox(NamedTuple):
    """Some vertices of a family, as a box of its grid.

    Attributes:
        extents: of the grid, whose last axis may be split.
        slices: along each of its axes.
    """

    extents: tuple[int, ...]
    slices: tuple[slice, ...]


def box_of(family: Family, chosen: np.ndarray, inner: Sequence[int] = ()) -> GridBox | None:
    """The box that some vertices of a family are; None where they are none. See `subfamily`."""
    if family.rows or not family.axes or not distinct(chosen).any():
        return None
    n = chosen.shape[-1]
    for size in (n, *inner):
        if size == n or (1 < size < n and n % size == 0):
            extents = chosen.shape if size == n else (*chosen.shape[:-1], n // size, size)
            slices = _box(chosen.reshape(extents))
            if slices is not None:
                return GridBox(extents, slices)
    return None


def within_box(family: Family, box: GridBox) -> Family:
    """The vertices in a box of a family's grid."""
    extents, slices = box
    lengths = [len(range(*own.indices(n))) for own, n in zip(slices, extents, strict=True)]
    axes = Grid(map(range, lengths)).axes

    def change(index: Index) -> Index:
        lifted = index.lifted(family.axes).reshape((*extents, *index.shape))
        return lifted[slices].bound(axes).without_idle_symbols()

    def arrange(array: np.ndarray) -> np.ndarray:
        return array.reshape(*extents, *array.shape[len(family.axes) :])[slices]

    return _changed(family, axes, change, arrange)


def _listed(family: Family, chosen: np.ndarray) -> Family:
    """Some vertices, one by one."""
    places = np.nonzero(chosen)
    count = len(places[0])
    axis = combined_axis(dict(zip(family.axes, places, strict=True)), count)
    (plain,) = Grid([range(count)]).axes

    def change(field: Field) -> Field:
        if field.tensor is not None:
            if field.tensor.rows is not None:
                return replace(field, tensor=field.tensor.over([axis]))
            tensor = field.tensor.over([axis])
            return replace(field, tensor=Tensor(tensor.source, tensor.index.rekeyed({axis: plain}, tensor.shape)))
        assert field.state is not None
        if field.state.index is not None:
            index = field.state.index.over([axis]).without_idle_symbols()
            return replace(field, state=VertexState(index=index.rekeyed({axis: plain}, index.shape)))
        array = field.state.array
        assert array is not None
        return replace(field, state=VertexState(array=array[places])) if array.ndim > len(field.type.shape) else field

    fields = tuple(map(change, family.fields))
    if family.rows:
        # Rows name their axes, which must be those of the family.
        fields = tuple(_over_axis(field, axis, plain) for field in fields)
    return replace(family, axes=(plain,), axis_names=("p0",), fields=fields, tile=None, line_of_vertex=None, inside=())


def _over_axis(field: Field, axis: Axis, other: Axis) -> Field:
    """A field whose rows are over one axis, over another instead."""
    tensor = field.tensor
    if tensor is None or tensor.rows is None:
        return field
    rows = Rows(tuple(other if own is axis else own for own in tensor.rows.axes), tensor.rows.counts)
    index = tensor.index.rekeyed({axis: other}, tensor.index.shape)
    return replace(field, tensor=Tensor(tensor.source, index, rows, tensor.ragged_dimension))


def subfamily(family: Family, chosen: np.ndarray, inner: Sequence[int] = ()) -> Family | None:
    """Some vertices of a family; None where there are none.

    Args:
        family: the family.
        chosen: a flag for each vertex, of the shape of its grid.
        inner: extents by which its last axis may be split, so that the vertices are a stretch along the parts.
    """
    if not distinct(chosen).any():
        return None
    if distinct(chosen).all():
        return replace(family, tile=None, line_of_vertex=None)
    box = box_of(family, chosen, inner)
    return _listed(family, chosen) if box is None else within_box(family, box)


def inner_extents(family: Family) -> tuple[int, ...]:
    """By what the last axis of a family may be split: where it runs through the dimensions of what it writes."""
    found: set[int] = set()
    for field in family.fields:
        if field.is_written and field.tensor is not None and family.axes:
            step = abs(field.tensor.index.coefficient(family.axes[-1]))
            shape = field.tensor.source.shape
            sizes = [math.prod(shape[d:]) for d in range(1, len(shape))]
            found.update(size // step for size in sizes if step and size % step == 0)
    return tuple(sorted(found, reverse=True))
