"""Rows: whose elements are whose in a flat dimension that holds a row of another length for each vertex."""

from __future__ import annotations

import functools
import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from codelet.errors import ViewError
from codelet.saving import Unchanging
from codelet.views.grids import Axis, union_axes
from codelet.views.integers import unwritable

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


@dataclass(frozen=True, eq=False, repr=False)
class Rows(Unchanging):
    """Whose elements are whose in a flat dimension: a row for each position of `axes`, in row-major order.

    Attributes:
        axes: the grid axes that choose a row.
        lengths: the number of elements of each row, int64.
    """

    axes: tuple[Axis, ...]
    lengths: np.ndarray

    def __post_init__(self) -> None:
        object.__setattr__(self, "lengths", unwritable(np.array(self.lengths, np.int64)))
        if self.total > MAX_ELEMENTS:
            raise ViewError(
                "a ragged view has too many elements",
                given=f"{self.total:,} elements at all positions of the grid",
                expected=f"at most {MAX_ELEMENTS:,}",
            )

    @property
    def count(self) -> int:
        """The number of rows."""
        return len(self.lengths)

    @property
    def total(self) -> int:
        """The number of elements of all rows."""
        return int(self.offsets[-1])

    @functools.cached_property
    def offsets(self) -> np.ndarray:
        """Where each row starts among all elements, and where the last one ends: int64, one more than there are rows.

        They never decrease, from 0.
        """
        return unwritable(np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)]))

    @functools.cached_property
    def owners(self) -> np.ndarray:
        """The row of each element, int32."""
        return np.repeat(np.arange(self.count, dtype=np.int32), self.lengths)

    @functools.cached_property
    def places(self) -> np.ndarray:
        """The place of each element within its row, int64."""
        return np.arange(self.total) - self.offsets[self.owners]

    @functools.cached_property
    def key(self) -> Hashable:
        """Equal for rows of the same lengths over the same axes."""
        return self.axes, self.lengths.tobytes()

    def row(self, positions: Mapping[Axis, int]) -> slice:
        """The elements of the row at a position of the grid."""
        number = 0
        for axis in self.axes:
            number = number * axis.extent + positions[axis]
        return slice(int(self.offsets[number]), int(self.offsets[number + 1]))

    def position(self, axis: Axis) -> np.ndarray:
        """The position along one of `axes` of each element's row."""
        after = math.prod(other.extent for other in self.axes[self.axes.index(axis) + 1 :])
        return self.owners // after % axis.extent

    def __repr__(self) -> str:
        if not self.count:
            return "no rows"
        least, most = int(self.lengths.min()), int(self.lengths.max())
        return f"{self.count:,} rows of {least:,} to {most:,}, {self.total:,} in all"


class Together(NamedTuple):
    """Rows of several kinds over one grid: the axes of all, and for each position the number of each kind's row.

    `numbers` is of shape (positions of `axes`, kinds of rows), `lengths` as well: those of the rows.
    """

    axes: tuple[Axis, ...]
    numbers: np.ndarray
    lengths: np.ndarray


def together(kinds: Sequence[Rows]) -> Together:
    """Rows of several kinds, over the axes of all of them."""
    axes = union_axes([rows.axes for rows in kinds])
    extents = [axis.extent for axis in axes]
    numbers = []
    for rows in kinds:
        own = np.arange(rows.count).reshape([axis.extent if axis in rows.axes else 1 for axis in axes])
        numbers.append(np.broadcast_to(own, extents).reshape(-1))
    lengths = [rows.lengths[own] for rows, own in zip(kinds, numbers, strict=True)]
    return Together(axes, np.stack(numbers, 1), np.stack(lengths, 1))


def groups_of(lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The lengths that occur together, each once, in order, and for each position which of them it has.

    `lengths` is of shape (positions, kinds of rows).
    """
    if lengths.shape[1] == 1:
        # As numpy.unique, which sorts: lengths are small numbers.
        occurs = np.bincount(lengths[:, 0]) > 0
        return np.flatnonzero(occurs)[:, None], (np.cumsum(occurs) - 1)[lengths[:, 0]]
    found, group_of = np.unique(lengths, axis=0, return_inverse=True)
    return found, group_of.reshape(-1)
