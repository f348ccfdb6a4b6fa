"""Reads: how an array is read through an access map, as XLA does it best.

An access map is taken apart dimension by dimension of the array it reads: into affine terms, one for
each key (a dimension of the field, or a grid axis), and tables over one or several keys. Then each
dimension is read on its own, by a slice, a reshape and a slice, a stack of slices where windows overlap,
or a gather along that dimension by an index vector. Where the terms do not keep to dimensions, the array
is read as one flat dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from codelet.views.access import Access
from codelet.views.digits import row_major_strides
from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.mixed_radix import split_digits
from codelet.views.terms import Dimension, Term
from lowering.arrays import Array
from lowering.fast.moves import Gather, Move, Way, moved, moves_text

MAX_STACKED_SLICES = 25
"""Beyond about this many stacked slices, of all keys of a dimension, a gather is faster than the stack on CPU."""

MOST_SLICED = 4
"""A part of an array is sliced before it is brought into another order if the whole is so many times as large; a guess.
Otherwise the whole is brought into that order, once for all who read parts of it."""


class Read(NamedTuple):
    """How an array is read: the moves, and what they leave.

    Attributes:
        moves: in order.
        keys: of each dimension of what is read; keys along which nothing varies have none.
        shape: of what is read.
    """

    moves: tuple[Move, ...]
    keys: tuple[Key, ...]
    shape: tuple[int, ...]

    def of(self, array: Array) -> Array:
        """What is read of an array."""
        return moved(array, self.moves)

    def __str__(self) -> str:
        return moves_text(self.moves)


def as_it_lies(shape: tuple[int, ...]) -> Read:
    """How all of an array of `shape` is read."""
    return Read((), tuple(range(len(shape))), shape)


def _read_windows(way: Way, at: int, start: int, terms: Sequence[Term], most: int) -> list[Key]:
    """Overlapping terms: a few shifted slices stacked, or one gather, as of windows at places of a table."""
    least = min(terms, key=lambda term: term.extents[0])
    if least.extents[0] <= most and all(term.table is None for term in terms):
        rest = tuple(term for term in terms if term is not least)
        ways = [Way(way.shape) for _ in range(least.extents[0])]
        left = most // least.extents[0]
        keys = [_read_dimension(own, at, start + k * least.grain, rest, left) for k, own in enumerate(ways)]
        if not any(isinstance(move, Gather) for move in ways[0].moves):  # else all of it is gathered at once
            way.stack(at, ways)
            return [*least.keys, *keys[0]]
    way.gather(at, start, terms)
    return [key for term in terms for key in term.keys]


def _read_dimension(way: Way, at: int, start: int, terms: Sequence[Term], most: int = MAX_STACKED_SLICES) -> list[Key]:
    """Replace dimension `at` by one for each key of `terms`, by at most so many stacked slices; these, in order."""
    if not terms:
        way.slice_dimension(at, start, start + 1)
        way.reshape((*way.shape[:at], *way.shape[at + 1 :]))
        return []
    outer, rest = terms[0], terms[1:]
    if not rest:
        if outer.table is not None:
            way.gather(at, start, terms)
        else:
            way.slice_dimension(at, start, start + outer.reach + 1, outer.grain)
        return list(outer.keys)
    span = sum(term.reach for term in rest) + 1
    rows, extent = outer.reach // outer.grain + 1, way.shape[at]
    if span > outer.grain or rows * outer.grain > extent:
        return _read_windows(way, at, start, terms, most)
    # Rows of `grain` elements that hold one position of `outer` each: aligned if they can be, else shifted
    # so that none leaves the array.
    base = start - start % outer.grain
    if start % outer.grain + span > outer.grain or base + rows * outer.grain > extent:
        base = min(start, extent - rows * outer.grain)
    way.slice_dimension(at, base, base + rows * outer.grain)
    way.reshape((*way.shape[:at], rows, outer.grain, *way.shape[at + 1 :]))
    keys = _read_dimension(way, at + 1, start - base, rest, most)
    if outer.table is not None:
        way.gather(at, 0, (outer.divided(outer.grain),))
    return [*outer.keys, *keys]


def _read_box(way: Way, dimensions: Sequence[Dimension]) -> list[Dimension]:
    """Read all dimensions that a slice reads, by one slice; the access to what it leaves."""
    bounds, left = [], []
    for extent, (start, terms) in zip(way.shape, dimensions, strict=True):
        if not terms or (len(terms) == 1 and terms[0].table is None):
            reach, step = (terms[0].reach, terms[0].grain) if terms else (0, 1)
            bounds.append((start, start + reach + 1, step))
            left.append(Dimension(0, tuple(term._replace(grain=1, reach=term.extents[0] - 1) for term in terms)))
        else:
            bounds.append((0, extent, 1))
            left.append(Dimension(start, terms))
    way.slice(bounds)
    return left


def _read_rows(way: Way, access: Access) -> Access:
    """Read the whole rows that are read of an array that is taken for a flat one; the access to what that leaves.

    XLA then sees a slice of the array as it lies: it may update the array in place beside that.
    """
    (start, terms), strides = access.dimensions[0], row_major_strides(way.shape)
    stop = start + sum(term.reach for term in terms) + 1
    for at, row in enumerate(strides):
        around = [stride for stride in strides[:at] if start // stride != (stop - 1) // stride]
        if not around and start % row == 0 and stop % row == 0:
            first = [start // stride % n for stride, n in zip(strides, way.shape, strict=True)]
            lengths = [1] * at + [(stop - start) // row]
            bounds = [(a, a + n, 1) for a, n in zip(first, lengths, strict=False)]
            way.slice([*bounds, *((0, n, 1) for n in way.shape[at + 1 :])])
            return Access.by_dimension((stop - start,), (Dimension(0, terms),), access.reversed_keys)
    return access


def _read_access(way: Way, access: Access) -> list[Key]:
    """Read through an access map that is taken apart; the keys of what is read."""
    if len(access.shape) == 1 < len(way.shape):
        access = _read_rows(way, access)
    way.reshape(access.shape)
    dimensions = _read_box(way, access.dimensions)
    keys: list[Key] = []
    for at in reversed(range(len(dimensions))):
        keys = _read_dimension(way, at, *dimensions[at]) + keys
    way.reverse([k for k, key in enumerate(keys) if key in access.reversed_keys])
    return keys


def plan_access(shape: Sequence[int], access: Access, order: Sequence[int] | None = None) -> Read:
    """How an array of `shape` is read through an access map that is taken apart for that shape.

    Where an order of its dimensions is given, it is brought into that first; what is hardly read of it, as one column
    is, is sliced before.
    """
    way = Way(shape)
    if order is not None:
        dimensions = access.dimensions
        sliced = Way(shape)
        left = _read_box(sliced, dimensions)
        if math.prod(sliced.shape) * MOST_SLICED <= math.prod(shape):
            way, dimensions = sliced, tuple(left)
        way.transpose(order)
        access = Access.by_dimension(way.shape, [dimensions[d] for d in order], access.reversed_keys)
    keys = _read_access(way, access)
    return Read(tuple(way.moves), tuple(keys), way.shape)


def plan_read(shape: Sequence[int], index: Index) -> Read:
    """How an array of `shape` is read through an access map, whose flat positions are all in bounds."""
    way = Way(shape)
    digits = split_digits(index)
    keys: Sequence[Key] = _read_access(way, Access.of(index if digits is None else digits.index, way.shape))
    if digits is not None:
        order, extents, closed = digits.closed(keys)
        way.transpose(order)
        way.reshape(extents)
        keys = closed
    return Read(tuple(way.moves), tuple(keys), way.shape)


def plan_view(shape: Sequence[int], index: Index) -> Read:
    """As `plan_read`, of an access map without symbols: what is read has the view's shape and order."""
    read = plan_read(shape, index)
    way = Way(read.shape)
    present = [key for key in range(index.ndim) if key in read.keys]
    way.transpose([read.keys.index(key) for key in present])
    way.repeat(index.shape, present)
    return Read((*read.moves, *way.moves), tuple(range(index.ndim)), index.shape)
