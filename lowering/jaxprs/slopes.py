"""Slopes: a jaxpr as the function that is called, changed for its derivatives where, and if, these are asked for.

What runs fastest is not what is best differentiated: maxima lose their slopes where XLA computes an operand twice,
and JAX's rules make arrays of zeros as large as what a slice is taken of. So the jaxpr runs as it is, and what JAX
differentiates is another one that computes the same, in which such equations have rules of their own. It is made
when a derivative is first asked for: who never asks does not wait for it (of a bitonic sort in 136 compute sets it
is a tenth of all that is done until XLA compiles).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
from jax.extend import core as jax_core

from codelet.jaxprs.jvp_of_moving import jvp_of_moving
from codelet.jaxprs.rebuild import opened
from codelet.jaxprs.slices_together import with_slices_together
from codelet.jaxprs.winners import with_steady_winners
from codelet.tracing.statics import restored, trace_settings
from lowering.jaxprs.added_in_place import with_slopes_added
from lowering.jaxprs.choices_of_host import with_choices_of_host
from lowering.jaxprs.recompute import recompute
from lowering.jaxprs.scan_rows import with_slopes_of_scans
from lowering.jaxprs.turns_at_once import turns_at_once
from lowering.platforms import after, lowering_for, platform_now


def _with_rules(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose equations have the derivatives that hold, and that move little."""
    return with_slices_together(with_slopes_added(with_steady_winners(closed, of_arrays=True)))


def with_slopes(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """What is differentiated in the place of a jaxpr."""
    return _with_rules(
        with_slopes_of_scans(closed, lambda scanned: _with_rules(after(scanned, turns_at_once, recompute)))
    )


def differentiable(closed: jax_core.ClosedJaxpr) -> Callable[..., list[Any]]:
    """A jaxpr as a function of its constants and its inputs, whose derivatives are those of `with_slopes`.

    One that has effects, a print or a callback, runs as what is differentiated: JAX has no rules for those.
    """
    own, settings, platform = with_choices_of_host(opened(closed)), trace_settings(), platform_now()

    @functools.cache
    def sloped() -> Callable[..., list[Any]]:
        with restored(settings), lowering_for(platform):
            return jax_core.jaxpr_as_fun(with_slopes(own))

    if closed.effects:
        return sloped()

    def rule(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
        return jvp_of_moving(sloped(), primals, tangents)

    function = jax.custom_jvp(jax_core.jaxpr_as_fun(own))
    function.defjvp(rule, symbolic_zeros=True)
    return function
