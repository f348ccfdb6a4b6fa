"""Compare tables: numbers that a program only compares are stored as the results of the comparisons, a byte for each.

Vertex state is often a flag: `jnp.where(up == 1, least, most)` has a word for each vertex, and asks one bit of it.
A table is an argument of what is compiled, so XLA cannot fold that; it would load four times the bytes in every step
and compare them in every loop. In a bitonic sort these are 6 % of the time.

Integers alone are compared here, which NumPy does as XLA does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import variables
from codelet.jaxprs.primitives import COMPARISONS, is_understood
from lowering.arrays import constant
from lowering.jaxprs.equal_constants import is_table

Comparison = tuple[str, bool, int]
"""A primitive, whether the number stands first, and the number."""


def _comparison(eqn: jax_core.JaxprEqn) -> tuple[Any, Comparison] | None:
    """The variable that an equation compares with a number, and how; None where it does something else."""
    if not is_understood(eqn, *COMPARISONS):
        return None
    first, second = eqn.invars
    is_first = isinstance(first, jax_core.Literal)
    number, variable = (first, second) if is_first else (second, first)
    if not isinstance(number, jax_core.Literal) or isinstance(variable, jax_core.Literal):
        return None
    value = np.asarray(number.val)
    if value.ndim or not np.issubdtype(value.dtype, np.integer):
        return None
    return variable, (eqn.primitive.name, is_first, int(value))


def _answer(values: np.ndarray, comparison: Comparison) -> np.ndarray:
    name, is_first, number = comparison
    own = np.asarray(number, values.dtype)
    return COMPARISONS[name](*((own, values) if is_first else (values, own)))


def _only_compared(closed: jax_core.ClosedJaxpr) -> dict[Any, Any]:
    """The tables that nothing else is asked of, where the answers take no more memory."""
    jaxpr = closed.jaxpr
    tables = {var: own for var, own in zip(jaxpr.constvars, closed.consts, strict=True) if is_table(own)}
    asked: dict[Any, set[Comparison]] = {var: set() for var in tables}
    others = set(variables(jaxpr.outvars))
    for eqn in jaxpr.eqns:
        found = _comparison(eqn)
        if found is not None and found[0] in asked:
            asked[found[0]].add(found[1])
        else:
            others.update(variables(eqn.invars))
    return {
        var: own
        for var, own in tables.items()
        if asked[var] and var not in others and len(asked[var]) <= np.dtype(own.dtype).itemsize
    }


def compare_tables(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with booleans for tables of integers that are compared with numbers and not used otherwise."""
    tables = _only_compared(closed)
    if not tables:
        return closed
    jaxpr = closed.jaxpr
    held = {var: own for var, own in zip(jaxpr.constvars, closed.consts, strict=True) if var not in tables}
    answers: dict[tuple[Any, Comparison], Any] = {}
    eqns = []
    for eqn in jaxpr.eqns:
        found = _comparison(eqn)
        if found is None or found[0] not in tables:
            eqns.append(eqn)
            continue
        if found not in answers:
            answers[found] = constant(_answer(np.asarray(tables[found[0]]), found[1]))
        held[eqn.outvars[0]] = answers[found]
    made = jax_core.Jaxpr([*held], jaxpr.invars, jaxpr.outvars, eqns, jaxpr.effects, debug_info=jaxpr.debug_info)
    return jax_core.ClosedJaxpr(made, [*held.values()])
