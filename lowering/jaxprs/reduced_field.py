"""Reduced field: a codelet as one that reduces all of a field first, and goes on with what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from jax.extend import core as jax_core

from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import inline
from codelet.tracing.traced_codelet import TracedCodelet

_DEBUG_INFO = jax_core.DebugInfo("what follows a reduction", "", None, None)


class Reduced(NamedTuple):
    """A codelet that reduces all of a field, and goes on with that.

    Attributes:
        field: which.
        equation: that reduces it.
        rest: the jaxpr of what follows, of what is found and of the other fields in their order.
        others: these.
    """

    field: str
    equation: jax_core.JaxprEqn
    rest: jax_core.ClosedJaxpr
    others: tuple[str, ...]


def reduced_field(
    codelet: TracedCodelet, primitives: Iterable[str], takes: Callable[[str, jax_core.JaxprEqn], bool]
) -> Reduced | None:
    """A codelet by the first field that it uses for nothing but to reduce it; None if there is none.

    Args:
        codelet: of which.
        primitives: that may reduce it.
        takes: whether a field and the equation that reduces it will do.
    """
    closed = inline(codelet.jaxpr)
    jaxpr = closed.jaxpr
    fields = dict(zip(jaxpr.invars, codelet.inputs, strict=True))
    for k, eqn in enumerate(jaxpr.eqns):
        if not is_understood(eqn, *primitives):
            continue
        (var,) = eqn.invars
        field = next((name for own, name in fields.items() if own is var), None)
        used = sum(atom is var for own in jaxpr.eqns for atom in own.invars) + sum(o is var for o in jaxpr.outvars)
        if field is None or used > 1 or not takes(field, eqn):
            continue
        others = [own for own in jaxpr.invars if own is not var]
        rest = jaxpr.replace(
            invars=[eqn.outvars[0], *others], eqns=[*jaxpr.eqns[:k], *jaxpr.eqns[k + 1 :]], debug_info=_DEBUG_INFO
        )
        made = jax_core.ClosedJaxpr(rest, closed.consts)
        return Reduced(field, eqn, made, tuple(fields[own] for own in others))
    return None
