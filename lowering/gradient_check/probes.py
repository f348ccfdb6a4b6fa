"""Probes: what chosen vertices read when a program first runs them.

In come a plan, values for its inputs, and vertices. Out come the values of their fields. The plan is lowered with
copies before every compute set of what the vertices read; within loops and branches a copy is made the first time
alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import equinox as eqx
import numpy as np

from codelet.errors import Line
from codelet.graphs.family import Family
from codelet.graphs.vertices import Vertex
from codelet.hostdata import as_array
from codelet.views.affine import Table
from codelet.views.index import Index
from codelet.views.integers import narrowed
from codelet.views.sources import Source, Variable
from codelet.views.tensor import Tensor, whole_view
from lowering.lower import Lowered, lower_plan
from lowering.plan.dataflow import flow
from lowering.plan.plan import Plan
from lowering.plan.steps import CallStep, CopyStep, PrintStep, Step, SwitchStep
from lowering.plan.walk import bodies, with_bodies


@dataclass(frozen=True, eq=False)
class Site:
    """Vertices of a family that are looked at.

    Attributes:
        family: the family.
        vertices: those of it.
        wrt: the fields by which there are gradients.
        of: the results that the gradients are of.
        line: the line that it is of, where its vertices do not know theirs.
    """

    family: Family
    vertices: tuple[Vertex, ...]
    wrt: tuple[str, ...]
    of: tuple[str, ...]
    line: Line | None = None


@dataclass(frozen=True, eq=False)
class Seen:
    """What vertices read.

    Attributes:
        fields: for each vertex its fields by name; None where the program never ran them.
        is_in_loop: whether the values are those of the first iteration of a loop.
    """

    fields: list[dict[str, Any]] | None
    is_in_loop: bool


def silent(steps: Sequence[Step]) -> tuple[Step, ...]:
    """Steps without prints."""
    kept = [step for step in steps if not isinstance(step, PrintStep)]
    calls = lambda step: isinstance(step, CallStep)  # noqa: E731
    return tuple(step if calls(step) else with_bodies(step, [silent(own) for own in bodies(step)]) for step in kept)


@eqx.filter_jit
def _run(run: Lowered, arrays: Sequence[Any]) -> list[Any]:
    return run.flat(arrays)


def compiled(plan: Plan) -> Callable[[Mapping[str, Any]], list[np.ndarray]]:
    """A plan without mistakes as a function of values for its inputs and input streams, by name, to its outputs."""
    run = lower_plan(flow(replace(plan, steps=silent(plan.steps))), None)

    def outputs(values: Mapping[str, Any]) -> list[np.ndarray]:
        made = _run(run, [as_array(values[own.name], own) for own in run.arguments])
        return [np.asarray(own) for own in made[: len(plan.outputs)]]

    return outputs


class _Probes:
    """Puts copies into the steps of a plan; all that it adds are inputs of it."""

    def __init__(self, plan: Plan, sites: Mapping[Step, Sequence[Site]]):
        self.plan, self.sites = plan, sites
        self.given: dict[Variable, np.ndarray] = {}
        self.held: dict[Site, dict[str, tuple[Variable, list[tuple[int, ...]]]]] = {}
        self.flags: dict[Site, Variable | None] = {}
        self.in_loop: set[Site] = set()

    def variable(self, name: str, array: np.ndarray) -> Variable:
        """A variable that is given an array from outside."""
        self.plan, made = self.plan.add_variable(f"{name} {len(self.given)}", array.shape, array.dtype)
        self.given[made] = array
        return made

    def steps(self, steps: Sequence[Step], depth: int, in_loop: bool) -> tuple[Step, ...]:
        found: list[Step] = []
        for step in steps:
            for site in self.sites.get(step, ()):
                found += self.probe(site, depth, in_loop)
            if bodies(step) and not isinstance(step, CallStep):
                inside = in_loop or not isinstance(step, SwitchStep)
                step = with_bodies(step, [self.steps(own, depth + 1, inside) for own in bodies(step)])
            found.append(step)
        return tuple(found)

    def probe(self, site: Site, depth: int, in_loop: bool) -> list[Step]:
        """The copies of what a site reads."""
        if site in self.flags and self.flags[site] is None:
            return []  # it was seen before
        if site not in self.held:
            self.held[site] = self._held(site)
            self.flags[site] = self.variable("seen", np.zeros((), bool)) if depth else None
            if in_loop:
                self.in_loop.add(site)
        copies = [self._copy(site, name, own) for name, (own, _) in self.held[site].items()]
        flag = self.flags[site]
        if flag is None:
            return copies
        true = self.variable("true", np.ones((), bool))
        first = (*copies, CopyStep(whole_view(true), whole_view(flag)))
        return [SwitchStep(whole_view(flag), (0,), (first, ()))]

    def _held(self, site: Site) -> dict[str, tuple[Variable, list[tuple[int, ...]]]]:
        found = {}
        for name in site.family.codelet.inputs:
            if site.family.by_name[name].tensor is not None:
                shapes = [vertex.fields[name].shape for vertex in site.vertices]
                size = sum(int(np.prod(shape)) for shape in shapes)
                array = np.zeros((size,), site.family.by_name[name].type.dtype)
                found[name] = self.variable("probe", array), shapes
        return found

    def _copy(self, site: Site, name: str, probe: Variable) -> Step:
        views = [vertex.fields[name] for vertex in site.vertices]
        source: Source = views[0].source
        places = np.concatenate([view.index.values().reshape(-1) for view in views])
        index = Index(0, places.shape, (0,), (), (Table((0,), narrowed(places), 1),))
        return CopyStep(Tensor(source, index), whole_view(probe))


def look(plan: Plan, sites: Mapping[Step, Sequence[Site]], values: Mapping[str, Any]) -> dict[Site, Seen]:
    """What the vertices of each site read when the program first runs them.

    Args:
        plan: without calls but of functions with derivatives; its inputs have values.
        sites: by the step that runs them.
        values: an array for every input and input stream, by name.
    """
    probes = _Probes(plan, sites)
    steps = probes.steps(plan.steps, 0, False)
    wanted = [own for held in probes.held.values() for own, _ in held.values()]
    wanted += [flag for flag in probes.flags.values() if flag is not None]
    outputs = tuple(whole_view(own) for own in wanted)
    plan = replace(probes.plan, steps=steps, inputs=(*plan.inputs, *probes.given), outputs=outputs)
    made = compiled(plan)({**values, **{own.name: array for own, array in probes.given.items()}})
    arrays = dict(zip(wanted, made, strict=True))
    found = {}
    for site, held in probes.held.items():
        flag = probes.flags[site]
        in_loop = site in probes.in_loop
        if flag is not None and not arrays[flag]:
            found[site] = Seen(None, in_loop)
            continue
        fields: list[dict[str, Any]] = [_state(vertex) for vertex in site.vertices]
        for name, (own, shapes) in held.items():
            ends = np.cumsum([int(np.prod(shape)) for shape in shapes])[:-1]
            for vertex, part, shape in zip(fields, np.split(arrays[own], ends), shapes, strict=True):
                vertex[name] = part.reshape(shape)
        found[site] = Seen(fields, in_loop)
    return found


def _state(vertex: Vertex) -> dict[str, Any]:
    """The constants that a vertex holds."""
    return {name: own for name, own in vertex.fields.items() if not isinstance(own, Tensor)}
