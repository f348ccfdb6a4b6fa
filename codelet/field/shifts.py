"""Shifts: the numbers that are others less the greatest of some, which `exp` makes quotients of.

`exp(x - m)` is `exp(x) / exp(m)`. `exp` is a hash and does not follow, so it is done here. Wherever a number is known
to be a sum of something and of greatest or least elements, its exponential is the product of theirs. That is all that a
softmax over blocks needs beyond the laws of a field. Such facts are kept by value, not by way of computing. The same
number is the same sum wherever it is met, in other vertices and iterations of loops as well.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from codelet.field.arithmetic import add, negative
from codelet.field.known_numbers import KnownNumbers

MOST_LOOKED_UP = 1 << 20
"""Elements of one array among which greatest and least ones are looked for where sums are made."""


class Parts(NamedTuple):
    """Numbers as `rest + up - down`, (draws, ...) each, where `up` and `down` are greatest or least ones, or zero."""

    rest: np.ndarray
    up: np.ndarray
    down: np.ndarray

    @property
    def negated(self) -> Parts:
        return Parts(negative(self.rest), self.down, self.up)


class Shifts:
    """The known sums of numbers and of greatest or least ones."""

    def __init__(self) -> None:
        self._known = KnownNumbers()

    def _keep(self, numbers: np.ndarray, parts: Parts) -> None:
        flat = [np.broadcast_to(own, numbers.shape).reshape(len(numbers), -1) for own in parts]
        self._known.keep(numbers.reshape(len(numbers), -1), np.stack(flat).astype(np.int32))

    @property
    def any(self) -> bool:
        """Whether something is known."""
        return bool(self._known.kept)

    def extremes(self, numbers: np.ndarray) -> None:
        """Keep numbers that are each the greatest or the least of several."""
        zero = np.zeros_like(numbers)
        self._keep(numbers, Parts(zero, numbers, zero))

    def sum(self, made: np.ndarray, *terms: tuple[int, np.ndarray]) -> None:
        """Keep the sum of terms, each 1 or -1 times an array, where greatest or least ones are among them."""
        if not self._known.kept:
            return
        each = [(sign, *self.parts(array, MOST_LOOKED_UP)) for sign, array in terms]
        if not any(is_known.any() for _, _, is_known in each):
            return
        total: Parts | None = None
        found, fits = np.zeros(made.shape[1:], bool), np.ones(made.shape[1:], bool)
        for sign, parts, is_known in each:
            own, found = parts if sign > 0 else parts.negated, found | is_known
            if total is None:
                total = own
                continue
            for one, other in ((total.up, own.up), (total.down, own.down)):
                fits = fits & ~(one.any(0) & other.any(0))
            total = Parts(add(total.rest, own.rest), total.up + own.up, total.down + own.down)
        chosen = np.broadcast_to(found & fits, made.shape[1:])
        if total is not None and chosen.any():
            self._keep(made[:, chosen], Parts(*(np.broadcast_to(own, made.shape)[:, chosen] for own in total)))

    def parts(self, numbers: np.ndarray, most: int | None = None) -> tuple[Parts, np.ndarray]:
        """Numbers as sums, and which of them are known as such: all others are all rest.

        Args:
            numbers: (draws, ...).
            most: of more elements nothing is looked for.
        """
        zero = np.zeros((len(numbers), *(1,) * (numbers.ndim - 1)), np.int64)
        alone = Parts(numbers, zero, zero)
        repeated = (slice(None, 1) if step == 0 else slice(None) for step in numbers.strides[1:])
        small = numbers[(slice(None), *repeated)]
        if not self._known.kept or not numbers.size or (most is not None and small[0].size > most):
            return alone, np.zeros((), bool)
        found = self._known.find(small)
        if found is None:
            return alone, np.zeros((), bool)
        is_known, columns = found
        own = Parts(np.array(small), np.zeros_like(small), np.zeros_like(small))
        for part, column in zip(own, columns, strict=True):
            part[:, is_known] = column
        return Parts(*(np.broadcast_to(k, numbers.shape) for k in own)), np.broadcast_to(is_known, numbers.shape[1:])
