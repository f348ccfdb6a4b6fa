"""Grids: the ranges of symbols.

A call of `codelet.grid` makes axes, one for each symbol, which a family of vertices is a product of. A symbol whose
range depends on others, as in `j = grid(i)`, is over no separate axis. All of them together are over a *combined* axis,
whose positions are all the combinations that loops would go through, one after another. It says for each the position
along the axis of every symbol. So whatever has such axes is a product of axes all the same. In the terms of databases,
a combined axis is a relation, and two that share symbols are joined.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from codelet.saving import Frozen, Unchanging
from codelet.views.integers import narrowed, unwritable

_copies = itertools.count(1)
_last_serial = 0


def _serial() -> int:
    """A number greater than all before it, of other processes too, whose grids may be read from files: the clock."""
    global _last_serial
    _last_serial = max(_last_serial + 1, time.time_ns())
    return _last_serial


class Axis(Frozen, Unchanging):
    """One axis of a grid: `values[k]` is the number its symbol stands for at position `k`.

    Axes are compared by identity: two grids of equal sizes have different axes.

    Attributes:
        grid: the axes it was made with.
        values: the number at each position; of a combined axis its positions themselves.
        name: the user's name of its symbol, where a name was given.
        ancestors: of a combined axis, the axes that it stands for: those of its symbols, and combined ones that it
            refines. For each the position along it, of shape (extent,), at every position of this one.
        sort_key: the place among all axes, in the order in which they were made.
    """

    __slots__ = ("ancestors", "grid", "joins", "name", "sort_key", "values")

    grid: Grid
    values: range
    name: str | None
    ancestors: dict[Axis, np.ndarray]
    joins: dict[Axis, Axis]
    sort_key: tuple[int, int, int]

    def __init__(
        self,
        grid: Grid,
        position: int,
        values: range,
        name: str | None = None,
        ancestors: Mapping[Axis, np.ndarray] | None = None,
    ):
        own = {axis: unwritable(narrowed(positions)) for axis, positions in (ancestors or {}).items()}
        state = {"grid": grid, "values": values, "name": name, "ancestors": own}
        super().__setstate__((None, {**state, "joins": {}, "sort_key": (grid.serial, position, 0)}))

    @property
    def extent(self) -> int:
        """The number of positions."""
        return len(self.values)

    @property
    def symbols(self) -> tuple[Axis, ...]:
        """The axes of the symbols that it stands for, in the order of the loops: itself, if it is not combined."""
        own = union_axes([[axis for axis in self.ancestors if not axis.ancestors]])
        return own or (self,)

    def number(self, symbol: Axis, position: int) -> int:
        """The number that one of its symbols stands for at a position."""
        return symbol.values[position if symbol is self else int(self.ancestors[symbol][position])]

    def __setstate__(self, state: tuple[None, dict[str, Any]]) -> None:
        # Two that were read from one file have places of their own.
        super().__setstate__((None, {**state[1], "sort_key": (*state[1]["sort_key"][:2], next(_copies))}))

    def __repr__(self) -> str:
        return f"Axis({self.values!r})"


class Grid(Unchanging):
    """The axes that one call of `grid` made. Grids are ordered by when they were made."""

    __slots__ = ("axes", "serial")

    def __init__(self, ranges: Iterable[range], names: Sequence[str | None] = ()):
        self.serial = _serial()
        named = itertools.chain(names, itertools.repeat(None))
        self.axes = tuple(Axis(self, k, values, name) for k, (values, name) in enumerate(zip(ranges, named)))  # noqa: B905


Key = int | Axis
"""What an index varies over: a dimension of its own, by number, or a grid axis."""


def union_axes(groups: Iterable[Iterable[Axis]]) -> tuple[Axis, ...]:
    """All axes of several collections, each once, in the order in which they were made."""
    return tuple(sorted({axis for group in groups for axis in group}, key=lambda axis: axis.sort_key))


# --- combined axes --------------------------------------------------------------------------------------


def combined_axis(ancestors: Mapping[Axis, np.ndarray], count: int, grid: Grid | None = None, place: int = 0) -> Axis:
    """A combined axis of `count` positions: the axes that it stands for, and those that they stand for.

    It is of a new grid unless one is given.
    """
    full: dict[Axis, np.ndarray] = {}
    for axis, positions in ancestors.items():
        full[axis] = positions
        for older, own in axis.ancestors.items():
            full[older] = own[positions]
    made = Axis(Grid([]) if grid is None else grid, place, range(count), None, full)
    if grid is None:
        made.grid.axes = (made,)
    return made


def _joined(a: Axis, b: Axis) -> Axis:
    """The combined axis of all pairs of positions of two that agree on the symbols they share."""
    if a.sort_key > b.sort_key:
        a, b = b, a
    if b not in a.joins:
        shared = [axis for axis in a.symbols if axis in b.ancestors]
        numbers = [np.zeros(axis.extent, np.int64) for axis in (a, b)]
        for symbol in shared:
            numbers = [own * symbol.extent + axis.ancestors[symbol] for own, axis in zip(numbers, (a, b), strict=True)]
        order = np.argsort(numbers[1], kind="stable")
        ordered = numbers[1][order]
        first = np.searchsorted(ordered, numbers[0], "left")
        counts = np.searchsorted(ordered, numbers[0], "right") - first
        of_a = np.repeat(np.arange(a.extent), counts)
        place = np.arange(len(of_a)) - np.repeat(np.cumsum(counts) - counts, counts)
        a.joins[b] = combined_axis({a: of_a, b: order[first[of_a] + place]}, len(of_a))
    return a.joins[b]


def common_axes(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """The axes that stand for all of `axes`, no symbol twice, in the order in which they were made.

    They are `axes` themselves where none of these is combined with symbols of another.
    """
    found = union_axes([axes])
    if not any(axis.ancestors for axis in found):
        return found
    tops = list(found)
    while True:
        covered = {older for axis in tops for older in axis.ancestors}
        tops = [axis for axis in tops if axis not in covered]
        pairs = itertools.combinations([axis for axis in tops if axis.ancestors], 2)
        pair = next(((a, b) for a, b in pairs if a.ancestors.keys() & b.ancestors.keys()), None)
        if pair is None:
            return union_axes([tops])
        tops = [*(axis for axis in tops if axis not in pair), _joined(*pair)]


def whole_grids(axes: Iterable[Axis]) -> tuple[Axis, ...]:
    """The axes of vertices that name `axes`: a symbol brings its whole grid, as a loop around it would."""
    named = union_axes([axes])
    symbols = [symbol for axis in named for symbol in (axis, *axis.ancestors)]
    return common_axes(other for symbol in symbols for other in symbol.grid.axes)
