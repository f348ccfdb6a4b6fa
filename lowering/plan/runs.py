"""Sets of integers as runs: sorted, disjoint, and apart from each other by a number at least.

What a tile reads of a variable is mostly a few long stretches of it, so that sets of elements are joined,
cut and counted by their ends, and never listed. All is by sorting and by binary search on the ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np

_MANY = 1 << 16
"""So many ends are looked up by counting."""

_BLOCK = 1 << 22
"""So many values are compared at once."""


class Runs(NamedTuple):
    """The integers from each start up to, but not including, its stop: int64 arrays of one length."""

    starts: np.ndarray
    stops: np.ndarray

    @property
    def lengths(self) -> np.ndarray:
        """How many integers each run holds."""
        return self.stops - self.starts

    def numbers(self) -> np.ndarray:
        """All integers, in order, int64."""
        lengths = self.lengths
        ends = np.cumsum(lengths)
        if not len(ends):
            return np.zeros(0, np.int64)
        return np.arange(ends[-1]) + np.repeat(self.starts - (ends - lengths), lengths)

    def places(self, numbers: np.ndarray) -> np.ndarray:
        """Which of all integers, in order, each of some of them is: the inverse of `numbers`.

        >>> Runs(np.array([3, 8]), np.array([5, 9])).places(np.array([8, 3, 4]))
        array([2, 0, 1])
        """
        if not numbers.size:
            return np.zeros(numbers.shape, np.int64)
        run = ranks(self.starts, numbers, "right") - 1
        assert run.min() >= 0
        assert (numbers < self.stops[run]).all()
        lengths = self.lengths
        return numbers + (np.cumsum(lengths) - lengths - self.starts)[run]


NONE = Runs(np.zeros(0, np.int64), np.zeros(0, np.int64))


def _are_runs(starts: np.ndarray, stops: np.ndarray) -> bool:
    return not len(starts) or bool((stops[:-1] < starts[1:]).all() and (starts < stops).all())


def union(starts: np.ndarray, stops: np.ndarray) -> Runs:
    """The integers of any number of stretches, which may overlap and be in any order; empty ones are allowed.

    With starts and stops each sorted by themselves, a run begins at the k-th start where the stop before,
    the (k-1)-th, is less: then all stretches that began earlier have ended.

    >>> union(np.array([7, 0, 2]), np.array([9, 3, 5]))
    Runs(starts=array([0, 7]), stops=array([5, 9]))
    """
    if _are_runs(starts, stops):
        return Runs(starts, stops)
    filled = starts < stops
    if not filled.all():
        starts, stops = starts[filled], stops[filled]
    if not len(starts):
        return NONE
    lengths = stops - starts
    # Stretches come as a few sets of runs, each sorted, mostly: merge sort goes through what is in order at once.
    starts = np.sort(starts, kind="stable")
    stops = starts + lengths[0] if (lengths == lengths[0]).all() else np.sort(stops, kind="stable")
    apart = starts[1:] > stops[:-1]
    return Runs(starts[np.append(True, apart)], stops[np.append(apart, True)])


def runs_of(numbers: np.ndarray) -> Runs:
    """Integers in increasing order as runs.

    >>> runs_of(np.array([3, 4, 8]))
    Runs(starts=array([3, 8]), stops=array([5, 9]))
    """
    if not len(numbers):
        return NONE
    apart = numbers[1:] != numbers[:-1] + 1
    return Runs(numbers[np.append(True, apart)], numbers[np.append(apart, True)] + 1)


def each_once(numbers: np.ndarray) -> np.ndarray:
    """The different numbers of some, rising: by sorting, which takes half of what NumPy's hashing does for millions.

    >>> each_once(np.array([3, 1, 3]))
    array([1, 3])
    """
    ordered = np.sort(numbers)
    return ordered[np.append(True, ordered[1:] != ordered[:-1])] if len(ordered) else ordered


def sums_of(keys: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The different numbers of some, rising, and of each the sum of the weights.

    >>> sums_of(np.array([3, 1, 3]), np.array([10, 20, 30]))
    (array([1, 3]), array([20, 40]))
    """
    order = np.argsort(keys, kind="stable")
    keys, weights = keys[order], weights[order]
    if not len(keys):
        return keys, weights
    (first,) = np.nonzero(np.append(True, keys[1:] != keys[:-1]))
    return keys[first], np.add.reduceat(weights, first)


def union_of(sets: Sequence[Runs]) -> Runs:
    """The integers of any of several sets."""
    if len(sets) < 2:
        return sets[0] if sets else NONE
    return union(np.concatenate([s.starts for s in sets]), np.concatenate([s.stops for s in sets]))


def ranks(ordered: np.ndarray, numbers: np.ndarray, side: Literal["left", "right"]) -> np.ndarray:
    """As `numpy.searchsorted`; by counting where there are many of both, which then takes a tenth as long.

    >>> ranks(np.array([3, 5, 5]), np.array([2, 5, 9]), "right")
    array([0, 3, 3])
    """
    if min(len(ordered), len(numbers)) < _MANY or ordered[-1] - ordered[0] > 4 * len(numbers):
        return np.searchsorted(ordered, numbers, side=side)
    first = ordered[0] - 1
    until = np.cumsum(np.bincount(ordered - first), dtype=np.int64)
    return until[np.clip(numbers - (first if side == "right" else first + 1), 0, len(until) - 1)]


class Overlaps(NamedTuple):
    """The stretches that stretches and runs have in common: their ends, and of which stretch and run each is."""

    starts: np.ndarray
    stops: np.ndarray
    first: np.ndarray
    second: np.ndarray


def overlaps(starts: np.ndarray, stops: np.ndarray, runs: Runs) -> Overlaps:
    """All that stretches, in any order, and runs have in common, stretch by stretch."""
    low = ranks(runs.stops, starts, "right")
    counts = np.maximum(ranks(runs.starts, stops, "left") - low, 0)
    ends = np.cumsum(counts)
    first = np.repeat(np.arange(len(starts)), counts)
    second = np.arange(len(first)) + np.repeat(low - (ends - counts), counts)
    return Overlaps(
        np.maximum(starts[first], runs.starts[second]), np.minimum(stops[first], runs.stops[second]), first, second
    )


def intersection(a: Runs, b: Runs) -> Runs:
    """The integers of both sets.

    >>> intersection(Runs(np.array([0, 7]), np.array([5, 9])), Runs(np.array([3]), np.array([8])))
    Runs(starts=array([3, 7]), stops=array([5, 8]))
    """
    few, many = (a, b) if len(a.starts) <= len(b.starts) else (b, a)
    found = overlaps(few.starts, few.stops, many)
    return Runs(found.starts, found.stops)


def _difference_of_few(a: Runs, b: Runs) -> Runs:
    """The same as `difference`, where the second set is of more runs than the first: of them only those near count."""
    # The k-th gap of `b` ends where its k-th run begins, and begins where the run before ends.
    low = ranks(b.starts, a.starts, "right")
    counts = np.maximum(ranks(b.stops, a.stops, "left") + 1 - low, 0)
    ends = np.cumsum(counts)
    first = np.repeat(np.arange(len(counts)), counts)
    gaps = np.arange(len(first)) + np.repeat(low - (ends - counts), counts)
    starts, stops, last = a.starts[first], a.stops[first], len(b.starts)
    begun = np.where(gaps > 0, b.stops[gaps - 1], starts)
    ended = np.where(gaps < last, b.starts[np.minimum(gaps, last - 1)], stops)
    return Runs(np.maximum(starts, begun), np.minimum(stops, ended))


def difference(a: Runs, b: Runs) -> Runs:
    """The integers of the first set that are not in the second.

    >>> difference(Runs(np.array([0, 7]), np.array([5, 9])), Runs(np.array([3]), np.array([8])))
    Runs(starts=array([0, 8]), stops=array([3, 9]))
    """
    if not len(a.starts) or not len(b.starts):
        return a
    # What is around `a` of the gaps between the runs of `b`.
    low = int(np.searchsorted(b.stops, a.starts[0], side="right"))
    high = int(np.searchsorted(b.starts, a.stops[-1], side="left"))
    if low >= high:
        return a
    if len(a.starts) < high - low:
        return _difference_of_few(a, Runs(b.starts[low:high], b.stops[low:high]))
    ends = [min(int(a.starts[0]), int(b.starts[low])) - 1], [max(int(a.stops[-1]), int(b.stops[high - 1])) + 1]
    gaps = Runs(np.concatenate([ends[0], b.stops[low:high]]), np.concatenate([b.starts[low:high], ends[1]]))
    return intersection(a, gaps)


def stretches(values: np.ndarray) -> tuple[Runs, np.ndarray]:
    """Where an array holds one value: its maximal stretches of equal values, side by side, and the value of each."""
    if not len(values):
        return NONE, values
    last = len(values) - 1
    blocks = ((start, min(start + _BLOCK, last)) for start in range(0, last, _BLOCK))
    changes = [np.flatnonzero(values[a + 1 : b + 1] != values[a:b]) + (a + 1) for a, b in blocks]
    ends = np.concatenate([[0], *changes, [len(values)]])
    return Runs(ends[:-1], ends[1:]), values[ends[:-1]]
