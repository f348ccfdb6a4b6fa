"""Selections: words of a flat array by their positions, as XLA takes them best.

In come pieces, where in the array each word is; out come slices, slices of many words each, or a gather.
"""

from __future__ import annotations

import functools
import math

import jax.numpy as jnp
import numpy as np
from jax import lax

from lowering.arrays import Array, reshape, slice_, take
from lowering.mesh.positions import Positions
from lowering.plan.pieces import Pieces

LEAST_RUN = 4
"""Words that follow each other are taken as slices where all runs are of so many: half as long as one by one."""


def taken(row: Array, begins: Array, run: int) -> Array:
    """Words of a row, so many from each of some places on, in one more dimension where they are several."""
    if run == 1:
        return take(row, begins)
    numbers = lax.GatherDimensionNumbers((begins.ndim,), (), (0,))
    return lax.gather(row, begins[..., None], numbers, (run,), mode="promise_in_bounds")


class Selection:
    """Words of a flat array by their positions, as XLA takes them best: as they are, by slices, or one by one.

    Args:
        shape: of what is taken.
        pieces: where in the array each of it is; what is in no piece does not matter, and follows the piece before.
        size: of the array.
    """

    def __init__(self, shape: tuple[int, ...], pieces: Pieces, size: int):
        self.shape = shape
        self.pieces = pieces
        self.size = size
        self.count = math.prod(shape)

    @functools.cached_property
    def start(self) -> int | None:
        """Where the words begin, if they follow each other."""
        moved = self.pieces.moves
        return int(moved[0]) if moved[0] >= 0 and (moved == moved[0]).all() else None

    @functools.cached_property
    def run(self) -> int:
        """Of how many words that follow each other all of it consists, those that matter together in the array."""
        pieces = self.pieces
        apart = int(np.gcd.reduce(pieces.starts[1:], initial=self.count))
        whole = int(np.gcd.reduce(np.append(pieces.starts, pieces.stops), initial=apart))
        begin, ends = pieces.starts[0] // apart * apart, -(-pieces.stops // apart) * apart
        is_inside = begin + pieces.moves[0] >= 0 and (ends + pieces.moves <= self.size).all()
        return apart if is_inside else whole

    def by(self, run: int) -> Positions:
        """Where so many words that follow each other begin."""
        starts = np.append(0, self.pieces.starts[1:]) // run
        return Positions((self.count // run,), (run,), starts, self.pieces.moves, self.size - run)

    @property
    def _together(self) -> int:
        return self.run if self.run >= LEAST_RUN else 1

    @functools.cached_property
    def _begins(self) -> Positions:
        return self.by(self._together)

    @property
    def positions(self) -> np.ndarray:
        """Where in the array each of it is."""
        return self.by(1).numbers.reshape(self.shape) if len(self.pieces.starts) else np.zeros(self.shape, np.int64)

    @property
    def real(self) -> np.ndarray:
        """Where `positions` matter, bool of their shape."""
        made = np.zeros(self.count, bool)
        made[self.pieces.runs.numbers()] = True
        return made.reshape(self.shape)

    def of(self, flat: Array) -> Array:
        """The words, in their shape."""
        if not len(self.pieces.starts):
            return lax.full(self.shape, 0, flat.dtype)
        if self.start is not None:
            stop = min(self.start + self.count, flat.size)
            behind = self.count - (stop - self.start)
            if not behind or behind % self.shape[-1] == 0:  # whole rows, of which nothing matters
                found = slice_(flat, (self.start,), (stop,), (1,))
                padded = lax.pad(found, jnp.zeros((), flat.dtype), [(0, behind, 0)]) if behind else found
                return reshape(padded, self.shape)
        return reshape(taken(flat, self._begins.array(), self._together), self.shape)
