"""Integers with a scale in place of floating-point ones."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.casts import converted, dtype_of
from codelet.onnx.operators.conv_operators import convolved, with_bias
from codelet.onnx.operators.window_attributes import windows_of


def _spread(node: OnnxNode, item: Any, x: Any) -> Any:
    """A scale, or zero point, as it is for each element: one, one for each place along an axis, or for each block."""
    if item.ndim == 0 or (item.size == 1 and item.ndim < 2):
        return jnp.reshape(item, ())
    axis, size = node.axis(node.attribute("axis", 1), x), node.attribute("block_size", 0)
    if item.ndim == 1:
        return jnp.reshape(item, [-1 if d == axis else 1 for d in range(x.ndim)])
    size = size or -(-x.shape[axis] // item.shape[axis])
    return jnp.repeat(item, size, axis, total_repeat_length=item.shape[axis] * size)[
        tuple(slice(0, n) for n in x.shape)
    ]


def _small(x: Any) -> Any:
    """In a type that one may compute in."""
    item = jnp.asarray(x)
    return item.astype(np.int32) if jnp.issubdtype(item.dtype, jnp.integer) else item.astype(np.float32)


def _quantized(x: Any, zero: Any, dtype: np.dtype, saturates: bool) -> Any:
    if not jnp.issubdtype(dtype, jnp.integer):
        return converted(x + (0 if zero is None else _small(zero)), dtype, saturates)
    info = jnp.iinfo(dtype)
    shifted = jnp.round(x) + (0 if zero is None else _small(zero).astype(x.dtype))
    return jnp.clip(shifted, int(info.min), int(info.max)).astype(np.int32).astype(dtype)


@operator("QuantizeLinear")
def quantize_linear(node: OnnxNode, x: Any, scale: Any, zero: Any = None) -> Any:
    """`x / scale`, rounded, from a zero point on, within the range of the dtype."""
    number = node.attribute("output_dtype", 0)
    dtype = zero.dtype if zero is not None else dtype_of(node, number) if number else np.dtype(np.uint8)
    precise = node.attribute("precision", 0)
    wide = dtype_of(node, precise) if precise else np.dtype(np.float32)
    by = _spread(node, scale, x)
    ratio = (jnp.asarray(x).astype(wide) / by.astype(wide)).astype(np.float32)
    return _quantized(
        ratio, None if zero is None else _spread(node, zero, x), np.dtype(dtype), bool(node.attribute("saturate", 1))
    )


@operator("DequantizeLinear")
def dequantize_linear(node: OnnxNode, x: Any, scale: Any, zero: Any = None) -> Any:
    """`(x - zero) * scale`."""
    number = node.attribute("output_dtype", 0)
    dtype = dtype_of(node, number) if number else scale.dtype
    shifted = _small(x) if zero is None else _small(x) - _small(_spread(node, zero, x))
    return (shifted.astype(np.float32) * _spread(node, scale, x).astype(np.float32)).astype(dtype)


@operator("DynamicQuantizeLinear")
def dynamic_quantize_linear(node: OnnxNode, x: Any) -> tuple[Any, Any, Any]:
    """In eight bits, by the least and the greatest there are."""
    low, high = jnp.minimum(jnp.min(x), 0), jnp.maximum(jnp.max(x), 0)
    scale = (high - low) / np.float32(255)
    zero = jnp.clip(jnp.round(-low / scale), 0, 255)
    return jnp.clip(jnp.round(x / scale) + zero, 0, 255).astype(np.uint8), scale, zero.astype(np.uint8)


def _less(x: Any, zero: Any, *, along: int | None = None) -> Any:
    """Integers less their zero point."""
    item = jnp.asarray(x).astype(np.int32)
    if zero is None:
        return item
    shift = jnp.asarray(zero).astype(np.int32)
    if along is not None and shift.ndim == 1 and shift.size > 1:
        shift = jnp.reshape(shift, [-1 if d == along % item.ndim else 1 for d in range(item.ndim)])
    return item - (jnp.reshape(shift, ()) if shift.size == 1 else shift)


@operator("MatMulInteger")
def matmul_integer(node: OnnxNode, a: Any, b: Any, a_zero: Any = None, b_zero: Any = None) -> Any:
    """A product of integers, summed in 32 bits."""
    return jnp.matmul(_less(a, a_zero, along=-2), _less(b, b_zero, along=-1), preferred_element_type=np.int32)


@operator("ConvInteger")
def conv_integer(node: OnnxNode, x: Any, w: Any, x_zero: Any = None, w_zero: Any = None) -> Any:
    """A convolution of integers, summed in 32 bits."""
    return _convolved(node, _less(x, x_zero), _less(w, w_zero, along=0))


def _convolved(node: OnnxNode, x: Any, w: Any) -> Any:
    windows = windows_of(node, x.shape[2:], node.attribute("kernel_shape") or w.shape[2:])
    return convolved(x, w, windows, node.attribute("group", 1), preferred_element_type=np.int32)


def _requantized(result: Any, scale: Any, zero: Any) -> Any:
    return _quantized(
        result.astype(np.float32) * scale.astype(np.float32), jnp.reshape(zero, ()), np.dtype(zero.dtype), True
    )


@operator("QLinearMatMul")
def qlinear_matmul(
    node: OnnxNode, a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, scale: Any, zero: Any
) -> Any:
    """A product of quantized matrices, quantized."""
    result = jnp.matmul(_less(a, a_zero, along=-2), _less(b, b_zero, along=-1), preferred_element_type=np.int32)
    by = (
        jnp.asarray(a_scale).astype(np.float32)
        * jnp.asarray(b_scale).astype(np.float32)
        / jnp.asarray(scale).astype(np.float32)
    )
    return _requantized(result, jnp.reshape(by, ()) if by.size == 1 else by, zero)


@operator("QLinearConv")
def qlinear_conv(
    node: OnnxNode,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    w: Any,
    w_scale: Any,
    w_zero: Any,
    scale: Any,
    zero: Any,
    bias: Any = None,
) -> Any:
    """A convolution of quantized arrays, quantized."""
    result = with_bias(_convolved(node, _less(x, x_zero), _less(w, w_zero, along=0)), bias)
    by = jnp.reshape(w_scale, (1, -1, *(1,) * (x.ndim - 2))) if w_scale.size > 1 else jnp.reshape(w_scale, ())
    return _requantized(result, jnp.reshape(x_scale, ()) * by / jnp.reshape(scale, ()), zero)
