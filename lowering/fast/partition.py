"""Partition: several reads that divide a variable along one dimension are one `split`.

Read one by one, each is a slice whose transpose pads it to the whole again; the transpose of a split is a
`concatenate`, which costs as much as its size.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jax import lax

from codelet.views.access import Access
from codelet.views.boxes import Box
from codelet.views.terms import Dimension
from lowering.arrays import Array
from lowering.plan.radices import run_of

Key = TypeVar("Key")


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

    @functools.cached_property
    def sizes(self) -> tuple[int, ...]:
        """The extent of every piece."""
        return tuple(b - a for a, b in itertools.pairwise(self.cuts))


def _box(access: Access) -> Box | None:
    """The box that an access covers, each element once; None if none."""
    runs = [run_of(*dimension) for dimension in access.dimensions]
    box = tuple(run for run in runs if run is not None)
    return box if len(box) == len(runs) else None


def boxes_of(shape: tuple[int, ...], accesses: Mapping[Key, Access]) -> dict[Key, Box] | None:
    """The boxes of an array of `shape` that accesses cover; None where one covers none."""
    boxes = {key: _box(access) if access.shape == shape else None for key, access in accesses.items()}
    found = {key: own for key, own in boxes.items() if own is not None}
    return found if len(found) == len(boxes) else None


def divide_boxes(shape: tuple[int, ...], boxes: Mapping[Any, Box]) -> Division | None:
    """How boxes divide an array of `shape`; None when they do not, or are fewer than two parts.

    Each must be whole in all dimensions but one and the same, along which no two overlap unless they are equal.
    """
    cut = [d for d, n in enumerate(shape) if any(own[d] != (0, n) for own in boxes.values())]
    if len(cut) != 1:
        return None
    (dimension,) = cut
    parts = sorted({own[dimension] for own in boxes.values()})
    if len(parts) < 2 or any(a[1] > b[0] for a, b in itertools.pairwise(parts)):
        return None
    cuts = sorted({0, shape[dimension], *(end for part in parts for end in part)})
    number = {cut: k for k, cut in enumerate(cuts)}
    return Division(dimension, tuple(cuts), {key: number[own[dimension][0]] for key, own in boxes.items()})


def divide(shape: tuple[int, ...], accesses: Mapping[Any, Access]) -> Division | None:
    """How accesses to an array of `shape` divide it; see `divide_boxes`."""
    boxes = boxes_of(shape, accesses)
    return None if boxes is None else divide_boxes(shape, boxes)


def within(access: Access, division: Division, piece: int) -> Access:
    """An access to a divided array as one to the piece it covers."""
    start, terms = access.dimensions[division.dimension]
    at = division.dimension
    shape = (*access.shape[:at], division.sizes[piece], *access.shape[at + 1 :])
    moved = Dimension(start - division.cuts[piece], terms)
    dimensions = (*access.dimensions[:at], moved, *access.dimensions[at + 1 :])
    return Access.by_dimension(shape, dimensions, access.reversed_keys)


def split(array: Array, division: Division) -> Sequence[Array]:
    """The pieces of a divided array."""
    return lax.split(array, division.sizes, division.dimension)
