"""Gradients of reductions: of a sum, of a product, of the largest and the smallest, which share theirs among ties."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_tensors, checked_axes, checked_grain
from codelet.ops.block_planning import add_up
from codelet.ops.pairs import both
from codelet.ops.partials import sums_dtype
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.reduce import Axes
from codelet.ops.rows import Rows
from codelet.ops.schema import checked
from codelet.views.tensor import Tensor


@both
def count_ties(x, result, *, axes, partials):
    """How many elements of each row are its result."""
    return jnp.sum((x == jnp.expand_dims(result, axes)).astype(partials), axes)


@both
def share_among_ties(cotangent, x, result, count, *, axes):
    """The slope of each row's result shared equally among the elements that are it."""
    share = cotangent / count.astype(cotangent.dtype)
    return jnp.where(x == jnp.expand_dims(result, axes), jnp.expand_dims(share, axes), 0).astype(x.dtype)


@both
def slopes_of_product(cotangent, x, *, axes, partials):
    """The slopes by the elements of rows of their products."""
    product = lambda x: jnp.prod(x.astype(partials), axes)  # noqa: E731
    return jax.vjp(product, x)[1](cotangent.astype(partials))[0]


def reduced_rows(
    operation: str, graph: Graph, cotangent: Tensor, x: Tensor, axis: Axes, grain: Any, share: float
) -> tuple[Rows, tuple[int, ...]]:
    """The rows of the reduced tensor, and the shape of the results; arguments checked."""
    check_tensors(operation, graph, cotangent=cotangent, x=x)
    check_floating(operation, cotangent=cotangent, x=x)
    axes = checked_axes(operation, "axis", axis, x.ndim)
    kept = tuple(n for d, n in enumerate(x.shape) if d not in axes)
    held = tuple(1 if d in axes else n for d, n in enumerate(x.shape))
    if cotangent.shape not in (kept, held):
        raise OperationError(
            f"the cotangent of ops.{operation} is not like the result", given=cotangent, expected=f"shape {kept}"
        )
    return Rows(graph, axes, x, grain=checked_grain(operation, grain), memory_fraction=share), kept


@checked
def sum_gradient(
    graph: Graph, cotangent: Tensor, x: Tensor, axis: Axes = None, *, name: str = "sum_gradient"
) -> Tensor:
    """The gradient of `sum`: the cotangent repeated, a view.

    Args:
        graph: of the tensors.
        cotangent: like the result, with or without the dimensions that are reduced.
        x: the tensor that was reduced; only its shape is looked at.
        axis: along which axes.
        name: the name in errors.

    Raises:
        OperationError: shapes that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, g, x: cl.ops.sum_gradient(graph, g, x, 1))(jnp.arange(2.0), jnp.ones((2, 3)))
    Array([[0., 0., 0.],
           [1., 1., 1.]], dtype=float32)
    """
    rows, _ = reduced_rows(name, graph, cotangent, x, axis, None, MEMORY_FRACTION)
    held = tuple(1 if d in rows.axes else n for d, n in enumerate(x.shape))
    return cotangent.reshape(held).broadcast_to(x.shape)


@checked
def max_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    result: Tensor,
    axis: Axes = None,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "max_gradient",
) -> Tensor:
    """The gradient of `max`, or of `min`, from its result: shared equally among ties, as JAX does.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: like the result, with or without the dimensions that are reduced.
        x: the tensor that was reduced.
        result: of the reduction, likewise.
        axis: one axis or several; default: all.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.max_gradient)(jnp.array(1.0), jnp.array([1.0, 3.0, 3.0]), jnp.array(3.0))
    Array([0. , 0.5, 0.5], dtype=float32)
    """
    rows, kept = reduced_rows("max_gradient", graph, cotangent, x, axis, grain, memory_fraction)
    reduced_rows("max_gradient", graph, result, x, axis, grain, memory_fraction)
    cotangent, result = cotangent.reshape(kept), result.reshape(kept)
    sums = sums_dtype(x.dtype)
    with graph.scope(name, unique=True):
        if not rows.size:
            return graph.add_variable("out", x.shape, x.dtype)
        fields: Any = {"x": ("all", x), "result": ("one", result)}
        first = rows.work("count ties", count_ties, fields, {"out": ("one", sums)}, "summed", add=add_up)
        fields = {"cotangent": ("one", cotangent), **fields, "count": ("one", sums)}
        last = rows.work("share", share_among_ties, fields, {"out": ("all", x.dtype)}, "kept")
        plans = rows.plans([first, last])
        (count,) = rows.add(first, plans[0], x=x, result=result)
        return rows.add(last, plans[1], cotangent=cotangent, x=x, result=result, count=count)[0]


@checked
def prod_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    axis: Axes = None,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "prod_gradient",
) -> Tensor:
    """The gradient of `prod` by its operand; right where factors are 0, too. Each vertex has whole rows.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result, with or without the reduced dimensions.
        x: the factors, of floating point.
        axis: the reduced axes; default: all.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: shapes that do not fit, or numbers that are not of floating point.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.prod_gradient)(jnp.array(1.0), jnp.array([2.0, 0.0, 4.0]))
    Array([0., 8., 0.], dtype=float32)
    """
    rows, kept = reduced_rows("prod_gradient", graph, cotangent, x, axis, grain, memory_fraction)
    cotangent, dtype, sums = cotangent.reshape(kept), x.dtype, sums_dtype(x.dtype)
    with graph.scope(name, unique=True):
        if not rows.size:
            return graph.add_variable("out", x.shape, dtype)
        out: Any = {"out": ("all", dtype)}
        fields: Any = {"cotangent": ("one", cotangent), "x": ("all", x)}
        work = rows.work("slopes", slopes_of_product, fields, out, "whole", partials=sums)
        return rows.add(work, rows.plan(work), cotangent=cotangent, x=x)[0]
