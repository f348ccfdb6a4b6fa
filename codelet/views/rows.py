"""Rows: whose elements are whose in a flat dimension that holds a row of another length for each vertex."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from codelet.errors import ViewError
from codelet.saving import Unchanging
from codelet.views.grids import Axis, union_axes
from codelet.views.integers import blocks_of, narrowest, unwritable

LENGTH_NAMES = ("n", "m", "k", "l", "p", "q", "r", "s")
"""What symbols for the lengths of rows are called."""

MAX_ELEMENTS = 2**31 - 1
"""The most elements that all vertices together may have of a ragged dimension."""


class RowLength(int):
    """The number of elements of all rows together, in the shape of a view of which every vertex sees one row.

    In print it is the symbol for the length of a row: `(n, 3)`.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return LENGTH_NAMES[0]


KEPT = 1 << 18
"""Of so many rows or elements at most are arrays kept that can be made of the lengths again."""

_STRETCH = 256
"""Rows; where each stretch of so many starts is kept, of however many rows."""


def _kept_where_small(made: Callable[[Rows], np.ndarray]) -> Any:
    """An array of rows as a property, made again whenever it is asked for where it is large."""
    name = f"_{made.__name__}"

    @functools.wraps(made)
    def own(self: Rows) -> np.ndarray:
        array = self.__dict__.get(name)
        if array is None:
            array = unwritable(made(self))
            if len(array) <= KEPT:
                self.__dict__[name] = array
        return array

    return property(own)


class Block(NamedTuple):
    """Some rows, one after another.

    Attributes:
        first: the number of the first.
        lengths: of each, int64.
        offsets: where each starts among all elements, int64.
        elements: all of theirs.
    """

    first: int
    lengths: np.ndarray
    offsets: np.ndarray
    elements: slice


@dataclass(frozen=True, init=False, eq=False, repr=False)
class Rows(Unchanging):
    """Whose elements are whose in a flat dimension: a row for each position of `axes`, in row-major order.

    There may be as many rows as elements, so that little is stored for each: its length, in a byte where that is
    enough.

    Attributes:
        axes: the grid axes that choose a row.
        counts: the number of elements of each row, unsigned, in the narrowest dtype; to count with, take `lengths`.
    """

    axes: tuple[Axis, ...]
    counts: np.ndarray

    def __init__(self, axes: tuple[Axis, ...], lengths: np.ndarray):
        object.__setattr__(self, "axes", axes)
        object.__setattr__(self, "counts", unwritable(narrowest(lengths)))
        if self.total > MAX_ELEMENTS:
            raise ViewError(
                "a ragged view has too many elements",
                given=f"{self.total:,} elements at all positions of the grid",
                expected=f"at most {MAX_ELEMENTS:,}",
            )

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.counts)

    @property
    def total(self) -> int:
        """The number of elements of all rows."""
        return int(self._stretches[-1])

    @functools.cached_property
    def _stretches(self) -> np.ndarray:
        """Where every so many rows start among all elements, and where the last one ends: int64."""
        if not self.count:
            return np.zeros(1, np.int64)
        sums = np.add.reduceat(self.counts, np.arange(0, self.count, _STRETCH), dtype=np.int64)
        return np.concatenate([[0], np.cumsum(sums)])

    @_kept_where_small
    def lengths(self) -> np.ndarray:
        """The number of elements of each row, int64."""
        return self.counts.astype(np.int64)

    @_kept_where_small
    def offsets(self) -> np.ndarray:
        """Where each row starts among all elements, and where the last one ends: int64, one more than there are rows.

        They never decrease, from 0.
        """
        made = np.zeros(self.count + 1, np.int64)
        np.cumsum(self.counts, out=made[1:])
        return made

    @_kept_where_small
    def owners(self) -> np.ndarray:
        """The row of each element, int32."""
        made = np.empty(self.total, np.int32)
        for block in self.blocks():
            made[block.elements] = np.repeat(np.arange(block.first, block.first + len(block.lengths)), block.lengths)
        return made

    @_kept_where_small
    def places(self) -> np.ndarray:
        """The place of each element within its row, int64."""
        made = np.arange(self.total)
        for block in self.blocks():
            made[block.elements] -= np.repeat(block.offsets, block.lengths)
        return made

    @functools.cached_property
    def occurring(self) -> np.ndarray:
        """The lengths that occur, each once, the shortest first: int64."""
        occurs = np.zeros(int(self.counts.max(initial=0)) + 1, bool)
        for (lengths,) in blocks_of(self.counts):
            occurs[lengths] = True
        return np.flatnonzero(occurs)

    @functools.cached_property
    def digest(self) -> bytes:
        """Equal for rows of the same lengths."""
        return hashlib.blake2b(self.counts.view(np.uint8).data, digest_size=16).digest()

    @property
    def key(self) -> Hashable:
        """Equal for rows of the same lengths over the same axes."""
        return self.axes, self.count, self.digest

    def blocks(self) -> Iterator[Block]:
        """All rows, so many at once that intermediate results are small beside them."""
        step = 64 * _STRETCH
        for first in range(0, self.count, step):
            lengths = self.counts[first : first + step].astype(np.int64)
            starts = self._stretches[first // _STRETCH]
            ends = np.cumsum(lengths) + starts
            yield Block(first, lengths, ends - lengths, slice(int(starts), int(ends[-1])))

    def row(self, positions: Mapping[Axis, int]) -> slice:
        """The elements of the row at a position of the grid."""
        number = 0
        for axis in self.axes:
            number = number * axis.extent + positions[axis]
        return self.elements(number)

    def elements(self, number: int) -> slice:
        """The elements of a row by its number."""
        start = number - number % _STRETCH
        first = int(self._stretches[number // _STRETCH] + self.counts[start:number].sum(dtype=np.int64))
        return slice(first, first + int(self.counts[number]))

    def position(self, axis: Axis) -> np.ndarray:
        """The position along one of `axes` of each element's row."""
        after = math.prod(other.extent for other in self.axes[self.axes.index(axis) + 1 :])
        if axis == self.axes[0]:
            return self.owners if after == 1 else self.owners // after
        return self.owners // after % axis.extent

    def __repr__(self) -> str:
        if not self.count:
            return "no rows"
        least, most = int(self.counts.min()), int(self.counts.max())
        return f"{self.count:,} rows of {least:,} to {most:,}, {self.total:,} in all"


@dataclass(frozen=True, eq=False)
class Together:
    """Rows of several kinds over one grid.

    Attributes:
        kinds: the rows.
        axes: of all of them.
    """

    kinds: Sequence[Rows]
    axes: tuple[Axis, ...]

    def numbers(self, kind: int) -> np.ndarray:
        """The number of the row of a kind at each position of `axes`, int64 of shape (positions,)."""
        rows = self.kinds[kind]
        own = np.arange(rows.count).reshape([axis.extent if axis in rows.axes else 1 for axis in self.axes])
        return np.broadcast_to(own, [axis.extent for axis in self.axes]).reshape(-1)

    @property
    def lengths(self) -> np.ndarray:
        """Those that occur together, each once, in order: int64 of shape (groups, kinds of rows)."""
        return self._groups[0] if len(self.kinds) > 1 else self.kinds[0].occurring[:, None]

    @property
    def group_of(self) -> np.ndarray:
        """Which of `lengths` there is at each position of `axes`, of shape (positions,)."""
        if len(self.kinds) > 1:
            return self._groups[1]
        rows = self.kinds[0]
        number = np.zeros(int(rows.counts.max(initial=0)) + 1, np.int32)
        number[rows.occurring] = np.arange(len(rows.occurring))
        return number[rows.counts]

    @functools.cached_property
    def _groups(self) -> tuple[np.ndarray, np.ndarray]:
        own = [rows.lengths[self.numbers(kind)] for kind, rows in enumerate(self.kinds)]
        found, group_of = np.unique(np.stack(own, 1), axis=0, return_inverse=True)
        return found, group_of.reshape(-1)


def together(kinds: Iterable[Rows]) -> Together:
    """Rows of several kinds, over the axes of all of them."""
    kinds = tuple(kinds)
    return Together(kinds, union_axes([rows.axes for rows in kinds]))
