"""Read together: values that elementwise equations read at the same places, as a parameter with its gradient.

The vertex that makes one of them does well to make it where the other lies; then nothing moves when they are read.
"""

from __future__ import annotations

from typing import Any

from jax.extend import core as jax_core

from codelet.frontends.by_element import is_by_element
from codelet.jaxprs.equations import variables


def read_together(jaxpr: jax_core.Jaxpr) -> dict[Any, list[Any]]:
    """For each variable of a jaxpr the others of its shape that elementwise equations read with it.

    >>> import jax, jax.numpy as jnp
    >>> closed = jax.make_jaxpr(lambda w, g, rate: w - g * rate[0])(jnp.ones(3), jnp.ones(3), jnp.ones(1))
    >>> w, g, _ = closed.jaxpr.invars
    >>> step = closed.jaxpr.eqns[-2].outvars[0]
    >>> read_together(closed.jaxpr)[w] == [step], g in read_together(closed.jaxpr)[step]
    (True, False)
    """
    found: dict[Any, list[Any]] = {}
    for eqn in jaxpr.eqns:
        if is_by_element(eqn):
            operands = list(dict.fromkeys(variables(eqn.invars)))
            for var in operands:
                shape = var.aval.shape
                found.setdefault(var, []).extend(
                    other for other in operands if other is not var and shape and other.aval.shape == shape
                )
    return found
