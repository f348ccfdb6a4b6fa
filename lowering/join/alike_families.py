"""Alike families: those of one codelet that read and write the same are one family, where they are all of one.

Where no number of blocks divides an extent, what is left over is a family of its own, along each dimension: up to four
for a matrix, eight for a volume; blocks of different lengths are here and there, and tables may say where. As elements
they are one family over longer axes.

In come families of elements. Out come those that together cover what one does, as that one, and the others as they are
with the reason. Fields with tables may *follow*: blocks of 45 rows of a matrix that was transposed and reshaped read it
so where 45 divides no dimension of it. The other fields then say where the blocks are; what is joined is kept if the
numbers of all points, which are listed for it, are even steps along digits.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from codelet.graphs.family import Family, Field, VertexState
from codelet.refused import Refused
from codelet.tracing.alike import Kinds
from codelet.views.affine import Table
from codelet.views.digits import row_major_strides
from codelet.views.grids import Axis, Key
from codelet.views.index import Index
from codelet.views.integers import narrowed
from codelet.views.line import open_grid
from codelet.views.tensor import Tensor
from lowering.join.exact_cover import Placement, axis_names, listed
from lowering.join.lattice_pieces import Piece, pieces_of
from lowering.join.partition_of import partition_of, rows_of
from lowering.plan.collect import normalize_family

MOST_PIECES = 1 << 12
"""Of one whole."""

MOST_NUMBERS = 1 << 20
"""In tables, of fields that follow."""


class JoinedFamily(NamedTuple):
    """A family, the numbers of those that it is all of, and why those that are alike are no more than they are."""

    family: Family
    numbers: tuple[int, ...]
    reason: str = ""


# --- what is alike ------------------------------------------------------------------------------------------


def _index_of(field: Field) -> Index | None:
    """What varies over the axes of a field, if it is an index."""
    return field.tensor.index if field.tensor is not None else field.state.index if field.state is not None else None


def _indices(family: Family) -> list[Index]:
    """All that varies over the axes of a family, but for arrays."""
    return [index for index in map(_index_of, family.fields) if index is not None]


def _may_be_part(family: Family) -> bool:
    """Whether all that varies over the axes of a family is an index, whose tables go along axes."""
    if family.rows or not family.num_vertices or family.codelet.has_effects:
        return False
    indices = _indices(family)
    keys = [key for index in indices for table in index.tables for key in table.keys]
    return len(indices) == len(family.fields) and all(isinstance(key, Axis) for key in keys)


def _kind(family: Family) -> Hashable:
    """What families have in common, besides their codelet, that can be parts of one."""
    fields = []
    for field in family.fields:
        index = _index_of(field)
        source = None if field.tensor is None else field.tensor.source
        steps = None if index is None else (index.shape, index.strides)
        fields.append((field.name, field.kind, field.type, source, steps))
    return tuple(fields)


def _kinds(families: Iterable[tuple[int, Family]]) -> Iterator[list[int]]:
    """The numbers of families, those that can be parts of one together."""
    by_kind: dict[Hashable, list[int]] = {}
    kinds, of_codelet = Kinds(), {}
    for number, family in families:
        codelet = id(family.codelet)
        if codelet not in of_codelet:
            of_codelet[codelet] = kinds.kind(family.codelet.jaxpr)
        by_kind.setdefault((_kind(family), of_codelet[codelet]), []).append(number)
    return iter(by_kind.values())


# --- pieces, and back ---------------------------------------------------------------------------------------


def _tabled(family: Family) -> set[Axis]:
    """The axes that tables go along."""
    return {key for index in _indices(family) for table in index.tables for key in table.keys if isinstance(key, Axis)}


def _at_each_place(family: Family) -> list[list[Index]] | None:
    """The access maps of a family at each place along the axes that tables go along; None where these are many."""
    tabled = _tabled(family)
    axes = [axis for axis in family.axes if axis in tabled]
    if math.prod(axis.extent for axis in axes) > MOST_PIECES:
        return None
    indices = _indices(family)
    rest = tuple(axis for axis in family.axes if axis not in tabled)
    firsts = [index.only(axes, index.tables, index.offset).values_over(axes).ravel().tolist() for index in indices]
    evenly = [index.only(rest, (), 0) for index in indices]
    return [
        [replace(index, offset=first) for index, first in zip(evenly, row, strict=True)]
        for row in zip(*firsts, strict=True)
    ]


class _Alike(NamedTuple):
    """Families of one kind as pieces.

    Attributes:
        families: of which the first says what all have in common.
        order: of the fields, results first.
        pieces: of each family one, or one for each place along some axes.
        owners: the number of the family of each piece.
    """

    families: Sequence[Family]
    order: tuple[int, ...]
    pieces: list[Piece]
    owners: list[int]

    @staticmethod
    def of(families: Sequence[Family], *, apart: bool = False) -> Iterator[_Alike]:
        """Families as pieces, seen in one way after another, see `pieces_of`; in none where these are too many.

        Args:
            families: of one kind.
            apart: whether each place along tables is a piece.
        """
        fields = families[0].fields
        order = tuple(sorted(range(len(fields)), key=lambda k: not fields[k].is_written))
        maps: list[list[Index]] = []
        extents: list[dict[Key, int]] = []
        owners: list[int] = []
        for number, family in enumerate(families):
            if sum(table.values.size for index in _indices(family) for table in index.tables) > MOST_NUMBERS:
                return
            places = _at_each_place(family) if apart else [_indices(family)]
            if places is None or len(maps) + len(places) > MOST_PIECES:
                return
            gone = _tabled(family) if apart else ()
            maps += [[_begin(place[k]) for k in order] for place in places]
            sizes: dict[Key, int] = {axis: axis.extent for axis in family.axes if axis not in gone}
            extents += [sizes] * len(places)
            owners += [number] * len(places)
        shapes = [None if fields[k].tensor is None else fields[k].tensor.source.shape for k in order]  # type: ignore[union-attr]
        if any(shape is not None and 0 in shape for shape in shapes):
            return  # there are no places in such an array
        written = sum(fields[k].is_written for k in order)
        for pieces in pieces_of(maps, shapes, extents, written):
            yield _Alike(families, order, pieces, owners)

    def followers(self) -> list[int]:
        """The fields, as pieces have them, that have tables in some family."""
        return [n for n, k in enumerate(self.order) if any(_indices(family)[k].tables for family in self.families)]

    def whole(self, followers: Sequence[int] = ()) -> Family | Refused:
        """The family that they are all of.

        Args:
            followers: the fields that say nothing about where pieces are.
        """
        fields = [number for number in range(len(self.order)) if number not in followers]
        found = partition_of(self.pieces, fields)
        if isinstance(found, Refused):
            return found
        whole, placements = found
        starts = {self.order[n]: whole.accesses[n].index() for n in fields}
        for number in followers:
            starts[self.order[number]] = _listed(self.pieces, placements, whole, number)
        made = self._family(whole, placements, starts)
        return Refused("a field follows by no even steps") if followers and _tabled(made) else made

    def _family(self, whole: Piece, placements: Sequence[Placement], starts: Mapping[int, Index]) -> Family:
        first = self.families[0]
        names = axis_names(whole, placements, [self.families[number].names for number in self.owners])  # type: ignore[misc]

        def moved(k: int, field: Field) -> Field:
            index, begin = _index_of(field), starts[k]
            assert index is not None
            index = Index(begin.offset, index.shape, index.strides, begin.symbols, begin.tables)
            if field.tensor is not None:
                return replace(field, tensor=Tensor(field.tensor.source, index))
            return replace(field, state=VertexState(index=index))

        return normalize_family(
            replace(
                first,
                axes=tuple(whole.extents),  # type: ignore[arg-type]
                axis_names=tuple(names.values()),
                fields=tuple(moved(k, field) for k, field in enumerate(first.fields)),
                tile=None,
                lines=tuple(dict.fromkeys(line for family in self.families for line in family.lines)),
                line_of_vertex=None,
            )
        )


def _begin(index: Index) -> Index:
    """Where what a field is connected to begins."""
    return Index(index.offset, (), (), tuple(own for own in index.symbols if own[1]), index.tables)


def _listed(pieces: Sequence[Piece], placements: Sequence[Placement], whole: Piece, number: int) -> Index:
    """What a field that follows is at every point of a whole."""
    numbers = np.zeros(tuple(whole.extents.values()), np.int64)
    for piece, along in zip(pieces, placements, strict=True):
        access = piece.accesses[number]
        axes = {axis: [key for key in piece.extents if key in along[axis].keys] for axis in whole.extents}
        keys = [key for some in axes.values() for key in some]
        places = open_grid(keys, piece.extents)
        weights = row_major_strides(access.shape)
        flat = sum(line.at(places)[0] * weight for line, weight in zip(access.lines, weights, strict=True))
        at = [listed(along[axis], piece) for axis in whole.extents]
        grid = np.broadcast_to(flat, [piece.extents[key] for key in keys]).reshape([len(some) for some in at])
        numbers[np.ix_(*at)] = grid
    return Index(0, (), (), (), (Table(tuple(whole.extents), narrowed(numbers), 1),))


# --- together -----------------------------------------------------------------------------------------------


def _ways(families: Sequence[Family]) -> Iterator[Family | Refused]:
    """The family that families of one kind are all of, seen in one way after another."""
    tabled, alike = any(map(_tabled, families)), None
    for alike in _Alike.of(families):
        yield alike.whole()
        points = sum(piece.num_points for piece in alike.pieces)
        if tabled and len(alike.followers()) < len(alike.order) and points <= MOST_NUMBERS:
            yield alike.whole(alike.followers())
    if alike is None:
        yield Refused("its tables are large")
    apart = next(_Alike.of(families, apart=True), None) if tabled else None
    if apart is not None:
        yield apart.whole()


def _one(families: Sequence[Family]) -> Family | Refused:
    """The family that families of one kind are all of; of one with tables that without them."""
    if len(families) > MOST_PIECES:
        return Refused(f"there are {len(families)} that are alike")
    refused = None
    for made in _ways(families):
        if isinstance(made, Family) and not _tabled(made):
            return made
        refused = refused or (made if isinstance(made, Refused) else Refused("tables are left"))
    assert refused is not None
    return refused


def _in_rows(families: Sequence[Family]) -> list[tuple[Family, tuple[int, ...]]]:
    """Families of one kind, those made one that are so along some dimensions; each with the numbers of those it is."""
    parts = [(family, (number,)) for number, family in enumerate(families)]
    alike = None if any(map(_tabled, families)) else next(_Alike.of(families), None)
    if alike is None:
        return parts
    for row in rows_of(alike.pieces, range(len(alike.order))):
        made = _one([families[number] for number in row])
        if isinstance(made, Family):
            rest = [part for number, part in enumerate(parts) if number not in row]
            whole = _in_rows([made, *(family for family, _ in rest)])
            owners = [tuple(row), *(own for _, own in rest)]
            return [(family, tuple(k for number in own for k in owners[number])) for family, own in whole]
    return parts


def join_alike(families: Sequence[Family]) -> list[JoinedFamily]:
    """Families, those that are alike as the one that they are all of, in order."""
    parts = [(number, family) for number, family in enumerate(families) if _may_be_part(family)]
    joined = [JoinedFamily(family, (number,)) for number, family in enumerate(families) if not _may_be_part(family)]
    for numbers in _kinds(parts):
        alike = [families[number] for number in numbers]
        made = _one(alike) if len(alike) > 1 or _tabled(alike[0]) else alike[0]
        if isinstance(made, Family):
            joined.append(JoinedFamily(made, tuple(numbers)))
            continue
        for family, own in _in_rows(alike):
            joined.append(JoinedFamily(family, tuple(sorted(numbers[k] for k in own)), made.reason))
    return sorted(joined, key=lambda some: some.numbers)
