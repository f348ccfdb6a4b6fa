"""Primitives: the facts that rules on jaxprs use, by kind, and every parameter that they take account of.

A rule that traverses an equation, or takes it apart, asks here first. It does not apply where a parameter is not in the
table or has another value than it says. JAX adds parameters from time to time (`dimensions` of a reshape, which
`order="F"` sets; `out_sharding`; `out_dtype` of a product), each with a default that keeps the old meaning, which is
None or says nothing. Only that is understood of a parameter that the table does not name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from jax import lax
from jax.extend import core as jax_core
from jax.sharding import NamedSharding


def _any(_: Any) -> bool:
    return True


def says_nothing(value: Any) -> bool:
    """Whether a parameter of an equation says nothing: it is None, or a sharding over a mesh of no devices.

    JAX writes such a sharding where an array is converted as another one is sharded, as in the gradient of a mean.
    """
    return value is None or (isinstance(value, NamedSharding) and value.mesh.empty)


def _is_empty(value: Any) -> bool:
    return not value


def _is_unspecified(value: Any) -> bool:
    """Whether no sharding is asked for, of any operand."""
    return all(type(one).__name__ == "UnspecifiedValue" for one in value)


def _has_none(value: Any) -> bool:
    return all(one is None for one in value)


def _is_one(value: Any) -> bool:
    """Whether a number is one, or all of several are."""
    return value == 1 or (isinstance(value, tuple) and all(one == 1 for one in value))


def _has_no_padding(value: Any) -> bool:
    return not any(width for widths in value for width in widths)


Known = Mapping[str, Callable[[Any], bool]]
"""Parameters of a primitive, and which values of them are understood."""


def _named(names: str, *parameters: str) -> dict[str, Known]:
    """Primitives with parameters of which every value is understood."""
    return dict.fromkeys(names.split(), dict.fromkeys(parameters, _any))


_BY_ELEMENT = {
    **_named("abs acos acosh add add_any and asin asinh atan atan2 atanh ceil clamp clz complex copy cosh"),
    **_named("digamma div eq erf erf_inv erfc floor ge gt imag is_finite le lgamma lt max min mul ne neg nextafter"),
    **_named("not or population_count pow real rem select_n shift_left shift_right_arithmetic shift_right_logical"),
    **_named("one_minus_square sign sinh square stop_gradient sub xor"),
    **_named("bessel_i0e bessel_i1e igamma igamma_grad_a igammac mulhi polygamma regularized_incomplete_beta zeta"),
    **_named("cbrt cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt tan tanh", "accuracy"),
    **_named("conj", "input_dtype"),
    **_named("convert_element_type", "new_dtype", "weak_type"),
    **_named("integer_pow", "y"),
    **_named("reduce_precision", "exponent_bits", "mantissa_bits"),
    **_named("round", "rounding_method"),
}

COMPARISONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
"""What compares two arrays, as NumPy does it."""

REDUCTIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "reduce_sum": lax.add,
    "reduce_prod": lax.mul,
    "reduce_max": lax.max,
    "reduce_min": lax.min,
    "reduce_and": lax.bitwise_and,
    "reduce_or": lax.bitwise_or,
    "reduce_xor": lax.bitwise_xor,
}
"""Reductions along `axes`, and how each combines two elements."""

_MOVING = {
    **_named("transpose", "permutation"),
    **_named("reshape", "new_sizes", "dimensions"),
    **_named("squeeze rev", "dimensions"),
    **_named("concatenate", "dimension"),
    **_named("broadcast_in_dim", "shape", "broadcast_dimensions"),
    **_named("slice", "start_indices", "limit_indices", "strides"),
    **_named("split", "axis", "sizes"),
    **_named("stack", "axis"),
    **_named("pad", "padding_config"),
    **_named("optimization_barrier"),
}

_CALL = {
    **dict.fromkeys(("jaxpr", "name", "inline", "keep_unused", "ctx_mesh"), _any),
    "donated_invars": _any,  # XLA donates what is given to the whole, never within
    "in_shardings": _is_unspecified,
    "out_shardings": _is_unspecified,
    "in_layouts": _has_none,
    "out_layouts": _has_none,
    "compiler_options_kvs": _is_empty,
}

CUSTOM = {
    **_named("custom_jvp_call", "call_jaxpr", "jvp_jaxpr_fun", "num_consts", "symbolic_zeros"),
    **_named("custom_vjp_call", "call_jaxpr", "fwd_jaxpr_thunk", "bwd", "num_consts", "out_trees", "symbolic_zeros"),
}
"""Functions with derivative rules of their own."""

SCATTERS = ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
"""Updates at places that are data."""

POOLINGS = ("reduce_window_max", "reduce_window_min", "reduce_window_sum")
"""Reductions of windows, each by the operation that it is named after."""

_POOLING: Known = {
    **dict.fromkeys(("window_dimensions", "window_strides", "window_dilation"), _any),
    "padding": _has_no_padding,
    "base_dilation": _is_one,
}

UNDERSTOOD: Mapping[str, Known] = {
    **_BY_ELEMENT,
    **_named(" ".join(REDUCTIONS), "axes"),
    **_MOVING,
    **CUSTOM,
    "jit": _CALL,
    "pjit": _CALL,
    **_named("dot_general", "dimension_numbers", "precision", "preferred_element_type"),
    "conv_general_dilated": {
        **dict.fromkeys(("window_strides", "rhs_dilation", "dimension_numbers", "precision"), _any),
        "preferred_element_type": _any,
        "padding": _has_no_padding,
        "lhs_dilation": _is_one,
        "feature_group_count": _is_one,
        "batch_group_count": _is_one,
    },
    **dict.fromkeys(POOLINGS, _POOLING),
    **_named("dynamic_slice", "slice_sizes"),
    **_named("dynamic_update_slice"),
    **_named(
        "gather", "dimension_numbers", "slice_sizes", "unique_indices", "indices_are_sorted", "mode", "fill_value"
    ),
    **_named(
        " ".join(SCATTERS),
        *("dimension_numbers", "unique_indices", "indices_are_sorted", "mode", "update_consts", "update_jaxpr"),
    ),
    **_named("cumsum cumprod cummax cummin cumlogsumexp", "axis", "reverse"),
    **_named("sort", "dimension", "is_stable", "num_keys"),
    **_named("top_k", "k", "axis", "is_stable"),
    **_named("argmax argmin", "axes", "index_dtype"),
    **_named("iota", "dimension", "dtype", "shape"),
    **_named("dim_as_value", "dim"),
    **_named("threefry2x32"),
    **_named("bitcast_convert_type", "new_dtype"),
}
"""For every primitive that a rule looks at, the parameters that all rules on it take account of, and the values of
these that they do."""

ELEMENTWISE = frozenset(_BY_ELEMENT)
"""Primitives that make every element of their result from the elements at the same place, or from a scalar."""

MOVING = frozenset(_MOVING)
"""Primitives that only move elements, and leave as many or more of them."""


def is_understood(eqn: jax_core.JaxprEqn, *primitives: str) -> bool:
    """Whether an equation is one of these primitives, and the rules know the meaning of all of its parameters.

    >>> import jax, jax.numpy as jnp
    >>> from jax import lax
    >>> (eqn,) = jax.make_jaxpr(lambda x: lax.reduce_sum(x, (0,)))(jnp.ones(3)).eqns
    >>> is_understood(eqn, "reduce_sum"), is_understood(eqn, "reduce_max")
    (True, False)
    """
    if eqn.primitive.name not in primitives:
        return False
    known = UNDERSTOOD[eqn.primitive.name]
    return all(known.get(name, says_nothing)(value) for name, value in eqn.params.items())
