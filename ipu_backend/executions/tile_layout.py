"""Tile layout: the words of variables as arrays of tiles by words, and words taken out of such arrays.

In come a placement's words and tables of positions; out come arrays as XLA makes them best.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.views.integers import narrowed
from codelet.views.sources import Variable
from lowering.arrays import Array, constant, reshape, slice_, take
from lowering.machine.placement import Placement
from lowering.machine.words import Words

LEAST_RUN = 4
"""Words that follow each other are taken as slices where all runs are of so many: half as long as one by one."""


class Selection:
    """Words of a flat array by their positions, as XLA takes them best: as they are, by slices, or one by one.

    Attributes:
        positions: of any shape, not negative.
        real: of the same shape, or one that broadcasts to it: where what is taken matters; None for everywhere.
    """

    def __init__(self, positions: np.ndarray, real: np.ndarray | None = None):
        self.positions = positions
        self.real = real

    @functools.cached_property
    def start(self) -> int | None:
        """Where the words begin, if they follow each other."""
        flat = self.positions.reshape(-1)
        moved = flat - np.arange(len(flat))
        if self.real is not None:
            moved = moved[np.broadcast_to(self.real, self.positions.shape).reshape(-1)]
        return int(moved[0]) if len(moved) and moved[0] >= 0 and (moved == moved[0]).all() else None

    @functools.cached_property
    def run(self) -> int:
        """Of how many words that follow each other all of it consists."""
        flat = self.positions.reshape(-1)
        breaks = np.flatnonzero(np.diff(flat) != 1) + 1
        return int(np.gcd.reduce(breaks, initial=len(flat)))

    @functools.cached_property
    def _table(self) -> Array:
        step = self.run if self.run >= LEAST_RUN else 1
        return constant(narrowed(self.positions.reshape(-1)[::step]))

    def of(self, flat: Array) -> Array:
        """The words, in the shape of `positions`."""
        shape = self.positions.shape
        if not self.positions.size:
            return lax.full(shape, 0, flat.dtype)
        if self.start is not None:
            stop = min(self.start + self.positions.size, flat.size)
            behind = self.positions.size - (stop - self.start)
            if not behind or behind % shape[-1] == 0:  # whole rows, of which nothing matters
                found = slice_(flat, (self.start,), (stop,), (1,))
                return reshape(lax.pad(found, jnp.zeros((), flat.dtype), [(0, behind, 0)]) if behind else found, shape)
        if self.run >= LEAST_RUN:
            numbers = lax.GatherDimensionNumbers((1,), (), (0,))
            taken = lax.gather(flat, self._table[:, None], numbers, (self.run,), mode="promise_in_bounds")
            return reshape(taken, shape)
        return reshape(take(flat, self._table), shape)


class RowSelection:
    """For every row words of it, by their places in the row: no row sees another.

    Attributes:
        places: of shape (rows, *any), not negative.
        real: where what is taken matters, as in `Selection`.
        extents: of the words that follow each other from each place on, which are taken together.
    """

    def __init__(self, places: np.ndarray, real: np.ndarray | None = None, extents: tuple[int, ...] = ()):
        self.places = places
        self.extents = extents
        self.run = math.prod(extents)
        count = math.prod(places.shape[1:])
        flat, steps = places.reshape(len(places), count), np.arange(count) * self.run
        fits = flat == steps
        if real is not None:
            fits |= ~np.broadcast_to(real, places.shape).reshape(len(places), count)
        self.is_prefix = bool(fits.all())

    @functools.cached_property
    def _table(self) -> Array:
        if self.run >= LEAST_RUN:
            return constant(narrowed(self.places[..., None]))
        return constant(narrowed(self.places[..., None] + np.arange(self.run)))

    def of(self, rows: Array) -> Array:
        """The words, in the shape of `places` and `extents`, of an array of rows by words."""
        shape = (*self.places.shape, *self.extents)
        count = math.prod(shape[1:])
        if self.is_prefix and count <= rows.shape[1]:
            return reshape(lax.slice_in_dim(rows, 0, count, axis=1) if count < rows.shape[1] else rows, shape)
        if self.run < LEAST_RUN:
            return reshape(jax.vmap(take)(rows, self._table), shape)
        numbers = lax.GatherDimensionNumbers((self.places.ndim - 1,), (), (0,))
        slices = lambda row, at: lax.gather(row, at, numbers, (self.run,), mode="promise_in_bounds")  # noqa: E731
        return reshape(jax.vmap(slices)(rows, self._table), shape)


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The numbers that occur, each once, rising.

    As `numpy.unique`, whose hashing took 8.6 s for the MNIST network placed by bytes where this takes 0.3.
    """
    ordered = np.sort(numbers.reshape(-1))
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


class Layouts:
    """The arrays of tiles by words of the variables of a placement."""

    def __init__(self, placement: Placement):
        self.placement = placement
        self._placed = set(placement.plan.variables)
        self._selections: dict[Variable, tuple[Selection, Selection]] = {}

    def __contains__(self, variable: Variable) -> bool:
        """Whether a variable is on tiles: what is no variable of the graph is not."""
        return variable in self._placed

    def of(self, variable: Variable) -> Words:
        """Where the elements of a variable are in its array."""
        return self.placement.words_of(variable)

    def selections(self, variable: Variable) -> tuple[Selection, Selection]:
        """From the elements of a variable in order to its array, and back."""
        if variable not in self._selections:
            words = self.of(variable)
            self._selections[variable] = Selection(words.elements, words.real), Selection(words.addresses)
        return self._selections[variable]

    def flat(self, variables: Sequence[Variable], numbers: np.ndarray, padding: Sequence[Any] = ()) -> np.ndarray:
        """Where elements lie in the arrays of some variables end to end, with the values of padding behind."""
        found = np.full(numbers.shape, -1, np.int64)
        base = 0
        for variable in variables:
            own = numbers - variable.first_element
            inside = (own >= 0) & (own < variable.size)
            found[inside] = self.of(variable).addresses[own[inside]] + base
            base += int(np.prod(self.of(variable).shape))
        negative = numbers < 0
        found[negative] = base - 1 - numbers[negative]
        assert not padding or found.max(initial=0) < base + len(padding)
        return found


def rows_of(array: Array, rows: np.ndarray | None) -> Array:
    """Some rows of an array, rising; all for None."""
    if rows is None:
        return array
    steps = np.unique(np.diff(rows))
    if len(rows) and len(steps) < 2:
        step = int(steps[0]) if len(steps) else 1
        return lax.slice_in_dim(array, int(rows[0]), int(rows[-1]) + 1, step)
    return take(array, constant(rows.astype(np.int32)))


def joined(arrays: Sequence[Array]) -> Array:
    """Arrays end to end, each flat."""
    flat = [reshape(array, (array.size,)) for array in arrays]
    return flat[0] if len(flat) == 1 else lax.concatenate(flat, 0)
