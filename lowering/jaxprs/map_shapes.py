"""Map shapes: what is made by element is made as most of what it is made from, and for, lies.

Vertices that map stretches of elements emit as maps of (vertices, elements of a stretch), between reshapes. XLA's CPU
backend fuses these with what is around them, and then divides every position by the length of a stretch: a turn of an
elimination, `a - column * row` of 200 x 200, took 4 times as long with stretches of two. And where a map in such a
shape is used several times, it is done again in whatever uses it, with the transposes before it.

Maps that are made from each other are one group, in one form: that which the fewest of its values have to leave or be
brought to, its own where as many do. A form is another shape, or another order of dimensions. What a group is given or
gives counts in the form before or after its reshape or transpose.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bind, bodies_of, variables, with_bodies
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.jaxprs.rebuild import Builder, rebuild
from lowering.arrays import reshape, transpose
from lowering.jaxprs.reshape_once import is_reshape
from lowering.jaxprs.traced_once import parameters_of, traced_once

Shape = tuple[int, ...]


class _Form(NamedTuple):
    """How a value is brought to another form: with its dimensions in another order, or reshaped where that is None."""

    shape: Shape
    order: Shape | None = None

    def of(self, array: Any) -> Any:
        """An array in this form."""
        return reshape(array, self.shape) if self.order is None else transpose(array, self.order)

    def back(self, array: Any, was: Shape) -> Any:
        """What is in this form as it was."""
        return reshape(array, was) if self.order is None else transpose(array, inverse_of(self.order))


def inverse_of(order: Shape) -> Shape:
    """The order that undoes another."""
    return tuple(int(d) for d in np.argsort(order))


def _shape(atom: Atomic) -> Shape:
    return tuple(getattr(atom.aval, "shape", ()))


def _is_map(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation makes one array by element, of arrays of its shape and numbers."""
    if not is_understood(eqn, *ELEMENTWISE) or len(eqn.outvars) != 1 or not _shape(eqn.outvars[0]):
        return False
    return all(_shape(atom) in ((), _shape(eqn.outvars[0])) for atom in eqn.invars)


class _Groups:
    """Maps that are made from each other (union and find)."""

    def __init__(self) -> None:
        self._above: dict[Any, Any] = {}

    def root(self, var: Any) -> Any:
        """What stands for the group of a result."""
        while (above := self._above.setdefault(var, var)) is not var:
            self._above[var] = var = self._above.get(above, above)
        return var

    def unite(self, var: Any, other: Any) -> None:
        """Make the groups of two results one."""
        self._above[self.root(other)] = self.root(var)


def _before(atom: Atomic, maker: jax_core.JaxprEqn | None) -> _Form:
    """The form that a value had before it was reshaped or transposed; its own where it was not."""
    if maker is not None and is_understood(maker, "transpose"):
        return _Form(_shape(maker.invars[0]), inverse_of(maker.params["permutation"]))
    return _Form(_shape(maker.invars[0] if maker is not None and is_reshape(maker) else atom))


def _after(atom: Atomic, eqn: jax_core.JaxprEqn) -> _Form:
    """The form that an equation brings a value to; its own where it does something else with it."""
    if is_understood(eqn, "transpose"):
        return _Form(_shape(eqn.outvars[0]), tuple(map(int, eqn.params["permutation"])))
    return _Form(_shape(eqn.outvars[0] if is_reshape(eqn) else atom))


def _forms(jaxpr: jax_core.Jaxpr) -> dict[Any, _Form]:
    """The form in which each map is to be made, by its result, where that is another than its own."""
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    maps = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if _is_map(eqn)}
    groups = _Groups()
    for made, eqn in maps.items():
        for atom in variables(eqn.invars):
            if atom in maps and _shape(atom):
                groups.unite(made, atom)
    votes: dict[Any, Counter[_Form]] = {groups.root(var): Counter() for var in maps}
    counted: set[tuple[Any, Any]] = set()
    for made, eqn in maps.items():
        root = groups.root(made)
        for atom in variables(eqn.invars):
            if _shape(atom) and atom not in maps and (root, atom) not in counted:
                counted.add((root, atom))
                maker = makers.get(atom)
                if maker is not None and is_understood(maker, "broadcast_in_dim"):
                    continue  # repeats what is small: in any form
                votes[root][_before(atom, maker)] += 1
    for eqn in jaxpr.eqns:
        if _is_map(eqn):
            continue
        for atom in variables(eqn.invars):
            if atom in maps:
                votes[groups.root(atom)][_after(atom, eqn)] += 1
    for atom in variables(jaxpr.outvars):
        if atom in maps:
            votes[groups.root(atom)][_Form(_shape(atom))] += 1
    chosen = {}
    for made in maps:
        found = votes[groups.root(made)]
        if found:
            best = max(found.values())
            if found[_Form(_shape(made))] < best:
                chosen[made] = min((form for form, count in found.items() if count == best), key=str)
    return chosen


def make_in_shape(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose maps are made in the form of what is around them, in the bodies of loops as well."""
    forms = _forms(closed.jaxpr)
    if not forms and not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        own = eqn.outvars[0] if eqn.outvars else None  # a print makes nothing
        if own not in forms:
            return builder.equation(with_bodies(eqn, make_in_shape), operands)
        form, was = forms[own], _shape(own)

        def in_form(*given: Any) -> list[Any]:
            return bind(eqn, [form.of(array) if np.shape(array) == was else array for array in given])

        literals = tuple(isinstance(atom, jax_core.Literal) for atom in eqn.invars)
        (made,) = traced_once(builder, ("made in", form, was, literals, parameters_of(eqn)), in_form, operands)
        return traced_once(builder, ("left as", form, was), lambda array: [form.back(array, was)], [made])

    return rebuild(closed, run)
