"""Moved: how many elements the equations of a jaxpr read from memory and write there.

It is a model of the program that XLA makes of a jaxpr, and free of noise:

- Maps, broadcasts, slices, pads, joins, reversals and transposes are fused into their users. They read the operands
  that lie in memory, and their results are written only where they have to lie there.
- Reshapes are free.
- Reductions read the operands fused into them, and write their results.
- Gathers are fused as slices are, except that their operand lies in memory. Of an array that is cut several times in a
  row only the remaining part is read.
- Products, convolutions, sorts, scans along an axis and whatever else is not named here take their operands from
  memory, and write their results.
- A slice that is put into an array is read and written. The array is not, where nothing else uses it any more and this
  jaxpr made it or was handed it. Otherwise all of it is copied. So are scatters.
- A loop hands over its carry; the rows that it scans over lie in memory, and so do those that it stacks.

An equation fused into several is counted once, and of a condition every branch; but of a choice by platform, which XLA
does not see, that of CPUs alone, as a call. `tests/test_moved.py` holds the model against the bytes that XLA itself
counts of compiled programs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import inner_jaxprs, needed, scan_counts, variables
from codelet.jaxprs.primitives import ELEMENTWISE, REDUCTIONS, SCATTERS

MOVES_NOTHING = ("reshape", "squeeze", "expand_dims", "bitcast_convert_type", "optimization_barrier", "copy_p")
"""What leaves elements where they lie."""

_FUSED = (*ELEMENTWISE, "broadcast_in_dim", "iota", "pad", "concatenate", "stack", "rev", "transpose")

_CUT = ("slice", "dynamic_slice", "split", "gather")

_PUT = ("dynamic_update_slice", *SCATTERS)

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


def _on_cpus(eqn: jax_core.JaxprEqn) -> jax_core.Jaxpr | None:
    """The branch that is compiled for CPUs of a choice by platform; None of anything else, and of one without it."""
    platforms_of = eqn.params.get("branches_platforms") or ()
    for platforms, branch in zip(platforms_of, eqn.params["branches"] if platforms_of else (), strict=True):
        if platforms is None or "cpu" in platforms:
            return branch.jaxpr
    return None


def _called(eqn: jax_core.JaxprEqn) -> jax_core.Jaxpr:
    """The body of a call, on the last of its operands."""
    return _on_cpus(eqn) or inner_jaxprs(eqn)[0]


def _is_call(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation runs another jaxpr, once, on its operands."""
    if _on_cpus(eqn) is not None:
        return True
    inner = inner_jaxprs(eqn)
    if eqn.primitive.name in ("scan", "while", "cond") or len(inner) != 1 or _is_put(eqn):
        return False
    given = eqn.invars[len(eqn.invars) - len(inner[0].invars) :]
    # What a reduction combines two elements by is of numbers.
    return [var.aval.shape for var in inner[0].invars] == [atom.aval.shape for atom in given]  # type: ignore[attr-defined]


def _is_put(eqn: jax_core.JaxprEqn) -> bool:
    return eqn.primitive.name in _PUT


def _from_memory(eqn: jax_core.JaxprEqn) -> list[Any]:
    """The operands of an equation that have to lie in memory."""
    name = eqn.primitive.name
    if _is_put(eqn) or name == "gather":
        return variables(eqn.invars[:1])
    return [] if name in (*MOVES_NOTHING, *_FUSED, *_CUT, *REDUCTIONS) or _is_call(eqn) else variables(eqn.invars)


@dataclass(frozen=True)
class _Counted:
    """How is counted.

    Attributes:
        unit: the unit of the counts.
        turns: how often a loop counts.
        scope: who an equation counts for.
        found: the moved amount, by scope.
    """

    unit: Unit
    turns: Turns
    scope: Callable[[jax_core.JaxprEqn], str]
    found: Counter[str]


class _CountedBody:
    """A jaxpr while it is counted.

    Attributes:
        held: the values that lie in memory.
        mine: those of them that may be written over.
        must: those that have to lie in memory.
        last: the number of the equation that uses a value last.
        uses: the equations that use a value.
    """

    def __init__(self, how: _Counted, jaxpr: jax_core.Jaxpr, held: Iterable[Any], mine: Iterable[Any], leaves: bool):
        """With the inputs that lie in memory, those that are handed over, and whether the results must lie there."""
        self.how, self.jaxpr, self.eqns = how, jaxpr, needed(jaxpr)
        self.held, self.mine = {*held, *jaxpr.constvars}, set(mine)
        self.must: set[Any] = set(variables(jaxpr.outvars)) if leaves else set()
        self.last: dict[Any, int] = {}
        self.uses: dict[Any, list[jax_core.JaxprEqn]] = {}
        for number, eqn in enumerate(self.eqns):
            self.last.update(dict.fromkeys(variables(eqn.invars), number))
            for var in dict.fromkeys(variables(eqn.invars)):
                self.uses.setdefault(var, []).append(eqn)
            self.must.update(_from_memory(eqn))
        self.last.update(dict.fromkeys(variables(jaxpr.outvars), len(self.eqns)))
        for eqn in reversed(self.eqns):
            if eqn.primitive.name in MOVES_NOTHING and not self.must.isdisjoint(eqn.outvars):
                self.must.update(variables(eqn.invars))

    def count(self, times: int, around: str | None = None) -> None:
        """Count it so often, for one scope where that is given."""
        for number, eqn in enumerate(self.eqns):
            scope = self.how.scope(eqn) if around is None else around
            cost = self._cost(number, eqn, times, around or scope or None)
            self.how.found[scope] += times * cost

    def _sizes(self, atoms: Iterable[Any]) -> int:
        return sum(self.how.unit(atom.aval) for atom in atoms)

    def _taken(self, made: Any) -> int:
        """The part of a cut's operand that is read: where the result is cut again, and nowhere else used, only the
        remaining part.
        """
        uses, found = self.uses.get(made, ()), 0
        for eqn in () if made in self.must else uses:
            is_cut = eqn.primitive.name in _CUT and eqn.invars[0] is made and made not in eqn.invars[1:]
            if not is_cut and eqn.primitive.name not in MOVES_NOTHING:
                return self._sizes([made])
            found += sum(map(self._taken, eqn.outvars))
        return min(found, self._sizes([made])) if uses and made not in self.must else self._sizes([made])

    def _made(self, eqn: jax_core.JaxprEqn) -> None:
        """The results of an equation lie in memory, and may be written over."""
        self.held.update(eqn.outvars)
        self.mine.update(eqn.outvars)

    def _cost(self, number: int, eqn: jax_core.JaxprEqn, times: int, around: str | None) -> int:
        """The amount moved by one equation."""
        name = eqn.primitive.name
        if name in (*MOVES_NOTHING, "platform_index"):
            for kind in (self.held, self.mine):
                if not kind.isdisjoint(variables(eqn.invars)):
                    kind.update(eqn.outvars)
            return 0
        reads = [atom for atom in dict.fromkeys(variables(eqn.invars)) if atom in self.held]
        if name in _FUSED or name in _CUT:
            written = [made for made in eqn.outvars if made in self.must]
            self.held.update(written)
            self.mine.update(written)
            if name in _CUT:  # of the first operand as much as is taken of it, and places
                whole = [atom for atom in reads if atom is eqn.invars[0]]
                places = [atom for atom in reads if atom is not eqn.invars[0]]
                taken = sum(map(self._taken, eqn.outvars)) if whole else 0
                return self._sizes((*written, *places)) + min(self._sizes(whole), taken)
            return self._sizes((*written, *reads))
        if _is_call(eqn):
            self._call(number, eqn, times, around)
            return 0
        if name in ("scan", "while", "cond"):
            self._loop(eqn, times, around if self.how.scope(eqn) else None)
            self._made(eqn)
            return 0
        cost = self._sizes((*(reads if name in REDUCTIONS else variables(eqn.invars)), *eqn.outvars))
        if _is_put(eqn):
            array, update = eqn.invars[0], eqn.invars[1 if name == "dynamic_update_slice" else 2]
            is_known = isinstance(array, jax_core.Var) and array in self.mine
            is_copied = not is_known or self.last.get(array, -1) > number
            cost = 2 * self._sizes([update, array] if is_copied else [update])
        self._made(eqn)
        return cost

    def _call(self, number: int, eqn: jax_core.JaxprEqn, times: int, around: str | None) -> None:
        """Count the callees of an equation."""
        inner = _called(eqn)
        given = list(zip(eqn.invars[len(eqn.invars) - len(inner.invars) :], inner.invars, strict=True))
        held = [var for atom, var in given if isinstance(atom, jax_core.Literal) or atom in self.held]
        mine = [
            var
            for atom, var in given
            if not isinstance(atom, jax_core.Literal) and atom in self.mine and self.last[atom] <= number
        ]
        body = _CountedBody(self.how, inner, held, mine, not self.must.isdisjoint(eqn.outvars))
        body.count(times, around)
        made = [
            out
            for out, atom in zip(eqn.outvars, inner.outvars, strict=True)
            if not isinstance(atom, jax_core.Literal) and atom in body.held
        ]
        self.held.update(made)
        self.mine.update(made)

    def _loop(self, eqn: jax_core.JaxprEqn, times: int, around: str | None) -> None:
        """Count the bodies of a loop, or the branches of a choice."""
        params = eqn.params
        if eqn.primitive.name == "scan":
            body, (first, carried) = params["jaxpr"].jaxpr, scan_counts(eqn)
            bodies = [(body, body.invars[first : first + carried], self.how.turns(params["length"]))]
        elif eqn.primitive.name == "while":
            cond, body = params["cond_jaxpr"].jaxpr, params["body_jaxpr"].jaxpr
            bodies = [(cond, (), 1), (body, body.invars[params["body_nconsts"] :], 1)]
        else:
            bodies = [(own.jaxpr, own.jaxpr.invars, 1) for own in params["branches"]]
        for body, mine, turns in bodies:
            _CountedBody(self.how, body, body.invars, mine, leaves=True).count(times * turns, around)


def moved(
    closed: jax_core.ClosedJaxpr,
    *,
    owned: Iterable[int] = (),
    unit: Unit = num_elements,
    turns: Turns = lambda length: 1,
    scope: Callable[[jax_core.JaxprEqn], str] = lambda eqn: "",
) -> Counter[str]:
    """The amount that the equations of a jaxpr read from memory and write there, by scope.

    Args:
        closed: the jaxpr.
        owned: the places of those of its inputs that are handed over.
        unit: the unit of the counts.
        turns: how often the body of a loop of so many iterations counts; default: once.
        scope: who an equation counts for; of an equation's callee, that of the call where it has one.

    >>> import jax, jax.numpy as jnp
    >>> moved(jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(jnp.ones(10))).total()
    20
    """
    how, jaxpr = _Counted(unit, turns, scope, Counter()), closed.jaxpr
    _CountedBody(how, jaxpr, jaxpr.invars, [jaxpr.invars[k] for k in owned], leaves=True).count(1)
    return how.found
