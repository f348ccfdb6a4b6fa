"""The primitives that files may name: a numbered set, each with the parameters that are written.

JAX adds and renames parameters from release to release; the set does not follow. A parameter of the set is always
written. An optional one is written where it has another value than its default, which keeps the meaning that the
primitive had before JAX had the parameter. On the way back a primitive of the JAX at hand is given the optional
parameters that it asks for. They are read off an equation that JAX itself makes (a probe).

Primitives with jaxprs, functions or types of JAX are written by `structured.py` in forms of the library's.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core
from jax.extend.core import primitives as jax_primitives

from codelet.jaxprs.primitives import says_nothing

SET_NUMBER = 1
"""The number of the set: it grows when a primitive is added that older releases cannot read."""


@dataclass(frozen=True)
class PrimitiveForm:
    """A primitive of the set.

    Attributes:
        parameters: those that are always written.
        optional: those that are written unless they have these values; None stands for a parameter that says nothing.
        probe: makes an equation of it, where there are optional parameters.
    """

    parameters: tuple[str, ...] = ()
    optional: Mapping[str, Any] = field(default_factory=dict)
    probe: Callable[[], Any] | None = None


def _plain(names: str, *parameters: str) -> dict[str, PrimitiveForm]:
    return dict.fromkeys(names.split(), PrimitiveForm(parameters))


def _of_functions(names: str, **optional: Any) -> dict[str, PrimitiveForm]:
    """Primitives that the functions of the same names in `jax.lax` make of one number."""
    probe = lambda name: getattr(lax, name)(jnp.ones((), jnp.float32))  # noqa: E731
    return {name: PrimitiveForm((), optional, functools.partial(probe, name)) for name in names.split()}


_ONES = lambda *shape: jnp.ones(shape, jnp.float32)  # noqa: E731
_WINDOW = ("window_dimensions", "window_strides", "padding", "base_dilation", "window_dilation")
_CONV = ("window_strides", "padding", "lhs_dilation", "rhs_dilation", "dimension_numbers", "feature_group_count")
_SCATTER = ("dimension_numbers", "indices_are_sorted", "mode", "unique_indices", "update_consts", "update_jaxpr")
_GATHER = ("dimension_numbers", "slice_sizes", "indices_are_sorted", "mode", "unique_indices", "fill_value")


def _pooling(name: str, start: float, combine: Any) -> dict[str, PrimitiveForm]:
    probe = lambda: lax.reduce_window(_ONES(2), start, combine, (1,), (1,), "VALID")  # noqa: E731
    return {name: PrimitiveForm(_WINDOW, {"out_sharding": None}, probe)}


FORMS: Mapping[str, PrimitiveForm] = {
    **_plain("abs acos acosh add add_any and asin asinh atan atan2 atanh ceil clamp clz complex copy cosh digamma div"),
    **_plain("eq erf_inv floor ge gt imag is_finite le lgamma lt max min mulhi ne neg nextafter not or"),
    **_plain("population_count pow real rem select_n shift_left shift_right_arithmetic shift_right_logical sign sinh"),
    **_plain("square stop_gradient sub xor bessel_i0e bessel_i1e igamma igamma_grad_a igammac polygamma zeta"),
    **_plain("regularized_incomplete_beta eq_to le_to lt_to threefry2x32 random_fold_in optimization_barrier lu"),
    **_plain("one_minus_square tridiagonal_solve dynamic_update_slice"),
    **_of_functions("cbrt cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt tan tanh erf erfc log2", accuracy=None),
    "mul": PrimitiveForm((), {"out_dtype": None}, lambda: lax.mul(_ONES(), _ONES())),
    **_plain("conj", "input_dtype"),
    **_plain("integer_pow", "y"),
    **_plain("reduce_precision", "exponent_bits", "mantissa_bits"),
    **_plain("round", "rounding_method"),
    **_plain("bitcast_convert_type", "new_dtype"),
    "convert_element_type": PrimitiveForm(
        ("new_dtype", "weak_type"),
        {"sharding": None},
        lambda: lax.convert_element_type(lax.iota(jnp.float32, 1), jnp.int32),
    ),
    "iota": PrimitiveForm(("dtype", "shape", "dimension"), {"sharding": None}, lambda: lax.iota(jnp.int32, 2)),
    **_plain("transpose", "permutation"),
    "reshape": PrimitiveForm(
        ("new_sizes",), {"dimensions": None, "sharding": None}, lambda: lax.reshape(_ONES(2, 1), (1, 2))
    ),
    **_plain("squeeze rev", "dimensions"),
    **_plain("concatenate", "dimension"),
    "broadcast_in_dim": PrimitiveForm(
        ("shape", "broadcast_dimensions"), {"sharding": None}, lambda: lax.broadcast_in_dim(_ONES(), (2,), ())
    ),
    **_plain("slice", "start_indices", "limit_indices", "strides"),
    **_plain("split", "axis", "sizes"),
    **_plain("stack unstack", "axis"),
    **_plain("pad", "padding_config"),
    **_plain("tile", "reps"),
    **_plain("dynamic_slice", "slice_sizes"),
    **_plain("gather", *_GATHER),
    **_plain("scatter scatter-add scatter-sub scatter-mul scatter-min scatter-max", *_SCATTER),
    "reduce_sum": PrimitiveForm(("axes",), {"out_sharding": None}, lambda: jnp.sum(_ONES(2))),
    "reduce_max": PrimitiveForm(("axes",), {"out_sharding": None}, lambda: jnp.max(_ONES(2))),
    "reduce_min": PrimitiveForm(("axes",), {"out_sharding": None}, lambda: jnp.min(_ONES(2))),
    **_plain("reduce_prod reduce_and reduce_or reduce_xor", "axes"),
    **_plain("argmax argmin", "axes", "index_dtype"),
    **_plain("cumsum cumprod cummax cummin cumlogsumexp", "axis", "reverse"),
    **_plain("sort", "dimension", "is_stable", "num_keys"),
    "top_k": PrimitiveForm(("k", "axis"), {"is_stable": True}, lambda: lax.top_k(_ONES(2), 1)),
    **_pooling("reduce_window_max", -float("inf"), lax.max),
    **_pooling("reduce_window_min", float("inf"), lax.min),
    **_pooling("reduce_window_sum", 0.0, lax.add),
    **_plain("select_and_gather_add", "select_prim", *_WINDOW),
    **_plain("select_and_scatter_add", "select_prim", "window_dimensions", "window_strides", "padding"),
    "dot_general": PrimitiveForm(
        ("dimension_numbers", "precision", "preferred_element_type"),
        {"out_sharding": None},
        lambda: lax.dot_general(_ONES(1, 1), _ONES(1, 1), (((1,), (0,)), ((), ()))),
    ),
    "conv_general_dilated": PrimitiveForm(
        (*_CONV, "batch_group_count", "precision", "preferred_element_type"),
        {"out_sharding": None},
        lambda: lax.conv_general_dilated(_ONES(1, 1, 1), _ONES(1, 1, 1), (1,), "VALID"),
    ),
    **_plain("fft", "fft_type", "fft_lengths"),
    "cholesky": PrimitiveForm((), {"symmetrize_input": None}, lambda: lax.linalg.cholesky(_ONES(1, 1))),
    "eigh": PrimitiveForm(
        ("lower", "sort_eigenvalues"),
        {"algorithm": None, "subset_by_index": None},
        lambda: lax.linalg.eigh(_ONES(1, 1)),
    ),
    "eig": PrimitiveForm(
        ("compute_left_eigenvectors", "compute_right_eigenvectors"),
        {"implementation": None, "enable_eigvec_derivs": False},
        lambda: lax.linalg.eig(_ONES(1, 1)),
    ),
    "qr": PrimitiveForm(("full_matrices",), {"pivoting": False, "use_magma": None}, lambda: lax.linalg.qr(_ONES(1, 1))),
    "svd": PrimitiveForm(
        ("compute_uv", "full_matrices"),
        {"algorithm": None, "subset_by_index": None},
        lambda: lax.linalg.svd(_ONES(1, 1)),
    ),
    **_plain("triangular_solve", "conjugate_a", "left_side", "lower", "transpose_a", "unit_diagonal"),
    **_plain("householder_product hessenberg"),
    **_plain("random_seed", "impl"),
    **_plain("random_bits", "bit_width", "shape"),
    **_plain("random_split", "shape"),
    **_plain("random_gamma", "log_space"),
    "rng_bit_generator": PrimitiveForm(
        ("shape", "dtype", "algorithm"),
        {"out_sharding": None},
        lambda: lax.rng_bit_generator(jnp.zeros(4, jnp.uint32), (1,)),
    ),
    **_plain("rng_uniform", "shape"),
}
"""The primitives of the set, but for those of `structured.py`."""


@functools.cache
def public_primitives() -> dict[str, jax_core.Primitive]:
    """JAX's primitives that it makes public, by name."""
    public = [*vars(jax.lax).values(), *vars(jax_primitives).values()]
    return {value.name: value for value in public if isinstance(value, jax_core.Primitive)}


@functools.cache
def wanted(name: str) -> frozenset[str]:
    """The optional parameters of a primitive that the JAX at hand asks for."""
    form = FORMS[name]
    if form.probe is None or name not in public_primitives():
        return frozenset()
    with jax.enable_x64(False):
        equations = jax.make_jaxpr(form.probe)().eqns
    (params,) = [eqn.params for eqn in equations if eqn.primitive.name == name][-1:]
    return frozenset(form.optional) & frozenset(params)


def is_default(default: Any, value: Any) -> bool:
    """Whether an optional parameter has its default: None stands for whatever says nothing."""
    return says_nothing(value) if default is None else value == default
