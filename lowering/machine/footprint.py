"""Footprints: how many bytes a block of a family's vertices reads, for blocks of any extents.

In comes a family, out what it reads of every source, as digits over its axes and the fields' own dimensions: taken in
the middle of the grid, where a table counts by how it changes from one position to the next. So windows that overlap
count once, and neighbours that wrap around count as neighbours. It is an estimate, for choosing among blocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from codelet.graphs.family import Family
from codelet.views.digits import Digit
from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.sources import Source


def count_values(digits: Iterable[Digit]) -> int:
    """How many different sums digits have, if those of small steps fill what they span without gaps.

    >>> count_values([Digit(100, 4), Digit(100, 3), Digit(1, 8), Digit(1, 3)])  # windows of 3 x 3 on a block of 4 x 8
    60
    """
    total, unit, length = 1, 0, 1
    for step, extent in sorted((abs(digit.step), digit.extent) for digit in digits):
        if not step or extent == 1:
            continue
        if unit and step <= unit * length:
            length += -(-step // unit) * (extent - 1)
        else:
            total, unit, length = total * length, step, extent
    return total * length


@dataclass(frozen=True)
class AlikeReads:
    """Views of one source that a family reads through, alike but for where they start.

    Attributes:
        steps: of each of the family's axes.
        own: the digits of the fields' dimensions, and of the distances between where they start.
        itemsize: bytes of an element.
    """

    steps: tuple[int, ...]
    own: tuple[Digit, ...]
    itemsize: int

    def num_bytes(self, extents: Sequence[int]) -> int:
        """What a block of these extents reads."""
        return self.itemsize * count_values((*map(Digit, self.steps, extents), *self.own))


def _middle(family: Family, index: Index) -> dict[Key, int]:
    """The position in the middle of a family's grid and of a field."""
    keys = (*family.axes, *range(index.ndim))
    return {key: max(0, (index.shape[key] if isinstance(key, int) else key.extent) - 1) // 2 for key in keys}


def _value(index: Index, position: Mapping[Key, int]) -> int:
    """An index at a position along all its keys."""
    found = index.offset + sum(index.coefficient(key) * place for key, place in position.items())
    return found + sum(t.scale * int(t.values[tuple(position[key] for key in t.keys)]) for t in index.tables)


def middle_value(family: Family, index: Index) -> int:
    """Which element of its source the middle vertex of a family reads in the middle of a field."""
    return _value(index, _middle(family, index))


def _distances(starts: Sequence[int], steps: Iterable[int]) -> tuple[Digit, ...]:
    """Digits over which starts lie, by the steps that stand between them."""
    digits, rests = [], [start - min(starts) for start in starts]
    for step in sorted({abs(step) for step in steps if step}, reverse=True):
        whole = [(2 * rest + step) // (2 * step) for rest in rests]
        rests = [rest - step * times for rest, times in zip(rests, whole, strict=True)]
        digits.append(Digit(step, 1 + max(whole) - min(whole)))
    return (*digits, Digit(1, 1 + max(rests) - min(rests)))


def _steps(family: Family, index: Index) -> tuple[int, tuple[int, ...], tuple[Digit, ...]]:
    """Which element the middle vertex of a family names in the middle of a field, and the steps from there.

    They are those of the family's axes, and the digits of the field's own dimensions.
    """
    middle = _middle(family, index)
    here = _value(index, middle)

    def step(key: Key) -> int:
        return _value(index, {**middle, key: middle[key] + 1}) - here if index.extent(key) > 1 else 0

    return here, tuple(map(step, family.axes)), tuple(Digit(step(d), n) for d, n in enumerate(index.shape))


def readings_of(family: Family) -> list[AlikeReads]:
    """What a family reads, by source, and what of that source lives with it; ragged fields are left out.

    What lives with a vertex is taken to stand where its outputs stand in arrays of that shape.
    """
    found: dict[tuple[Source, tuple[int, ...], tuple[Digit, ...]], list[int]] = {}
    homes: dict[tuple[tuple[int, ...], tuple[int, ...]], list[int]] = {}
    for field in family.fields:
        tensor = field.tensor
        if tensor is None or tensor.rows is not None or not tensor.size:
            continue
        here, steps, own = _steps(family, tensor.index)
        if field.is_read:
            found.setdefault((tensor.source, steps, own), []).append(here)
        if field.is_written:
            homes.setdefault((tensor.source.shape, steps), []).append(here)
    readings = []
    for (source, steps, own), starts in found.items():
        apart = _distances([*starts, *homes.get((source.shape, steps), ())], (*steps, *(digit.step for digit in own)))
        readings.append(AlikeReads(steps, (*own, *apart), source.dtype.itemsize))
    return readings
