"""Recognise: what pieces may be a partition of, read off their steps; whether they are, `exact_cover.py` checks.

The steps of all pieces, and the distances between where they begin, span a lattice over all dimensions of all fields.
Dimensions of the results are axes of the whole, then those of operands in a given order, as far as they are no rational
combination of the axes before. What is one is a line over these axes, with a divisor where a combination is no whole
number: a result at every second position of what it is made of, as in the gradient of a strided convolution. There is
no search in it: each is found by elimination, and extents are those of the box around all pieces.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from codelet.refused import Refused
from codelet.views.access import Access
from codelet.views.grids import Grid, Key
from codelet.views.line import Line
from lowering.join.lattice_pieces import Piece

Coordinate = tuple[int, int]
"""A field, by its number, and a dimension of what it is of."""

MOST_VECTORS = 1 << 14
"""Steps and distances; of more, nothing is recognised."""


def _along(line: Line, key: Key, extent: int) -> np.ndarray:
    """How far a line is from its first place, at each place along a key; of shape (extent,)."""
    way = line.by.get(key, 0) * np.arange(extent)
    for table in line.tables:
        if key in table.keys:
            positions = table.positions().astype(np.int64)
            way = way + positions - positions[0]
    return way


def _first(line: Line) -> int:
    """Where a line is at the first place of all keys."""
    return line.start + sum(int(table.positions().flat[0]) for table in line.tables)


def _vectors(pieces: Sequence[Piece], coordinates: Sequence[Coordinate]) -> np.ndarray:
    """What spans the lattice of all pieces: of shape (vectors, coordinates), int64, each once."""
    rows = []
    for piece in pieces:
        lines = [piece.line(at) for at in coordinates]
        for key, extent in piece.extents.items():
            if any(key in table.keys for line in lines for table in line.tables):
                rows.append(np.diff(np.stack([_along(line, key, extent) for line in lines], -1), axis=0))
            else:
                rows.append(np.array([[line.by.get(key, 0) for line in lines]], np.int64))
    starts = np.array([[_first(piece.line(at)) for at in coordinates] for piece in pieces], np.int64)
    rows.append(np.diff(np.unique(starts, axis=0), axis=0))
    every = np.unique(np.concatenate(rows), axis=0)
    return every[np.any(every, axis=1)]


def _eliminate(vectors: np.ndarray) -> tuple[list[int], list[list[Fraction]]]:
    """The first columns that no columns before them determine; for each the row that is 1 there and 0 at the others."""
    rows = [[Fraction(n) for n in vector] for vector in vectors.tolist()]
    pivots: list[int] = []
    basis: list[list[Fraction]] = []
    for column in range(vectors.shape[1]):
        at = next((k for k, row in enumerate(rows) if row[column]), None)
        if at is None:
            continue
        pivot = rows.pop(at)
        pivot = [x / pivot[column] for x in pivot]

        def cleared(row: list[Fraction], pivot: list[Fraction] = pivot, column: int = column) -> list[Fraction]:
            times = row[column]
            return [x - times * y for x, y in zip(row, pivot, strict=True)] if times else row

        rows = [row for row in map(cleared, rows) if any(row)]
        basis = [*map(cleared, basis), pivot]
        pivots.append(column)
    return pivots, basis


class _Reach(NamedTuple):
    """How far pieces go along a coordinate: from one position to another, and what divides all distances."""

    low: int
    high: int
    unit: int

    def around(self, line: Line, extents: Mapping[Key, int]) -> _Reach:
        """One that holds a line as well."""
        low, high = line.ends(extents)
        unit = math.gcd(self.unit, low - self.low, *(step for _, step in line.steps))
        return _Reach(min(self.low, low), max(self.high, high), unit)


def recognise(pieces: Sequence[Piece], fields: Sequence[int], around: Sequence[Piece] = ()) -> Piece | Refused:
    """The whole that pieces may be a partition of.

    Args:
        pieces: over one array each field, by the same dimensions.
        fields: those that determine axes, in order, results first; of those left out no line is told.
        around: pieces of which only results are known, which the whole is to have as well.

    Returns:
        The whole, over axes of its own; the lines of fields that are left out are those of the first piece.
    """
    coordinates = [(number, d) for number in fields for d in range(len(pieces[0].accesses[number].lines))]
    lines = [[piece.line(at) for at in coordinates] for piece in pieces]
    if any(line.divisor > 1 for column in lines for line in column):
        return Refused("a piece is itself among holes")
    if any(len(table.keys) > 1 for column in lines for line in column for table in line.tables):
        return Refused("a table goes along several keys")
    vectors = _vectors(pieces, coordinates)
    if len(vectors) > MOST_VECTORS:
        return Refused(f"its pieces step in {len(vectors)} ways")
    pivots, basis = _eliminate(vectors)
    reaches = []
    for pivot in pivots:
        ends = [column[pivot].ends(piece.extents) for column, piece in zip(lines, pieces, strict=True)]
        unit = math.gcd(*map(int, vectors[:, pivot]))
        reach = _Reach(min(low for low, _ in ends), max(high for _, high in ends), unit)
        for piece in around if coordinates[pivot][0] < pieces[0].results else ():
            reach = reach.around(piece.line(coordinates[pivot]), piece.extents)
        reaches.append(reach)
    sizes = [(high - low) // unit + 1 for low, high, unit in reaches]
    axes, origin = Grid([range(size) for size in sizes]).axes, list(map(_first, lines[0]))

    def combined(column: int) -> Line:
        """The line of a coordinate over the axes."""
        start, steps = Fraction(origin[column]), {}
        for axis, pivot, reach, row in zip(axes, pivots, reaches, basis, strict=True):
            start += row[column] * (reach.low - origin[pivot])
            steps[axis] = row[column] * reach.unit
        divisor = math.lcm(start.denominator, *(step.denominator for step in steps.values()))
        return Line.of(int(start * divisor), {key: int(step * divisor) for key, step in steps.items()}, divisor)

    extents: dict[Key, int] = dict(zip(axes, sizes, strict=True))
    accesses = list(pieces[0].accesses)
    rest = map(combined, range(len(coordinates)))
    for number in fields:
        access = accesses[number]
        accesses[number] = Access(access.shape, tuple(itertools.islice(rest, len(access.lines))), extents)
    return Piece(extents, tuple(accesses), pieces[0].results)
