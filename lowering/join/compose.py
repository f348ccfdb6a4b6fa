"""Compose: a family that reduces what others reduced becomes one that reduces all, in the place of both.

In come a family of sums, say, and the families of inner products, or of other sums, that wrote what it adds up. Out
comes one of sums of views of what these read: the field's dimensions of the sums stand in the place of axes of what
was summed before. Which axis each key of the sums runs along, digits tell: what was written is an offset and a digit
for each axis, and a key of the sums steps along one of these, or is split in two where it runs on into the next
(`fast/key_parts.py`).

Where no block divides what is summed over, what is left over has fewer terms, and is a family of its own: what comes
out of each is a piece of one, as blocks are (`reduced.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from codelet.refused import Refused
from codelet.views.access import Access
from codelet.views.digits import row_major_strides
from codelet.views.grids import Axis, Grid
from codelet.views.index import Index
from codelet.views.line import Line, Part
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.fast.key_parts import Place, parts_along
from lowering.jaxprs.reduced_maps import is_rounded
from lowering.join.reduced import ReducedFamily, merged_dimensions, strided_index, wholes_of
from lowering.plan.radices import run_of

# --- one by one ---------------------------------------------------------------------------------------------


class _SumKeys(NamedTuple):
    """The axes of the sums, some of them split, and what is summed over: dimensions of the field."""

    axes: tuple[tuple[Axis, str], ...]
    of_axis: Mapping[Part, Axis]
    of_field: Mapping[Part, int]

    def split(self, index: Index) -> Index:
        """An index over the axes of the sums, over these."""
        own = {axis: index.coefficient(part.key) * part.weight for part, axis in self.of_axis.items()}
        return strided_index(index.offset, index.shape, index.strides, own)


def _keys(sums: ReducedFamily, parts: Sequence[Part]) -> _SumKeys:
    """The keys of sums, in the parts that they are split in."""
    by_axis: dict[Axis, list[Part]] = {axis: [] for axis, _ in sums.axes}
    field = []
    for part in dict.fromkeys(parts):
        if isinstance(part.key, Axis):
            by_axis[part.key].append(part)
        else:
            field.append(part)
    ordered, names = [], []
    for axis, name in sums.axes:
        own = sorted(by_axis[axis], key=lambda part: -part.weight) or [Part(axis, 1, 0, axis.extent)]
        ordered += own
        names += [name] if len(own) == 1 else [f"{name}.{k}" for k in range(len(own))]
    axes = Grid([range(part.extent) for part in ordered]).axes
    of_axis = dict(zip(ordered, axes, strict=True))
    return _SumKeys(tuple(zip(axes, names, strict=True)), of_axis, {part: k for k, part in enumerate(field)})


def _composed(factor: Tensor, along: Mapping[Axis, Line], keys: _SumKeys) -> Index:
    """A factor of the products over the axes of the sums, what is summed before its dimensions."""
    index, count = factor.index, len(keys.of_field)
    offset, symbols = index.offset, dict.fromkeys(keys.of_axis.values(), 0)
    steps = [0] * count
    for axis, own in index.symbols:
        if axis not in along:
            continue
        offset += own * along[axis].start
        for part, times in along[axis].steps:
            if part in keys.of_axis:
                symbols[keys.of_axis[part]] += own * times
            else:
                steps[keys.of_field[part]] += own * times
    shape = (*(part.extent for part in keys.of_field), *index.shape)
    return strided_index(offset, shape, (*steps, *index.strides), symbols)


def compose(sums: ReducedFamily, inner: ReducedFamily, *, merge: bool = True) -> ReducedFamily | Refused:
    """Reductions of what the same reductions wrote, as one.

    The value that the sums read has to be that which was written before, and what that was made of unchanged since.
    What is rounded to 16 bits before it is added up stays. Dimensions that run on from each other are one in
    what comes out, unless they are not to be merged.
    """
    (read,) = sums.factors
    own = inner.map
    if read.source is not inner.out.source or not sums.map.reduced_in == own.reduced_in == inner.out.dtype:
        return Refused("what it reads is something else, or was rounded")
    if sums.map.term is not None or sums.map.name != own.name or is_rounded(own.name, own.reduced_in):
        return Refused("it reduces in another way, or what was rounded to 16 bits")
    written = inner.out.index
    axes = [Place(axis, step, axis.extent) for axis, step in written.symbols]
    along = parts_along(axes, written.offset, read.index)
    if along is None:
        return Refused("its sums run along no axes of the products")
    parts = [part for own in along.values() for part, _ in own.steps]
    if {key for key, extent in enumerate(read.shape) if extent > 1} - {part.key for part in parts}:
        return Refused("it sums one element several times")
    keys = _keys(sums, parts)
    indices = [_composed(factor, along, keys) for factor in inner.factors]
    indices = merged_dimensions(indices) if merge else indices
    factors = tuple(Tensor(f.source, index) for f, index in zip(inner.factors, indices, strict=True))
    out = Tensor(sums.out.source, keys.split(sums.out.index))
    lines = tuple(dict.fromkeys((*inner.family.lines, *sums.family.lines)))
    family = replace(sums.family, lines=lines)
    return ReducedFamily(family, keys.axes, factors, out, own)


# --- of several parts -----------------------------------------------------------------------------------------


def _by_dimensions(sums: ReducedFamily) -> ReducedFamily | Refused:
    """Sums whose every key runs along one dimension of what they read."""
    source = sums.factors[0].source
    axes = Grid([range(n) for n in source.shape]).axes
    place = strided_index(0, (), (), dict(zip(axes, row_major_strides(source.shape), strict=True)))
    whole = Tensor(source, place)
    return compose(sums, ReducedFamily(sums.family, (), (whole,), whole, sums.map), merge=False)


def _within(sums: ReducedFamily, part: ReducedFamily) -> ReducedFamily | Refused:
    """What sums read of what one family wrote, perhaps nothing."""
    source, index = sums.factors[0].source, sums.factors[0].index
    written, access = (Access.of(own, source.shape) for own in (part.out.index, index))
    if any(run_of(*own) is None for own in written.dimensions) or {written.shape, access.shape} != {source.shape}:
        return Refused("what is read, or was written, is no box")
    items = [slice(None)] * index.ndim
    for line, (low, high) in zip(access.lines, written.box(), strict=True):
        first, last = line.ends(access.extents)
        if low <= first and last < high:
            continue
        if last < low or first >= high:
            return sums._replace(factors=(sums.factors[0][(slice(0, 0),) * index.ndim],))
        ((key, step),) = line.steps if len(line.steps) == 1 else ((None, 0),)
        if not isinstance(key, int) or step < 0:
            return Refused("a sum is of parts of several families")
        items[key] = slice(max(0, -((line.start - low) // step)), (high - 1 - line.start) // step + 1)
    return sums._replace(factors=(Tensor(source, index[tuple(items)]),))


def compose_parts(sums: ReducedFamily, parts: tuple[ReducedFamily, ...]) -> ReducedFamily | Refused:
    """Reductions of what several families of the same reductions wrote, as one of these.

    Of what they wrote the sums may read a part, but nothing else. What is added up is cut at the ends of what each
    wrote, and each cut composed with its family; what comes out has to be a partition of one. See `compose`.
    """
    if len(parts) == 1:
        return compose(sums, parts[0])
    whole = _by_dimensions(sums) if isinstance(sums.factors[0].source, Variable) else Refused("it reads a patchwork")
    if isinstance(whole, Refused):
        return whole
    cuts: list[ReducedFamily] = []
    count = 0
    for part in parts:
        inside = _within(whole, part)
        if isinstance(inside, Refused):
            return inside
        if inside.factors[0].size:
            cut = compose(inside, part, merge=False)
            if isinstance(cut, Refused):
                return cut
            cuts.append(cut)
            count += inside.factors[0].size
    if count != whole.factors[0].size:
        return Refused("it sums more than they wrote")
    refused = Refused("it sums nothing that they wrote")
    for made in wholes_of(cuts) if cuts else ():
        if isinstance(made, ReducedFamily):
            return made
        refused = made
    return refused
