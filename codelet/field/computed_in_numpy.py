"""What NumPy computes of arrays just as JAX does: all of `in_numpy.py`, calls, and floats where IEEE 754 says each bit.

Sums, products, quotients and square roots are rounded correctly by both. Left to JAX are subnormal numbers, which XLA
may take for zeros; NaNs, whose bits differ; zeros whose sign no rule says; and dtypes of fewer than 32 bits, which XLA
computes in more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.field.calls import called
from codelet.field.evaluate import Evaluation, held_array
from codelet.field.in_numpy import in_numpy, is_in_numpy
from codelet.jaxprs.equations import CALLS, literal_value
from codelet.jaxprs.primitives import COMPARISONS, CUSTOM, is_understood

Arrays = Sequence[Any]

_TESTS: dict[str, Callable[..., Any]] = {**COMPARISONS, "is_finite": np.isfinite}
"""Functions of floats that are true or false."""

_ROUNDED: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "add": np.add,
    "ceil": np.ceil,
    "div": np.divide,
    "floor": np.floor,
    "max": np.maximum,
    "min": np.minimum,
    "mul": np.multiply,
    "neg": np.negative,
    "nextafter": np.nextafter,
    "sign": np.sign,
    "sqrt": np.sqrt,
    "square": np.square,
    "sub": np.subtract,
}
"""Functions of floats whose results are rounded correctly, or not at all."""

_UNSIGNED = ("ceil", "floor", "max", "min", "sign")
"""Functions whose zeros may have either sign."""

_KEPT = ("copy", "stop_gradient")
"""Functions that give what they are given."""


def _is_plain(array: np.ndarray) -> bool:
    """Whether floats are numbers, or infinite, and none is subnormal."""
    size = np.abs(array)
    return not np.isnan(array).any() and bool(((size == 0) | (size >= 2 * jnp.finfo(array.dtype).tiny)).all())


def _converted(array: np.ndarray, dtype: np.dtype) -> np.ndarray | None:
    """An array in another dtype, which holds each of its numbers; else None."""
    if array.dtype == dtype:
        return array
    floats = [own for own in (array.dtype, dtype) if jnp.issubdtype(own, jnp.floating)]
    if not floats or any(own.kind not in "iub" and own not in floats for own in (array.dtype, dtype)):
        return None
    made = array.astype(dtype)
    if array.dtype != bool and not (made.astype(array.dtype) == array).all():
        return None
    return made if all(_is_plain(own) for own in (array, made) if own.dtype in floats) else None


def _of_floats(eqn: jax_core.JaxprEqn, operands: Sequence[np.ndarray]) -> np.ndarray | None:
    name = eqn.primitive.name
    if name in _KEPT:
        return operands[0]
    if name == "select_n":
        which, *cases = operands
        return np.where(which, cases[-1], cases[0]) if which.dtype == bool else None
    if name == "convert_element_type":
        return _converted(operands[0], np.dtype(eqn.params["new_dtype"]))
    if not all(own.dtype in (np.float32, np.float64) and _is_plain(own) for own in operands):
        return None
    if name in _TESTS:
        return np.asarray(_TESTS[name](*operands))
    made = np.asarray(_ROUNDED[name](*operands))
    return made if _is_plain(made) and (name not in _UNSIGNED or made.all()) else None


def _of_call(eqn: jax_core.JaxprEqn, operands: Arrays, are_numbers: bool) -> Arrays | None:
    """The results of a function that is called, with a derivative rule or without one."""
    closed: jax_core.ClosedJaxpr = called(eqn)
    values: dict[Any, Any] = dict(zip(closed.jaxpr.invars, operands, strict=True))
    values.update(zip(closed.jaxpr.constvars, map(held_array, closed.consts), strict=True))
    at = lambda atom: literal_value(atom) if isinstance(atom, jax_core.Literal) else values[atom]  # noqa: E731
    for own in closed.eqns:
        made = computed_in_numpy(own, list(map(at, own.invars)), are_numbers=are_numbers)
        if made is None:
            return None
        values.update(zip(own.outvars, made, strict=True))
    return list(map(at, closed.jaxpr.outvars))


def computed_in_numpy(eqn: jax_core.JaxprEqn, operands: Arrays, *, are_numbers: bool = False) -> Arrays | None:
    """The results of an equation of arrays that NumPy computes just as JAX does; None of any other.

    Args:
        eqn: which.
        operands: its arrays.
        are_numbers: whether it is by element, and each operand is the number that is in all places of an array; so is
            each result then.
    """
    if not all(isinstance(own, np.ndarray) for own in operands):
        return None
    if are_numbers and eqn.primitive.name == "broadcast_in_dim":
        return operands[:1]
    if is_understood(eqn, *CALLS, *CUSTOM):
        return _of_call(eqn, operands, are_numbers)
    if is_in_numpy(eqn):
        return in_numpy(Evaluation(1), eqn, operands)
    if not is_understood(eqn, *_TESTS, *_ROUNDED, *_KEPT, "select_n", "convert_element_type"):
        return None
    with np.errstate(all="ignore"):
        made = _of_floats(eqn, operands)
    return None if made is None else [made]
