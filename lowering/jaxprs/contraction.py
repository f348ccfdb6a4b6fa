"""Contraction: a product of two rearranged values, summed over digits of theirs, and how one dot makes it.

In come an equation that multiplies, what its operands are rearrangements of, and how what becomes of its result is
one of it; out comes an einsum over digits of the operands as they lie in memory, each a part of a dimension. A dot of
these, neighbouring digits merged, needs no transpose of an operand, and of the result only where no dot makes its
order. An operand that is much smaller than such a result is transposed rather than it.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers
from codelet.jaxprs.primitives import is_understood
from codelet.views.digits import Digit, common_refinement, regrouped
from lowering.arrays import reshape, transpose
from lowering.jaxprs.rearrangement import Rearrangement, in_memory, rearrangement, whole

# --- arithmetic -------------------------------------------------------------------------------------------


def is_exact(product: jax_core.JaxprEqn) -> bool:
    """Whether a sum of what a `mul` multiplies may be a dot: whether that rounds as products and sums do, or wraps.

    A product of two numbers of 16 bits or fewer is rounded, or overflows, before it is summed. A dot would keep it.
    """
    dtype = product.outvars[0].aval.dtype  # type: ignore[attr-defined]
    wide = jnp.issubdtype(dtype, jnp.inexact) and jnp.finfo(dtype).bits >= 32
    return wide or jnp.issubdtype(dtype, jnp.integer)


def precision_of(product: jax_core.JaxprEqn) -> Any:
    """The precision of a dot in the place of a product: its own, or, for a `mul`, all that its dtype has.

    By default a dot of float32 has less on some accelerators: TensorFloat-32 on GPUs, bfloat16 on TPUs.
    """
    return lax.Precision.HIGHEST if product.primitive.name == "mul" else product.params["precision"]


# --- a sum of products, by its labels -------------------------------------------------------------------


@dataclass(frozen=True)
class Contraction:
    """`sum over labels that are not in result of left * right`: an einsum whose labels are parts of dimensions.

    `left` and `right` name the label at each digit of their rearrangements, in memory order; `result` those of
    the result, in order.
    """

    left: Rearrangement
    right: Rearrangement
    left_labels: tuple[int, ...]
    right_labels: tuple[int, ...]
    result: tuple[int, ...]
    extents: dict[int, int]
    precision: Any
    preferred_element_type: Any


class _Labels:
    """Deals out labels to the digits of operands and result, dimension by dimension."""

    def __init__(self) -> None:
        self.extents: dict[int, int] = {}
        self.at: list[dict[Digit, int]] = [{}, {}, {}]

    def add(self, dims: Sequence[Sequence[Digit] | None]) -> bool:
        """One dimension as operands and result see it (None where one has it not); False if they do not fit."""
        given = [dim for dim in dims if dim is not None]
        cuts = common_refinement(*([digit.extent for digit in dim] for dim in given))
        if cuts is None:
            return False
        refined = [None if dim is None else regrouped(dim, cuts) for dim in dims]
        if any(own is None and dim is not None for own, dim in zip(refined, dims, strict=True)):
            return False
        for k, size in enumerate(cuts):
            label = len(self.extents)
            self.extents[label] = size
            for where, own in zip(self.at, refined, strict=True):
                if own is not None:
                    where[own[k][0]] = label
        return True


def dimension_roles(eqn: jax_core.JaxprEqn) -> list[tuple[int | None, int | None, int | None]]:
    """Which dimension of left, right and result go together, for a dot or a product."""
    if eqn.primitive.name == "mul":
        return [(d, d, d) for d in range(eqn.outvars[0].aval.ndim)]  # type: ignore[attr-defined]
    (left_inner, right_inner), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    left, right = (atom.aval.ndim for atom in eqn.invars)  # type: ignore[attr-defined]
    kept = [
        *zip(left_batch, right_batch, strict=True),
        *((d, None) for d in range(left) if d not in (*left_inner, *left_batch)),
        *((None, d) for d in range(right) if d not in (*right_inner, *right_batch)),
    ]
    summed = zip(left_inner, right_inner, strict=True)
    return [*((a, b, k) for k, (a, b) in enumerate(kept)), *((a, b, None) for a, b in summed)]


def _sums_one(product: jax_core.JaxprEqn) -> bool:
    """Whether a dot sums over a dimension, of one element."""
    if product.primitive.name != "dot_general":
        return False
    (inner, _), _ = product.params["dimension_numbers"]
    return len(inner) > 0 and all(product.invars[0].aval.shape[d] == 1 for d in inner)  # type: ignore[attr-defined]


def contraction_of(
    view: Rearrangement,
    makers: Makers,
    summed: Collection[int] = (),
    *,
    looked_through: Sequence[bool] = (True, True),
) -> Contraction | None:
    """The sum over some dimensions of a value, by what it is a rearrangement of: what a product or dot makes.

    None where nothing such makes it, or a dot cannot; unless some label is summed, and some is in one operand only, or
    it is the sum of a dot, or what a dot makes of an operand that is repeated, or in another order.
    `looked_through` says of which operands it is asked what they are rearrangements of.
    """
    product = makers.of(view.root)
    if product is None or not is_understood(product, "mul", "dot_general"):
        return None
    shapes = [atom.aval.shape for atom in product.invars]  # type: ignore[attr-defined]
    if any(isinstance(atom, jax_core.Literal) for atom in product.invars) or any(0 in shape for shape in shapes):
        return None
    has_scalar = any(len(shape) != view.root.aval.ndim for shape in shapes)
    if product.primitive.name == "mul" and (has_scalar or not is_exact(product)):
        return None
    outside = regrouped(view.memory, view.root.aval.shape)
    if outside is None:
        return None
    asked = zip(product.invars, looked_through, strict=True)
    sides = [rearrangement(atom, makers, stop=lambda _: False) if own else whole(atom) for atom, own in asked]
    labels = _Labels()
    all_dims = (sides[0].dims, sides[1].dims, outside)
    for roles in dimension_roles(product):
        dims = [None if at is None else own[at] for at, own in zip(roles, all_dims, strict=True)]
        # Of a product's operands one may have extent 1 where the other has more: it has no part in it.
        if not labels.add(tuple(dim or None for dim in dims)):
            return None
    if any(not digit.step for d in summed for digit in view.dims[d]):
        return None
    result: list[int] = []
    for digit in (digit for d, dim in enumerate(view.dims) if d not in summed for digit in dim):
        # It may have been cut finer for the operands of the product.
        parts = [part for part in labels.at[2] if digit.step <= part.step < digit.step * digit.extent]
        if not parts:
            return None
        result += [labels.at[2][part] for part in sorted(parts, reverse=True)]
    left, right = (tuple(at[digit] for digit in in_memory(at)) for at in labels.at[:2])
    gone = set(left) | set(right)
    if summed and gone == set(result) and _sums_one(product):
        # As a part that is left over of what is cut does: it is summed like the others.
        one = len(labels.extents)
        labels.extents[one], left, right = 1, (one, *left), (one, *right)
        gone.add(one)
    if not set(result) <= gone or not (gone - set(result)) <= set(left) & set(right):
        return None
    if any(label not in gone and extent > 1 for label, extent in labels.extents.items()):
        return None  # of what is only repeated the sum is as many times the rest, and no operand of a dot has it
    is_dot = product.primitive.name == "dot_general"
    repeats = any(not digit.step for side in sides for dim in side.dims for digit in dim)
    if set(left) == set(right) and not (is_dot and summed):
        return None
    if gone == set(result) and not (is_dot and not summed and (repeats or not view.is_in_order)):
        return None
    kind = product.params.get("preferred_element_type") or product.outvars[0].aval.dtype  # type: ignore[attr-defined]
    return Contraction(sides[0], sides[1], left, right, tuple(result), labels.extents, precision_of(product), kind)


# --- as a dot -------------------------------------------------------------------------------------------


def _turned(precision: Any) -> Any:
    """The precision of a dot of exchanged operands: of each operand its own, where there are two."""
    return precision[::-1] if type(precision) is tuple else precision


def _may_turn(precision: Any) -> bool:
    """Whether it is known what a precision says of each operand: an algorithm may say different things."""
    each = precision if type(precision) is tuple else (precision,)
    return all(one is None or isinstance(one, lax.Precision) for one in each)


def _merged(found: Contraction) -> tuple[tuple[int, ...], tuple[int, ...], dict[int, list[int]]]:
    """Labels of one role that are neighbours in every operand that has them made one: the first, with its members.

    Whether the result keeps them together does not matter: it is transposed after the dot if it is at all, and
    a dot over split dimensions, in the gradient too, is slower than one over whole ones.
    """
    members = {label: [label] for label in found.extents}
    orders = [found.left_labels, found.right_labels]
    for first in list(members):
        while first in members:
            after = {order[order.index(first) + 1 : order.index(first) + 2] for order in orders if first in order}
            if len(after) != 1 or not (following := next(iter(after))):
                break
            (second,) = following
            if any((first in order) != (second in order) for order in (*orders, found.result)):
                break
            members[first] += members.pop(second)
            orders = [tuple(label for label in order if label != second) for order in orders]
    return orders[0], orders[1], members


_FEWER = 2
"""How many times smaller than a result an operand is that is transposed in its place: each is read and written."""


class _Transposed(NamedTuple):
    """How an operand is transposed: in which shape, and in which order of its dimensions."""

    shape: tuple[int, ...]
    order: tuple[int, ...]


@dataclass(frozen=True)
class Dot:
    """How a dot makes a contraction, of the roots of its operands in some shapes.

    Attributes:
        contraction: what it makes.
        is_swapped: whether the right operand comes first.
        shapes: those of the operands as the dot takes them.
        numbers: its dimension numbers.
        labels: those of what it makes, in order.
        transposed: how the left and the right operand are transposed before; None for one that is not.
    """

    contraction: Contraction
    is_swapped: bool
    shapes: tuple[tuple[int, ...], tuple[int, ...]]
    numbers: lax.DotDimensionNumbers
    labels: tuple[int, ...]
    transposed: tuple[_Transposed | None, _Transposed | None] = (None, None)

    @property
    def form(self) -> Hashable:
        """All that `made` depends on beside the operands and the result's shape."""
        own = self.contraction
        what = own.result, tuple(own.extents.items()), own.precision, own.preferred_element_type
        return self.is_swapped, self.shapes, self.numbers, self.labels, self.transposed, what

    @property
    def sums(self) -> bool:
        """Whether it sums anything."""
        return any(self.numbers[0])

    @property
    def order(self) -> list[int]:
        """How what it makes is transposed to the result, label by label."""
        return [self.labels.index(label) for label in self.contraction.result]

    @property
    def is_in_order(self) -> bool:
        """Whether it makes the result without a transpose."""
        return self.order == sorted(self.order)

    def made(self, left: Any, right: Any, shape: Sequence[int]) -> Any:
        """The contraction of the operands' roots, in the result's shape."""
        found = self.contraction
        left, right = (
            own if how is None else transpose(reshape(own, how.shape), how.order)
            for own, how in zip((left, right), self.transposed, strict=True)
        )
        first, second = map(reshape, (right, left) if self.is_swapped else (left, right), self.shapes)
        kind = found.preferred_element_type
        precision = _turned(found.precision) if self.is_swapped else found.precision
        dot = lax.dot_general(first, second, self.numbers, precision=precision, preferred_element_type=kind)
        if self.is_in_order:
            return reshape(dot, shape)
        return reshape(transpose(reshape(dot, [found.extents[label] for label in self.labels]), self.order), shape)


def _of_operands_in_memory(found: Contraction) -> Dot:
    """The dot that makes a contraction of the operands as they lie in memory, neighbouring labels merged."""
    left, right, members = _merged(found)
    alone = [label for label in found.result if (label in found.left_labels) != (label in found.right_labels)]
    on_left = [label in found.left_labels for label in alone]
    is_swapped = any(on_left) and not on_left[0] and _may_turn(found.precision)
    if is_swapped:
        left, right = right, left
    both = [k for k in left if k in right]
    batch, inner = [k for k in both if k in found.result], [k for k in both if k not in found.result]
    places = lambda labels: (tuple(map(left.index, labels)), tuple(map(right.index, labels)))  # noqa: E731
    made = [*batch, *(k for k in left if k not in both), *(k for k in right if k not in both)]
    extents = lambda own: tuple(math.prod(found.extents[label] for label in members[k]) for k in own)  # noqa: E731
    labels = tuple(label for k in made for label in members[k])
    return Dot(found, is_swapped, (extents(left), extents(right)), (places(inner), places(batch)), labels)


def _in_order_of_result(found: Contraction, own: Sequence[int], other: Sequence[int]) -> tuple[int, ...]:
    """The labels of an operand with those that the other has not in the order of the result, if that is much larger."""
    size = lambda labels: math.prod(found.extents[label] for label in labels)  # noqa: E731
    if _FEWER * size(own) > size(found.result):
        return tuple(own)
    alone = iter(sorted((label for label in own if label not in other), key=found.result.index))
    return tuple(label if label in other else next(alone) for label in own)


def as_dot(found: Contraction) -> Dot:
    """The dot that makes a contraction: of the operands as they lie in memory, neighbouring labels merged.

    Where its result would be transposed, and transposing an operand that is much smaller saves that, of such a one.
    """
    dot = _of_operands_in_memory(found)
    if dot.is_in_order:
        return dot
    sides = found.left_labels, found.right_labels
    ordered = [_in_order_of_result(found, own, other) for own, other in (sides, sides[::-1])]
    other = _of_operands_in_memory(replace(found, left_labels=ordered[0], right_labels=ordered[1]))
    if not other.is_in_order:
        return dot
    transposed = tuple(
        None
        if before == after
        else _Transposed(tuple(found.extents[k] for k in before), tuple(map(before.index, after)))
        for before, after in zip(sides, ordered, strict=True)
    )
    return replace(other, transposed=transposed)
