"""Row rules: what a primitive does to the elements of rows.

For each primitive that can be run on the elements of all rows at once, every parameter that it is known to have:
an equation with another that is not None, which a later release of JAX may have, is of none of these rules. A
parameter that says along which dimensions a primitive works decides whether it treats the elements of a row alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from jax.extend import core as jax_core

from codelet.tracing.lengths import Symbol, is_length
from lowering.jaxprs.equations import CALLS
from lowering.jaxprs.understood import UNDERSTOOD, has_only


class NoRule(Exception):
    """A codelet does to its rows what no segment rule does. Never seen by a user: other ways are tried."""


# --- shapes ---------------------------------------------------------------------------------------------


def shape_of(atom: Any) -> tuple[Any, ...]:
    """The shape of a value of a jaxpr."""
    return atom.aval.shape


def dtype_of(atom: Any) -> Any:
    """The dtype of a value of a jaxpr."""
    return atom.aval.dtype


def ragged_place(shape: Sequence[Any]) -> int | None:
    """The dimension of a shape that is as long as the row."""
    found = [d for d, size in enumerate(shape) if isinstance(size, Symbol)]
    if len(found) > 1 or any(not is_length(shape[d]) for d in found):
        raise NoRule
    return found[0] if found else None


def _places(atoms: Sequence[Any]) -> list[int | None]:
    return [ragged_place(shape_of(atom)) for atom in atoms]


# --- parameters -----------------------------------------------------------------------------------------


def _any(_: Any) -> bool:
    return True


_Known = Mapping[str, Callable[[Any], bool]]


def _named(names: str, *parameters: str) -> dict[str, _Known]:
    return dict.fromkeys(names.split(), dict.fromkeys(parameters, _any))


ELEMENTWISE: dict[str, _Known] = {
    **_named("abs acos acosh add add_any and asin asinh atan atan2 atanh ceil clamp clz copy cosh digamma div eq erf"),
    **_named("erf_inv erfc floor ge gt imag is_finite le lgamma lt max min mul ne neg nextafter not or"),
    **_named("population_count pow real rem select_n shift_left shift_right_arithmetic shift_right_logical sign sinh"),
    **_named("square stop_gradient sub tanh xor"),
    **_named("cbrt cos exp exp2 expm1 log log1p logistic rsqrt sin sqrt tan", "accuracy"),
    **_named("conj", "input_dtype"),
    **_named("convert_element_type", "new_dtype", "weak_type"),
    **_named("integer_pow", "y"),
    **_named("reduce_precision", "exponent_bits", "mantissa_bits"),
    **_named("round", "rounding_method"),
}
"""What treats every element by itself, with its parameters, none of which names a dimension."""

_ALONG = {
    **_named("cumsum cumprod cummax cummin cumlogsumexp", "axis", "reverse"),
    **_named("split", "axis", "sizes"),
    **_named("sort", "dimension", "is_stable", "num_keys"),
    **_named("concatenate", "dimension"),
    **_named("reduce_sum reduce_max reduce_min reduce_prod reduce_and reduce_or reduce_xor", "axes"),
    **_named("argmax argmin", "axes", "index_dtype"),
    **_named("rev", "dimensions"),
}
"""What works along some dimensions, which `axis`, `axes`, `dimension` or `dimensions` names, and its parameters."""

_RESHAPING = {
    **{name: UNDERSTOOD[name] for name in ("transpose", "squeeze", "broadcast_in_dim", "reshape", "dot_general")},
    **_named("stack", "axis"),
    **_named("slice", "start_indices", "limit_indices", "strides"),
    **_named("iota", "dimension", "dtype", "shape"),
    **_named("dim_as_value", "dim"),
}

CUSTOM = {
    **_named("custom_jvp_call", "call_jaxpr", "jvp_jaxpr_fun", "num_consts", "symbolic_zeros"),
    **_named("custom_vjp_call", "call_jaxpr", "fwd_jaxpr_thunk", "bwd", "num_consts", "out_trees", "symbolic_zeros"),
}
"""Functions with derivative rules of their own."""

ROW_RULES: dict[str, _Known] = {**ELEMENTWISE, **_ALONG, **_RESHAPING, **CUSTOM}
"""The parameters of every primitive that there is a rule for; others must be None, as in `understood.py`."""

SIZES = {"broadcast_in_dim": "shape", "reshape": "new_sizes", "slice": "limit_indices", "iota": "shape"}
"""The parameter that holds a shape, which may name the length of the row."""


def check_understood(eqn: jax_core.JaxprEqn) -> None:
    """See that an equation is of a primitive that there is a rule for, and has no parameter unknown to it.

    Raises:
        NoRule: it is not, or has one.
    """
    known = ROW_RULES.get(eqn.primitive.name)
    if known is None or eqn.effects or not has_only(eqn, known):
        raise NoRule


# --- rules ----------------------------------------------------------------------------------------------


def inlined(jaxpr: jax_core.Jaxpr) -> list[jax_core.JaxprEqn]:
    """The equations of a jaxpr and of the functions it calls, in order."""
    found = []
    for eqn in jaxpr.eqns:
        found += inlined(eqn.params["jaxpr"].jaxpr) if eqn.primitive.name in CALLS else [eqn]
    return found


def _dot_is_elementwise(eqn: jax_core.JaxprEqn) -> bool:
    contracted, batch = eqn.params["dimension_numbers"]
    at = _places(eqn.invars)
    if None not in at:
        places = [list(own).index(d) if d in own else None for own, d in zip(batch, at, strict=True)]
        return places[0] is not None and places[0] == places[1]
    return not any(d in own for own, d in zip(contracted, at, strict=True))


def _keeps_rows(eqn: jax_core.JaxprEqn) -> bool:
    """Whether a broadcast, a reshape or a slice keeps every row in a dimension of its own, element by element."""
    params, (at, *_) = eqn.params, _places(eqn.invars)
    to = ragged_place(shape_of(eqn.outvars[0]))
    match eqn.primitive.name:
        case "broadcast_in_dim":
            return at is None or params["broadcast_dimensions"][at] == to
        case "reshape":
            before, after = shape_of(eqn.invars[0]), shape_of(eqn.outvars[0])
            in_order = params["dimensions"] is None and at is not None and to is not None
            return in_order and math.prod(before[:at]) == math.prod(after[:to])
        case _:
            strides = params["strides"]
            whole = at is not None and params["start_indices"][at] == 0 and (strides is None or strides[at] == 1)
            return whole and at == to


def is_elementwise(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation treats the elements of a row alike: each as it would in a row of one element.

    Raises:
        NoRule: one that there is no rule for.
    """
    check_understood(eqn)
    name, params = eqn.primitive.name, eqn.params
    ragged = {d for d in _places(eqn.invars) if d is not None}
    _places(eqn.outvars)
    if name in ELEMENTWISE or name in ("transpose", "squeeze", "stack"):
        return True
    if name in ("broadcast_in_dim", "reshape", "slice"):
        return _keeps_rows(eqn)
    if name in _ALONG:
        (along,) = params.keys() & {"axis", "axes", "dimension", "dimensions"}
        own = params[along]
        return not ragged & set(own if isinstance(own, tuple) else (own,))
    if name == "dot_general":
        return _dot_is_elementwise(eqn)
    if name in CUSTOM:
        return all(is_elementwise(part) for part in inlined(params["call_jaxpr"].jaxpr))
    return False


REDUCTIONS = ("reduce_sum", "reduce_max", "reduce_min", "reduce_or", "reduce_and")
"""What reduces rows."""


def reduces_rows(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation reduces every row: to the sum, or the like, of its elements."""
    name, params = eqn.primitive.name, eqn.params
    if name not in REDUCTIONS and name != "dot_general":
        return False
    at = _places(eqn.invars)
    if name in REDUCTIONS:
        bits = name in ("reduce_or", "reduce_and") and dtype_of(eqn.invars[0]) != np.dtype(bool)
        reduces = at[0] is not None and at[0] in params["axes"] and not bits
    else:
        contracted, _ = params["dimension_numbers"]
        places = [list(own).index(d) if d in own else None for own, d in zip(contracted, at, strict=True)]
        reduces = places[0] is not None and places[0] == places[1]
    if reduces:
        check_understood(eqn)
    return reduces


def _has_size(param: Any) -> bool:
    """Whether a size that is not known stands in a parameter."""
    if isinstance(param, (jax_core.Jaxpr, jax_core.ClosedJaxpr)):
        inner = param.jaxpr if isinstance(param, jax_core.ClosedJaxpr) else param
        atoms = [*inner.invars, *inner.outvars, *(v for e in inner.eqns for v in (*e.invars, *e.outvars))]
        shapes = [size for atom in atoms for size in getattr(atom.aval, "shape", ())]
        return any(map(_has_size, [*shapes, *(p for e in inner.eqns for p in e.params.values())]))
    if isinstance(param, (tuple, list)):
        return any(map(_has_size, param))
    return isinstance(param, Symbol)


def of_one_element(eqn: jax_core.JaxprEqn) -> jax_core.JaxprEqn:
    """An equation where rows have one element.

    Raises:
        NoRule: the length of the row is in a parameter that is no shape.
    """
    params = dict(eqn.params)
    name = SIZES.get(eqn.primitive.name)
    if name is not None:
        params[name] = tuple(1 if is_length(size) else size for size in params[name])
    if any(map(_has_size, params.values())):
        raise NoRule
    return eqn.replace(params=params)
