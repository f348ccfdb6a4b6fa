"""Equations of known values that NumPy computes just as JAX does, and at once: to compile them takes longer.

They are moves, functions of integers and booleans, and calls of these. Operations that round are JAX's alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax.extend import core as jax_core

from codelet.field.calls import PLAIN_CALLS
from codelet.field.meanings import MEANINGS, MOVE, Field, dtype_of, shape_of
from codelet.jaxprs.equations import inner_jaxprs
from codelet.jaxprs.primitives import COMPARISONS, is_understood

Array = np.ndarray

_BY_ELEMENT: dict[str, Callable[..., Any]] = {
    **COMPARISONS,
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "neg": np.negative,
    "abs": np.abs,
    "sign": np.sign,
    "square": np.square,
    "max": np.maximum,
    "min": np.minimum,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
}
"""Functions by element of integers, which go round at the ends of their range."""


def _iota(eqn: jax_core.JaxprEqn) -> Array:
    shape, dimension = shape_of(eqn), eqn.params["dimension"]
    apart = [1] * len(shape)
    apart[dimension] = shape[dimension]
    return np.broadcast_to(np.arange(shape[dimension]).astype(dtype_of(eqn)).reshape(apart), shape)


_OTHERS: dict[str, Callable[..., Array]] = {
    "iota": _iota,
    "select_n": lambda eqn, which, *cases: np.where(which, cases[-1], cases[0]),
    "convert_element_type": lambda eqn, x: x.astype(dtype_of(eqn)),
}


def _are_held(atoms: Sequence[Any], kinds: str | None = None) -> bool:
    """Whether NumPy has the dtypes, as it has not that of keys of random numbers, and they are of some kinds."""
    dtypes = [atom.aval.dtype for atom in atoms]
    return all(isinstance(own, np.dtype) and (kinds is None or own.kind in kinds) for own in dtypes)


def is_in_numpy(eqn: jax_core.JaxprEqn) -> bool:
    """Whether NumPy computes an equation."""
    name = eqn.primitive.name
    if name in MEANINGS and MEANINGS[name].said == MOVE:
        return _are_held(eqn.invars) and not any(MEANINGS[name].ignored(eqn))
    if name in PLAIN_CALLS:
        return _are_held(eqn.invars) and all(is_in_numpy(own) for inner in inner_jaxprs(eqn) for own in inner.eqns)
    if not is_understood(eqn, *_BY_ELEMENT, *_OTHERS) or not _are_held((*eqn.invars, *eqn.outvars), "iub"):
        return False
    return name != "select_n" or eqn.invars[0].aval.dtype == bool  # type: ignore[attr-defined]


def in_numpy(field: Field, eqn: jax_core.JaxprEqn, operands: Sequence[Array]) -> Sequence[Any]:
    """The results of such an equation."""
    name = eqn.primitive.name
    if name in _BY_ELEMENT:
        with np.errstate(over="ignore"):
            return [np.asarray(_BY_ELEMENT[name](*operands))]
    return [_OTHERS[name](eqn, *operands)] if name in _OTHERS else MEANINGS[name].function(field, eqn, *operands)
