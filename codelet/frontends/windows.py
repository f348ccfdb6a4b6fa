"""Reductions of windows, and their derivatives."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from jax.extend import core as jax_core

from codelet import ops
from codelet.frontends.folds import add_folds, from_start, is_inside, spread
from codelet.frontends.rules import rule
from codelet.frontends.values import Value
from codelet.jaxprs.folds import plain_operation

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def _is_plain(dilation: Any, padding: Any) -> bool:
    """Whether windows have no holes, and no elements are cut off or put between."""
    return all(n == 1 for own in dilation for n in own) and all(n >= 0 for pair in padding for n in pair)


def _windows(primitive: str, kind: str, dtypes: str, by: str = "`ops.reduce_window`") -> None:
    """Make `ops.reduce_window` the rule of a primitive, for dtypes of some kinds; `ops.max_pool` for plain windows."""

    @rule(primitive, by=by)
    def reduce_window(
        walk: Walk,
        x: Value,
        *,
        window_dimensions: Any,
        window_strides: Any,
        padding: Any,
        base_dilation: Any,
        window_dilation: Any,
    ) -> Any:
        tensor = walk.tensor(x)
        if tensor.dtype.kind not in dtypes:
            return NotImplemented
        if kind == "max" and _is_plain((base_dilation, window_dilation), padding):
            axes, window, strides, pads = _moving(window_dimensions, window_strides, padding)
            if not axes:
                return tensor
            return ops.max_pool(walk.graph, tensor, window, strides, pads, axis=axes, grain=walk.grain)
        windows = window_dimensions, window_strides, padding, base_dilation, window_dilation
        return ops.reduce_window(walk.graph, tensor, kind, *windows, grain=walk.grain, name=primitive)


_windows("reduce_window_max", "max", "iufV", by="`ops.max_pool`, or `ops.reduce_window`")
_windows("reduce_window_sum", "sum", "iufcV")
_windows("reduce_window_min", "min", "iufV")


@rule("select_and_scatter_add", by="`ops.max_pool_gradient`")
def select_and_scatter_add(
    walk: Walk,
    cotangent: Value,
    x: Value,
    *,
    select_prim: Any,
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
) -> Any:
    """The gradient of the largest of each window: to the first of the largest."""
    if select_prim.name != "ge" or any(n < 0 for pair in padding for n in pair) or cotangent.dtype == bool:
        return NotImplemented
    axes, window, strides, pads = _moving(window_dimensions, window_strides, padding)
    if not axes:
        return cotangent
    slopes, tensor = walk.tensor(cotangent), walk.tensor(x)
    return ops.max_pool_gradient(walk.graph, slopes, tensor, window, strides, pads, axis=axes, grain=walk.grain)


@rule("select_and_gather_add", by="`ops.reduce_window_tangent`")
def select_and_gather_add(
    walk: Walk,
    tangent: Value,
    x: Value,
    *,
    select_prim: Any,
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
    base_dilation: Any,
    window_dilation: Any,
) -> Any:
    """The derivative along a direction of the largest of each window, or the smallest: the first of those."""
    kind = {"ge": "max", "le": "min"}.get(select_prim.name)
    if kind is None:
        return NotImplemented
    direction, tensor = walk.tensor(tangent), walk.tensor(x)
    windows = window_dimensions, window_strides, padding, base_dilation, window_dilation
    return ops.reduce_window_tangent(
        walk.graph, direction, tensor, kind, *windows, grain=walk.grain, name="select_and_gather_add"
    )


@rule("reduce_window", by="`ops.reduce_window` and a map with the beginning; by any function a vertex for each result")
def reduce_window(
    walk: Walk,
    *operands: Value,
    jaxpr: Any,
    consts: Any,
    window_dimensions: Any,
    window_strides: Any,
    padding: Any,
    base_dilation: Any,
    window_dilation: Any,
) -> Any:
    """Windows reduced by any function, from any beginning; padding, and gaps between elements, do not count."""
    closed = jax_core.ClosedJaxpr(jaxpr, consts)
    half, shape = len(operands) // 2, walk.equation.outvars[0].aval.shape  # type: ignore[attr-defined]
    tensors, starts = [walk.tensor(own) for own in operands[:half]], operands[half:]
    if not math.prod(shape) or not tensors[0].size:
        return [spread(walk, own, shape) for own in starts]
    operation = plain_operation(closed, tensors[0].dtype)
    if operation in _KINDS:
        windows = window_dimensions, window_strides, padding, base_dilation, window_dilation
        options = {"grain": walk.grain, "name": "reduce_window"}
        made = ops.reduce_window(walk.graph, tensors[0], _KINDS[operation], *windows, **options)
        return from_start(walk, operation, starts[0], made)
    widths = [(int(low), int(high), int(apart) - 1) for (low, high), apart in zip(padding, base_dilation, strict=True)]
    counts = None
    if any(map(any, widths)):
        # Ones stand where nothing is: no function that is smooth elsewhere has a slope there that is none.
        counts = walk.tensor(is_inside(widths, tensors[0].shape))
        tensors = [ops.lax_pad(walk.graph, own, np.ones((), own.dtype)[()], widths) for own in tensors]
    reaches = [(k - 1) * d + 1 for k, d in zip(window_dimensions, window_dilation, strict=True)]
    moves = list(zip(reaches, window_strides, window_dilation, strict=True))
    index = lambda places: tuple(  # noqa: E731
        slice(i * s, i * s + reach, d) for i, (reach, s, d) in zip(places, moves, strict=True)
    )
    return add_folds(walk, closed, tensors, starts, shape, index, counts)


_KINDS = {"add": "sum", "max": "max", "min": "min"}
"""By the operation that windows are reduced by: the kind of ours."""


def _moving(window: Any, strides: Any, padding: Any) -> tuple[list[int], list[int], list[int], list[Any]]:
    """The dimensions along which windows are more than the element itself: theirs alone."""
    rows = list(enumerate(zip(window, strides, padding, strict=True)))
    own = [(d, k, s, tuple(p)) for d, (k, s, p) in rows if (k, s, tuple(p)) != (1, 1, (0, 0))]
    return [d for d, *_ in own], [k for _, k, _, _ in own], [s for *_, s, _ in own], [p for *_, p in own]
