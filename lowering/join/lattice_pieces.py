"""Pieces: what families compute, as accesses over keys, so that several can be compared with one whole.

In come the access maps of families that write the same variables and read the same sources. Out comes a piece for each,
all of them over the same dimensions of these: the finest to which every term of every map keeps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


def _with_digits(access: Access) -> tuple[int, ...]:
    """The shape of an access with dimensions split where several keys count along one, as digits do."""
    shape: list[int] = []
    for extent, (_, terms) in zip(access.shape, access.dimensions, strict=True):
        rest = extent
        for k, outer in enumerate(terms[:-1]):
            reach = sum(term.reach for term in terms[k + 1 :])
            if outer.grain > reach and rest % outer.grain == 0:
                shape.append(rest // outer.grain)
                rest = outer.grain
        shape.append(rest)
    return tuple(shape)


def by_digits(accesses: Sequence[Access], indices: Sequence[Index]) -> list[Access]:
    """Access maps of one array by digits that keys of one of them count along its dimensions, if all keep to these."""
    for access in accesses:
        shape = _with_digits(access)
        if len(shape) > len(access.shape):
            finer = [Access.of(index, shape) for index in indices]
            if all(own.shape == shape for own in finer):
                return by_digits(finer, indices)
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
    *,
    digits: bool = False,
) -> list[Piece]:
    """The pieces that families are.

    Args:
        maps: of each family the access map of every field, results first; none is empty.
        shapes: of what each field views; None for numbers of vertex state.
        extents: of each family's keys.
        results: how many fields are results.
        digits: whether dimensions are split where keys count along them as digits do.
    """
    columns = []
    for column, shape in zip(zip(*maps, strict=True), shapes, strict=True):
        accesses = [numbers_as_access(index) for index in column] if shape is None else common_accesses(column, shape)
        columns.append(by_digits(accesses, column) if digits and shape is not None else accesses)
    return [
        Piece({key: n for key, n in sizes.items() if n > 1}, accesses, results)
        for sizes, accesses in zip(extents, zip(*columns, strict=True), strict=True)
    ]
