"""Refine: a family of vertices that compute blocks, as the family of what they compute each element of.

A vertex that multiplies a block of rows and a block of columns does what a vertex for each pair of a row and a column
would do; one that convolves a patch of an image, what a vertex for each window would; one that maps a stretch of
elements, what a vertex for each element would. In comes a family of the first kind, out comes that of the second, with
the dimensions of the block as axes of its grid (`unmap.py` finds them). In normal form the axis of the blocks and that
within a block are one again wherever blocks lie side by side, so that the same graph lowers to the same program
whatever its grain is. On the machine nothing changes: only fast execution sees it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from jax.extend import core as jax_core

from codelet.errors import CodeletError
from codelet.graphs.family import Family, Field, VertexState
from codelet.graphs.graph import Graph
from codelet.jaxprs.equations import needed, variables
from codelet.jaxprs.rebuild import inline
from codelet.tracing.alike import alike
from codelet.tracing.field_types import FieldType
from codelet.tracing.statics import restored
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.affine import Table, sorted_symbols
from codelet.views.grids import Axis, Grid, Key
from codelet.views.index import Index
from codelet.views.tensor import Tensor
from lowering.jaxprs.left_dimensions import Place
from lowering.jaxprs.unmap import Unmapped, unmap, without_rules
from lowering.plan.collect import normalize_family

_DEBUG_INFO = jax_core.DebugInfo("codelet", "some results", None, None)


def _element_index(index: Index, places: Sequence[Place], axes: Sequence[Axis]) -> Index | None:
    """What a field of one element is connected to, of an index for a block; None where a table stands in the way."""
    names: dict[Key, Key] = {}
    left: list[int] = []
    symbols = dict(index.symbols)
    for d, place in enumerate(places):
        if place.axis is not None:
            axis = axes[place.axis]
            symbols[axis] = symbols.get(axis, 0) + index.strides[d] * place.step
            if place.left is None:
                names[d] = axis
        if place.left is not None:
            if place.axis is None:
                names[d] = len(left)
            left.append(d)
    tables = []
    for table in index.tables:
        if any(isinstance(key, int) and key not in names for key in table.keys):
            return None
        keys = tuple(names.get(key, key) for key in table.keys)
        if len(set(keys)) < len(keys):
            return None
        tables.append(Table(keys, table.values, table.scale))
    shape = tuple(places[d].left or 1 for d in left)
    strides = tuple(index.strides[d] * places[d].spread for d in left)
    return Index(index.offset, shape, strides, sorted_symbols(symbols), tuple(tables))


def _element_field(field: Field, places: Sequence[Place], axes: Sequence[Axis]) -> Field | None:
    """A field of one element, of a field of a block; None where it cannot be told."""
    shape = tuple(place.left for place in places if place.left is not None)
    kind = field.type._replace(shape=shape)
    if field.tensor is not None:
        index = _element_index(field.tensor.index, places, axes) if field.tensor.rows is None else None
        return None if index is None else replace(field, type=kind, tensor=Tensor(field.tensor.source, index))
    assert field.state is not None
    if field.state.index is not None:
        index = _element_index(field.state.index, places, axes)
        return None if index is None else replace(field, type=kind, state=VertexState(index=index))
    return None


def element_traces(graph: Graph) -> list[TracedCodelet]:
    """The codelets of elements that refining the families of a graph traces: those of functions with derivative rules.

    A file that holds a graph holds them as well, since equations that were read cannot be traced for other types.
    """
    found: dict[TracedCodelet, None] = {}
    for traced in dict.fromkeys(family.codelet for family in graph.families):
        unmapped = None if traced.has_effects or not traced.outputs or traced.is_ragged else unmap(traced.jaxpr)
        if unmapped is not None and unmapped.has_rules:
            made = _element_codelet(traced, unmapped)
            if made is not None:
                found[made] = None
    return [*found]


def _element_codelet(codelet: TracedCodelet, found: Unmapped) -> TracedCodelet | None:
    """What computes one element; None where its derivative rules cannot be told."""
    kinds = [
        {
            name: FieldType(tuple(place.left for place in own if place.left is not None), *kind[1:])
            for (name, kind), own in zip(types.items(), places, strict=True)
        }
        for types, places in ((codelet.inputs, found.inputs), (codelet.outputs, found.outputs))
    ]
    if not found.has_rules:
        return replace(codelet, inputs=kinds[0], outputs=kinds[1], jaxpr=found.jaxpr, with_apart={})
    try:
        with restored(codelet.settings):
            made = codelet.codelet.specialise(kinds[0], codelet.static)
    except CodeletError:  # of a function, or an adjoint, that is for these blocks alone
        return None
    return made if dict(made.outputs) == kinds[1] and alike(without_rules(made.jaxpr), {}, found.jaxpr) else None


def of_results(family: Family, names: Collection[str]) -> Family:
    """A family with some of its results alone, and the fields that these are made from.

    Args:
        family: without effects, of no fields that are updated.
        names: of the results.
    """
    codelet, closed = family.codelet, inline(family.codelet.jaxpr)
    jaxpr = closed.jaxpr
    results = [var for var, name in zip(jaxpr.outvars, codelet.outputs, strict=True) if name in names]
    eqns = needed(jaxpr, results=results)
    used = {*variables(results), *variables(atom for eqn in eqns for atom in eqn.invars)}
    read = [(var, *field) for var, field in zip(jaxpr.invars, codelet.inputs.items(), strict=True) if var in used]
    alone = jaxpr.replace(invars=[var for var, _, _ in read], outvars=results, eqns=eqns, debug_info=_DEBUG_INFO)
    inputs = {name: kind for _, name, kind in read}
    outputs = {name: kind for name, kind in codelet.outputs.items() if name in names}
    alone_closed = jax_core.ClosedJaxpr(alone, closed.consts)
    made = replace(codelet, inputs=inputs, outputs=outputs, jaxpr=alone_closed, with_apart={})
    fields = tuple(field for field in family.fields if field.name in inputs or field.name in outputs)
    return replace(family, codelet=made, fields=fields)


def by_result(family: Family) -> tuple[Family, ...]:
    """A family of several results as a family for each, of what that is made from; itself where it updates fields."""
    codelet = family.codelet
    updates = any(field.is_read and field.is_written for field in family.fields)
    if len(codelet.outputs) < 2 or codelet.has_effects or updates:
        return (family,)
    return tuple(of_results(family, (name,)) for name in codelet.outputs)


def refine(family: Family) -> Family | None:
    """A family as that of its elements, in normal form; None where it has none, or is so already."""
    if family.rows or not family.num_vertices or family.codelet.has_effects or not family.codelet.outputs:
        return None
    found = unmap(family.codelet.jaxpr)
    codelet = None if found is None else _element_codelet(family.codelet, found)
    if found is None or codelet is None:
        return None
    if any(codelet.inputs.get(name, kind) != kind for name, kind in codelet.outputs.items()):
        return None  # what is read and written in one place, of which other dimensions are gone
    axes = Grid([range(n) for n in found.extents]).axes
    given = dict(zip(family.codelet.inputs, found.inputs, strict=True))
    given.update(zip(family.codelet.outputs, found.outputs, strict=True))
    fields = [_element_field(field, given[field.name], axes) for field in family.fields]
    known = tuple(field for field in fields if field is not None)
    if len(known) < len(fields):
        return None
    (result, places), *_ = zip(family.codelet.outputs, found.outputs, strict=True)
    names = {place.axis: f"{result}.{d}" for d, place in enumerate(places) if place.axis is not None}
    return normalize_family(
        replace(
            family,
            codelet=codelet,
            axes=(*family.axes, *axes),
            axis_names=(*family.axis_names, *(names[k] for k in range(len(axes)))),
            fields=known,
            tile=None,
            line_of_vertex=None,
        )
    )
