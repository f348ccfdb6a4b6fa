"""Functions over the field of which little is known: where they are even or odd, and their values at zero or one.

The chance that a residue is 0 or 1 where the number is not is that of a collision.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.field import arithmetic, pairs
from codelet.field.hashing import uninterpreted
from codelet.field.meanings import Field, by_element, dtype_of, hashed, meaning
from codelet.field.values import Unknown, Value, are_positive, named, residues
from codelet.field.whole import key_of_equation

_EVEN = "cos cosh abs"
_ODD = "sin sinh tan tanh asin asinh atan atanh erf erf_inv sign cbrt bessel_i1e"
_ANY = "acos acosh expm1 log log1p logistic lgamma digamma erfc floor ceil round bessel_i0e population_count clz"
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


@meaning(_EVEN, said="a function of which it is known that it is even", degree=hashed, takes_complex=True)
def even(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    own = residues(x, field.draws)
    if x.dtype.kind == "c":
        if eqn.primitive.name == "abs":
            return [Unknown(field.roots.root(pairs.square_of_size(own)), dtype_of(eqn))]
        return [_complex(eqn, pairs.multiply(own, own))]
    if eqn.primitive.name == "abs" and are_positive([x]):
        return [x]
    made = uninterpreted(key_of_equation(eqn), arithmetic.multiply(own, own))
    return [Unknown(_known_points(eqn.primitive.name, own, made), dtype_of(eqn))]


@meaning(
    _ODD,
    said="a function of which it is known that it is odd",
    degree=lambda eqn, degrees: 1 + degrees[0],
    takes_complex=True,
)
def odd(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    own = residues(x, field.draws)
    if x.dtype.kind == "c":
        if eqn.primitive.name == "sign":  # what makes the number with its size
            size = field.roots.reciprocal(pairs.square_of_size(own))
            return [Unknown(pairs.multiply(own, size), dtype_of(eqn))]
        made = _complex(eqn, pairs.multiply(own, own))
        made = Unknown(pairs.multiply(own, made.residues), made.dtype)
        return [made]
    if eqn.primitive.name == "sign" and are_positive([x]):
        return [np.ones(x.shape, x.dtype)]
    return [
        Unknown(
            arithmetic.multiply(own, uninterpreted(key_of_equation(eqn), arithmetic.multiply(own, own))), dtype_of(eqn)
        )
    ]


@meaning(
    _ANY,
    "rounding_method",
    "input_dtype",
    said="a function of which nothing is known",
    degree=hashed,
    takes_complex=True,
)
def of_one(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    own = residues(x, field.draws)
    if x.dtype.kind == "c":
        return [_complex(eqn, own)]
    return [Unknown(_known_points(eqn.primitive.name, own, uninterpreted(key_of_equation(eqn), own)), dtype_of(eqn))]


@meaning(
    "exp exp2",
    said="a function of which it is known that of `x - m` it is the quotient, where m is the greatest or least of some",
    degree=lambda eqn, degrees: 3,
    takes_complex=True,
)
def exponential(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    own = residues(x, field.draws)
    if x.dtype.kind == "c":
        return [_complex(eqn, own)]
    parts, is_known = field.shifts.parts(own)
    if is_known.any():
        one, two, three = (
            _known_points(eqn.primitive.name, part, uninterpreted(key_of_equation(eqn), part)) for part in parts
        )
        made = arithmetic.multiply(arithmetic.multiply(one, two), arithmetic.inverse(three))
    else:
        made = _known_points(eqn.primitive.name, own, uninterpreted(key_of_equation(eqn), own))
    is_nothing = _are(field, parts.rest, "-inf")
    result = Unknown(np.where(is_nothing, 0, made), dtype_of(eqn))
    result.is_positive = not is_nothing.any()
    return [result]


def _are(field: Field, own: np.ndarray, name: str) -> np.ndarray:
    """Which residues are those of a constant by its name."""
    return (own == named(name, field.draws).reshape(-1, *(1,) * (own.ndim - 1))).all(0)


def _complex(eqn: Any, *operands: np.ndarray) -> Unknown:
    """A function of complex numbers of which nothing is known."""
    real, imaginary = (uninterpreted((*key_of_equation(eqn), part), *operands) for part in ("real", "imaginary"))
    return Unknown(pairs.pair(real, imaginary), dtype_of(eqn))


@meaning("real", said="a part of a complex number", is_exact=True, takes_complex=True)
def real_part(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return [Unknown(pairs.parts(residues(x, field.draws))[0], dtype_of(eqn))]


@meaning("imag", said="a part of a complex number", is_exact=True, takes_complex=True)
def imaginary_part(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return [Unknown(pairs.parts(residues(x, field.draws))[1], dtype_of(eqn))]


@meaning("complex", said="a complex number of its parts", is_exact=True, takes_complex=True)
def of_parts(field: Field, eqn: Any, *both: Value) -> Sequence[Value]:
    return [Unknown(pairs.pair(*by_element(field, both)), dtype_of(eqn))]


@meaning("conj", "input_dtype", said="a part of it negated", is_exact=True, takes_complex=True)
def conjugate(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return [Unknown(pairs.conjugate(residues(x, field.draws)), dtype_of(eqn))]


@meaning("is_finite", said="true of all that is not known")
def is_finite(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    own = residues(x, field.draws)
    return [~(_are(field, own, "inf") | _are(field, own, "-inf") | _are(field, own, "nan"))]


@meaning(_OF_SEVERAL, said="a function of which nothing is known", degree=hashed)
def of_several(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    return [Unknown(uninterpreted(key_of_equation(eqn), *by_element(field, operands)), dtype_of(eqn))]
