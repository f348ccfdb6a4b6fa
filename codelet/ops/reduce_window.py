"""Reductions of windows: their sums, greatest and least elements, as `jax.lax.reduce_window` has them, and derivatives.

Windows move over padding and among positions that hold nothing (`base_dilation`), and may have holes
(`window_dilation`); the gradient of an average pooling is such a sum. Where elements are apart, results whose windows
meet them at other taps are of another phase: see `windows.py`.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_tensors, checked_grain
from codelet.ops.fill import fill
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.pool_vertices import add_pooled
from codelet.ops.pooling_codelets import greatest_of, least
from codelet.ops.schema import checked
from codelet.ops.windows import MOST_APART, WindowedDimension, checked_padding, num_windows, whole_numbers, windowed
from codelet.views.tensor import Tensor

_CODELETS = {"sum": "total", "max": "largest", "min": "smallest"}
_TANGENTS = {"max": "tangents_of_largest", "min": "tangents_of_smallest"}


@dataclass(frozen=True)
class _Windows:
    """Windows over a tensor, checked.

    Attributes:
        results: how many there are along each dimension.
        fields: how they move along each.
        nothing: the first value of a reduction of a kind, and the value of padding.
    """

    results: list[int]
    fields: tuple[WindowedDimension, ...]
    nothing: Any

    @property
    def meet_elements(self) -> bool:
        """Whether any of them has a position that may hold an element."""
        return all(any(phase.taps for phase in field.phases) for field in self.fields)


def _checked(
    name: str, x: Tensor, kind: str, kinds: Container[str], window: Any, strides: Any, padding: Any, dilations: Any
) -> _Windows:
    """Windows for a kind of reduction, of those that there are.

    Raises:
        OperationError: sizes or options that do not fit.
    """
    if kind not in kinds:
        expected = ", ".join(f'"{own}"' for own in _CODELETS if own in kinds)
        raise OperationError(
            f"ops.{name} knows no such kind of reduction",
            given=repr(kind),
            expected=" or ".join(expected.rsplit(", ", 1)),
        )
    if x.dtype == bool or (kind != "sum" and x.dtype.kind == "c"):
        raise OperationError(f"the {kind} of ops.{name} is not one of its dtypes", given=x.dtype, expected="numbers")
    rank = x.ndim
    window = whole_numbers(name, "window_dimensions", window, rank)
    strides = whole_numbers(name, "window_strides", strides, rank)
    between = whole_numbers(name, "base_dilation", dilations[0], rank, most=MOST_APART)
    apart = whole_numbers(name, "window_dilation", dilations[1], rank)
    extents = [(n - 1) * d + 1 if n else 0 for n, d in zip(x.shape, between, strict=True)]
    reaches = [(k - 1) * d + 1 for k, d in zip(window, apart, strict=True)]
    pads = checked_padding(name, padding, extents, reaches, strides)
    rows = list(zip(x.shape, window, strides, pads, between, apart, strict=True))
    results = [num_windows(n, k, pair, s, d, b) for n, k, s, pair, b, d in rows]
    nothing = {"sum": 0, "max": least(x.dtype), "min": greatest_of(x.dtype)}[kind]
    fields = tuple(
        windowed(n, count, k, low=low, stride=s, dilation=d, between=b)
        for count, (n, k, s, (low, _), b, d) in zip(results, rows, strict=True)
    )
    return _Windows(results, fields, nothing)


@checked
def reduce_window(
    graph: Graph,
    x: Tensor,
    kind: str,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    base_dilation: Sequence[int] | int | None = None,
    window_dilation: Sequence[int] | int | None = None,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "reduce_window",
) -> Tensor:
    """The sum, the greatest or the least element of each window, as `jax.lax.reduce_window`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor that windows move over.
        kind: "sum", "max" or "min".
        window_dimensions: elements of a window along each dimension.
        window_strides: by how many positions windows move; default: 1.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension, negative where it is cut off.
        base_dilation: by how many positions the elements are apart, with nothing between them.
        window_dilation: by how many positions the elements of a window are apart.
        grain: about how many results a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: sizes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> windows = cl.lower(lambda graph, x: cl.ops.reduce_window(graph, x, "sum", (2,), padding=[(1, 0)]))
    >>> windows(jnp.array([1.0, 2.0, 3.0])).tolist()
    [1.0, 3.0, 5.0]
    """
    check_tensors(name, graph, x=x)
    dilations = base_dilation, window_dilation
    own = _checked(name, x, kind, _CODELETS, window_dimensions, window_strides, padding, dilations)
    grain = checked_grain(name, grain)
    if not x.size or not own.meet_elements:
        return fill(graph, own.results, own.nothing, dtype=x.dtype, grain=grain, name=name)
    with graph.scope(name, unique=True):
        return add_pooled(
            graph,
            kind,
            _CODELETS[kind],
            own.fields,
            {"x": (x, own.nothing)},
            {},
            x.dtype,
            grain,
            memory_fraction,
            nothing=own.nothing,
        )


@checked
def reduce_window_tangent(
    graph: Graph,
    tangent: Tensor,
    x: Tensor,
    kind: str,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    base_dilation: Sequence[int] | int | None = None,
    window_dilation: Sequence[int] | int | None = None,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "reduce_window_tangent",
) -> Tensor:
    """The derivative along a direction of the greatest or the least element of each window: the tangent there.

    Of equal elements it is the first; where none is better than nothing, as minus infinity is no greatest, it is 0.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        tangent: the direction, of the shape of the tensor.
        x: the tensor that windows move over.
        kind: "max" or "min".
        window_dimensions: elements of a window along each dimension of `x`.
        window_strides: by how many elements windows move, along each dimension; default: 1.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension.
        base_dilation: distance between neighbours of `x`, along each dimension; default: 1.
        window_dilation: distance between elements of a window, along each dimension; default: 1.
        grain: about how many results a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: sizes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> windows = cl.lower(lambda graph, t, x: cl.ops.reduce_window_tangent(graph, t, x, "max", (2,)))
    >>> windows(jnp.array([1.0, 2.0, 3.0]), jnp.array([5.0, 5.0, 7.0])).tolist()
    [1.0, 3.0]
    """
    check_tensors(name, graph, tangent=tangent, x=x)
    if tangent.shape != x.shape:
        raise OperationError(f"the tangent of ops.{name} has not the shape of x", given=tangent.shape, expected=x.shape)
    dilations = base_dilation, window_dilation
    own = _checked(name, x, kind, _TANGENTS, window_dimensions, window_strides, padding, dilations)
    grain = checked_grain(name, grain)
    if not x.size or not own.meet_elements:
        return fill(graph, own.results, 0, dtype=tangent.dtype, grain=grain, name=name)
    windows = {"x": (x, own.nothing), "t": (tangent, 0)}
    with graph.scope(name, unique=True):
        return add_pooled(graph, kind, _TANGENTS[kind], own.fields, windows, {}, tangent.dtype, grain, memory_fraction)
