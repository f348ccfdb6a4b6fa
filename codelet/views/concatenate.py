"""Concatenate: several tensors end to end, as one view."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from codelet.errors import FieldTypeError, ForeignGraphError, ViewError
from codelet.views.extents import as_dimension
from codelet.views.grids import common_axes, union_axes
from codelet.views.index import Index, row_major
from codelet.views.patchwork import joined
from codelet.views.tensor import Tensor


def _as_one(indices: Sequence[Index], dimension: int) -> Index | None:
    """Indices that go on in each other along a dimension as one, as those of neighbours do; None where they do not."""
    parts = [index for index in indices if index.size]
    if not parts or any(dimension in table.keys for index in parts for table in index.tables):
        return None
    first, lengths = parts[0], [index.shape[dimension] for index in parts]
    begin = (slice(None),) * dimension + (slice(0, 1),)
    behind = [(index[begin] - first[begin]).bounds() for index in parts]  # the first, everywhere by one number or not
    long = next((index for index in parts if index.shape[dimension] > 1), None)
    step = long.strides[dimension] if long is not None else next((low for low, _ in filter(None, behind[1:])), 0)
    places = itertools.accumulate(lengths[:-1], initial=0)
    goes_on = all(ends == (step * place,) * 2 for ends, place in zip(behind, places, strict=True))
    if not goes_on or any(index.strides[dimension] != step for index in parts if index.shape[dimension] > 1):
        return None
    shape = (*first.shape[:dimension], sum(lengths), *first.shape[dimension + 1 :])
    strides = (*first.strides[:dimension], step, *first.strides[dimension + 1 :])
    return Index(first.offset, shape, strides, first.symbols, first.tables)


def concatenate(tensors: Sequence[Tensor], axis: int = 0) -> Tensor:
    """Concatenate tensors along an axis, as one view.

    `ops.concatenate` casts tensors of several dtypes as well.

    Args:
        tensors: of one dtype, and of shapes that agree in all other dimensions.
        axis: the axis to concatenate along.

    Raises:
        ViewError: shapes that do not fit together, or no tensors.
        FieldTypeError: dtypes that differ.
        ForeignGraphError: tensors of different graphs.

    >>> import codelet as cl
    >>> graph = cl.Graph()
    >>> both = cl.concatenate([graph.add_variable("a", (3,)), graph.add_variable("b", (2,))])
    >>> both.shape
    (5,)
    """
    listed = list(tensors) if isinstance(tensors, (Tensor, Sequence)) else [tensors]
    for tensor in listed:
        if not isinstance(tensor, Tensor):
            raise ViewError(
                "something other than a tensor is concatenated",
                given=f"{tensor!r:.80}",
                expected="a list of tensors: cl.concatenate([x, y])",
                fix="graph.add_constant makes an array a tensor",
            )
    if not listed:
        raise ViewError("there is nothing to join", given="concatenate([])", expected="a list of one tensor or more")
    tensors, first = listed, listed[0]
    at = as_dimension(axis, first.ndim)
    others = [n for d, n in enumerate(first.shape) if d != at]
    for tensor in tensors:
        tensor._refuse_rows("joined")
        if tensor.graph is not first.graph:
            raise ForeignGraphError("joined tensors belong to different graphs", given=f"{first} and {tensor}")
        if tensor.dtype != first.dtype:
            raise FieldTypeError("joined tensors differ in dtype", given=f"{first.dtype} and {tensor.dtype}")
        if tensor.ndim != first.ndim or [n for d, n in enumerate(tensor.shape) if d != at] != others:
            raise ViewError(
                "joined tensors do not fit together",
                given=f"shapes {first.shape} and {tensor.shape}",
                expected=f"shapes that differ in dimension {at} alone",
            )
    # What is joined must be one array for all positions of the grid: symbols become dimensions of it.
    written = common_axes(axis for tensor in tensors for axis in tensor.axes)
    indices = [tensor.index.over(written).without_idle_symbols() for tensor in tensors]
    one = _as_one(indices, at) if all(tensor.source is first.source for tensor in tensors) else None
    if one is not None:
        return Tensor(first.source, one.mentioning(written))
    axes = union_axes([index.axes for index in indices])
    extents = tuple(axis.extent for axis in axes)
    spread = [
        Tensor(tensor.source, index.lifted(axes).broadcast_to((*extents, *tensor.shape)))
        for tensor, index in zip(tensors, indices, strict=True)
    ]
    source = joined(spread, len(axes) + at)
    return Tensor(source, row_major(source.shape).bound(axes).mentioning(written))
