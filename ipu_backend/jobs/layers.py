"""Layers: what a program costs by the layers of its model, in its forward pass, its backward pass and its update.

In comes a profile, and the graph that was profiled: the names of its compute sets say of what layer a step is. What a
backward pass adds to sum cotangents, and copies, are of the layer of the compute set whose variables they are about.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from codelet.frontends.layers import layer_of
from codelet.graphs.graph import Graph
from codelet.graphs.phases import PHASES, phase_of, without_phase
from codelet.views.sources import source_variables
from ipu_backend.model.profile import Profile
from ipu_backend.model.step_profile import StepProfile

NO_LAYER, COPIES = "(no layer)", "(copies)"


@dataclass(frozen=True)
class Cost:
    """What steps cost, one after another.

    Attributes:
        vertices: that run, in one iteration of each step.
        cycles: of all of it, for all iterations, as the rest.
        compute_cycles: of them, while tiles compute.
        exchange_cycles: of them, while tiles exchange.
        exchange_bytes: that tiles receive.
        used_bytes: what the variables of a step take on all tiles, at most.
        live_bytes: what is live on all tiles while one runs, at most.
    """

    vertices: int = 0
    cycles: int = 0
    compute_cycles: int = 0
    exchange_cycles: int = 0
    exchange_bytes: int = 0
    used_bytes: int = 0
    live_bytes: int = 0

    @staticmethod
    def of(step: StepProfile) -> Cost:
        """What one step costs."""
        return Cost(
            step.num_vertices,
            step.total_cycles,
            step.compute_cycles,
            step.exchange_cycles,
            step.iterations * step.received_bytes,
            step.used_bytes,
            step.used_bytes + step.other_live_bytes,
        )

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.vertices + other.vertices,
            self.cycles + other.cycles,
            self.compute_cycles + other.compute_cycles,
            self.exchange_cycles + other.exchange_cycles,
            self.exchange_bytes + other.exchange_bytes,
            max(self.used_bytes, other.used_bytes),
            max(self.live_bytes, other.live_bytes),
        )

    @property
    def row(self) -> tuple[str, ...]:
        """It as text, in the order of `HEADS`."""
        own = (self.vertices, self.cycles, self.compute_cycles, self.exchange_cycles)
        sizes = (self.exchange_bytes, self.used_bytes, self.live_bytes)
        return (*(f"{number:,}" for number in own), *(f"{size / 1e6:,.2f}" for size in sizes))


HEADS = ("vertices", "cycles", "compute", "exchange", "MB moved", "MB used", "MB live")


@dataclass(frozen=True)
class Layer:
    """What a layer costs in each phase of a step; in `forward` what is of no other."""

    name: str
    forward: Cost = Cost()
    backward: Cost = Cost()
    update: Cost = Cost()

    @property
    def phases(self) -> dict[str, Cost]:
        """Those of its phases that run anything."""
        own = zip(PHASES, (self.forward, self.backward, self.update), strict=True)
        return {name: cost for name, cost in own if cost != Cost()}

    @property
    def total_cycles(self) -> int:
        """Those of all phases."""
        return self.forward.cycles + self.backward.cycles + self.update.cycles


@dataclass(frozen=True)
class LayerNames:
    """Of which layers the steps of a program are, by their names.

    Attributes:
        compute_sets: the layer of each compute set of the forward pass.
        variables: of each variable of that, the layer that writes it, or else reads it first.
    """

    compute_sets: Mapping[str, str]
    variables: Mapping[str, str]

    @staticmethod
    def of(graph: Graph) -> LayerNames:
        """Those of a graph."""
        families = [own for own in graph.families if phase_of(own.compute_set.name) == 0]
        variables: dict[str, str] = {}
        for is_written in (True, False):
            for family in families:
                for field in family.fields:
                    if field.tensor is not None and field.is_written == is_written:
                        for variable in source_variables(field.tensor.source):
                            variables.setdefault(variable.name, layer_of(family.compute_set.name))
        names = {own.compute_set.name for own in families}
        return LayerNames({name: layer_of(name) for name in names}, variables)

    def place_of(self, step: str) -> tuple[str, str]:
        """The layer and the phase of a step.

        >>> LayerNames({}, {}).place_of("backward/convs/0/conv_general_dilated_2/convolve")
        ('convs/0', 'backward')
        """
        phase, is_copy = PHASES[phase_of(step)], step.startswith("copy ")
        about = step.rpartition(" -> ")[2]
        name = "/".join(without_phase(about))
        for own in (about, name) if is_copy else ():
            if own in self.variables:
                return self.variables[own] or NO_LAYER, phase
        for prefix in _prefixes(name):
            if prefix in self.compute_sets:
                return self.compute_sets[prefix] or NO_LAYER, phase
        return COPIES if is_copy else layer_of(name) or NO_LAYER, phase


def _prefixes(name: str) -> Iterator[str]:
    """The beginnings of a name, the longest first, each also without the number that made it unique."""
    parts = name.split("/")
    for count in range(len(parts), 0, -1):
        own = "/".join(parts[:count])
        yield own
        yield re.sub(r"_\d+$", "", own)


def layers_of(profile: Profile, graph: Graph) -> tuple[Layer, ...]:
    """What each layer of a program costs, those that take the most cycles first."""
    names = LayerNames.of(graph)
    costs: dict[str, dict[str, Cost]] = {}
    for step in profile.steps:
        layer, phase = names.place_of(step.name)
        own = costs.setdefault(layer, {})
        own[phase] = own.get(phase, Cost()) + Cost.of(step)
    return tuple(sorted((Layer(name, **own) for name, own in costs.items()), key=lambda layer: -layer.total_cycles))


def layer_table(layers: Sequence[Layer], cycles: int) -> Iterator[str]:
    """The lines of a table of layers, a row for each phase, and the phases of all together.

    Args:
        layers: as `layers_of` gives them.
        cycles: of all.
    """
    rows: list[tuple[str, ...]] = [("by layer", "", HEADS[0], HEADS[1], "share", *HEADS[2:])]
    whole: dict[str, Cost] = {}
    for name, phases in [*((own.name, own.phases) for own in layers), ("all layers", whole)]:
        for phase, cost in phases.items():
            share = f"{cost.cycles / max(1, cycles):.1%}"
            vertices, taken, *rest = cost.row
            rows.append((name, phase, vertices, taken, share, *rest))
            name = ""
        if phases is not whole:
            whole.update({own: whole.get(own, Cost()) + cost for own, cost in phases.items()})
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (
            own.ljust(width) if place < 2 else own.rjust(width)
            for place, (own, width) in enumerate(zip(row, widths, strict=True))
        )
        yield "  " + "  ".join(cells).rstrip()
