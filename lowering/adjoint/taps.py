"""Taps: a window that a vertex reads element by element, as a field for each of these.

A stencil reads a few elements of the window around its element. Through one field it would contribute to all of the
window, most of that zeros. In comes a family. Out comes one with a field for each element that the equations take, of
those windows of which they take single elements at known places and nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import jax
from jax import lax
from jax.extend import core as jax_core

from codelet.graphs.family import Family, Field
from codelet.jaxprs.equations import needed
from codelet.jaxprs.rebuild import Builder
from codelet.tracing.codelet_from_jaxpr import JaxprCodelet

MOST_TAPS = 64
"""Of so many elements of a window there are fields at most; a guess: more are better held than summed."""


class Tapped(NamedTuple):
    """A family whose windows are fields of one element, and the names of these by that of the window."""

    family: Family
    taps: Mapping[str, tuple[str, ...]]


Start = tuple[int, ...]


def _taken(jaxpr: jax_core.Jaxpr, var: Any) -> list[Start]:
    """The elements of an array that the equations of a jaxpr take; none where they read it in another way."""
    found: dict[Start, None] = {}
    for eqn in needed(jaxpr):
        if var in eqn.invars:
            aval: Any = eqn.outvars[0].aval
            if eqn.primitive.name != "slice" or aval.size != 1:
                return []
            found[tuple(eqn.params["start_indices"])] = None
    return [*found] if var not in jaxpr.outvars and len(found) <= MOST_TAPS else []


def _run(builder: Builder, eqn: Any, operands: list[Any]) -> list[Any]:
    """An equation on operands, of which a window is a variable for each element."""
    if not operands or not isinstance(operands[0], dict):
        return builder.equation(eqn, operands)
    tap, aval = operands[0][tuple(eqn.params["start_indices"])], eqn.outvars[0].aval
    return builder.traced(lambda value: [lax.reshape(value, aval.shape)], [tap])


def tapped(family: Family) -> Tapped | None:
    """A family with a field for each element that it takes of its windows; None where it has no such windows."""
    codelet, fields, taps = family.codelet, list[Field](), dict[str, dict[Start, str]]()
    jaxpr = codelet.jaxpr.jaxpr
    for name, var in zip(codelet.inputs, jaxpr.invars, strict=True):
        field = family.by_name[name]
        is_window = field.tensor is not None and field.tensor.rows is None and field.tensor.size > 1
        starts = _taken(jaxpr, var) if is_window and not field.is_written else []
        if not starts:
            fields.append(field)
            continue
        taps[name] = {start: "_".join([name, *map(str, start)]) for start in starts}
        for start, own in taps[name].items():
            assert field.tensor is not None
            kind = field.type._replace(shape=())
            fields.append(replace(field, name=own, type=kind, tensor=field.tensor[start]))
    names = [field.name for field in fields]
    if not taps or len({*names, *codelet.outputs}) < len(names) + len(codelet.outputs):
        return None
    shapes = [jax.ShapeDtypeStruct(field.type.shape, field.type.dtype) for field in fields]
    builder = Builder(jax.make_jaxpr(lambda *own: own)(*shapes).jaxpr.invars)
    by_name = dict(zip(names, builder.invars, strict=True))
    given: list[Any] = [
        {start: by_name[own] for start, own in taps[name].items()} if name in taps else by_name[name]
        for name in codelet.inputs
    ]
    made = builder.closed(builder.inlined(codelet.jaxpr, given, _run))
    traced = JaxprCodelet([made], names, tuple(codelet.outputs), codelet.name)
    fields += [field for field in family.fields if field.name not in codelet.inputs]
    alone = replace(
        family,
        codelet=traced.specialise({field.name: field.type for field in fields[: len(names)]}),
        fields=tuple(fields),
    )
    return Tapped(alone, {name: (*own.values(),) for name, own in taps.items()})
