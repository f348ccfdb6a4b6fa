"""Join families: parts of one regular family become that family.

Where no number of blocks divides an extent, what is left over is a family of its own, along each dimension: up to
four for a matrix, eight for a volume. As elements they are one family over a longer axis, where they have one codelet,
fields that step alike through the same variables, and where all fields of one together begin where another would go on.

A family is a box here: an offset for each field and, for each axis, by how much all fields step along it, its
*direction*, with its extent. Boxes that lie behind each other along a direction become one, until none do.

Fields that step along an axis by a table *follow* it: no direction tells where they are, but what the others do.
Blocks of 45 rows of a matrix that was transposed and reshaped read it so where 45 divides no dimension of it; all rows
together do step evenly, by digits. What is joined is kept where no tables are left.

Of blocks whose lengths differ by one, those of one length are here and there, and tables may say where. Where boxes of
whole families do not become one, a family is as many boxes as it has blocks: one for each position along the axes that
are no unit of what all families step by.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codelet.graphs.family import Family, Field, VertexState
from codelet.tracing.alike import Kinds
from codelet.views.affine import Table, sorted_symbols
from codelet.views.digits import chains, row_major_strides
from codelet.views.grids import Axis, Grid
from codelet.views.index import Index
from codelet.views.integers import narrowed
from codelet.views.tensor import Tensor
from lowering.plan.collect import normalize_family

MOST_BOXES = 1 << 12
"""Of the families of one kind, where each block is one."""

Direction = tuple[int, ...]
"""By how much each field steps along an axis; 0 for those that follow."""


@dataclass(frozen=True, eq=False)
class LatticeBox:
    """Vertices: where each field of the first begins, and the extents along directions, none of them 1.

    Attributes:
        start: where each field begins; those that follow among them.
        extents: how many vertices there are along each direction.
        numbers: of the families that it holds.
        followers: which fields follow.
        ways: along each direction, where each field that follows goes from its start on: of shape
            (followers, extent), int64.
    """

    start: tuple[int, ...]
    extents: dict[Direction, int]
    numbers: tuple[int, ...]
    followers: tuple[int, ...] = ()
    ways: dict[Direction, np.ndarray] = dataclasses.field(default_factory=dict)

    def way(self, direction: Direction) -> np.ndarray:
        """Where fields that follow go along a direction, from their start on: of shape (followers, extent)."""
        return self.ways.get(direction, np.zeros((len(self.followers), 1), np.int64))

    def along(self, direction: Direction) -> tuple[int, int, Hashable]:
        """Its first position along a direction, its extent, and on which line along it, as what, it lies."""
        at = next(k for k, step in enumerate(direction) if step)
        position = self.start[at] // direction[at]
        origin = tuple(
            a - position * b
            for k, (a, b) in enumerate(zip(self.start, direction, strict=True))
            if k not in self.followers
        )
        others = frozenset((own, n, self.way(own).tobytes()) for own, n in self.extents.items() if own != direction)
        return position, self.extents.get(direction, 1), (origin, others)


def _index(field: Field) -> Index | None:
    """What varies over the axes of a field, if it is an index."""
    return field.tensor.index if field.tensor is not None else field.state.index if field.state is not None else None


def _indices(family: Family) -> list[Index]:
    """All that varies over the axes of a family, but for arrays."""
    return [index for index in map(_index, family.fields) if index is not None]


def _directions(family: Family, followers: Sequence[int] = ()) -> list[Direction]:
    """The direction of each axis of a family."""
    indices = _indices(family)
    return [
        tuple(0 if k in followers else index.coefficient(axis) for k, index in enumerate(indices))
        for axis in family.axes
    ]


def _tabled(family: Family) -> list[int]:
    """The numbers of the fields of a family that have tables."""
    return [k for k, index in enumerate(_indices(family)) if index.tables]


def _way(index: Index, axis: Axis) -> np.ndarray:
    """Where an index goes along an axis from its first position on."""
    own = tuple(table for table in index.tables if table.keys == (axis,))
    return index.only((axis,), own, 0).values_over((axis,))


def _may_be_part(family: Family) -> bool:
    """Whether all that varies over the axes of a family is an index, whose tables go along axes."""
    if family.rows or not family.num_vertices or family.codelet.has_effects:
        return False
    indices = _indices(family)
    keys = [key for index in indices for table in index.tables for key in table.keys]
    return len(indices) == len(family.fields) and all(isinstance(key, Axis) for key in keys)


def _box(family: Family, number: int, followers: Sequence[int] = ()) -> LatticeBox | None:
    """A family as a box; None where axes are not told apart by the fields that do not follow."""
    indices = _indices(family)
    directions = _directions(family, followers)
    steps = dict(zip(directions, family.extents, strict=True))
    if len(steps) < len(family.axes) or not all(map(any, steps)):
        return None
    if any(len(table.keys) > 1 for index in indices for table in index.tables):
        return None
    ways, start = {}, [index.offset for index in indices]
    if followers:
        for direction, axis in zip(directions, family.axes, strict=True):
            way = np.stack([_way(indices[k], axis) for k in followers])
            for k, first in zip(followers, way[:, 0], strict=True):
                start[k] += int(first)
            ways[direction] = way - way[:, :1]
    extents = {own: n for own, n in steps.items() if n != 1}
    return LatticeBox(tuple(start), extents, (number,), tuple(followers), ways)


def _untabled(family: Family, units: Collection[Direction] | None = None) -> dict[Direction, Axis]:
    """The directions of the axes of a family that no tables go along, those of some alone where they are given."""
    in_tables = {key for index in _indices(family) for table in index.tables for key in table.keys}
    axes = {step: axis for step, axis in zip(_directions(family), family.axes, strict=True) if axis not in in_tables}
    return {step: axis for step, axis in axes.items() if any(step) and (units is None or step in units)}


def _units(families: Sequence[Family]) -> set[Direction]:
    """The directions of families of one kind that are no multiples of others, by what they write: within blocks."""
    written = next(k for k, field in enumerate(families[0].fields) if field.is_written)
    tensor = families[0].fields[written].tensor
    assert tensor is not None
    strides = row_major_strides(tensor.source.shape)

    def by_dimension(direction: Direction) -> tuple[int, ...]:
        step = direction[written]
        sizes = zip(strides, tensor.source.shape, strict=True)
        return tuple(abs(step) // stride % extent * (1 if step > 0 else -1) for stride, extent in sizes)

    steps = {direction: by_dimension(direction) for family in families for direction in _untabled(family)}

    def is_multiple(own: tuple[int, ...], unit: tuple[int, ...]) -> bool:
        times = next((a // b for a, b in zip(own, unit, strict=True) if b), 0)
        return (abs(times) > 1 or (times == -1 and own < unit)) and own == tuple(times * b for b in unit)

    return {own for own, by in steps.items() if not any(is_multiple(by, other) for other in steps.values())}


def _boxes_apart(family: Family, number: int, units: Collection[Direction]) -> list[LatticeBox]:
    """A family as boxes along some directions, one for each position along its other axes."""
    along = _untabled(family, units)
    others = tuple(axis for axis in family.axes if axis not in along.values())
    extents = {direction: axis.extent for direction, axis in along.items() if axis.extent > 1}
    at = [index.only(others, index.tables, index.offset).values_over(others).reshape(-1) for index in _indices(family)]
    return [LatticeBox(start, dict(extents), (number,)) for start in zip(*(own.tolist() for own in at), strict=True)]


def _kind(family: Family) -> Hashable:
    """What families have in common, besides their codelet, that can be parts of one."""
    fields = []
    for field in family.fields:
        index = _index(field)
        source = None if field.tensor is None else field.tensor.source
        steps = None if index is None else (index.shape, index.strides)
        fields.append((field.name, field.kind, field.type, source, steps))
    return tuple(fields)


def _kinds(families: Iterable[tuple[int, Family]]) -> Iterator[list[int]]:
    """The numbers of families, those that can be parts of one together."""
    found: dict[Hashable, list[int]] = {}
    kinds, of_codelet = Kinds(), {}
    for number, family in families:
        codelet = id(family.codelet)
        if codelet not in of_codelet:
            of_codelet[codelet] = kinds.kind(family.codelet.jaxpr)
        found.setdefault((_kind(family), of_codelet[codelet]), []).append(number)
    return iter(found.values())


def _row(direction: Direction, boxes: Sequence[LatticeBox]) -> LatticeBox:
    """Boxes that lie behind each other along a direction, as one."""
    first = boxes[0]
    extent = sum(box.extents.get(direction, 1) for box in boxes)
    numbers = tuple(number for box in boxes for number in box.numbers)
    ways = first.ways
    if first.followers:
        starts = [np.array([[box.start[k] - first.start[k]] for k in first.followers]) for box in boxes]
        moved = [start + box.way(direction) for start, box in zip(starts, boxes, strict=True)]
        ways = {**ways, direction: np.concatenate(moved, axis=1)}
    return LatticeBox(first.start, {**first.extents, direction: extent}, numbers, first.followers, ways)


def _along(direction: Direction, boxes: Sequence[LatticeBox]) -> list[LatticeBox]:
    """Boxes, those made one that lie behind each other along a direction."""
    lines: dict[Hashable, list[tuple[int, int, LatticeBox]]] = {}
    for box in boxes:
        position, extent, line = box.along(direction)
        lines.setdefault(line, []).append((position, extent, box))
    found = []
    for line in lines.values():
        line.sort(key=lambda own: own[0])
        rows = chains(line, lambda row, own: row[-1][0] + row[-1][1] == own[0])
        found += [_row(direction, [box for _, _, box in row]) if len(row) > 1 else row[0][2] for row in rows]
    return found


def join_boxes(boxes: list[LatticeBox]) -> list[LatticeBox]:
    """Boxes, as many made one as lie behind each other."""
    directions = list(dict.fromkeys(direction for box in boxes for direction in box.extents))
    count = 0
    while count != len(boxes) > 1:
        count = len(boxes)
        for direction in directions:
            boxes = _along(direction, boxes)
    return boxes


def _family(box: LatticeBox, families: Sequence[Family]) -> Family:
    """The family of all vertices of a box, which is as the families are."""
    first = families[box.numbers[0]]
    axes = dict(zip(box.extents, Grid([range(n) for n in box.extents.values()]).axes, strict=True))
    names: dict[Direction, str] = {}
    # Those of one vertex along a direction each may lie behind each other along an axis that only others have.
    for number in (*box.numbers, *range(len(families))):
        own = families[number]
        if _may_be_part(own):
            for direction, name in zip(_directions(own, box.followers), own.axis_names, strict=True):
                names.setdefault(direction, name)

    def moved(k: int, field: Field) -> Field:
        index = _index(field)
        assert index is not None
        symbols = sorted_symbols({axis: own[k] for own, axis in axes.items() if own[k]})
        tables = ()
        if k in box.followers:
            at = box.followers.index(k)
            tables = tuple(Table((axis,), narrowed(box.way(own)[at]), 1) for own, axis in axes.items())
        index = Index(box.start[k], index.shape, index.strides, symbols, tables)
        if field.tensor is not None:
            return replace(field, tensor=Tensor(field.tensor.source, index))
        return replace(field, state=VertexState(index=index))

    return normalize_family(
        replace(
            first,
            axes=tuple(axes.values()),
            axis_names=tuple(names.get(direction, f"blocks.{k}") for k, direction in enumerate(axes)),
            fields=tuple(moved(k, field) for k, field in enumerate(first.fields)),
            tile=None,
            lines=tuple(dict.fromkeys(line for number in box.numbers for line in families[number].lines)),
            line_of_vertex=None,
        )
    )


Joined = list[tuple[Family, tuple[int, ...]]]
"""Families, and the numbers of those that each was, in order."""


def _joined(families: Sequence[Family], numbers: Sequence[int], followers: Sequence[int] = ()) -> Joined:
    """Families of one kind, those made one that are parts of one, where fields that follow then have no tables."""
    boxes = [_box(families[number], number, followers) for number in numbers]
    found: Joined = [(families[n], (n,)) for n, box in zip(numbers, boxes, strict=True) if box is None]
    for box in join_boxes([box for box in boxes if box is not None]):
        made = _family(box, families) if len(box.numbers) > 1 else None
        if made is None or (followers and _tabled(made)):
            found += [(families[number], (number,)) for number in box.numbers]
        else:
            found.append((made, tuple(sorted(box.numbers))))
    return found


def _joined_apart(families: Sequence[Family], numbers: Sequence[int]) -> Joined | None:
    """Families of one kind as the one that all of their blocks are; None where they are none, or too many."""
    own = [families[number] for number in numbers]
    if not any(field.is_written and field.tensor is not None for field in own[0].fields):
        return None
    units = _units(own)
    inside = (math.prod(axis.extent for axis in _untabled(one, units).values()) for one in own)
    counts = [one.num_vertices // extent for one, extent in zip(own, inside, strict=True)]
    if not len(numbers) < sum(counts) <= MOST_BOXES:
        return None
    boxes = join_boxes([box for number in numbers for box in _boxes_apart(families[number], number, units)])
    while len(boxes) > 1:  # blocks of one along a dimension have no unit for it: they are a unit apart
        first, second, *_ = sorted(box.start for box in boxes)
        direction = tuple(b - a for a, b in zip(first, second, strict=True))
        fewer = join_boxes(_along(direction, boxes)) if any(direction) else boxes
        if len(fewer) == len(boxes):
            return None
        boxes = fewer
    return [(_family(boxes[0], families), tuple(sorted(numbers)))]


def _joined_or_followed(families: Sequence[Family], numbers: Sequence[int]) -> Joined:
    """Families of one kind, those made one that are parts of one: all, those without tables alone, or all by blocks."""
    tabled = [number for number in numbers if _tabled(families[number])]
    found: Joined = []
    if tabled:
        followers = sorted({k for number in tabled for k in _tabled(families[number])})
        found = _joined(families, numbers, followers)
    if not tabled or len(found) == len(numbers):
        alone: Joined = [(families[number], (number,)) for number in tabled]
        found = alone + _joined(families, [number for number in numbers if number not in tabled])
    return (_joined_apart(families, numbers) if len(found) > 1 or tabled else None) or found


def join_families(families: Sequence[Family]) -> Joined:
    """Families, those made one that are parts of one; and the numbers of those that each was, in order."""
    parts = [(number, family) for number, family in enumerate(families) if _may_be_part(family)]
    found: Joined = [(family, (number,)) for number, family in enumerate(families) if not _may_be_part(family)]
    found += [own for numbers in _kinds(parts) for own in _joined_or_followed(families, numbers)]
    return sorted(found, key=lambda own: own[1])
