"""Partition: several reads, or several writes, that divide a variable along one dimension.

Written one after another, parts are a chain of updates, each a copy of the variable in the gradient; read
one by one, each is a slice whose transpose pads it to the whole again. As one `concatenate` and one `split`,
which are each other's transposes, they cost what they hold.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax import lax

from lowering.arrays import Array
from lowering.plan.access import Access, Dimension


@dataclass(frozen=True, eq=False)
class Division:
    """A variable divided along a dimension.

    Attributes:
        dimension: along which the parts lie.
        cuts: where parts begin and end, from 0 to the dimension's extent, in increasing order.
        place: which piece between two cuts each part is.
    """

    dimension: int
    cuts: tuple[int, ...]
    place: Mapping[Any, int]

    @property
    def sizes(self) -> tuple[int, ...]:
        """The extent of every piece."""
        return tuple(b - a for a, b in itertools.pairwise(self.cuts))


def _box(access: Access) -> tuple[tuple[int, int], ...] | None:
    """The box that an access covers, each element once: from where to where along each dimension; None if none."""
    box = []
    for start, terms in access.dimensions:
        count = 1
        for term in reversed(terms):
            if term.table is not None or term.grain != count:
                return None
            count *= term.extents[0]
        box.append((start, start + count))
    return tuple(box)


def divide(shape: tuple[int, ...], accesses: Mapping[Any, Access]) -> Division | None:
    """How accesses to an array of `shape` divide it; None when they do not, or are fewer than two parts.

    Each must be a box that is whole in all dimensions but one and the same, along which no two overlap
    unless they are equal.
    """
    boxes: dict[Any, tuple[tuple[int, int], ...]] = {}
    for key, access in accesses.items():
        box = _box(access) if access.shape == shape else None
        if box is None:
            return None
        boxes[key] = box
    cut = [d for d, n in enumerate(shape) if any(box[d] != (0, n) for box in boxes.values())]
    if len(cut) != 1:
        return None
    (dimension,) = cut
    parts = sorted({box[dimension] for box in boxes.values()})
    if len(parts) < 2 or any(a[1] > b[0] for a, b in itertools.pairwise(parts)):
        return None
    cuts = sorted({0, shape[dimension], *(end for part in parts for end in part)})
    place = {key: cuts.index(box[dimension][0]) for key, box in boxes.items()}
    return Division(dimension, tuple(cuts), place)


def within(access: Access, division: Division, piece: int) -> Access:
    """An access to a divided array as one to the piece it covers."""
    start, terms = access.dimensions[division.dimension]
    at = division.dimension
    shape = (*access.shape[:at], division.sizes[piece], *access.shape[at + 1 :])
    moved = Dimension(start - division.cuts[piece], terms)
    return Access(shape, (*access.dimensions[:at], moved, *access.dimensions[at + 1 :]), access.reversed_keys)


def split(array: Array, division: Division) -> Sequence[Array]:
    """The pieces of a divided array."""
    return lax.split(array, division.sizes, division.dimension)


def join(before: Any, division: Division, pieces: dict[int, Array]) -> Array:
    """A divided array from new pieces, the others as they were in `before`."""
    made = []
    for k, (start, stop) in enumerate(itertools.pairwise(division.cuts)):
        made.append(pieces[k] if k in pieces else lax.slice_in_dim(before, start, stop, axis=division.dimension))
    return lax.concatenate(made, division.dimension)
