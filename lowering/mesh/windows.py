"""Windows: what vertices touch of a source beyond what their device holds, brought there, and sent home if written.

In comes what the vertices of each device touch of a source (`touching.py`), and where it lives. A window is of one size
on all devices, each of which has a part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from codelet.views.sources import Source, Variable
from lowering.mesh.addresses import Located, Putting, elements_at, locate, put, to_places
from lowering.mesh.crossing import Crossing, WholeGathering
from lowering.mesh.homes import Homes
from lowering.mesh.parts import Part
from lowering.mesh.touching import Touched
from lowering.plan.pieces import Pieces


class DeviceWindow(NamedTuple):
    """An array of elements of a source, of one size on all devices, of which each holds a part.

    Attributes:
        source: of which.
        parts: what each device has.
        size: of the array.
        located: where the elements live; None where nothing is brought.
        crossing: how they come.
        starts: of a box of what all devices have of a variable, where each device's own begins along each dimension of
            its parts, of shape (devices,); nothing is brought then.
    """

    source: Source
    parts: tuple[Part, ...]
    size: int
    located: Located | None
    crossing: Crossing | WholeGathering | None
    starts: tuple[np.ndarray, ...] = ()


class Placing(NamedTuple):
    """How a window comes home that is a box of what its device holds of a variable.

    Attributes:
        variable: of which.
        extents: of the window.
        starts: where it begins in what each device holds, along each dimension: of shape (devices,).
    """

    variable: Variable
    extents: tuple[int, ...]
    starts: tuple[np.ndarray, ...]


def at_home(touched: Touched, homes: Homes) -> tuple[Part, ...] | None:
    """What devices have of a variable, where that is all that their vertices touch, and access maps reach it there."""
    source = touched.source
    if not isinstance(source, Variable):
        return None
    home = homes[source]
    if home.devices is not None:
        return None
    if any((own - had).first is not None for own, had in zip(touched.elements, home.elements, strict=True)):
        return None
    if touched.shape == source.shape:
        return home.parts
    parts = [part.flat for part in home.parts]
    return None if any(part is None for part in parts) else tuple(parts)  # type: ignore[arg-type]


def _places(parts: Sequence[Part], touched: Touched) -> list[Pieces]:
    """Of each device which position of a source stands at a place of its part, of those that it touches."""
    found = []
    for part, own in zip(parts, touched.elements, strict=True):
        runs = own.as_runs()
        needed = Pieces(*runs, runs.starts)
        found.append(needed.then(part.pieces().inverse()).inverse())
    return found


def _gathering(touched: Touched, homes: Homes, parts: Sequence[Part]) -> WholeGathering | None:
    """How all of a variable comes to all devices; None where not all need all of it, or it is not cut evenly."""
    source = touched.source
    if not isinstance(source, Variable) or homes[source].cut is None or homes[source].padding != 1:
        return None
    if any(own.count < source.size for own in touched.elements) or any(part.size > source.size for part in parts):
        return None
    home = homes[source]
    return WholeGathering(home.shape, home.cut or 0, home.count)


def window_of(touched: Touched, homes: Homes, brought: Touched | None) -> DeviceWindow:
    """A window for all that devices touch of a source, to which some of it is brought."""
    parts = touched.parts()
    size = max(part.size for part in parts)
    if brought is None or not size:
        return DeviceWindow(touched.source, parts, size, None, None)
    gathering = _gathering(touched, homes, parts)
    if gathering is not None:
        return DeviceWindow(touched.source, parts, size, locate(touched.source, homes), gathering)
    located = locate(touched.source, homes, brought.elements)
    places = _places(parts, brought)
    return DeviceWindow(touched.source, parts, size, located, to_places(size, places, located))


def own_box(touched: Touched, homes: Homes) -> DeviceWindow | None:
    """A window of what all devices have of a variable, where each touches a box of its own, all of one shape.

    So that no device needs a branch for where in it that lies.
    """
    source = touched.source
    if not isinstance(source, Variable) or not homes[source].is_everywhere:
        return None
    parts = touched.parts()
    starts = [[own.start for own in part.sets if isinstance(own, range) and len(own)] for part in parts]
    alike = len({part.extents for part in parts}) == len({part.shape for part in parts}) == 1
    if not alike or any(len(own) < len(parts[0].shape) for own in starts) or all(own == starts[0] for own in starts):
        return None
    return DeviceWindow(source, parts, parts[0].size, None, None, tuple(np.array(starts, np.int32).T.copy()))


def sending(window: DeviceWindow, touched: Touched, homes: Homes, *, by_all: bool) -> tuple[Putting, ...]:
    """How what devices have written of a window comes home."""
    found: dict[Variable, list[tuple[np.ndarray, np.ndarray]]] = {}
    for k, part in enumerate(window.parts):
        positions = touched.elements[k].as_runs().numbers()
        if not len(positions):
            continue
        at = part.pieces().inverse().at(positions)
        for variable, (own, elements) in elements_at(window.source, positions).items():
            found.setdefault(variable, []).append((elements, k * window.size + at[own]))
    made = []
    for variable, each in found.items():
        if by_all:
            elements, addresses = each[0][0], np.stack([own for _, own in each])
        else:
            elements, addresses = (np.concatenate(column) for column in zip(*each, strict=True))
        made.append(put(homes[variable], elements, addresses, window.size, 0))
    return tuple(made)


def placing_of(window: DeviceWindow, touched: Touched, homes: Homes) -> Placing | None:
    """How a window comes home that is a box of what its device holds; None where it is none."""
    source = window.source
    if not isinstance(source, Variable) or homes[source].cut is None:
        return None
    starts = []
    for part, home, own in zip(window.parts, homes[source].parts, touched.elements, strict=True):
        pairs = [(a, b) for a, b in zip(part.sets, home.sets, strict=False) if isinstance(a, range) and len(a)]
        is_box = part.shape == source.shape and len(pairs) == len(source.shape) and own.count == part.size
        if not is_box or any(a.start < b[0] or a.stop > b[-1] + 1 for a, b in pairs):
            return None
        starts.append([a.start - b[0] for a, b in pairs])
    (extents, *others) = {part.extents for part in window.parts}
    return None if others else Placing(source, extents, tuple(np.array(starts, np.int32).T.copy()))
