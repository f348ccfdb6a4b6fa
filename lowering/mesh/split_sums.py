"""Split sums: a sum of what several devices have is taken on each of them first, and then of what these have found.

A vertex that adds up all of a field, as that which adds partial products up does, needs of every other device no more
than what its own elements add up to. In come a plan and where variables live; out comes a plan in which such a compute
set is three steps: sums of what each device has, their sum over the devices (`AddUpStep`, an all-reduce or a
reduce-scatter), and the vertices with that in place of the field. Integers come out the same, since they wrap around;
floats are added in another order.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import jax
import numpy as np
from jax.extend import core as jax_core

from codelet.graphs.family import Family, Field
from codelet.tracing.codelet_from_jaxpr import codelet_from_jaxpr
from codelet.tracing.field_types import FieldType
from codelet.tracing.statics import restored
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.affine import sorted_symbols
from codelet.views.digits import row_major_strides
from codelet.views.index import Index
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.jaxprs.reduced_field import Reduced, reduced_field
from lowering.mesh.dealing import vertex_devices
from lowering.mesh.homes import Home, Homes, blocked
from lowering.plan.access import take_apart
from lowering.plan.dataflow import flow_step
from lowering.plan.plan import Plan
from lowering.plan.steps import AddUpStep, CallStep, ExecuteStep, FunctionBody, Step
from lowering.plan.walk import bodies, with_bodies


class SumAcross(NamedTuple):
    """A field whose elements several devices have, and which is added up.

    Attributes:
        field: of the family.
        reduced: what its codelet does.
        dimension: of the field, along which it is cut.
        ranges: the positions along it that each device has, none of them empty.
        extents: of the sums of all vertices: those of the grid, then of one sum.
        cut: the dimension of these along which whole sums are cut, as vertices are; None where all devices have them.
    """

    field: Field
    reduced: Reduced
    dimension: int
    ranges: tuple[range, ...]
    extents: tuple[int, ...]
    cut: int | None

    def on_device(self, device: int) -> Tensor:
        """What a device has of the field."""
        tensor, own = self.field.tensor, self.ranges[device]
        assert tensor is not None
        return Tensor(tensor.source, tensor.index[(slice(None),) * self.dimension + (slice(own.start, own.stop),)])


def _ranges(field: Field, home: Home) -> tuple[int, tuple[range, ...]] | None:
    """The dimension of a field that runs through blocks of a variable, and what of it each device has; None if none."""
    tensor = field.tensor
    assert tensor is not None
    assert home.cut is not None
    access = take_apart(home.variable.shape, tensor.index)
    if access.shape != home.variable.shape:
        return None
    start, terms = access.dimensions[home.cut]
    if len(terms) != 1 or terms[0].table is not None or len(terms[0].keys) != 1:
        return None
    (dimension,), (extent,) = terms[0].keys, terms[0].extents
    if not isinstance(dimension, int) or dimension in access.reversed_keys:
        return None
    grain, ends = terms[0].grain, np.arange(home.count + 1) * home.block
    first = np.clip(-((start - ends) // grain), 0, extent)
    found = tuple(map(range, first[:-1].tolist(), first[1:].tolist()))
    return (dimension, found) if all(found) else None


def sum_across(family: Family, devices: np.ndarray | None, homes: Homes) -> SumAcross | None:
    """The first field of a family of which it pays to send sums; None if there is none.

    Args:
        family: of which.
        devices: of each vertex; None where they run on all devices.
        homes: where variables live.
    """
    if homes.count == 1 or family.rows or not family.num_vertices or family.codelet.has_effects:
        return None
    found: dict[str, tuple[int, tuple[range, ...]]] = {}
    for field in family.fields:
        tensor = field.tensor
        if field.kind == "in" and tensor is not None and isinstance(tensor.source, Variable):
            home = homes[tensor.source]
            own = None if home.cut is None else _ranges(field, home)
            if own is not None:
                found[field.name] = own

    def takes(name: str, eqn: jax_core.JaxprEqn) -> bool:
        if name not in found or found[name][0] not in eqn.params["axes"]:
            return False
        field = family.by_name[name].type
        assert field.dtype == eqn.outvars[0].aval.dtype  # type: ignore[attr-defined]
        summed = math.prod(field.shape[d] for d in eqn.params["axes"])
        return summed > homes.count or (devices is None and homes.count > 2)

    reduced = reduced_field(family.codelet, ["reduce_sum"], takes) if found else None
    if reduced is None:
        return None
    dimension, ranges = found[reduced.field]
    extents = (*family.extents, *reduced.equation.outvars[0].aval.shape)  # type: ignore[attr-defined]
    cut = None
    if devices is not None:
        each = np.repeat(devices.reshape(-1), math.prod(extents) // family.num_vertices)
        cut = blocked(each, Variable(family.compute_set.graph, "", extents, np.dtype(bool), 0, 0), homes.count).cut
    return SumAcross(family.by_name[reduced.field], reduced, dimension, ranges, extents, cut)


# --- families ---------------------------------------------------------------------------------------------


def _traced(jaxpr: jax_core.ClosedJaxpr, like: TracedCodelet, inputs: Sequence[str], outputs: Sequence[str], name: str):
    with restored(like.settings):
        codelet = codelet_from_jaxpr(jaxpr, list(inputs), list(outputs), name=name)
        kinds = [FieldType(own.shape, np.dtype(own.dtype), bool(own.weak_type)) for own in jaxpr.in_avals]  # type: ignore[attr-defined]
        return codelet.trace(dict(zip(codelet.inputs, kinds, strict=True)))


def _element(variable: Variable, family: Family, before: Sequence[int] = ()) -> Tensor:
    """What each vertex has of a variable whose dimensions, behind some, are those of the grid and of what it has."""
    strides, first = row_major_strides(variable.shape), len(before)
    inner = first + len(family.axes)
    offset = sum(stride * place for stride, place in zip(strides, before, strict=False))
    symbols = sorted_symbols(dict(zip(family.axes, strides[first:inner], strict=True)))
    return Tensor(variable, Index(offset, variable.shape[inner:], strides[inner:], symbols))


def _first_sums(family: Family, across: SumAcross, sums: Variable) -> list[Family]:
    """The vertices that add up what each device has: of all devices that have as much, by one codelet."""
    equation, codelets, made = across.reduced.equation, {}, []

    def add_up(own: jax.Array) -> jax.Array:
        return equation.primitive.bind(own, **equation.params)

    kept = {"tile": None, "line_of_vertex": None, "lines": family.lines[:1]}
    for device in range(len(across.ranges)):
        own, out = across.on_device(device), _element(sums, family, (device,))
        if own.shape not in codelets:
            jaxpr = jax.make_jaxpr(add_up)(jax.ShapeDtypeStruct(own.shape, own.dtype))
            codelets[own.shape] = _traced(jaxpr, family.codelet, ["own"], ["out"], f"{family.codelet.name}, here")
        kinds = [FieldType(tensor.shape, tensor.dtype) for tensor in (own, out)]
        fields = Field("own", "in", kinds[0], own), Field("out", "out", kinds[1], out)
        made.append(replace(family, codelet=codelets[own.shape], fields=fields, **kept))
    return made


def _rest(family: Family, across: SumAcross, whole: Variable) -> Family:
    """The vertices, with the whole sum in place of a field."""
    reduced, name = across.reduced, across.field.name
    inputs = [name, *reduced.others]
    codelet = _traced(reduced.rest, family.codelet, inputs, tuple(family.codelet.outputs), family.codelet.name)
    tensor = _element(whole, family)
    fields = {**family.by_name, name: Field(name, "in", FieldType(tensor.shape, tensor.dtype), tensor)}
    return replace(family, codelet=codelet, fields=tuple(fields[own] for own in codelet.field_names))


# --- steps ------------------------------------------------------------------------------------------------


class _Splitting:
    """Splits the sums of steps, each step and the body of each function once."""

    def __init__(self, plan: Plan, homes: Homes):
        self.plan, self.homes = plan, homes
        self.made: dict[Step, tuple[Step, ...]] = {}
        self.functions: dict[FunctionBody, FunctionBody] = {}

    def added(self, name: str, shape: tuple[int, ...], dtype: np.dtype, cut: int | None) -> Variable:
        """A variable more."""
        self.plan, made = self.plan.add_variable(name, shape, dtype)
        self.homes[made] = Home(made, self.homes.count, cut)
        return made

    def execute(self, step: ExecuteStep) -> tuple[Step, ...]:
        """A compute set, with what comes before it."""
        devices = vertex_devices(step, self.homes, self.homes.count)
        first: list[Family] = []
        then: list[Step] = []
        families = []
        for family in step.families:
            rest = family
            while (across := sum_across(rest, devices[family], self.homes)) is not None:
                name, dtype = f"{step.name}.{across.field.name}", across.field.type.dtype
                sums = self.added(f"{name}, by device", (self.homes.count, *across.extents), dtype, 0)
                whole = self.added(name, across.extents, dtype, across.cut)
                first += _first_sums(rest, across, sums)
                then.append(AddUpStep(sums, whole))
                rest = _rest(rest, across, whole)
            families.append(rest)
        if not first:
            return (step,)
        before = flow_step(replace(step, name=f"{step.name}, by device", families=tuple(first)))
        return before, *then, flow_step(replace(step, families=tuple(families)))

    def step(self, step: Step) -> tuple[Step, ...]:
        """What runs in place of a step."""
        if step not in self.made:
            if isinstance(step, ExecuteStep):
                self.made[step] = self.execute(step)
            elif isinstance(step, CallStep):
                self.made[step] = (replace(step, function=self.function(step.function)),)
            else:
                self.made[step] = (with_bodies(step, [self.body(body) for body in bodies(step)]),)
        return self.made[step]

    def function(self, function: FunctionBody) -> FunctionBody:
        """A function whose body is split."""
        if function not in self.functions:
            self.functions[function] = replace(function, body=self.body(function.body))
        return self.functions[function]

    def body(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Steps, one after another."""
        return tuple(made for step in steps for made in self.step(step))


def split_sums(plan: Plan, homes: Homes) -> Plan:
    """The plan with sums over what is cut taken on each device first; the homes of what it adds are added."""
    splitting = _Splitting(plan, homes)
    steps = splitting.body(plan.steps)
    return replace(splitting.plan, steps=steps)
