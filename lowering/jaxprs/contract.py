"""Contract: sums of products become one matrix product, and chains of rearrangements one.

Vertices that multiply chunks, and vertices that add the chunks' results up, emit as a `reduce_sum` of a
`dot_general`, with the rearrangements between them that lay partials out as variables. The sum is taken
into the product: over its digits, each a part of a dimension of an operand, it is one contraction of the
operands as they lie in memory, neighbouring digits merged. A sum of products of broadcast operands is a
contraction too. Rearrangements that cancel vanish, and so does what nobody needs.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, variables, with_bodies
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, inline, rebuild, struct
from codelet.views.digits import Digit, regrouped
from lowering.arrays import reshape, transpose
from lowering.jaxprs.rearrangement import Rearrangement, in_memory, rearrange, rearrangement, rearranges

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


def _common_cuts(*dims: Sequence[Digit]) -> list[int] | None:
    """The extents of the coarsest common refinement of dimensions that are equal in size."""
    sizes = [math.prod(digit.extent for digit in dim) for dim in dims]
    assert len(set(sizes)) == 1, sizes
    weights = {1}
    for dim in dims:
        weights.update(itertools.accumulate((digit.extent for digit in reversed(dim)), operator.mul))
    pairs = list(itertools.pairwise(sorted(weights, reverse=True)))
    return None if any(a % b for a, b in pairs) else [a // b for a, b in pairs]


class _Labels:
    """Deals out labels to the digits of operands and result, dimension by dimension."""

    def __init__(self) -> None:
        self.extents: dict[int, int] = {}
        self.at: list[dict[Digit, int]] = [{}, {}, {}]

    def add(self, dims: Sequence[Sequence[Digit] | None]) -> bool:
        """One dimension as operands and result see it (None where one has it not); False if they do not fit."""
        given = [dim for dim in dims if dim is not None]
        cuts = _common_cuts(*given) if given else []
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


def _dimension_roles(eqn: jax_core.JaxprEqn) -> list[tuple[int | None, int | None, int | None]]:
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


def _find(eqn: jax_core.JaxprEqn, makers: dict[Any, jax_core.JaxprEqn], uses: Counter[Any]) -> Contraction | None:
    """Whether a `reduce_sum` is one of a product or dot that nothing else uses."""
    if isinstance(eqn.invars[0], jax_core.Literal):
        return None
    view = rearrangement(eqn.invars[0], makers, stop=lambda atom: uses[atom] > 1)
    product = makers.get(view.root)
    if product is None or uses[view.root] > 1 or not is_understood(product, "mul", "dot_general"):
        return None
    shapes = [atom.aval.shape for atom in product.invars]  # type: ignore[attr-defined]
    if any(isinstance(atom, jax_core.Literal) for atom in product.invars) or any(0 in shape for shape in shapes):
        return None
    has_scalar = any(len(shape) != view.root.aval.ndim for shape in shapes)
    if product.primitive.name == "mul" and (has_scalar or not is_exact(product)):
        return None
    sides = [rearrangement(atom, makers, stop=lambda _: False) for atom in product.invars]
    outside = regrouped(view.memory, view.root.aval.shape)
    if outside is None:
        return None
    labels = _Labels()
    all_dims = (sides[0].dims, sides[1].dims, outside)
    for roles in _dimension_roles(product):
        dims = [None if at is None else own[at] for at, own in zip(roles, all_dims, strict=True)]
        # Of a product's operands one may have extent 1 where the other has more: it has no part in it.
        if not labels.add(tuple(dim or None for dim in dims)):
            return None
    summed = {int(axis) for axis in eqn.params["axes"]}
    if any(not digit.step for d in summed for digit in view.dims[d]):
        return None
    return _as_contraction(eqn, product, sides, labels, [dim for d, dim in enumerate(view.dims) if d not in summed])


def _as_contraction(
    eqn: jax_core.JaxprEqn,
    product: jax_core.JaxprEqn,
    sides: Sequence[Rearrangement],
    labels: _Labels,
    kept: Sequence[Sequence[Digit]],
) -> Contraction | None:
    """The contraction, if a dot can do it and it is one: some label is summed, and some is in one operand only."""
    result: list[int] = []
    for dim in kept:
        for digit in dim:
            # A digit of the sum's operand may have been cut finer for the operands of the product.
            parts = [part for part in labels.at[2] if digit.step <= part.step < digit.step * digit.extent]
            if not parts:
                return None
            result += [labels.at[2][part] for part in sorted(parts, reverse=True)]
    left, right = (tuple(at[digit] for digit in in_memory(at)) for at in labels.at[:2])
    gone = set(left) | set(right)
    if not set(result) <= gone or not (gone - set(result)) <= set(left) & set(right):
        return None
    if any(label not in gone and extent > 1 for label, extent in labels.extents.items()):
        return None  # of what is only repeated the sum is as many times the rest, and no operand of a dot has it
    if set(left) == set(right) or gone == set(result):
        return None
    return Contraction(
        sides[0],
        sides[1],
        left,
        right,
        tuple(result),
        labels.extents,
        precision_of(product),
        product.params.get("preferred_element_type") or eqn.outvars[0].aval.dtype,  # type: ignore[attr-defined]
    )


# --- as a dot -------------------------------------------------------------------------------------------


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


def _dot(found: Contraction, left: Any, right: Any, shape: Sequence[int]) -> Any:
    """The contraction of the operands' roots, in the result's shape."""
    left_order, right_order, members = _merged(found)
    if found.result and found.result[0] not in found.left_labels:
        left, right, left_order, right_order = right, left, right_order, left_order
    extent = lambda k: math.prod(found.extents[label] for label in members[k])  # noqa: E731
    left, right = reshape(left, [*map(extent, left_order)]), reshape(right, [*map(extent, right_order)])
    both = [k for k in left_order if k in right_order]
    batch, inner = [k for k in both if k in found.result], [k for k in both if k not in found.result]
    places = lambda labels: (tuple(map(left_order.index, labels)), tuple(map(right_order.index, labels)))  # noqa: E731
    numbers = places(inner), places(batch)
    dot = lax.dot_general(
        left, right, numbers, precision=found.precision, preferred_element_type=found.preferred_element_type
    )
    made = [*batch, *(k for k in left_order if k not in both), *(k for k in right_order if k not in both)]
    labels = [label for k in made for label in members[k]]
    dot = reshape(dot, [found.extents[label] for label in labels])
    return reshape(transpose(dot, [labels.index(label) for label in found.result]), shape)


# --- what takes their place -----------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _rearranging(digits: tuple[Digit, ...], kind: jax.ShapeDtypeStruct, shape: tuple[int, ...]) -> jax_core.ClosedJaxpr:
    """`rearrange` traced for a root."""
    return jax.make_jaxpr(lambda root: [rearrange(root, digits, shape)])(kind)


def _has_elements(var: Any) -> bool:
    return 0 not in getattr(var.aval, "shape", (0,))


class _Found:
    """What is to be contracted in a jaxpr, and what to be rearranged from further back."""

    def __init__(self, jaxpr: jax_core.Jaxpr):
        makers: dict[Any, jax_core.JaxprEqn] = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
        lists = (*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars)
        uses = Counter(atom for atoms in lists for atom in variables(atoms))
        self.contractions: dict[Any, Contraction] = {}
        self.views: dict[Any, Rearrangement] = {}
        for eqn in jaxpr.eqns:
            found = _find(eqn, makers, uses) if is_understood(eqn, "reduce_sum") else None
            if found is not None:
                self.contractions[eqn] = found
            elif rearranges(eqn) and _has_elements(eqn.outvars[0]):
                view = rearrangement(eqn.outvars[0], makers, stop=lambda atom: makers.get(atom) in self.contractions)
                if view.root is not eqn.outvars[0]:
                    self.views[eqn] = view

    def sources(self, eqn: jax_core.JaxprEqn) -> Sequence[Atomic]:
        """What an equation is to be made from."""
        if eqn in self.contractions:
            return self.contractions[eqn].left.root, self.contractions[eqn].right.root
        return (self.views[eqn].root,) if eqn in self.views else eqn.invars

    def add(self, builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> list[Atomic]:
        """What is made in the place of an equation, from its sources."""
        if eqn in self.contractions:
            found = self.contractions[eqn]
            shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
            return builder.traced(lambda left, right: [_dot(found, left, right, shape)], operands)
        if eqn in self.views:
            shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
            return builder.inlined(_rearranging(self.views[eqn].digits, struct(operands[0]), shape), operands)
        return builder.equation(with_bodies(eqn, contract), operands)


def contract(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with sums of products contracted and rearrangements shortened, in the bodies of loops as well."""
    closed = inline(closed)
    while (found := _Found(closed.jaxpr)).contractions:  # a product made by one may be summed by another
        closed = rebuild(closed, found.add, sources=found.sources)
    return rebuild(closed, found.add, sources=found.sources)
