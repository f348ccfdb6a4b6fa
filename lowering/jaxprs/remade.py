"""Remade: what rules on jaxprs put in the place of equations, made of other values than these took.

In comes a jaxpr with what a rule has found in it: for some equations, which values the results are made of, and how.
Out comes one with these in their places, the bodies of loops and branches changed by the rule as well.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, with_bodies
from codelet.jaxprs.rebuild import Builder, Change, rebuild
from lowering.jaxprs.traced_once import traced_once


class Remade(NamedTuple):
    """What takes the place of an equation.

    Attributes:
        sources: what it is made from.
        run: the results of these.
        key: all that `run` depends on beside their types, where it is traced once for all of one key; else None.
        by: the equation in whose scope it is, where that is another one.
    """

    sources: Sequence[Atomic]
    run: Callable[..., Sequence[Any]]
    key: Hashable = None
    by: jax_core.JaxprEqn | None = None


def with_remade(
    closed: jax_core.ClosedJaxpr, found: Mapping[jax_core.JaxprEqn, Remade], change: Change
) -> jax_core.ClosedJaxpr:
    """A jaxpr with some equations remade, and the bodies of the others changed; itself where all stay."""
    others = {eqn: with_bodies(eqn, change) for eqn in closed.jaxpr.eqns if eqn not in found}
    if not found and all(made is eqn for eqn, made in others.items()):
        return closed

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        if eqn in others:
            return builder.equation(others[eqn], operands)
        _, function, key, by = found[eqn]
        if by is not None:
            builder.enter(by)
        return builder.traced(function, operands) if key is None else traced_once(builder, key, function, operands)

    return rebuild(closed, run, sources=lambda eqn: found[eqn].sources if eqn in found else eqn.invars)
