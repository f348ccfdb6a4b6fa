"""Reductions of windows: their sums, greatest and least elements, as `jax.lax.reduce_window` has them.

Windows move over padding and among positions that hold nothing (`base_dilation`), and may have holes
(`window_dilation`); the gradient of an average pooling is such a sum. Where elements are apart, results whose windows
meet them at other taps are of another phase: see `windows.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import codelet as cl
from codelet.errors import OperationError
from codelet.ops.arguments import check_tensors, checked_grain
from codelet.ops.fill import fill
from codelet.ops.planning import MEMORY_SHARE
from codelet.ops.pool_vertices import add_pooled
from codelet.ops.pooling_codelets import greatest_of, least
from codelet.ops.windows import along, checked_padding, num_windows, whole_numbers

_CODELETS = {"sum": "total", "max": "largest", "min": "smallest"}


def reduce_window(
    graph: cl.Graph,
    x: cl.Tensor,
    kind: str,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    base_dilation: Sequence[int] | int | None = None,
    window_dilation: Sequence[int] | int | None = None,
    *,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    name: str = "reduce_window",
) -> cl.Tensor:
    """The sum, the greatest or the least element of each window, as `jax.lax.reduce_window`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: what windows move over.
        kind: "sum", "max" or "min".
        window_dimensions: elements of a window along each dimension.
        window_strides: by how many positions windows move; 1 when left off.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension, negative where it is cut off.
        base_dilation: by how many positions the elements are apart, with nothing between them.
        window_dilation: by how many positions the elements of a window are apart.
        grain: about how many results a vertex has; the planner chooses when it is left off.
        memory_share: of a tile's memory, what the plan may take.
        name: of the scope.

    Raises:
        OperationError: sizes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> windows = cl.lower(lambda graph, x: cl.ops.reduce_window(graph, x, "sum", (2,), padding=[(1, 0)]))
    >>> windows(jnp.array([1.0, 2.0, 3.0])).tolist()
    [1.0, 3.0, 5.0]
    """
    check_tensors(name, graph, x=x)
    if kind not in _CODELETS:
        raise OperationError(
            f"ops.{name} knows no such kind of reduction", given=repr(kind), expected='"sum", "max" or "min"'
        )
    if x.dtype == bool or (kind != "sum" and x.dtype.kind == "c"):
        raise OperationError(f"the {kind} of ops.{name} is not one of its dtypes", given=x.dtype, expected="numbers")
    rank = x.ndim
    window = whole_numbers(name, "window_dimensions", window_dimensions, rank)
    strides = whole_numbers(name, "window_strides", window_strides, rank)
    between = whole_numbers(name, "base_dilation", base_dilation, rank)
    apart = whole_numbers(name, "window_dilation", window_dilation, rank)
    extents = [(n - 1) * d + 1 if n else 0 for n, d in zip(x.shape, between, strict=True)]
    reaches = [(k - 1) * d + 1 for k, d in zip(window, apart, strict=True)]
    pads = checked_padding(name, padding, extents, reaches, strides)
    rows = list(zip(x.shape, window, strides, pads, between, apart, strict=True))
    results = [num_windows(n, k, pair, s, d, b) for n, k, s, pair, b, d in rows]
    nothing = {"sum": 0, "max": least(x.dtype), "min": greatest_of(x.dtype)}[kind]
    grain = checked_grain(name, grain)
    fields = tuple(
        along(n, count, k, low=low, stride=s, dilation=d, between=b)
        for count, (n, k, s, (low, _), b, d) in zip(results, rows, strict=True)
    )
    if not x.size or not all(any(phase.taps for phase in field.phases) for field in fields):
        return fill(graph, results, nothing, x.dtype, grain=grain, name=name)
    with graph.scope(name, unique=True):
        return add_pooled(
            graph,
            kind,
            _CODELETS[kind],
            fields,
            {"x": (x, nothing)},
            {},
            x.dtype,
            grain,
            memory_share,
            nothing=nothing,
        )
