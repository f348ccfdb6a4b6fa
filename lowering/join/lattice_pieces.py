"""Pieces: what families compute, as accesses over keys, so that several can be compared with one whole.

In come the access maps of families that write the same variables and read the same sources. Out comes a piece for each,
all of them over the same dimensions of these: the finest to which every term of every map keeps.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from codelet.views.access import Access
from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.line import Line
from codelet.views.terms import Dimension, flat_terms


@dataclass(frozen=True, eq=False)
class Piece:
    """Points that are computed, one at every place of some keys.

    Attributes:
        extents: of the keys, those of one place left out.
        accesses: of each field, results first: where what it is for a point begins.
        results: how many fields are results.
    """

    extents: Mapping[Key, int]
    accesses: tuple[Access, ...]
    results: int

    @property
    def num_points(self) -> int:
        """How many points there are."""
        return math.prod(self.extents.values())

    def line(self, at: tuple[int, int]) -> Line:
        """The line of a field, by its number, along a dimension."""
        return self.accesses[at[0]].lines[at[1]]


def common_accesses(indices: Sequence[Index], shape: tuple[int, ...]) -> list[Access]:
    """Access maps of one array by the finest dimensions, some made one with others, that all of them keep to."""
    while True:
        accesses = [Access.of(index, shape) for index in indices]
        coarser = next((access.shape for access in accesses if access.shape != shape), None)
        if coarser is None:
            return accesses
        shape = coarser


def _by_digits(accesses: Sequence[Access], indices: Sequence[Index]) -> list[Access]:
    """Access maps of one array by digits that keys of one of them count along its dimensions, if all keep to these."""
    for access in accesses:
        shape = access.digit_shape
        if shape != access.shape:
            finer = [Access.of(index, shape) for index in indices]
            if all(access.shape == shape for access in finer):
                return _by_digits(finer, indices)
    return list(accesses)


def numbers_as_access(index: Index) -> Access:
    """Numbers that are no positions in an array, as an access along one dimension."""
    offset, terms, backwards = flat_terms(index)
    return Access.by_dimension((1,), (Dimension(offset, tuple(terms)),), backwards)


def pieces_of(
    maps: Sequence[Sequence[Index]],
    shapes: Sequence[tuple[int, ...] | None],
    extents: Sequence[Mapping[Key, int]],
    results: int,
) -> Iterator[list[Piece]]:
    """The pieces that families are: by dimensions, and then by digits that keys count along these, if there are any.

    Args:
        maps: of each family the access map of every field, results first; none is empty.
        shapes: of what each field views; None for numbers of vertex state.
        extents: of each family's keys.
        results: how many fields are results.
    """
    sizes = [{key: n for key, n in sizes.items() if n > 1} for sizes in extents]
    indices = list(zip(*maps, strict=True))
    columns = [
        [numbers_as_access(index) for index in column] if shape is None else common_accesses(column, shape)
        for column, shape in zip(indices, shapes, strict=True)
    ]

    def pieces() -> list[Piece]:
        return [Piece(keys, row, results) for keys, row in zip(sizes, zip(*columns, strict=True), strict=True)]

    yield pieces()
    before = [column[0].shape for column in columns]
    columns = [
        column if shape is None else _by_digits(column, maps)
        for column, maps, shape in zip(columns, indices, shapes, strict=True)
    ]
    if [column[0].shape for column in columns] != before:
        yield pieces()
