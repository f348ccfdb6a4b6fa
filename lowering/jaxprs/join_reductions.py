"""Join reductions: a reduction of partial results is one of what these were made from.

Vertices that reduce blocks, and vertices that reduce the blocks' results, emit as a reduction of a reduction, with
rearrangements between; where no number of blocks divides what is reduced, of several that are concatenated, each of a
part of the operand. They are followed back: what is reduced is digits of positions in the result
(`codelet/views/digits.py`), those of step zero where it is summed, and a part waits until it is whole with its
neighbours. Where all parts come together in one array, or are the same elementwise function of
parts of arrays that do (`joined_maps.py`), one reduction takes their place.

It is as fast as what one would write, and has its gradient: ties of a greatest share the slope among all of them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, needed, variables
from codelet.jaxprs.primitives import REDUCTIONS, is_understood
from codelet.views.digits import Digit, merged, regrouped, row_major_digits, row_major_strides
from lowering.arrays import Array, reshape, transpose
from lowering.jaxprs.joined_maps import SUMMED, Dims, Whole, joined
from lowering.jaxprs.rearrangement import rearrangement
from lowering.jaxprs.remade import Remade, with_remade

_FOLLOWED = ("reshape", "squeeze", "broadcast_in_dim", "transpose", "concatenate", "slice", "split", *REDUCTIONS)
"""What is followed back."""

MOST_PARTS = 64
"""So many arrays at most a reduction is followed back to."""


@dataclass(frozen=True)
class _ReducedElements:
    """Some elements of an array, and where they go.

    Attributes:
        array: a value of the jaxpr.
        dims: for each dimension of the array the digits of the position in the result that its elements are reduced to.
        along: the dimension along which it is a part of the array; None for all of it.
        start: the first of its elements along that.
        size: how many.
        is_stretch: whether it is a stretch of the array as it lies in memory, and `along` of that.
        is_rows: whether it is some of the rows that all dimensions up to `along` make, as they lie in memory.
    """

    array: Atomic
    dims: tuple[tuple[Digit, ...], ...]
    along: int | None = None
    start: int = 0
    size: int = 0
    is_stretch: bool = False
    is_rows: bool = False

    @property
    def whole(self) -> int:
        """How many elements there are along that of which it is a part."""
        shape = _shape(self.array)
        if self.along is not None and self.is_rows:
            return math.prod(shape[: self.along + 1])
        return math.prod(shape) if self.is_stretch or self.along is None else shape[self.along]


def _summed(extent: int) -> tuple[Digit, ...]:
    return (Digit(0, extent),) if extent != 1 else ()


def _is_summed(digits: Sequence[Digit]) -> bool:
    return all(not digit.step for digit in digits)


def _shape(atom: Any) -> tuple[int, ...]:
    return atom.aval.shape


def _divided(
    part: _ReducedElements, source: Atomic, starts: Sequence[int], sizes: Sequence[int]
) -> _ReducedElements | None:
    """A slice as a part of what it is of: along one dimension that is summed, or, where all are, in memory.

    A dimension may have been merged of one that is summed and of others behind that, which are not cut.
    """
    shape = _shape(source)
    cut = [d for d, (size, extent) in enumerate(zip(sizes, shape, strict=True)) if size < extent]
    if cut and all(map(_is_summed, part.dims)) and math.prod(sizes[: cut[-1]]) == 1:
        strides = row_major_strides(shape)
        start = sum(first * stride for first, stride in zip(starts, strides, strict=True))
        return _ReducedElements(source, tuple(map(_summed, shape)), 0, start, math.prod(sizes), is_stretch=True)
    if cut and all(map(_is_summed, part.dims[: cut[-1] + 1])) and math.prod(sizes[: cut[-1]]) == 1:
        last = cut[-1]
        strides = row_major_strides(shape[: last + 1])
        start = sum(first * stride for first, stride in zip(starts, strides, strict=False))
        dims = (*map(_summed, shape[: last + 1]), *part.dims[last + 1 :])
        return _ReducedElements(source, dims, last, start, sizes[last], is_rows=True)
    if len(cut) != 1:
        return None
    (d,) = cut
    inner = tuple(itertools.dropwhile(lambda digit: not digit.step, part.dims[d]))
    stretch = math.prod(digit.extent for digit in inner)
    if starts[d] % stretch or sizes[d] % stretch or shape[d] % stretch or (inner and len(inner) == len(part.dims[d])):
        return None
    along = (*_summed(shape[d] // stretch), *inner)
    return _ReducedElements(source, (*part.dims[:d], along, *part.dims[d + 1 :]), d, starts[d], sizes[d])


def _keeps_order(maker: jax_core.JaxprEqn) -> bool:
    """Whether what an equation makes has all elements of its operand in the operand's order, each once."""
    if maker.primitive.name == "broadcast_in_dim":
        repeats = math.prod(_shape(maker.outvars[0])) != math.prod(_shape(maker.invars[0]))
        return not repeats and list(maker.params["broadcast_dimensions"]) == sorted(
            maker.params["broadcast_dimensions"]
        )
    return maker.primitive.name == "squeeze" or maker.params["dimensions"] is None


def _behind(
    part: _ReducedElements, maker: jax_core.JaxprEqn, name: str, uses: Counter[Any]
) -> list[_ReducedElements] | None:
    """What a whole array is made of, by one equation; None where that is no part of a reduction."""
    source, dims = maker.invars[0], part.dims
    if any(isinstance(atom, jax_core.Literal) for atom in maker.invars):
        return None
    match maker.primitive.name:
        case "reshape" | "squeeze" | "broadcast_in_dim" if _keeps_order(maker):
            own = regrouped(merged(digit for dim in dims for digit in dim), _shape(source))
            return None if own is None else [_ReducedElements(source, own)]
        case "transpose":
            order = [int(d) for d in maker.params["permutation"]]
            return [_ReducedElements(source, tuple(dims[order.index(d)] for d in range(len(order))))]
        case "concatenate":
            d = int(maker.params["dimension"])
            if not _is_summed(dims[d]) or len(maker.invars) > MOST_PARTS:
                return None
            of = lambda atom: (*dims[:d], _summed(_shape(atom)[d]), *dims[d + 1 :])  # noqa: E731
            return [_ReducedElements(atom, of(atom)) for atom in maker.invars]
        case "slice" if maker.params["strides"] is None or set(maker.params["strides"]) <= {1}:
            starts = maker.params["start_indices"]
            own = _divided(part, source, starts, _shape(part.array))
            return None if own is None else [own]
        case "split":
            axis, starts = int(maker.params["axis"]), [0] * len(dims)
            before = maker.outvars[: list(maker.outvars).index(part.array)]
            starts[axis] = sum(_shape(var)[axis] for var in before)
            own = _divided(part, source, starts, _shape(part.array))
            return None if own is None else [own]
        case own_name if own_name == name and uses[part.array] == 1:
            left, axes = iter(dims), {int(axis) for axis in maker.params["axes"]}
            return [
                _ReducedElements(
                    source, tuple(_summed(n) if d in axes else next(left) for d, n in enumerate(_shape(source)))
                )
            ]
    return None


def _identity(array: Atomic, makers: Makers) -> Any:
    """What two values have in common that are one array rearranged in one way, to one shape."""
    view = rearrangement(array, makers, stop=lambda _: False)
    return (view.root, tuple(merged(view.digits))), _shape(array)


def _with_neighbours(parts: list[_ReducedElements], makers: Makers) -> list[_ReducedElements]:
    """Parts that are all of an array between them made one."""
    found: list[_ReducedElements] = []
    waiting: dict[Any, list[_ReducedElements]] = {}
    for part in parts:
        if part.along is None:
            found.append(part)
            continue
        root, shape = _identity(part.array, makers)
        key: Any = (root, math.prod(shape)) if part.is_stretch else (root, shape, part.along, part.dims)
        if part.is_rows:
            behind = part.along + 1
            key = root, math.prod(shape[:behind]), shape[behind:], part.dims[behind:]
        waiting.setdefault(key, []).append(part)
    for own in waiting.values():
        own.sort(key=lambda part: part.start)
        ends = [part.start + part.size for part in own]
        if [part.start for part in own] == [0, *ends[:-1]] and ends[-1] == own[0].whole:
            found.append(_ReducedElements(own[0].array, own[0].dims))
        else:
            found += own
    return found


def _is_exact(eqn: jax_core.JaxprEqn) -> bool:
    """Whether partial results are not rounded, or as finely as the whole: those of 16 bits are told apart."""
    dtype = eqn.outvars[0].aval.dtype  # type: ignore[attr-defined]
    if eqn.primitive.name not in ("reduce_sum", "reduce_prod"):
        return True
    return not jnp.issubdtype(dtype, jnp.inexact) or np.dtype(dtype).itemsize >= 4


def _find(eqn: jax_core.JaxprEqn, makers: Makers, uses: Counter[Any]) -> Whole | None:
    """What a reduction of reductions is one of; None where there is none, or it is one already."""
    (operand,) = eqn.invars
    if isinstance(operand, jax_core.Literal) or 0 in _shape(operand) or not _is_exact(eqn):
        return None
    axes = {int(axis) for axis in eqn.params["axes"]}
    kept = iter(row_major_digits(_shape(eqn.outvars[0])))
    digits = [Digit(0, n) if d in axes else next(kept) for d, n in enumerate(_shape(operand))]
    parts = [_ReducedElements(operand, tuple((digit,) if digit.extent != 1 else () for digit in digits))]
    joins = turns = False
    while len(parts) <= MOST_PARTS:
        parts = _with_neighbours(parts, makers)
        for k, part in enumerate(parts):
            maker = makers.of(part.array) if part.along is None else None
            if maker is None or not is_understood(maker, *_FOLLOWED):
                continue
            behind = _behind(part, maker, eqn.primitive.name, uses)
            if behind is not None:
                joins = joins or maker.primitive.name in ("concatenate", eqn.primitive.name)
                turns = turns or maker.primitive.name == "transpose"
                parts[k : k + 1] = behind
                break
        else:
            break
    if any(part.along is not None for part in parts):
        return None
    if not joins:
        return _as_it_is(parts[0]) if turns and len(parts) == 1 else None
    whole = joined([(part.array, _numbered(part)) for part in parts], makers, uses, lambda own: _identity(own, makers))
    return whole or (_as_it_is(parts[0]) if len(parts) == 1 else None)


def _numbered(part: _ReducedElements) -> Dims:
    """The digits of a part with those that are summed told apart: by positions among them."""
    found, step = [], SUMMED
    for dim in reversed(part.dims):
        own = []
        for digit in reversed(dim):
            own.append(digit if digit.step else Digit(step, digit.extent))
            step *= 1 if digit.step else digit.extent
        found.append(tuple(own[::-1]))
    return tuple(found[::-1])


def _as_it_is(part: _ReducedElements) -> Whole:
    """All of an array."""
    digits = merged(digit for dim in part.dims for digit in dim)
    labels = [("kept" if digit.step else "summed", digit.step, digit.extent) for digit in digits]
    return Whole((part.array,), lambda array: reshape(array, [digit.extent for digit in digits]), tuple(labels))


def _reduced(name: str, whole: Whole, arrays: Sequence[Array], shape: Sequence[int]) -> Array:
    """One reduction of all of an array."""
    array = whole.value(*arrays)
    axes = tuple(k for k, label in enumerate(whole.labels) if label[0] != "kept")
    array = getattr(lax, name)(array, axes)
    kept = [label for label in whole.labels if label[0] == "kept"]
    return reshape(transpose(array, sorted(range(len(kept)), key=lambda k: -kept[k][1])), shape)


def join_reductions(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with reductions of partial results made one, in the bodies of loops as well."""
    jaxpr = closed.jaxpr
    makers = Makers(jaxpr.eqns)
    found: dict[jax_core.JaxprEqn, Remade] = {}

    def sources(eqn: jax_core.JaxprEqn) -> Sequence[Atomic]:
        return found[eqn].sources if eqn in found else eqn.invars

    def one(eqn: jax_core.JaxprEqn, whole: Whole) -> Remade:
        shape, name = _shape(eqn.outvars[0]), eqn.primitive.name
        return Remade(whole.arrays, lambda *arrays: [_reduced(name, whole, arrays, shape)])

    while True:  # what two reductions are of is of one when the other is joined
        live = needed(jaxpr, sources)
        uses = Counter(atom for atoms in (*map(sources, live), jaxpr.outvars) for atom in variables(atoms))
        left = [eqn for eqn in live if eqn not in found and is_understood(eqn, *REDUCTIONS)]
        new = {eqn: one(eqn, whole) for eqn in left if (whole := _find(eqn, makers, uses)) is not None}
        if not new:
            return with_remade(closed, found, join_reductions)
        found |= new
