"""Core and edges: the vertices of devices as a box that is alike on all of them, and a few at either end of it.

In come the families of a compute set, the device of each vertex, and where variables live. Where every device has a
stretch along one axis of a family, the vertices of which the like have all that they read on every device, counted
from the first element that is held, are its core: one family on all devices, of what is held. The rest are edges, which
alone read windows, so that no block is copied for them, and no device branches.

Edges are of one length on all devices. One that has fewer vertices at an end, as those at the border of a stencil do,
runs some of its core there once more, before the core, which writes the same again: so no vertex runs on what is no
input. (Masks for these rows instead took four times as long as the core itself, on two cores of a CPU.) Vertices that
update, or may read what others of their compute set have written, do not allow that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from codelet.graphs.family import Family, Field
from codelet.views.access import Access
from codelet.views.grids import Axis
from codelet.views.sources import Variable, source_variables
from lowering.mesh.dealing import chosen, written_by
from lowering.mesh.homes import Home, Homes
from lowering.mesh.subfamilies import GridBox, box_of, inner_extents, within_box

LocalFamilies = list[list[Family]]
"""The families of each device."""


class CoreAndEdges(NamedTuple):
    """The vertices of a compute set on each device.

    Attributes:
        edges: those before and behind the core, that run first.
        core: the others.
    """

    edges: tuple[LocalFamilies, ...]
    core: LocalFamilies


class _AxisStretches(NamedTuple):
    """The vertices of devices as stretches along one axis of a family's grid.

    Attributes:
        family: all vertices, over axes that are split as the boxes need.
        boxes: those of each device.
        number: of the axis.
        begins, ends: of each device, along it.
    """

    family: Family
    boxes: tuple[GridBox, ...]
    number: int
    begins: np.ndarray
    ends: np.ndarray

    @property
    def axis(self) -> Axis:
        return self.family.axes[self.number]

    def part(self, device: int, begin: int, end: int) -> Family:
        """The vertices of a device from one position along the axis to another."""
        extents, slices = self.boxes[device]
        return within_box(
            self.family, GridBox(extents, (*slices[: self.number], slice(begin, end), *slices[self.number + 1 :]))
        )


def _along(family: Family, devices: np.ndarray, count: int) -> _AxisStretches | None:
    """The stretches along one axis; None where devices have none, or differ in more."""
    inner = inner_extents(family)
    boxes = [
        box for k in range(count) if (box := box_of(family, chosen(devices, k, family.extents), inner)) is not None
    ]
    if len(boxes) < count or any(box.extents != boxes[0].extents for box in boxes):
        return None
    by_axis = list(zip(*(box.slices for box in boxes), strict=True))
    numbers = [k for k, own in enumerate(by_axis) if any(other != own[0] for other in own)]
    if len(numbers) != 1:
        return None
    (number,) = numbers
    own = by_axis[number]
    if any(stretch.step != 1 for stretch in own):
        return None
    whole = within_box(family, GridBox(boxes[0].extents, tuple(map(slice, boxes[0].extents))))
    begins, ends = (np.array(column) for column in zip(*((each.start, each.stop) for each in own), strict=True))
    return _AxisStretches(whole, tuple(boxes), number, begins, ends)


class _FieldPositions(NamedTuple):
    """Which positions of a variable, along the dimension that is cut, a field of the vertices along an axis touches.

    Attributes:
        step: from a vertex to the next.
        first: the first of the first vertex.
        reach: how many more each vertex touches than one.
        home: where the variable lives.
    """

    step: int
    first: int
    reach: int
    home: Home

    @property
    def shift(self) -> int | None:
        """How many vertices further the like are on the next device."""
        return self.home.block // self.step if self.home.block % self.step == 0 else None

    def at_home(self, device: int) -> tuple[int, int]:
        """The vertices that touch nothing but what a device has, from one up to another."""
        begin = device * self.home.block
        end = min(begin + self.home.block, self.home.variable.shape[self.home.cut or 0])
        return -((self.first - begin) // self.step), (end - 1 - self.reach - self.first) // self.step + 1


def _rows(field: Field, axis: Axis, homes: Homes) -> _FieldPositions | None:
    """Those of a field that touches a variable in blocks; None where they are not that regular."""
    tensor = field.tensor
    assert tensor is not None
    if tensor.rows is not None or not isinstance(tensor.source, Variable) or not tensor.size:
        return None
    home = homes[tensor.source]
    access = Access.of(tensor.index, tensor.source.shape)
    if home.cut is None or access.shape != tensor.source.shape:
        return None
    line = access.lines[home.cut]
    step, (first, last) = line.by.get(axis, 0), line.ends({**access.extents, axis: 1})
    return _FieldPositions(step, first, last - first, home) if step > 0 else None


def _every_rows(along: _AxisStretches, homes: Homes) -> list[tuple[Field, _FieldPositions]] | None:
    """Those of all fields that touch what is cut, of which there are some that are written; None as above."""
    found = []
    for field in along.family.fields:
        tensor = field.tensor
        if tensor is None or homes.are_everywhere(source_variables(tensor.source)):
            continue
        rows = _rows(field, along.axis, homes)
        if rows is None:
            return None
        found.append((field, rows))
    shifts = {rows.shift for _, rows in found}
    is_regular = any(field.is_written for field, _ in found) and len(shifts) == 1 and None not in shifts
    return found if is_regular else None


def _cut(along: _AxisStretches, homes: Homes) -> CoreAndEdges | None:
    """The core and the edges of one family; None where there are none."""
    found = _every_rows(along, homes)
    if found is None:
        return None
    shift, count = found[0][1].shift, len(along.boxes)
    assert shift is not None
    shifts = shift * np.arange(count)
    low, high = [along.begins - shifts], [along.ends - shifts]
    for field, rows in found:
        ends = np.array([rows.at_home(k) for k in range(count)])
        if field.is_written and ((along.begins < ends[:, 0]) | (along.ends > ends[:, 1])).any():
            return None
        low.append(ends[:, 0] - shifts)
        high.append(ends[:, 1] - shifts)
    first, last = int(np.max(low)), int(np.min(high))
    before = max(0, int((first - low[0]).max()))
    behind = max(0, int((high[0] - last).max()))
    if last - first < before + behind or (along.ends - along.begins).min() < max(before, behind):
        return None
    devices = range(count)
    lower = [[along.part(k, along.begins[k], along.begins[k] + before)] if before else [] for k in devices]
    upper = [[along.part(k, along.ends[k] - behind, along.ends[k])] if behind else [] for k in devices]
    core = [[along.part(k, first + shifts[k], last + shifts[k])] for k in devices]
    return CoreAndEdges(tuple(own for own in (lower, upper) if own[0]), core)


def _may_run_twice(families: Sequence[Family]) -> bool:
    """Whether vertices may run once more among themselves: none updates, or reads what any writes."""
    written = {variable for family in families for variable in written_by(family)}
    for family in families:
        for field in family.fields:
            if field.tensor is not None and field.is_read and written & set(source_variables(field.tensor.source)):
                return False
    return not any(family.codelet.has_effects for family in families)


def split_core(devices: Mapping[Family, np.ndarray | None], homes: Homes, count: int) -> CoreAndEdges | None:
    """The core and the edges of a compute set; None where it has none.

    Args:
        devices: of each family that of each vertex, of the shape of its grid; None where all run on all devices.
        homes: where variables live.
        count: how many devices there are.
    """
    families = [family for family in devices if family.num_vertices]
    if count == 1 or not _may_run_twice(families):
        return None
    edges: list[LocalFamilies] = []
    core: LocalFamilies = [[] for _ in range(count)]
    for family in families:
        own = devices[family]
        along = None if own is None else _along(family, own, count)
        split = None if along is None else _cut(along, homes)
        if split is None:
            return None
        edges += split.edges
        for made, more in zip(core, split.core, strict=True):
            made += more
    return CoreAndEdges(tuple(edges), core) if edges else None
