"""Left dimensions: what becomes of the dimensions of variables where a jaxpr is that of one position (`unmap.py`).

In come the classes of all dimensions, which of them are axes and how windows move along these; out come, of each
variable, the place of every dimension, and the shape of what is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from codelet.jaxprs.equations import Atomic
from lowering.jaxprs.dimension_classes import Classes, Spot, WindowSteps, spots_of


class Place(NamedTuple):
    """What becomes of a dimension.

    Attributes:
        axis: the number of the axis along which it moves; None where it does along none, or is of extent 1.
        step: by how many positions.
        left: the extent of what is left of it; None where it is gone.
        spread: how many positions what is left of it is apart.
    """

    axis: int | None
    step: int = 1
    left: int | None = None
    spread: int = 1


@dataclass(frozen=True, eq=False)
class Left:
    """What becomes of dimensions, by their classes: those of `axes` are gone, those of None with them, of extent 1."""

    classes: Classes
    axes: dict[Spot, int | None]
    windows: dict[Spot, WindowSteps]

    def places(self, atom: Atomic) -> tuple[Place, ...]:
        """What becomes of each dimension of a variable."""
        found = []
        for spot, extent in zip(spots_of(atom), atom.aval.shape, strict=False):
            root = self.classes.root(spot)
            window = self.windows.get(root)
            if window is not None:
                found.append(Place(self.axes[window.result], window.stride, window.length, window.spread))
            else:
                found.append(Place(self.axes[root]) if root in self.axes else Place(None, left=extent))
        return tuple(found)

    def shape(self, atom: Atomic) -> list[int]:
        """The shape of what is left of a variable."""
        return [place.left for place in self.places(atom) if place.left is not None]

    def numbers(self, atom: Atomic, dimensions: Sequence[int]) -> tuple[int, ...]:
        """The numbers that some dimensions have in what is left of a variable, without those that are gone."""
        kept = [d for d, place in enumerate(self.places(atom)) if place.left is not None]
        return tuple(kept.index(int(d)) for d in dimensions if int(d) in kept)
