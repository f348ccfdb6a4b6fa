"""Slice before loops: a slice of an array that a loop only reads, of which each iteration takes a part, is made before
it.

In comes a jaxpr, out comes one whose scans are given such slices as they are given the array. What an iteration then
takes is a row of one of their constants, over which `scan_rows.py` scans. In a gradient each slice is a pad of the
whole array, which a turn would make and add: a sweep of Seidel's over 100 x 100 took 7 times as long as in plain JAX.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bind, bodies_of, scan_counts, scanned, variables, with_bodies
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, rebuild


def _slices(eqn: jax_core.JaxprEqn) -> list[jax_core.JaxprEqn]:
    """The slices in a scan's body that are to be made before it."""
    body, (first, _) = eqn.params["jaxpr"].jaxpr, scan_counts(eqn)
    constants = set(body.invars[:first])
    found = {own.outvars[0]: own for own in body.eqns if is_understood(own, "slice") and own.invars[0] in constants}
    if not found:
        return []
    for own in body.eqns:
        read = own.invars[1:] if is_understood(own, "dynamic_slice") else own.invars
        for var in variables(read):
            found.pop(var, None)
    results = set(variables(body.outvars))
    return [own for var, own in found.items() if var not in results]


def _sliced_before(eqn: jax_core.JaxprEqn, slices: Sequence[jax_core.JaxprEqn]) -> Callable[..., list[Any]]:
    """A scan whose body is given some slices."""
    first, _ = scan_counts(eqn)
    places = {var: k for k, var in enumerate(eqn.params["jaxpr"].jaxpr.invars)}

    def run(*inputs: Any) -> list[Any]:
        made = {id(own): bind(own, [inputs[places[own.invars[0]]]]) for own in slices}

        one = lambda own, operands: made[id(own)] if id(own) in made else bind(own, operands)  # noqa: E731
        return scanned(eqn, inputs, inputs[:first], one)

    return run


def slice_before_loops(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that slices what its scans take parts of before them, in the bodies of loops as well."""
    if not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        eqn = with_bodies(eqn, slice_before_loops)
        slices = _slices(eqn) if eqn.primitive.name == "scan" and not eqn.effects else []
        return builder.traced(_sliced_before(eqn, slices), operands) if slices else builder.equation(eqn, operands)

    return rebuild(closed, run)
