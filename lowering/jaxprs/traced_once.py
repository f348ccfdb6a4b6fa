"""Traced once: what takes the place of an equation, traced once for all equations that are alike.

A rule that leaves a dimension out, or moves one, does the same to many equations: those of blocks of one shape, and of
the updates of parameters. In come a function, its operands, and a key that names all that the function depends on
beside their types: which rule it is of, the equation's primitive and parameters, what was found. Out comes what a
builder adds for it. A literal is told apart by its bytes, so that -0.0 is not 0.0; and what is traced under other
settings of JAX is another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, variables
from codelet.jaxprs.rebuild import Builder
from codelet.tracing.statics import trace_settings

_MOST = 4096

_traced: dict[Hashable, jax_core.ClosedJaxpr] = {}


def _kind(atom: Atomic) -> Hashable:
    """The type of an operand; of a literal what it is as well."""
    kind = atom.aval.shape, atom.aval.dtype, atom.aval.weak_type
    return (*kind, np.asarray(atom.val).tobytes()) if isinstance(atom, jax_core.Literal) else kind


def parameters_of(eqn: jax_core.JaxprEqn) -> Hashable:
    """The primitive and the parameters of an equation, as a key."""
    return eqn.primitive, tuple(eqn.params.items())


def traced_once(
    builder: Builder, key: Hashable, function: Callable[..., Sequence[Any]], operands: Sequence[Atomic]
) -> list[Atomic]:
    """The results of a function, as `Builder.traced` gives them, traced where no function of its key was before."""
    whole = key, tuple(map(_kind, operands)), trace_settings()
    try:
        known = _traced.get(whole)
    except TypeError:  # a parameter that has no hash
        return builder.traced(function, operands)
    open_ = variables(operands)
    if known is None:
        within = Builder(open_)
        given = iter(within.invars)
        own = [atom if isinstance(atom, jax_core.Literal) else next(given) for atom in operands]
        known = within.closed(within.traced(function, own))
        if len(_traced) >= _MOST:
            _traced.clear()
        _traced[whole] = known
    return builder.inlined(known, open_)
