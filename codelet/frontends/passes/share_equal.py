"""Share equal: the same work on the same operands, done once.

In comes a jaxpr, out comes one without equations that repeat an earlier one. Equations with effects are run as often as
they are written, and so are those written to be repeated: barriers, and the recomputation of `jax.checkpoint`.
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
    """The key that distinguishes an equation on operands."""
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
