"""Normalizations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator


def _by_channel(item: Any, x: Any) -> Any:
    """A number for each channel, in the dimensions of an array."""
    return jnp.reshape(item, (1, -1, *(1,) * (x.ndim - 2))) if x.ndim > 1 else item


def _normalized(x: Any, scale: Any, bias: Any, mean: Any, variance: Any, epsilon: float) -> Any:
    item = (_by_channel(each, x) for each in (scale, bias, mean, variance))
    scale, bias, mean, variance = item
    return ((x - mean) / lax.sqrt(variance + np.asarray(epsilon, variance.dtype)) * scale + bias).astype(x.dtype)


@operator("BatchNormalization")
def batch_normalization(node: OnnxNode, x: Any, scale: Any, bias: Any, mean: Any, variance: Any) -> Any:
    """Each channel by statistics that are given; by its own, and these moved, when training."""
    epsilon = node.attribute("epsilon", 1e-5)
    if not node.attribute("training_mode", 0):
        return _normalized(x, scale, bias, mean, variance, epsilon)
    axes = (0, *range(2, x.ndim))
    own_mean, own_variance = jnp.mean(x, axes), jnp.var(x, axes)
    share_kept = node.attribute("momentum", 0.9)
    output = _normalized(x, scale, bias, own_mean, own_variance, epsilon)
    return (
        output,
        (mean * share_kept + own_mean * (1 - share_kept)).astype(mean.dtype),
        (variance * share_kept + own_variance * (1 - share_kept)).astype(variance.dtype),
    )


@operator("InstanceNormalization")
def instance_normalization(node: OnnxNode, x: Any, scale: Any, bias: Any) -> Any:
    """Each channel of each image by its statistics."""
    axes = tuple(range(2, x.ndim))
    mean, variance = jnp.mean(x, axes, keepdims=True), jnp.var(x, axes, keepdims=True)
    result = (x - mean) * lax.rsqrt(variance + np.asarray(node.attribute("epsilon", 1e-5), x.dtype))
    return result * _by_channel(scale, x) + _by_channel(bias, x)


@operator("GroupNormalization", since=18)
def group_normalization_by_group(node: OnnxNode, x: Any, scale: Any, bias: Any) -> Any:
    """Groups of channels by their statistics, with a scale and a bias for each group."""
    each = x.shape[1] // node.attribute("num_groups")
    return group_normalization(node, x, jnp.repeat(scale, each), jnp.repeat(bias, each))


@operator("GroupNormalization", since=21)
def group_normalization(node: OnnxNode, x: Any, scale: Any, bias: Any) -> Any:
    """Groups of channels by their statistics, with a scale and a bias for each channel."""
    groups = jnp.reshape(x, (x.shape[0], node.attribute("num_groups"), -1)).astype(np.float32)
    mean, variance = jnp.mean(groups, 2, keepdims=True), jnp.var(groups, 2, keepdims=True)
    result = jnp.reshape((groups - mean) * lax.rsqrt(variance + np.float32(node.attribute("epsilon", 1e-5))), x.shape)
    return result.astype(x.dtype) * _by_channel(scale, x) + _by_channel(bias, x)


def _last_axes(node: OnnxNode, x: Any) -> tuple[int, ...]:
    return tuple(range(node.axis(node.attribute("axis", -1), x), x.ndim))


def _stash(node: OnnxNode, x: Any) -> Any:
    return x.astype(np.float32) if node.attribute("stash_type", 1) == 1 and x.dtype.itemsize < 4 else x


@operator("LayerNormalization")
def layer_normalization(node: OnnxNode, x: Any, scale: Any, bias: Any = None) -> tuple[Any, Any, Any]:
    """The last dimensions by their statistics; with these."""
    axes, wide = _last_axes(node, x), _stash(node, x)
    mean = jnp.mean(wide, axes, keepdims=True)
    inverse = lax.rsqrt(
        jnp.mean(jnp.square(wide - mean), axes, keepdims=True) + np.asarray(node.attribute("epsilon", 1e-5), wide.dtype)
    )
    result = ((wide - mean) * inverse).astype(x.dtype) * scale
    return result if bias is None else result + bias, mean, inverse


@operator("RMSNormalization")
def rms_normalization(node: OnnxNode, x: Any, scale: Any) -> Any:
    """The last dimensions by the root of the mean of their squares."""
    axes, wide = _last_axes(node, x), _stash(node, x)
    squares = jnp.mean(jnp.square(wide), axes, keepdims=True)
    inverse = lax.rsqrt(squares + np.asarray(node.attribute("epsilon", 1e-5), wide.dtype))
    return (wide * inverse).astype(x.dtype) * scale


@operator("LpNormalization")
def lp_normalization(node: OnnxNode, x: Any) -> Any:
    """Along an axis by its p-norm; 0 where that is."""
    axis = node.attribute("axis", -1)
    if node.attribute("p", 2) == 1:
        norm = jnp.sum(jnp.abs(x), axis, keepdims=True)
    else:
        norm = jnp.sqrt(jnp.sum(x * x, axis, keepdims=True))
    return jnp.where(norm == 0, 0, x / jnp.where(norm == 0, 1, norm)).astype(x.dtype)


@operator("MeanVarianceNormalization")
def mean_variance_normalization(node: OnnxNode, x: Any) -> Any:
    """Less the mean, by the standard deviation, along some axes."""
    axes: Sequence[int] = node.attribute("axes") or [0, 2, 3]
    mean = jnp.mean(x, tuple(axes), keepdims=True)
    deviation = jnp.sqrt(jnp.maximum(jnp.mean(x * x, tuple(axes), keepdims=True) - mean * mean, 0))
    return (x - mean) / (deviation + np.asarray(1e-9, x.dtype))


@operator("LRN")
def local_response_normalization(node: OnnxNode, x: Any) -> Any:
    """By the squares of neighbouring channels."""
    size = node.attribute("size")
    before = (size - 1) // 2
    widths = ((0, 0), (before, size - 1 - before), *((0, 0),) * (x.ndim - 2))
    window = (1, size, *(1,) * (x.ndim - 2))
    squares = lax.reduce_window(x * x, np.zeros((), x.dtype), lax.add, window, (1,) * x.ndim, widths)
    alpha, beta, bias = node.attribute("alpha", 1e-4), node.attribute("beta", 0.75), node.attribute("bias", 1.0)
    return x / (np.asarray(bias, x.dtype) + np.asarray(alpha / size, x.dtype) * squares) ** np.asarray(beta, x.dtype)
