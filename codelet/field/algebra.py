"""Sums, products, quotients and roots over the field: the operations that obey the laws of rings and fields."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.field import arithmetic
from codelet.field.hashing import uninterpreted
from codelet.field.meanings import (
    MOST_AT_ONCE,
    Degree,
    Field,
    NotUnderstood,
    all_residues,
    by_element,
    dtype_of,
    greatest,
    hashed,
    made_by_element,
    meaning,
    shape_of,
    summed,
)
from codelet.field.pairs import numbers_of
from codelet.field.values import Unknown, Value, is_known, residues

Array = np.ndarray

_FIELD = "an operation of the field"


def _is_bool(eqn: Any) -> bool:
    return dtype_of(eqn).kind == "b"


def ring(
    names: str,
    *parameters: str,
    degree: Degree = greatest,
    keeps_positive: bool = False,
    is_exact: bool = True,
    takes_complex: bool = False,
) -> Any:
    """Register an operation on residues that have the shape of the results or none.

    One of complex numbers takes the arithmetic of the numbers of its equation before the residues.
    """

    def registered(function: Any) -> Any:
        @meaning(
            names,
            *parameters,
            said=_FIELD,
            degree=degree,
            keeps_positive=keeps_positive,
            is_exact=is_exact,
            takes_complex=takes_complex,
        )
        def run(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
            first = (numbers_of(dtype_of(eqn)),) if takes_complex else ()
            return [Unknown(function(eqn, *first, *by_element(field, operands)), dtype_of(eqn))]

        return function

    return registered


@meaning("add add_any", said=_FIELD, keeps_positive=True, is_exact=True, takes_complex=True)
def add(field: Field, eqn: Any, a: Value, b: Value) -> Sequence[Value]:
    return _added(field, eqn, (1, 1), (a, b))


@meaning("sub", said=_FIELD, is_exact=True, takes_complex=True)
def subtract(field: Field, eqn: Any, a: Value, b: Value) -> Sequence[Value]:
    return _added(field, eqn, (1, -1), (a, b))


@meaning("neg", said=_FIELD, is_exact=True, takes_complex=True)
def negative(field: Field, eqn: Any, a: Value) -> Sequence[Value]:
    return _added(field, eqn, (-1,), (a,))


def _added(field: Field, eqn: Any, signs: Sequence[int], operands: Sequence[Value]) -> Sequence[Value]:
    """The sum of values, each 1 or -1 times."""
    numbers = numbers_of(dtype_of(eqn))
    if numbers is not arithmetic:
        return [Unknown(_sum_of(numbers, signs, by_element(field, operands)), dtype_of(eqn))]
    made = Unknown(made_by_element(field, operands, lambda *own: _sum_of(numbers, signs, own)), dtype_of(eqn))
    if field.shifts.any and math.prod(made.shape) <= MOST_AT_ONCE:
        field.shifts.sum(made.residues, *zip(signs, by_element(field, operands), strict=True))
    return [made]


def _sum_of(numbers: Any, signs: Sequence[int], arrays: Sequence[Array]) -> Array:
    if len(arrays) == 1:
        return numbers.negative(arrays[0])
    return (numbers.add if signs[1] > 0 else numbers.subtract)(*arrays)


@meaning("mul", said=_FIELD, degree=summed, keeps_positive=True, is_exact=True, takes_complex=True)
def multiply(field: Field, eqn: Any, a: Value, b: Value) -> Sequence[Value]:
    if dtype_of(eqn).kind == "c" or field.roots.any:
        return [Unknown(_multiplied(field, eqn, *by_element(field, (a, b))), dtype_of(eqn))]
    return [Unknown(made_by_element(field, (a, b), arithmetic.multiply), dtype_of(eqn))]


def _multiplied(field: Field, eqn: Any, a: Array, b: Array) -> Array:
    numbers = numbers_of(dtype_of(eqn))
    made = numbers.multiply(a, b)
    return field.roots.product(a, b, made) if numbers is arithmetic else made


def _power(field: Field, eqn: Any, x: Value, y: int) -> Sequence[Value]:
    """A power by an integer: of the square, where there is one in it."""
    own, numbers = residues(x, field.draws), numbers_of(dtype_of(eqn))
    made = own if y % 2 else np.ones_like(own)
    if abs(y) > 1:
        half = numbers.power(_multiplied(field, eqn, own, own), abs(y) // 2)
        made = numbers.multiply(made, half) if y % 2 else half
    return [Unknown(numbers.inverse(made) if y < 0 else made, dtype_of(eqn))]


_TWICE = lambda eqn, degrees: 2 * degrees[0]  # noqa: E731


@meaning("square", said=_FIELD, degree=_TWICE, keeps_positive=True, is_exact=True, takes_complex=True)
def square(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return _power(field, eqn, x, 2)


@meaning(
    "integer_pow",
    "y",
    said=_FIELD,
    degree=lambda eqn, degrees: abs(eqn.params["y"]) * degrees[0],
    keeps_positive=True,
    is_exact=True,
    takes_complex=True,
)
def integer_power(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return _power(field, eqn, x, eqn.params["y"])


@ring("one_minus_square", degree=lambda eqn, degrees: 2 * degrees[0])
def one_minus_square(eqn: Any, a: Array) -> Array:
    return arithmetic.subtract(np.ones_like(a), arithmetic.multiply(a, a))


@meaning("sqrt", said="a power; its square is the number", degree=hashed, keeps_positive=True)
def square_root(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return [Unknown(field.roots.root(residues(x, field.draws)), dtype_of(eqn))]


@meaning("rsqrt", said="a power; its square is one by the number", degree=hashed, keeps_positive=True)
def reciprocal_root(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return [Unknown(field.roots.reciprocal(residues(x, field.draws)), dtype_of(eqn))]


@meaning(
    "div",
    said="an operation of the field; of integers a function of which nothing is known",
    degree=summed,
    keeps_positive=True,
    takes_complex=True,
    is_exact=lambda eqn: jnp.issubdtype(dtype_of(eqn), np.inexact),
)
def divide(field: Field, eqn: Any, a: Value, b: Value) -> Sequence[Value]:
    first, second = by_element(field, (a, b))
    if not np.issubdtype(dtype_of(eqn), np.inexact) and dtype_of(eqn).kind != "V":
        return [Unknown(uninterpreted("div of integers", first, second), dtype_of(eqn))]
    numbers = numbers_of(dtype_of(eqn))
    return [Unknown(numbers.multiply(first, numbers.inverse(second)), dtype_of(eqn))]


# --- booleans -------------------------------------------------------------------------------------------


def _bits(eqn: Any, name: str, first: Array, second: Array, both: Array) -> Array:
    """An operation on booleans, or on the bits of integers."""
    return both if _is_bool(eqn) else uninterpreted(name, first, second)


@ring("and", degree=summed, is_exact=False)
def conjunction(eqn: Any, a: Array, b: Array) -> Array:
    return _bits(eqn, "and", a, b, np.where(a == b, a, arithmetic.multiply(a, b)))


@ring("or", degree=summed, is_exact=False)
def disjunction(eqn: Any, a: Array, b: Array) -> Array:
    either = arithmetic.subtract(arithmetic.add(a, b), arithmetic.multiply(a, b))
    return _bits(eqn, "or", a, b, np.where(a == b, a, either))


@ring("xor", degree=summed, is_exact=False)
def exclusive(eqn: Any, a: Array, b: Array) -> Array:
    product = arithmetic.multiply(a, b)
    apart = arithmetic.subtract(arithmetic.add(a, b), arithmetic.add(product, product))
    return _bits(eqn, "xor", a, b, np.where(a == b, 0, apart))


@ring("not", is_exact=False)
def complement(eqn: Any, a: Array) -> Array:
    return arithmetic.subtract(np.ones_like(a), a) if _is_bool(eqn) else uninterpreted("not", a)


@meaning(
    "select_n",
    said="`c * b + (1 - c) * a` of a boolean c that is not known",
    degree=summed,
    takes_complex=True,
    is_exact=lambda eqn: len(eqn.invars) == 3 and eqn.invars[0].aval.dtype == bool,
)
def select_n(field: Field, eqn: Any, which: Value, *cases: Value) -> Sequence[Value]:
    own = all_residues(field, cases)
    if is_known([which]):
        number = np.broadcast_to(np.asarray(which).astype(int), shape_of(eqn))
        first = int(number.flat[0]) if number.size else 0
        if (number == first).all() and cases[first].shape == number.shape:
            return [cases[first]]
        made = own[0]
        for k, case in enumerate(own[1:], 1):
            made = np.where(number == k, case, made)
        return [Unknown(made, dtype_of(eqn))]
    if len(cases) != 2 or which.dtype != bool:
        choice = residues(which, field.draws)
        choice = choice.reshape(*choice.shape, *(1,) * (own[0].ndim - choice.ndim))
        return [Unknown(uninterpreted(("select_n", len(cases)), choice, *own), dtype_of(eqn))]
    return [Unknown(chosen(residues(which, field.draws), own[0], own[1], dtype_of(eqn)), dtype_of(eqn))]


def chosen(bit: Array, no: Array, yes: Array, dtype: Any) -> Array:
    """The element chosen by a boolean that is not known."""
    bit, numbers = bit.reshape(*bit.shape, *(1,) * (no.ndim - bit.ndim)), numbers_of(dtype)
    return numbers.add(no, numbers.multiply(bit, numbers.subtract(yes, no)))


def _of_products(eqn: Any, degrees: Sequence[int]) -> int:
    """The degree of products along dimensions."""
    name, shape = eqn.primitive.name, eqn.invars[0].aval.shape
    axes = [eqn.params["axis"]] if name == "cumprod" else eqn.params["axes"]
    return degrees[0] * math.prod(shape[d] for d in axes)


# --- along dimensions ---------------------------------------------------------------------------------------


@ring("reduce_sum", "axes", "out_sharding", keeps_positive=True, takes_complex=True)
def reduce_sum(eqn: Any, numbers: Any, a: Array) -> Array:
    return numbers.total(a, [1 + int(d) for d in eqn.params["axes"]])


@ring("reduce_prod", "axes", "out_sharding", degree=_of_products, keeps_positive=True, takes_complex=True)
def reduce_product(eqn: Any, numbers: Any, a: Array) -> Array:
    return numbers.product(a, [1 + int(d) for d in eqn.params["axes"]])


@ring("reduce_and", "axes", "out_sharding", degree=_of_products, is_exact=False)
def reduce_and(eqn: Any, a: Array) -> Array:
    return _folded(eqn, a, conjunction)


@ring("reduce_or", "axes", "out_sharding", degree=_of_products, is_exact=False)
def reduce_or(eqn: Any, a: Array) -> Array:
    return _folded(eqn, a, disjunction)


@ring("reduce_xor", "axes", "out_sharding", degree=_of_products, is_exact=False)
def reduce_xor(eqn: Any, a: Array) -> Array:
    return _folded(eqn, a, exclusive)


def _folded(eqn: Any, a: Array, combine: Any) -> Array:
    if not _is_bool(eqn):
        raise NotUnderstood(eqn, "bits of integers that are not known")
    for d in sorted((1 + int(d) for d in eqn.params["axes"]), reverse=True):
        a = np.moveaxis(a, d, 0)
        made = a[0] if len(a) else np.full(a.shape[1:], eqn.primitive.name == "reduce_and", np.int64)
        for one in a[1:]:
            made = combine(eqn, made, one)
        a = made
    return a


@ring("cumsum", "axis", "reverse", keeps_positive=True, takes_complex=True)
def running_sum(eqn: Any, numbers: Any, a: Array) -> Array:
    axis = 1 + eqn.params["axis"]
    if eqn.params["reverse"]:
        return np.flip(numbers.running_sum(np.flip(a, axis), axis), axis)
    return numbers.running_sum(a, axis)


@ring("cumprod", "axis", "reverse", degree=_of_products, keeps_positive=True, takes_complex=True)
def running_product(eqn: Any, numbers: Any, a: Array) -> Array:
    axis = 1 + eqn.params["axis"]
    if eqn.params["reverse"]:
        return np.flip(arithmetic.running(np.flip(a, axis), axis, numbers.multiply), axis)
    return arithmetic.running(a, axis, numbers.multiply)


# --- conversions --------------------------------------------------------------------------------------------


def _precision(dtype: Any) -> int:
    return int(jnp.finfo(dtype).nmant)


def _is_identity(before: Any, after: Any) -> bool:
    """Whether a conversion loses nothing, in any way of taking it."""
    if jnp.issubdtype(before, np.floating) and jnp.issubdtype(after, np.floating):
        return _precision(after) >= _precision(before)
    return bool(before == after or before.kind == "b" or jnp.issubdtype(after, np.inexact))


@meaning(
    "convert_element_type",
    "new_dtype",
    "weak_type",
    said="the identity between floats, and to complex numbers; see `casts`",
    takes_complex=True,
    is_exact=lambda eqn: _is_identity(eqn.invars[0].aval.dtype, dtype_of(eqn)),
)
def convert(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    own, to = residues(x, field.draws), dtype_of(eqn)
    was_float, is_float = (jnp.issubdtype(kind, np.floating) for kind in (x.dtype, to))
    if was_float and is_float:
        loses = field.casts and _precision(to) < _precision(x.dtype)
        return [Unknown(uninterpreted(("round to", str(to)), own), to) if loses else Unknown(own, to)]
    if x.dtype.kind == "b" or is_float or x.dtype == to or to.kind == "c":
        return [Unknown(own, to)]
    if to.kind == "b":
        return [Unknown(np.where(own == 0, 0, uninterpreted("is not zero", own)), to)]
    return [Unknown(uninterpreted(("convert", "float" if was_float else str(x.dtype), str(to)), own), to)]


@meaning("reduce_precision", "exponent_bits", "mantissa_bits", said="the identity; see `casts`")
def reduce_precision(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    own, params = residues(x, field.draws), eqn.params
    key = ("round to", params["exponent_bits"], params["mantissa_bits"])
    return [Unknown(uninterpreted(key, own) if field.casts else own, dtype_of(eqn))]
