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
from codelet.jaxprs.equations import Atomic
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, rebuild


def _is_outer(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation is a product that sums over nothing, in the dtype of its operands."""
    if not is_understood(eqn, "dot_general"):
        return False
    (left, _), _ = eqn.params["dimension_numbers"]
    dtypes = {atom.aval.dtype for atom in (*eqn.invars, *eqn.outvars)}  # type: ignore[attr-defined]
    summed = math.prod(eqn.invars[0].aval.shape[d] for d in left)  # type: ignore[attr-defined]
    return summed == 1 and len(dtypes) == 1 and dtypes != {jax.numpy.dtype(bool)}


def _spread(x: Any, batch: Sequence[int], summed: Sequence[int], first: int, shape: Sequence[int]) -> Any:
    """An operand in the shape of the results, of which its own dimensions begin at one after those of batches."""
    rest = [d for d in range(x.ndim) if d not in (*batch, *summed)]
    places = [*range(len(batch)), *range(first, first + len(rest))]
    order = [*batch, *rest, *summed]
    if order != sorted(order):
        x = lax.transpose(x, order)
    x = lax.reshape(x, x.shape[: len(places)]) if summed else x
    return lax.broadcast_in_dim(x, shape, places) if x.shape != tuple(shape) else x


def _multiplied(eqn: jax_core.JaxprEqn) -> jax_core.ClosedJaxpr:
    """A product as a jaxpr that multiplies."""
    (left, right), (left_batch, right_batch) = eqn.params["dimension_numbers"]
    shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]

    def multiply(a: Any, b: Any) -> Any:
        ours = _spread(a, left_batch, left, len(left_batch), shape)
        return lax.mul(ours, _spread(b, right_batch, right, a.ndim - len(left), shape))

    return jax.make_jaxpr(multiply)(*(jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype) for atom in eqn.invars))  # type: ignore[attr-defined]


def outer_products(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose products that sum over nothing are elementwise, in each of its bodies too."""

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> list[Atomic]:
        if not _is_outer(eqn):
            return builder.equation(bodies.changed(eqn), operands)
        there = lambda to, own, given: to.equation(own.replace(source_info=eqn.source_info), given)  # noqa: E731
        return builder.inlined(_multiplied(eqn), operands, there)

    bodies = Bodies(lambda body, _: rebuild(body, run))
    return rebuild(closed, run)
