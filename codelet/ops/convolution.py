"""Convolutions in any number of dimensions, as `jax.lax.conv_general_dilated`, and their gradients as operations.

All three are one convolution of operands seen in another way: see `conv_arguments.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import jax.numpy as jnp

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_same_dtype, check_tensors, checked_dtype, checked_grain
from codelet.ops.conv_arguments import (
    Seen,
    check_cotangent,
    checked_sizes,
    seen_by_input,
    seen_by_kernel,
    seen_forward,
)
from codelet.ops.conv_planning import plan_convolved
from codelet.ops.conv_vertices import add_planned
from codelet.ops.partials import checked_sums
from codelet.ops.planning import MEMORY_FRACTION, Plan
from codelet.ops.schema import checked
from codelet.target import Target
from codelet.views.tensor import Tensor


def _add(graph: Graph, seen: Seen, grain: int | None, memory_fraction: float, name: str) -> Tensor:
    """The vertices of a convolution, planned, in a scope."""
    plan = plan_convolved(graph.target, seen.own, grain, memory_fraction)
    with graph.scope(name, unique=True):
        return add_planned(graph, seen, plan, memory_fraction)


# --- operations -------------------------------------------------------------------------------------------


@checked
def conv_general_dilated(
    graph: Graph,
    lhs: Tensor,
    rhs: Tensor,
    window_strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    *,
    lhs_dilation: Sequence[int] | int | None = None,
    rhs_dilation: Sequence[int] | int | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    preferred_element_type: Any = None,
    partials: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "conv_general_dilated",
) -> Tensor:
    """A convolution, as `jax.lax.conv_general_dilated`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        lhs: the image.
        rhs: the kernels, of the same dtype.
        window_strides: by how many elements windows move; one for all dimensions, default: or 1.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each spatial dimension, negative to cut off.
        lhs_dilation: by how many positions elements of the image are apart, zeros between them.
        rhs_dilation: by how many elements the taps of a kernel are apart.
        dimension_numbers: the roles of dimensions, as `lax.conv_dimension_numbers` takes them; default: NCHW.
        feature_group_count: groups of channels, each with separate kernels.
        batch_group_count: groups of the batch, each with separate kernels.
        preferred_element_type: dtype of the results; default: the operands'.
        partials: dtype of partial sums; default: float32 for floating point of 16 bits, else the results'.
        grain: about how many multiply-adds a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes, dtypes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> layer = cl.lower(lambda graph, x, w: cl.ops.conv_general_dilated(graph, x, w, 2, "SAME"))
    >>> layer(jnp.ones((1, 3, 8, 8)), jnp.ones((5, 3, 3, 3))).shape
    (1, 5, 4, 4)
    """
    check_tensors(name, graph, lhs=lhs, rhs=rhs)
    dtype = check_same_dtype(name, lhs=lhs, rhs=rhs)
    sizes = checked_sizes(
        name,
        lhs.shape,
        rhs.shape,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        feature_group_count,
        batch_group_count,
    )
    seen = seen_forward(lhs, rhs, sizes, *checked_sums(name, dtype, preferred_element_type, partials))
    return _add(graph, seen, checked_grain(name, grain), memory_fraction, name)


@checked
def plan_conv(
    target: Target,
    lhs: Sequence[int],
    rhs: Sequence[int],
    window_strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    *,
    of: Literal["results", "input gradient", "kernel gradient"] = "results",
    dtype: Any = jnp.float32,
    lhs_dilation: Sequence[int] | int | None = None,
    rhs_dilation: Sequence[int] | int | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    preferred_element_type: Any = None,
    partials: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
) -> Plan:
    """How a convolution, or a gradient of it, is spread over the tiles of a machine; it prints.

    Args:
        target: the machine.
        lhs: the shape of the image.
        rhs: the shape of the kernels.
        window_strides: by how many elements windows move, along each dimension; one number for all.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension.
        of: the operation to plan: `conv_general_dilated`, `conv_input_gradient` or `conv_kernel_gradient`.
        dtype: of both operands.
        lhs_dilation: distance between neighbours of the image, along each dimension; default: 1.
        rhs_dilation: distance between neighbours of the kernels, along each dimension; default: 1.
        dimension_numbers: the layouts of image, kernels and results, as `jax.lax` takes them; default: ("NCHW", "OIHW",
            "NCHW") and its like.
        feature_group_count: into how many groups the channels are divided.
        batch_group_count: into how many groups the batch is divided.
        preferred_element_type: dtype of the results; default: that of the operands.
        partials: dtype of partial sums; default: float32 for floating point of 16 bits, else that of the results.
        grain: about how many multiply-adds a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.

    Raises:
        OperationError: shapes, dtypes or options that do not fit.

    >>> import codelet as cl
    >>> plan = cl.ops.plan_conv(cl.IPU("mk2"), (1, 64, 56, 56), (64, 64, 3, 3), 1, "SAME")
    >>> [step.name for step in plan.steps]
    ['convolve', 'add up']
    """
    sizes = checked_sizes(
        "plan_conv",
        tuple(lhs),
        tuple(rhs),
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        feature_group_count,
        batch_group_count,
    )
    graph, own = Graph(target), checked_dtype("plan_conv", "dtype", dtype)
    image, kernels = graph.add_variable("lhs", tuple(lhs), own), graph.add_variable("rhs", tuple(rhs), own)
    kinds = checked_sums("plan_conv", own, preferred_element_type, partials)
    cotangent = graph.add_variable("cotangent", sizes.out_shape, own)
    ways = {
        "results": lambda: seen_forward(image, kernels, sizes, *kinds),
        "input gradient": lambda: seen_by_input(cotangent, kernels, sizes, *kinds),
        "kernel gradient": lambda: seen_by_kernel(cotangent, image, sizes, *kinds),
    }
    if of not in ways:
        raise OperationError(
            "what ops.plan_conv is to plan is of no known name", given=repr(of), expected=str(list(ways))
        )
    return plan_convolved(target, ways[of]().own, checked_grain("plan_conv", grain), memory_fraction)


@checked
def conv_input_gradient(
    graph: Graph,
    cotangent: Tensor,
    rhs: Tensor,
    lhs_shape: Sequence[int],
    window_strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    *,
    lhs_dilation: Sequence[int] | int | None = None,
    rhs_dilation: Sequence[int] | int | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    preferred_element_type: Any = None,
    partials: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "conv_input_gradient",
) -> Tensor:
    """The gradient of `conv_general_dilated` by its image, from that of its results.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the results.
        rhs: the kernels, of the same dtype.
        lhs_shape: the shape of the image.
        window_strides: by how many elements windows move, along each dimension; one number for all.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension.
        lhs_dilation: distance between neighbours of the image, along each dimension; default: 1.
        rhs_dilation: distance between neighbours of the kernels, along each dimension; default: 1.
        dimension_numbers: the layouts of image, kernels and results, as `jax.lax` takes them; default: ("NCHW", "OIHW",
            "NCHW") and its like.
        feature_group_count: into how many groups the channels are divided.
        batch_group_count: into how many groups the batch is divided.
        preferred_element_type: dtype of the gradient; default: the operands'.
        partials: dtype of partial sums.
        grain: about how many multiply-adds a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes, dtypes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slope = cl.lower(lambda graph, g, k: cl.ops.conv_input_gradient(graph, g, k, (1, 1, 4)))
    >>> slope(jnp.ones((1, 1, 3)), jnp.array([[[1.0, 2.0]]])).flatten()
    Array([1., 3., 3., 2.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, rhs=rhs)
    dtype = check_same_dtype(name, cotangent=cotangent, rhs=rhs)
    sizes = checked_sizes(
        name,
        tuple(lhs_shape),
        rhs.shape,
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        feature_group_count,
        batch_group_count,
    )
    check_cotangent(name, cotangent, sizes)
    seen = seen_by_input(cotangent, rhs, sizes, *checked_sums(name, dtype, preferred_element_type, partials))
    return _add(graph, seen, checked_grain(name, grain), memory_fraction, name)


@checked
def conv_kernel_gradient(
    graph: Graph,
    cotangent: Tensor,
    lhs: Tensor,
    rhs_shape: Sequence[int],
    window_strides: Sequence[int] | int | None = None,
    padding: Any = "VALID",
    *,
    lhs_dilation: Sequence[int] | int | None = None,
    rhs_dilation: Sequence[int] | int | None = None,
    dimension_numbers: Any = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    preferred_element_type: Any = None,
    partials: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "conv_kernel_gradient",
) -> Tensor:
    """The gradient of `conv_general_dilated` by its kernels, from that of its results.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the results.
        lhs: the image, of the same dtype.
        rhs_shape: the shape of the kernels.
        window_strides: by how many elements windows move, along each dimension; one number for all.
        padding: "SAME", "SAME_LOWER" or "VALID"; or (before, after) for each dimension.
        lhs_dilation: distance between neighbours of the image, along each dimension; default: 1.
        rhs_dilation: distance between neighbours of the kernels, along each dimension; default: 1.
        dimension_numbers: the layouts of image, kernels and results, as `jax.lax` takes them; default: ("NCHW", "OIHW",
            "NCHW") and its like.
        feature_group_count: into how many groups the channels are divided.
        batch_group_count: into how many groups the batch is divided.
        preferred_element_type: dtype of the gradient; default: the operands'.
        partials: dtype of partial sums.
        grain: about how many multiply-adds a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes, dtypes or options that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slope = cl.lower(lambda graph, g, x: cl.ops.conv_kernel_gradient(graph, g, x, (1, 1, 2)))
    >>> slope(jnp.ones((1, 1, 3)), jnp.arange(4.0).reshape(1, 1, 4)).flatten()
    Array([3., 6.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, lhs=lhs)
    dtype = check_same_dtype(name, cotangent=cotangent, lhs=lhs)
    sizes = checked_sizes(
        name,
        lhs.shape,
        tuple(rhs_shape),
        window_strides,
        padding,
        lhs_dilation,
        rhs_dilation,
        dimension_numbers,
        feature_group_count,
        batch_group_count,
    )
    check_cotangent(name, cotangent, sizes)
    seen = seen_by_kernel(cotangent, lhs, sizes, *checked_sums(name, dtype, preferred_element_type, partials))
    return _add(graph, seen, checked_grain(name, grain), memory_fraction, name)
