"""Local steps: a compute set as each device of a mesh runs its own vertices of it.

In come a compute set, and where variables live and vertices run. Out comes what is brought to each device before it
runs (windows: of each source that its vertices read what they need and it does not have), the families of its own vertices,
over local variables in place of the graph's, and what is sent home behind it. Families of devices that are equal in
structure are run by one branch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from codelet.graphs.family import Family, Field
from codelet.views.sources import Source, Variable, source_text
from codelet.views.tensor import Tensor
from lowering.fast.compute_sets import Running, plan_running
from lowering.mesh.addresses import Homes, Located, Putting, elements_at, locate, put, to_places
from lowering.mesh.crossing import Crossing
from lowering.mesh.dealing import chosen, vertex_devices
from lowering.mesh.parts import Part, in_part
from lowering.mesh.subfamilies import inner_extents, subfamily
from lowering.mesh.touching import Touched, runs_in, touched_by
from lowering.plan.pieces import Pieces, pieces_of
from lowering.plan.steps import ExecuteStep
from lowering.plan.structure import family_key


class Window(NamedTuple):
    """An array of elements of a source, of one size on all devices, which each holds a part of its own in.

    Attributes:
        source: of which.
        parts: what each device has.
        size: of the array.
        located: where the elements live; None where nothing is brought.
        crossing: how they come.
    """

    source: Source
    parts: tuple[Part, ...]
    size: int
    located: Located | None
    crossing: Crossing | None


class Sending(NamedTuple):
    """What devices made of a window, sent home: of which, and how, a variable each."""

    window: int
    puttings: tuple[Putting, ...]


class Branch(NamedTuple):
    """What some devices run.

    Attributes:
        running: how; None where there are no vertices.
        reads: the local variable of each thing that is read, in the order of `LocalStep.read`; None where of none.
        writes: that of each thing that is written, of `LocalStep.written`.
    """

    running: Running | None
    reads: tuple[Variable, ...]
    writes: tuple[Variable, ...]


@dataclass(frozen=True, eq=False)
class LocalStep:
    """A compute set on the devices of a mesh.

    Attributes:
        homes: the variables that vertices read or write where they live.
        windows: what is brought.
        sent: the windows that are written, by numbers that follow those of `windows`, with what is brought to them.
        written: of `homes` and `sent`, by one number after another, those that are written.
        sendings: of `sent`, how it comes home.
        branches: what devices run.
        branch_of: which of these each device runs.
    """

    homes: tuple[Variable, ...]
    windows: tuple[Window, ...]
    sent: tuple[Window, ...]
    written: tuple[int, ...]
    sendings: tuple[tuple[Putting, ...], ...]
    branches: tuple[Branch, ...]
    branch_of: np.ndarray

    @property
    def crossings(self) -> list[Crossing]:
        """All that crosses."""
        found = [own.crossing for own in (*self.windows, *self.sent) if own.crossing is not None]
        return found + [putting.crossing for puttings in self.sendings for putting in puttings]


# --- what devices touch -----------------------------------------------------------------------------------


def _at_home(touched: Touched, homes: Homes) -> tuple[Part, ...] | None:
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
        runs = runs_in(own)
        needed = pieces_of(runs.starts, runs.starts, runs.lengths)
        found.append(needed.then(part.pieces().inverse()).inverse())
    return found


def _window(touched: Touched, homes: Homes, brought: Touched | None) -> Window:
    """A window for all that devices touch of a source, to which some of it is brought."""
    parts = touched.parts()
    size = max(part.size for part in parts)
    if brought is None or not size:
        return Window(touched.source, parts, size, None, None)
    located = locate(touched.source, homes)
    places = _places(parts, brought)
    return Window(touched.source, parts, size, located, to_places(size, places, located))


def _sending(window: Window, touched: Touched, homes: Homes, *, by_all: bool) -> tuple[Putting, ...]:
    """How what devices have written of a window comes home."""
    found: dict[Variable, list[tuple[np.ndarray, np.ndarray]]] = {}
    for k, part in enumerate(window.parts):
        positions = runs_in(touched.elements[k]).numbers()
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


# --- local families -----------------------------------------------------------------------------------------


class _Held(NamedTuple):
    """What stands for a source on devices: a part of each, and where in `LocalStep.read` it is."""

    parts: tuple[Part, ...]
    number: int


def _local_family(
    family: Family, device: int, reads: dict[Source, _Held], writes: dict[Source, _Held], own: Sequence[Variable]
) -> Family:
    """A family over a device's local variables."""

    def change(field: Field) -> Field:
        tensor = field.tensor
        if tensor is None:
            return field
        held = (writes if field.is_written else reads)[tensor.source]
        index = in_part(tensor.index, tensor.source.shape, held.parts[device])
        return replace(field, tensor=Tensor(own[held.number], index, tensor.rows, tensor.ragged_dimension))

    return replace(family, fields=tuple(map(change, family.fields)))


def plan_local_step(step: ExecuteStep, homes: Homes, count: int) -> LocalStep:
    """A compute set on so many devices."""
    devices = vertex_devices(step, homes, count)
    inner = {family: inner_extents(family) for family in step.families}
    families: list[list[Family]] = []
    for k in range(count):
        made = [
            subfamily(family, chosen(own, k, family.extents), inner[family])
            for family, own in devices.items()
            if family.num_vertices
        ]
        families.append([family for family in made if family is not None])
    read = touched_by(families, lambda field: field.kind == "in")
    updated = touched_by(families, lambda field: field.kind == "inout")
    written = touched_by(families, lambda field: field.is_written)
    everywhere = {
        field.tensor.source
        for family, own in devices.items()
        for field in family.fields
        if own is None and field.is_written and field.tensor is not None
    }
    at_home: dict[Variable, tuple[Part, ...]] = {}
    in_window: list[Window] = []
    reads: dict[Source, _Held] = {}
    writes: dict[Source, _Held] = {}

    homed: list[Variable] = []
    homed_parts: list[tuple[Part, ...]] = []

    def hold(source: Variable, parts: tuple[Part, ...]) -> _Held:
        """What stands for a variable where it lives: once by dimensions, once flat, if need be."""
        for number, (own, theirs) in enumerate(zip(homed, homed_parts, strict=True)):
            if own is source and theirs[0].shape == parts[0].shape:
                return _Held(theirs, number)
        homed.append(source)
        homed_parts.append(parts)
        return _Held(parts, len(homed) - 1)

    sent: list[tuple[Source, Touched]] = []
    for source, touched in written.items():
        parts = _at_home(touched, homes)
        if parts is not None and isinstance(source, Variable):
            if not homes[source].is_everywhere or source in everywhere:
                writes[source] = hold(source, parts)
                continue
        sent.append((source, touched))
    brought: list[tuple[Source, Touched]] = []
    for source, touched in read.items():
        parts = _at_home(touched, homes)
        if parts is not None and isinstance(source, Variable):
            reads[source] = hold(source, parts)
        else:
            brought.append((source, touched))
    for source, touched in brought:
        window = _window(touched, homes, touched)
        reads[source] = _Held(window.parts, len(homed) + len(in_window))
        in_window.append(window)
    sent_windows, sendings = [], []
    for source, touched in sent:
        window = _window(touched, homes, updated.get(source))
        writes[source] = _Held(window.parts, len(homed) + len(in_window) + len(sent_windows))
        sent_windows.append(window)
        sendings.append(_sending(window, touched, homes, by_all=source in everywhere))
    del at_home
    parts_of = [*homed_parts, *(window.parts for window in (*in_window, *sent_windows))]
    sources = [*homed, *(window.source for window in (*in_window, *sent_windows))]
    numbers = tuple(sorted({held.number for held in writes.values()}))
    branches: list[Branch] = []
    keys: dict[object, int] = {}
    branch_of = []
    for k in range(count):
        own = _local_variables(sources, [parts[k] for parts in parts_of])
        local = [_local_family(family, k, reads, writes, own) for family in families[k]]
        key = (tuple(map(family_key, local)), tuple(variable.shape for variable in own) if local else ())
        if key not in keys:
            keys[key] = len(branches)
            how = plan_running(local) if local else None
            branches.append(Branch(how, tuple(own), tuple(own[number] for number in numbers)))
        branch_of.append(keys[key])
    return LocalStep(
        tuple(homed),
        tuple(in_window),
        tuple(sent_windows),
        numbers,
        tuple(sendings),
        tuple(branches),
        np.array(branch_of),
    )


def _local_variables(sources: Sequence[Source], parts: Sequence[Part]) -> list[Variable]:
    """A variable for each part of a source."""
    made: list[Variable] = []
    first = 0
    for number, (source, part) in enumerate(zip(sources, parts, strict=True)):
        name = f"{source_text(source)} here"
        made.append(Variable(source.graph, name, part.extents, source.dtype, number, first))
        first += part.size + 1
    return made
