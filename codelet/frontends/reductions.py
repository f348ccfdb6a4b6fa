"""Reductions, running sums and their like, sorting."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from codelet import ops
from codelet.frontends.rules import rule
from codelet.frontends.values import Value

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def _reduction(primitive: str, name: str, dtypes: str) -> None:
    """Make an operation the rule of a primitive, for dtypes of some kinds."""

    @rule(primitive, by=f"`ops.{name}`")
    def reduce(walk: Walk, x: Value, *, axes: tuple[int, ...]) -> Any:
        tensor = walk.tensor(x)
        if not axes:
            return tensor
        empty = not tensor.size
        if tensor.dtype.kind not in dtypes or (empty and name in ("max", "min")):
            return NotImplemented
        more = {"dtype": tensor.dtype} if name in ("sum", "prod") else {}
        return getattr(ops, name)(walk.graph, tensor, tuple(map(int, axes)), grain=walk.grain, name=primitive, **more)


_reduction("reduce_sum", "sum", "iufcV")
_reduction("reduce_prod", "prod", "iufcV")
_reduction("reduce_max", "max", "iufV")
_reduction("reduce_min", "min", "iufV")
_reduction("reduce_and", "all", "b")
_reduction("reduce_or", "any", "b")


def _place(primitive: str) -> None:
    @rule(primitive, by=f"`ops.{primitive}`")
    def place(walk: Walk, x: Value, *, axes: tuple[int, ...], index_dtype: Any) -> Any:
        if len(axes) != 1:
            return NotImplemented
        made = getattr(ops, primitive)(walk.graph, walk.tensor(x), int(axes[0]), grain=walk.grain)
        return made if made.dtype == index_dtype else ops.cast(walk.graph, made, index_dtype, grain=walk.grain)


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
def top_k(walk: Walk, x: Value, *, k: int, axis: int = -1, is_stable: Any = None, **_: Any) -> Any:
    """The greatest elements of lines, and where they are."""
    return list(ops.top_k(walk.graph, walk.tensor(x), k, axis=axis, grain=walk.grain))


@rule("iota", by="`ops.iota`")
def iota(walk: Walk, *sizes: Value, dtype: Any, shape: tuple[int, ...], dimension: int, sharding: Any = None) -> Any:
    """Numbers that count along a dimension."""
    if sizes or sharding is not None:
        return NotImplemented
    return ops.iota(walk.graph, np.dtype(dtype), shape, dimension, grain=walk.grain)
