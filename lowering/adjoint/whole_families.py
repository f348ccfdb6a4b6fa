"""Whole families: those of a compute set, blocks and the rest of them, as families of elements.

Where no number of blocks divides a compute set's elements, it has a family for the rest, in blocks of another size.
Each family would store its contributions in a separate array, in the order of its blocks. In come the families of a
compute set. Out come the families of their elements (`refine.py`), parts of one joined (`alike_families.py`). Vertices
of these never run. They say which contributions are made of cotangents alone, by sums at shifted places, and in which
order the vertices of all blocks hold the others. One sum reads them then, whatever the blocks are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple
from weakref import WeakKeyDictionary

from codelet.graphs.family import Family
from codelet.tracing.codelet_from_jaxpr import JaxprCodelet
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.affine import sorted_symbols
from codelet.views.digits import row_major_strides
from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.tensor import Tensor
from lowering.fast.key_parts import Place, parts_along
from lowering.join.alike_families import join_alike
from lowering.join.refine import refine
from lowering.plan.elements import Elements


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


class _StepsByKey(NamedTuple):
    """The elements of an array that the vertices of a family hold: where it begins, and its step along each key."""

    offset: int
    by_key: Mapping[Key, int]


def _box(tensor: Tensor, digits: Sequence[Place[int]], first: int) -> _StepsByKey | None:
    """What is read, along digits whose names are their steps in an array; `None` where it is no box along these."""
    along = None if tensor.index.tables or tensor.rows is not None else parts_along(digits, first, tensor.index)
    if along is None:
        return None
    offset, by_key = 0, {}
    for stride, place in along.items():
        offset += place.start * stride
        for part, times in place.steps:
            if part.key in by_key or part.weight != 1:
                return None  # a key that runs on from one axis into the next
            by_key[part.key] = times * stride
    is_repeated = any(n > 1 and d not in by_key for d, n in enumerate(tensor.index.shape))
    return None if is_repeated else _StepsByKey(offset, by_key)


def _in_a_row(
    boxes: Sequence[tuple[Family, tuple[int, ...], _StepsByKey]], size: int
) -> tuple[int, tuple[Index, ...]] | None:
    """How many partial sums each of some elements has, and where families store them, all of one after the other.

    `None` where some elements have more than others.

    Args:
        boxes: families, the shape of what a vertex writes, and the elements that it is for.
        size: of all elements.
    """
    views: list[Index] = []
    stored: list[tuple[Elements, int]] = []  # elements that the same families are for, and how many sums of each
    for family, shape, (offset, by_key) in boxes:
        moving = {axis: by_key[axis] for axis in family.axes if axis in by_key}
        blocks = [axis for axis in family.axes if axis not in by_key and axis.extent > 1]
        box = Index(offset, shape, tuple(by_key.get(d, 0) for d in range(len(shape))), sorted_symbols(moving))
        elements = Elements.of_view(box, tuple(moving), size, family.compute_set.name)
        number = next((k for k, (other, _) in enumerate(stored) if other.equals(elements)), len(stored))
        first = stored[number][1] if number < len(stored) else 0
        stored[number : number + 1] = [(elements, first + math.prod(axis.extent for axis in blocks))]
        counts = row_major_strides(tuple(axis.extent for axis in blocks))
        moving |= {axis: size * count for axis, count in zip(blocks, counts, strict=True)}
        views.append(replace(box, offset=offset + first * size, symbols=sorted_symbols(moving)))
    is_even = len({count for _, count in stored}) == 1 and sum(elements.count for elements, _ in stored) == size
    return (stored[0][1], tuple(views)) if is_even else None


def contributions_together(whole: Whole, name: str) -> tuple[Index, tuple[Index, ...]] | None:
    """The places that a whole family reads through a field, and where its members store their contributions to these.

    Where the field does not move along an axis, every block along that axis stores a partial sum. Blocks of several
    members are then numbered in a row.

    Returns:
        The flat positions in the source, by axes of the whole and dimensions of the field, after a dimension of step
        zero for the partial sums of an element, if it has several; and for each member the elements that a vertex
        writes of an array of that shape. `None` where a view is no box along these, or not every element has as many
        partial sums.
    """
    tensor = whole.family.by_name[name].tensor
    assert tensor is not None
    index = tensor.index
    is_moving = not index.shape and {axis for axis, _ in index.symbols} == set(whole.family.axes)
    if index.tables or tensor.rows is not None or not (is_moving or len(whole.members) > 1):
        return None
    steps = sorted(map(index.digit, index.keys), reverse=True)
    shape = tuple(extent for _, extent in steps)
    digits: list[Place[int]] = []  # by their steps in the array; those that run on from each other are one
    for (step, extent), stride in zip(steps, row_major_strides(shape), strict=True):
        if digits and digits[-1].step == step * extent:
            digits[-1] = Place(stride, step, digits[-1].extent * extent)
        else:
            digits.append(Place(stride, step, extent))
    tensors = [own for member in whole.members if (own := member.by_name[name].tensor) is not None]
    boxes = [
        (member, own.index.shape, box)
        for member, own in zip(whole.members, tensors, strict=True)
        if (box := _box(own, digits, index.offset)) is not None
    ]
    stored = _in_a_row(boxes, math.prod(shape)) if len(boxes) == len(whole.members) else None
    if stored is None:
        return None
    count, views = stored
    counts = (count,) if count > 1 else ()
    return Index(index.offset, (*counts, *shape), (*(0 for _ in counts), *(step for step, _ in steps)), ()), views
