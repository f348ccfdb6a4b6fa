"""Wholes: products of all parts of values, made as one product of the values.

In comes a jaxpr with what a rule has found in it: equations whose results are such products put together
(`whole_products.py`, `products_side_by_side.py`). Out comes one in which each is one product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bodies_of, with_bodies
from codelet.jaxprs.rebuild import Builder, inline, rebuild
from lowering.arrays import reshape


class Whole(Protocol):
    """A product of what was divided."""

    @property
    def roots(self) -> Sequence[Atomic]:
        """What it is made of: what was divided, or the parts of what is put together."""
        ...

    def made(self, values: Sequence[Any], shape: Sequence[int]) -> Any:
        """The product of the values of these, in a shape."""
        ...


def dot_of(like: jax_core.JaxprEqn, left: Any, right: Any, shapes: Sequence[Sequence[int]]) -> Any:
    """The product of two values, each in a shape, as an equation's of parts of them."""
    params = like.params
    numbers, kind = params["dimension_numbers"], params["preferred_element_type"]
    left, right = (reshape(own, shape) for own, shape in zip((left, right), shapes, strict=True))
    return lax.dot_general(left, right, numbers, precision=params["precision"], preferred_element_type=kind)


def with_wholes(
    closed: jax_core.ClosedJaxpr, find: Callable[[jax_core.Jaxpr], Mapping[jax_core.JaxprEqn, Whole]]
) -> jax_core.ClosedJaxpr:
    """A jaxpr with what a rule finds in it, and in the bodies of its loops, as products of the whole."""
    closed = inline(closed)
    found = find(closed.jaxpr)
    if not found and not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed

    def sources(eqn: jax_core.JaxprEqn) -> Sequence[Atomic]:
        return found[eqn].roots if eqn in found else eqn.invars

    def add(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> list[Atomic]:
        if eqn not in found:
            return builder.equation(with_bodies(eqn, lambda body: with_wholes(body, find)), operands)
        shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
        return builder.traced(lambda *values: [found[eqn].made(values, shape)], operands)

    return rebuild(closed, add, sources=sources)
