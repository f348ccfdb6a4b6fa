"""Reduced fields: a codelet as one that reduces all of some fields first, and goes on with what it finds."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from jax.extend import core as jax_core

from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import inline
from codelet.tracing.traced_codelet import TracedCodelet

_DEBUG_INFO = jax_core.DebugInfo("what follows a reduction", "", None, None)


class Reduced(NamedTuple):
    """A codelet that reduces all of some fields by one equation, and goes on with that.

    Attributes:
        fields: which, in the order of the equation.
        equation: that reduces them.
        rest: the jaxpr of what follows, of what is found and of the other fields in their order.
        others: these.
    """

    fields: tuple[str, ...]
    equation: jax_core.JaxprEqn
    rest: jax_core.ClosedJaxpr
    others: tuple[str, ...]


def reduced_fields(codelet: TracedCodelet, *primitives: str) -> Iterator[Reduced]:
    """A codelet by each of its equations, of some primitives, that reduce fields it uses for nothing else."""
    closed = inline(codelet.jaxpr)
    jaxpr = closed.jaxpr
    names = {id(var): name for var, name in zip(jaxpr.invars, codelet.inputs, strict=True)}
    used = Counter(id(atom) for atoms in (*(eqn.invars for eqn in jaxpr.eqns), jaxpr.outvars) for atom in atoms)
    for k, eqn in enumerate(jaxpr.eqns):
        fields = tuple(names[id(var)] for var in eqn.invars if id(var) in names and used[id(var)] == 1)
        if len(fields) < len(eqn.invars) or not is_understood(eqn, *primitives):
            continue
        others = [own for own in jaxpr.invars if names[id(own)] not in fields]
        rest = jaxpr.replace(
            invars=[eqn.outvars[0], *others], eqns=[*jaxpr.eqns[:k], *jaxpr.eqns[k + 1 :]], debug_info=_DEBUG_INFO
        )
        made = jax_core.ClosedJaxpr(rest, closed.consts)
        yield Reduced(fields, eqn, made, tuple(names[id(own)] for own in others))
