"""Reshape once: what is reshaped several times in a row is reshaped once, and to one shape only once.

In comes a jaxpr, out comes one in which no reshape follows another, nothing is reshaped to the shape that it has, and
nothing twice to the same shape. XLA's CPU backend would move a reshape that only one equation needs behind that, into
what reduces it: a sum of squares took twice as long so.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bodies_of, with_bodies
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, rebuild


def is_reshape(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation reshapes an array, in row-major order."""
    given = eqn.invars[0] if is_understood(eqn, "reshape") and len(eqn.invars) == 1 else None
    return isinstance(given, jax_core.Var) and eqn.params["dimensions"] is None and eqn.params["sharding"] is None


def reshape_once(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that reshapes each array to each shape once, in the bodies of loops as well."""
    roots: dict[Any, Any] = {}
    for eqn in closed.jaxpr.eqns:
        if is_reshape(eqn):
            roots[eqn.outvars[0]] = roots.get(eqn.invars[0], eqn.invars[0])
    if not roots and not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed
    made: dict[tuple[Atomic, tuple[int, ...]], Sequence[Atomic]] = {}

    def sources(eqn: jax_core.JaxprEqn) -> Sequence[Atomic]:
        return [roots[eqn.outvars[0]]] if is_reshape(eqn) else eqn.invars

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        if not is_reshape(eqn):
            return builder.equation(with_bodies(eqn, reshape_once), operands)
        (operand,), shape = operands, tuple(eqn.outvars[0].aval.shape)  # type: ignore[attr-defined]
        if shape == operand.aval.shape:  # type: ignore[attr-defined]
            return [operand]
        if (operand, shape) not in made:
            made[operand, shape] = builder.equation(eqn, operands)
        return made[operand, shape]

    return rebuild(closed, run, sources=sources)
