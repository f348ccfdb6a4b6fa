"""Equations of jaxprs: what calls they are, what bodies they have, and running a single one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend import core as jax_core

from lowering.jaxprs.understood import is_understood

Atomic = Any  # a jaxpr's Var or Literal

_DEBUG_INFO = jax_core.DebugInfo("lowering", "one equation", None, None)

CALLS = ("jit", "pjit")
"""Calls of jitted functions: the same primitive, by the names it has in different releases of JAX."""

FUNCTION = "function "
"""What the name of a jitted function begins with that is a function of the graph."""


def bind(eqn: jax_core.JaxprEqn, inputs: Sequence[Any]) -> list[Any]:
    """Run an equation with its own parameters, so that custom derivative rules are kept.

    As a jaxpr of one equation, which is how JAX's public interface lets an equation be run.
    """
    variables, operands = [], []
    for atom, operand in zip(eqn.invars, inputs, strict=True):
        if not isinstance(atom, jax_core.Literal) and not any(atom is v for v in variables):
            variables.append(atom)
            operands.append(operand)
    kept = [var for var in eqn.outvars if not isinstance(var, jax_core.DropVar)]
    jaxpr = jax_core.Jaxpr((), variables, kept, [eqn], eqn.effects, debug_info=_DEBUG_INFO)
    results = iter(jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(jaxpr, ()))(*operands))
    return [None if isinstance(var, jax_core.DropVar) else next(results) for var in eqn.outvars]


def is_function(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation calls a function of the graph, whose jaxpr all its calls share."""
    return eqn.primitive.name in CALLS and str(eqn.params["name"]).startswith(FUNCTION)


_BODIES = {"scan": ("jaxpr",), "while": ("cond_jaxpr", "body_jaxpr"), "cond": ("branches",)}


def bodies_of(eqn: jax_core.JaxprEqn) -> list[jax_core.ClosedJaxpr]:
    """The bodies of a loop, the branches of a choice."""
    found = [eqn.params[name] for name in _BODIES.get(eqn.primitive.name, ())]
    return [body for own in found for body in (own if isinstance(own, tuple) else (own,))]


def with_bodies(
    eqn: jax_core.JaxprEqn, change: Callable[[jax_core.ClosedJaxpr], jax_core.ClosedJaxpr]
) -> jax_core.JaxprEqn:
    """An equation with the bodies of a loop, or the branches of a choice, changed."""
    names = _BODIES.get(eqn.primitive.name, ())
    if not names:
        return eqn
    params = dict(eqn.params)
    for name in names:
        body = params[name]
        params[name] = tuple(map(change, body)) if isinstance(body, tuple) else change(body)
    return eqn.replace(params=params)


def inlines(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation calls a jitted function that may be inlined."""
    return is_understood(eqn, *CALLS) and not is_function(eqn)
