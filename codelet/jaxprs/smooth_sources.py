"""Smooth sources: which inputs of a jaxpr each of its results may have a derivative by.

In comes a jaxpr; out come numbers of inputs. A stopped value (`jax.lax.stop_gradient`), and one that goes through
integers or booleans, has no derivative. Of anything else a result is taken to vary with all operands of floats.
"""

from __future__ import annotations

from collections.abc import Sequence

import jax.numpy as jnp
from jax.extend import core as jax_core

from codelet.jaxprs.equations import CALLS, Atomic

Numbers = frozenset[int]


def smooth_sources(jaxpr: jax_core.Jaxpr) -> list[Numbers]:
    """For each result of a jaxpr the numbers of the inputs that it may vary smoothly with.

    >>> import jax
    >>> of = jax.make_jaxpr(lambda x, y: (x * jax.lax.stop_gradient(y), y, jnp.floor(x).astype(int)))(1.0, 2.0)
    >>> [sorted(own) for own in smooth_sources(of.jaxpr)]
    [[0], [1], []]
    """
    known: dict[Atomic, Numbers] = {var: frozenset([k]) for k, var in enumerate(jaxpr.invars)}

    def numbers(atom: Atomic) -> Numbers:
        smooth = jnp.issubdtype(atom.aval.dtype, jnp.inexact)
        return known.get(atom, frozenset()) if smooth and not isinstance(atom, jax_core.Literal) else frozenset()

    def of_all(operands: Sequence[Atomic]) -> Numbers:
        return frozenset[int]().union(*map(numbers, operands))

    for eqn in jaxpr.eqns:
        if eqn.primitive.name == "stop_gradient":
            found = [frozenset[int]()] * len(eqn.outvars)
        elif eqn.primitive.name in CALLS:
            inner = smooth_sources(eqn.params["jaxpr"].jaxpr)
            found = [of_all([eqn.invars[k] for k in sorted(own)]) for own in inner]
        else:
            found = [of_all(eqn.invars)] * len(eqn.outvars)
        known.update(zip(eqn.outvars, found, strict=True))
    return list(map(numbers, jaxpr.outvars))
