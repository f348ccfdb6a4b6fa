"""Contract: sums of products become one matrix product, and chains of rearrangements one.

Vertices that multiply chunks, and vertices that add the chunks' results up, emit as a `reduce_sum` of a
`dot_general`, with the rearrangements between them that lay partials out as variables. The sum is taken
into the product: over its digits, each a part of a dimension of an operand, it is one contraction of the
operands as they lie in memory, neighbouring digits merged. A sum of products of broadcast operands is a
contraction too. Rearrangements that cancel vanish, and so does what nobody needs.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bodies_of, variables, with_bodies
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, inline, rebuild, struct
from codelet.views.digits import Digit
from lowering.jaxprs.contraction import Contraction, as_dot, contraction_of
from lowering.jaxprs.dots_in_memory_order import dots_in_memory_order
from lowering.jaxprs.rearrangement import Rearrangement, rearrange, rearrangement, rearranges
from lowering.jaxprs.traced_once import traced_once


def _find(eqn: jax_core.JaxprEqn, makers: dict[Any, jax_core.JaxprEqn], uses: Counter[Any]) -> Contraction | None:
    """Whether a `reduce_sum` is one of a product or dot that nothing else uses."""
    if isinstance(eqn.invars[0], jax_core.Literal):
        return None
    view = rearrangement(eqn.invars[0], makers, stop=lambda atom: uses[atom] > 1)
    if uses[view.root] > 1:
        return None
    return contraction_of(view, makers, {int(axis) for axis in eqn.params["axes"]})


# --- what takes their place -----------------------------------------------------------------------------


@functools.lru_cache(maxsize=1024)
def _rearranging(digits: tuple[Digit, ...], kind: jax.ShapeDtypeStruct, shape: tuple[int, ...]) -> jax_core.ClosedJaxpr:
    """`rearrange` traced for a root."""
    return jax.make_jaxpr(lambda root: [rearrange(root, digits, shape)])(kind)


def _has_elements(var: Any) -> bool:
    return 0 not in getattr(var.aval, "shape", (0,))


class _Contractions:
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
            dot = as_dot(self.contractions[eqn])
            shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
            made = lambda left, right: [dot.made(left, right, shape)]  # noqa: E731
            return traced_once(builder, (dot.form, shape), made, operands)
        if eqn in self.views:
            shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
            return builder.inlined(_rearranging(self.views[eqn].digits, struct(operands[0]), shape), operands)
        return builder.equation(with_bodies(eqn, contract), operands)


def contract(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with sums of products contracted and rearrangements shortened, in the bodies of loops as well."""
    closed = inline(closed)
    while (found := _Contractions(closed.jaxpr)).contractions:  # a product made by one may be summed by another
        closed = rebuild(closed, found.add, sources=found.sources)
    return rebuild(closed, found.add, sources=found.sources)


def _has_contractions(jaxpr: jax_core.Jaxpr) -> bool:
    return bool(_Contractions(jaxpr).contractions) or any(
        _has_contractions(body.jaxpr) for eqn in jaxpr.eqns for body in bodies_of(eqn)
    )


def contract_in_order(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose products are in memory order, with sums contracted that only then are of one; itself without any.

    Rows in blocks of four are no eight times sixty-five, but as one dimension of 520 they are.
    """
    if not _has_contractions(closed.jaxpr):
        return closed
    return dots_in_memory_order(contract(closed))
