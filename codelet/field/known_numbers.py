"""Facts about numbers by their residues, wherever they are met: in other vertices and iterations of loops as well."""

from __future__ import annotations

import numpy as np

from codelet.field.hashing import words_of

MOST_KEPT = 1 << 22
"""Numbers; what is met beyond them is not kept, so that less is found equal."""


_MASK = (1 << 20) - 1
"""Of the first residue of a number: what no known number begins with is not looked up."""


class KnownNumbers:
    """A table of numbers, by two words each, with a column of residues for each of them.

    Attributes:
        kept: how many there are.
    """

    def __init__(self) -> None:
        self.kept = 0
        self._begins = np.zeros(_MASK + 1, bool)
        self._first = self._second = np.zeros(0, np.uint64)
        self._columns: np.ndarray | None = None  # (..., numbers)
        self._new: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []

    def keep(self, numbers: np.ndarray, columns: np.ndarray) -> None:
        """Keep numbers, (draws, numbers), with the facts about them, (..., numbers); not if there are too many."""
        if numbers.shape[1] and self.kept + numbers.shape[1] <= MOST_KEPT:
            self._new.append((*words_of(numbers), columns))
            self._begins[numbers[0] & _MASK] = True
            self.kept += numbers.shape[1]

    def find(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray] | None:
        """The numbers, (draws, ...), with a known fact, and the facts: (..., so many). None where of none is."""
        may = self._begins[numbers[0] & _MASK]
        if not may.any():
            return None
        if self._new:
            self._join()
        assert self._columns is not None
        first, second = words_of(numbers[:, may])
        at = np.minimum(np.searchsorted(self._first, first), len(self._first) - 1)
        is_it = (self._first[at] == first) & (self._second[at] == second)
        if not is_it.any():
            return None
        is_known = np.zeros(may.shape, bool)
        is_known[may] = is_it
        return is_known, self._columns[..., at[is_it]]

    def _join(self) -> None:
        """Merge new numbers in order with the old ones."""
        firsts, seconds, columns = zip(*self._new, strict=True)
        old = () if self._columns is None else (self._columns,)
        first, second = np.concatenate([self._first, *firsts]), np.concatenate([self._second, *seconds])
        _, chosen = np.unique(first, return_index=True)  # what was met first stays
        self._first, self._second = first[chosen], second[chosen]
        self._columns = np.concatenate([*old, *columns], -1)[..., chosen]
        self._new, self.kept = [], len(chosen)
