"""Reduced: families that sum products, or reduce maps, however they were cut, as one family of these.

In come families whose vertices write one element each: an inner product of two fields, what reduces a function of
several, element by element, or zero. Parts of one may reduce more or fewer elements: what is left over along a
reduction, the phases of a strided convolution's gradient. So what is reduced are keys of a piece as its axes are. Out
comes a family over views of what they read, of products among zeros where the whole has holes, with one dimension for
each axis that is reduced.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.graphs.family import Family, Field
from codelet.refused import Refused
from codelet.tracing.codelet_from_jaxpr import JaxprCodelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.statics import restored
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.access import Access
from codelet.views.affine import sorted_symbols
from codelet.views.grids import Axis, Key
from codelet.views.index import Index
from codelet.views.line import Line
from codelet.views.patchwork import padded
from codelet.views.sources import Source, Variable
from codelet.views.tensor import Tensor, whole_view
from lowering.jaxprs.reduced_maps import ReducedMap, are_alike, reduced_map
from lowering.join.exact_cover import axis_names
from lowering.join.lattice_pieces import Piece, pieces_of
from lowering.join.partition_of import partition_of
from lowering.plan.collect import normalize_family

LEFT, RIGHT, OUT = "left", "right", "out"
"""What the fields of an inner product are called."""


@functools.lru_cache(maxsize=256)
def inner_product(
    shape: tuple[int, ...], dtype: np.dtype, reduced_in: np.dtype, result: np.dtype, precision: Any
) -> TracedCodelet:
    """The inner product of two fields of a shape and dtype, summed in one dtype and given in another."""
    every = tuple(range(len(shape)))

    def product(left: jax.Array, right: jax.Array) -> jax.Array:
        numbers = (every, every), ((), ())
        summed = lax.dot_general(left, right, numbers, precision=precision, preferred_element_type=reduced_in)
        return lax.convert_element_type(summed, result)

    return _codelet(product, "inner product", {LEFT: FieldType(shape, dtype), RIGHT: FieldType(shape, dtype)})


def _codelet(function: Callable[..., Any], name: str, kinds: Mapping[str, FieldType]) -> TracedCodelet:
    """A codelet of fields of some types, with one result."""
    fields = [jax.ShapeDtypeStruct(kind.shape, kind.dtype) for kind in kinds.values()]
    return JaxprCodelet([jax.make_jaxpr(function)(*fields)], tuple(kinds), (OUT,), name).specialise(kinds)


def _reduction(reduces: ReducedMap, dtype: np.dtype) -> Callable[..., Any]:
    """What reduces a map of fields, and gives a dtype."""
    long = [d for d, n in enumerate(reduces.shape) if n != 1]

    def reduced(*fields: jax.Array) -> jax.Array:
        run = jax_core.jaxpr_as_fun(reduces.term) if reduces.term is not None else lambda *numbers: numbers
        for d in reversed(long):
            run = jax.vmap(run, tuple(0 if d in dims else None for dims in reduces.dims))
        (terms,) = run(*fields)
        return lax.convert_element_type(getattr(lax, reduces.name)(terms, tuple(range(len(long)))), dtype)

    return reduced


def strided_index(offset: int, shape: Sequence[int], steps: Sequence[int], symbols: Mapping[Axis, int]) -> Index:
    """An index by its offset, the step along each of its dimensions, and the step along axes."""
    return Index(
        offset, tuple(shape), tuple(steps), sorted_symbols({axis: step for axis, step in symbols.items() if step})
    )


def merged_dimensions(indices: Sequence[Index]) -> list[Index]:
    """Indices of one shape, with those dimensions made one that run on from each other in all of them."""
    digits = [digit for digit in zip(indices[0].shape, *(i.strides for i in indices), strict=True) if digit[0] > 1]
    digits.sort(key=lambda digit: [abs(step) for step in digit[1:]], reverse=True)
    merged: list[tuple[int, ...]] = []
    for extent, *steps in digits:
        outer = next((digit for digit in merged if list(digit[1:]) == [step * extent for step in steps]), None)
        if outer is None:
            merged.append((extent, *steps))
        else:
            merged[merged.index(outer)] = (outer[0] * extent, *steps)
    shape, *strides = zip(*merged, strict=True) if merged else ((), *(() for _ in indices))
    return [strided_index(i.offset, shape, steps, dict(i.symbols)) for i, steps in zip(indices, strides, strict=True)]


class ReducedFamily(NamedTuple):
    """A family of reduced maps, whose every vertex writes one element.

    Attributes:
        family: which, or one in whose place it would be.
        axes: of its grid, and what they are called.
        factors: the views that are mapped, of one shape, those repeated that run along a part of its dimensions; none
            where zero is written.
        out: what is written.
        map: what is reduced, of fields of any names, and how.
    """

    family: Family
    axes: tuple[tuple[Axis, str], ...]
    factors: tuple[Tensor, ...]
    out: Tensor
    map: ReducedMap

    @property
    def is_product(self) -> bool:
        """Whether it sums the products of two views."""
        return len(self.factors) == 2 and self.map.term is None

    @property
    def as_family(self) -> Family:
        """It as a family, in normal form."""
        factors = self.factors if self.is_product else _in_memory_order(self.factors)
        dims = [[d for d, n in enumerate(factor.index.strides) if n or self.is_product] for factor in factors]
        views = [_along(factor, along) for factor, along in zip(factors, dims, strict=True)]
        apart = self.map.fields if len(set(self.map.fields)) == len(views) else [f"x{k}" for k in range(len(views))]
        called = (LEFT, RIGHT) if self.is_product else apart
        kinds = {name: FieldType(view.shape, view.dtype) for name, view in zip(called, views, strict=True)}
        reduces = self.map._replace(shape=factors[0].shape, dims=tuple(map(tuple, dims)))
        with restored(self.family.codelet.settings):
            if self.is_product:
                dtypes = views[0].dtype, np.dtype(reduces.reduced_in), self.out.dtype
                codelet = inner_product(views[0].shape, *dtypes, reduces.precision)
            else:
                codelet = _codelet(_reduction(reduces, self.out.dtype), reduces.name, kinds)
        read = (Field(name, "in", kinds[name], view) for name, view in zip(called, views, strict=True))
        fields = (*read, Field(OUT, "out", codelet.outputs[OUT], self.out))
        axes, names = tuple(axis for axis, _ in self.axes), tuple(name for _, name in self.axes)
        made = replace(self.family, codelet=codelet, axes=axes, axis_names=names, fields=fields, inside=())
        whole = normalize_family(replace(made, tile=None, line_of_vertex=None))
        if any("." in name or "*" in name for name in whole.axis_names):  # of axes that were split for the machine
            whole = replace(whole, axis_names=tuple(f"i{k}" for k in range(len(whole.axes))))
        return whole

    @property
    def num_results(self) -> int:
        """How many elements are written."""
        return math.prod(axis.extent for axis, _ in self.axes)

    @property
    def num_terms(self) -> int:
        """How many terms are reduced."""
        return math.prod(self.extents.values())

    @property
    def extents(self) -> dict[Key, int]:
        """How many places there are along each axis, and each dimension that is summed over."""
        shape = self.factors[0].shape if self.factors else ()
        return {**{axis: axis.extent for axis, _ in self.axes}, **dict(enumerate(shape))}


def is_plain(tensor: Tensor | None) -> bool:
    """Whether a view is affine."""
    return tensor is not None and tensor.rows is None and not tensor.index.tables and bool(tensor.size)


def _written_by(family: Family) -> Tensor | Refused:
    """What a family writes, where that is a plain view of a variable, through one field, by one element a vertex."""
    fields = [field for field in family.fields if field.is_written]
    if len(fields) != 1 or fields[0].kind != "out" or not family.num_vertices:
        return Refused("it writes several fields, or one that it reads")
    tensor = fields[0].tensor
    if tensor is None or not is_plain(tensor) or tensor.size != 1 or not isinstance(tensor.source, Variable):
        return Refused("it writes no elements of a variable at even steps, one by each vertex")
    return Tensor(tensor.source, Index(tensor.index.offset, (), (), tensor.index.symbols))


def _in_memory_order(views: Sequence[Tensor]) -> list[Tensor]:
    """Views with their dimensions in the order in which they lie, as few as there may be."""
    indices = merged_dimensions([view.index for view in views])
    return [Tensor(view.source, index) for view, index in zip(views, indices, strict=True)]


def _along(tensor: Tensor, dims: Sequence[int]) -> Tensor:
    """A view with some of its dimensions: along the others it is repeated."""
    index = tensor.index
    shape, strides = (tuple(of[d] for d in dims) for of in (index.shape, index.strides))
    return Tensor(tensor.source, replace(index, shape=shape, strides=strides))


def _spread_along(tensor: Tensor, shape: tuple[int, ...], dims: Sequence[int]) -> Tensor:
    """A view repeated to a shape, of which its dimensions that are longer than one are some."""
    index = tensor.index
    steps = (step for n, step in zip(index.shape, index.strides, strict=True) if n != 1)
    by = dict(zip(dims, steps, strict=True))
    strides = tuple(by.get(d, 0) for d in range(len(shape)))
    return Tensor(tensor.source, replace(index, shape=shape, strides=strides))


def as_reduced(family: Family, name: str | None = None) -> ReducedFamily | Refused:
    """A family as one of reduced maps of plain views; see `reduced_map`."""
    out = Refused("its rows have lengths of their own") if family.rows else _written_by(family)
    if isinstance(out, Refused):
        return out
    reduces = reduced_map(family.codelet, name)
    if isinstance(reduces, Refused):
        return reduces
    tensors = [family.by_name[name].tensor for name in reduces.fields if family.by_name[name].kind == "in"]
    views = [tensor for tensor in tensors if tensor is not None and is_plain(tensor)]
    if len(views) < len(reduces.fields):
        return Refused("what it reads is irregular")
    factors = tuple(_spread_along(view, reduces.shape, dims) for view, dims in zip(views, reduces.dims, strict=True))
    axes = tuple(zip(family.axes, family.axis_names, strict=True))
    return ReducedFamily(family, axes, factors, out, reduces)


# --- several as one -----------------------------------------------------------------------------------------


def _spread(source: Source, access: Access) -> tuple[Source, Access]:
    """A source with zeros between its elements and around them, in which an access to it has no holes.

    Of an access without divisors that stays within the source, it is that itself.
    """
    divisors, before, after = [], [], []
    for line, n in zip(access.lines, access.shape, strict=True):
        low, high = line.ends(access.extents)
        divisors.append(line.divisor)
        before.append(max(0, -low))
        after.append(max(0, high + 1 - line.divisor * n))
    if not any((*before, *after)) and max(divisors, default=1) == 1:
        return source, access
    lines = tuple(Line.of(line.start + low, line.by) for line, low in zip(access.lines, before, strict=True))
    view = whole_view(source).reshape(tuple(own for n in access.shape for own in (n, 1)))
    between = view.pad(tuple(own for divisor in divisors for own in ((0, 0), (0, divisor - 1))))
    shape = tuple(n * divisor for n, divisor in zip(access.shape, divisors, strict=True))
    around = tuple(zip(before, after, strict=True))
    spread = padded(between.reshape(shape), around, np.zeros((), source.dtype)[()])
    return spread, Access(spread.shape, lines, access.extents)


def _summed_over(whole: Piece) -> list[Key]:
    """The axes of a whole along which no result moves."""
    moving = {key for access in whole.accesses[: whole.results] for line in access.lines for key in line.keys}
    return [axis for axis in whole.extents if axis not in moving]


def _forwards(whole: Piece, order: Sequence[int]) -> Piece:
    """A whole whose axes that are summed over run forwards along the last field, in an order, that they move in."""
    turned: dict[Key, Line] = {}
    for axis in _summed_over(whole):
        steps = [line.by[axis] for number in order for line in whole.accesses[number].lines if axis in line.by]
        if steps and steps[-1] < 0:
            turned[axis] = Line.of(whole.extents[axis] - 1, {axis: -1})
    accesses = [access.after(turned, whole.extents) for access in whole.accesses]
    return replace(whole, accesses=tuple(access for access in accesses if isinstance(access, Access)))


def _views(whole: Piece, sources: Sequence[Source]) -> list[Tensor]:
    """What the fields of a whole view, with a dimension of each operand for each axis that is summed over."""
    summed = _summed_over(whole)
    keys: dict[Key, Key] = {axis: d for d, axis in enumerate(summed)}
    views = []
    for k, (access, source) in enumerate(zip(whole.accesses, sources, strict=True)):
        spread, access = _spread(source, access)
        renamed = tuple(
            Line.of(line.start, {keys.get(axis, axis): step for axis, step in line.steps}) for line in access.lines
        )
        extents = {
            keys.get(axis, axis): n for axis, n in whole.extents.items() if k >= whole.results or axis not in keys
        }
        views.append(Tensor(spread, Access(access.shape, renamed, extents).index()))
    return views


def wholes_of(parts: Sequence[ReducedFamily], zeros: Sequence[ReducedFamily] = ()) -> Iterator[ReducedFamily | Refused]:
    """The reductions that parts are all of, or why not: either factor of a product may have the other's holes.

    Args:
        parts: reductions.
        zeros: where nothing is summed, and zero is written.
    """
    first = parts[0]
    count = len(first.factors)
    same = {(own.out.source, *(f.source for f in own.factors)) for own in parts}
    if len(same) > 1 or not all(are_alike(own.map, first.map) for own in parts):
        yield Refused("they read other arrays, or reduce in other ways")
        return
    maps = [[own.out.index, *(factor.index for factor in own.factors)] for own in parts]
    maps += [[own.out.index, *(Index(0),) * count] for own in zeros]
    sources = [first.out.source, *(factor.source for factor in first.factors)]
    extents = [own.extents for own in (*parts, *zeros)]
    for seen in pieces_of(maps, [source.shape for source in sources], extents, 1):
        pieces, around = seen[: len(parts)], seen[len(parts) :]
        for order in [(0, *range(1, count + 1)), (0, *range(count, 0, -1))][: max(1, count)]:
            found = partition_of(pieces, order, around, holes=first.is_product)  # whose zeros add nothing
            if isinstance(found, Refused):
                yield found
                continue
            whole, placements = found
            names = axis_names(whole, placements, [dict(own.axes) for own in parts])
            if zeros or whole.num_points > sum(piece.num_points for piece in pieces):
                written = sum(own.num_results for own in (*parts, *zeros))
                if written != whole.num_points // math.prod(whole.extents[axis] for axis in _summed_over(whole)):
                    yield Refused("what is among the results is not written")
                    continue
            yield _whole((*parts, *zeros), _forwards(whole, order), sources, names)


def _whole(
    parts: Sequence[ReducedFamily], whole: Piece, sources: Sequence[Source], names: Mapping[Key, str]
) -> ReducedFamily | Refused:
    """A whole as a reduction."""
    if any(line.divisor > 1 for line in whole.accesses[0].lines):
        return Refused("its results are among holes")
    summed, (out, *factors) = _summed_over(whole), _views(whole, sources)
    axes = tuple((axis, names[axis]) for axis in whole.extents if axis not in summed)
    lines = tuple(dict.fromkeys(line for own in parts for line in own.family.lines))
    family = replace(max(parts, key=lambda own: own.num_results).family, lines=lines)
    return parts[0]._replace(family=family, axes=axes, factors=tuple(factors), out=out)  # type: ignore[arg-type]
