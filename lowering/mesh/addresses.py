"""Addresses: where on a mesh the elements of a source are, and what moves them to where they are wanted.

In come the homes of variables. Out come crossings: of elements to any places of devices, of values to the elements of a
view, and of what devices made of others' elements to these elements' homes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from codelet.views.sources import Patchwork, Source, Variable, assembled
from lowering.arrays import Array, Arrays, constant, join
from lowering.mesh.crossing import Crossing
from lowering.mesh.homes import Home, Homes
from lowering.mesh.touching import along
from lowering.plan.elements import Elements
from lowering.plan.pieces import Pieces, pieces_of, side_by_side
from lowering.plan.runs import runs_of

MOST_STRETCHES = 8
"""So many stretches of rows are taken apart from the rest of what is held."""


class DevicePositions(NamedTuple):
    """Some positions along the dimension that is cut, of what every device holds of a variable.

    Attributes:
        home: where the variable lives.
        chosen: the positions, counted from the first that is held, as stretches.
    """

    home: Home
    chosen: tuple[range, ...]

    @property
    def size(self) -> int:
        """How many words there are."""
        return self.home.size // self.home.block * sum(map(len, self.chosen))

    @property
    def places(self) -> tuple[Pieces, ...]:
        """Of each device which element stands at each place."""
        cut, found = self.home.cut, []
        assert cut is not None
        for part in self.home.parts:
            own = part.sets[cut]
            there = np.concatenate([np.arange(len(own))[rows.start : rows.stop] for rows in self.chosen])
            positions = there + (own[0] if len(own) else 0)
            found.append(part.with_positions(cut, positions, sum(map(len, self.chosen))).pieces())
        return tuple(found)

    def of(self, held: Array) -> Array:
        """They, of what a device holds."""
        cut = self.home.cut
        assert cut is not None
        return join(held, cut, [(rows.start, 1, len(rows)) for rows in self.chosen])


def _rows(home: Home, needed: Sequence[Elements]) -> DevicePositions | None:
    """The rows of a variable that hold all that devices need of it; None where these are most, or it is not cut."""
    if home.cut is None:
        return None
    flags = np.zeros(home.block, bool)
    for own in needed:
        flags[along(own, home.variable.shape)[home.cut] % home.block] = True
    if not flags.any() or 2 * flags.sum() > home.block:
        return None
    starts, stops = runs_of(np.flatnonzero(flags))
    if len(starts) > MOST_STRETCHES:
        return None
    return DevicePositions(home, tuple(map(range, starts.tolist(), stops.tolist())))


def located(home: Home | DevicePositions, held: int, base: int, known_base: int) -> Pieces:
    """The address of each element of a variable, or of each in some rows.

    Args:
        home: where it lives.
        held: words of each device, all sharded arrays of a crossing together.
        base: where among them the variable's begin, if it is sharded.
        known_base: where its words begin among those that all devices have, otherwise.
    """
    if isinstance(home, Home) and home.is_everywhere:
        return pieces_of([0], [home.count * held + known_base], [home.variable.size])
    own = [pieces.moved(0, 0).inverse().moved(0, k * held + base) for k, pieces in enumerate(home.places)]
    return side_by_side(own)


@dataclass(frozen=True, eq=False)
class Located:
    """Where the elements of a source are.

    Attributes:
        sharded: its variables that are cut.
        known: those that live everywhere.
        padding: the values of its padding, which all devices have behind those.
        held: words of each device of the sharded variables.
        known_size: words that all have.
        addresses: for each position in the source; where it is needed, if only some rows of variables are taken.
        rows: these, by variable.
    """

    sharded: tuple[Variable, ...]
    known: tuple[Variable, ...]
    padding: tuple[Any, ...]
    held: int
    known_size: int
    addresses: Pieces
    rows: Mapping[Variable, DevicePositions] = field(default_factory=dict)

    def parts(self, arrays: Mapping[Any, Array]) -> tuple[list[Array], list[Array]]:
        """What a crossing takes them from: what devices hold, and what all have."""
        known = [arrays[variable] for variable in self.known]
        known += [constant(np.stack(self.padding))] if self.padding else []
        held = [self.rows[v].of(arrays[v]) if v in self.rows else arrays[v] for v in self.sharded]
        return held, known


def locate(source: Source, homes: Homes, needed: Sequence[Elements] = ()) -> Located:
    """Where the elements of a source are.

    Args:
        source: of which.
        homes: where variables live.
        needed: by device those that matter; default: all.
    """
    if isinstance(source, Variable) and needed:
        rows = _rows(homes[source], needed)
        if rows is not None:
            return Located((source,), (), (), rows.size, 0, located(rows, rows.size, 0, 0), {source: rows})
    variables = (source,) if isinstance(source, Variable) else source.variables
    sharded = tuple(variable for variable in variables if not homes[variable].is_everywhere)
    known = tuple(variable for variable in variables if homes[variable].is_everywhere)
    held, behind = sum(homes[own].size for own in sharded), sum(own.size for own in known)
    base, known_base, found = 0, 0, dict[Variable, Pieces]()
    for variable in variables:
        home = homes[variable]
        found[variable] = located(home, held, base, known_base)
        if home.is_everywhere:
            known_base += variable.size
        else:
            base += home.size
    if isinstance(source, Variable):
        return Located(sharded, known, (), held, behind, found[source])
    padding: list[Any] = []
    count = _count(homes, variables)

    def of_padding(value: Any) -> int:
        padding.append(value)
        return count * held + behind + len(padding) - 1

    numbers = assembled(source, np.dtype(np.int64), lambda own, positions: found[own].at(positions), of_padding)
    every = pieces_of(np.arange(source.size), numbers, 1)
    return Located(sharded, known, tuple(padding), held, behind + len(padding), every)


def _count(homes: Homes, variables: Sequence[Variable]) -> int:
    some = variables or tuple(homes)
    return homes[some[0]].count if some else 1


def elements_at(source: Source, positions: np.ndarray) -> dict[Variable, tuple[np.ndarray, np.ndarray]]:
    """Which positions, by where they stand in the list, are elements of each variable of a source, and of which."""
    if isinstance(source, Variable):
        return {source: (np.arange(len(positions)), positions)}
    assert isinstance(source, Patchwork)
    numbers = assembled(source, np.dtype(np.int64), lambda own, at: at + own.first_element, lambda _: -1)[positions]
    found = {}
    for variable in source.variables:
        (own,) = np.nonzero((numbers >= variable.first_element) & (numbers < variable.first_element + variable.size))
        if len(own):
            found[variable] = own, numbers[own] - variable.first_element
    return found


def _targets(home: Home) -> Pieces:
    """The element that stands at each address of what devices hold of a variable."""
    return side_by_side([pieces.moved(k * home.size, 0) for k, pieces in enumerate(home.places)])


def everywhere(positions: np.ndarray, located: Located, count: int) -> Crossing:
    """Elements of a source, by their positions, brought to all devices: of the shape of these."""
    flat = positions.reshape(-1)
    own = pieces_of(np.arange(len(flat)), located.addresses.at(flat), 1)
    words = side_by_side([own.moved(k * len(flat), 0) for k in range(count)])
    return Crossing(positions.shape, words, located.held, located.known_size, count)


def to_places(size: int, places: Sequence[Pieces], located: Located) -> Crossing:
    """Elements of a source brought to places of an array of each device.

    Args:
        size: of the array.
        places: of each device, which position of the source stands at some of its places.
        located: where the elements are.
    """
    words = side_by_side([own.moved(k * size, 0) for k, own in enumerate(places)]).then(located.addresses)
    return Crossing((size,), words, located.held, located.known_size, len(places))


@dataclass(frozen=True, eq=False)
class Putting:
    """How elements of a variable get new values.

    Attributes:
        home: where the variable lives.
        crossing: from the new values and, behind them, the old values of the variable, if it keeps any.
        keeps: whether it does.
    """

    home: Home
    crossing: Crossing
    keeps: bool

    def parts(self, arrays: Arrays, held: Sequence[Array], known: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """What the crossing takes."""
        if not self.keeps:
            return list(held), list(known)
        own = arrays[self.home.variable]
        return ([*held], [*known, own]) if self.home.is_everywhere else ([*held, own], [*known])


def put(home: Home, elements: np.ndarray, addresses: np.ndarray, held: int, known: int) -> Putting:
    """New values of elements of a variable, each brought home.

    Args:
        home: where it lives.
        elements: which, each once.
        addresses: of the new value of each, as in a crossing of `held` and `known` words; a row for each device where
            all have values of their own.
        held: words of each device that new values may be of.
        known: words that all devices have, for the same.
    """
    count, size = home.count, home.variable.size
    keeps = len(elements) < size
    more = held + (home.size if keeps and not home.is_everywhere else 0)
    every = known + (size if keeps and home.is_everywhere else 0)
    rows = np.broadcast_to(addresses, (count, len(elements)))
    device, place = np.divmod(rows, max(1, held)) if held else (np.full(rows.shape, count), rows)
    is_known = rows >= count * held
    moved = np.where(is_known, rows - count * held + count * more, device * more + place)
    source = np.full((count, size), -1, np.int64)
    if keeps and home.is_everywhere:
        source[:] = count * more + known + np.arange(size)
    elif keeps:
        every_own = located(home, more, held, 0)
        source[:] = every_own.at(np.arange(size))
    source[:, elements] = moved
    targets = _targets(home)
    which = targets.runs.numbers() // max(1, home.size)
    standing = targets.at(targets.runs.numbers()) if len(targets.starts) else np.zeros(0, np.int64)
    words = pieces_of(targets.runs.numbers(), source[which, standing], 1)
    return Putting(home, Crossing(home.shape, words, more, every, count), keeps)
