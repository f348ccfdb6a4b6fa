"""Boxes: the part of an array that flat positions fill, from where to where along each of its dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from codelet.views.digits import Digit, merged, row_major_strides
from codelet.views.index import Index

Box = tuple[tuple[int, int], ...]
"""From where to where along each dimension."""


def lengths_of(box: Box) -> tuple[int, ...]:
    """The number of positions of a box along each dimension."""
    return tuple(stop - start for start, stop in box)


def box_of(shape: Sequence[int], positions: Index) -> Box | None:
    """The box of an array of `shape` that flat positions are, in row-major order; None where they are none.

    They may have another shape than the box.

    >>> from codelet.views.index import row_major
    >>> box_of((4, 6), row_major((4, 6))[1:3, 2:5]), box_of((4, 6), row_major((24,))[6:18])
    (((1, 3), (2, 5)), ((1, 3), (0, 6)))
    """
    if not positions.is_strided or not positions.size:
        return None
    first, weights = positions.offset, row_major_strides(shape)
    digits = list(map(Digit, positions.strides, positions.shape))
    last = first + sum(step * (extent - 1) for step, extent in digits)
    if not first <= last < math.prod(shape):
        return None
    ends = zip(weights, shape, strict=True)
    box = tuple((first // weight % extent, last // weight % extent + 1) for weight, extent in ends)
    lengths = lengths_of(box)
    if min(lengths, default=1) < 1:
        return None
    is_plain = (positions.strides, positions.shape) == (weights, lengths)
    return box if is_plain or merged(map(Digit, weights, lengths)) == merged(digits) else None


def hull_of(shape: Sequence[int], positions: Index) -> Box:
    """The least box of an array of `shape` that holds flat positions, of which there are some."""
    ends = [coordinate.bounds() or (0, -1) for coordinate in positions.unravelled(shape)]
    return tuple((low, high + 1) for low, high in ends)


def hull(boxes: Sequence[Box]) -> Box:
    """The least box that holds all boxes."""
    sides = zip(*boxes, strict=True)
    return tuple((min(start for start, _ in side), max(stop for _, stop in side)) for side in sides)
