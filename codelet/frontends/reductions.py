"""Reductions, prefix sums and their like, sorting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet import ops
from codelet.frontends.folds import from_start, lines_folded
from codelet.frontends.for_each import add_for_each_line
from codelet.frontends.rules import RULES, rule
from codelet.frontends.values import Value
from codelet.jaxprs.folds import begins_with_nothing, plain_operation
from codelet.jaxprs.primitives import says_nothing
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def _by_line(walk: Walk, x: Value, axes: Sequence[int]) -> Any:
    """A reduction by one vertex for each result."""
    return add_for_each_line(walk, [x], axes, lambda own: {"axes": tuple(range(own))})


def _added(walk: Walk, name: str, tensor: Tensor, axes: Sequence[int], scope: str) -> Tensor:
    """A reduction by an operation, in the dtype of the operand."""
    more = {"dtype": tensor.dtype} if name in ("sum", "prod") else {}
    return getattr(ops, name)(walk.graph, tensor, tuple(map(int, axes)), grain=walk.grain, name=scope, **more)


def _reduction(primitive: str, name: str, dtypes: str) -> None:
    """Make an operation the rule of a primitive, for dtypes of some kinds."""

    @rule(primitive, by=f"`ops.{name}`; for other dtypes a vertex for each result")
    def reduce(walk: Walk, x: Value, *, axes: tuple[int, ...]) -> Any:
        tensor = walk.tensor(x)
        if all(tensor.shape[d] == 1 for d in axes):  # each of one element: a view
            return tensor.reshape(tuple(n for d, n in enumerate(tensor.shape) if d not in axes))
        empty = not tensor.size
        if tensor.dtype.kind not in dtypes or (empty and name in ("max", "min")):
            return _by_line(walk, tensor, axes)
        return _added(walk, name, tensor, axes, primitive)


_reduction("reduce_sum", "sum", "iufcV")
_reduction("reduce_prod", "prod", "iufcV")
_reduction("reduce_max", "max", "iufV")
_reduction("reduce_min", "min", "iufV")
_reduction("reduce_and", "all", "b")
_reduction("reduce_or", "any", "b")


_PLAIN = {"add": "sum", "mul": "prod", "max": "max", "min": "min"}
"""By the operation that a reduction by a function is: which of ours it is."""


@rule("reduce_xor", by="a vertex for each result")
def reduce_xor(walk: Walk, x: Value, *, axes: tuple[int, ...]) -> Any:
    """Whether an odd number is true; by bits."""
    return _by_line(walk, x, axes)


@rule("reduce", by="`ops.sum` or its like and a map with the beginning; by any function a vertex for each result")
def reduce(walk: Walk, *operands: Value, computation: Any, jaxpr: Any, dimensions: tuple[int, ...]) -> Any:
    """A reduction by any function, from any beginning."""
    half = len(operands) // 2
    tensors, starts = [walk.tensor(own) for own in operands[:half]], operands[half:]
    operation = plain_operation(jaxpr, tensors[0].dtype)
    begins = tensors[0].size and not begins_with_nothing(tensors[0].shape, dimensions)
    if operation is not None and begins:
        return from_start(walk, operation, starts[0], _added(walk, _PLAIN[operation], tensors[0], dimensions, "reduce"))
    return lines_folded(walk, jaxpr, tensors, starts, dimensions)


def _all_reduced(primitive: str, reduced: str) -> None:
    @rule(primitive, by=f"as `{reduced}`, over the axis that `jax.vmap` names")
    def over_axes(walk: Walk, *operands: Value, axes: tuple[Any, ...], axis_index_groups: Any = None) -> Any:
        if axis_index_groups is not None or not all(isinstance(axis, int) for axis in axes):
            return NotImplemented
        return [RULES[reduced].function(walk, own, axes=axes) for own in operands]


_all_reduced("psum", "reduce_sum")
_all_reduced("pmax", "reduce_max")
_all_reduced("pmin", "reduce_min")


def _place(primitive: str) -> None:
    @rule(primitive, by=f"`ops.{primitive}`")
    def place(walk: Walk, x: Value, *, axes: tuple[int, ...], index_dtype: Any) -> Any:
        if len(axes) != 1:
            return NotImplemented
        made = getattr(ops, primitive)(walk.graph, walk.tensor(x), int(axes[0]), grain=walk.grain)
        return made if made.dtype == index_dtype else ops.cast(walk.graph, made, dtype=index_dtype, grain=walk.grain)


_place("argmax")
_place("argmin")


def _running(primitive: str) -> None:
    @rule(primitive, by=f"`ops.{primitive}`")
    def running(walk: Walk, x: Value, *, axis: int, reverse: bool) -> Any:
        tensor = walk.tensor(x)
        if tensor.dtype.kind not in "iufV":
            return NotImplemented
        return getattr(ops, primitive)(walk.graph, tensor, axis, reverse=reverse, grain=walk.grain)


for _name in ("cumsum", "cumprod", "cummax", "cummin"):
    _running(_name)


@rule("cumlogsumexp", by="a vertex for each line")
def cumlogsumexp(walk: Walk, x: Value, *, axis: int, reverse: bool) -> Any:
    """Running logarithms of sums of exponentials."""
    return add_for_each_line(walk, [x], [axis], lambda _: {"axis": 0})


@rule("approx_top_k", by="a vertex for each line")
def approx_top_k(walk: Walk, x: Value, **parameters: Any) -> Any:
    """About the greatest elements of lines, and where they are."""
    axis = parameters["reduction_dimension"] % len(x.shape)
    return add_for_each_line(walk, [x], [axis], lambda _: {"reduction_dimension": 0})


@rule("sort", by="`ops.sort_together`")
def sort(walk: Walk, *operands: Value, dimension: int, is_stable: bool, num_keys: int) -> Any:
    """Lines sorted by the first of several arrays."""
    tensors = [walk.tensor(own) for own in operands]
    if any(own.dtype.kind not in "iufVb" for own in tensors):
        return NotImplemented
    return list(
        ops.sort_together(
            walk.graph, tensors, dimension, num_keys=num_keys, stable=is_stable, grain=walk.grain, name="sort"
        )
    )


@rule("top_k", by="`ops.top_k`")
def top_k(walk: Walk, x: Value, *, k: int, axis: int = -1, is_stable: Any = None) -> Any:
    """The greatest elements of lines, and where they are."""
    return list(ops.top_k(walk.graph, walk.tensor(x), k, axis=axis, grain=walk.grain))


@rule("iota", by="`ops.iota`")
def iota(walk: Walk, *sizes: Value, dtype: Any, shape: tuple[int, ...], dimension: int, sharding: Any = None) -> Any:
    """Numbers that count along a dimension."""
    if sizes or not says_nothing(sharding):
        return NotImplemented
    return ops.iota(walk.graph, shape, dimension, dtype=np.dtype(dtype), grain=walk.grain)
