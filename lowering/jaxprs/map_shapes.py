"""Map shapes: what is made by element is made in the shape that most of what it is made from, and for, has.

Vertices that map stretches of elements emit as maps of (vertices, elements of a stretch), between reshapes. XLA's CPU
backend fuses these with what is around them, and then divides every position by the length of a stretch: a turn of an
elimination, `a - column * row` of 200 x 200, took 4 times as long with stretches of two. And where a map in such a
shape is used several times, it is done again in whatever uses it, with the transposes before it.

Maps that are made from each other are one group, in one shape: that which the fewest of its values have to leave or be
brought to, its own where as many do. What a group is given or gives counts with the shape before or after its reshape.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bind, bodies_of, variables, with_bodies
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.jaxprs.rebuild import Builder, rebuild
from lowering.arrays import reshape
from lowering.jaxprs.reshape_once import is_reshape
from lowering.jaxprs.traced_once import parameters_of, traced_once

Shape = tuple[int, ...]


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


def _shapes(jaxpr: jax_core.Jaxpr) -> dict[Any, Shape]:
    """The shape in which each map is to be made, by its result, where that is another than its own."""
    makers = {var: eqn for eqn in jaxpr.eqns for var in eqn.outvars}
    maps = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if _is_map(eqn)}
    groups = _Groups()
    for made, eqn in maps.items():
        for atom in variables(eqn.invars):
            if atom in maps and _shape(atom):
                groups.unite(made, atom)
    votes: dict[Any, Counter[Shape]] = {groups.root(var): Counter() for var in maps}
    counted: set[tuple[Any, Any]] = set()
    for made, eqn in maps.items():
        root = groups.root(made)
        for atom in variables(eqn.invars):
            if _shape(atom) and atom not in maps and (root, atom) not in counted:
                counted.add((root, atom))
                maker = makers.get(atom)
                if maker is not None and is_understood(maker, "broadcast_in_dim"):
                    continue  # repeats what is small: in any shape
                votes[root][_shape(maker.invars[0]) if maker is not None and is_reshape(maker) else _shape(atom)] += 1
    for eqn in jaxpr.eqns:
        if _is_map(eqn):
            continue
        for atom in variables(eqn.invars):
            if atom in maps:
                votes[groups.root(atom)][_shape(eqn.outvars[0]) if is_reshape(eqn) else _shape(atom)] += 1
    for atom in variables(jaxpr.outvars):
        if atom in maps:
            votes[groups.root(atom)][_shape(atom)] += 1
    chosen = {}
    for made in maps:
        found = votes[groups.root(made)]
        if found:
            best = max(found.values())
            if found[_shape(made)] < best:
                chosen[made] = min(shape for shape, count in found.items() if count == best)
    return chosen


def make_in_shape(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose maps are made in the shapes of what is around them, in the bodies of loops as well."""
    shapes = _shapes(closed.jaxpr)
    if not shapes and not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        own = eqn.outvars[0] if eqn.outvars else None  # a print makes nothing
        if own not in shapes:
            return builder.equation(with_bodies(eqn, make_in_shape), operands)
        shape, was = shapes[own], _shape(own)

        def in_shape(*given: Any) -> list[Any]:
            return bind(eqn, [reshape(array, shape) if np.shape(array) == was else array for array in given])

        literals = tuple(isinstance(atom, jax_core.Literal) for atom in eqn.invars)
        (made,) = traced_once(builder, ("made in", shape, was, literals, parameters_of(eqn)), in_shape, operands)
        return traced_once(builder, ("left as", was), lambda array: [reshape(array, was)], [made])

    return rebuild(closed, run)
