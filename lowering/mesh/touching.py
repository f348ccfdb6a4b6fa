"""Touching: which elements of each source the vertices of a device touch, and the part of it that holds them.

In come the families of a device's own vertices. Elements are runs where they are few and flags where many, so that
slabs of large variables are never listed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from codelet.graphs.family import Family, Field
from codelet.views.access import Access
from codelet.views.index import Index
from codelet.views.sources import Source, source_text
from lowering.mesh.parts import Part, keeps_to_dimensions, part_of
from lowering.plan.elements import Elements

LISTED = 1 << 14
"""Positions of evenly spaced elements may be listed so far, to hold no others."""


def along(elements: Elements, shape: tuple[int, ...]) -> list[np.ndarray]:
    """The positions along each dimension of an array at which there are any of its elements."""
    if elements.runs is None:
        flags = elements.as_flags().reshape(shape)
        others = [tuple(k for k in range(len(shape)) if k != d) for d in range(len(shape))]
        return [np.flatnonzero(flags.any(axis=axes)) for axes in others]
    starts, stops = elements.runs
    found = []
    for d, n in enumerate(shape):
        weight = math.prod(shape[d + 1 :])
        first, last = starts // weight, (stops - 1) // weight
        begin, length = first % n, np.minimum(last - first + 1, n)
        ends = np.zeros(2 * n + 1, np.int64)
        np.add.at(ends, begin, 1)
        np.add.at(ends, begin + length, -1)
        covered = np.cumsum(ends)[:-1] > 0
        found.append(np.flatnonzero(covered[:n] | covered[n:]))
    return found


@dataclass(eq=False)
class Touched:
    """What the vertices of each device touch of a source, through access maps.

    Attributes:
        source: of what.
        elements: by device.
        indices: the access maps of each device's vertices, those that touch nothing left out.
    """

    source: Source
    elements: list[Elements]
    indices: list[list[Index]] = field(default_factory=list)

    def add(self, device: int, index: Index) -> None:
        """Add what an access map names."""
        if not index.is_empty:
            self.indices[device].append(index)
            name = source_text(self.source)
            found = Elements.of_view(index, index.axes, self.source.size, name)
            self.elements[device] = self.elements[device] | found

    @property
    def shape(self) -> tuple[int, ...]:
        """That of the source, if all access maps keep to its dimensions; that of its flat form."""
        shape = self.source.shape
        every = (index for own in self.indices for index in own)
        return shape if all(keeps_to_dimensions(index, shape) for index in every) else (self.source.size,)

    def _may_list(self, device: int, shape: tuple[int, ...]) -> list[bool]:
        """Along which dimensions positions may be listed."""
        found = [True] * len(shape)
        if shape != self.source.shape:
            sizes = [math.prod(index.extent(key) for key in index.keys) for index in self.indices[device]]
            return [all(size <= LISTED for size in sizes) or all(index.tables for index in self.indices[device])]
        for index in self.indices[device]:
            access = Access.of(index, shape)
            for d, line in enumerate(access.lines):
                found[d] &= bool(line.tables) or math.prod(access.extents[key] for key in line.keys) <= LISTED
        return found

    def parts(self) -> tuple[Part, ...]:
        """The part of each device."""
        shape = self.shape
        return tuple(part_of(along(own, shape), shape, self._may_list(k, shape)) for k, own in enumerate(self.elements))


def touched_by(families: Sequence[Sequence[Family]], wanted: Callable[[Field], bool]) -> dict[Source, Touched]:
    """What the families of each device touch through some fields."""
    found: dict[Source, Touched] = {}
    for device, own in enumerate(families):
        for family in own:
            for each in family.fields:
                if each.tensor is None or not wanted(each):
                    continue
                source = each.tensor.source
                if source not in found:
                    nothing = [Elements.nothing(source.size) for _ in families]
                    found[source] = Touched(source, nothing, [[] for _ in families])
                found[source].add(device, each.tensor.index)
    return found
