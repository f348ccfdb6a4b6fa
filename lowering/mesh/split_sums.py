"""Split sums: a sum of what several devices have is taken on each of them first, and then of what these have found.

A vertex that adds up all of a field, as that which adds partial products up does, or the products of two, needs of
every other device no more than what its elements add up to. In come a plan and where variables live; out comes a plan
in which such a compute set is three steps: sums of what each device has, their sum over the devices (`AddUpStep`, an
all-reduce or a reduce-scatter), and the vertices with that in place of the fields. Integers come out the same, since
they wrap around; floats are added in another order.
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
from codelet.views.access import Access
from codelet.views.affine import sorted_symbols
from codelet.views.digits import row_major_strides
from codelet.views.index import Index
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.jaxprs.reduced_fields import Reduced, reduced_fields
from lowering.mesh.dealing import vertex_devices
from lowering.mesh.homes import Home, Homes, blocked
from lowering.plan.dataflow import flow_step
from lowering.plan.plan import Plan
from lowering.plan.steps import AddUpStep, ExecuteStep, Step
from lowering.plan.walk import Rewriter


class SumAcross(NamedTuple):
    """Fields whose elements several devices have, and which are added up, or their products.

    Attributes:
        fields: of the family, in the order of the equation that adds up.
        reduced: what its codelet does.
        dimensions: of each field, along which it is cut.
        ranges: the positions along these that each device has, none of them empty.
        extents: of the sums of all vertices: those of the grid, then of one sum.
        cut: the dimension of these along which whole sums are cut, as vertices are; None where all devices have them.
    """

    fields: tuple[Field, ...]
    reduced: Reduced
    dimensions: tuple[int, ...]
    ranges: tuple[range, ...]
    extents: tuple[int, ...]
    cut: int | None

    @property
    def dtype(self) -> np.dtype:
        """Of the sums."""
        return self.fields[0].type.dtype

    def on_device(self, device: int) -> list[Tensor]:
        """What a device has of each field."""
        chosen, found = slice(self.ranges[device].start, self.ranges[device].stop), []
        for field, dimension in zip(self.fields, self.dimensions, strict=True):
            assert field.tensor is not None
            index = field.tensor.index[(slice(None),) * dimension + (chosen,)]
            found.append(Tensor(field.tensor.source, index))
        return found


def _blocks(field: Field, homes: Homes) -> tuple[int, tuple[range, ...]] | None:
    """The dimension of a field that runs through blocks of a variable, and what of it each device has; None if none."""
    tensor = field.tensor
    if tensor is None or not isinstance(tensor.source, Variable) or homes[tensor.source].cut is None:
        return None
    home, shape = homes[tensor.source], tensor.source.shape
    access = Access.of(tensor.index, shape)
    line = access.lines[home.cut or 0] if access.shape == shape else None
    if line is None or line.tables or len(line.steps) != 1:
        return None
    ((dimension, step),) = line.steps
    if not isinstance(dimension, int) or step < 0:
        return None
    ends = np.arange(home.count + 1) * home.block
    first = np.clip(-((line.start - ends) // step), 0, access.extents[dimension])
    found = tuple(map(range, first[:-1].tolist(), first[1:].tolist()))
    return (dimension, found) if all(found) else None


def _summed(eqn: jax_core.JaxprEqn) -> list[tuple[int, ...]]:
    """The dimensions that an equation sums over: each as one of every operand."""
    if eqn.primitive.name == "reduce_sum":
        return [(dimension,) for dimension in eqn.params["axes"]]
    (contracted, _) = eqn.params["dimension_numbers"]
    return list(zip(*contracted, strict=True))


def _read(field: Field) -> tuple[Variable, ...]:
    """The variables that a field reads of."""
    return field.variables if field.is_read else ()


def _touched(family: Family, field: Field) -> int:
    """About how many elements vertices touch through a field."""
    tensor = field.tensor
    assert tensor is not None
    return min(tensor.source.size, family.num_vertices * tensor.size)


def _cut_of(family: Family, extents: tuple[int, ...], devices: np.ndarray, count: int) -> int | None:
    """The dimension along which the sums of vertices are in blocks as vertices are; None if along none."""
    each = np.repeat(devices.reshape(-1), math.prod(extents) // family.num_vertices)
    return blocked(each, Variable(family.compute_set.graph, "", extents, np.dtype(bool), 0, 0), count).cut


def _across(family: Family, devices: np.ndarray | None, homes: Homes, reduced: Reduced) -> SumAcross | None:
    """What an equation adds up across devices, where it does and that pays."""
    fields = tuple(family.by_name[name] for name in reduced.fields)
    result = reduced.equation.outvars[0].aval
    dtype, shape = np.dtype(result.dtype), tuple(result.shape)  # type: ignore[attr-defined]
    extents = (*family.extents, *shape)
    is_short = dtype.itemsize < 4 and dtype.kind not in "iu"  # it would be rounded before it is added up
    if is_short or not math.prod(extents) or any(own.kind != "in" or own.type.dtype != dtype for own in fields):
        return None
    blocks = [_blocks(own, homes) for own in fields]
    found = [own for own in blocks if own is not None]
    whole = [field for field, own in zip(fields, blocks, strict=True) if own is None]
    if not found or not homes.are_everywhere(variable for field in whole for variable in _read(field)):
        return None
    cut = None if devices is None else _cut_of(family, extents, devices, homes.count)
    sent = (1 if cut is not None else 2) * math.prod(extents) * homes.count
    brought = sum(_touched(family, field) for field in fields if field not in whole)
    if sent >= brought * (homes.count if devices is None else 1) or len({ranges for _, ranges in found}) > 1:
        return None
    for dimensions in _summed(reduced.equation):
        if all(own is None or own[0] == d for own, d in zip(blocks, dimensions, strict=True)):
            return SumAcross(fields, reduced, dimensions, found[0][1], extents, cut)
    return None


def sum_across(family: Family, devices: np.ndarray | None, homes: Homes) -> SumAcross | None:
    """The first sum of a family of which it pays to send what devices have found; None if there is none.

    Args:
        family: of which.
        devices: of each vertex; None where they run on all devices.
        homes: where variables live.
    """
    if homes.count == 1 or family.rows or not family.num_vertices or family.codelet.has_effects:
        return None
    if not any(homes[own].cut is not None for field in family.fields for own in _read(field)):
        return None
    found = (
        _across(family, devices, homes, own) for own in reduced_fields(family.codelet, "reduce_sum", "dot_general")
    )
    return next((own for own in found if own is not None), None)


# --- families ---------------------------------------------------------------------------------------------


def _traced(jaxpr: jax_core.ClosedJaxpr, like: TracedCodelet, inputs: Sequence[str], outputs: Sequence[str], name: str):
    with restored(like.settings):
        codelet = codelet_from_jaxpr(jaxpr, list(inputs), list(outputs), name=name)
        kinds = [FieldType(own.shape, np.dtype(own.dtype), bool(own.weak_type)) for own in jaxpr.in_avals]  # type: ignore[attr-defined]
        return codelet.specialise(dict(zip(codelet.inputs, kinds, strict=True)))


def _type(tensor: Tensor) -> FieldType:
    return FieldType(tensor.shape, tensor.dtype)


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

    def add_up(*own: jax.Array) -> jax.Array:
        return equation.primitive.bind(*own, **equation.params)

    kept = {"tile": None, "line_of_vertex": None, "lines": family.lines[:1]}
    for device in range(len(across.ranges)):
        given, out = across.on_device(device), _element(sums, family, (device,))
        names, size = [f"x{k}" for k in range(len(given))], len(across.ranges[device])
        if size not in codelets:
            with restored(family.codelet.settings):
                jaxpr = jax.make_jaxpr(add_up)(*(jax.ShapeDtypeStruct(own.shape, own.dtype) for own in given))
            codelets[size] = _traced(jaxpr, family.codelet, names, ["out"], f"{family.codelet.name}, here")
        fields = [Field(name, "in", _type(own), own) for name, own in zip(names, given, strict=True)]
        fields.append(Field("out", "out", _type(out), out))
        made.append(replace(family, codelet=codelets[size], fields=tuple(fields), **kept))
    return made


def _rest(family: Family, across: SumAcross, whole: Variable) -> Family:
    """The vertices, with the whole sum in place of the fields that it is of."""
    reduced, name = across.reduced, across.fields[0].name
    inputs = [name, *reduced.others]
    codelet = _traced(reduced.rest, family.codelet, inputs, tuple(family.codelet.outputs), family.codelet.name)
    tensor = _element(whole, family)
    fields = {**family.by_name, name: Field(name, "in", _type(tensor), tensor)}
    return replace(family, codelet=codelet, fields=tuple(fields[own] for own in codelet.field_names))


# --- steps ------------------------------------------------------------------------------------------------


class _Splitting(Rewriter):
    """Splits the sums of steps."""

    def __init__(self, plan: Plan, homes: Homes):
        super().__init__()
        self.plan, self.homes = plan, homes
        self.split: dict[Step, tuple[Step, ...]] = {}

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
                name = f"{step.name}.{across.fields[0].name}"
                sums = self.added(f"{name}, by device", (self.homes.count, *across.extents), across.dtype, 0)
                whole = self.added(name, across.extents, across.dtype, across.cut)
                first += _first_sums(rest, across, sums)
                then.append(AddUpStep(sums, whole))
                rest = _rest(rest, across, whole)
            families.append(rest)
        if not first:
            return (step,)
        before = flow_step(replace(step, name=f"{step.name}, by device", families=tuple(first)))
        return before, *then, flow_step(replace(step, families=tuple(families)))

    def body(self, steps: Sequence[Step]) -> tuple[Step, ...]:
        """Steps, one after another."""
        found: list[Step] = []
        for step in steps:
            if not isinstance(step, ExecuteStep):
                found.append(self.around(step))
                continue
            if step not in self.split:
                self.split[step] = self.execute(step)
            found += self.split[step]
        return tuple(found)


def split_sums(plan: Plan, homes: Homes) -> Plan:
    """The plan with sums over what is cut taken on each device first; the homes of what it adds are added."""
    splitting = _Splitting(plan, homes)
    steps = splitting.body(plan.steps)
    return replace(splitting.plan, steps=steps)
