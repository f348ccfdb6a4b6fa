"""Pads of windows: zeros that are put around and between elements, and summed over by windows, as options of the sum.

In comes a jaxpr, out comes one in which such a sum skips the padding. The gradient of an average pooling is one: JAX
spreads the cotangents out among zeros, an array as large as the image, for the sum to read.
"""

from __future__ import annotations

from typing import Any

from jax.extend import core as jax_core

from codelet.frontends.passes.bodies import Bodies
from codelet.jaxprs.equations import Atomic, widths_of
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, rebuild


def _adds_zeros(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation puts zeros around and between elements, and cuts none off."""
    if not is_understood(eqn, "pad"):
        return False
    value = eqn.invars[1]
    is_zero = isinstance(value, jax_core.Literal) and not value.val
    return is_zero and all(low >= 0 and high >= 0 for low, high, _ in widths_of(eqn))


def _of_padded(eqn: jax_core.JaxprEqn, pad: jax_core.JaxprEqn) -> jax_core.JaxprEqn:
    """A sum over windows of a padded array, taken of the array alone."""
    widths = widths_of(pad)
    own = {
        "padding": tuple((low, high) for low, high, _ in widths),
        "base_dilation": tuple(between + 1 for *_, between in widths),
    }
    return eqn.replace(params={**eqn.params, **own})


def pads_of_windows(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose sums over windows skip the zeros put among their operands, in each of its bodies too."""

    def change(own: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
        pads: dict[Any, jax_core.JaxprEqn] = {eqn.outvars[0]: eqn for eqn in own.jaxpr.eqns if _adds_zeros(eqn)}
        found = {
            eqn: pads[eqn.invars[0]]
            for eqn in own.jaxpr.eqns
            if is_understood(eqn, "reduce_window_sum") and eqn.invars[0] in pads
        }

        def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> list[Atomic]:
            return builder.equation(_of_padded(eqn, found[eqn]) if eqn in found else bodies.changed(eqn), operands)

        return rebuild(own, run, sources=lambda eqn: found[eqn].invars[:1] if eqn in found else eqn.invars)

    bodies = Bodies(lambda body, _: change(body))
    return change(closed)
