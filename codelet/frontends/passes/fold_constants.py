"""Fold constants: equations of which all operands are known, evaluated while a function is traced.

In comes a jaxpr, out comes one with their results: numbers as literals, arrays as constants. An array that is one
number everywhere stays that number, broadcast, whatever its size; others are computed where they have at most
`LARGEST_KNOWN` elements. Where NumPy computes just as JAX does, equations are evaluated at once; all else one compiled
function.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.field.computed_in_numpy import computed_in_numpy
from codelet.field.evaluate import held_array
from codelet.frontends.by_element import has_values_by_element, of_elements
from codelet.frontends.element_functions import element_function
from codelet.frontends.passes.bodies import Bodies
from codelet.frontends.passes.known_turns import set_known_turns_apart
from codelet.frontends.structure import dtype_of, shape_of
from codelet.frontends.values import LARGEST_KNOWN, is_key
from codelet.jaxprs.equations import Atomic, bind, literal_value, may_run_early, variables
from codelet.jaxprs.primitives import CUSTOM, is_understood
from codelet.jaxprs.rebuild import Builder, rebuild

_SPREAD = ("broadcast_in_dim", "reshape", "squeeze", "expand_dims", "transpose", "rev", "slice", "copy")
"""What moves elements of one operand, and so keeps one number everywhere."""


class _FoldedValues:
    """The known values of a jaxpr.

    Attributes:
        held: those values that are known, by variable: constants, and results of equations on them.
        uniform: of these, the ones that are one number everywhere.
        todo: equations to be evaluated, in order.
    """

    def __init__(self, closed: jax_core.ClosedJaxpr):
        jaxpr = closed.jaxpr
        self.constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
        self.held = {var for var in jaxpr.constvars if math.prod(shape_of(var)) <= LARGEST_KNOWN}
        self.uniform = {var for var in self.held if shape_of(var) == () and not is_key(dtype_of(var))}
        self.todo: list[jax_core.JaxprEqn] = []
        for eqn in jaxpr.eqns:
            self._look_at(eqn)

    def is_known(self, atom: Atomic) -> bool:
        """Whether a value is known."""
        return isinstance(atom, jax_core.Literal) or atom in self.held

    def is_uniform(self, atom: Atomic) -> bool:
        """Whether a value is known to be one number everywhere."""
        return isinstance(atom, jax_core.Literal) or atom in self.uniform

    def _look_at(self, eqn: jax_core.JaxprEqn) -> None:
        if not eqn.outvars or not all(map(self.is_known, eqn.invars)):
            return
        if not may_run_early(eqn):
            return
        if self._stays_uniform(eqn):
            self.uniform.update(eqn.outvars)
        elif sum(math.prod(shape_of(atom)) for atom in (*eqn.invars, *eqn.outvars)) > LARGEST_KNOWN:
            return
        self.held.update(eqn.outvars)
        self.todo.append(eqn)

    def _stays_uniform(self, eqn: jax_core.JaxprEqn) -> bool:
        if not eqn.invars or not all(map(self.is_uniform, eqn.invars)):
            return False
        if not all(isinstance(dtype_of(var), np.dtype) and math.prod(shape_of(var)) for var in eqn.outvars):
            return False
        return has_values_by_element(eqn) or is_understood(eqn, *_SPREAD)

    def values(self, wanted: Sequence[Any]) -> dict[Any, Any]:
        """The values of some variables; of one that is a number everywhere, the number."""
        if not wanted:
            return {}
        found = {var: held_array(own) if var in self.held else own for var, own in self.constants.items()}
        left = [eqn for eqn in self.todo if not self._at_once(eqn, found)]
        made = {var for eqn in left for var in eqn.outvars}
        atoms = {_key(atom): atom for eqn in left for atom in eqn.invars if _key(atom) not in made}
        asked = [var for var in wanted if var in made]

        def compute(*values: Any) -> list[Any]:
            own = dict(zip(atoms, values, strict=True))
            for eqn in left:
                own.update(zip(eqn.outvars, self._results(eqn, own), strict=True))
            return [own[var] for var in asked]

        if asked:
            with jax.ensure_compile_time_eval():  # where it is traced within a jitted function, too
                given = [_value(atom, found) for atom in atoms.values()]  # numbers too, by which nothing runs before
                found.update(zip(asked, jax.jit(compute)(*given), strict=True))
        return {var: found[var] for var in wanted}

    def _operands(self, eqn: jax_core.JaxprEqn, given: Sequence[Any], spread: Callable[..., Any]) -> Sequence[Any]:
        """The operands of an equation: the numbers, if its results are numbers everywhere, else whole arrays."""
        if self._gives_numbers(eqn):
            return given
        pairs = zip(given, eqn.invars, strict=True)
        return [spread(own, shape_of(atom)) if self.is_uniform(atom) else own for own, atom in pairs]

    def _gives_numbers(self, eqn: jax_core.JaxprEqn) -> bool:
        """Whether the results of an equation are numbers everywhere."""
        return all(var in self.uniform for var in eqn.outvars)

    def _only_spreads(self, eqn: jax_core.JaxprEqn) -> bool:
        """Whether an equation's result is the number that it is given."""
        return self._gives_numbers(eqn) and eqn.primitive.name in _SPREAD

    def _at_once(self, eqn: jax_core.JaxprEqn, found: dict[Any, Any]) -> bool:
        """Add the results of an equation where NumPy computes them."""
        if not all(isinstance(atom, jax_core.Literal) or atom in found for atom in eqn.invars):
            return False
        given = self._operands(eqn, [_value(atom, found) for atom in eqn.invars], np.broadcast_to)
        are_numbers = self._gives_numbers(eqn)
        made = given[:1] if self._only_spreads(eqn) else computed_in_numpy(eqn, given, are_numbers=are_numbers)
        if made is not None:
            found.update(zip(eqn.outvars, made, strict=True))
        return made is not None

    def _results(self, eqn: jax_core.JaxprEqn, found: dict[Any, Any]) -> Sequence[Any]:
        """The results of an equation, by JAX."""
        given = self._operands(eqn, [found[_key(atom)] for atom in eqn.invars], jnp.broadcast_to)
        if self._only_spreads(eqn):
            return given[:1]
        if self._gives_numbers(eqn) and is_understood(eqn, *CUSTOM):  # whose rule may refuse what is no literal
            return of_elements(eqn.params["call_jaxpr"], given)
        apart: list[Any] = [jax_core.Var(a.aval) if isinstance(a, jax_core.Literal) else a for a in eqn.invars]
        of_values = eqn.replace(invars=apart)  # whose numbers are given as all else is
        return element_function(of_values, {})(*given) if self._gives_numbers(eqn) else bind(of_values, given)


def _key(atom: Atomic) -> Any:
    """The stored form of a value."""
    return id(atom) if isinstance(atom, jax_core.Literal) else atom


def _value(atom: Atomic, found: dict[Any, Any]) -> Any:
    """A number, or the value found for a variable."""
    return literal_value(atom) if isinstance(atom, jax_core.Literal) else found[atom]


def _needs_nothing(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation only spreads a literal, which costs nothing as it is."""
    return eqn.primitive.name == "broadcast_in_dim" and isinstance(eqn.invars[0], jax_core.Literal)


def _spread(builder: Builder, number: Any, var: Any) -> Atomic:
    """A number everywhere, in the shape of a variable."""
    if shape_of(var) == ():
        return jax_core.Literal(number, var.aval)
    (result,) = builder.traced(lambda: [jax.lax.broadcast(number, shape_of(var))], [])
    return result


def _fold(closed: jax_core.ClosedJaxpr, bodies: Bodies) -> jax_core.ClosedJaxpr:
    before = _FoldedValues(closed)
    apart = set_known_turns_apart(closed, before.is_known)
    closed, known = apart, before if apart is closed else _FoldedValues(apart)
    computed = [eqn for eqn in known.todo if not _needs_nothing(eqn)]
    folded = set(map(id, computed))
    rest = [atom for eqn in closed.jaxpr.eqns if id(eqn) not in folded for atom in eqn.invars]
    read = dict.fromkeys(variables((*rest, *closed.jaxpr.outvars)))
    folded.update(id(eqn) for eqn in known.todo if read.keys().isdisjoint(eqn.outvars))
    values = known.values([var for eqn in computed for var in eqn.outvars if var in read])
    kept: list[Any] = []  # constants are told apart by identity

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> list[Atomic]:
        if id(eqn) not in folded:
            return builder.equation(bodies.changed(eqn), operands)
        return [_given(builder, var) if var in values else var for var in eqn.outvars]

    def _given(builder: Builder, var: Any) -> Atomic:
        value = values[var]
        if is_key(dtype_of(var)):
            kept.append(value)
            return builder.constant(value)
        held = np.asarray(value)
        first = held.reshape(-1)[:1]
        if held.size and held.tobytes() == held.size * first.tobytes():  # bits, which tell zeros by their signs
            return _spread(builder, first[0], var)
        kept.append(held)
        return builder.constant(held)

    return rebuild(closed, run)


def fold_constants(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with constants folded, in each of its bodies too."""
    bodies = Bodies(lambda body, _: _fold(body, bodies))
    return _fold(closed, bodies)
