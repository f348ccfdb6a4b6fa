"""Join families: parts of one regular family become that family.

Where no number of blocks divides an extent, what is left over is a family of its own, along each dimension: up to
four for a matrix, eight for a volume. As elements they are one family over a longer axis, where they have one codelet,
fields that step alike through the same variables, and where all fields of one together begin where another would go on.

A family is a box here: an offset for each field and, for each axis, by how much all fields step along it, its
*direction*, with its extent. Boxes that lie behind each other along a direction become one, until none do.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from codelet.graphs.family import Family, Field, VertexState
from codelet.tracing.alike import Kinds
from codelet.views.affine import sorted_symbols
from codelet.views.digits import chains
from codelet.views.grids import Grid
from codelet.views.index import Index
from codelet.views.tensor import Tensor
from lowering.plan.collect import normalize_family

Direction = tuple[int, ...]
"""By how much each field steps along an axis."""


@dataclass(frozen=True, eq=False)
class LatticeBox:
    """Vertices: where each field of the first begins, and the extents along directions, none of them 1."""

    start: tuple[int, ...]
    extents: dict[Direction, int]
    numbers: tuple[int, ...]
    """Of the families that it holds."""

    def along(self, direction: Direction) -> tuple[int, int, Hashable]:
        """Its first position along a direction, its extent, and on which line along it, as what, it lies."""
        at = next(k for k, step in enumerate(direction) if step)
        position = self.start[at] // direction[at]
        origin = tuple(a - position * b for a, b in zip(self.start, direction, strict=True))
        others = frozenset((own, n) for own, n in self.extents.items() if own != direction)
        return position, self.extents.get(direction, 1), (origin, others)


def _index(field: Field) -> Index | None:
    """What varies over the axes of a field, if it is an index."""
    return field.tensor.index if field.tensor is not None else field.state.index if field.state is not None else None


def _indices(family: Family) -> list[Index]:
    """All that varies over the axes of a family, but for arrays."""
    return [index for index in map(_index, family.fields) if index is not None]


def _directions(family: Family) -> list[Direction]:
    """The direction of each axis of a family."""
    indices = _indices(family)
    return [tuple(index.coefficient(axis) for index in indices) for axis in family.axes]


def _box(family: Family, number: int) -> LatticeBox | None:
    """A family as a box; None where something of it is irregular, or is no index."""
    indices = _indices(family)
    if len(indices) < len(family.fields) or family.rows or any(index.tables for index in indices):
        return None
    if not family.num_vertices or family.codelet.has_effects:
        return None
    steps = dict(zip(_directions(family), family.extents, strict=True))
    if len(steps) < len(family.axes) or not all(map(any, steps)):
        return None
    start = tuple(index.offset for index in indices)
    return LatticeBox(start, {own: n for own, n in steps.items() if n != 1}, (number,))


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
    extent = sum(box.extents.get(direction, 1) for box in boxes)
    numbers = tuple(number for box in boxes for number in box.numbers)
    return LatticeBox(boxes[0].start, {**boxes[0].extents, direction: extent}, numbers)


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
        if _box(own, number) is not None:
            for direction, name in zip(_directions(own), own.axis_names, strict=True):
                names.setdefault(direction, name)

    def moved(k: int, field: Field) -> Field:
        index = _index(field)
        assert index is not None
        symbols = sorted_symbols({axis: own[k] for own, axis in axes.items() if own[k]})
        index = Index(box.start[k], index.shape, index.strides, symbols)
        if field.tensor is not None:
            return replace(field, tensor=Tensor(field.tensor.source, index))
        return replace(field, state=VertexState(index=index))

    return normalize_family(
        replace(
            first,
            axes=tuple(axes.values()),
            axis_names=tuple(names[direction] for direction in axes),
            fields=tuple(moved(k, field) for k, field in enumerate(first.fields)),
            tile=None,
            lines=tuple(dict.fromkeys(line for number in box.numbers for line in families[number].lines)),
            line_of_vertex=None,
        )
    )


def join_families(families: Sequence[Family]) -> list[tuple[Family, tuple[int, ...]]]:
    """Families, those made one that are parts of one; and the numbers of those that each was, in order."""
    boxes = [_box(family, number) for number, family in enumerate(families)]
    found: list[tuple[Family, tuple[int, ...]]] = []
    found += [(families[k], (k,)) for k, box in enumerate(boxes) if box is None]
    regular = ((k, family) for k, family in enumerate(families) if boxes[k] is not None)
    for numbers in _kinds(regular):
        for box in join_boxes([box for k in numbers if (box := boxes[k]) is not None]):
            own = families[box.numbers[0]] if len(box.numbers) == 1 else _family(box, families)
            found.append((own, tuple(sorted(box.numbers))))
    return sorted(found, key=lambda own: own[1])
