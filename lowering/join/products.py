"""Products: families that sum products, element by element, however they were cut, as one family of inner products.

In come families whose vertices write one element each: an inner product of two fields, the sum of one, or zero. Parts
of one may sum over more or fewer elements: what is left over along a reduction, the phases of a strided convolution's
gradient. So what is summed over are keys of a piece as its axes are. Out comes a family over views of what they read,
among zeros where the whole has holes, with one dimension for each axis that is summed over.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

from codelet.graphs.family import Family, Field
from codelet.refused import Refused
from codelet.tracing.codelet_from_jaxpr import JaxprCodelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.access import Access
from codelet.views.grids import Axis, Key
from codelet.views.index import Index
from codelet.views.line import Line
from codelet.views.patchwork import padded
from codelet.views.sources import Source, Variable
from codelet.views.tensor import Tensor, whole_view
from lowering.jaxprs.inner_products import sum_of_products
from lowering.join.exact_cover import axis_names
from lowering.join.lattice_pieces import Piece, pieces_of
from lowering.join.partition_of import partition_of
from lowering.plan.collect import normalize_family

LEFT, RIGHT, OUT = "left", "right", "out"
"""What the fields of an inner product are called."""


@functools.lru_cache(maxsize=256)
def inner_product(
    shape: tuple[int, ...], dtype: np.dtype, summed_in: np.dtype, result: np.dtype, precision: Any
) -> TracedCodelet:
    """The inner product of two fields of a shape and dtype, summed in one dtype and given in another."""
    every = tuple(range(len(shape)))

    def product(left: jax.Array, right: jax.Array) -> jax.Array:
        numbers = (every, every), ((), ())
        summed = lax.dot_general(left, right, numbers, precision=precision, preferred_element_type=summed_in)
        return lax.convert_element_type(summed, result)

    field = jax.ShapeDtypeStruct(shape, dtype)
    codelet = JaxprCodelet([jax.make_jaxpr(product)(field, field)], (LEFT, RIGHT), (OUT,), "inner product")
    return codelet.trace(dict.fromkeys((LEFT, RIGHT), FieldType(shape, dtype)))


class Products(NamedTuple):
    """A family of sums of products, whose every vertex writes one element.

    Attributes:
        family: which, or one in whose place it would be.
        axes: of its grid, and what they are called.
        factors: the views that are multiplied, of one shape: two; or one where it adds up alone; or none, for zero.
        out: what is written.
        summed_in: the dtype of the sums.
        precision: of the products.
    """

    family: Family
    axes: tuple[tuple[Axis, str], ...]
    factors: tuple[Tensor, ...]
    out: Tensor
    summed_in: np.dtype | None
    precision: Any = None

    @property
    def as_family(self) -> Family:
        """It as a family, in normal form; of two factors."""
        left, right = self.factors
        assert self.summed_in is not None
        codelet = inner_product(left.shape, left.dtype, np.dtype(self.summed_in), self.out.dtype, self.precision)
        kind = codelet.inputs[LEFT]
        fields = (
            Field(LEFT, "in", kind, left),
            Field(RIGHT, "in", kind, right),
            Field(OUT, "out", codelet.outputs[OUT], self.out),
        )
        axes, names = tuple(axis for axis, _ in self.axes), tuple(name for _, name in self.axes)
        product = replace(self.family, codelet=codelet, axes=axes, axis_names=names, fields=fields, inside=())
        whole = normalize_family(replace(product, tile=None, line_of_vertex=None))
        if any("." in name or "*" in name for name in whole.axis_names):  # of axes that were split for the machine
            whole = replace(whole, axis_names=tuple(f"i{k}" for k in range(len(whole.axes))))
        return whole

    @property
    def num_results(self) -> int:
        """How many elements are written."""
        return math.prod(axis.extent for axis, _ in self.axes)

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


def as_products(family: Family) -> Products | Refused:
    """A family as one of sums of products, of plain views."""
    out = _written_by(family)
    if isinstance(out, Refused):
        return out
    summed = sum_of_products(family.codelet)
    if isinstance(summed, Refused):
        return summed
    tensors = [family.by_name[name].tensor for name in summed.fields if family.by_name[name].kind == "in"]
    factors = tuple(tensor for tensor in tensors if tensor is not None and is_plain(tensor))
    if len(factors) < len(summed.fields):
        return Refused("what it reads is irregular")
    axes = tuple(zip(family.axes, family.axis_names, strict=True))
    return Products(family, axes, factors, out, summed.summed_in, summed.precision)


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


def wholes_of(parts: Sequence[Products], zeros: Sequence[Products] = ()) -> Iterator[Products | Refused]:
    """The sums of products that parts are all of, or why not: either factor may be the one that has the other's holes.

    Args:
        parts: sums of products.
        zeros: where nothing is summed, and zero is written.
    """
    first = parts[0]
    count = len(first.factors)
    same = {(own.summed_in, own.precision, own.out.source, *(f.source for f in own.factors)) for own in parts}
    if len(same) > 1:
        yield Refused("they multiply other arrays, or sum in other ways")
        return
    maps = [[own.out.index, *(factor.index for factor in own.factors)] for own in parts]
    maps += [[own.out.index, *(Index(0),) * count] for own in zeros]
    sources = [first.out.source, *(factor.source for factor in first.factors)]
    extents = [own.extents for own in (*parts, *zeros)]
    for seen in pieces_of(maps, [source.shape for source in sources], extents, 1):
        pieces, around = seen[: len(parts)], seen[len(parts) :]
        for order in [(0, *range(1, count + 1)), (0, *range(count, 0, -1))][: max(1, count)]:
            found = partition_of(pieces, order, around, holes=True)
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
    parts: Sequence[Products], whole: Piece, sources: Sequence[Source], names: Mapping[Key, str]
) -> Products | Refused:
    """A whole as sums of products."""
    if any(line.divisor > 1 for line in whole.accesses[0].lines):
        return Refused("its results are among holes")
    summed, (out, *factors) = _summed_over(whole), _views(whole, sources)
    axes = tuple((axis, names[axis]) for axis in whole.extents if axis not in summed)
    lines = tuple(dict.fromkeys(line for own in parts for line in own.family.lines))
    family = replace(max(parts, key=lambda own: own.num_results).family, lines=lines)
    return parts[0]._replace(family=family, axes=axes, factors=tuple(factors), out=out)  # type: ignore[arg-type]
