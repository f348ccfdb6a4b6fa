"""Evaluation of jaxprs over the field, at random points of the unknowns.

Values that depend on no unknown float are computed by NumPy where that is exact, and the rest of them by JAX, all of a
jaxpr at once; every other equation has the meaning of its primitive (`meanings.py`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.field import algebra, calls, devices, functions, matrices, moves, order, products  # noqa: F401 (they register meanings)
from codelet.field.in_numpy import in_numpy, is_in_numpy
from codelet.field.meanings import MEANINGS, NotUnderstood, results_of, runs_jaxprs
from codelet.field.roots import Roots
from codelet.field.shifts import Shifts
from codelet.field.values import Unknown, Value, is_known
from codelet.jaxprs.equations import Atomic, bind, literal_value, variables

Watch = Callable[[jax_core.JaxprEqn, Sequence[Value], Sequence[Value]], None]
"""What is told of every equation that is not known: the values of its operands and its results."""


class _KnownValues:
    """The known values of a jaxpr, given those of some of its inputs.

    Attributes:
        first: equations that NumPy runs, in order.
        function: all others that are known, as one function, compiled; None where there are none.
        inputs: variables that it is given.
        outputs: variables that it gives.
        eqns: the equations that are not known.
    """

    def __init__(self, jaxpr: jax_core.Jaxpr, known: frozenset[Any]):
        at_once, there, compiled, others = set(known), set(known), [], []
        self.first: list[jax_core.JaxprEqn] = []
        for eqn in jaxpr.eqns:
            needs, made = variables(eqn.invars), [v for v in eqn.outvars if not isinstance(v, jax_core.DropVar)]
            if eqn.effects or not there.issuperset(needs):
                others.append(eqn)
                continue
            there.update(made)
            if is_in_numpy(eqn) and at_once.issuperset(needs):
                self.first.append(eqn)
                at_once.update(made)
            else:
                compiled.append(eqn)
        made = {var for eqn in compiled for var in eqn.outvars}
        wanted = dict.fromkeys(v for eqn in others for v in variables(eqn.invars) if v in made)
        wanted |= dict.fromkeys(v for v in variables(jaxpr.outvars) if v in made)
        used = dict.fromkeys(v for eqn in compiled for v in variables(eqn.invars) if v not in made)
        self.eqns, self.inputs, self.outputs = others, list(used), list(wanted)
        inner = jax_core.Jaxpr((), self.inputs, self.outputs, compiled, debug_info=jaxpr.debug_info)
        self.function = jax.jit(jax_core.jaxpr_as_fun(jax_core.ClosedJaxpr(inner, ()))) if self.outputs else None


class Evaluation:
    """Evaluates jaxprs over the field.

    Attributes:
        draws: at how many random points.
        casts: whether a conversion between floats that loses digits is a function of which nothing is known.
        watch: called with every equation.
        hashed: how many elements have been distinguished so far, by hashes of them.
        hashed_degree: the greatest of these.
        degree: the greatest of all.
        shifts: the known sums of greatest and least numbers.
        roots: the known squares of numbers.
    """

    def __init__(self, draws: int, casts: bool = False, watch: Watch | None = None):
        self.draws, self.casts, self.watch = draws, casts, watch
        self.hashed, self.hashed_degree, self.degree = 0, 1, 1
        self.shifts, self.roots = Shifts(), Roots()
        self._plans: dict[tuple[int, frozenset[int]], tuple[jax_core.Jaxpr, _KnownValues]] = {}

    def _plan(self, jaxpr: jax_core.Jaxpr, known: frozenset[Any]) -> _KnownValues:
        key = id(jaxpr), frozenset(map(id, known))
        if key not in self._plans:
            self._plans[key] = jaxpr, _KnownValues(jaxpr, known)  # the jaxpr is kept, so that no other has its identity
        return self._plans[key][1]

    def run(self, jaxpr: Any, inputs: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr, closed or not, of values.

        Raises:
            NotUnderstood: an equation has no meaning over the field.
        """
        opened: jax_core.Jaxpr = getattr(jaxpr, "jaxpr", jaxpr)
        values: dict[Any, Value] = dict(zip(opened.invars, inputs, strict=True))
        values.update(zip(opened.constvars, map(np.asarray, getattr(jaxpr, "consts", ())), strict=True))
        plan = self._plan(opened, frozenset(var for var, own in values.items() if not isinstance(own, Unknown)))

        def at(atom: Atomic) -> Value:
            if isinstance(atom, jax_core.Literal):
                return literal_value(atom)
            return values[atom]

        for eqn in plan.first:
            values.update(zip(eqn.outvars, in_numpy(self, eqn, [at(atom) for atom in eqn.invars]), strict=True))  # type: ignore[arg-type]
        if plan.function is not None:
            made = plan.function(*(values[var] for var in plan.inputs))
            values.update(zip(plan.outputs, map(held_array, made), strict=True))
        left = _last_uses(plan.eqns, opened.outvars)
        for k, eqn in enumerate(plan.eqns):
            results = self.equation(eqn, [at(atom) for atom in eqn.invars])
            values.update(zip(eqn.outvars, results, strict=True))
            for var in left[k]:
                del values[var]
        return [at(atom) for atom in opened.outvars]

    def equation(self, eqn: jax_core.JaxprEqn, operands: Sequence[Value]) -> Sequence[Any]:
        """The results of one equation.

        Raises:
            NotUnderstood: it has no meaning over the field.
        """
        results = self._results(eqn, operands)
        unknown = [own for own in results if isinstance(own, Unknown)]
        self.degree = max([self.degree, *(own.degree for own in unknown)])
        if unknown and not runs_jaxprs(eqn):
            self._count(MEANINGS[eqn.primitive.name].told_apart(eqn, operands), unknown)
        if self.watch is not None:
            self.watch(eqn, operands, results)
        return results

    def _count(self, operands: Sequence[Value], made: Sequence[Unknown]) -> None:
        """Count the elements that an equation has distinguished."""
        if operands:
            self.hashed += sum(math.prod(own.shape) for own in (*operands, *made))
            degrees = (own.degree for own in operands if isinstance(own, Unknown))
            self.hashed_degree = max([self.hashed_degree, *degrees])

    def known(self, value: Any) -> np.ndarray:
        """A literal or a constant, as it is computed with."""
        return np.asarray(value)

    def _results(self, eqn: jax_core.JaxprEqn, operands: Sequence[Value]) -> Sequence[Any]:
        if is_known(operands):
            if is_in_numpy(eqn):
                return in_numpy(self, eqn, operands)  # type: ignore[arg-type]
            return [own if own is None else held_array(own) for own in bind(eqn, [*operands])]
        try:
            return results_of(self, eqn, operands)
        except NotUnderstood as error:
            if error.eqn is not eqn:
                error.around.append(eqn)
            raise


def held_array(value: Any) -> Any:
    """An array of NumPy where there is one for it: keys of random numbers are JAX's alone."""
    return value if jnp.issubdtype(value.dtype, jax.dtypes.extended) else np.asarray(value)


def _last_uses(eqns: Sequence[jax_core.JaxprEqn], outvars: Sequence[Atomic]) -> list[list[Any]]:
    """For each equation the variables that nothing needs after it."""
    needed, found = set(variables(outvars)), []
    for eqn in reversed(eqns):
        own = [v for v in {*variables(eqn.invars), *eqn.outvars} if v not in needed]
        found.append([v for v in own if not (isinstance(v, jax_core.DropVar) and v not in eqn.outvars)])
        needed.update(variables(eqn.invars))
    return found[::-1]
