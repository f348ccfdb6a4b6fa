"""Operations that compute element by element."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.stablehlo.hlo_operation import HloOperation
from codelet.stablehlo.operation_table import computes

_OF_ALL: dict[str, Callable[..., Any]] = {
    "abs": lax.abs,
    "atan2": lax.atan2,
    "cbrt": lax.cbrt,
    "ceil": lax.ceil,
    "complex": lax.complex,
    "cosine": lax.cos,
    "count_leading_zeros": lax.clz,
    "divide": lax.div,
    "exponential": lax.exp,
    "exponential_minus_one": lax.expm1,
    "floor": lax.floor,
    "imag": lambda x: lax.imag(x) if jnp.iscomplexobj(x) else jnp.zeros_like(x),
    "is_finite": lax.is_finite,
    "log": lax.log,
    "log_plus_one": lax.log1p,
    "logistic": lax.logistic,
    "maximum": lax.max,
    "minimum": lax.min,
    "negate": lax.neg,
    "not": lax.bitwise_not,
    "popcnt": lax.population_count,
    "power": lax.pow,
    "real": lambda x: lax.real(x) if jnp.iscomplexobj(x) else x,
    "remainder": lax.rem,
    "rsqrt": lax.rsqrt,
    "shift_left": lax.shift_left,
    "shift_right_arithmetic": lax.shift_right_arithmetic,
    "shift_right_logical": lax.shift_right_logical,
    "sign": lax.sign,
    "sine": lax.sin,
    "sqrt": lax.sqrt,
    "subtract": lax.sub,
    "tan": lax.tan,
    "tanh": lax.tanh,
    "xor": lax.bitwise_xor,
    "and": lax.bitwise_and,
    "or": lax.bitwise_or,
}

_OF_CHLO: dict[str, Callable[..., Any]] = {
    "acos": lax.acos,
    "acosh": lax.acosh,
    "asin": lax.asin,
    "asinh": lax.asinh,
    "atan": lax.atan,
    "atanh": lax.atanh,
    "bessel_i1e": lax.bessel_i1e,
    "conj": lax.conj,
    "cosh": lax.cosh,
    "digamma": lax.digamma,
    "erf": lax.erf,
    "erf_inv": lax.erf_inv,
    "erfc": lax.erfc,
    "is_inf": jnp.isinf,
    "is_neg_inf": jnp.isneginf,
    "is_pos_inf": jnp.isposinf,
    "lgamma": lax.lgamma,
    "next_after": lax.nextafter,
    "polygamma": lax.polygamma,
    "sinh": lax.sinh,
    "square": lax.square,
    "tan": lax.tan,
    "zeta": lax.zeta,
}


def _enter(name: str, function: Callable[..., Any]) -> None:
    computes(name)(lambda operation, *operands: function(*operands))


for _name, _function in _OF_ALL.items():
    _enter(f"stablehlo.{_name}", _function)
for _name, _function in _OF_CHLO.items():
    _enter(f"chlo.{_name}", _function)


@computes("stablehlo.add")
def add(operation: HloOperation, a: Any, b: Any) -> Any:
    """A sum; of booleans, whether one holds."""
    return lax.bitwise_or(a, b) if a.dtype == bool else lax.add(a, b)


@computes("stablehlo.multiply")
def multiply(operation: HloOperation, a: Any, b: Any) -> Any:
    """A product; of booleans, whether both hold."""
    return lax.bitwise_and(a, b) if a.dtype == bool else lax.mul(a, b)


@computes("stablehlo.round_nearest_even")
def round_to_even(operation: HloOperation, x: Any) -> Any:
    """To the nearest, halves to the even one."""
    return lax.round(x, lax.RoundingMethod.TO_NEAREST_EVEN)


@computes("stablehlo.round_nearest_afz")
def round_away(operation: HloOperation, x: Any) -> Any:
    """To the nearest, halves away from zero."""
    return lax.round(x, lax.RoundingMethod.AWAY_FROM_ZERO)


_DIRECTIONS = {"EQ": lax.eq, "NE": lax.ne, "LT": lax.lt, "LE": lax.le, "GT": lax.gt, "GE": lax.ge}


@computes("stablehlo.compare", "chlo.broadcast_compare")
def compare(operation: HloOperation, a: Any, b: Any) -> Any:
    """Whether a relation holds."""
    if operation.word("compare_type") == "TOTALORDER" and jnp.issubdtype(a.dtype, jnp.floating):
        a, b = map(in_total_order, (a, b))
    return _DIRECTIONS[operation.word("comparison_direction")](a, b)


def in_total_order(x: Any) -> Any:
    """Integers in the order that floating-point numbers have when their bits tell all of them apart."""
    bits = lax.bitcast_convert_type(x, np.dtype(f"int{x.dtype.itemsize * 8}"))
    return lax.select(bits < 0, lax.bitwise_xor(bits, jnp.full_like(bits, jnp.iinfo(bits.dtype).max)), bits)


@computes("stablehlo.select")
def select(operation: HloOperation, which: Any, a: Any, b: Any) -> Any:
    """One of two values."""
    return lax.select_n(which, b, a)


@computes("stablehlo.clamp")
def clamp(operation: HloOperation, low: Any, x: Any, high: Any) -> Any:
    """Between two bounds."""
    return lax.clamp(low, x, high)


@computes("stablehlo.convert")
def convert(operation: HloOperation, x: Any) -> Any:
    """In another dtype."""
    dtype = jax.dtypes.canonicalize_dtype(operation.dtype())
    if jnp.iscomplexobj(x) and not jnp.issubdtype(dtype, jnp.complexfloating):
        x = lax.real(x)
    return x != 0 if dtype.kind == "b" and x.dtype != bool else lax.convert_element_type(x, dtype)


@computes("stablehlo.bitcast_convert")
def bitcast_convert(operation: HloOperation, x: Any) -> Any:
    """The bits as those of another dtype."""
    return lax.bitcast_convert_type(x, operation.dtype())


@computes("stablehlo.reduce_precision")
def reduce_precision(operation: HloOperation, x: Any) -> Any:
    """Rounded to fewer bits."""
    return lax.reduce_precision(x, operation.number("exponent_bits"), operation.number("mantissa_bits"))


@computes("stablehlo.map")
def mapped(operation: HloOperation, *operands: Any) -> Any:
    """A region for each element."""
    run = lambda *one: operation.regions[0](*one)[0]  # noqa: E731
    for _ in range(operands[0].ndim):
        run = jax.vmap(run)
    return run(*operands)
