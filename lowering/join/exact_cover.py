"""Exact cover: whether pieces are a partition of a whole, decided without a search and without listing points.

Each axis of the whole is read off each piece by a dimension that it alone moves along. Every other line of the whole,
over these, has to be the piece's own: then a piece computes some of what the whole does, along every axis some places.
Positions along an axis that the same pieces have are one *atom*; of stretches, atoms are told by their ends, so that
an axis of any length costs the same. Then every cell of atoms is counted once. A cell of which nothing is there, as
between elements that a convolution dilates, may be left out, if the results that have no other cells are written.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from codelet.refused import Refused
from codelet.views.grids import Axis, Grid, Key
from codelet.views.line import Line, open_grid
from lowering.join.lattice_pieces import Piece

POSITION: Axis = Grid([range(1)]).axes[0]
"""What the position along a dimension is called where a line is solved for another key."""

MOST_CELLS = 1 << 22
"""Cells of atoms, beyond which nothing is counted."""

MOST_FLAGS = 1 << 28
"""Positions of an axis, for each piece, that are flagged where the places of a piece are no stretch."""

Places = range | np.ndarray
"""Places along an axis, each once: a stretch, or a list of them."""

Placement = Mapping[Key, Line]
"""Where a piece lies along each axis of a whole, as lines over its keys."""


class Atoms(NamedTuple):
    """Positions of an axis that are in the same pieces, as one each.

    Attributes:
        members: which pieces have which: of shape (pieces, atoms), bool.
        sizes: how many positions each has.
        numbers: the atom of each position; None where they are stretches, in order.
    """

    members: np.ndarray
    sizes: np.ndarray
    numbers: np.ndarray | None = None

    @property
    def of_position(self) -> np.ndarray:
        """The number of the atom at each position."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes) if self.numbers is None else self.numbers


def _witnesses(whole: Piece, fields: Collection[int]) -> dict[Key, tuple[int, int]] | Refused:
    """For each axis of a whole a dimension along which it alone moves."""
    witnesses: dict[Key, tuple[int, int]] = {}
    for number in sorted(fields):
        for d, line in enumerate(whole.accesses[number].lines):
            if len(line.steps) == 1 and line.divisor == 1:
                witnesses.setdefault(line.steps[0][0], (number, d))
    return witnesses if len(witnesses) == len(whole.extents) else Refused("an axis moves along no dimension alone")


def _placed(
    piece: Piece, whole: Piece, witnesses: Mapping[Key, tuple[int, int]], fields: Collection[int]
) -> Placement | Refused:
    """Where a piece lies along each axis of a whole, by its keys; refused where it computes anything else."""
    along: dict[Key, Line] = {}
    for axis, at in witnesses.items():
        solved = whole.line(at).solved(axis, POSITION)
        assert isinstance(solved, Line), solved
        line = solved.after({POSITION: piece.line(at)}, piece.extents)
        if isinstance(line, Refused):
            return line
        line = line.simplified(piece.extents)
        if line.divisor > 1:
            return Refused("it lies between the places of an axis")
        along[axis] = line
    for number in fields:
        for line, expected in zip(piece.accesses[number].lines, whole.accesses[number].lines, strict=True):
            if set(along) >= expected.keys:
                moved = expected.after(along, piece.extents)
                if isinstance(moved, Line) and moved.simplified(piece.extents) == line.simplified(piece.extents):
                    continue
            return Refused("a field moves otherwise than the whole")
    return along


def _stretch(line: Line, extents: Mapping[Key, int]) -> range | None:
    """The places of a line as a stretch, where its keys go on in each other; None where it is none."""
    if line.tables:
        return None
    start, length = line.start, 1
    for key, step in sorted(line.steps, key=lambda pair: abs(pair[1])):
        if abs(step) != length:
            return None
        start += min(0, step * (extents[key] - 1))
        length *= extents[key]
    return range(start, start + length)


def listed(line: Line, piece: Piece) -> np.ndarray:
    """The places along a line, as the keys of a piece go that it depends on; of shape (places,)."""
    keys = [key for key in piece.extents if key in line.keys]
    return np.ravel(line.at(open_grid(keys, piece.extents))[0])


def _places(along: Placement, piece: Piece, whole: Piece) -> dict[Key, Places] | Refused:
    """The places of a piece along each axis of a whole, by keys of its own."""
    used: set[Key] = set()
    places: dict[Key, Places] = {}
    for axis, line in along.items():
        if line.keys & used:
            return Refused("two axes move by one key")
        used |= line.keys
        some = _stretch(line, piece.extents)
        if some is None:
            some = listed(line, piece)
            if len(np.unique(some)) < len(some):
                return Refused("a piece computes a point twice")
        low, high = (some[0], some[-1]) if isinstance(some, range) else (some.min(), some.max())
        if low < 0 or high >= whole.extents[axis]:
            return Refused("a piece computes what is outside of the whole")
        places[axis] = some
    return places if used == set(piece.extents) else Refused("a point is computed at several places")


def _atoms(places: Sequence[Places], extent: int) -> Atoms:
    """The positions along an axis by which pieces have them."""
    stretches = [some for some in places if isinstance(some, range)]
    if len(stretches) == len(places):
        ends = sorted({0, extent, *(n for some in stretches for n in (some.start, some.stop))})
        first, last = np.array([some.start for some in stretches]), np.array([some.stop for some in stretches])
        at = np.array(ends[:-1])
        members = (first[:, None] <= at) & (at < last[:, None])
        return Atoms(members, np.diff(ends))
    flags = np.zeros((len(places), extent), bool)
    for row, some in zip(flags, places, strict=True):
        row[some] = True
    packed = np.packbits(flags, axis=0)
    _, first, numbers, sizes = np.unique(packed, axis=1, return_index=True, return_inverse=True, return_counts=True)
    return Atoms(flags[:, first], sizes, numbers.reshape(-1))


def _holes(whole: Piece, atoms: Mapping[Key, Atoms], fields: Collection[int], shape: Sequence[int]) -> np.ndarray:
    """Cells at every point of which some operand is a hole."""
    axes, nothing = list(atoms), np.zeros(shape, bool)
    for number in fields:
        access = whole.accesses[number]
        for line, extent in zip(access.lines, access.shape, strict=True):
            low, high = line.ends(whole.extents)
            if line.divisor == 1 and low >= 0 and high < extent:
                continue
            keys = [axis for axis in axes if axis in line.keys]
            if math.prod(whole.extents[key] for key in keys) > MOST_CELLS:
                continue  # which are then not known to be holes
            position, is_there = line.at(open_grid(keys, whole.extents))
            there = np.broadcast_to(
                is_there & (position >= 0) & (position < extent), [whole.extents[key] for key in keys]
            )
            some = np.zeros([atoms[key].members.shape[1] for key in keys], bool)
            np.logical_or.at(some, np.ix_(*(atoms[key].of_position for key in keys)), there)
            nothing |= ~some.reshape([n if axis in line.keys else 1 for axis, n in zip(axes, shape, strict=True)])
    return nothing


def cover(
    pieces: Sequence[Piece], whole: Piece, fields: Collection[int], *, holes: bool = False
) -> list[Placement] | Refused:
    """Where pieces lie that are a partition of a whole, or why they are none.

    Args:
        pieces: over the dimensions that the whole has.
        whole: of which each is to be a part.
        fields: those that are compared; of the others nothing is said.
        holes: whether points at which an operand is a hole may be left out.
    """
    witnesses = _witnesses(whole, fields)
    if isinstance(witnesses, Refused):
        return witnesses
    placements: list[Placement] = []
    by_piece: list[dict[Key, Places]] = []
    for piece in pieces:
        along = _placed(piece, whole, witnesses, fields)
        places = along if isinstance(along, Refused) else _places(along, piece, whole)
        if isinstance(along, Refused) or isinstance(places, Refused):
            return places  # type: ignore[return-value]
        placements.append(along)
        by_piece.append(places)
    for axis, extent in whole.extents.items():
        is_scattered = any(not isinstance(places[axis], range) for places in by_piece)
        if is_scattered and len(pieces) * extent > MOST_FLAGS:
            return Refused(f"{len(pieces)} pieces lie scattered among {extent} places")
    atoms = {axis: _atoms([places[axis] for places in by_piece], n) for axis, n in whole.extents.items()}
    shape = [some.members.shape[1] for some in atoms.values()]
    if math.prod(shape) > MOST_CELLS:
        return Refused(f"its pieces meet in {math.prod(shape)} cells")
    cells = np.zeros(shape, np.int64)
    for number in range(len(pieces)):
        np.add.at(cells, np.ix_(*(some.members[number] for some in atoms.values())), 1)
    if (cells > 1).any():
        return Refused("a point is computed twice")
    if (cells == 1).all():
        return placements
    operands = [number for number in fields if number >= whole.results]
    if holes and _holes(whole, atoms, operands, shape)[cells == 0].all():
        return placements
    return Refused("a point is computed by no piece")


def axis_names(whole: Piece, placements: Sequence[Placement], names: Sequence[Mapping[Key, str]]) -> dict[Key, str]:
    """What the axes of a whole are called: as the keys are of the pieces that move along them, as evenly as it does.

    Args:
        whole: of which pieces are a partition.
        placements: where each of them lies.
        names: of the keys of each.
    """
    labels: dict[Key, str] = {}
    for is_even in (True, False):
        for along, own in zip(placements, names, strict=True):
            for axis, line in along.items():
                for key, step in line.steps:
                    if key in own and (abs(step) == 1) == is_even:
                        labels.setdefault(axis, own[key])
    return {axis: labels.get(axis, f"blocks.{k}") for k, axis in enumerate(whole.extents)}
