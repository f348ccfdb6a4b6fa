"""What the rules of the lowering understand of an equation: its primitive, and every one of its parameters.

A rule that looks through an equation, or takes it apart, asks here first, and does not apply where a parameter is
not in the table or has another value than it says. JAX adds parameters from time to time (`dimensions` of a
reshape, which `order="F"` sets; `out_sharding`; `out_dtype` of a product), each with a default that keeps the
old meaning, which is None: only that is understood of a parameter that the table does not name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jax.extend import core as jax_core


def _any(_: Any) -> bool:
    return True


def _nothing(value: Any) -> bool:
    return value is None


def _is_empty(value: Any) -> bool:
    return not value


def _is_unspecified(value: Any) -> bool:
    """Whether no sharding is asked for, of any operand."""
    return all(type(one).__name__ == "UnspecifiedValue" for one in value)


def _has_none(value: Any) -> bool:
    return all(one is None for one in value)


_REDUCTION = {"axes": _any}

_CALL = {
    "jaxpr": _any,
    "name": _any,
    "inline": _any,
    "keep_unused": _any,
    "donated_invars": _any,  # XLA donates what is given to the whole, never within
    "ctx_mesh": _any,
    "in_shardings": _is_unspecified,
    "out_shardings": _is_unspecified,
    "in_layouts": _has_none,
    "out_layouts": _has_none,
    "compiler_options_kvs": _is_empty,
}

UNDERSTOOD: Mapping[str, Mapping[str, Callable[[Any], bool]]] = {
    "jit": _CALL,
    "pjit": _CALL,
    "transpose": {"permutation": _any},
    "reshape": {"new_sizes": _any, "dimensions": _any},
    "squeeze": {"dimensions": _any},
    "broadcast_in_dim": {"shape": _any, "broadcast_dimensions": _any},
    "concatenate": {"dimension": _any},
    "slice": {"start_indices": _any, "limit_indices": _any, "strides": _any},
    "rev": {"dimensions": _any},
    "optimization_barrier": {},
    "mul": {},
    "dot_general": {"dimension_numbers": _any, "precision": _any, "preferred_element_type": _any},
    "dynamic_update_slice": {},
    "reduce_sum": _REDUCTION,
    "reduce_prod": _REDUCTION,
    "reduce_max": _REDUCTION,
    "reduce_min": _REDUCTION,
    "reduce_and": _REDUCTION,
    "reduce_or": _REDUCTION,
}
"""For every primitive that a rule looks at, the parameters that all rules on it take account of, and the values of
these that they do."""


def has_only(eqn: jax_core.JaxprEqn, known: Mapping[str, Callable[[Any], bool]]) -> bool:
    """Whether every parameter of an equation is known, with its value, or is None."""
    return all(known.get(name, _nothing)(value) for name, value in eqn.params.items())


def is_understood(eqn: jax_core.JaxprEqn, *primitives: str) -> bool:
    """Whether an equation is one of these primitives, and none of its parameters means what the rules do not know.

    >>> import jax, jax.numpy as jnp
    >>> from jax import lax
    >>> (eqn,) = jax.make_jaxpr(lambda x: lax.reduce_sum(x, (0,)))(jnp.ones(3)).eqns
    >>> is_understood(eqn, "reduce_sum"), is_understood(eqn, "reduce_max")
    (True, False)
    """
    return eqn.primitive.name in primitives and has_only(eqn, UNDERSTOOD[eqn.primitive.name])
