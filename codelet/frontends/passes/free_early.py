"""Free early: an equation that frees more memory than it takes is run as soon as it can be.

In comes a jaxpr, out comes the same equations in another order. The update of a parameter ends the life of its gradient
and, where the parameter is not needed after a run, overwrites it. Run at once, one gradient takes memory rather than
those of all layers. An equation is run after those that make its operands and after all others that read values whose
life it ends; one that has effects, or frees no more than it makes, stays where it is.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from jax.extend import core as jax_core

from codelet.frontends.passes.bodies import Bodies
from codelet.jaxprs.equations import variables
from codelet.jaxprs.primitives import MOVING


def _num_bytes(var: Any) -> int:
    return var.aval.size * var.aval.dtype.itemsize


def early_order(jaxpr: jax_core.Jaxpr, owned: Collection[Any] = ()) -> list[int]:
    """The equations of a jaxpr, by position, in the order in which memory is freed as soon as it can be.

    Args:
        jaxpr: whose equations.
        owned: of its inputs, those whose memory is free after their last use.
    """
    roots: dict[Any, frozenset[Any]] = {}  # of views, what they are of
    made_at: dict[Any, int] = {}
    read_at: dict[Any, list[int]] = {}

    def of(atoms: Collection[Any]) -> frozenset[Any]:
        return frozenset[Any]().union(*(roots.get(var, {var}) for var in variables(atoms)))

    for k, eqn in enumerate(jaxpr.eqns):
        read = of(eqn.invars)
        for var in read:
            read_at.setdefault(var, []).append(k)
        made_at.update(dict.fromkeys(eqn.outvars, k))
        if eqn.primitive.name in MOVING:
            roots.update(dict.fromkeys(eqn.outvars, read))
    kept = of(jaxpr.outvars) | {*jaxpr.invars, *jaxpr.constvars} - {*owned}

    def place(k: int, eqn: jax_core.JaxprEqn) -> tuple[int, int]:
        """After which equation one runs; before those that follow that one, where it moves."""
        ended = {var for var in of(eqn.invars) - kept if read_at[var][-1] == k}
        is_fixed = eqn.effects or eqn.primitive.name in MOVING
        if is_fixed or sum(map(_num_bytes, ended)) <= sum(map(_num_bytes, eqn.outvars)):
            return k, 0
        others = [r for var in ended for r in read_at[var] if r < k]
        return max([*others, *(made_at[var] for var in variables(eqn.invars) if var in made_at)], default=-1), 1

    places = [place(k, eqn) for k, eqn in enumerate(jaxpr.eqns)]
    return sorted(range(len(jaxpr.eqns)), key=lambda k: (*places[k], k))


def free_early(closed: jax_core.ClosedJaxpr, owned: Collection[int] = ()) -> jax_core.ClosedJaxpr:
    """A jaxpr whose equations free memory as soon as they can.

    Args:
        closed: the jaxpr.
        owned: of its inputs, by position, those that are not needed afterwards.
    """

    def change(own: jax_core.ClosedJaxpr, owned: Collection[int] = ()) -> jax_core.ClosedJaxpr:
        jaxpr = own.jaxpr
        order = early_order(jaxpr, {jaxpr.invars[k] for k in owned})
        eqns = [bodies.changed(jaxpr.eqns[k]) for k in order]
        if all(eqn is before for eqn, before in zip(eqns, jaxpr.eqns, strict=True)):
            return own
        made = jax_core.Jaxpr(
            jaxpr.constvars, jaxpr.invars, jaxpr.outvars, eqns, jaxpr.effects, debug_info=jaxpr.debug_info
        )
        return jax_core.ClosedJaxpr(made, own.consts)

    bodies = Bodies(lambda body, _: change(body))
    return change(closed, owned)
