"""Partition of: the whole that pieces are a partition of, proposed by `recognise.py` and checked by `exact_cover.py`.

Dimensions along which all pieces lie alike, and the keys that move along these alone, are the whole's as they are: what
is read by blocks of channels, a block for each partial sum, need not be all channels for each. The rest is compared.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from codelet.refused import Refused
from codelet.views.access import Access
from codelet.views.grids import Grid, Key
from codelet.views.line import Line
from lowering.join.exact_cover import Placement, cover
from lowering.join.lattice_pieces import Piece
from lowering.join.recognise import Coordinate, recognise


class Partition(NamedTuple):
    """A whole, and where the pieces lie that are a partition of it."""

    whole: Piece
    placements: Sequence[Placement]


def _coordinates(pieces: Sequence[Piece], fields: Sequence[int]) -> list[Coordinate]:
    return [(number, d) for number in fields for d in range(len(pieces[0].accesses[number].lines))]


def _moves(piece: Piece, coordinates: Sequence[Coordinate]) -> dict[Key, tuple[int, ...]]:
    """By how much each key moves along coordinates."""
    lines = [piece.line(at).by for at in coordinates]
    return {key: tuple(steps.get(key, 0) for steps in lines) for key in piece.extents}


def _together(pieces: Sequence[Piece], coordinates: Sequence[Coordinate]) -> list[set[int]]:
    """The numbers of coordinates, those together that one key of some piece moves along."""
    groups = [{number} for number in range(len(coordinates))]
    for piece in pieces:
        for steps in _moves(piece, coordinates).values():
            moved = {number for number, step in enumerate(steps) if step}
            touched = [group for group in groups if group & moved]
            groups = [group for group in groups if not group & moved] + ([set.union(*touched)] if touched else [])
    return groups


def _alike(piece: Piece, coordinates: Sequence[Coordinate], group: set[int]) -> tuple[Hashable, list[Key]]:
    """How a piece lies along coordinates that are together, and the keys that move along these, in an order."""
    moves = {key: steps for key, steps in _moves(piece, coordinates).items() if any(steps[k] for k in group)}
    keys = sorted(moves, key=lambda key: (moves[key], piece.extents[key]))
    starts = tuple(piece.line(coordinates[k]).start for k in sorted(group))
    return (starts, tuple((moves[key], piece.extents[key]) for key in keys)), keys


def _along(piece: Piece, at: Coordinate) -> tuple[int, list[tuple[int, int]]]:
    """Where a piece begins along a coordinate, and its steps and how many there are of each."""
    line = piece.line(at)
    return line.start, sorted((step, piece.extents[key]) for key, step in line.steps if key in piece.extents)


def _with_lines(piece: Piece, lines: Mapping[Coordinate, Line], extents: Mapping[Key, int]) -> Piece:
    """A piece with other lines along some coordinates, over keys of some extents."""
    accesses = []
    for number, access in enumerate(piece.accesses):
        own = tuple(lines.get((number, d), line) for d, line in enumerate(access.lines))
        accesses.append(Access(access.shape, own, extents))
    return replace(piece, extents=extents, accesses=tuple(accesses))


def rows_of(pieces: Sequence[Piece], fields: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of pieces, those together that lie alike along all coordinates but some that belong together."""
    coordinates = _coordinates(pieces, fields)
    groups = _together(pieces, coordinates)
    forms = [[_alike(piece, coordinates, group)[0] for group in groups] for piece in pieces]
    for k in range(len(groups)):
        rows: dict[Any, list[int]] = {}
        for number, own in enumerate(forms):
            rows.setdefault((*own[:k], *own[k + 1 :]), []).append(number)
        yield from (row for row in rows.values() if len(row) > 1)


def partition_of(
    pieces: Sequence[Piece], fields: Sequence[int], around: Sequence[Piece] = (), *, holes: bool = False
) -> Partition | Refused:
    """The whole that pieces are a partition of; see `recognise` and `cover`."""
    coordinates = _coordinates(pieces, fields)
    shared: list[list[Key]] = [[] for _ in pieces]
    fixed: set[Coordinate] = set()
    apart = {at for at in coordinates for piece in pieces if piece.line(at).tables}
    first = pieces[0]
    for at in coordinates:
        if at[0] < first.results and any(_along(piece, at) != _along(first, at) for piece in around):
            apart.add(at)
    for group in _together(pieces, coordinates):
        forms = [_alike(piece, coordinates, group) for piece in pieces]
        if not apart & {coordinates[k] for k in group} and all(form == forms[0][0] for form, _ in forms):
            fixed |= {coordinates[k] for k in group}
            for keys, (_, own) in zip(shared, forms, strict=True):
                keys += own
    rest = []
    for piece, keys in zip(pieces, shared, strict=True):
        extents = {key: n for key, n in piece.extents.items() if key not in keys}
        rest.append(_with_lines(piece, {at: Line.of(piece.line(at).start) for at in fixed}, extents))
    whole = recognise(rest, fields, around)
    placements = whole if isinstance(whole, Refused) else cover(rest, whole, fields, holes=holes)
    if isinstance(whole, Refused) or isinstance(placements, Refused):
        return placements  # type: ignore[return-value]
    keys = shared[0]
    axes = Grid([range(first.extents[key]) for key in keys]).axes
    extents = {**dict(zip(axes, (first.extents[key] for key in keys), strict=True)), **whole.extents}
    lines: dict[Coordinate, Line] = {}
    for at in fixed:
        steps = first.line(at).by
        lines[at] = Line.of(
            first.line(at).start, {axis: steps.get(key, 0) for axis, key in zip(axes, keys, strict=True)}
        )
    own = [{axis: Line.of(0, {key: 1}) for axis, key in zip(axes, keys, strict=True)} for keys in shared]
    return Partition(
        _with_lines(whole, lines, extents), [{**more, **along} for more, along in zip(own, placements, strict=True)]
    )
