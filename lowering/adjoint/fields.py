"""Fields: the tensors of a family's fields when its adjoint runs, and the places that they read."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from codelet.errors import ViewError
from codelet.graphs.family import Family, Field
from codelet.graphs.graph import Graph
from codelet.tracing.field_types import FieldType
from codelet.views.digits import row_major_strides
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.integers import blocks_of, integer_dtype
from codelet.views.tensor import Tensor
from lowering.adjoint.added import new_tensor


def constant_of(graph: Graph, field: Field, axes: Sequence[Axis]) -> Index | Tensor:
    """Vertex state, for the vertices of the adjoint over the same axes."""
    state = field.state
    assert state is not None
    if state.index is not None:
        return state.index
    array = state.array
    assert array is not None
    made = graph.add_constant(graph.free_name(field.name), array)
    if array.ndim == len(field.type.shape):
        return made
    return made[tuple(Index(0, (), (), ((axis, 1),)) for axis in axes)]


def _apart(family: Family, tensor: Tensor) -> list[Axis]:
    """The axes of a family that choose no row of a ragged tensor."""
    rows = () if tensor.rows is None else tensor.rows.axes
    return [axis for axis in family.axes if axis not in rows]


def places_of(family: Family, tensor: Tensor) -> Index:
    """The flat positions in the source that vertices read through a field, with their axes as leading dimensions."""
    return tensor.index.lifted(_apart(family, tensor))


def contributions_of(graph: Graph, name: str, family: Family, field: Field) -> tuple[Tensor, Tensor]:
    """A variable for the contributions of a field: all of it, and as the vertices write it."""
    tensor = field.tensor
    assert tensor is not None
    made, own = held_over(graph, name, _apart(family, tensor), FieldType(tensor.index.shape, tensor.dtype))
    return made, Tensor(own.source, own.index, tensor.rows, tensor.ragged_dimension)


def held_over(graph: Graph, name: str, axes: Sequence[Axis], kind: FieldType) -> tuple[Tensor, Tensor]:
    """A variable for the results of vertices over some axes through a field of a type: all of it, and as
    they write it.
    """
    shape = (*(axis.extent for axis in axes), *kind.shape)
    made, strides = new_tensor(graph, name, shape, kind.dtype), row_major_strides(shape)
    index = Index(0, kind.shape, strides[len(axes) :], tuple(zip(axes, strides, strict=False)))
    return made, Tensor(made.source, index)


def dropped_dimensions(index: Index) -> list[int]:
    """The dimensions of an index along which it names the same element several times."""
    return [d for d, n in enumerate(index.shape) if n > 1 and d not in index.keys]


def is_injective(index: Index) -> bool:
    """Whether an index without symbols names no element twice."""
    if index.tables:  # of which no inverse need be made
        low, high = index.bounds() or (0, -1)
        if index.size > high - low + 1:
            return False
        is_named = np.zeros(high - low + 1, bool)
        for (block,) in blocks_of(index.values_over(range(index.ndim), integer_dtype(low, high))):
            is_named[block - low] = True
        return int(np.count_nonzero(is_named)) == index.size
    try:
        index.inverse()
    except ViewError:
        return False
    return True
