"""Tile layout: where on its tile each element of a variable lies, in an array of tiles by words.

In comes the tile of each element, out come the tables between the order of the variable and that of the tiles:
a row for each tile that holds any of it, in the order of tiles, and in a row the tile's elements in their own
order. Rows have one length, that of the longest. What is behind a row's last element repeats the elements from
its first one on, so that what is computed from there is as finite as the rest; nothing of it is ever read back.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass

import jax
import numpy as np
from jax import lax

from codelet.views.integers import narrowed
from lowering.arrays import Array, constant, reshape, take

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
        if self.start is not None and self.start + self.positions.size <= flat.size:
            if self.positions.size == flat.size:
                return reshape(flat, shape)
            return reshape(lax.slice(flat, (self.start,), (self.start + self.positions.size,)), shape)
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
    """

    def __init__(self, places: np.ndarray, real: np.ndarray | None = None):
        self.places = places
        count = int(np.prod(places.shape[1:]))
        full = None if real is None else np.broadcast_to(real, places.shape).reshape(len(places), count)
        flat = places.reshape(len(places), count)
        steps = np.arange(count)
        fits = flat == steps if full is None else (flat == steps) | ~full
        self.is_prefix = bool(fits.all())

    @functools.cached_property
    def _table(self) -> Array:
        return constant(narrowed(self.places))

    def of(self, rows: Array) -> Array:
        """The words, in the shape of `places`, of an array of rows by words."""
        shape = self.places.shape
        count = int(np.prod(shape[1:]))
        if self.is_prefix and count <= rows.shape[1]:
            return reshape(lax.slice_in_dim(rows, 0, count, axis=1) if count < rows.shape[1] else rows, shape)
        return jax.vmap(take)(rows, self._table)


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The numbers that occur, each once, rising.

    As `numpy.unique`, whose hashing took 8.6 s for the MNIST network placed by bytes where this takes 0.3.
    """
    ordered = np.sort(numbers.reshape(-1))
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


def cyclic(starts: np.ndarray, counts: np.ndarray, width: int) -> np.ndarray:
    """For each row the numbers from its start on, as many as it has, over and over: (rows, width)."""
    return starts[:, None] + np.arange(width) % np.maximum(counts, 1)[:, None]


@dataclass(frozen=True, eq=False)
class Layout:
    """Where the elements of a variable lie in its array of tiles by words.

    Attributes:
        tiles: the tile of each row, rising: int32 of shape (rows,).
        counts: how many elements each row holds: int64 of shape (rows,).
        addresses: `row * words + word` of each element: int64 of shape (size,).
        elements: the element at each word, of shape (rows, words); see the module's docstring for what is behind.
    """

    tiles: np.ndarray
    counts: np.ndarray
    addresses: np.ndarray
    elements: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and words of the array."""
        return self.elements.shape  # type: ignore[return-value]

    @functools.cached_property
    def loading(self) -> Selection:
        """From the elements in order to the array."""
        return Selection(self.elements, np.arange(self.shape[1]) < self.counts[:, None])

    @functools.cached_property
    def unloading(self) -> Selection:
        """From the array to the elements in order."""
        return Selection(self.addresses)


def lay_out(tiles: np.ndarray) -> Layout:
    """The layout of a variable.

    Args:
        tiles: the tile of each element, of shape (size,).

    >>> layout = lay_out(np.array([3, 0, 3, 3]))
    >>> layout.tiles.tolist(), layout.elements.tolist(), layout.addresses.tolist()
    ([0, 3], [[1, 1, 1], [0, 2, 3]], [3, 0, 4, 5])
    """
    order = np.argsort(tiles, kind="stable")
    used, starts, counts = np.unique(tiles[order], return_index=True, return_counts=True)
    words = int(counts.max(initial=0))
    addresses = np.empty(len(tiles), np.int64)
    addresses[order] = np.repeat(np.arange(len(used)) * words - starts, counts) + np.arange(len(tiles))
    elements = order[cyclic(starts, counts, words)] if len(tiles) else np.zeros((0, 0), np.int64)
    return Layout(used.astype(np.int32), counts, addresses, elements)


def joined(arrays: Sequence[Array]) -> Array:
    """Arrays end to end, each flat."""
    flat = [reshape(array, (array.size,)) for array in arrays]
    return flat[0] if len(flat) == 1 else lax.concatenate(flat, 0)
