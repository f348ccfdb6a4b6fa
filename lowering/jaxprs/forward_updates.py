"""Forward updates: what is read of an update where it was put is what was put.

Gradients write zeros where a value was overwritten, read what was there, and add to what now lies there; loops of
stencils copy what they have just written. XLA reads it back from memory. Worse, where an array is read after another
one has been made of it by an update, it cannot make the update in place: the loop holds the array twice, and copies it
in every turn. In comes a jaxpr. Out comes one in which

- a slice of an update at its own place is the new values;
- an update of an update at the same place updates the array that was there before;
- an update that puts what lies there already is the array;
- what is added to zeros that were so found is itself, but for the sign of a zero.

Places are the same if they are as large, and begin at the same numbers: at literals, at one variable, or where the same
is counted in the turns of a loop (`counted_rows.py`). An update of which anything else is read stays: it is computed
anyway, and to keep the new values beside it took a state more (`loop_gradients/heat`). Which places lie apart is not
asked.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, has_any, made_alike, variables, with_bodies
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, rebuild, struct
from lowering.jaxprs.counted_rows import Affine, Counting, shape_of
from lowering.jaxprs.tables_of_updates import is_zero

_PUT = "dynamic_update_slice"


def _place(eqn: jax_core.JaxprEqn, number: Callable[[Atomic], Hashable]) -> Hashable:
    """Where a slice lies that is taken of an array, or put into it, and how large it is; None of anything else.

    Args:
        eqn: the equation.
        number: a literal or a variable as what is the same for all that are the same number.
    """
    if is_understood(eqn, "slice"):
        starts = eqn.params["start_indices"]
        return (tuple(map(int, starts)), shape_of(eqn.outvars[0])) if set(eqn.params["strides"] or ()) <= {1} else None
    if not is_understood(eqn, "dynamic_slice", _PUT):
        return None
    first, part = (2, eqn.invars[1]) if eqn.primitive.name == _PUT else (1, eqn.outvars[0])
    shape, sizes = shape_of(eqn.invars[0]), shape_of(part)

    def start(atom: Atomic, extent: int, size: int) -> Hashable:
        own = number(atom)
        return min(max(own, 0), extent - size) if isinstance(own, int) else own

    return tuple(map(start, eqn.invars[first:], shape, sizes)), sizes


class _Forwarding:
    """What stands for values of a jaxpr.

    Attributes:
        values: another value of the jaxpr, by the variable that it stands for.
        updated: which array an update is to update, where that is another one.
    """

    def __init__(self, jaxpr: jax_core.Jaxpr, counted: Mapping[Any, Affine]):
        self.values: dict[Any, Atomic] = {}
        self.updated: dict[jax_core.JaxprEqn, Atomic] = {}
        self._makers, alike = Makers(jaxpr.eqns), made_alike(jaxpr)

        def number(atom: Atomic) -> Hashable:
            if isinstance(atom, jax_core.Literal):
                return int(atom.val)
            step, start = counted.get(atom, (None, None))
            return alike.get(atom, atom) if step is None else (step, start) if step else start

        self._places = {eqn: place for eqn in jaxpr.eqns if (place := _place(eqn, number)) is not None}
        self._readers: dict[Any, set[Hashable]] = {}
        for eqn in jaxpr.eqns:
            for atom in variables(eqn.invars):
                self._readers.setdefault(atom, set()).add(self._places.get(eqn))
        for eqn in jaxpr.eqns:
            place = self._places.get(eqn)
            own = self._summand(eqn) if place is None else self._known(eqn, place)
            if own is not None and struct(own) == struct(eqn.outvars[0]):
                self.values[eqn.outvars[0]] = own

    def at(self, atom: Atomic) -> Atomic:
        """The value that stands for one: itself, where none does."""
        return atom if isinstance(atom, jax_core.Literal) else self.values.get(atom, atom)

    def _put_at(self, array: Atomic, place: Hashable) -> jax_core.JaxprEqn | None:
        """The update that made an array by a slice at a place, where nobody reads the array elsewhere."""
        maker = self._makers.of(array)
        if maker is None or maker.primitive.name != _PUT or self._readers.get(array) != {place}:
            return None
        return maker if self._places[maker] == place else None

    def _before(self, array: Atomic) -> Atomic:
        """The array that an update updates."""
        maker = self._makers[array]
        return self.updated.get(maker, self.at(maker.invars[0]))

    def _known(self, eqn: jax_core.JaxprEqn, place: Hashable) -> Atomic | None:
        """What a slice is, or an update; None where it is none that is known."""
        array = self.at(eqn.invars[0])
        put = self._put_at(array, place)
        if eqn.primitive.name != _PUT:
            return None if put is None else self.at(put.invars[1])
        if put is not None:
            array = self.updated[eqn] = self._before(array)
        taken = self._makers.of(self.at(eqn.invars[1]))
        lies_there = taken is not None and taken.primitive.name != _PUT and self._places.get(taken) == place
        return array if lies_there and taken is not None and self.at(taken.invars[0]) is array else None

    def _summand(self, eqn: jax_core.JaxprEqn) -> Atomic | None:
        """What is added to zeros that stand for something; None where nothing is."""
        if is_understood(eqn, "add", "add_any"):
            for zeros, other in (eqn.invars, eqn.invars[::-1]):
                if self.at(zeros) is not zeros and is_zero(self.at(zeros), self._makers):
                    return self.at(other)
        return None


def _forwarded(closed: jax_core.ClosedJaxpr, counted: Mapping[Any, Affine]) -> jax_core.ClosedJaxpr:
    """A jaxpr that reads no update where it was put, given the numbers of it that count turns of a loop around it."""
    jaxpr = closed.jaxpr
    if not has_any(jaxpr, _PUT):
        return closed
    forwarding, counting = _Forwarding(jaxpr, counted), Counting(jaxpr)

    def within(eqn: jax_core.JaxprEqn) -> jax_core.JaxprEqn:
        known = (
            counting.counted(eqn) if eqn.primitive.name == "scan" and has_any(eqn.params["jaxpr"].jaxpr, _PUT) else {}
        )
        return with_bodies(eqn, lambda body: _forwarded(body, known))

    others = {eqn: within(eqn) for eqn in jaxpr.eqns}
    if not forwarding.values and not forwarding.updated and all(made is eqn for eqn, made in others.items()):
        return closed

    def sources(eqn: jax_core.JaxprEqn) -> list[Atomic]:
        own = [forwarding.values.get(var) for var in eqn.outvars]
        if own and None not in own:
            return own
        first = [forwarding.updated[eqn]] if eqn in forwarding.updated else eqn.invars[:1]
        return [*first, *eqn.invars[1:]]

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> list[Atomic]:
        is_known = bool(eqn.outvars) and all(var in forwarding.values for var in eqn.outvars)
        return operands if is_known else builder.equation(others[eqn], operands)

    return rebuild(closed, run, sources=sources)


def forward_updates(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that reads no update where it was put, in the bodies of loops as well."""
    return _forwarded(closed, {})
