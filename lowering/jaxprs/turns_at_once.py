"""Turns at once: a loop whose turns do not depend on one another runs as one step, where each only maps elements.

A GPU launches the kernels of a loop's body in every turn. In comes a jaxpr. Out comes one in which a scan from whose
rows elementwise equations make the rows that it stacks has become these equations on all rows: XLA fuses them and holds
nothing beside what they are given and give. What else it carries are single numbers that are made of one another, as
of a turn, in a loop of their own if anybody reads them. A body that reduces or multiplies stays in its loop, since all
that is made in between would be held for all turns.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, computed, has_any, needed, scan_counts, variables, with_bodies
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.jaxprs.rebuild import Builder, rebuild
from lowering.jaxprs.counted_rows import shape_of

_MAPS = ELEMENTWISE | {"broadcast_in_dim", "reshape", "squeeze", "transpose"}


def _part(body: jax_core.Jaxpr, results: Sequence[Atomic]) -> tuple[list[jax_core.JaxprEqn], set[Any]]:
    """The equations that make some results of a body, and all variables that these and the results are made of."""
    eqns = needed(body, results=results)
    return eqns, {*variables(results), *(var for own in eqns for var in variables(own.invars))}


def _at_once(eqn: jax_core.JaxprEqn, read: Container[Any]) -> Callable[..., list[Any]] | None:
    """All turns of an equation as one step; None where that would be no map of elements.

    Args:
        eqn: the equation.
        read: what is read of its results, among other values.
    """
    if eqn.primitive.name != "scan" or eqn.effects:
        return None
    (first, carried), closed = scan_counts(eqn), eqn.params["jaxpr"]
    body = closed.jaxpr
    state, rows = body.invars[first : first + carried], body.invars[first + carried :]
    (eqns, used), (counts, of_state) = _part(body, body.outvars[carried:]), _part(body, body.outvars[:carried])
    is_counted = all(shape_of(var) == () for var in state) and of_state.isdisjoint(rows)
    maps = used.isdisjoint(state) and not used.isdisjoint(rows) and all(is_understood(own, *_MAPS) for own in eqns)
    if not is_counted or not maps:
        return None
    is_read = any(var in read for var in eqn.outvars[:carried])

    def run(*inputs: Any) -> list[Any]:
        start, arrays = inputs[first : first + carried], inputs[first + carried :]
        shared = dict(zip((*body.constvars, *body.invars[:first]), (*closed.consts, *inputs[:first]), strict=True))
        of = lambda vars, values: {**shared, **dict(zip(vars, values, strict=True))}  # noqa: E731
        made = jax.vmap(lambda *own: computed(eqns, of(rows, own), body.outvars[carried:]))(*arrays)
        if not is_read:
            return [*start, *made]
        turn = lambda own, _: (computed(counts, of(state, own), body.outvars[:carried]), None)  # noqa: E731
        return [*lax.scan(turn, list(start), None, length=eqn.params["length"])[0], *made]

    return run


def turns_at_once(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr without loops that map the elements of rows, in the bodies of other loops as well."""
    jaxpr = closed.jaxpr
    if not has_any(jaxpr, "scan"):
        return closed
    read = {*variables(jaxpr.outvars), *(var for eqn in jaxpr.eqns for var in variables(eqn.invars))}

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Any]) -> Sequence[Any]:
        function = _at_once(eqn, read)
        if function is not None:
            return builder.traced(function, operands)
        return builder.equation(with_bodies(eqn, turns_at_once), operands)

    return rebuild(closed, run)
