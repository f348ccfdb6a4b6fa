"""Operators that give values another type, or read their bits as one."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from jax import lax

from codelet.onnx.node import OnnxNode, whole_dtype
from codelet.onnx.operator_table import operator


def dtype_of(node: OnnxNode, number: int) -> np.dtype:
    """The dtype that a number of ONNX's stands for.

    Raises:
        ModelError: it is none of arrays of numbers.
    """
    if number == onnx.TensorProto.STRING or number not in onnx.TensorProto.DataType.values():
        raise node.error("a type that no array has", given=number, expected="a type of numbers")
    return np.dtype(onnx.helper.tensor_dtype_to_np_dtype(number))


def _to_power(x: Any, dtype: np.dtype, how: str) -> Any:
    """The power of two that an exponent alone holds, above, below or nearest; the least for zero."""
    mantissa, exponent = jnp.frexp(jnp.abs(jnp.asarray(x).astype(np.float32)))
    up = {"up": mantissa > 0.5, "down": jnp.zeros(exponent.shape, bool), "nearest": mantissa >= 0.75}[how]
    bits = jnp.where(x == 0, 0, jnp.clip(exponent - 1 + up + 127, 0, 254))
    return lax.bitcast_convert_type(jnp.where(jnp.isnan(x), 255, bits).astype(np.uint8), dtype)


def converted(x: Any, dtype: np.dtype, saturates: bool = True, how: str = "up") -> Any:
    """An array in another dtype, as ONNX converts.

    Args:
        x: the array.
        dtype: the other.
        saturates: whether values that are too large become the greatest, of floats of eight bits.
        how: "up", "down" or "nearest", where a dtype holds exponents alone.
    """
    dtype = jax.dtypes.canonicalize_dtype(dtype)
    if dtype.name == "float8_e8m0fnu":
        return _to_power(x, dtype, how)
    if dtype.name.startswith("float8") or dtype.name.startswith("float4"):
        return _to_small(x, dtype, saturates)
    if jnp.issubdtype(x.dtype, jnp.floating) and jnp.issubdtype(dtype, jnp.integer):
        if jnp.iinfo(dtype).bits < 8:
            return jnp.round(x).astype(np.int32).astype(dtype)
        if jnp.iinfo(dtype).bits < 32 or dtype.kind == "u":
            return x.astype(whole_dtype()).astype(dtype)  # bits are dropped, where JAX would stop at the greatest
    return jnp.asarray(x).astype(dtype)


def _to_small(x: Any, dtype: np.dtype, saturates: bool) -> Any:
    """In a float of eight bits or four: values that are too large become the greatest if it saturates, or else
    infinite.
    """
    x = jnp.asarray(x)
    greatest = jnp.finfo(dtype).max
    wide = x if x.dtype in (np.dtype(np.float32), np.dtype(np.float64)) else x.astype(np.float32)
    if saturates:
        bounded = jnp.clip(wide, -np.asarray(greatest, wide.dtype), np.asarray(greatest, wide.dtype))
        return jnp.where(jnp.isnan(wide), wide, bounded).astype(dtype)
    return wide.astype(dtype)


@operator("Cast")
def cast(node: OnnxNode, x: Any) -> Any:
    """In the dtype that an attribute names."""
    to = node.attribute("to")
    number = getattr(onnx.TensorProto, to) if isinstance(to, str) else to
    dtype, saturates = dtype_of(node, number), bool(node.attribute("saturate", 1))
    return converted(x, dtype, saturates, node.attribute("round_mode", "up"))


@operator("CastLike", by_type=(1,))
def cast_like(node: OnnxNode, x: Any, like: Any) -> Any:
    """In the dtype of another."""
    saturates = bool(node.attribute("saturate", 1))
    return converted(x, like.dtype, saturates, node.attribute("round_mode", "up"))


@operator("BitCast")
def bit_cast(node: OnnxNode, x: Any) -> Any:
    """The bits of an array as those of another dtype."""
    dtype = dtype_of(node, node.attribute("to"))
    if dtype.kind == "b":
        return jnp.asarray(x) != 0
    if x.dtype == bool:
        return jnp.asarray(x).astype(np.uint8).view(dtype)
    return lax.bitcast_convert_type(x, dtype)
