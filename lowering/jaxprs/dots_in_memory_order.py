"""Dots in memory order: what is transposed or reshaped only to be multiplied is multiplied as it lies in memory.

A codelet's dot, mapped over its grid, has its operands' dimensions in the order of fields and grid axes, and the
transposes around it that lay them out so. In comes a jaxpr, out comes one in which these are part of the dimension
numbers of a dot: of the operands as they lie, neighbouring dimensions of one role merged, the operands in the order
in which their dimensions stand in the result. So the same product is the same equation, whatever made it, which
`narrow_products.py` can tell; XLA finds back by itself only what is of two dimensions.

A result that was made in order stays so: one may have transposed the smaller operand rather than it. What lies in
memory in more parts than the dimensions it was laid out in stays laid out.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import Any, NamedTuple

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers, use_counts
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import inline
from lowering.jaxprs.contraction import Dot, as_dot, contraction_of
from lowering.jaxprs.rearrangement import rearrangement, rearranges
from lowering.jaxprs.remade import Remade, with_remade

_SIDES = ((True, True), (True, False), (False, True), (False, False))
"""Which operands are taken as they lie in memory, rather than as they are laid out: the first that may be."""


class _Found(NamedTuple):
    """A dot in memory order, and the equation in the place of which it is."""

    dot: Dot
    product: jax_core.JaxprEqn


def _find(var: Any, makers: Makers, uses: Counter[Any]) -> _Found | None:
    """The dot in memory order that a value is a rearrangement of, where it is another than that which is there."""
    view = rearrangement(var, makers, stop=lambda atom: atom is not var and uses[atom] > 1)
    product = makers.of(view.root)
    if product is None or not is_understood(product, "dot_general") or (view.root is not var and uses[view.root] > 1):
        return None
    shapes = tuple(tuple(atom.aval.shape) for atom in product.invars)  # type: ignore[attr-defined]
    numbers = tuple(tuple(tuple(map(int, own)) for own in pair) for pair in product.params["dimension_numbers"])
    for sides in _SIDES:
        found = contraction_of(view, makers, looked_through=sides)
        dot = None if found is None else as_dot(found)
        if dot is None or (view.is_in_order and not dot.is_in_order):
            continue
        sizes = (sorted(math.prod(own) for own in each) for each in (dot.shapes, shapes))
        if not dot.is_in_order and not dot.sums and len(set(map(tuple, sizes))) == 1:
            continue  # an outer product of the same, in one of the orders that a transpose follows
        own_shapes = dot.shapes[::-1] if dot.is_swapped else dot.shapes
        if any(len(own) > sum(n != 1 for n in shape) for own, shape in zip(own_shapes, shapes, strict=True)):
            continue
        as_it_lies = dot.contraction.left.is_in_order and dot.contraction.right.is_in_order
        as_it_is = as_it_lies and not dot.is_swapped and not any(dot.transposed)
        return None if as_it_is and (shapes, numbers) == (dot.shapes, dot.numbers) else _Found(dot, product)
    return None


def dot_made(dot: Dot, shape: tuple[int, ...]) -> Remade:
    """A dot, in a shape, in the place of an equation."""
    roots = dot.contraction.left.root, dot.contraction.right.root
    return Remade(roots, lambda left, right: [dot.made(left, right, shape)], (dot.form, shape))


def dots_in_memory_order(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose dots take their operands as they lie in memory, in the bodies of loops as well."""
    closed = inline(closed)
    eqns = closed.jaxpr.eqns
    makers = Makers(eqns)
    uses = use_counts(closed.jaxpr)
    has_dot = any(is_understood(eqn, "dot_general") for eqn in eqns)
    candidates = [eqn for eqn in eqns if is_understood(eqn, "dot_general") or rearranges(eqn)] if has_dot else []
    dots = {eqn: dot for eqn in candidates if (dot := _find(eqn.outvars[0], makers, uses)) is not None}
    found = {
        eqn: dot_made(dot, eqn.outvars[0].aval.shape)._replace(by=product)  # type: ignore[attr-defined]
        for eqn, (dot, product) in dots.items()
    }
    return with_remade(closed, found, dots_in_memory_order)
