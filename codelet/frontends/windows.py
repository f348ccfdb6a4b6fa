"""Reductions of windows, and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from codelet import ops
from codelet.frontends.rules import rule
from codelet.frontends.values import Value

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
            return ops.max_pool(walk.graph, tensor, window, strides, pads, axes=axes, grain=walk.grain)
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
    if select_prim.name != "ge" or any(n < 0 for pair in padding for n in pair):
        return NotImplemented
    axes, window, strides, pads = _moving(window_dimensions, window_strides, padding)
    if not axes:
        return cotangent
    slopes, tensor = walk.tensor(cotangent), walk.tensor(x)
    return ops.max_pool_gradient(walk.graph, slopes, tensor, window, strides, pads, axes=axes, grain=walk.grain)


def _moving(window: Any, strides: Any, padding: Any) -> tuple[list[int], list[int], list[int], list[Any]]:
    """The dimensions along which windows are more than the element itself: theirs alone."""
    rows = list(enumerate(zip(window, strides, padding, strict=True)))
    own = [(d, k, s, tuple(p)) for d, (k, s, p) in rows if (k, s, tuple(p)) != (1, 1, (0, 0))]
    return [d for d, *_ in own], [k for _, k, _, _ in own], [s for *_, s, _ in own], [p for *_, p in own]
