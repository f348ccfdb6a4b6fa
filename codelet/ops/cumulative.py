"""Prefix sums, products, largest and smallest along an axis, as `jax.lax` has them: `cumsum` and its like.

Rows are whole; or blocks, where lines are fewer than the tiles and their length has a divisor. Then it is done first
within each block, then over the blocks' last elements, then each block takes on the total of all before it.
"""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_tensors, checked_axis, checked_grain
from codelet.ops.pairs import both
from codelet.ops.planning import MEMORY_FRACTION, is_uncut
from codelet.ops.rows import Rows
from codelet.ops.schema import checked
from codelet.views.tensor import Tensor

RUNNING = {
    "cumsum": (lax.cumsum, lax.add),
    "cumprod": (lax.cumprod, lax.mul),
    "cummax": (lax.cummax, lax.max),
    "cummin": (lax.cummin, lax.min),
}
"""Each with the operation that it runs."""


def _identity(operation: str, dtype: Any) -> Any:
    """The neutral element."""
    if operation in ("cumsum", "cumprod"):
        return 0 if operation == "cumsum" else 1
    sign = -1 if operation == "cummax" else 1
    if jnp.issubdtype(dtype, jnp.floating):
        return sign * np.inf
    return jnp.iinfo(dtype).min if sign < 0 else jnp.iinfo(dtype).max


@both
def run_rows(x, *, operation, axes, reverse):
    """The running results of rows along one axis."""
    return RUNNING[operation][0](x, axis=axes[0], reverse=reverse)


@both
def run_before(x, *, operation, axes, reverse):
    """The total of all elements before each of a row."""
    (axis,) = axes
    inclusive = RUNNING[operation][0](x, axis=axis, reverse=reverse)
    first = jnp.full_like(lax.slice_in_dim(x, 0, 1, axis=axis), _identity(operation, x.dtype))
    rest = lax.slice_in_dim(inclusive, int(reverse), x.shape[axis] - 1 + int(reverse), axis=axis)
    return jnp.concatenate([rest, first] if reverse else [first, rest], axis)


@both
def take_on(x, before, *, operation, axes):
    """Running results of blocks with the totals before each block."""
    return RUNNING[operation][1](x, jnp.broadcast_to(jnp.expand_dims(before, axes), x.shape))


@both
def slopes_of_running(cotangent, x, *, operation, axes, reverse):
    """The slopes by the elements of whole rows: ties share as JAX's scan of pairs of pairs lets them."""
    run = lambda x: RUNNING[operation][0](x, axis=axes[0], reverse=reverse)  # noqa: E731
    return jax.vjp(run, x)[1](cotangent)[0]


def _parts(target: Any, length: int, rows: int) -> int:
    """Into how many blocks a row is cut: a divisor of its length, about its root, for which there are tiles."""
    most = min(target.num_tiles // max(1, rows), math.isqrt(length))
    return max((k for k in range(1, most + 1) if length % k == 0), default=1) if length >= 64 else 1


def _running(
    operation: str, graph: Graph, x: Tensor, axis: int, reverse: bool, grain: Any, share: float, name: str
) -> Tensor:
    """The vertices of a running operation."""
    check_tensors(operation, graph, x=x)
    own, grain, dtype = checked_axis(operation, "axis", axis, x.ndim), checked_grain(operation, grain), x.dtype
    static = {"operation": operation, "reverse": bool(reverse)}
    out: Any = {"out": ("all", dtype)}
    with graph.scope(name, unique=True):
        if not x.size:
            return graph.add_variable("out", x.shape, dtype)
        length = x.shape[own]
        parts = _parts(graph.target, length, x.size // length)
        blocks = x.reshape((*x.shape[:own], parts, length // parts, *x.shape[own + 1 :]))
        rows = Rows(graph, (own + 1,), blocks, apart=(own,), grain=grain, memory_fraction=share)
        work = rows.work("run", run_rows, {"x": ("all", blocks)}, out, "whole", **static)
        (found,) = rows.add(work, rows.plan(work), x=blocks)
        if parts == 1:
            return found.reshape(x.shape)
        last = found[(*(slice(None),) * (own + 1), 0 if reverse else length // parts - 1)]
        few = Rows(graph, (own,), last, grain=grain if is_uncut(grain) else None, memory_fraction=1.0)
        work = few.work("run blocks", run_before, {"x": ("all", last)}, out, "whole", **static)
        (before,) = few.add(work, few.plan(work), x=last)
        fields = {"x": ("all", found), "before": ("one", before)}
        work = rows.work("take on", take_on, fields, out, "kept", **static)
        return rows.add(work, rows.plan(work), x=found, before=before)[0].reshape(x.shape)


def _slopes(
    operation: str,
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    axis: int,
    reverse: bool,
    grain: Any,
    share: float,
    name: str,
) -> Tensor:
    """The vertices of the gradient of a running operation, by whole rows."""
    told = f"{operation}_gradient"
    check_tensors(told, graph, cotangent=cotangent, x=x)
    check_floating(told, x=x)
    own, grain, dtype = checked_axis(told, "axis", axis, x.ndim), checked_grain(told, grain), x.dtype
    if (cotangent.shape, cotangent.dtype) != (x.shape, dtype):
        raise OperationError(
            f"the cotangent of ops.{told} is not like the result", given=cotangent, expected=f"like {x}"
        )
    static = {"operation": operation, "reverse": bool(reverse)}
    with graph.scope(name, unique=True):
        if not x.size:
            return graph.add_variable("out", x.shape, dtype)
        rows = Rows(graph, (own,), cotangent, x, grain=grain, memory_fraction=share)
        fields: Any = {"cotangent": ("all", cotangent), "x": ("all", x)}
        work = rows.work("slopes", slopes_of_running, fields, {"out": ("all", dtype)}, "whole", **static)
        return rows.add(work, rows.plan(work), cotangent=cotangent, x=x)[0]


@checked
def cumsum(
    graph: Graph,
    x: Tensor,
    axis: int = 0,
    *,
    reverse: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cumsum",
) -> Tensor:
    """Prefix sums along an axis, as `jax.lax.cumsum`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor to sum.
        axis: along which axis.
        reverse: whether from the last element on.
        grain: about how many elements a vertex has; whole blocks at least.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cumsum)(jnp.array([1.0, 2.0, 4.0]))
    Array([1., 3., 7.], dtype=float32)
    """
    return _running("cumsum", graph, x, axis, reverse, grain, memory_fraction, name)


@checked
def cumsum_gradient(
    graph: Graph, cotangent: Tensor, axis: int = 0, *, reverse: bool = False, name: str = "cumsum_gradient"
) -> Tensor:
    """The gradient of `cumsum` by its operand: sums of the cotangent in the other direction.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        axis: the axis.
        reverse: whether `cumsum` began at the last element.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of the cotangent.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cumsum_gradient)(jnp.array([1.0, 2.0, 4.0]))
    Array([7., 6., 4.], dtype=float32)
    """
    return _running("cumsum", graph, cotangent, axis, not reverse, None, MEMORY_FRACTION, name)


@checked
def cumprod(
    graph: Graph,
    x: Tensor,
    axis: int = 0,
    *,
    reverse: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cumprod",
) -> Tensor:
    """Products of the elements so far along an axis, as `jax.lax.cumprod`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor.
        axis: the axis.
        reverse: whether to begin at the last element.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cumprod)(jnp.array([1.0, 2.0, 4.0]))
    Array([1., 2., 8.], dtype=float32)
    """
    return _running("cumprod", graph, x, axis, reverse, grain, memory_fraction, name)


@checked
def cumprod_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    axis: int = 0,
    *,
    reverse: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cumprod_gradient",
) -> Tensor:
    """The gradient of `cumprod`, with zeros among the factors too, by whole rows.

    Args:
        graph: where its compute set is added, in a scope of its name.
        cotangent: like the result.
        x: of floating point: the tensor that was multiplied.
        axis: along which axis.
        reverse: whether from the last element on.
        grain: about how many elements a vertex has; whole rows at least.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not, or a cotangent that is not like the result.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cumprod_gradient)(jnp.ones(3), jnp.array([2.0, 3.0, 4.0]))
    Array([16., 10.,  6.], dtype=float32)
    """
    return _slopes("cumprod", graph, cotangent, x, axis, reverse, grain, memory_fraction, name)


@checked
def cummax(
    graph: Graph,
    x: Tensor,
    axis: int = 0,
    *,
    reverse: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cummax",
) -> Tensor:
    """The largest element so far along an axis, as `jax.lax.cummax`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor.
        axis: the axis.
        reverse: whether to begin at the last element.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cummax)(jnp.array([1.0, 3.0, 2.0]))
    Array([1., 3., 3.], dtype=float32)
    """
    return _running("cummax", graph, x, axis, reverse, grain, memory_fraction, name)


@checked
def cummax_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    axis: int = 0,
    *,
    reverse: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cummax_gradient",
) -> Tensor:
    """The gradient of `cummax` by its operand; equal elements share it, as in JAX. Each vertex has whole rows.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        x: the operand, of floating point.
        axis: the axis.
        reverse: whether `cummax` began at the last element.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: an axis that there is not, or a cotangent of another shape or dtype.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cummax_gradient)(jnp.ones(3), jnp.array([1.0, 3.0, 2.0]))
    Array([1., 2., 0.], dtype=float32)
    """
    return _slopes("cummax", graph, cotangent, x, axis, reverse, grain, memory_fraction, name)


@checked
def cummin(
    graph: Graph,
    x: Tensor,
    axis: int = 0,
    *,
    reverse: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cummin",
) -> Tensor:
    """The smallest element so far along an axis, as `jax.lax.cummin`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor.
        axis: the axis.
        reverse: whether to begin at the last element.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cummin)(jnp.array([2.0, 3.0, 1.0]))
    Array([2., 2., 1.], dtype=float32)
    """
    return _running("cummin", graph, x, axis, reverse, grain, memory_fraction, name)


@checked
def cummin_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    axis: int = 0,
    *,
    reverse: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "cummin_gradient",
) -> Tensor:
    """The gradient of `cummin` by its operand; equal elements share it, as in JAX. Each vertex has whole rows.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        x: the operand, of floating point.
        axis: the axis.
        reverse: whether `cummin` began at the last element.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: an axis that there is not, or a cotangent of another shape or dtype.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.cummin_gradient)(jnp.ones(3), jnp.array([2.0, 3.0, 1.0]))
    Array([2., 0., 1.], dtype=float32)
    """
    return _slopes("cummin", graph, cotangent, x, axis, reverse, grain, memory_fraction, name)
