"""Contract: sums of products become one matrix product, and chains of rearrangements one.

Vertices that multiply chunks, and vertices that add the chunks' results up, emit as a `reduce_sum` of a
`dot_general`, with the rearrangements between them that lay partials out as variables. The sum is taken
into the product: over its digits, each a part of a dimension of an operand, it is one contraction of the
operands as they lie in memory, neighbouring digits merged. A sum of products of broadcast operands is a
contraction too. Rearrangements that cancel vanish, and so does what nobody needs; a value that is transposed alike
for several readers is transposed once, so that it may be made as it lies for all of them.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers, bodies_of, use_counts, variables
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, inline, rebuild
from codelet.views.digits import merged
from lowering.arrays import reshape
from lowering.jaxprs.contraction import Contraction, as_dot, contraction_of
from lowering.jaxprs.dots_in_memory_order import dot_made, dots_in_memory_order
from lowering.jaxprs.rearrangement import rearrange, rearrangement, rearranges
from lowering.jaxprs.remade import Remade, with_remade


def _find(eqn: jax_core.JaxprEqn, makers: Makers, uses: Counter[Any]) -> Contraction | None:
    """Whether a `reduce_sum` is one of a product or dot that nothing else uses."""
    if isinstance(eqn.invars[0], jax_core.Literal):
        return None
    view = rearrangement(eqn.invars[0], makers, stop=lambda atom: uses[atom] > 1)
    if uses[view.root] > 1:
        return None
    return contraction_of(view, makers, {int(axis) for axis in eqn.params["axes"]})


# --- what takes their place -----------------------------------------------------------------------------


def _found(jaxpr: jax_core.Jaxpr) -> tuple[dict[jax_core.JaxprEqn, Remade], bool]:
    """What is contracted in a jaxpr, or rearranged from further back, and whether there is any of the former."""
    makers = Makers(jaxpr.eqns)
    uses = use_counts(jaxpr)
    contractions: dict[Any, Remade] = {}
    views: dict[Any, Remade] = {}
    transposed: dict[Any, Any] = {}
    moves = set(filter(rearranges, jaxpr.eqns))
    others = (atom for eqn in jaxpr.eqns if eqn not in moves for atom in eqn.invars)
    read = set(variables([*jaxpr.outvars, *others]))
    for eqn in jaxpr.eqns:
        is_sum = is_understood(eqn, "reduce_sum")
        shape = tuple(eqn.outvars[0].aval.shape) if is_sum or eqn in moves else ()  # type: ignore[attr-defined]
        contraction = _find(eqn, makers, uses) if is_sum else None
        if contraction is not None:
            contractions[eqn] = dot_made(as_dot(contraction), shape)
        elif eqn in moves and 0 not in shape:
            view = rearrangement(eqn.outvars[0], makers, stop=lambda atom: makers.of(atom) in contractions)
            if view.root is eqn.outvars[0]:
                continue
            once = eqn.outvars[0] in read and not view.is_in_order and all(digit.step for digit in view.digits)
            form = (view.root, tuple(merged(view.digits))) if once else eqn.outvars[0]
            if (first := transposed.setdefault(form, eqn.outvars[0])) is not eqn.outvars[0]:
                views[eqn] = Remade([first], lambda value, shape=shape: [reshape(value, shape)], ("as", shape))
                continue
            run = lambda root, view=view, shape=shape: [rearrange(root, view.digits, shape)]  # noqa: E731
            views[eqn] = Remade([view.root], run, ("rearranged", view.digits, shape))
    return contractions | views, bool(contractions)


def contract(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with sums of products contracted and rearrangements shortened, in the bodies of loops as well."""
    closed, contracts = rebuild(inline(closed), Builder.equation), True  # without what nobody needs
    while contracts:  # a product made by one may be summed by another
        found, contracts = _found(closed.jaxpr)
        closed = with_remade(closed, found, contract)
    return closed


def _has_contractions(jaxpr: jax_core.Jaxpr) -> bool:
    return _found(jaxpr)[1] or any(_has_contractions(body.jaxpr) for eqn in jaxpr.eqns for body in bodies_of(eqn))


def contract_in_order(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose products are in memory order, with sums contracted that only then are of one; itself without any.

    Rows in blocks of four are no eight times sixty-five, but as one dimension of 520 they are.
    """
    if not _has_contractions(closed.jaxpr):
        return closed
    return dots_in_memory_order(contract(closed))
