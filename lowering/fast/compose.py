"""Compose: a family that adds up what another multiplied becomes one that multiplies, over what is summed as well.

In come a family of sums, and the family of inner products that wrote what it adds up. Out comes one of inner products,
of views of what these read: the field's dimensions of the sums stand in the place of axes of the products. Which axis
each key of the sums runs along, digits tell: what products write is an offset and a digit for each of their axes, and a
key of the sums steps along one of these, or is split in two where it runs on into the next (`codelet/views/digits.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.graphs.family import Family
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import inline
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.grids import Axis, Grid
from codelet.views.index import Index
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from lowering.fast.inner_products import product_family
from lowering.fast.key_parts import Along, Part, Place, parts_along
from lowering.fast.lines import strided_index
from lowering.jaxprs.inner_products import as_inner_product
from lowering.jaxprs.rearrangement import rearrangement
from lowering.plan.collect import normalize_family

# --- what families are ----------------------------------------------------------------------------------


class Products(NamedTuple):
    """A family of sums of products, whose every vertex writes one element.

    Attributes:
        family: which, or one in whose place it would be.
        axes: of its grid, and what they are called.
        factors: the views that are multiplied, of one shape: two, or one where it adds up alone.
        out: what is written.
        summed_in: the dtype of the sums.
        precision: of the products.
    """

    family: Family
    axes: tuple[tuple[Axis, str], ...]
    factors: tuple[Tensor, ...]
    out: Tensor
    summed_in: np.dtype
    precision: Any = None

    @property
    def as_family(self) -> Family:
        """It as a family, in normal form; of two factors."""
        left, right = self.factors
        made = product_family(self.family, self.axes, left, right, self.out, self.summed_in, self.precision)
        whole = normalize_family(made)
        if any("." in name or "*" in name for name in whole.axis_names):  # of axes that were split for the machine
            whole = replace(whole, axis_names=tuple(f"i{k}" for k in range(len(whole.axes))))
        return whole


def _is_plain(tensor: Tensor | None) -> bool:
    """Whether a view is affine."""
    return tensor is not None and tensor.rows is None and not tensor.index.tables and bool(tensor.size)


def _written_by(family: Family) -> Tensor | None:
    """What a family writes, where that is a plain view of a variable, through one field, by one element a vertex."""
    fields = [field for field in family.fields if field.is_written]
    if len(fields) != 1 or fields[0].kind != "out" or not family.num_vertices:
        return None
    tensor = fields[0].tensor
    if tensor is None or not _is_plain(tensor) or tensor.size != 1 or not isinstance(tensor.source, Variable):
        return None
    return Tensor(tensor.source, Index(tensor.index.offset, (), (), tensor.index.symbols))


def _summed_in(codelet: TracedCodelet) -> np.dtype | None:
    """The dtype in which a codelet sums all elements of its only field, for its only result; None where it does not."""
    if len(codelet.inputs) != 1 or len(codelet.outputs) != 1:
        return None
    jaxpr = inline(codelet.jaxpr).jaxpr
    makers: dict[Any, jax_core.JaxprEqn] = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    out = jaxpr.outvars[0]
    last = _maker(out, makers)
    if last is not None and is_understood(last, "convert_element_type"):
        out = last.invars[0]
        last = _maker(out, makers)
    (field,) = jaxpr.invars
    if last is None and not isinstance(out, jax_core.Literal):  # the sum of one element
        alone = rearrangement(out, makers, stop=lambda _: False).root is field and field.aval.size == 1  # type: ignore[attr-defined]
        return field.aval.dtype if alone and jnp.issubdtype(field.aval.dtype, jnp.floating) else None  # type: ignore[attr-defined]
    if last is None or not is_understood(last, "reduce_sum"):
        return None
    summed = last.invars[0]
    every = last.outvars[0].aval.size == 1  # type: ignore[attr-defined]
    view = rearrangement(summed, makers, stop=lambda _: False)
    dtype = summed.aval.dtype  # type: ignore[attr-defined]
    is_all = view.root is field and all(digit.step for digit in view.digits)
    return dtype if every and is_all and jnp.issubdtype(dtype, jnp.floating) else None


def as_products(family: Family) -> Products | None:
    """A family as one of sums of products, or of sums; None where it is none, or not of plain views."""
    out = _written_by(family)
    if out is None:
        return None
    product, dtype = as_inner_product(family.codelet), _summed_in(family.codelet)
    names = product.fields if product is not None else tuple(family.codelet.inputs) if dtype is not None else ()
    tensors = [family.by_name[name].tensor for name in names if family.by_name[name].kind == "in"]
    factors = tuple(tensor for tensor in tensors if tensor is not None and _is_plain(tensor))
    if not names or len(factors) < len(names):
        return None
    axes = tuple(zip(family.axes, family.axis_names, strict=True))
    if product is not None:
        return Products(family, axes, factors, out, product.summed_in, product.precision)
    assert dtype is not None
    return Products(family, axes, factors, out, dtype)


def _maker(atom: Any, makers: Mapping[Any, jax_core.JaxprEqn]) -> jax_core.JaxprEqn | None:
    """What makes a value, but for how it is arranged."""
    if isinstance(atom, jax_core.Literal):
        return None
    return makers.get(rearrangement(atom, dict(makers), stop=lambda _: False).root)


# --- together -------------------------------------------------------------------------------------------


class _SumKeys(NamedTuple):
    """The axes of the sums, some of them split, and what is summed over: dimensions of the field."""

    axes: tuple[tuple[Axis, str], ...]
    of_axis: Mapping[Part, Axis]
    of_field: Mapping[Part, int]

    def split(self, index: Index) -> Index:
        """An index over the axes of the sums, over these."""
        own = {axis: index.coefficient(part.key) * part.weight for part, axis in self.of_axis.items()}
        return strided_index(index.offset, index.shape, index.strides, own)


def _keys(sums: Products, parts: Sequence[Part]) -> _SumKeys:
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


def _composed(factor: Tensor, along: Mapping[Axis, Along], keys: _SumKeys) -> Index:
    """A factor of the products over the axes of the sums, what is summed before its own dimensions."""
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


def _merged(indices: Sequence[Index]) -> list[Index]:
    """Indices of one shape, with those dimensions made one that run on from each other in all of them."""
    digits = [own for own in zip(indices[0].shape, *(i.strides for i in indices), strict=True) if own[0] > 1]
    digits.sort(key=lambda own: [abs(step) for step in own[1:]], reverse=True)
    found: list[tuple[int, ...]] = []
    for extent, *steps in digits:
        outer = next((own for own in found if list(own[1:]) == [step * extent for step in steps]), None)
        if outer is None:
            found.append((extent, *steps))
        else:
            found[found.index(outer)] = (outer[0] * extent, *steps)
    shape, *strides = zip(*found, strict=True) if found else ((), *(() for _ in indices))
    return [strided_index(i.offset, shape, own, dict(i.symbols)) for i, own in zip(indices, strides, strict=True)]


def compose(sums: Products, products: Products, *, merge: bool = True) -> Products | None:
    """Sums of what sums of products wrote, as sums of products; None where the keys of one do not fit the other's.

    The value that the sums read has to be that which the products wrote, and what the products read unchanged since.
    A product of 16 bits is rounded before it is added up: that stays. Dimensions that run on from each other are one in
    what comes out, unless they are not to be merged.
    """
    (read,) = sums.factors
    if read.source is not products.out.source or not sums.summed_in == products.summed_in == products.out.dtype:
        return None
    written = products.out.index
    axes = [Place(axis, step, axis.extent) for axis, step in written.symbols]
    along = parts_along(axes, written.offset, read.index) if jnp.finfo(sums.summed_in).bits >= 32 else None
    if along is None:
        return None
    parts = [part for own in along.values() for part, _ in own.steps]
    if {key for key, extent in enumerate(read.shape) if extent > 1} - {part.key for part in parts}:
        return None  # a sum of one element several times
    keys = _keys(sums, parts)
    indices = [_composed(factor, along, keys) for factor in products.factors]
    indices = _merged(indices) if merge else indices
    factors = tuple(Tensor(f.source, index) for f, index in zip(products.factors, indices, strict=True))
    out = Tensor(sums.out.source, keys.split(sums.out.index))
    lines = tuple(dict.fromkeys((*products.family.lines, *sums.family.lines)))
    family = replace(sums.family, lines=lines)
    return Products(family, keys.axes, factors, out, sums.summed_in, products.precision)
