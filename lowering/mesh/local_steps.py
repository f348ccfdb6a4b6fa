"""Local steps: a compute set as each device of a mesh runs its own vertices of it.

In come a compute set, and where variables live and vertices run. Out come layers, mostly one: what is brought to each
device before it runs (windows: of each source that its vertices read beyond what it has), the families of its own
vertices, over local variables in place of the graph's, and what is sent home behind it. Families of devices that are
equal in structure are run by one branch. Where vertices have a core that needs no windows, its edges are layers of
their own (`core_and_edges.py`), whose results are put into what is held, row by row.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from codelet.graphs.family import Family, Field
from codelet.views.sources import Source, Variable, source_text, source_variables
from codelet.views.tensor import Tensor
from lowering.fast.compute_sets import Running, plan_running
from lowering.mesh.addresses import Located, Putting, elements_at, locate, put, to_places
from lowering.mesh.core_and_edges import LocalFamilies, split_core
from lowering.mesh.crossing import Crossing, Gathering
from lowering.mesh.dealing import chosen, vertex_devices, written_by
from lowering.mesh.homes import Homes
from lowering.mesh.parts import Part, in_part
from lowering.mesh.subfamilies import inner_extents, subfamily
from lowering.mesh.touching import Touched, count_of, runs_in, touched_by
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
        starts: of a box of what all devices have of a variable, where each device's own begins along each dimension of
            its parts, of shape (devices,); nothing is brought then.
    """

    source: Source
    parts: tuple[Part, ...]
    size: int
    located: Located | None
    crossing: Crossing | Gathering | None
    starts: tuple[np.ndarray, ...] = ()


class Branch(NamedTuple):
    """What some devices run.

    Attributes:
        running: how; None where there are no vertices.
        reads: the local variable of each operand: what is held, the windows, those that are sent.
        writes: that of each operand that is written.
    """

    running: Running | None
    reads: tuple[Variable, ...]
    writes: tuple[Variable, ...]


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


@dataclass(frozen=True, eq=False)
class Layer:
    """Some vertices of a compute set, on the devices of a mesh.

    Attributes:
        held: the variables that vertices read or write where they live.
        windows: what is brought.
        sent: the windows that are written, with what is brought to them first.
        written: the operands that are written, by their numbers: first come those of `held`, then the windows, then
            those that are sent.
        sendings: of `sent`, how it comes home.
        branches: what devices run.
        branch_of: which of these each device runs.
        is_edge: whether they are before or behind a core.
    """

    held: tuple[Variable, ...]
    windows: tuple[Window, ...]
    sent: tuple[Window, ...]
    written: tuple[int, ...]
    sendings: tuple[tuple[Putting | Placing, ...], ...]
    branches: tuple[Branch, ...]
    branch_of: np.ndarray
    is_edge: bool

    @property
    def crossings(self) -> list[Crossing | Gathering]:
        """All that crosses."""
        found = [own.crossing for own in (*self.windows, *self.sent) if own.crossing is not None]
        return found + [own.crossing for sending in self.sendings for own in sending if isinstance(own, Putting)]


@dataclass(frozen=True, eq=False)
class LocalStep:
    """A compute set on the devices of a mesh.

    Attributes:
        name: of the compute set.
        layers: its vertices, in the order in which they run. All that they read stands before any of them has written.
    """

    name: str
    layers: tuple[Layer, ...]

    def lines(self) -> Iterator[str]:
        """What crosses, as text."""
        for layer in self.layers:
            crossings = [own for own in layer.crossings if own.kind != "none"]
            yield from (f"{self.name}{', an edge' if layer.is_edge else ''}: {own!r}" for own in crossings)


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


def _gathering(touched: Touched, homes: Homes, parts: Sequence[Part]) -> Gathering | None:
    """How all of a variable comes to all devices; None where not all need all of it, or it is not cut evenly."""
    source = touched.source
    if not isinstance(source, Variable) or homes[source].cut is None or homes[source].padding != 1:
        return None
    if any(count_of(own) < source.size for own in touched.elements) or any(part.size > source.size for part in parts):
        return None
    home = homes[source]
    return Gathering(home.shape, home.cut or 0, home.count)


def _window(touched: Touched, homes: Homes, brought: Touched | None) -> Window:
    """A window for all that devices touch of a source, to which some of it is brought."""
    parts = touched.parts()
    size = max(part.size for part in parts)
    if brought is None or not size:
        return Window(touched.source, parts, size, None, None)
    gathering = _gathering(touched, homes, parts)
    if gathering is not None:
        return Window(touched.source, parts, size, locate(touched.source, homes), gathering)
    located = locate(touched.source, homes, brought.elements)
    places = _places(parts, brought)
    return Window(touched.source, parts, size, located, to_places(size, places, located))


def _own_box(touched: Touched, homes: Homes) -> Window | None:
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
    return Window(source, parts, parts[0].size, None, None, tuple(np.array(starts, np.int32).T.copy()))


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
    """What stands for a source on devices: a part of each, and its number among all that a step is run on."""

    parts: tuple[Part, ...]
    number: int


@dataclass(eq=False)
class _Operands:
    """What a compute set is run on, by the number of each: arrays that are held, and windows."""

    sources: list[Source] = field(default_factory=list)
    parts: list[tuple[Part, ...]] = field(default_factory=list)

    def add(self, source: Source, parts: tuple[Part, ...]) -> _Held:
        """One more."""
        self.sources.append(source)
        self.parts.append(parts)
        return _Held(parts, len(self.parts) - 1)

    def held(self, variable: Variable, parts: tuple[Part, ...]) -> _Held:
        """What devices hold of a variable: once by its dimensions, once flat, if need be."""
        for number, (source, own) in enumerate(zip(self.sources, self.parts, strict=True)):
            if source is variable and own[0].shape == parts[0].shape:
                return _Held(own, number)
        return self.add(variable, parts)

    def variables(self, device: int) -> list[Variable]:
        """The local variables of a device."""
        made: list[Variable] = []
        first = 0
        for number, (source, parts) in enumerate(zip(self.sources, self.parts, strict=True)):
            part = parts[device]
            name = f"{source_text(source)} here"
            made.append(Variable(source.graph, name, part.extents, source.dtype, number, first))
            first += part.size + 1
        return made


def _local_family(
    family: Family,
    device: int,
    reads: Mapping[Source, _Held],
    writes: Mapping[Source, _Held],
    own: Sequence[Variable],
) -> Family:
    """A family over a device's local variables."""

    def change(each: Field) -> Field:
        tensor = each.tensor
        if tensor is None:
            return each
        held = (writes if each.is_written else reads)[tensor.source]
        index = in_part(tensor.index, tensor.source.shape, held.parts[device])
        return replace(each, tensor=Tensor(own[held.number], index, tensor.rows, tensor.ragged_dimension))

    return replace(family, fields=tuple(map(change, family.fields)))


def _branches(
    families: Sequence[Sequence[Family]],
    operands: _Operands,
    reads: Mapping[Source, _Held],
    writes: Mapping[Source, _Held],
) -> tuple[list[Branch], list[int]]:
    """What devices run, once for those that are equal in structure; and which each device runs."""
    numbers = sorted({held.number for held in writes.values()})
    branches: list[Branch] = []
    keys: dict[Hashable, int] = {}
    branch_of = []
    for device, own in enumerate(families):
        variables = operands.variables(device)
        local = [_local_family(family, device, reads, writes, variables) for family in own]
        shapes = tuple(variable.shape for variable in variables) if local else ()
        key = tuple(map(family_key, local)), shapes
        if key not in keys:
            keys[key] = len(branches)
            how = plan_running(local) if local else None
            branches.append(Branch(how, tuple(variables), tuple(variables[number] for number in numbers)))
        branch_of.append(keys[key])
    return branches, branch_of


def _own_families(devices: Mapping[Family, np.ndarray | None], count: int) -> LocalFamilies:
    """The vertices of each device, as families."""
    inner = {family: inner_extents(family) for family in devices}
    every = [family for family in devices if family.num_vertices]
    made = [
        [subfamily(family, chosen(devices[family], k, family.extents), inner[family]) for family in every]
        for k in range(count)
    ]
    return [[family for family in own if family is not None] for own in made]


def _placing(window: Window, touched: Touched, homes: Homes) -> Placing | None:
    """How a window comes home that is a box of what its device holds; None where it is none."""
    source = window.source
    if not isinstance(source, Variable) or homes[source].cut is None:
        return None
    starts = []
    for part, home, own in zip(window.parts, homes[source].parts, touched.elements, strict=True):
        pairs = [(a, b) for a, b in zip(part.sets, home.sets, strict=False) if isinstance(a, range) and len(a)]
        is_box = part.shape == source.shape and len(pairs) == len(source.shape) and count_of(own) == part.size
        if not is_box or any(a.start < b[0] or a.stop > b[-1] + 1 for a, b in pairs):
            return None
        starts.append([a.start - b[0] for a, b in pairs])
    (extents, *others) = {part.extents for part in window.parts}
    return None if others else Placing(source, extents, tuple(np.array(starts, np.int32).T.copy()))


def _plan_layer(
    families: LocalFamilies,
    homes: Homes,
    by_all: Collection[Variable],
    *,
    is_edge: bool,
) -> Layer | None:
    """Some vertices of each device.

    Args:
        families: of each device.
        homes: where variables live.
        by_all: those that all devices write.
        is_edge: whether what is cut is read and written through windows alone; there is none then where what is
            written is no box.
    """
    read = touched_by(families, lambda own: own.kind == "in")
    updated = touched_by(families, lambda own: own.kind == "inout")
    written = touched_by(families, lambda own: own.is_written)

    def is_by_all(source: Source) -> bool:
        return set(by_all).issuperset(source_variables(source))

    def at_home(touched: Touched) -> tuple[Part, ...] | None:
        source = touched.source
        if not isinstance(source, Variable) or (is_edge and not homes[source].is_everywhere):
            return None
        return _at_home(touched, homes)

    operands = _Operands()
    reads: dict[Source, _Held] = {}
    writes: dict[Source, _Held] = {}
    for source, touched in written.items():
        parts = at_home(touched)
        if (
            parts is not None
            and isinstance(source, Variable)
            and (not homes[source].is_everywhere or is_by_all(source))
        ):
            writes[source] = operands.held(source, parts)
    boxes = {source: box for source, touched in read.items() if (box := _own_box(touched, homes)) is not None}
    for source, touched in read.items():
        parts = at_home(touched)
        if parts is not None and isinstance(source, Variable) and source not in boxes:
            reads[source] = operands.held(source, parts)
    held = tuple(operands.sources)
    windows, sent, sendings = [], [], []
    for source, touched in read.items():
        if source not in reads:
            windows.append(boxes[source] if source in boxes else _window(touched, homes, touched))
            reads[source] = operands.add(source, windows[-1].parts)
    for source, touched in written.items():
        if source not in writes:
            sent.append(_window(touched, homes, updated.get(source)))
            writes[source] = operands.add(source, sent[-1].parts)
            placing = _placing(sent[-1], touched, homes) if is_edge else None
            if is_edge and placing is None:
                return None
            sendings.append((placing,) if placing else _sending(sent[-1], touched, homes, by_all=is_by_all(source)))
    branches, branch_of = _branches(families, operands, reads, writes)
    return Layer(
        held,  # type: ignore[arg-type]
        tuple(windows),
        tuple(sent),
        tuple(sorted({own.number for own in writes.values()})),
        tuple(sendings),
        tuple(branches),
        np.array(branch_of),
        is_edge,
    )


def plan_local_step(step: ExecuteStep, homes: Homes, count: int) -> LocalStep:
    """A compute set on so many devices."""
    devices = vertex_devices(step, homes, count)
    split = split_core(devices, homes, count)
    if split is not None:
        edges = [_plan_layer(own, homes, (), is_edge=True) for own in split.edges]
        if all(layer is not None for layer in edges):
            core = _plan_layer(split.core, homes, (), is_edge=False)
            return LocalStep(step.name, (*edges, core))  # type: ignore[arg-type]
    by_all = {variable for family, own in devices.items() if own is None for variable in written_by(family)}
    layer = _plan_layer(_own_families(devices, count), homes, by_all, is_edge=False)
    assert layer is not None
    return LocalStep(step.name, (layer,))
