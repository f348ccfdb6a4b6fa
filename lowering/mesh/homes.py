"""Homes: on which devices of a mesh the elements of a variable live.

A variable lives everywhere, or is cut in blocks along one dimension, all but the last of one length, or each element
lives on a device of its own. What a device holds is an array of one shape on all devices, with room to spare on some.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from jax.sharding import PartitionSpec

from codelet.views.access import Access
from codelet.views.grids import Axis
from codelet.views.index import Index
from codelet.views.line import open_grid
from codelet.views.sources import Variable
from lowering.mesh.parts import Part, whole_part
from lowering.plan.elements import Elements
from lowering.plan.pieces import Pieces, pieces_of, side_by_side
from lowering.plan.plan import Plan
from lowering.plan.runs import union


@dataclass(frozen=True, eq=False)
class Home:
    """Where the elements of a variable live.

    Attributes:
        variable: whose.
        count: how many devices there are.
        cut: the dimension along which it is cut in blocks; None where it is not.
        devices: the device of each element, of shape (size,), where they are not cut in blocks; None otherwise.
    """

    variable: Variable
    count: int
    cut: int | None = None
    devices: np.ndarray | None = None

    @property
    def is_everywhere(self) -> bool:
        """Whether all devices have all of it."""
        return self.cut is None and self.devices is None

    @property
    def block(self) -> int:
        """How long blocks are."""
        assert self.cut is not None
        return -(-self.variable.shape[self.cut] // self.count)

    @property
    def padding(self) -> float:
        """How many times what there is devices have room for."""
        return self.count * self.size / max(1, self.variable.size) if not self.is_everywhere else 1.0

    @functools.cached_property
    def parts(self) -> tuple[Part, ...]:
        """What each device has, as it holds it."""
        shape = self.variable.shape
        if self.is_everywhere:
            return (whole_part(shape),) * self.count
        if self.devices is not None:
            lists = [np.flatnonzero(self.devices == k) for k in range(self.count)]
            most = max(map(len, lists))
            return tuple(Part((self.variable.size,), (own,), (most,)) for own in lists)
        assert self.cut is not None
        n, block = shape[self.cut], self.block
        ranges = (range(min(k * block, n), min((k + 1) * block, n)) for k in range(self.count))
        return tuple(whole_part(shape).with_positions(self.cut, own, block) for own in ranges)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of what a device holds."""
        return self.parts[0].extents

    @property
    def size(self) -> int:
        """Of what a device holds."""
        return self.parts[0].size

    @functools.cached_property
    def places(self) -> tuple[Pieces, ...]:
        """Of each device which element stands at each place of what it holds, by flat positions of the variable."""
        return tuple(part.pieces() for part in self.parts)

    @functools.cached_property
    def addresses(self) -> Pieces:
        """For each element `device * size + place`; of what lives everywhere its place."""
        if self.is_everywhere:
            return pieces_of([0], [0], [self.variable.size])
        own = [pieces.moved(k * self.size, 0) for k, pieces in enumerate(self.places)]
        return side_by_side(own).inverse()

    @functools.cached_property
    def elements(self) -> tuple[Elements, ...]:
        """Which elements each device has."""
        runs = (union(pieces.origins, pieces.origins + pieces.lengths) for pieces in self.places)
        return tuple(Elements(self.variable.size, each) for each in runs)

    def devices_of(self, elements: np.ndarray) -> np.ndarray:
        """The device of each of some elements; -1 for everywhere."""
        if self.devices is not None:
            return self.devices[elements]
        if self.cut is None:
            return np.full(elements.shape, -1)
        inner = math.prod(self.variable.shape[self.cut + 1 :])
        # Of millions of elements: NumPy divides small integers faster, and faster than it takes remainders.
        kind = np.int32 if inner * self.block < 2**31 and self.variable.size < 2**31 else np.int64
        elements = elements.astype(kind, copy=False)
        if self.cut == 0:
            return (elements // kind(inner * self.block)).astype(np.int16)
        places, extent = elements // kind(inner), kind(self.variable.shape[self.cut])
        return ((places - places // extent * extent) // kind(self.block)).astype(np.int16)

    def devices_over(self, index: Index, axes: Sequence[Axis]) -> np.ndarray:
        """The device of each element that an index names over some axes, of their extents.

        Along an axis that does not move along the dimension which is cut, all are one element of the array.
        """
        shape, extents = self.variable.shape, tuple(axis.extent for axis in axes)
        access = None if self.cut is None or 0 in extents else Access.of(index, shape)
        if access is None or access.shape != shape or self.cut is None:
            return self.devices_of(index.values(axes))
        positions, _ = access.lines[self.cut].at(open_grid(axes, dict(zip(axes, extents, strict=True))))
        return np.broadcast_to((positions // self.block).astype(np.int16), extents)

    @functools.cached_property
    def of_elements(self) -> np.ndarray:
        """The device of each element, of shape (size,); -1 for everywhere."""
        return self.devices_of(np.arange(self.variable.size))

    def lives_as(self, other: Home) -> bool:
        """Whether what devices hold of two variables of one shape is alike."""
        if (self.cut, self.is_everywhere) != (other.cut, other.is_everywhere):
            return False
        return self.devices is None or np.array_equal(self.devices, other.devices)  # type: ignore[arg-type]

    # --- as one array over the mesh -------------------------------------------------------------------------

    @property
    def global_shape(self) -> tuple[int, ...]:
        """Of the arrays of all devices as one, sharded along the dimension that is cut, or along the first."""
        if self.is_everywhere:
            return self.shape
        at = self.cut or 0
        return (*self.shape[:at], self.count * self.shape[at], *self.shape[at + 1 :])

    def spec(self, axes: tuple[str, ...]) -> PartitionSpec:
        """How that is cut."""
        if self.is_everywhere:
            return PartitionSpec()
        return PartitionSpec(*[None] * (self.cut or 0), axes)

    def __str__(self) -> str:
        if self.is_everywhere:
            return f"{self.variable!r}: on all devices"
        if self.cut is not None:
            return f"{self.variable!r}: cut along dimension {self.cut}, {self.block} on a device"
        counts = np.bincount(self.of_elements, minlength=self.count)
        return f"{self.variable!r}: {counts.min()} to {counts.max()} elements on a device"


def blocked(devices: np.ndarray, variable: Variable, count: int) -> Home:
    """The home of a variable of which each element lives on a device: in blocks, where it does."""
    for cut in range(len(variable.shape)):
        home = Home(variable, count, cut)
        if np.array_equal(home.of_elements, devices):
            return home
    return Home(variable, count, None, devices)


class Homes(dict[Variable, Home]):
    """Where variables live; those that passes add, everywhere.

    Args:
        count: how many devices there are.
        known: where some live.
        tiles: those that are dealt to the devices, rising; default: all of the graph's target.
    """

    def __init__(self, count: int, known: Mapping[Variable, Home] | None = None, tiles: np.ndarray | None = None):
        super().__init__(known or {})
        self.count = count
        self.tiles = tiles

    def are_everywhere(self, variables: Iterable[Variable]) -> bool:
        """Whether all devices have all of some variables."""
        return all(self[variable].is_everywhere for variable in variables)

    def copy(self) -> Homes:
        """The same, to be changed."""
        return Homes(self.count, self, self.tiles)

    def __missing__(self, variable: Variable) -> Home:
        self[variable] = Home(variable, self.count)
        return self[variable]

    def digest(self, plan: Plan) -> str:
        """Tells apart what differs in where variables live and vertices run, for plans of one structure."""
        found = hashlib.blake2b(digest_size=16)
        for variable in plan.variables:
            home = self[variable]
            found.update(repr((variable.number, home.cut, home.devices is None)).encode())
            found.update(b"" if home.devices is None else home.devices.astype(np.int64).tobytes())
        for family in plan.families:
            found.update(b"none" if family.tile is None else family.tile.values(family.axes).tobytes())
        return found.hexdigest()
