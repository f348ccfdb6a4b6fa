"""Leaving shapes: what is made by element, and is both a result and used further, is made in the shape of the result.

Vertices that map stretches of elements emit as a map of all elements in a row, which is reshaped to be a result. Where
the map is used further, XLA's CPU backend sees no one that needs it as it is, and does it again in whatever uses it,
with the transposes before it: of momentum and parameters in a step of training, the slow half. Made in the shape in
which it leaves, it is there for all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bind, variables
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.jaxprs.rebuild import Builder, rebuild
from lowering.arrays import reshape
from lowering.jaxprs.reshape_once import is_reshape
from lowering.jaxprs.traced_once import parameters_of, traced_once


def _is_map(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation makes one array by element, of arrays of its shape and numbers."""
    if not is_understood(eqn, *ELEMENTWISE) or len(eqn.outvars) != 1:
        return False
    shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
    return all(atom.aval.shape in ((), shape) for atom in eqn.invars)  # type: ignore[attr-defined]


def shape_as_they_leave(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose results, where they are also used within, are made by element in their own shapes."""
    jaxpr = closed.jaxpr
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    uses = Counter(var for eqn in jaxpr.eqns for var in variables(eqn.invars)) + Counter(variables(jaxpr.outvars))
    shapes: dict[Any, tuple[int, ...]] = {}
    for result in variables(jaxpr.outvars):
        leaving = makers.get(result)
        if leaving is None or not is_reshape(leaving):
            continue
        (own,) = leaving.invars
        maker = makers.get(own)
        # A number costs nothing to make again; and literals, predicates and bounds are numbers as well.
        if maker is not None and own.aval.shape and uses[own] > 1 and _is_map(maker):
            shapes.setdefault(own, result.aval.shape)  # type: ignore[attr-defined]
    if not shapes:
        return closed

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        own = eqn.outvars[0] if eqn.outvars else None  # a print makes nothing
        if own not in shapes:
            return builder.equation(eqn, operands)
        shape, flat = shapes[own], own.aval.shape  # type: ignore[union-attr]

        def in_shape(*given: Any) -> list[Any]:
            return bind(eqn, [reshape(array, shape) if np.shape(array) == flat else array for array in given])

        literals = tuple(isinstance(atom, jax_core.Literal) for atom in eqn.invars)
        (made,) = traced_once(builder, ("made in", shape, flat, literals, parameters_of(eqn)), in_shape, operands)
        return traced_once(builder, ("left as", flat), lambda array: [reshape(array, flat)], [made])

    return rebuild(closed, run)
