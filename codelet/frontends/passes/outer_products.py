"""Outer products: products that sum over nothing, or over one element, as elementwise products.

In comes a jaxpr, out comes one in which such a product multiplies its operands, spread out along the dimensions of the
other. The gradient of a matrix for a batch of one is such a product: it then becomes part of the update that reads it,
and nobody holds it (`fuse_elementwise.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core as jax_core

from codelet.frontends.passes.bodies import Bodies
from codelet.frontends.structure import shape_of
from codelet.jaxprs.equations import Atomic, use_counts
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, rebuild


def _is_outer(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation is a product that sums over nothing, in the dtype of its operands."""
    if not is_understood(eqn, "dot_general"):
        return False
    (left, _), _ = eqn.params["dimension_numbers"]
    dtypes = {atom.aval.dtype for atom in (*eqn.invars, *eqn.outvars)}  # type: ignore[attr-defined]
    summed = math.prod(shape_of(eqn.invars[0])[d] for d in left)
    return summed == 1 and len(dtypes) == 1 and dtypes != {jax.numpy.dtype(bool)}


def _spread(x: Any, dims: Sequence[int], places: Sequence[int], shape: Sequence[int]) -> Any:
    """An operand in the shape of the results, in which some of its dimensions have these places; others are of one."""
    order = [d for _, d in sorted(zip(places, dims, strict=True))]
    rest = [d for d in range(x.ndim) if d not in order]
    x = lax.transpose(x, [*order, *rest]) if [*order, *rest] != sorted(order + rest) else x
    x = lax.reshape(x, x.shape[: len(order)]) if rest else x
    return lax.broadcast_in_dim(x, shape, sorted(places)) if x.shape != tuple(shape) else x


def _multiplied(eqn: jax_core.JaxprEqn, order: Sequence[int]) -> jax_core.ClosedJaxpr:
    """A product as a jaxpr that multiplies, whose results have the product's dimensions in an order."""
    (left, right), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    whole = shape_of(eqn.outvars[0])
    shape, batch = [whole[d] for d in order], range(len(left_batch))

    def multiply(a: Any, b: Any) -> Any:
        ours, theirs = (
            [d for d in range(own.ndim) if d not in used]
            for own, used in ((a, (*left, *left_batch)), (b, (*right, *right_batch)))
        )
        end = len(batch) + len(ours)
        first, second = [*batch, *range(len(batch), end)], [*batch, *range(end, len(whole))]
        at = lambda places: [order.index(d) for d in places]  # noqa: E731
        spread = _spread(a, [*left_batch, *ours], at(first), shape)
        return lax.mul(spread, _spread(b, [*right_batch, *theirs], at(second), shape))

    return jax.make_jaxpr(multiply)(*(jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in eqn.invars))  # type: ignore[attr-defined]


class _OuterProducts:
    """The products of a jaxpr that sum over nothing, and transposes of them that nothing else reads."""

    def __init__(self, jaxpr: jax_core.Jaxpr):
        uses = use_counts(jaxpr)
        made = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if _is_outer(eqn)}
        self.of = {eqn: (eqn, range(len(shape_of(eqn.outvars[0])))) for eqn in made.values()}
        for eqn in jaxpr.eqns:
            if is_understood(eqn, "transpose") and (operand := eqn.invars[0]) in made and uses[operand] == 1:
                self.of[eqn] = made[operand], eqn.params["permutation"]

    def sources(self, eqn: jax_core.JaxprEqn) -> Sequence[Atomic]:
        """The factors of an equation."""
        return self.of[eqn][0].invars if eqn in self.of else eqn.invars


def outer_products(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose products that sum over nothing are elementwise, in each of its bodies too."""

    def change(own: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
        products = _OuterProducts(own.jaxpr)

        def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> list[Atomic]:
            if eqn not in products.of:
                return builder.equation(bodies.changed(eqn), operands)
            there = lambda to, made, given: to.equation(made.replace(source_info=eqn.source_info), given)  # noqa: E731
            return builder.inlined(_multiplied(*products.of[eqn]), operands, there)

        return rebuild(own, run, sources=products.sources)

    bodies = Bodies(lambda body, _: change(body))
    return change(closed)
