"""Whole families: those of a compute set, blocks and the rest of them, as families of elements.

Where no number of blocks divides a compute set's elements, it has a family for the rest, in blocks of another size.
Each family would store its contributions in a separate array, in the order of its blocks. In come the families of a
compute set. Out come the families of their elements (`refine.py`), parts of one joined (`alike_families.py`). Vertices
of these never run. They say which contributions are made of cotangents alone, by sums at shifted places, and in which
order the vertices of all blocks hold the others. One sum reads them then, whatever the blocks are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from codelet.graphs.family import Family
from codelet.tracing.codelet_from_jaxpr import JaxprCodelet
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.affine import sorted_symbols
from codelet.views.digits import row_major_strides
from codelet.views.index import Index
from lowering.fast.key_parts import Place, parts_along
from lowering.join.alike_families import join_alike
from lowering.join.refine import refine


class Whole(NamedTuple):
    """A family of elements, and the families whose vertices compute blocks of these."""

    family: Family
    members: tuple[Family, ...]


_ALONE: WeakKeyDictionary[TracedCodelet, TracedCodelet] = WeakKeyDictionary()


def _of_its_jaxpr(codelet: TracedCodelet) -> TracedCodelet:
    """A traced codelet whose function is that of its jaxpr: the function of a refined one may know blocks alone."""
    if codelet not in _ALONE:
        made = JaxprCodelet([codelet.jaxpr], tuple(codelet.inputs), tuple(codelet.outputs), codelet.name)
        _ALONE[codelet] = made.specialise(dict(codelet.inputs))
    return _ALONE[codelet]


def whole_families(families: Sequence[Family]) -> list[Whole]:
    """The families of elements that some families are, wherever one differs from its origin.

    Those with ragged fields, in-out fields or effects are left out.
    """
    plain = [
        family
        for family in families
        if family.num_vertices
        and not family.rows
        and not family.codelet.has_effects
        and all(field.kind != "inout" for field in family.fields)
    ]
    refined = [refine(family) or family for family in plain]
    found = []
    for family, numbers, _ in join_alike(refined):
        members = tuple(plain[k] for k in numbers)
        if len(numbers) > 1 or family is not members[0]:
            own = family.codelet if any(family.codelet is m.codelet for m in members) else _of_its_jaxpr(family.codelet)
            found.append(Whole(replace(family, codelet=own), members))
    return found


def contributions_together(whole: Whole, name: str) -> tuple[Index, tuple[Index, ...]] | None:
    """The places that a whole family reads through a field, and where its members store their contributions to these.

    None where elements of the field are no elements of the grid, each to itself.

    Returns:
        The flat positions in the source, with a dimension for each axis of the whole; and for each member the elements
        that a vertex writes of an array of that shape.
    """
    tensor = whole.family.by_name[name].tensor
    assert tensor is not None
    index = tensor.index
    if index.shape or index.tables or {axis for axis, _ in index.symbols} != set(whole.family.axes):
        return None
    steps = sorted(index.symbols, key=lambda own: -own[1])
    shape = tuple(axis.extent for axis, _ in steps)
    strides = row_major_strides(shape)
    digits: list[Place[int]] = []  # by their steps in the array; those that run on from each other are one
    for (axis, step), stride in zip(steps, strides, strict=True):
        if digits and digits[-1].step == step * axis.extent:
            digits[-1] = Place(stride, step, digits[-1].extent * axis.extent)
        else:
            digits.append(Place(stride, step, axis.extent))
    views = []
    for member in whole.members:
        own = member.by_name[name].tensor
        assert own is not None
        along = None if own.index.tables or own.rows is not None else parts_along(digits, index.offset, own.index)
        if along is None:
            return None
        offset, by_key = 0, {}
        for stride, place in along.items():
            offset += place.start * stride
            for part, times in place.steps:
                if part.key in by_key or part.weight != 1:
                    return None  # a key that runs on from one axis into the next
                by_key[part.key] = times * stride
        symbols = sorted_symbols({axis: by_key[axis] for axis, _ in own.index.symbols if axis in by_key})
        rank = range(len(own.index.shape))
        if any(n > 1 and d not in by_key for d, n in enumerate(own.index.shape)):
            return None
        if any(axis.extent > 1 and axis not in by_key for axis in member.axes):
            return None
        views.append(Index(offset, own.index.shape, tuple(by_key.get(d, 0) for d in rank), symbols))
    at = Index(index.offset, shape, tuple(step for _, step in steps), ())
    return at, tuple(views)
