"""Moved: how many elements the equations of a jaxpr read from memory and write there.

It is a model of what XLA's CPU and GPU backends make of a jaxpr, and free of noise:

- Maps, broadcasts, slices, pads, joins, reversals and transposes are fused into what uses them: they read what of their
  operands lies in memory, and what they make is written only where it has to lie there.
- Reshapes are free.
- Reductions read what is fused into them, and write their results.
- Products, convolutions, gathers, sorts, scans along an axis and whatever else is not named here take their operands
  from memory, and write their results. A gather reads as much as it makes.
- A slice that is put into an array is read and written, and the array is not, where nothing else uses it any more and it
  is this jaxpr's own: made here, or handed over. Otherwise all of it is copied. So are scatters.
- A loop hands over what it carries; the rows that it scans over lie in memory, and so do those that it stacks.

What is fused into several is counted once, and of a condition every branch. `tests/test_moved.py` holds the model against
the bytes that XLA itself counts of compiled programs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, inner_jaxprs, needed, scan_counts, variables
from codelet.jaxprs.primitives import ELEMENTWISE, REDUCTIONS

_FREE = ("reshape", "squeeze", "expand_dims", "bitcast_convert_type", "optimization_barrier", "copy_p")

_FUSED = (*ELEMENTWISE, "broadcast_in_dim", "iota", "pad", "concatenate", "stack", "rev", "transpose")

_CUT = ("slice", "dynamic_slice", "split")

_PUT = ("dynamic_update_slice", "scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")

Unit = Callable[[Any], int]
"""The size of a value by its type."""

Turns = Callable[[int], int]
"""How often what is in a loop of so many turns counts."""


def num_elements(aval: Any) -> int:
    """The elements of a value."""
    return math.prod(getattr(aval, "shape", ()))


def num_bytes(aval: Any) -> int:
    """The bytes of a value; keys of random numbers are of eight."""
    dtype = getattr(aval, "dtype", None)
    return num_elements(aval) * (dtype.itemsize if isinstance(dtype, np.dtype) else 8)


def _is_call(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation runs another jaxpr, once, on its operands."""
    return eqn.primitive.name not in ("scan", "while", "cond") and len(inner_jaxprs(eqn)) == 1


@dataclass
class _Count:
    """What is moved, as far as it is counted.

    Attributes:
        unit: of what is counted.
        turns: how often a loop counts.
        scope: who an equation counts for.
        found: what is moved, by scope.
    """

    unit: Unit
    turns: Turns
    scope: Callable[[jax_core.JaxprEqn], str]
    found: Counter[str]

    def jaxpr(
        self,
        jaxpr: jax_core.Jaxpr,
        owned: Iterable[Any],
        inside: Sequence[bool],
        leaves: bool,
        times: int,
        around: str | None,
    ) -> list[bool]:
        """Count a jaxpr.

        Args:
            jaxpr: which.
            owned: those of its inputs that are handed over.
            inside: whether each input lies in memory.
            leaves: whether its results must.
            times: how often it counts.
            around: the scope that all of it counts for; None where its equations say.

        Returns:
            Whether each result lies in memory.
        """
        eqns = needed(jaxpr)
        last: dict[Any, int] = {}
        must: set[Any] = set(variables(jaxpr.outvars)) if leaves else set()
        for number, eqn in enumerate(eqns):
            last.update(dict.fromkeys(variables(eqn.invars), number))
            must.update(self._taken_from_memory(eqn))
        last.update(dict.fromkeys(variables(jaxpr.outvars), len(eqns)))
        held = {var for var, own in zip(jaxpr.invars, inside, strict=True) if own} | set(jaxpr.constvars)
        mine = set(owned)
        for number, eqn in enumerate(eqns):
            scope = self.scope(eqn) if around is None else around
            name, size = eqn.primitive.name, self.unit
            if name in _FREE:
                source, made = eqn.invars[0], eqn.outvars[0]
                if source in held:
                    held.add(made)
                if source in mine:
                    mine.add(made)
                if made in must:
                    must.add(source)
                if made in must and made not in held:
                    self.found[scope] += times * size(made.aval)
                    held.add(made)
                continue
            reads = [atom for atom in variables(eqn.invars) if atom in held]
            if name in _FUSED or name in _CUT:
                parts = name in _CUT
                cost = sum(
                    min(size(a.aval), sum(size(o.aval) for o in eqn.outvars)) if parts else size(a.aval) for a in reads
                )  # type: ignore[attr-defined]
                for made in eqn.outvars:
                    if made in must:
                        cost += size(made.aval)
                        held.add(made)
                        mine.add(made)
            elif name in REDUCTIONS:
                cost = sum(size(atom.aval) for atom in (*reads, *eqn.outvars))  # type: ignore[attr-defined]
                self._own(eqn, held, mine)
            elif name == "gather":
                cost = 2 * size(eqn.outvars[0].aval) + size(eqn.invars[1].aval)
                self._own(eqn, held, mine)
            elif name in _PUT:
                array, made = eqn.invars[0], eqn.outvars[0]
                update = eqn.invars[1 if name == "dynamic_update_slice" else 2]
                cost = 2 * size(update.aval)
                if array not in mine or last.get(array, -1) > number:
                    cost += 2 * size(array.aval)
                self._own(eqn, held, mine)
            elif name in ("scan", "while", "cond"):
                cost = 0
                self._loop(eqn, times, scope if around is not None else None)
                self._own(eqn, held, mine)
            elif _is_call(eqn):
                (inner,), cost = inner_jaxprs(eqn), 0
                given = [isinstance(atom, jax_core.Literal) or atom in held for atom in eqn.invars][
                    -len(inner.invars) :
                ]
                own = [
                    var
                    for atom, var in zip(eqn.invars[-len(inner.invars) :], inner.invars, strict=True)
                    if not isinstance(atom, jax_core.Literal) and atom in mine and last[atom] <= number
                ]
                wanted = any(made in must for made in eqn.outvars)
                stays = self.jaxpr(inner, own, given, wanted, times, scope if around is not None else (scope or None))
                for made, lies in zip(eqn.outvars, stays, strict=True):
                    if lies:
                        held.add(made)
                        mine.add(made)
            else:
                cost = sum(size(atom.aval) for atom in (*variables(eqn.invars), *eqn.outvars))  # type: ignore[attr-defined]
                self._own(eqn, held, mine)
            self.found[scope] += times * cost
        return [isinstance(atom, jax_core.Literal) or atom in held for atom in jaxpr.outvars]

    @staticmethod
    def _own(eqn: jax_core.JaxprEqn, held: set[Any], mine: set[Any]) -> None:
        """The results of an equation lie in memory, and are the jaxpr's own."""
        held.update(eqn.outvars)
        mine.update(eqn.outvars)

    @staticmethod
    def _taken_from_memory(eqn: jax_core.JaxprEqn) -> list[Any]:
        """The operands that have to lie in memory."""
        name = eqn.primitive.name
        if name in _FREE or name in _FUSED or name in _CUT or name in REDUCTIONS or _is_call(eqn):
            return []
        if name in _PUT or name == "gather":
            return variables(eqn.invars[:1])
        return variables(eqn.invars)

    def _loop(self, eqn: jax_core.JaxprEqn, times: int, around: str | None) -> None:
        """Count the bodies of a loop, or the branches of a choice."""
        params = eqn.params
        if eqn.primitive.name == "scan":
            body, (first, carried) = params["jaxpr"].jaxpr, scan_counts(eqn)
            bodies = [(body, body.invars[first : first + carried], self.turns(params["length"]))]
        elif eqn.primitive.name == "while":
            cond, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
            bodies = [(cond, (), 1), (body, body.invars[params["body_nconsts"] :], 1)]
        else:
            bodies = [(own.jaxpr, own.jaxpr.invars, 1) for own in params["branches"]]
        for body, owned, turns in bodies:
            self.jaxpr(body, owned, [True] * len(body.invars), True, times * turns, around)


def moved(
    closed: jax_core.ClosedJaxpr,
    *,
    owned: Iterable[int] = (),
    unit: Unit = num_elements,
    turns: Turns = lambda length: 1,
    scope: Callable[[jax_core.JaxprEqn], str] = lambda eqn: "",
) -> Counter[str]:
    """What the equations of a jaxpr read from memory and write there, by scope.

    Args:
        closed: the jaxpr.
        owned: the places of those of its inputs that are handed over.
        unit: of what is counted.
        turns: how often what is in a loop of so many turns counts: once, where left off.
        scope: who an equation counts for; of what an equation calls, that of the call where it has one.

    >>> import jax, jax.numpy as jnp
    >>> moved(jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(jnp.ones(10))).total()
    20
    """
    count = _Count(unit, turns, scope, Counter())
    jaxpr = closed.jaxpr
    count.jaxpr(jaxpr, [jaxpr.invars[k] for k in owned], [True] * len(jaxpr.invars), True, 1, None)
    return count.found
