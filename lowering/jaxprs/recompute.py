"""Recompute: what an iteration of a loop computes element by element is recomputed for its gradient, not kept.

In reverse mode a loop keeps for every turn whatever its derivative needs: of a codelet of a hundred equations some
forty arrays, and writing them takes far longer than computing them. With the body of a scan under `jax.checkpoint`,
what goes into an iteration is kept, and what is costly in it (products, reductions, gathers, random numbers); the rest
is recomputed. A slice at a place that is computed is kept, or taken again of what is kept: whichever keeps less.
Measured on two CPU cores: the gradient of 20 steps of lattice Boltzmann on 512 x 128 cells takes 5 to 7 ms a step so,
and 68 ms else. Nothing changes for the value alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bodies_of, inner_jaxprs, scan_counts, with_bodies
from codelet.jaxprs.moved import num_bytes
from codelet.jaxprs.primitives import ELEMENTWISE, MOVING
from codelet.jaxprs.rebuild import Builder, rebuild, retrace
from lowering.jaxprs.counted_rows import Counting

_LINEAR = frozenset({"add", "add_any", "sub", "neg", "convert_element_type", "copy"})

_SERIES = "bessel_i0e bessel_i1e digamma erf_inv erfc igamma igamma_grad_a igammac lgamma polygamma zeta"
_AGAIN = (ELEMENTWISE | MOVING | {"iota"}) - {*_SERIES.split(), "regularized_incomplete_beta"}
"""What is quickly computed again."""

LIGHT = 32
"""Equations; what is computed by more than so many is not computed twice to save an array.

Where one shifted read is joined from two slices, all that leads to its cotangent is computed in both of their
transposes. An array extended and then cut gives one cotangent, which is computed once: the gradient of lattice
Boltzmann with a variable for each of nine velocities takes 5.4 ms a step so, and 9.0 joined from slices. What is
computed quickly is better computed twice: the sum of 2048 x 2048 float32 and its neighbours takes 1.3 ms, and 3.2
behind an array of its own."""


def _is_kept(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name not in _AGAIN


def _is_kept_unless_sliced(primitive: Any, *_: Any, **__: Any) -> bool:
    return primitive.name not in {*_AGAIN, "dynamic_slice"}


def _needs_kept(eqn: jax_core.JaxprEqn) -> bool:
    """Whether the derivative of an equation needs values: it is elementwise on floats, and not linear."""
    name = eqn.primitive.name
    if name not in ELEMENTWISE or name in _LINEAR:
        return False
    if name == "mul" and any(isinstance(atom, jax_core.Literal) for atom in eqn.invars):
        return False
    return any(jnp.issubdtype(var.aval.dtype, jnp.inexact) for var in eqn.outvars)  # type: ignore[attr-defined]


def _gains(body: jax_core.ClosedJaxpr) -> bool:
    """Whether a body has something to compute again, and nothing in it that is a loop, a choice, a call or speaks."""
    eqns = body.jaxpr.eqns
    return not any(map(inner_jaxprs, eqns)) and not body.jaxpr.effects and any(map(_needs_kept, eqns))


def _stacked(function: Callable[..., Any], avals: Sequence[Any], carried: slice) -> int:
    """The bytes that an iteration adds to what is kept for the gradient.

    What goes into every iteration, and what is scanned, lies there already.

    Args:
        function: of an iteration's operands.
        avals: of these.
        carried: which of them the iteration before makes.
    """
    kept = jax.make_jaxpr(lambda *operands: jax.tree.leaves(jax.vjp(function, *operands)[1]))(*avals).jaxpr
    there = {*kept.invars} - {*kept.invars[carried]}
    values = {atom for atom in kept.outvars if isinstance(atom, jax_core.Var)}
    return sum(num_bytes(var.aval) for var in values - there)


def _recomputed(body: jax_core.ClosedJaxpr, carried: slice) -> jax_core.ClosedJaxpr:
    if not _gains(body):
        return recompute(body)
    plain = jax_core.jaxpr_as_fun(body)
    slices = any(eqn.primitive.name == "dynamic_slice" for eqn in body.jaxpr.eqns)
    policies = (_is_kept, _is_kept_unless_sliced) if slices else (_is_kept,)
    ways = [plain, *(jax.checkpoint(plain, policy=policy, prevent_cse=False) for policy in policies)]
    fewest = min(ways, key=lambda way: _stacked(way, body.in_avals, carried))
    return body if fewest is plain else retrace(lambda *inputs: list(fewest(*inputs)), body)


def recompute(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with the bodies of its scans checkpointed, where that keeps less for the gradient.

    Loops that change rows in place are left: what is differentiated is the scan over these, of `scan_rows.py`.
    """
    if not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed
    counting = Counting(closed.jaxpr)

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> list[Atomic]:
        if eqn.primitive.name != "scan" or counting.own(eqn) is not None:
            return builder.equation(with_bodies(eqn, recompute), operands)
        constants, carries = scan_counts(eqn)
        carried = slice(constants, constants + carries)
        return builder.equation(with_bodies(eqn, lambda body: _recomputed(body, carried)), operands)

    return rebuild(closed, run)
