"""Summed: a sum over whole dimensions of what an equation makes, through rearrangements.

What vertices make each for themselves, and others then sum, emits as an equation with batches, reshapes, transposes,
and a sum; shorter floats are made longer before. In comes the sum, out comes the equation, which of its dimensions are
summed, and how the others lie in the sum: as digits of the positions in what the equation makes
(`codelet/views/digits.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, bind
from codelet.jaxprs.primitives import is_understood
from codelet.views.digits import Digit, common_refinement, merged, row_major_strides
from lowering.arrays import reshape
from lowering.jaxprs.rearrangement import Rearrangement, rearrange, rearrangement
from lowering.jaxprs.remade import Remade
from lowering.jaxprs.reshape_once import stretches


def shape_of(atom: Any) -> tuple[int, ...]:
    return tuple(atom.aval.shape)


def dtype_of(atom: Any) -> np.dtype:
    return atom.aval.dtype


def _apart(digits: Sequence[Digit], shape: Sequence[int]) -> list[tuple[int, Digit]] | None:
    """Digits of the positions of an array, each within one dimension, and which; None where some lie in several."""
    found: list[tuple[int, Digit]] = []
    strides = row_major_strides(shape)
    for digit in digits:
        if not digit.step:
            return None
        left = digit
        within = [d for d, n in enumerate(shape) if n > 1 and digit.step <= strides[d] < digit.step * digit.extent]
        for d in within:
            if strides[d] == left.step:
                break
            if strides[d] % left.step or left.extent % (strides[d] // left.step):
                return None
            outer, left = left.split(strides[d] // left.step)
            found.append((d, outer))
        inner = [d for d, n in enumerate(shape) if strides[d] <= left.step < strides[d] * n]
        if not inner or left.step * left.extent > strides[inner[0]] * shape[inner[0]]:
            return None
        found.append((inner[0], left))
    return found


@dataclass(frozen=True)
class Sum:
    """A sum of an array over some of its dimensions, whole, rearranged.

    Attributes:
        array: what is summed.
        maker: the equation that makes it.
        summed: the dimensions of the array.
        kept: the digits of the positions in it that a position in the sum is made of, each within a dimension.
        shape: of the sum.
        dtype: likewise.
    """

    array: jax_core.Var
    maker: jax_core.JaxprEqn
    summed: tuple[int, ...]
    kept: tuple[tuple[int, Digit], ...]
    shape: tuple[int, ...]
    dtype: np.dtype

    def back(self, made: Any, order: Sequence[int]) -> Any:
        """The sum of the array without what is summed, whose dimensions in `made` are in an order."""
        old = row_major_strides(shape_of(self.array))
        new = dict(zip(order, row_major_strides(made.shape), strict=True))
        digits = [Digit(own.step // old[d] * new[d], own.extent) for d, own in self.kept]
        return rearrange(made.astype(self.dtype), digits, self.shape)


def _of_root(digits: Sequence[Digit], view: Rearrangement) -> list[Digit] | None:
    """Digits of the positions in a rearrangement as digits of those in its root; None where these are others."""
    extents = [digit.extent for digit in view.digits]
    strides, apart = row_major_strides(extents), _apart(digits, extents)
    if apart is None:
        return None
    return [Digit(view.digits[k].step * (own.step // strides[k]), own.extent) for k, own in apart]


def _is_longer(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation makes floats longer, as those that are summed may be."""
    bits = [
        jnp.finfo(own).bits if jnp.issubdtype(own, jnp.floating) else 0
        for own in map(dtype_of, (eqn.invars[0], eqn.outvars[0]))
    ]
    return 0 < bits[0] < bits[1]


def _over_dimensions(
    array: Any, maker: jax_core.JaxprEqn, summed: Sequence[Digit], kept: Sequence[Digit], made: Any
) -> Sum | None:
    """What is made of an array whose positions have digits that are summed and others; None if none are dimensions."""
    own, left = (_apart(merged(digits), shape_of(array)) for digits in (summed, kept))
    if not own or left is None or {d for d, _ in own} & {d for d, _ in left}:
        return None
    return Sum(array, maker, tuple(sorted({d for d, _ in own})), tuple(left), shape_of(made), dtype_of(made))


def _digits_over(view: Rearrangement, axes: Collection[int]) -> tuple[list[Digit], list[Digit]]:
    """The digits of some dimensions of a rearrangement, in order, and of the others."""
    dims = list(enumerate(view.dims))
    over = lambda is_in: merged(digit for d, dim in dims if (d in axes) == is_in for digit in dim)  # noqa: E731
    return over(True), over(False)


def sum_of(eqn: jax_core.JaxprEqn, makers: Makers) -> Sum | None:
    """What a sum is of; None where that is no gather or scatter, or it is over parts of its dimensions."""
    (operand,), (made,) = eqn.invars, eqn.outvars
    if isinstance(operand, jax_core.Literal) or 0 in shape_of(operand):
        return None
    view, axes = rearrangement(operand, makers, stop=lambda _: False), {int(axis) for axis in eqn.params["axes"]}
    summed: Sequence[Digit] | None
    kept: Sequence[Digit] | None
    summed, kept = _digits_over(view, axes)
    maker = makers.of(view.root)
    if maker is not None and is_understood(maker, "convert_element_type") and _is_longer(maker):
        view = rearrangement(maker.invars[0], makers, stop=lambda _: False)
        maker, summed, kept = makers.of(view.root), _of_root(summed, view), _of_root(kept, view)
    if maker is None or not is_understood(maker, "gather", "scatter-add") or summed is None or kept is None:
        return None
    return _over_dimensions(view.root, maker, summed, kept, made)


def _made_by_tables(atom: Atomic, makers: Makers) -> bool:
    """Whether a value is a rearrangement of what a gather or a scatter makes."""
    maker = makers.of(atom)
    while maker is not None and is_understood(maker, "reshape", "transpose", "convert_element_type"):
        maker = makers.of(maker.invars[0])
    return maker is not None and is_understood(maker, "gather", "scatter-add")


def sum_of_each(eqn: jax_core.JaxprEqn, makers: Makers) -> Remade | None:
    """A sum over tables that are put together as that of the sums of each; None where it is none, or of no tables.

    Vertices that no number divides are several families, and so are the tables that they make.
    """
    (operand,) = eqn.invars
    if isinstance(operand, jax_core.Literal) or 0 in shape_of(operand):
        return None
    view, axes = rearrangement(operand, makers, stop=lambda _: False), {int(axis) for axis in eqn.params["axes"]}
    maker = makers.of(view.root)
    if maker is None or not is_understood(maker, "concatenate"):
        return None
    tables = _over_dimensions(view.root, maker, *_digits_over(view, axes), eqn.outvars[0])
    if tables is None or maker.params["dimension"] not in tables.summed:
        return None
    if not any(_made_by_tables(part, makers) for part in maker.invars):
        return None
    over = eqn.replace(params={**eqn.params, "axes": tables.summed})
    left = [d for d in range(len(shape_of(view.root))) if d not in tables.summed]

    def run(*parts: Any) -> list[Any]:
        return [tables.back(functools.reduce(lax.add, [bind(over, [part])[0] for part in parts]), left)]

    return Remade(tuple(maker.invars), run)


def sum_before_reshape(eqn: jax_core.JaxprEqn, makers: Makers) -> Remade | None:
    """A sum of a reshaped array as the reshaped sum of that, where no digits say how it lies; None where it is none.

    Tables of 4 x 30 x 16 that are summed 64 x 30 elements at a time are so: what is summed is whole dimensions before
    and after the reshape, and others are not.
    """
    (operand,) = eqn.invars
    if isinstance(operand, jax_core.Literal) or 0 in shape_of(operand):
        return None
    view, axes = rearrangement(operand, makers, stop=lambda _: False), {int(axis) for axis in eqn.params["axes"]}
    maker = makers.of(view.root)
    if maker is None or not is_understood(maker, "reshape") or maker.params["dimensions"] is not None:
        return None
    base, root = maker.invars[0], view.root
    if isinstance(base, jax_core.Literal) or not _made_by_tables(base, makers):
        return None
    found = _over_dimensions(root, maker, *_digits_over(view, axes), eqn.outvars[0])
    if found is None:
        return None
    shape, summed = shape_of(root), set(found.summed)
    inner, inner_axes = list[int](), list[int]()
    for before, after in stretches(shape_of(base), shape):
        if not summed & set(range(after.start, after.stop)):
            inner += shape_of(base)[before]
            continue
        refined = common_refinement(shape_of(base)[before], shape[after])
        if refined is None:
            return None
        strides, weights = row_major_strides(refined), row_major_strides(shape[after])
        for d in summed & set(range(after.start, after.stop)):
            weight = weights[d - after.start]
            inner_axes += [len(inner) + k for k, step in enumerate(strides) if weight <= step < weight * shape[d]]
        inner += refined
    order = [d for d in range(len(shape)) if d not in summed]

    def run(array: Any) -> list[Any]:
        of_inner = eqn.replace(params={**eqn.params, "axes": tuple(sorted(inner_axes))})
        (made,) = bind(of_inner, [reshape(array, inner)])
        return [found.back(reshape(made, [shape[d] for d in order]), order)]

    return Remade((base,), run)
