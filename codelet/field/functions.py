"""Functions over the field of which little is known: at what they are even or odd, and what they are at zero or one.

The chance that a residue is 0 or 1 where the number is not is that of a collision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.field import arithmetic
from codelet.field.algebra import refuse_complex
from codelet.field.hashing import uninterpreted
from codelet.field.meanings import Field, by_element, dtype_of, hashed, meaning
from codelet.field.values import Unknown, Value, are_positive, named, residues

_EVEN = "cos cosh abs"
_ODD = "sin sinh tan tanh asin asinh atan atanh erf erf_inv sign cbrt bessel_i1e"
_ANY = (
    "acos acosh expm1 log log1p logistic lgamma digamma erfc floor ceil round bessel_i0e population_count clz"
    " real imag conj"
)
_OF_SEVERAL = (
    "atan2 pow rem nextafter shift_left shift_right_arithmetic shift_right_logical igamma igammac igamma_grad_a mulhi"
    " polygamma regularized_incomplete_beta zeta random_gamma_grad"
)
_AT_ZERO = {
    "exp": 1,
    "exp2": 1,
    "expm1": 0,
    "log1p": 0,
    "floor": 0,
    "ceil": 0,
    "round": 0,
    "cos": 1,
    "cosh": 1,
    "abs": 0,
}
_AT_ONE = {"log": 0, "abs": 1, "floor": 1, "ceil": 1, "round": 1}


def _known_points(name: str, x: np.ndarray, made: np.ndarray) -> np.ndarray:
    if name in _AT_ZERO:
        made = np.where((x == 0).all(0), _AT_ZERO[name], made)
    if name in _AT_ONE:
        made = np.where((x == 1).all(0), _AT_ONE[name], made)
    return made


def _key(eqn: Any) -> tuple[Any, ...]:
    params = sorted((name, repr(value)) for name, value in eqn.params.items() if name not in ("accuracy",))
    return (eqn.primitive.name, *params)


@meaning(_EVEN, said="a function of which it is known that it is even", degree=hashed)
def even(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    refuse_complex(eqn)
    own = residues(x, field.draws)
    if eqn.primitive.name == "abs" and are_positive([x]):
        return [x]
    made = uninterpreted(_key(eqn), arithmetic.multiply(own, own))
    return [Unknown(_known_points(eqn.primitive.name, own, made), dtype_of(eqn))]


@meaning(_ODD, said="a function of which it is known that it is odd", degree=lambda eqn, degrees: 1 + degrees[0])
def odd(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    refuse_complex(eqn)
    own = residues(x, field.draws)
    if eqn.primitive.name == "sign" and are_positive([x]):
        return [np.ones(x.shape, x.dtype)]
    return [Unknown(arithmetic.multiply(own, uninterpreted(_key(eqn), arithmetic.multiply(own, own))), dtype_of(eqn))]


@meaning(_ANY, "rounding_method", "input_dtype", said="a function of which nothing is known", degree=hashed)
def of_one(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    refuse_complex(eqn)
    own = residues(x, field.draws)
    return [Unknown(_known_points(eqn.primitive.name, own, uninterpreted(_key(eqn), own)), dtype_of(eqn))]


@meaning(
    "exp exp2",
    said="a function of which it is known that of `x - m` it is the quotient, where m is the greatest or least of some",
    degree=lambda eqn, degrees: 3,
)
def exponential(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    refuse_complex(eqn)
    own = residues(x, field.draws)
    parts, is_known = field.shifts.parts(own)
    if is_known.any():
        one, two, three = (_known_points(eqn.primitive.name, part, uninterpreted(_key(eqn), part)) for part in parts)
        made = arithmetic.multiply(arithmetic.multiply(one, two), arithmetic.inverse(three))
    else:
        made = _known_points(eqn.primitive.name, own, uninterpreted(_key(eqn), own))
    is_nothing = _are(field, parts.rest, "-inf")
    result = Unknown(np.where(is_nothing, 0, made), dtype_of(eqn))
    result.is_positive = not is_nothing.any()
    return [result]


def _are(field: Field, own: np.ndarray, name: str) -> np.ndarray:
    """Which residues are those of a constant by its name."""
    return (own == named(name, field.draws).reshape(-1, *(1,) * (own.ndim - 1))).all(0)


@meaning("is_finite", said="true of all that is not known")
def is_finite(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    own = residues(x, field.draws)
    return [~(_are(field, own, "inf") | _are(field, own, "-inf") | _are(field, own, "nan"))]


@meaning(_OF_SEVERAL, said="a function of which nothing is known", degree=hashed)
def of_several(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    refuse_complex(eqn)
    return [Unknown(uninterpreted(_key(eqn), *by_element(field, operands)), dtype_of(eqn))]
