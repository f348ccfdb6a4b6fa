"""Local steps: a compute set as each device of a mesh runs its vertices of it.

In come a compute set, and where variables live and vertices run. Out come layers, mostly one: what is brought to each
device before it runs (windows: of each source that its vertices read beyond what it has), the families of its vertices,
over local variables in place of the graph's, and what is sent home behind it. Families of devices that are equal in
structure are run by one branch. Where vertices have a core that needs no windows, its edges are layers of their own
(`core_and_edges.py`), whose results are put into what is held, row by row.
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
from lowering.mesh.addresses import Putting
from lowering.mesh.core_and_edges import LocalFamilies, split_core
from lowering.mesh.crossing import Crossing, WholeGathering
from lowering.mesh.dealing import chosen, vertex_devices, written_by
from lowering.mesh.homes import Homes
from lowering.mesh.parts import Part, in_part
from lowering.mesh.subfamilies import inner_extents, subfamily
from lowering.mesh.touching import Touched, touched_by
from lowering.mesh.windows import DeviceWindow, Placing, at_home, own_box, placing_of, sending, window_of
from lowering.plan.steps import ExecuteStep
from lowering.plan.structure import family_key


class Branch(NamedTuple):
    """What some devices run.

    Attributes:
        running: how; None where there are no vertices.
        reads: the local variable of each operand: stored parts, the windows, those that are sent.
        writes: that of each operand that is written.
    """

    running: Running | None
    reads: tuple[Variable, ...]
    writes: tuple[Variable, ...]


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
    windows: tuple[DeviceWindow, ...]
    sent: tuple[DeviceWindow, ...]
    written: tuple[int, ...]
    sendings: tuple[tuple[Putting | Placing, ...], ...]
    branches: tuple[Branch, ...]
    branch_of: np.ndarray
    is_edge: bool

    @property
    def crossings(self) -> list[Crossing | WholeGathering]:
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


# --- local families -----------------------------------------------------------------------------------------


class _DevicePart(NamedTuple):
    """What stands for a source on devices: a part of each, and its number among all that a step is run on."""

    parts: tuple[Part, ...]
    number: int


@dataclass(eq=False)
class _Operands:
    """The operands of a compute set, by the number of each: stored arrays, and windows."""

    sources: list[Source] = field(default_factory=list)
    parts: list[tuple[Part, ...]] = field(default_factory=list)

    def add(self, source: Source, parts: tuple[Part, ...]) -> _DevicePart:
        """One more."""
        self.sources.append(source)
        self.parts.append(parts)
        return _DevicePart(parts, len(self.parts) - 1)

    def held(self, variable: Variable, parts: tuple[Part, ...]) -> _DevicePart:
        """What devices hold of a variable: once by its dimensions, once flat, if need be."""
        for number, (source, own) in enumerate(zip(self.sources, self.parts, strict=True)):
            if source is variable and own[0].shape == parts[0].shape:
                return _DevicePart(own, number)
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
    reads: Mapping[Source, _DevicePart],
    writes: Mapping[Source, _DevicePart],
    own: Sequence[Variable],
) -> Family:
    """A family over a device's local variables."""

    def change(each: Field) -> Field:
        tensor = each.tensor
        if tensor is None:
            return each
        held = (writes if each.is_written else reads)[tensor.source]
        index = in_part(tensor.index, held.parts[device])
        return replace(each, tensor=Tensor(own[held.number], index, tensor.rows, tensor.ragged_dimension))

    return replace(family, fields=tuple(map(change, family.fields)))


def _branches(
    families: Sequence[Sequence[Family]],
    operands: _Operands,
    reads: Mapping[Source, _DevicePart],
    writes: Mapping[Source, _DevicePart],
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


@dataclass(eq=False)
class _SourceStandIns:
    """What stands for the sources that some vertices touch, as it is found.

    Attributes:
        homes: where variables live.
        by_all: the variables that all devices write.
        is_edge: whether what is cut is read and written through windows alone.
        operands: what the vertices are run on.
        reads, writes: of each source that is read, or written, what stands for it.
    """

    homes: Homes
    by_all: Collection[Variable]
    is_edge: bool
    operands: _Operands = field(default_factory=_Operands)
    reads: dict[Source, _DevicePart] = field(default_factory=dict)
    writes: dict[Source, _DevicePart] = field(default_factory=dict)

    def is_by_all(self, source: Source) -> bool:
        """Whether all devices write all of a source."""
        return set(self.by_all).issuperset(source_variables(source))

    def _held(self, touched: Touched) -> _DevicePart | None:
        """What devices hold of a source, where vertices touch nothing else."""
        source = touched.source
        if not isinstance(source, Variable) or (self.is_edge and not self.homes[source].is_everywhere):
            return None
        parts = at_home(touched, self.homes)
        return None if parts is None else self.operands.held(source, parts)

    def hold(self, read: Mapping[Source, Touched], written: Mapping[Source, Touched]) -> None:
        """Find the variables that are read and written where they are stored."""
        for source, touched in written.items():
            is_own = isinstance(source, Variable) and not self.homes[source].is_everywhere
            held = self._held(touched) if is_own or self.is_by_all(source) else None
            if held is not None:
                self.writes[source] = held
        for source, touched in read.items():
            held = self._held(touched)
            if held is not None:
                self.reads[source] = held

    def bring(self, read: Mapping[Source, Touched], boxes: Mapping[Source, DeviceWindow]) -> tuple[DeviceWindow, ...]:
        """The windows of what else is read."""
        windows = []
        for source, touched in read.items():
            if source not in self.reads:
                windows.append(boxes[source] if source in boxes else window_of(touched, self.homes, touched))
                self.reads[source] = self.operands.add(source, windows[-1].parts)
        return tuple(windows)

    def send(
        self, written: Mapping[Source, Touched], updated: Mapping[Source, Touched]
    ) -> tuple[tuple[DeviceWindow, ...], tuple[tuple[Putting | Placing, ...], ...]] | None:
        """The windows of what else is written, and how each comes home; None where that of an edge is no box."""
        sent, sendings = [], []
        for source, touched in written.items():
            if source in self.writes:
                continue
            sent.append(window_of(touched, self.homes, updated.get(source)))
            self.writes[source] = self.operands.add(source, sent[-1].parts)
            placing = placing_of(sent[-1], touched, self.homes) if self.is_edge else None
            if self.is_edge and placing is None:
                return None
            by_all = self.is_by_all(source)
            sendings.append((placing,) if placing else sending(sent[-1], touched, self.homes, by_all=by_all))
        return tuple(sent), tuple(sendings)


def _plan_layer(families: LocalFamilies, homes: Homes, by_all: Collection[Variable], *, is_edge: bool) -> Layer | None:
    """Some vertices of each device; None where an edge writes what is no box.

    Args:
        families: of each device.
        homes: where variables live.
        by_all: the variables that all devices write.
        is_edge: whether they are an edge, which reads and writes what is cut through windows alone.
    """
    read = touched_by(families, lambda own: own.kind == "in")
    updated = touched_by(families, lambda own: own.kind == "inout")
    written = touched_by(families, lambda own: own.is_written)
    boxes = {source: box for source, touched in read.items() if (box := own_box(touched, homes)) is not None}
    standing = _SourceStandIns(homes, by_all, is_edge)
    standing.hold({source: touched for source, touched in read.items() if source not in boxes}, written)
    held = tuple(standing.operands.sources)
    windows = standing.bring(read, boxes)
    found = standing.send(written, updated)
    if found is None:
        return None
    sent, sendings = found
    numbers = tuple(sorted({own.number for own in standing.writes.values()}))
    branches, branch_of = _branches(families, standing.operands, standing.reads, standing.writes)
    return Layer(held, windows, sent, numbers, sendings, tuple(branches), np.array(branch_of), is_edge)  # type: ignore[arg-type]


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
