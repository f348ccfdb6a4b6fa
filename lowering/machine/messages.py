"""Messages: the runs of elements that a tile sends to another, or to several together.

In come stretches of elements with who sends or receives them. Out come bytes, whole words and messages by tile, and of
which elements all receivers are whole pairs of tiles: 2k and 2k + 1 share a bus, so that what goes to both alone may go
at twice the rate, as PopLibs' planners reckon where consecutive receivers of one datum are even in number
(ExchangeEstimator.cpp @ 06f1b393).
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from codelet.target import Target
from lowering.plan.runs import NONE, Runs, difference, intersection, runs_of, union, union_of


@dataclass(frozen=True, eq=False)
class Messages:
    """What tiles send, or what they receive: arrays of one length, each entry consecutive elements.

    One that is longer than the target's messages are is several.

    Attributes:
        tiles: who sends or receives each.
        num_bytes: of each, int64.
        elements: the first of each.
        target: the machine.
        leaders: where all tiles of one leader have the same, but for what lives there: the leader of each tile.
        homes: then, where each lives, int32.
    """

    tiles: np.ndarray
    num_bytes: np.ndarray
    elements: np.ndarray
    target: Target
    leaders: np.ndarray | None = None
    homes: np.ndarray | None = None

    @functools.cached_property
    def words(self) -> np.ndarray:
        """Whole words of each, int64."""
        return -(-self.num_bytes // self.target.word_bytes)

    @functools.cached_property
    def are_words(self) -> bool:
        """Whether each is of whole words."""
        return not (self.num_bytes % self.target.word_bytes).any()

    def by_tile(self, weights: np.ndarray | None = None) -> np.ndarray:
        """How many each tile has, or weights of them summed: int64 of shape (num_tiles,)."""
        # Sums of integers below 2**53, which floats hold exactly.
        found = np.bincount(self.tiles, weights, self.target.num_tiles)
        if self.leaders is not None and self.homes is not None:
            (there,) = np.nonzero(self.leaders[self.homes] == self.tiles)
            own = None if weights is None else weights[there]
            found = found[self.leaders] - np.bincount(self.homes[there], own, self.target.num_tiles)
        return found.astype(np.int64)

    @functools.cached_property
    def bytes_by_tile(self) -> np.ndarray:
        """Bytes of each tile, int64 of shape (num_tiles,)."""
        return self.by_tile(self.num_bytes)

    @functools.cached_property
    def words_by_tile(self) -> np.ndarray:
        """Words of each tile, int64 of shape (num_tiles,)."""
        if self.are_words:
            return self.bytes_by_tile // self.target.word_bytes
        return self.by_tile(self.words)

    @property
    def count_by_tile(self) -> np.ndarray:
        """Messages of each tile, int64 of shape (num_tiles,)."""
        most = self.target.max_message_words
        are_short = self.num_bytes.max(initial=0) <= most * self.target.word_bytes
        return self.by_tile(None if are_short else -(-self.words // most))


def sent_to_pairs(
    tiles: np.ndarray, starts: np.ndarray, stops: np.ndarray, count: int, *, counted: bool = False
) -> Runs:
    """Of elements that tiles receive those that only whole pairs do, both tiles 2k and 2k + 1.

    Args:
        tiles: who receives each stretch of elements, rising.
        starts: where each begins.
        stops: where each ends.
        count: more than the number of any element.
        counted: whether to count for each element who receives it, which is faster for as many stretches.

    >>> two = np.array([0, 0]), np.array([4, 3])
    >>> sent_to_pairs(np.array([2, 3]), *two, 10)
    Runs(starts=array([0]), stops=array([3]))
    >>> sent_to_pairs(np.array([1, 2]), *two, 10).starts
    array([], dtype=int64)
    """
    pairs, odd = np.divmod(tiles, 2)
    first, second = (Runs((starts + pairs * count)[own], (stops + pairs * count)[own]) for own in (odd == 0, odd == 1))
    both = intersection(first, second)
    if not len(both.starts):
        return NONE
    if counted:
        everyone, in_pairs = (
            np.cumsum(np.bincount(first, minlength=count + 1) - np.bincount(last, minlength=count + 1))
            for first, last in ((starts, stops), (both.starts % count, both.starts % count + both.lengths))
        )
        return runs_of(np.flatnonzero((everyone == 2 * in_pairs) & (everyone > 0)))
    halves = union_of([difference(first, both), difference(second, both)])
    whole, half = (union(own.starts % count, own.starts % count + own.lengths) for own in (both, halves))
    return difference(whole, half)
