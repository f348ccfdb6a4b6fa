"""Batch, layer and group norms, each with its gradients with respect to the tensor, the scale and the offset.

Statistics of floating point of 16 bits are kept in float32. Where the elements normalized together are whole on a tile,
one codelet does all; else sums and sums of squares are added up over the tiles, the variance being the mean square
without the square of the mean, as flax has it by default. Large means with small deviations lose digits so.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

from jax import lax

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_tensors, checked_axes, checked_axis
from codelet.ops.elementwise import map
from codelet.ops.norm_codelets import move_slopes_by_channel
from codelet.ops.normalizing import Norm
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.schema import checked
from codelet.views.sources import type_text
from codelet.views.tensor import Tensor


class BatchNorm(NamedTuple):
    """The results of `batch_norm`.

    Attributes:
        y: the normalized tensor, of the shape and dtype of `x`.
        mean: of each channel.
        variance: of each channel.
    """

    y: Tensor
    mean: Tensor
    variance: Tensor


class NormGradient(NamedTuple):
    """The gradients of a norm, each of the shape and dtype of its operand.

    Attributes:
        x: with respect to the normalized tensor.
        scale: with respect to its factor.
        offset: with respect to its summand.
    """

    x: Tensor
    scale: Tensor
    offset: Tensor


class BatchNormInferenceGradient(NamedTuple):
    """The gradients of `batch_norm_inference`, each of the shape and dtype of its operand.

    Attributes:
        x: with respect to the normalized tensor.
        scale: with respect to its factor.
        offset: with respect to its summand.
        mean: by the mean that was given.
        variance: by the variance that was given.
    """

    x: Tensor
    scale: Tensor
    offset: Tensor
    mean: Tensor
    variance: Tensor


def _channels(operation: str, x: Tensor, axis: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The axes beside that of channels, and that."""
    channel = checked_axis(operation, "channel_axis", axis, x.ndim)
    return tuple(d for d in range(x.ndim) if d != channel), (channel,)


@checked
def batch_norm(
    graph: Graph,
    x: Tensor,
    scale: Tensor,
    offset: Tensor,
    *,
    channel_axis: int = 1,
    eps: float = 1e-5,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "batch_norm",
) -> BatchNorm:
    """Every channel normalized by its mean and variance, over the batch and the field, scaled and moved.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: of floating point.
        scale: for each channel.
        offset: for each channel.
        channel_axis: of the channels.
        eps: added to the variance.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The result, the mean and the variance of each channel; of float32 for shorter numbers.

    Raises:
        OperationError: shapes that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> y, mean, variance = cl.lower(cl.ops.batch_norm)(jnp.arange(6.0).reshape(3, 2), jnp.ones(2), jnp.zeros(2))
    >>> mean, variance.round(3)
    (Array([2., 3.], dtype=float32), Array([2.667, 2.667], dtype=float32))
    """
    _checked("batch_norm", graph, x=x, scale=scale, offset=offset)
    axes, channel = _channels("batch_norm", x, channel_axis)
    scales = {"scale": scale, "offset": offset}
    with graph.scope(name, unique=True):
        own = Norm("batch_norm", graph, axes, channel, eps, grain, memory_fraction, x, scales)
        mean, variance = own.moments(x)
        return BatchNorm(own.normalized(x=x, mean=mean, variance=variance, **scales), mean, variance)


@checked
def batch_norm_inference(
    graph: Graph,
    x: Tensor,
    scale: Tensor,
    offset: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    channel_axis: int = 1,
    eps: float = 1e-5,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "batch_norm_inference",
) -> Tensor:
    """Every channel normalized by a mean and a variance that are given, then scaled and shifted.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: of floating point.
        scale: one number for each channel.
        offset: one number for each channel.
        mean: one number for each channel, as `batch_norm` gave it or averaged over steps.
        variance: one number for each channel.
        channel_axis: the axis of the channels.
        eps: added to the variance.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: shapes that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> one = jnp.ones(1)
    >>> cl.lower(cl.ops.batch_norm_inference)(jnp.array([[3.0], [5.0]]), one, one, 4 * one, one).round(3)
    Array([[0.],
           [2.]], dtype=float32)
    """
    _checked("batch_norm_inference", graph, x=x, scale=scale, offset=offset, mean=mean, variance=variance)
    axes, channel = _channels("batch_norm_inference", x, channel_axis)
    given = {"scale": scale, "offset": offset, "mean": mean, "variance": variance}
    with graph.scope(name, unique=True):
        own = Norm("batch_norm_inference", graph, axes, channel, eps, grain, memory_fraction, x, given)
        return own.normalized(x=x, mean=mean, variance=variance, scale=scale, offset=offset)


def by_element(cotangent, scale, variance, *, eps):
    """The slope by an element, of given statistics."""
    return (cotangent * (scale * lax.rsqrt(variance + eps))).astype(cotangent.dtype)


def by_statistics(products, total, scale, variance, *, eps):
    """The slopes by the mean and the variance."""
    return -total * scale * lax.rsqrt(variance + eps), -products * scale / (2 * (variance + eps))


@checked
def batch_norm_inference_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    scale: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    channel_axis: int = 1,
    eps: float = 1e-5,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "batch_norm_inference_gradient",
) -> BatchNormInferenceGradient:
    """The gradients of `batch_norm_inference` by its operands.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        x: the operand that was normalized.
        scale: one number for each channel.
        mean: the mean that was given.
        variance: the variance that was given.
        channel_axis: the axis of the channels.
        eps: added to the variance.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients with respect to `x`, `scale`, `offset`, `mean` and `variance`, each of its shape and dtype.

    Raises:
        OperationError: shapes that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> g, x, one = jnp.array([[1.0], [2.0]]), jnp.array([[3.0], [5.0]]), jnp.ones(1)
    >>> cl.lower(cl.ops.batch_norm_inference_gradient)(g, x, one, 4 * one, one).mean.round(2)
    Array([-3.], dtype=float32)
    """
    operation = "batch_norm_inference_gradient"
    _checked(operation, graph, cotangent=cotangent, x=x, scale=scale, mean=mean, variance=variance)
    axes, channel = _channels(operation, x, channel_axis)
    given = {"scale": scale, "mean": mean, "variance": variance}

    with graph.scope(name, unique=True):
        own = Norm(operation, graph, axes, channel, eps, grain, memory_fraction, x, given, cotangent=cotangent)
        wide = own.as_dtype(variance, own.sums)
        products, total = own.slopes(cotangent, x, own.as_dtype(mean, own.sums), wide)
        by_channel = tuple(n if d in channel else 1 for d, n in enumerate(x.shape))
        spread = scale.reshape(by_channel), wide.reshape(by_channel)
        slopes = map(
            graph, functools.partial(by_element, eps=eps), cotangent, *spread, grain=grain, name="scale slopes"
        )
        of_statistics = functools.partial(by_statistics, eps=eps)
        by_mean, by_variance = map(graph, of_statistics, products, total, scale, wide, name="statistics")
        by_scale, by_offset = own.as_dtype(products, scale.dtype), own.as_dtype(total, scale.dtype)
        by_mean, by_variance = own.as_dtype(by_mean, mean.dtype), own.as_dtype(by_variance, variance.dtype)
        return BatchNormInferenceGradient(slopes, by_scale, by_offset, by_mean, by_variance)


@checked
def batch_norm_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    scale: Tensor,
    mean: Tensor,
    variance: Tensor,
    *,
    channel_axis: int = 1,
    eps: float = 1e-5,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "batch_norm_gradient",
) -> NormGradient:
    """The gradients of the result of `batch_norm` by its operands, computed from the statistics that it gave.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result `y`.
        x: the operand that was normalized.
        scale: one number for each channel.
        mean: of each channel, from `batch_norm`.
        variance: of each channel, from `batch_norm`.
        channel_axis: the axis of the channels.
        eps: added to the variance.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients with respect to `x`, `scale` and `offset`, each of its shape and dtype.

    Raises:
        OperationError: shapes that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> g, x, one = jnp.array([[1.0], [2.0]]), jnp.array([[3.0], [5.0]]), jnp.ones(1)
    >>> cl.lower(cl.ops.batch_norm_gradient)(g, x, one, 4 * one, one).offset
    Array([3.], dtype=float32)
    """
    _checked("batch_norm_gradient", graph, cotangent=cotangent, x=x, scale=scale, mean=mean, variance=variance)
    axes, channel = _channels("batch_norm_gradient", x, channel_axis)
    given = {"scale": scale, "mean": mean, "variance": variance}
    with graph.scope(name, unique=True):
        own = Norm(
            *("batch_norm_gradient", graph, axes, channel, eps, grain, memory_fraction, x, given), cotangent=cotangent
        )
        products, total = own.slopes(cotangent, x, mean, variance)
        slopes = own.moved(move_slopes_by_channel, cotangent=cotangent, x=x, **given, products=products, total=total)
        return NormGradient(slopes, own.as_dtype(products, scale.dtype), own.as_dtype(total, scale.dtype))


@checked
def layer_norm(
    graph: Graph,
    x: Tensor,
    scale: Tensor,
    offset: Tensor,
    *,
    axis: int | Iterable[int] = -1,
    eps: float = 1e-5,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "layer_norm",
) -> Tensor:
    """Rows along some axes normalized by their mean and variance, scaled and moved element by element.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: of floating point.
        scale: of the shape of a row.
        offset: of the shape of a row.
        axis: along which axes rows are.
        eps: added to the variance.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.layer_norm)(jnp.arange(6.0).reshape(2, 3), jnp.ones(3), jnp.zeros(3))[0].round(3)
    Array([-1.225,  0.   ,  1.225], dtype=float32)
    """
    _checked("layer_norm", graph, x=x, scale=scale, offset=offset)
    axes = checked_axes("layer_norm", "axis", axis, x.ndim)
    scales = {"scale": scale, "offset": offset}
    with graph.scope(name, unique=True):
        return _rows_normalized(
            Norm("layer_norm", graph, axes, axes, eps, grain, memory_fraction, x, scales), x, scales
        )


@checked
def layer_norm_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    scale: Tensor,
    *,
    axis: int | Iterable[int] = -1,
    eps: float = 1e-5,
    statistics: tuple[Tensor, Tensor] | None = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "layer_norm_gradient",
) -> NormGradient:
    """The gradients of `layer_norm` by its operands.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        x: the operand that was normalized.
        scale: of the shape of a row.
        axis: the axis, or axes, of a row.
        eps: added to the variance.
        statistics: the mean and the variance of each row, if they are known; default: computed again.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients with respect to `x`, `scale` and `offset`, each of its shape and dtype.

    Raises:
        OperationError: shapes or statistics that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slopes = cl.lower(cl.ops.layer_norm_gradient)(jnp.ones((2, 3)), jnp.arange(6.0).reshape(2, 3), jnp.ones(3))
    >>> slopes.offset
    Array([2., 2., 2.], dtype=float32)
    """
    _checked("layer_norm_gradient", graph, cotangent=cotangent, x=x, scale=scale)
    axes = checked_axes("layer_norm_gradient", "axis", axis, x.ndim)
    with graph.scope(name, unique=True):
        own = Norm(
            *("layer_norm_gradient", graph, axes, axes, eps, grain, memory_fraction, x, {"scale": scale}),
            cotangent=cotangent,
        )
        return _row_slopes("layer_norm_gradient", own, cotangent, x, scale, statistics)


def _rows_normalized(own: Norm, x: Tensor, scales: dict[str, Tensor]) -> Tensor:
    """Rows normalized: whole ones, or by statistics that are added up."""
    found = own.normalized_rows(x=x, **scales)
    if found is not None:
        return found
    mean, variance = own.moments(x)
    own.graph.note_intermediates(mean=mean, variance=variance)
    return own.normalized(x=x, mean=mean, variance=variance, **scales)


def _check_statistics(operation: str, own: Norm, x: Tensor, statistics: Any) -> None:
    """See that statistics are the mean and the variance of all that is normalized together.

    Raises:
        OperationError: they are something else.
    """
    shape = tuple(n for d, n in enumerate(x.shape) if d not in own.axes)
    is_pair = isinstance(statistics, (tuple, list)) and len(statistics) == 2
    if is_pair:
        check_tensors(operation, own.graph, **dict(zip(("mean", "variance"), statistics, strict=True)))
    if not is_pair or any((each.shape, each.dtype) != (shape, own.sums) for each in statistics):
        raise OperationError(
            f"the statistics of ops.{operation} are not those of what is normalized",
            given=statistics,
            expected=f"a mean and a variance, each {type_text(own.sums, shape)}",
        )


def _row_slopes(
    operation: str, own: Norm, cotangent: Tensor, x: Tensor, scale: Tensor, statistics: tuple[Tensor, Tensor] | None
) -> NormGradient:
    if statistics is not None:
        _check_statistics(operation, own, x, statistics)
    slopes, mean, variance = own.slopes_by_rows(cotangent, x, scale, statistics)
    by_scale, by_offset = own.slopes(cotangent, x, mean, variance)
    return NormGradient(slopes, own.as_dtype(by_scale, scale.dtype), own.as_dtype(by_offset, scale.dtype))


def _grouped(operation: str, x: Tensor, num_groups: int, axis: int) -> tuple[int, tuple[int, ...]]:
    """The axis of channels, and the shape of a tensor with it as groups and the channels of each."""
    channel = checked_axis(operation, "channel_axis", axis, x.ndim)
    channels = x.shape[channel]
    if isinstance(num_groups, bool) or not isinstance(num_groups, int) or num_groups < 1 or channels % num_groups:
        raise OperationError(
            f"num_groups of ops.{operation} does not divide the channels",
            given=f"{num_groups!r} of {channels} channels",
            expected="a number of groups of as many channels each",
        )
    return channel, (*x.shape[:channel], num_groups, channels // num_groups, *x.shape[channel + 1 :])


@checked
def group_norm(
    graph: Graph,
    x: Tensor,
    num_groups: int,
    scale: Tensor,
    offset: Tensor,
    *,
    channel_axis: int = 1,
    eps: float = 1e-5,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "group_norm",
) -> Tensor:
    """Groups of channels of each example normalized by their mean and variance, scaled and moved by channel.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: of floating point, its first dimension the batch.
        num_groups: of channels, each of as many.
        scale: for each channel.
        offset: for each channel.
        channel_axis: of the channels.
        eps: added to the variance.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes or groups that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> normalize = cl.lower(lambda graph, x, one: cl.ops.group_norm(graph, x, 1, one, one))
    >>> normalize(jnp.array([[1.0, 3.0]]), jnp.ones(2)).round(3)
    Array([[0., 2.]], dtype=float32)
    """
    _checked("group_norm", graph, x=x, scale=scale, offset=offset)
    channel, shape = _grouped("group_norm", x, num_groups, channel_axis)
    _check_channels("group_norm", x.shape[channel], scale=scale, offset=offset)
    wide, of_groups = x.reshape(shape), shape[channel : channel + 2]
    scales = {"scale": scale.reshape(of_groups), "offset": offset.reshape(of_groups)}
    axes = tuple(d for d in range(len(shape)) if d not in (0, channel))
    with graph.scope(name, unique=True):
        own = Norm("group_norm", graph, axes, (channel, channel + 1), eps, grain, memory_fraction, wide, scales)
        return _rows_normalized(own, wide, scales).reshape(x.shape)


@checked
def group_norm_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    num_groups: int,
    scale: Tensor,
    *,
    channel_axis: int = 1,
    eps: float = 1e-5,
    statistics: tuple[Tensor, Tensor] | None = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "group_norm_gradient",
) -> NormGradient:
    """The gradients of `group_norm` by its operands.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        x: the operand that was normalized, its first dimension the batch.
        num_groups: of channels.
        scale: one number for each channel.
        channel_axis: the axis of the channels.
        eps: added to the variance.
        statistics: the mean and the variance of each group of each example, if they are known; default: computed
            again.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients with respect to `x`, `scale` and `offset`, each of its shape and dtype.

    Raises:
        OperationError: shapes, groups or statistics that do not fit, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slopes = lambda graph, g, x, scale: cl.ops.group_norm_gradient(graph, g, x, 2, scale)
    >>> cl.lower(slopes)(jnp.ones((3, 4)), jnp.arange(12.0).reshape(3, 4), jnp.ones(4)).offset
    Array([3., 3., 3., 3.], dtype=float32)
    """
    _checked("group_norm_gradient", graph, cotangent=cotangent, x=x, scale=scale)
    channel, shape = _grouped("group_norm_gradient", x, num_groups, channel_axis)
    _check_channels("group_norm_gradient", x.shape[channel], scale=scale)
    if cotangent.shape != x.shape:
        raise OperationError(
            "cotangent of ops.group_norm_gradient is not like what was normalized", given=cotangent, expected=x
        )
    wide, slopes, of_groups = x.reshape(shape), cotangent.reshape(shape), scale.reshape(shape[channel : channel + 2])
    axes = tuple(d for d in range(len(shape)) if d not in (0, channel))
    with graph.scope(name, unique=True):
        own = Norm(
            *("group_norm_gradient", graph, axes, (channel, channel + 1), eps, grain, memory_fraction, wide),
            {"scale": of_groups},
            cotangent=slopes,
        )
        by_x, by_scale, by_offset = _row_slopes("group_norm_gradient", own, slopes, wide, of_groups, statistics)
        return NormGradient(by_x.reshape(x.shape), by_scale.flatten(), by_offset.flatten())


def _checked(operation: str, graph: Graph, **tensors: Tensor) -> None:
    """See that operands are tensors of floating point."""
    check_tensors(operation, graph, **tensors)
    check_floating(operation, **tensors)


def _check_channels(operation: str, channels: int, **tensors: Tensor) -> None:
    """See that tensors have one element for each channel.

    Raises:
        OperationError: they have not.
    """
    for name, tensor in tensors.items():
        if tensor.shape != (channels,):
            raise OperationError(
                f"{name} of ops.{operation} does not fit what is normalized",
                given=tensor,
                expected=f"shape {(channels,)}",
            )
