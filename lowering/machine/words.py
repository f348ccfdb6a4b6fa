"""Words: where on its tile each element of a variable lies.

In comes the tile of each element, out comes one numbering that whatever holds elements on tiles shares. There is a
row for every tile of a placement, the same for all variables, and on a tile the words of a variable are its elements
there in their own order. So what follows in a variable and lives on one tile follows there too, and the numbering
is held by such stretches.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from lowering.machine.pieces import Pieces, pieces_of
from lowering.plan.runs import Runs, stretches


def cyclic(starts: np.ndarray, counts: np.ndarray, width: int) -> np.ndarray:
    """For each row the numbers from its start on, as many as it has, over and over: (rows, width)."""
    return starts[:, None] + np.arange(width) % np.maximum(counts, 1)[:, None]


@dataclass(frozen=True, eq=False)
class Words:
    """Where the elements of a variable lie in an array of tiles by words.

    Attributes:
        counts: how many elements each row holds, int64 of shape (rows,).
        runs: the stretches of elements that live on one tile, side by side, by their positions in the variable.
        rows: the row of each stretch.
        first_words: the word of the first element of each.
    """

    counts: np.ndarray
    runs: Runs
    rows: np.ndarray
    first_words: np.ndarray

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and words of the array: as many words as the row with most of them holds."""
        return len(self.counts), int(self.counts.max(initial=0))

    @functools.cached_property
    def pieces(self) -> Pieces:
        """The `row * words + word` that each element stands for."""
        return pieces_of(self.runs.starts, self.rows * self.shape[1] + self.first_words, self.runs.lengths)

    @functools.cached_property
    def addresses(self) -> np.ndarray:
        """`row * words + word` of each element, int64 of shape (size,)."""
        return self.pieces.at(np.arange(int(self.runs.lengths.sum())))

    @functools.cached_property
    def elements(self) -> np.ndarray:
        """The element at each word, of shape (rows, words).

        What is behind a row's last element repeats the elements from its first one on, so that what is computed from
        there is as finite as the rest; nothing of it is ever read back.
        """
        order = np.argsort(self.rows, kind="stable")
        elements = Runs(self.runs.starts[order], self.runs.stops[order]).numbers()
        if not len(elements):
            return np.zeros(self.shape, np.int64)
        # A row without elements takes the first ones as they follow each other: in XLA a slice rather than words.
        counts = np.where(self.counts > 0, self.counts, len(elements))
        starts = np.where(self.counts > 0, np.cumsum(self.counts) - self.counts, 0)
        return elements[cyclic(starts, counts, self.shape[1])]

    @property
    def real(self) -> np.ndarray:
        """Where `elements` are those of the row, each once, bool of shape (rows, words)."""
        return np.arange(self.shape[1]) < self.counts[:, None]


def number_words(tiles: np.ndarray, axis: np.ndarray) -> Words:
    """The words of a variable.

    Args:
        tiles: the tile of each element, of shape (size,).
        axis: the tile of each row, rising, all of `tiles` among them.

    >>> words = number_words(np.array([3, 0, 3, 3]), np.array([0, 1, 3]))
    >>> words.elements.tolist(), words.addresses.tolist()
    ([[1, 1, 1], [1, 0, 2], [0, 2, 3]], [6, 0, 7, 8])
    """
    runs, homes = stretches(tiles)
    rows = np.searchsorted(axis, homes)
    order = np.argsort(rows.astype(np.uint16 if len(axis) < 1 << 16 else np.int64), kind="stable")  # as for `balanced`
    lengths = runs.lengths[order]
    counts = np.bincount(rows, runs.lengths, len(axis)).astype(np.int64)
    first_words = np.empty(len(rows), np.int64)
    first_words[order] = np.cumsum(lengths) - lengths - (np.cumsum(counts) - counts)[rows[order]]
    return Words(counts, runs, rows, first_words)
