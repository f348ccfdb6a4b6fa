"""Row boxes: words of every row at even steps along a few dimensions, as slices.

In come where they begin and the steps; out come the words of all rows, by slices and a reshape. XLA computes from them
where they are, while for a gather from each row it writes out two numbers for every word.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

from jax import lax

from lowering.arrays import Array, reshape, slice_, transpose


class RowBox(NamedTuple):
    """Words of a row, at steps along a few dimensions.

    Attributes:
        start: the place of the first.
        lengths: of the dimensions that the row from there on is taken as, the slowest first.
        extents: how many places of each are taken, from the first.
        order: which of these dimensions each of what is taken is.
    """

    start: int
    lengths: tuple[int, ...]
    extents: tuple[int, ...]
    order: tuple[int, ...]

    def of(self, rows: Array) -> Array:
        """The words of every row, of an array of rows by words: a dimension for each after that of the rows."""
        stop = self.start + math.prod(self.lengths)
        missing = max(0, stop - rows.shape[1])
        if missing:
            # What does not matter reaches beyond the row; it is to be of real values, as codelets expect them.
            rows = lax.concatenate([rows, rows[:, :missing]], 1)
        found = slice_(rows, (0, self.start), (len(rows), stop))
        found = reshape(found, (len(rows), *self.lengths))
        found = slice_(found, [0] * found.ndim, (len(rows), *self.extents))
        found = reshape(found, (len(rows), *self.extents[: len(self.order)]))
        return transpose(found, (0, *(1 + k for k in self.order)))


def row_box(start: int, steps: Sequence[int], extents: Sequence[int], width: int) -> RowBox | None:
    """The words at `start + sum(step * place)`; None where a step is no multiple of the next, or they are spread wide.

    Args:
        start: not negative.
        steps: along each dimension.
        extents: of the dimensions, more than 1 each.
        width: of the row.

    >>> row_box(15, (14, 1), (15, 12), 240)
    RowBox(start=15, lengths=(15, 14), extents=(15, 12), order=(0, 1))
    """
    falling = sorted(range(len(steps)), key=lambda d: -steps[d])
    ordered, taken = [steps[d] for d in falling], [extents[d] for d in falling]
    if not ordered or ordered[-1] < 1 or any(outer % inner for outer, inner in itertools.pairwise(ordered)):
        return None
    lengths = [taken[0], *(outer // inner for outer, inner in itertools.pairwise(ordered))]
    if any(length < extent for length, extent in zip(lengths, taken, strict=True)):
        return None
    if start + math.prod(lengths) * ordered[-1] > 2 * width:
        return None
    last = ([ordered[-1]], [1]) if ordered[-1] > 1 else ([], [])
    order = tuple(falling.index(d) for d in range(len(steps)))
    return RowBox(start, (*lengths, *last[0]), (*taken, *last[1]), order)
