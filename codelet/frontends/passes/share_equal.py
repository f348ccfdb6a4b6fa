"""Share equal: the same work on the same operands, done once.

In comes a jaxpr, out comes one in which no equation says what an earlier one does. What has effects is done as often
as it is written, and so is what is written to be done again: barriers, and what `jax.checkpoint` computes anew.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from jax.extend import core as jax_core

from codelet.frontends.passes.bodies import Bodies
from codelet.frontends.structure import constant_key, parameter_key
from codelet.jaxprs.equations import Atomic
from codelet.jaxprs.rebuild import Builder, rebuild

_AGAIN = ("optimization_barrier", "remat2", "remat", "checkpoint")


def _key(eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Hashable:
    """What tells an equation on operands from others."""
    given = tuple(
        ("literal", str(own.aval), constant_key(own.val)) if isinstance(own, jax_core.Literal) else own
        for own in operands
    )
    results = tuple(str(var.aval) for var in eqn.outvars)
    parameters = tuple((name, parameter_key(value)) for name, value in sorted(eqn.params.items()))
    return eqn.primitive.name, given, parameters, results


def share_equal(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that does equal work once, in each of its bodies too."""
    done: dict[tuple[Builder, Hashable], list[Any]] = {}

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> list[Atomic]:
        if eqn.effects or eqn.primitive.name in _AGAIN:
            return builder.equation(bodies.changed(eqn), operands)
        key = builder, _key(eqn, operands)
        if key not in done:
            kept = [jax_core.Var(var.aval) for var in eqn.outvars]  # what one does not need another may
            done[key] = builder.equation(bodies.changed(eqn.replace(outvars=kept)), operands)
        return done[key]

    bodies = Bodies(lambda body, _: rebuild(body, run))
    return rebuild(closed, run)
