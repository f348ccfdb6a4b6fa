"""Values over the field: arrays that are known, and arrays of which there are residues at a few random points.

Values that depend on no unknown float are known, and are those of JAX. Everything else has a residue for each of its
elements and each draw of the unknowns.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, Self

import numpy as np

from codelet.field.arithmetic import PRIME, of_floats
from codelet.field.hashing import Words, absorbed, key_of, residues_of, words_of
from codelet.field.pairs import pair

_LARGE = 1 << 20
"""So many residues are held in words of 32 bits, which they fit."""


class Unknown:
    """An array that depends on unknowns.

    Attributes:
        residues: (draws, ...), from 0 to the prime.
        dtype: that the program gives it.
        degree: no element is a quotient of polynomials of more than it, in unknowns or hashes.
        is_positive: whether all elements are known to be greater than zero.
    """

    degree, is_positive = 1, False

    def __init__(self, residues: np.ndarray, dtype: Any):
        self.dtype = np.dtype(dtype)
        is_large = residues.size >= _LARGE and 0 not in residues.strides and self.dtype.kind != "c"
        self._residues = residues.astype(np.int32, copy=False) if is_large else residues

    @property
    def residues(self) -> np.ndarray:
        return self._residues.astype(np.int64, copy=False)

    @property
    def stored(self) -> np.ndarray:
        """The residues as they are stored."""
        return self._residues

    @property
    def shape(self) -> tuple[int, ...]:
        return self._residues.shape[1:]

    def moved(self, move: Callable[[np.ndarray, int], np.ndarray]) -> Unknown:
        """It with its elements moved, by a function that moves the last dimensions of an array behind some number of
        others.
        """
        return self._like(Unknown(move(self._residues, 1), self.dtype))

    def of_degree(self, degree: int) -> Self:
        """It itself, of a degree."""
        self.degree = degree
        return self

    def _like(self, other: Any) -> Any:
        other.degree, other.is_positive = self.degree, self.is_positive
        return other


class Extreme(Unknown):
    """The greatest or the least of some elements, each: a set of these, whatever the order and the grouping.

    One of a single element is that; of any others it is a sum of hashes of all that differ.

    Attributes:
        kind: "max" or "min".
        members: (draws, members, ...); the same member may be there several times.
        told: called with the residues, once there are any.
    """

    def __init__(self, kind: str, members: np.ndarray, dtype: Any, told: Callable[[np.ndarray], None] | None = None):
        self.kind, self.members, self.dtype, self.told = kind, members, np.dtype(dtype), told

    @cached_property
    def residues(self) -> np.ndarray:  # type: ignore[override]
        made, is_one = _extreme_of(self.kind, self.members)
        if not is_one.any():
            self.degree = 1
        if self.told is not None:
            self.told(made)
        return made

    @property
    def stored(self) -> np.ndarray:
        return self.residues

    @property
    def shape(self) -> tuple[int, ...]:
        return self.members.shape[2:]

    def moved(self, move: Callable[[np.ndarray, int], np.ndarray]) -> Extreme:
        return self._like(Extreme(self.kind, move(self.members, 2), self.dtype, self.told))


Value = np.ndarray | Unknown
"""An array that is known, or one that is not."""


def extreme_of(kind: str, members: np.ndarray) -> np.ndarray:
    """The residues of the greatest or least of (draws, members, ...)."""
    return _extreme_of(kind, members)[0]


def _extreme_of(kind: str, members: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The residues of the greatest or least of (draws, members, ...), and which are those of one member, not hashed."""
    if members.shape[1] == 1:
        return members[:, 0], np.ones(members.shape[2:], bool)
    first, second = words_of(members)
    if len(first) > 2:  # two are beside one another in any order
        order = np.argsort(first, axis=0, kind="stable")
        first, second = (np.take_along_axis(own, order, 0) for own in (first, second))
    is_new = np.ones(first.shape, bool)
    is_new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    count = is_new.sum(axis=0)
    words = set_words(kind, (first, second), is_new)
    hashed = residues_of(words, len(members))
    return np.where(count == 1, members[:, 0], hashed), count == 1


def set_words(kind: str, members: Words, is_new: np.ndarray, running: bool = False) -> Words:
    """Two words for the set of members along the first dimension, or for those up to each."""
    key = key_of(kind)
    one, two = absorbed((np.uint64(key[0]), np.uint64(key[1])), members)  # type: ignore[arg-type]
    add = np.cumsum if running else np.sum
    with np.errstate(over="ignore"):
        each = (add(np.where(is_new, own, np.uint64(0)), axis=0, dtype=np.uint64) for own in (one, two))
        return absorbed((np.uint64(key[1]), np.uint64(key[0])), tuple(each))  # type: ignore[arg-type]


def embedded(known: Any, draws: int) -> np.ndarray:
    """The residues of a known array: the same in every draw, except where it is not finite."""
    array = np.asarray(known)
    if array.dtype == bool:
        made = array.astype(np.int64)
    elif np.issubdtype(array.dtype, np.integer):
        made = (array % array.dtype.type(PRIME) if array.dtype == np.uint64 else array).astype(np.int64) % PRIME
    else:
        return _of_numbers(array, draws)
    return np.broadcast_to(made, (draws, *array.shape))


def _of_numbers(array: np.ndarray, draws: int) -> np.ndarray:
    """Floats: finite ones as the simplest fractions that they are written for, others by their names."""
    if np.issubdtype(array.dtype, np.complexfloating):
        return pair(*(_of_numbers(part(array), draws) for part in (np.real, np.imag)))
    first = array.reshape(-1)[:1]
    if array.size and (array == first.reshape((1,) * array.ndim)).all():
        one = _of_number(first.dtype, first.tobytes(), draws)
        return np.broadcast_to(one.reshape(draws, *(1,) * array.ndim), (draws, *array.shape))
    return _of_each(array, draws)


@functools.lru_cache(maxsize=4096)
def _of_number(dtype: np.dtype, number: bytes, draws: int) -> np.ndarray:
    """One float, by its bytes."""
    made = _of_each(np.frombuffer(number, dtype), draws)
    made.flags.writeable = False
    return made


def _of_each(array: np.ndarray, draws: int) -> np.ndarray:
    """Floats, each by itself."""
    finite = np.isfinite(array)
    values, places = np.unique(np.where(finite, array, 0).reshape(-1), return_inverse=True)
    made = np.broadcast_to(of_floats(values)[places].reshape(array.shape), (draws, *array.shape))
    if not finite.all():
        for name, is_it in (("inf", np.isposinf), ("-inf", np.isneginf), ("nan", np.isnan)):
            made = np.where(is_it(array), named(name, draws).reshape(-1, *(1,) * array.ndim), made)
    return made


def named(name: str, draws: int) -> np.ndarray:
    """A constant of which nothing is known: (draws,)."""
    one, two = key_of(("constant", name))
    return residues_of((np.array(one, np.uint64), np.array(two, np.uint64)), draws)


def residues(value: Value, draws: int) -> np.ndarray:
    """The residues of a value."""
    return value.residues if isinstance(value, Unknown) else embedded(value, draws)


def stored(value: Value, draws: int) -> np.ndarray:
    """The residues of a value as they are stored, in words of 32 or of 64 bits."""
    return value.stored if isinstance(value, Unknown) else embedded(value, draws)


def moved(value: Value, move: Callable[[np.ndarray, int], np.ndarray]) -> Value:
    """A value with its elements moved, by a function that moves the last dimensions of an array behind some number of
    others.
    """
    return value.moved(move) if isinstance(value, Unknown) else move(np.asarray(value), 0)


def are_positive(values: Sequence[Value]) -> bool:
    """Whether all elements of some values are known to be greater than zero."""
    return all(own.is_positive if isinstance(own, Unknown) else bool(np.all(np.asarray(own) > 0)) for own in values)


def is_known(values: Sequence[Value]) -> bool:
    return not any(isinstance(own, Unknown) for own in values)
