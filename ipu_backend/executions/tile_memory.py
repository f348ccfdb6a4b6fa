"""Tile memory: what one tile holds, by address.

In come a plan of memory and the values of variables, out comes what lies at each address of a tile, with the
values of the elements that live there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from codelet.display import as_block
from codelet.errors import NotInGraphError
from codelet.graphs.family import counted
from codelet.views.sources import Variable
from lowering.machine.memory import Memory

SHOWN = 8
"""How many values of a variable are printed."""


@dataclass(frozen=True, eq=False)
class Held:
    """Something in a tile's memory.

    Attributes:
        name: what it is: a variable, or what else the plan has put there.
        kind: what memory is counted by; see `lowering/machine/memory.py`.
        address: the byte at which it begins.
        num_bytes: what it takes.
        elements: for a variable the flat positions of those elements of it that live here, in the order of
            addresses; None for anything else.
        values: what they hold now, of the same shape; None where the variable has no value yet.
    """

    name: str
    kind: str
    address: int
    num_bytes: int
    elements: np.ndarray | None = None
    values: np.ndarray | None = None

    def __str__(self) -> str:
        row = f"  {self.address:8,} to {self.address + self.num_bytes:8,}  {self.name} ({self.kind.split(',')[0]})"
        if self.elements is None:
            return row
        row += f": {counted(len(self.elements), 'element', 'elements')}"
        if self.values is None:
            return f"{row}, no value yet"
        shown = " ".join(str(value) for value in self.values[:SHOWN])
        return f"{row}, {shown}{' ...' * (len(self.values) > SHOWN)}"


@dataclass(frozen=True, eq=False)
class TileMemory:
    """A tile's memory.

    Attributes:
        tile: its number.
        held: what lies in it, by address.
        bytes_used: how much of it is used.
        bytes_per_tile: how much it has.
    """

    tile: int
    held: tuple[Held, ...]
    bytes_used: int
    bytes_per_tile: int

    def __getitem__(self, name: str) -> Held:
        """What is there of a variable.

        Raises:
            NotInGraphError: nothing.
        """
        found = {own.name: own for own in self.held}
        if name not in found:
            raise NotInGraphError(
                f"tile {self.tile} holds nothing of {name!r}",
                given=name,
                expected=", ".join(found) or "none: it is empty",
            )
        return found[name]

    def __str__(self) -> str:
        head = f"tile {self.tile}: {self.bytes_used:,} of {self.bytes_per_tile:,} bytes"
        return "\n".join([head, *map(str, self.held)])

    def _repr_html_(self) -> str:
        return as_block(self)


def read_tile(memory: Memory, tile: int, values: Mapping[Variable, np.ndarray]) -> TileMemory:
    """What a tile holds.

    Args:
        memory: the plan.
        tile: which.
        values: of the variables that have any.
    """
    placement, found = memory.liveness.placement, []
    for own in memory.occupants:
        if not own.num_bytes[tile]:
            continue
        place = own.kind, int(own.addresses[tile]), int(own.num_bytes[tile])
        for variable in own.variables:
            elements = np.flatnonzero(placement.tiles_of(variable) == tile)
            if (order := placement.orders.get(variable)) is not None:
                elements = elements[np.argsort(order.at(elements), kind="stable")]
            held = values[variable].reshape(-1)[elements] if variable in values else None
            found.append(Held(variable.name, *place, elements, held))
        if not own.variables:
            found.append(Held(own.name, *place))
    found.sort(key=lambda own: own.address)
    return TileMemory(tile, tuple(found), int(memory.bytes_by_tile[tile]), memory.bytes_per_tile)
