"""Operators that compute element by element, of operands that are broadcast to one another."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator

# --- of one operand -----------------------------------------------------------------------------------------


def _entered(name: str, function: Callable[[Any], Any]) -> None:
    operator(name)(lambda node, x: function(x))


def _round(x: Any) -> Any:
    return jnp.round(x)  # to the nearest even, as ONNX has it


_OF_ONE = {
    "Abs": jnp.abs,
    "Acos": jnp.arccos,
    "Acosh": jnp.arccosh,
    "Asin": jnp.arcsin,
    "Asinh": jnp.arcsinh,
    "Atan": jnp.arctan,
    "Atanh": jnp.arctanh,
    "BitwiseNot": jnp.bitwise_not,
    "Ceil": jnp.ceil,
    "Cos": jnp.cos,
    "Cosh": jnp.cosh,
    "Erf": jax.scipy.special.erf,
    "Exp": jnp.exp,
    "Floor": jnp.floor,
    "Identity": lambda x: x,
    "IsNaN": jnp.isnan,
    "Log": jnp.log,
    "Mish": jax.nn.mish,
    "Neg": jnp.negative,
    "Not": jnp.logical_not,
    "Reciprocal": lambda x: (1 / x).astype(x.dtype),
    "Relu": lambda x: jnp.maximum(x, jnp.zeros((), x.dtype)),
    "Round": _round,
    "Sigmoid": jax.nn.sigmoid,
    "Sign": jnp.sign,
    "Sin": jnp.sin,
    "Sinh": jnp.sinh,
    "Softplus": jax.nn.softplus,
    "Softsign": jax.nn.soft_sign,
    "Sqrt": jnp.sqrt,
    "Tan": jnp.tan,
    "Tanh": jnp.tanh,
}
for _name, _function in _OF_ONE.items():
    _entered(_name, _function)


@operator("LeakyRelu")
def leaky_relu(node: OnnxNode, x: Any) -> Any:
    """`x`, or a share of it where it is negative."""
    return jnp.where(x < 0, x * np.asarray(node.attribute("alpha", 0.01), x.dtype), x)


@operator("Elu")
def elu(node: OnnxNode, x: Any) -> Any:
    """`x`, or `alpha * (exp(x) - 1)` where it is negative."""
    return _below_zero(x, node.attribute("alpha", 1.0))


def _below_zero(x: Any, alpha: float) -> Any:
    low = jnp.minimum(x, 0)
    return jnp.where(x > 0, x, np.asarray(alpha, x.dtype) * jnp.expm1(low))


@operator("Celu")
def celu(node: OnnxNode, x: Any) -> Any:
    """`max(0, x) + min(0, alpha * (exp(x / alpha) - 1))`."""
    alpha = np.asarray(node.attribute("alpha", 1.0), x.dtype)
    return jnp.maximum(x, 0) + jnp.minimum(0, alpha * jnp.expm1(jnp.minimum(x, 0) / alpha))


@operator("Selu")
def selu(node: OnnxNode, x: Any) -> Any:
    """A scaled `Elu`."""
    alpha = node.attribute("alpha", 1.67326319217681884765625)
    gamma = node.attribute("gamma", 1.05070102214813232421875)
    return np.asarray(gamma, x.dtype) * _below_zero(x, alpha)


@operator("ThresholdedRelu")
def thresholded_relu(node: OnnxNode, x: Any) -> Any:
    """`x` where it is above a threshold, else 0."""
    return jnp.where(x > np.asarray(node.attribute("alpha", 1.0), x.dtype), x, 0)


@operator("HardSigmoid")
def hard_sigmoid(node: OnnxNode, x: Any) -> Any:
    """`alpha * x + beta` between 0 and 1."""
    alpha, beta = node.attribute("alpha", 0.2), node.attribute("beta", 0.5)
    return jnp.clip(np.asarray(alpha, x.dtype) * x + np.asarray(beta, x.dtype), 0, 1)


@operator("HardSwish")
def hard_swish(node: OnnxNode, x: Any) -> Any:
    """`x` times the hard sigmoid of slope 1/6."""
    return x * jnp.clip(x / 6 + np.asarray(0.5, x.dtype), 0, 1)


@operator("Swish")
def swish(node: OnnxNode, x: Any) -> Any:
    """`x * sigmoid(alpha * x)`."""
    return x * jax.nn.sigmoid(np.asarray(node.attribute("alpha", 1.0), x.dtype) * x)


@operator("Gelu")
def gelu(node: OnnxNode, x: Any) -> Any:
    """`x` times the normal distribution function of it, or its approximation by tanh."""
    return jax.nn.gelu(x, approximate=node.attribute("approximate", "none") == "tanh")


@operator("Shrink")
def shrink(node: OnnxNode, x: Any) -> Any:
    """Nearer to zero by a bias, and 0 within a threshold of it."""
    bias, threshold = node.attribute("bias", 0.0), node.attribute("lambd", 0.5)
    return jnp.where(x < -threshold, x + bias, jnp.where(x > threshold, x - bias, 0)).astype(x.dtype)


@operator("IsInf")
def is_inf(node: OnnxNode, x: Any) -> Any:
    """Whether an element is infinite, of the signs that are asked for."""
    result = jnp.zeros(x.shape, bool)
    if node.attribute("detect_positive", 1):
        result = result | jnp.isposinf(x)
    if node.attribute("detect_negative", 1):
        result = result | jnp.isneginf(x)
    return result


@operator("Clip")
def clip_of_old(node: OnnxNode, x: Any) -> Any:
    """Between two attributes."""
    low, high = node.attribute("min"), node.attribute("max")
    return _clipped(
        x, None if low is None else np.asarray(low, x.dtype), None if high is None else np.asarray(high, x.dtype)
    )


@operator("Clip", since=11)
def clip(node: OnnxNode, x: Any, low: Any = None, high: Any = None) -> Any:
    """Between two operands."""
    return _clipped(x, low, high)


def _clipped(x: Any, low: Any, high: Any) -> Any:
    x = x if low is None else jnp.maximum(x, low)
    return x if high is None else jnp.minimum(x, high)


# --- of several ---------------------------------------------------------------------------------------------


def _aligned(node: OnnxNode, a: Any, b: Any) -> tuple[Any, Any]:
    """Operands of opsets before 7, where the second is broadcast along an axis only if an attribute says so."""
    axis = node.attribute("axis")
    if node.version >= 7 or axis is None or not node.attribute("broadcast", 0):
        return a, b
    axis = node.axis(axis, a)
    return a, jnp.reshape(b, (*jnp.shape(b), *(1,) * (jnp.ndim(a) - axis - jnp.ndim(b))))


def _of_two(name: str, function: Callable[[Any, Any], Any]) -> None:
    operator(name)(lambda node, a, b: function(*_aligned(node, a, b)))


def _divided(a: Any, b: Any) -> Any:
    if jnp.issubdtype(a.dtype, jnp.integer):
        zero = b == 0  # which no processor agrees on; towards zero otherwise
        return lax.div(*jnp.broadcast_arrays(a, jnp.where(zero, jnp.ones((), b.dtype), b)))
    return a / b


def _power(a: Any, b: Any) -> Any:
    if jnp.issubdtype(a.dtype, jnp.integer):
        if isinstance(b, np.ndarray) and b.ndim == 0 and jnp.issubdtype(b.dtype, jnp.integer) and b >= 0:
            return lax.integer_pow(a, int(b))
        wide = jax.dtypes.canonicalize_dtype(np.float64)
        if jnp.issubdtype(b.dtype, jnp.integer):
            return jnp.power(a, b.astype(a.dtype))
        return jnp.power(a.astype(wide), b.astype(wide)).astype(a.dtype)
    if isinstance(b, np.ndarray) and b.ndim == 0 and float(b).is_integer() and abs(float(b)) < 64:
        return lax.integer_pow(a, int(b))
    return jnp.power(a, b.astype(a.dtype))


_TWO = {
    "Add": jnp.add,
    "And": jnp.logical_and,
    "BitwiseAnd": jnp.bitwise_and,
    "BitwiseOr": jnp.bitwise_or,
    "BitwiseXor": jnp.bitwise_xor,
    "Div": _divided,
    "Equal": jnp.equal,
    "Greater": jnp.greater,
    "GreaterOrEqual": jnp.greater_equal,
    "Less": jnp.less,
    "LessOrEqual": jnp.less_equal,
    "Mul": jnp.multiply,
    "Or": jnp.logical_or,
    "Sub": jnp.subtract,
    "Xor": jnp.logical_xor,
}
for _name, _of in _TWO.items():
    _of_two(_name, _of)


@operator("Pow", sees_constants=True)
def power(node: OnnxNode, a: Any, b: Any) -> Any:
    """A power; a constant exponent that is an integer is so many products."""
    return _power(*_aligned(node, a, b))


@operator("Mod")
def mod(node: OnnxNode, a: Any, b: Any) -> Any:
    """The remainder, of the sign of the divisor; of the dividend's with `fmod`."""
    return (jnp.fmod if node.attribute("fmod", 0) else jnp.remainder)(a, b)


@operator("BitShift")
def bit_shift(node: OnnxNode, a: Any, b: Any) -> Any:
    """Bits moved to the left or to the right."""
    a, b = jnp.broadcast_arrays(a, b)
    if node.attribute("direction") == "LEFT":
        return lax.shift_left(a, b)
    return (lax.shift_right_arithmetic if jnp.issubdtype(a.dtype, jnp.signedinteger) else lax.shift_right_logical)(a, b)


@operator("PRelu")
def prelu(node: OnnxNode, x: Any, slope: Any) -> Any:
    """`x`, or a slope times it where it is negative."""
    if node.version < 7 and slope.ndim == 1 and x.ndim > 1 and slope.size > 1:
        slope = jnp.reshape(slope, (-1, *(1,) * (x.ndim - 2)))
    return jnp.where(x < 0, x * slope, x)


@operator("Where")
def where(node: OnnxNode, condition: Any, a: Any, b: Any) -> Any:
    """One of two values."""
    return jnp.where(condition, a, b)


@operator("Max")
def greatest(node: OnnxNode, *operands: Any) -> Any:
    """The greatest of several."""
    return functools.reduce(jnp.maximum, operands)


@operator("Min")
def least(node: OnnxNode, *operands: Any) -> Any:
    """The least of several."""
    return functools.reduce(jnp.minimum, operands)


@operator("Sum")
def sum_of(node: OnnxNode, *operands: Any) -> Any:
    """The sum of several."""
    return functools.reduce(jnp.add, operands)


@operator("Mean")
def mean_of(node: OnnxNode, *operands: Any) -> Any:
    """The mean of several."""
    return functools.reduce(jnp.add, operands) / np.asarray(len(operands), operands[0].dtype)


@operator("Binarizer", domain="ai.onnx.ml")
def binarizer(node: OnnxNode, x: Any) -> Any:
    """1 where an element is above a threshold, else 0."""
    return (x > np.asarray(node.attribute("threshold", 0.0), x.dtype)).astype(x.dtype)
