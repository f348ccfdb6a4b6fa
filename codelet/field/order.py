"""Order over the field: greatest and least elements as sets, comparisons and sorts as functions of their operands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.field import arithmetic
from codelet.field.hashing import absorbed, key_of, residues_of, uninterpreted, words_of
from codelet.field.meanings import Field, all_residues, by_element, dtype_of, hashed, meaning, shape_of
from codelet.field.moves import as_extreme
from codelet.field.values import Extreme, Unknown, Value, extreme_of, named, residues, set_words

Array = np.ndarray


_FAR = 1e4
"""Beyond it a known number is there to be less, or more, than all others, and no bound of them."""


def _bounds(field: Field, kind: str) -> Array:
    """Its greatest, or least, with others is that of the others alone."""
    return named("-inf" if kind == "max" else "inf", field.draws)


def without_bounds(field: Field, kind: str, members: Array) -> Array:
    """Members with others in the place of those that do not count."""
    none = _bounds(field, kind).reshape(-1, *(1,) * (members.ndim - 1))
    is_none = (members == none).all(0)
    if not is_none.any():
        return members
    first = np.argmin(is_none, axis=0)  # the first that counts, or the first of all
    other = np.take_along_axis(members, np.broadcast_to(first[None, None], (len(members), 1, *first.shape)), 1)
    return np.where(is_none, other, members)


@meaning("max min", said="a set: in any order, of any grouping")
def extreme(field: Field, eqn: Any, a: Value, b: Value) -> Sequence[Value]:
    kind, dtype = eqn.primitive.name, dtype_of(eqn)
    if dtype.kind == "b":
        first, second = all_residues(field, (a, b))
        both = arithmetic.multiply(first, second)
        either = arithmetic.subtract(arithmetic.add(first, second), both)
        return [Unknown(np.where(first == second, first, either if kind == "max" else both), dtype)]
    parts = [as_extreme(field, kind, own).members for own in (a, b)]
    shape = shape_of(eqn)
    is_bound = any(not isinstance(own, Unknown) and (np.abs(own) < _FAR).any() for own in (a, b))
    told = None if is_bound else field.shifts.extremes
    parts = [np.broadcast_to(_leading(own, 2, len(shape)), (*own.shape[:2], *shape)) for own in parts]
    return [Extreme(kind, without_bounds(field, kind, np.concatenate(parts, 1)), dtype, told)]


def _leading(own: Array, lead: int, rank: int) -> Array:
    return own.reshape(*own.shape, *(1,) * (lead + rank - own.ndim))


@meaning("clamp", said="a set of a set")
def clamp(field: Field, eqn: Any, low: Value, x: Value, high: Value) -> Sequence[Value]:
    shape, dtype = shape_of(eqn), dtype_of(eqn)
    spread = lambda own: np.broadcast_to(_leading(own, 1, len(shape)), (field.draws, *shape))  # noqa: E731
    own = [spread(residues(each, field.draws)) for each in (low, x, high)]
    greater = Extreme("max", without_bounds(field, "max", np.stack(own[:2], 1)), dtype)
    return [Extreme("min", without_bounds(field, "min", np.stack([greater.residues, own[2]], 1)), dtype)]


@meaning("reduce_max reduce_min", "axes", "out_sharding", said="a set: in any order, of any grouping")
def reduce_extreme(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return [extreme_along(field, eqn.primitive.name[-3:], x, [int(d) for d in eqn.params["axes"]])]


def extreme_along(field: Field, kind: str, x: Value, axes: Sequence[int]) -> Value:
    """The greatest, or the least, along some dimensions."""
    members = as_extreme(field, kind, x).members
    kept = [d for d in range(members.ndim - 2) if d not in axes]
    moved = members.transpose(0, 1, *(2 + d for d in axes), *(2 + d for d in kept))
    moved = moved.reshape(len(members), -1, *(members.shape[2 + d] for d in kept))
    if not moved.shape[1]:
        own = _bounds(field, kind).reshape(-1, *(1,) * len(kept))
        return Unknown(np.broadcast_to(own, (field.draws, *(x.shape[d] for d in kept))), x.dtype)
    return Extreme(kind, without_bounds(field, kind, moved), x.dtype, field.shifts.extremes)


@meaning("cummax cummin", "axis", "reverse", said="sets: in any order")
def running_extreme(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    kind, axis = eqn.primitive.name[-3:], 1 + eqn.params["axis"]
    own = np.moveaxis(residues(x, field.draws), axis, 1)
    own = own[:, ::-1] if eqn.params["reverse"] else own
    words = words_of(own)
    order = np.argsort(words[0], axis=0, kind="stable")
    ordered = [np.take_along_axis(each, order, 0) for each in words]
    fresh = np.ones(order.shape, bool)
    fresh[1:] = (ordered[0][1:] != ordered[0][:-1]) | (ordered[1][1:] != ordered[1][:-1])
    is_new = np.zeros_like(fresh)
    np.put_along_axis(is_new, order, fresh, 0)
    hashed = residues_of(set_words(kind, words, is_new, running=True), field.draws)
    made = np.where(np.cumsum(is_new, 0) == 1, own[:, :1], hashed)
    made = made[:, ::-1] if eqn.params["reverse"] else made
    return [Unknown(np.moveaxis(made, 1, axis), dtype_of(eqn))]


# --- comparisons --------------------------------------------------------------------------------------------


def _compared(field: Field, eqn: Any, operands: Sequence[Value]) -> tuple[Array, Array]:
    return np.broadcast_arrays(*by_element(field, operands))  # type: ignore[return-value]


@meaning(
    "lt gt le ge", said="a boolean of which nothing is known but that one of `a < b`, `b <= a` holds", degree=hashed
)
def comparison(field: Field, eqn: Any, a: Value, b: Value) -> Sequence[Value]:
    return [Unknown(compared(eqn.primitive.name, *_compared(field, eqn, (a, b))), bool)]


def compared(name: str, first: Array, second: Array) -> Array:
    """The result of `lt`, `gt`, `le` or `ge` on residues."""
    if name in ("gt", "le"):
        first, second = second, first
    less = np.where((first == second).all(0), 0, uninterpreted("lt", first, second))
    return less if name in ("lt", "gt") else arithmetic.subtract(np.ones_like(less), less)


def alike(first: Array, second: Array) -> Array:
    """Whether residues stand for the same number: a boolean of the two, in either order."""
    both = extreme_of("eq", np.stack([first, second], 1))
    return np.where((first == second).all(0), 1, uninterpreted("eq", both))


@meaning(
    "eq ne",
    said="a boolean of which nothing is known but that it is the same for swapped operands; false beside infinity",
    takes_complex=True,
    degree=hashed,
)
def equality(field: Field, eqn: Any, a: Value, b: Value) -> Sequence[Value]:
    first, second = _compared(field, eqn, (a, b))
    if any(not isinstance(own, Unknown) and not np.isfinite(own).any() for own in (a, b)):
        return [(first == second).all(0) == (eqn.primitive.name == "eq")]  # what is not known is finite
    made = alike(first, second)
    return [Unknown(arithmetic.subtract(np.ones_like(made), made) if eqn.primitive.name == "ne" else made, bool)]


# --- places and sorts ---------------------------------------------------------------------------------------


def _in_order(own: Array, axis: int) -> tuple[Array, Array]:
    """Two words for all elements along an axis, in their order."""
    first, second = words_of(own)
    axis -= 1
    state: Any = tuple(np.full(first.shape[:axis] + first.shape[axis + 1 :], k, np.uint64) for k in (1, 2))
    for k in range(first.shape[axis]):
        state = absorbed(state, (first.take(k, axis), second.take(k, axis)))
    return state


@meaning("argmax argmin", "axes", "index_dtype", said="a function of all elements in their order", degree=hashed)
def argument(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    (axis,) = eqn.params["axes"]
    state = _in_order(residues(x, field.draws), 1 + int(axis))
    one, two = key_of(eqn.primitive.name)
    own = absorbed(state, (np.uint64(one), np.uint64(two)))
    return [Unknown(residues_of(own, field.draws), dtype_of(eqn))]


@meaning(
    "sort",
    "dimension",
    "is_stable",
    "num_keys",
    said="a set with repetitions; of several arrays, a function of all",
    degree=hashed,
)
def sort(field: Field, eqn: Any, *operands: Value) -> Sequence[Value]:
    axis, own = 1 + eqn.params["dimension"], all_residues(field, operands)
    if len(own) == 1:
        first, second = words_of(own[0])
        with np.errstate(over="ignore"):
            mixed = absorbed((np.uint64(3), np.uint64(5)), (first, second))  # type: ignore[arg-type]
            state: Any = tuple(each.sum(axis - 1, dtype=np.uint64) for each in mixed)
    else:
        state = (np.uint64(7), np.uint64(9))
        for each in own:
            state = absorbed(state, _in_order(each, axis))
    made = []
    for k, each in enumerate(own):
        places = [
            residues_of(absorbed(state, (np.uint64(j), np.uint64(k))), field.draws) for j in range(each.shape[axis])
        ]
        made.append(Unknown(np.stack(places, axis), dtype_of(eqn, k)))
    return made


@meaning("top_k", "k", "axis", "is_stable", said="a function of all elements in their order", degree=hashed)
def top_k(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    axis = 1 + (eqn.params.get("axis", -1) % len(x.shape))
    state, made = _in_order(residues(x, field.draws), axis), []
    for name in ("values", "places"):
        one, two = key_of(("top_k", name))
        parts = [
            residues_of(
                absorbed(absorbed(state, (np.uint64(one), np.uint64(two))), (np.uint64(j), np.uint64(0))), field.draws
            )
            for j in range(eqn.params["k"])
        ]
        made.append(np.stack(parts, axis))
    return [Unknown(own, dtype_of(eqn, k)) for k, own in enumerate(made)]
