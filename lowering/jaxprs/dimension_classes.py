"""Dimension classes: which dimensions of the variables of a jaxpr are one, and what is known of them together.

Union and find (R. E. Tarjan, Efficiency of a good but not linear set union algorithm, 1975): equations unite the
dimensions that they take through unchanged, keep those that they look across, and move windows along others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic

Spot = tuple[Any, int]
"""A dimension of a variable."""


class WindowSteps(NamedTuple):
    """How a spatial dimension of an image moves along one of the result.

    Attributes:
        result: the dimension along which it moves.
        stride: by how many positions.
        length: of the kernel, and so of the window.
        spread: how many positions of the image its are apart.
        is_picked: whether it is of the elements that slices pick, up to theirs: the longest of such has all of them.
    """

    result: Spot
    stride: int
    length: int
    spread: int
    is_picked: bool = False


def _together(windows: set[WindowSteps]) -> set[WindowSteps]:
    """Windows of one dimension, those of slices that move alike as one."""
    longest = max(windows, key=lambda window: window.length)
    alike = {window._replace(length=longest.length) for window in windows}
    return alike if longest.is_picked and alike == {longest} else windows


class Classes:
    """The classes of the dimensions of all variables."""

    def __init__(self) -> None:
        self._above: dict[Spot, Spot] = {}
        self._kept: list[Spot] = []
        self._windows: list[tuple[Spot, WindowSteps]] = []

    def root(self, spot: Spot) -> Spot:
        """What stands for the class of a dimension."""
        above = self._above.setdefault(spot, spot)
        if above != spot:
            above = self._above[spot] = self.root(above)
        return above

    def unite(self, spot: Spot, other: Spot) -> None:
        """Make two dimensions one class."""
        self._above[self.root(other)] = self.root(spot)

    def keep(self, spots: Sequence[Spot]) -> None:
        """Keep dimensions."""
        self._kept += spots

    def move(self, spot: Spot, window: WindowSteps) -> None:
        """Let a dimension be one of windows."""
        self._windows.append((spot, window))

    @property
    def kept(self) -> set[Spot]:
        """The classes that are kept."""
        return set(map(self.root, self._kept))

    @property
    def windows(self) -> dict[Spot, set[WindowSteps]]:
        """How classes of windows move."""
        found: dict[Spot, set[WindowSteps]] = {}
        for spot, window in self._windows:
            found.setdefault(self.root(spot), set()).add(window._replace(result=self.root(window.result)))
        return {root: _together(windows) for root, windows in found.items()}


def spots_of(atom: Atomic) -> list[Spot]:
    """The dimensions of a variable. A literal has none."""
    return [] if isinstance(atom, jax_core.Literal) else [(atom, d) for d in range(len(atom.aval.shape))]


def extent_of(spot: Spot) -> int:
    """How many elements there are along a dimension."""
    var, d = spot
    return var.aval.shape[d]
