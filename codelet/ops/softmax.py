"""Softmax, its logarithm, and logarithms of sums of exponentials, as `jax.nn` has them; and their gradients.

Where rows are whole a vertex has the largest, the exponentials, their sum and the quotients in one codelet; where they
are cut, each is a step. In both the largest of a row is taken off before anything is raised.
"""

from __future__ import annotations

from collections.abc import Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_same_dtype, check_tensors, checked_axes, checked_grain
from codelet.ops.block_planning import add_up
from codelet.ops.blockwise import Work
from codelet.ops.fill import add_filled
from codelet.ops.pairs import Pair, both
from codelet.ops.partials import sums_dtype
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.reduce import largest, reduce_block
from codelet.ops.rows import Rows
from codelet.ops.schema import checked
from codelet.views.tensor import Tensor

Axes = int | Iterable[int] | None

# --- codelets: of whole rows ----------------------------------------------------------------------------------


@both
def softmax_of_rows(x, *, axes):
    """The softmax of rows."""
    return jax.nn.softmax(x, axes)


@both
def log_softmax_of_rows(x, *, axes):
    """The logarithm of the softmax of rows."""
    return jax.nn.log_softmax(x, axes)


@both
def logsumexp_of_rows(x, *, axes):
    """The logarithm of the sum of the exponentials of rows."""
    return jax.nn.logsumexp(x, axes)


@both
def softmax_slope_of_rows(cotangent, result, *, axes):
    """The gradient of the softmax of rows, from its result."""
    return result * (cotangent - jnp.sum(cotangent * result, axes, keepdims=True))


@both
def log_softmax_slope_of_rows(cotangent, result, *, axes):
    """The gradient of the logarithm of a softmax of rows, from its result."""
    return cotangent - jnp.exp(result) * jnp.sum(cotangent, axes, keepdims=True)


# --- codelets: of parts of rows -------------------------------------------------------------------------------


def _shifted(x, most, axes):
    return x - lax.stop_gradient(jnp.expand_dims(most, axes))


@both
def sum_exponentials(x, most, *, axes, partials):
    """The sum of the exponentials of each row, without its largest."""
    return jnp.sum(jnp.exp(_shifted(x, most, axes)), axes, dtype=partials)


@both
def divide_exponentials(x, most, total, *, axes):
    """Exponentials by their sum."""
    return jnp.exp(_shifted(x, most, axes)) / jnp.expand_dims(total.astype(x.dtype), axes)


@both
def subtract_logarithm(x, most, total, *, axes):
    """Numbers without the logarithm of the sum of exponentials."""
    return _shifted(x, most, axes) - jnp.expand_dims(jnp.log(total.astype(x.dtype)), axes)


@both
def add_logarithm(most, total):
    """The logarithm of a sum of exponentials that were divided by that of the largest."""
    return jnp.log(total.astype(most.dtype)) + lax.stop_gradient(most)


@both
def finite(x):
    """Numbers, zero where they are not finite."""
    return jnp.where(jnp.isfinite(x), x, 0)


@both
def sum_products(cotangent, result, *, axes, partials):
    """The sum of products of each row."""
    return jnp.sum((cotangent * result).astype(partials), axes)


@both
def multiply_differences(cotangent, result, total, *, axes):
    """The gradient of a softmax, from its result and the sum of products of its row."""
    return result * (cotangent - jnp.expand_dims(total.astype(result.dtype), axes))


@both
def subtract_share(cotangent, result, total, *, axes):
    """The gradient of a logarithm of a softmax, from its result and the sum of the cotangents of its row."""
    return cotangent - jnp.exp(result) * jnp.expand_dims(total.astype(result.dtype), axes)


@both
def share_by_exponentials(cotangent, x, result, *, axes):
    """The gradient of a logarithm of a sum of exponentials, from its result."""
    exponentials = jnp.exp(x - jnp.expand_dims(jnp.where(jnp.isfinite(result), result, 0), axes))
    return jnp.expand_dims(cotangent, axes) * exponentials


# --- the operations -------------------------------------------------------------------------------------------


def rows_of(
    operation: str,
    graph: Graph,
    axis: Axes,
    grain: int | None,
    memory_fraction: float,
    **tensors: Tensor,
) -> Rows:
    """The rows of tensors of one shape and dtype, checked.

    Raises:
        OperationError: shapes, dtypes or axes that do not fit.
    """
    check_tensors(operation, graph, **tensors)
    check_floating(operation, **tensors)
    check_same_dtype(operation, **tensors)
    shapes = {tensor.shape for tensor in tensors.values()}
    if len(shapes) > 1:
        raise OperationError(
            f"ops.{operation} is given tensors of several shapes",
            given=", ".join(f"{name}: {tensor.shape}" for name, tensor in tensors.items()),
            expected="one",
        )
    (shape,) = shapes
    axes = checked_axes(operation, "axis", axis, len(shape))
    grain = checked_grain(operation, grain)
    return Rows(graph, axes, *tensors.values(), grain=grain, memory_fraction=memory_fraction)


def max_of_rows(rows: Rows, x: Tensor) -> Work:
    """The largest of each row."""
    fields, results = {"x": ("all", x)}, {"out": ("one", x.dtype)}
    return rows.work("largest", reduce_block, fields, results, "summed", add=largest, operation="max")


def sum_of_rows(rows: Rows, x: Tensor) -> Work:
    """The sum of each row."""
    fields, results = {"x": ("all", x)}, {"out": ("one", sums_dtype(x.dtype))}
    return rows.work("sum", reduce_block, fields, results, "summed", add=add_up, operation="sum")


def exponentials_of_rows(rows: Rows, x: Tensor) -> Work:
    """The sum of the exponentials of each row, of its differences to its largest."""
    fields, results = {"x": ("all", x), "most": ("one", x.dtype)}, {"out": ("one", sums_dtype(x.dtype))}
    return rows.work("sum exponentials", sum_exponentials, fields, results, "summed", add=add_up)


def _normalized(operation: str, codelets: tuple[Pair, Pair], rows: Rows, graph: Graph, x: Tensor, name: str) -> Tensor:
    """A softmax or its logarithm: by a codelet for whole rows, or by one for the last of three steps."""
    whole_codelets, last_codelets = codelets
    dtype, all_of = x.dtype, {"out": ("all", x.dtype)}
    with graph.scope(name, unique=True):
        if not rows.size:
            return graph.add_variable("out", x.shape, dtype)
        whole = rows.work(operation, whole_codelets, {"x": ("all", x)}, all_of, "whole")
        fields = {"x": ("all", x), "most": ("one", dtype), "total": ("one", sums_dtype(dtype))}
        last = rows.work("divide", last_codelets, fields, all_of, "kept")
        steps = [max_of_rows(rows, x), exponentials_of_rows(rows, x), last]
        plans = rows.plans(steps)
        if rows.takes_whole(whole, plans):
            return rows.add(whole, rows.plan(whole), x=x)[0]
        (most,) = rows.add(steps[0], plans[0], x=x)
        (total,) = rows.add(steps[1], plans[1], x=x, most=most)
        return rows.add(last, plans[2], x=x, most=most, total=total)[0]


@checked
def softmax(
    graph: Graph,
    x: Tensor,
    axis: Axes = -1,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "softmax",
) -> Tensor:
    """Exponentials of rows by their sum, as `jax.nn.softmax`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: numbers of floating point.
        axis: along which axes rows are.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not, or numbers that are not of floating point.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.softmax)(jnp.zeros((2, 4)))[0]
    Array([0.25, 0.25, 0.25, 0.25], dtype=float32)
    """
    rows = rows_of("softmax", graph, axis, grain, memory_fraction, x=x)
    return _normalized("softmax", (softmax_of_rows, divide_exponentials), rows, graph, x, name)


@checked
def log_softmax(
    graph: Graph,
    x: Tensor,
    axis: Axes = -1,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "log_softmax",
) -> Tensor:
    """The logarithm of the softmax of rows, as `jax.nn.log_softmax`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the logits, of floating point.
        axis: the axis, or axes, of a row.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: an axis that there is not, or numbers that are not of floating point.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.log_softmax)(jnp.zeros((2, 4)))[0].round(4)
    Array([-1.3863, -1.3863, -1.3863, -1.3863], dtype=float32)
    """
    rows = rows_of("log_softmax", graph, axis, grain, memory_fraction, x=x)
    return _normalized("log_softmax", (log_softmax_of_rows, subtract_logarithm), rows, graph, x, name)


@checked
def logsumexp(
    graph: Graph,
    x: Tensor,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "logsumexp",
) -> Tensor:
    """The logarithm of the sum of the exponentials of rows, as `jax.nn.logsumexp`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the exponents, of floating point.
        axis: the axis, or axes, of a row; default: all.
        keepdims: whether the reduced dimensions stay, with one element each.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not, or numbers that are not of floating point.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.logsumexp(graph, x, 1))(jnp.zeros((2, 4))).round(4)
    Array([1.3863, 1.3863], dtype=float32)
    """
    rows = rows_of("logsumexp", graph, axis, grain, memory_fraction, x=x)
    shape = tuple(1 if d in rows.axes else n for d, n in enumerate(x.shape) if keepdims or d not in rows.axes)
    with graph.scope(name, unique=True):
        return logsumexp_rows(rows, graph, x).reshape(shape)


def logsumexp_rows(rows: Rows, graph: Graph, x: Tensor) -> Tensor:
    """The vertices of `logsumexp`: one number for each row."""
    dtype, one = x.dtype, {"out": ("one", x.dtype)}
    if not rows.size:
        out = graph.add_variable("out", tuple(n for d, n in enumerate(x.shape) if d not in rows.axes), dtype)
        add_filled(graph, out, -np.inf)
        return out
    whole = rows.work("logsumexp", logsumexp_of_rows, {"x": ("all", x)}, one, "whole")
    steps = [max_of_rows(rows, x), exponentials_of_rows(rows, x)]
    plans = rows.plans(steps)
    if rows.takes_whole(whole, plans):
        return rows.add(whole, rows.plan(whole), x=x)[0]
    each = Rows(graph, (), x[tuple(0 if d in rows.axes else slice(None) for d in range(x.ndim))], memory_fraction=1.0)
    (most,) = rows.add(steps[0], plans[0], x=x)
    keep = each.work("finite", finite, {"x": ("all", most)}, {"out": ("all", dtype)}, "kept")
    (most,) = each.add(keep, each.plan(keep), x=most)
    (total,) = rows.add(steps[1], plans[1], x=x, most=most)
    fields = {"most": ("all", most), "total": ("all", total)}
    last = each.work("logarithm", add_logarithm, fields, {"out": ("all", dtype)}, "kept")
    return each.add(last, each.plan(last), most=most, total=total)[0]


@checked
def softmax_gradient(
    graph: Graph,
    cotangent: Tensor,
    result: Tensor,
    axis: Axes = -1,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "softmax_gradient",
) -> Tensor:
    """The gradient of `softmax` by its operand, computed from its result.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        result: the result of `softmax`, of the same shape and dtype.
        axis: the axis, or axes, of a row.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of the result.

    Raises:
        OperationError: an axis that there is not, or operands that do not fit together.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.softmax_gradient)(jnp.array([1.0, 0.0]), jnp.array([0.5, 0.5]))
    Array([ 0.25, -0.25], dtype=float32)
    """
    return _slope("softmax_gradient", graph, cotangent, result, axis, grain, memory_fraction, name)


@checked
def log_softmax_gradient(
    graph: Graph,
    cotangent: Tensor,
    result: Tensor,
    axis: Axes = -1,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "log_softmax_gradient",
) -> Tensor:
    """The gradient of `log_softmax` by its operand, computed from its result.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        result: the result of `log_softmax`, of the same shape and dtype.
        axis: the axis, or axes, of a row.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of the result.

    Raises:
        OperationError: an axis that there is not, or operands that do not fit together.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.log_softmax_gradient)(jnp.array([1.0, 0.0]), jnp.log(jnp.array([0.5, 0.5])))
    Array([ 0.5, -0.5], dtype=float32)
    """
    return _slope("log_softmax_gradient", graph, cotangent, result, axis, grain, memory_fraction, name)


def _slope(
    operation: str,
    graph: Graph,
    cotangent: Tensor,
    result: Tensor,
    axis: Axes,
    grain: int | None,
    memory_fraction: float,
    name: str,
) -> Tensor:
    """The gradient of a softmax or its logarithm."""
    rows = rows_of(operation, graph, axis, grain, memory_fraction, cotangent=cotangent, result=result)
    dtype = result.dtype
    pair, sums = {"cotangent": ("all", cotangent), "result": ("all", result)}, sums_dtype(dtype)
    of_log = operation == "log_softmax_gradient"
    with graph.scope(name, unique=True):
        if not rows.size:
            return graph.add_variable("out", result.shape, dtype)
        codelets = log_softmax_slope_of_rows if of_log else softmax_slope_of_rows
        whole = rows.work("slope", codelets, pair, {"out": ("all", dtype)}, "whole")
        first = (
            sum_of_rows(rows, cotangent)
            if of_log
            else rows.work("sum products", sum_products, pair, {"out": ("one", sums)}, "summed", add=add_up)
        )
        codelets = subtract_share if of_log else multiply_differences
        last = rows.work("slope", codelets, {**pair, "total": ("one", sums)}, {"out": ("all", dtype)}, "kept")
        plans = rows.plans([first, last])
        if rows.takes_whole(whole, plans):
            return rows.add(whole, rows.plan(whole), cotangent=cotangent, result=result)[0]
        given = {"x": cotangent} if of_log else {"cotangent": cotangent, "result": result}
        (total,) = rows.add(first, plans[0], **given)
        return rows.add(last, plans[1], cotangent=cotangent, result=result, total=total)[0]


@checked
def logsumexp_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    result: Tensor,
    axis: Axes = None,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "logsumexp_gradient",
) -> Tensor:
    """The gradient of `logsumexp` by its operand, computed from its result: the softmax, scaled.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result, without the reduced dimensions.
        x: the exponents.
        result: the result of `logsumexp`, without the reduced dimensions.
        axis: the axis, or axes, of a row; default: all.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: an axis that there is not, or operands that do not fit together.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.logsumexp_gradient)(jnp.array(2.0), jnp.zeros(4), jnp.log(4.0))
    Array([0.5, 0.5, 0.5, 0.5], dtype=float32)
    """
    rows = rows_of("logsumexp_gradient", graph, axis, grain, memory_fraction, x=x)
    check_tensors("logsumexp_gradient", graph, cotangent=cotangent, result=result)
    kept = tuple(n for d, n in enumerate(x.shape) if d not in rows.axes)
    check_of_rows("logsumexp_gradient", kept, cotangent=cotangent, result=result)
    with graph.scope(name, unique=True):
        if not rows.size:
            return graph.add_variable("out", x.shape, x.dtype)
        fields = {"cotangent": ("one", cotangent), "x": ("all", x), "result": ("one", result)}
        work = rows.work("slope", share_by_exponentials, fields, {"out": ("all", x.dtype)}, "kept")
        return rows.add(work, rows.plan(work), cotangent=cotangent, x=x, result=result)[0]


def check_of_rows(operation: str, shape: tuple[int, ...], **tensors: Tensor) -> None:
    """See that tensors have one element for each row.

    Raises:
        OperationError: they have not.
    """
    for name, tensor in tensors.items():
        if tensor.shape != shape:
            raise OperationError(
                f"{name} of ops.{operation} has not one element for each row",
                given=tensor,
                expected=f"shape {shape}, without the axes along which rows are",
            )
