"""Dimension rules: how elementwise equations, reductions and moves take dimensions through, and what is left of them.

In comes an equation; a `link_*` says which dimensions of its operands and result are one class
(`dimension_classes.py`). Once it is known which dimensions are gone (`left_dimensions.py`), a `left_*` computes what is
left of the result from what is left of the operands.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bind
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.jaxprs.rebuild import Builder
from lowering.arrays import reshape, transpose
from lowering.jaxprs.dimension_classes import Classes, extent_of, spots_of
from lowering.jaxprs.left_dimensions import Left
from lowering.jaxprs.moved_dimensions import ones_moved, pairs_moved

# --- what equations take through --------------------------------------------------------------------------


def link_moved(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    """An equation that only moves elements."""
    own, made = spots_of(eqn.invars[0]), spots_of(eqn.outvars[0])
    for first, second in pairs_moved(eqn) if own else ():
        if len(first) == len(second) == 1:
            classes.unite(own[first[0]], made[second[0]])
        else:
            classes.keep([*(own[d] for d in first), *(made[d] for d in second)])


def link_ones(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    """An equation that only moves elements, dimensions of extent 1 as well."""
    link_moved(classes, eqn)
    own, made = spots_of(eqn.invars[0]), spots_of(eqn.outvars[0])
    for first, second in ones_moved(eqn) if own and made else ():
        classes.unite(own[first], made[second])


def link_by_element(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    """An elementwise equation: what is of one element along a dimension of the result, and repeated, is none of it."""
    result = eqn.outvars[0]
    for other in (*eqn.invars, *eqn.outvars[1:]):
        for spot, made in zip(spots_of(other), spots_of(result), strict=False):  # a scalar has no dimensions
            if extent_of(spot) == extent_of(made):
                classes.unite(spot, made)


def link_reduced(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    """A reduction, but for the dimensions along which it reduces."""
    axes = {int(axis) for axis in eqn.params["axes"]}
    left = (spot for d, spot in enumerate(spots_of(eqn.invars[0])) if d not in axes)
    for spot, made in zip(left, spots_of(eqn.outvars[0]), strict=True):
        classes.unite(spot, made)


# --- what is left of them ---------------------------------------------------------------------------------


def left_by_element(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """What is left of an elementwise equation: operands keep one element along what is left of the result."""
    made = list(zip(eqn.outvars[0].aval.shape, left.places(eqn.outvars[0]), strict=True))  # type: ignore[attr-defined]
    shaped = []
    for atom, operand in zip(eqn.invars, operands, strict=True):
        if isinstance(atom, jax_core.Literal) or not atom.aval.shape:  # type: ignore[attr-defined]
            shaped.append(operand)
            continue
        own = zip(atom.aval.shape, made, strict=True)  # type: ignore[attr-defined]
        shape = [place.left if n == of_result else 1 for n, (of_result, place) in own if place.left is not None]
        shaped.append(reshape(operand, shape))
    return bind(eqn, shaped)


def equation_left(
    builder: Builder, left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Atomic]
) -> list[Atomic] | None:
    """What is left of an elementwise equation: itself, as `left_by_element` gives it, without being traced.

    None where an operand would have another shape, or the equation is none.
    """
    if not is_understood(eqn, *ELEMENTWISE) or any(isinstance(var, jax_core.DropVar) for var in eqn.outvars):
        return None
    made = list(zip(eqn.outvars[0].aval.shape, left.places(eqn.outvars[0]), strict=True))  # type: ignore[attr-defined]
    for atom, operand in zip(eqn.invars, operands, strict=True):
        own = atom.aval.shape  # type: ignore[attr-defined]
        along = zip(own, made, strict=True) if own else ()
        shape = tuple(place.left if n == result else 1 for n, (result, place) in along if place.left is not None)
        if operand.aval.shape != shape:
            return None
    results = [jax_core.Var(var.aval.update(shape=tuple(left.shape(var)))) for var in eqn.outvars]  # type: ignore[attr-defined]
    return builder.equation(eqn.replace(outvars=results), operands)


def left_reduced(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """What is left of a reduction: its operand, where that is not reduced along any dimension."""
    axes = left.numbers(eqn.invars[0], eqn.params["axes"])
    if not axes and eqn.params["axes"]:
        return list(operands)
    return bind(eqn.replace(params={**eqn.params, "axes": axes}), operands)


def left_moved(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """What is left of an equation that only moves elements."""
    (own,), (made,) = eqn.invars, eqn.outvars
    kind = own.aval.dtype  # type: ignore[attr-defined]
    array = operands[0] if isinstance(own, jax_core.Var) else jnp.asarray(operands[0], kind)
    shape = left.shape(made)
    if eqn.primitive.name == "transpose":
        return [transpose(array, left.numbers(own, eqn.params["permutation"]))]
    if eqn.primitive.name != "broadcast_in_dim":
        return [reshape(array, shape)]
    given = left.shape(own)
    kept = [d for d, place in enumerate(left.places(own)) if place.left is not None]
    places = [left.numbers(made, (eqn.params["broadcast_dimensions"][d],)) for d in kept]
    # What is one element along a dimension that is gone of the result has it no more.
    array = reshape(array, [n for n, place in zip(given, places, strict=True) if place])
    if list(array.shape) == shape:
        return [array]
    return [lax.broadcast_in_dim(array, tuple(shape), tuple(place for own in places for place in own))]
