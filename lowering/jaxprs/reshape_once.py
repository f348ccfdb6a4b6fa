"""Reshape once: what is reshaped several times in a row is reshaped once, and to one shape only once.

In comes a jaxpr, out comes one in which no reshape follows another, nothing is reshaped to the shape that it has, and
nothing twice to the same shape; and the same of transposes and orders of dimensions. XLA's CPU backend would move a
reshape that only one equation needs behind that, into what reduces it: a sum of squares took twice as long so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bodies_of, with_bodies
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, rebuild


def is_reshape(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation reshapes an array, in row-major order."""
    given = eqn.invars[0] if is_understood(eqn, "reshape") and len(eqn.invars) == 1 else None
    return isinstance(given, jax_core.Var) and eqn.params["dimensions"] is None


def stretches(was: Sequence[int], shape: Sequence[int]) -> list[tuple[slice, slice]]:
    """The least stretches of dimensions that a reshape keeps apart, before and after it; of no dimension of none.

    >>> stretches((2, 3, 5), (6, 5))
    [(slice(0, 2, None), slice(0, 1, None)), (slice(2, 3, None), slice(1, 2, None))]
    """
    found, i, j = [], 0, 0
    while i < len(was) or j < len(shape):
        begin, before, after = (i, j), math.prod(was[i : i + 1]), math.prod(shape[j : j + 1])
        i, j = min(i + 1, len(was)), min(j + 1, len(shape))
        while before != after:
            if before < after:
                before, i = before * was[i], i + 1
            else:
                after, j = after * shape[j], j + 1
        found.append((slice(begin[0], i), slice(begin[1], j)))
    return found


def _is_transpose(eqn: jax_core.JaxprEqn) -> bool:
    return is_understood(eqn, "transpose") and isinstance(eqn.invars[0], jax_core.Var)


@dataclass(frozen=True)
class _Once:
    """A reshape or a transpose: what of, and to which shape or in which order; the latter is None of a reshape."""

    root: Any
    shape: tuple[int, ...]
    order: tuple[int, ...] | None

    def changes(self, given: Atomic) -> bool:
        """Whether this is another array than the given one."""
        if self.order is None:
            return self.shape != given.aval.shape  # type: ignore[attr-defined]
        return self.order != tuple(range(len(self.order)))


def _found(eqn: jax_core.JaxprEqn, before: Mapping[Any, _Once]) -> _Once | None:
    """What a reshape or transpose makes of what is neither; None where an equation is something else."""
    if is_reshape(eqn):
        (var,), order = eqn.invars, None
    elif _is_transpose(eqn):
        (var,), order = eqn.invars, tuple(map(int, eqn.params["permutation"]))
    else:
        return None
    root, move = var, before.get(var)
    while move is not None and not move.changes(move.root):  # moves that undo each other
        root, move = move.root, before.get(move.root)
    if move is not None and (move.order is None) == (order is None):
        root = move.root
        order = None if order is None or move.order is None else tuple(move.order[d] for d in order)
    return _Once(root, tuple(eqn.outvars[0].aval.shape), order)  # type: ignore[attr-defined]


def reshape_once(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that reshapes and transposes each array in each way once, in the bodies of loops as well."""
    found: dict[Any, _Once] = {}
    for eqn in closed.jaxpr.eqns:
        own = _found(eqn, found)
        if own is not None:
            found[eqn.outvars[0]] = own
    if not found and not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed
    made: dict[tuple[Atomic, tuple[int, ...], tuple[int, ...] | None], Sequence[Atomic]] = {}

    def of(eqn: jax_core.JaxprEqn) -> _Once | None:
        return found.get(eqn.outvars[0]) if eqn.outvars else None

    def sources(eqn: jax_core.JaxprEqn) -> Sequence[Atomic]:
        own = of(eqn)
        return eqn.invars if own is None else [own.root]

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        own = of(eqn)
        if own is None:
            return builder.equation(with_bodies(eqn, reshape_once), operands)
        (operand,) = operands
        if not own.changes(operand):
            return [operand]
        key = operand, own.shape, own.order
        if key not in made:
            if own.order is not None:
                eqn = eqn.replace(params={**eqn.params, "permutation": own.order})
            made[key] = builder.equation(eqn, operands)
        return made[key]

    return rebuild(closed, run, sources=sources)
