"""Pieces: integers that stand for others, stretch by stretch.

Which element a word holds, and where an element comes from, is mostly a few long stretches along which both run on
together. Such maps are put one behind the other, and turned round, by the ends of their pieces, and never listed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from lowering.plan.runs import Runs, difference, overlaps, ranks, union


class Pieces(NamedTuple):
    """The numbers from each start up to its stop, and what each start stands for: int64 arrays of one length.

    The pieces are in order and do not overlap. What follows a number in a piece stands for what follows there too.
    """

    starts: np.ndarray
    stops: np.ndarray
    origins: np.ndarray

    @property
    def runs(self) -> Runs:
        """The numbers that stand for any, which may be side by side."""
        return Runs(self.starts, self.stops)

    @property
    def lengths(self) -> np.ndarray:
        """How many numbers each piece holds."""
        return self.stops - self.starts

    @property
    def moves(self) -> np.ndarray:
        """By how much what each piece stands for is further."""
        return self.origins - self.starts

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """What some numbers stand for, all of which are in pieces."""
        return numbers + self.moves[ranks(self.stops, numbers, "right")]

    def follow(self, numbers: np.ndarray, count: int) -> np.ndarray:
        """For each of some numbers, all in pieces, whether what so many from it on stand for follows on too."""
        return self.stops[ranks(self.stops, numbers, "right")] >= numbers + count

    def moved(self, starts: np.ndarray | int, origins: np.ndarray | int) -> Pieces:
        """The same from so many numbers on, and standing for what is so many numbers further."""
        return pieces_of(self.starts + starts, self.origins + origins, self.lengths)

    def then(self, other: Pieces) -> Pieces:
        """What that stands for which these numbers stand for.

        >>> pieces_of([0, 5], [7, 2], [3, 2]).then(pieces_of([1], [40], [8]))
        Pieces(starts=array([0, 5]), stops=array([2, 7]), origins=array([46, 41]))
        """
        found = overlaps(self.origins, self.origins + self.lengths, other.runs)
        starts = found.starts - self.moves[found.first]
        origins = found.starts + other.moves[found.second]
        return pieces_of(starts, origins, found.stops - found.starts)

    def over(self, other: Pieces) -> Pieces:
        """What these numbers stand for, and what other numbers do by another map.

        >>> pieces_of([2], [50], [2]).over(pieces_of([0], [10], [5]))
        Pieces(starts=array([0, 2, 4]), stops=array([2, 4, 5]), origins=array([10, 50, 14]))
        """
        rest = difference(union(other.starts, other.stops), union(self.starts, self.stops))
        return side_by_side([self, pieces_of(rest.starts, rest.starts, rest.lengths).then(other)])

    def inverse(self) -> Pieces:
        """What stands for each number that any stands for, of which there is only one."""
        return pieces_of(self.origins, self.starts, self.lengths)


def _joined(starts: np.ndarray, origins: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Stretches, with those joined that run on from the one before."""
    breaks = (starts[1:] != starts[:-1] + lengths[:-1]) | (origins[1:] != origins[:-1] + lengths[:-1])
    if breaks.all():
        return starts, origins, lengths
    first = np.concatenate([[0], np.flatnonzero(breaks) + 1])
    return starts[first], origins[first], np.add.reduceat(lengths, first)


def pieces_of(starts: ArrayLike, origins: ArrayLike, lengths: ArrayLike) -> Pieces:
    """Stretches of numbers, which do not overlap but may be in any order, and what each start stands for.

    >>> pieces_of([4, 0, 2], [14, 30, 12], 2)
    Pieces(starts=array([0, 2]), stops=array([2, 6]), origins=array([30, 12]))
    """
    starts, origins = (np.asarray(column, np.int64).reshape(-1) for column in (starts, origins))
    lengths = np.broadcast_to(np.asarray(lengths, np.int64), starts.shape)
    if not lengths.all():
        starts, origins, lengths = (column[lengths > 0] for column in (starts, origins, lengths))
    starts, origins, lengths = _joined(starts, origins, lengths)
    if (starts[1:] < starts[:-1]).any():
        order = np.argsort(starts, kind="stable")
        starts, origins, lengths = _joined(starts[order], origins[order], lengths[order])
    return Pieces(starts, starts + lengths, origins)


def side_by_side(pieces: list[Pieces]) -> Pieces:
    """All of several maps, no number of which is in two."""
    return pieces_of(
        np.concatenate([own.starts for own in pieces]),
        np.concatenate([own.origins for own in pieces]),
        np.concatenate([own.lengths for own in pieces]),
    )
