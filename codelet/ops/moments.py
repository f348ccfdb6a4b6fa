"""Means and variances along any axes, as `jax.numpy` has them; averages that run from step to step.

Each has its gradient. Sums of shorter dtypes are kept in float32; a variance is the mean of the squared deviations, for
which a second pass is made.
"""

from __future__ import annotations

import functools
import math
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_tensors, checked_axes, checked_grain
from codelet.ops.block_planning import add_up
from codelet.ops.elementwise import map, map_gradient
from codelet.ops.pairs import both
from codelet.ops.partials import sums_dtype
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.reduce import Axes, sum
from codelet.ops.reduce_gradients import reduced_rows
from codelet.ops.rows import Rows
from codelet.ops.schema import checked
from codelet.views.tensor import Tensor


@both
def sum_deviations(x, mean, *, axes, partials):
    """The sum of the squared deviations from the means of rows."""
    return jnp.sum(lax.square(x.astype(partials) - jnp.expand_dims(mean, axes)), axes)


@both
def slopes_of_deviations(cotangent, x, mean, *, axes, count):
    """The slopes of the variances of rows, of so many elements without those that do not count."""
    deviations = x.astype(mean.dtype) - jnp.expand_dims(mean, axes)
    return (jnp.expand_dims(cotangent.astype(mean.dtype), axes) * deviations * (2 / count)).astype(x.dtype)


def _floating(dtype: np.dtype) -> np.dtype:
    """The dtype of means: integers have those that JAX has."""
    return dtype if jnp.issubdtype(dtype, jnp.inexact) else np.dtype(jnp.zeros((), float).dtype)


def divide(total, *, count, dtype):
    """A sum divided by its count."""
    return (total / count if count > 0 else jnp.full_like(total, jnp.nan)).astype(dtype)


def _divided(graph: Graph, total: Tensor, count: float, dtype: np.dtype) -> Tensor:
    return map(graph, functools.partial(divide, count=count, dtype=dtype), total, name="divide")


@checked
def mean(
    graph: Graph,
    x: Tensor,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "mean",
) -> Tensor:
    """The mean along some axes, as `jax.numpy.mean`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: whose mean.
        axis: one axis or several; default: all.
        keepdims: whether reduced dimensions stay, of one element.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.mean(graph, x, 0))(jnp.arange(6).reshape(3, 2))
    Array([2., 3.], dtype=float32)
    """
    check_tensors("mean", graph, x=x)
    axes, grain = checked_axes("mean", "axis", axis, x.ndim), checked_grain("mean", grain)
    dtype = _floating(x.dtype)
    with graph.scope(name, unique=True):
        options = {"keepdims": keepdims, "grain": grain, "memory_fraction": memory_fraction}
        total = sum(graph, x, axes, dtype=sums_dtype(dtype), **options)
        return _divided(graph, total, math.prod(x.shape[d] for d in axes), dtype)


@checked
def mean_gradient(
    graph: Graph, cotangent: Tensor, x: Tensor, axis: Axes = None, *, name: str = "mean_gradient"
) -> Tensor:
    """The gradient of `mean` by its operand: the cotangent divided by the number of elements, broadcast.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result, with or without the reduced dimensions.
        x: the operand; only its shape and dtype are used.
        axis: the reduced axes; default: all.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`: a view of the quotients.

    Raises:
        OperationError: shapes that do not fit, or numbers that are not of floating point.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, g, x: cl.ops.mean_gradient(graph, g, x, 1))(jnp.array([2.0, 4.0]), jnp.ones((2, 2)))
    Array([[1., 1.],
           [2., 2.]], dtype=float32)
    """
    rows, _ = reduced_rows("mean_gradient", graph, cotangent, x, axis, None, MEMORY_FRACTION)
    held = tuple(1 if d in rows.axes else n for d, n in enumerate(x.shape))
    with graph.scope(name, unique=True):
        return _divided(graph, cotangent.reshape(held), rows.length, x.dtype).broadcast_to(x.shape)


@checked
def var(
    graph: Graph,
    x: Tensor,
    axis: Axes = None,
    *,
    ddof: float = 0,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "var",
) -> Tensor:
    """The variance along some axes, as `jax.numpy.var`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the numbers.
        axis: one axis or several; default: all.
        ddof: subtracted from the number of elements that the sum of squares is divided by.
        keepdims: whether the reduced dimensions stay, with one element each.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the dtype of `x`, of float32 for integers.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.var(graph, x, 0, ddof=1))(jnp.array([1.0, 2.0, 3.0]))
    Array(1., dtype=float32)
    """
    check_tensors("var", graph, x=x)
    axes, grain = checked_axes("var", "axis", axis, x.ndim), checked_grain("var", grain)
    dtype = _floating(x.dtype)
    kept = tuple(1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes)
    with graph.scope(name, unique=True):
        rows = Rows(graph, axes, x, grain=grain, memory_fraction=memory_fraction)
        means = _means(graph, rows, x, dtype)
        if not rows.size:
            return _divided(graph, means, 0, dtype).reshape(kept)
        sums = means.dtype
        fields = {"x": ("all", x), "mean": ("one", means)}
        work = rows.work("sum squares", sum_deviations, fields, {"out": ("one", sums)}, "summed", add=add_up)
        (total,) = rows.add(work, rows.plan(work), x=x, mean=means)
        return _divided(graph, total, rows.length - ddof, dtype).reshape(kept)


def _means(graph: Graph, rows: Rows, x: Tensor, dtype: np.dtype) -> Tensor:
    """The means of rows as they are summed."""
    sums, options = sums_dtype(dtype), {"grain": rows.grain, "memory_fraction": rows.memory_fraction}
    return _divided(graph, sum(graph, x, rows.axes, dtype=sums, **options), rows.length, sums)


@checked
def var_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    axis: Axes = None,
    *,
    ddof: float = 0,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "var_gradient",
) -> Tensor:
    """The gradient of `var`: deviations from the means, scaled.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: like the result, with or without the dimensions that are reduced.
        x: whose variance.
        axis: one axis or several; default: all.
        ddof: subtracted from the number of elements that the sum of squares was divided by; less than it.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes that do not fit, or a variance of nothing.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.var_gradient)(jnp.array(3.0), jnp.array([1.0, 2.0, 3.0]))
    Array([-2.,  0.,  2.], dtype=float32)
    """
    rows, kept = reduced_rows("var_gradient", graph, cotangent, x, axis, grain, memory_fraction)
    if rows.size and rows.length <= ddof:
        raise OperationError(
            "ops.var_gradient is given the variance of nothing",
            given=f"{rows.length} elements, ddof={ddof}",
            expected="more elements than ddof",
        )
    cotangent, dtype = cotangent.reshape(kept), x.dtype
    with graph.scope(name, unique=True):
        if not rows.size:
            return graph.add_variable("out", x.shape, dtype)
        means = _means(graph, rows, x, dtype)
        fields = {"cotangent": ("one", cotangent), "x": ("all", x), "mean": ("one", means)}
        out = {"out": ("all", dtype)}
        work = rows.work("slopes", slopes_of_deviations, fields, out, "kept", count=rows.length - ddof)
        return rows.add(work, rows.plan(work), cotangent=cotangent, x=x, mean=means)[0]


def _checked_averages(operation: str, graph: Graph, average: Tensor, own: Tensor) -> None:
    check_tensors(operation, graph, average=average, own=own)
    check_floating(operation, average=average, own=own)
    if (average.shape, average.dtype) != (own.shape, own.dtype):
        raise OperationError(f"what ops.{operation} is given is not alike", given=own, expected=f"like {average}")


@checked
def running_average(
    graph: Graph,
    average: Tensor,
    own: Tensor,
    *,
    momentum: float = 0.99,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "running_average",
) -> Tensor:
    """An average that runs from step to step: momentum * average + (1 - momentum) * the value of the step.

    Args:
        graph: where its compute set is added, in a scope of its name.
        average: so far; of `batch_norm` the means, say, or the variances.
        own: of this step.
        momentum: the share of the average so far.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: two that are not alike.

    >>> import codelet as cl, jax.numpy as jnp
    >>> running = lambda graph, *means: cl.ops.running_average(graph, *means, momentum=0.75)
    >>> cl.lower(running)(jnp.array([4.0, 8.0]), jnp.array([0.0, 4.0]))
    Array([3., 7.], dtype=float32)
    """
    _checked_averages("running_average", graph, average, own)
    return map(
        graph,
        functools.partial(moved, momentum=momentum),
        average,
        own,
        grain=grain,
        memory_fraction=memory_fraction,
        name=name,
    )


def moved(average, own, *, momentum):
    """A running average, with one more."""
    return momentum * average + (1 - momentum) * own


class RunningAverageGradient(NamedTuple):
    """The gradients of `running_average`, each of the shape and dtype of its operand.

    Attributes:
        average: by the average so far.
        own: with respect to the value of the step.
    """

    average: Tensor
    own: Tensor


@checked
def running_average_gradient(
    graph: Graph,
    cotangent: Tensor,
    average: Tensor,
    own: Tensor,
    *,
    momentum: float = 0.99,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "running_average_gradient",
) -> RunningAverageGradient:
    """The gradients of `running_average` by both of its operands: the cotangent times each one's share.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        average: the average so far, of floating point.
        own: the value of the step, of the same shape and dtype.
        momentum: the share of the average so far.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients with respect to `average` and `own`, each of its shape and dtype.

    Raises:
        OperationError: operands that differ in shape or dtype.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, g, a, b: cl.ops.running_average_gradient(graph, g, a, b, momentum=0.75).own)(
    ...     jnp.array([4.0]), jnp.ones(1), jnp.ones(1)
    ... )
    Array([1.], dtype=float32)
    """
    _checked_averages("running_average_gradient", graph, average, own)
    step = functools.partial(moved, momentum=momentum)
    found = map_gradient(graph, step, cotangent, average, own, grain=grain, memory_fraction=memory_fraction, name=name)
    return RunningAverageGradient(*found)  # type: ignore[arg-type]
