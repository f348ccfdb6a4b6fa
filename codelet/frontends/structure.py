"""Structure: keys that distinguish jaxprs, so that equal ones are one function.

JAX gives the same object for a jitted function that is called twice with equal types, but not always: its derivatives,
and functions with derivative rules, are traced anew.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import jax
import numpy as np
from jax.extend import core as jax_core

from codelet.tracing.statics import static_key

LARGEST = 1 << 12
"""Bytes of constants that are compared by what they hold; larger ones are compared as objects."""


def shape_of(atom: Any) -> tuple[int, ...]:
    """The shape of a variable or a literal."""
    return tuple(atom.aval.shape)


def dtype_of(atom: Any) -> Any:
    """Its dtype."""
    return atom.aval.dtype


def _type(aval: Any) -> Hashable:
    return aval.shape, aval.dtype, bool(getattr(aval, "weak_type", False))


def constant_key(value: Any) -> Hashable:
    """The key of a constant: its content where that is little."""
    is_array = isinstance(value, (np.ndarray, np.generic, jax.Array)) and isinstance(value.dtype, np.dtype)
    if is_array and value.nbytes <= LARGEST:
        held = np.asarray(value)
        return str(held.dtype), held.shape, held.tobytes()
    if isinstance(value, (bool, int, float, complex)):
        return static_key(value)
    return "object", id(value)


def parameter_key(value: Any) -> Hashable:
    """The key of a parameter's value."""
    if isinstance(value, jax_core.ClosedJaxpr):
        return jaxpr_key(value)
    if isinstance(value, jax_core.Jaxpr):
        return _open_key(value)
    if isinstance(value, (tuple, list)):
        return tuple(parameter_key(part) for part in value)
    try:
        return static_key(value)
    except TypeError:
        return "object", id(value)


def jaxpr_key(closed: jax_core.ClosedJaxpr) -> Hashable:
    """The key of a jaxpr: equal keys, equal meaning.

    A key is valid for as long as the jaxpr is kept, since large constants and functions in it are compared by identity.
    """
    return _open_key(closed.jaxpr), tuple(map(constant_key, closed.consts))


def _open_key(jaxpr: jax_core.Jaxpr) -> Hashable:
    """The key of a jaxpr that is given its constants by their holder."""
    numbers: dict[Any, int] = {}

    def atom(own: Any) -> Hashable:
        if isinstance(own, jax_core.Literal):
            return "literal", _type(own.aval), constant_key(own.val)
        return numbers[own]

    def define(var: Any) -> Hashable:
        numbers[var] = len(numbers)
        return _type(var.aval)

    constants, inputs = tuple(map(define, jaxpr.constvars)), tuple(map(define, jaxpr.invars))
    equations = tuple(
        (
            eqn.primitive.name,
            tuple(atom(own) for own in eqn.invars),
            tuple((name, parameter_key(eqn.params[name])) for name in sorted(eqn.params)),
            tuple(define(var) for var in eqn.outvars),
        )
        for eqn in jaxpr.eqns
    )
    return constants, inputs, equations, tuple(map(atom, jaxpr.outvars))
