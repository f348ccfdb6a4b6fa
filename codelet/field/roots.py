"""Roots: the numbers whose squares are known, which a field alone does not say.

A power stands for the square root, so that that of a product is the product of those of its factors. Its square is the
number, or the negative of it, by chance. So whatever is multiplied by itself is looked up among the roots that were
taken.
"""

from __future__ import annotations

import numpy as np

from codelet.field.arithmetic import inverse, root
from codelet.field.known_numbers import KnownNumbers


class Roots:
    """The known squares of numbers."""

    def __init__(self) -> None:
        self._known = KnownNumbers()

    @property
    def any(self) -> bool:
        """Whether something is known."""
        return bool(self._known.kept)

    def root(self, numbers: np.ndarray) -> np.ndarray:
        """The square roots of residues, (draws, ...)."""
        made = root(numbers)
        self._keep(made, numbers)
        return made

    def reciprocal(self, numbers: np.ndarray) -> np.ndarray:
        """The numbers that make one with the square roots."""
        made = inverse(root(numbers))
        self._keep(made, inverse(numbers))
        return made

    def _keep(self, roots: np.ndarray, squares: np.ndarray) -> None:
        flat = (own.reshape(len(own), -1) for own in (roots, squares))
        self._known.keep(*flat)

    def product(self, first: np.ndarray, second: np.ndarray, made: np.ndarray) -> np.ndarray:
        """The product of residues, which is `made` but for roots times themselves."""
        if not self._known.kept or first.shape != second.shape or not first.size:
            return made
        is_square = first is second or (first == second).all(0)
        if not np.any(is_square):
            return made
        found = self._known.find(first)
        if found is None:
            return made
        is_known, squares = found
        made = np.array(made)
        made[:, is_known & is_square] = squares[:, np.broadcast_to(is_square, is_known.shape)[is_known]]
        return made
