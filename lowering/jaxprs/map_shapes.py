"""Map shapes: what is made by element is made as most of what it is made from, and for, lies.

Vertices that map stretches of elements emit as maps of (vertices, elements of a stretch), between reshapes. XLA's CPU
backend fuses these with what is around them, and then divides every position by the length of a stretch: an iteration
of an elimination, `a - column * row` of 200 x 200, took 4 times as long with stretches of two. And where a map in such
a shape is used several times, it is done again in whatever uses it, with the transposes before it.

Maps that are made from each other, reshaped or not, are one group, in one form: that which the fewest of its values
have to leave or be brought to, its where as many do. A form is another shape, or another order of dimensions. What a
group is given or gives counts in the form before or after its reshape or transpose; what is reduced, in all forms in
which it can be. Slices that together are as large as the array that they are of count in all orders: the array is
transposed, once. Behind the map XLA would transpose each of them, in a kernel of its own on a GPU. What a map repeats
along some dimensions (a column times a row) counts nowhere, since it is small; but such a map is made only in forms in
which it is repeated along whole dimensions too. Softmax of 32768 x 256 took 1.7 times as long with its exponentials
made four rows at a time. Single elements are made as rows of one where they are taken of such and put into such: a loop
that carries a row of one copies it every iteration otherwise. For a GPU the numbers of places along one dimension are
made without the dimension of one that a gather or a scatter asks for: XLA makes them again in each that reads them, and
would hold them otherwise (the gradient of a histogram).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, bind, bodies_of, variables, with_bodies
from codelet.jaxprs.primitives import ELEMENTWISE, REDUCTIONS, SCATTERS, is_understood
from codelet.jaxprs.rebuild import Builder, rebuild
from lowering.arrays import reshape, transpose
from lowering.jaxprs.reduce_in_shape import reduces_along
from lowering.jaxprs.reshape_once import is_reshape, stretches
from lowering.jaxprs.traced_once import parameters_of, traced_once
from lowering.platforms import is_meant

Shape = tuple[int, ...]


def _regrouped(own: Shape, was: Shape, shape: Shape) -> Shape | None:
    """The shape of what is repeated to fill a shape that is reshaped to another; None where it is none.

    >>> _regrouped((8, 4, 1), (8, 4, 256), (32, 256)), _regrouped((8, 1, 256), (8, 4, 256), (32, 256))
    ((32, 1), None)
    """
    if own == was:
        return shape
    made: list[int] = []
    for before, after in stretches(was, shape):
        if own[before] == was[before]:
            made += shape[after]
        elif math.prod(own[before]) == 1:
            made += [1] * len(shape[after])
        else:
            return None
    return tuple(made)


class _ShapeForm(NamedTuple):
    """How a value is brought to another form: with its dimensions in another order, or reshaped where that is None."""

    shape: Shape
    order: Shape | None = None

    def takes(self, own: Shape, was: Shape) -> bool:
        """Whether what is repeated to fill a shape can be repeated in this form of that."""
        return self.order is not None or _regrouped(own, was, self.shape) is not None

    def of(self, array: Any, was: Shape) -> Any:
        """An array in this form, or what is repeated to fill a shape."""
        if self.order is not None:
            return transpose(array, self.order)
        shape = _regrouped(np.shape(array), was, self.shape)
        assert shape is not None
        return reshape(array, shape)

    def back(self, array: Any, was: Shape) -> Any:
        """What is in this form as it was."""
        return reshape(array, was) if self.order is None else transpose(array, inverse_of(self.order))


def inverse_of(order: Shape) -> Shape:
    """The order that undoes another."""
    return tuple(int(d) for d in np.argsort(order))


def _shape(atom: Atomic) -> Shape:
    return tuple(getattr(atom.aval, "shape", ()))


def _is_map(eqn: jax_core.JaxprEqn) -> bool:
    """Whether an equation makes one array by element, of numbers, and of arrays that fill its shape or are repeated."""
    if not is_understood(eqn, *ELEMENTWISE) or len(eqn.outvars) != 1 or not hasattr(eqn.outvars[0].aval, "shape"):
        return False
    made = _shape(eqn.outvars[0])
    shapes = [own for atom in eqn.invars if (own := _shape(atom))]
    return all(own == made or (len(own) == len(made) and 0 not in made and _fills(own, made)) for own in shapes)


def _fills(own: Shape, made: Shape) -> bool:
    return all(n in (1, m) for n, m in zip(own, made, strict=True))


class _MapGroups:
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


def _before(atom: Atomic, maker: jax_core.JaxprEqn | None) -> _ShapeForm:
    """The form that a value had before it was reshaped or transposed; its where it was not."""
    if maker is not None and is_understood(maker, "transpose"):
        return _ShapeForm(_shape(maker.invars[0]), inverse_of(maker.params["permutation"]))
    return _ShapeForm(_shape(maker.invars[0] if maker is not None and is_reshape(maker) else atom))


def _read_as(atom: Any, eqn: jax_core.JaxprEqn) -> Shape:
    """The shape in which an equation reads a value; of numbers for places along one dimension that of the places."""
    shape = _shape(atom)
    if shape[-1:] != (1,) or not is_understood(eqn, "gather", *SCATTERS) or not is_meant("numbers of places"):
        return shape
    return shape[:-1] if atom is eqn.invars[1] else shape


def _after(eqn: jax_core.JaxprEqn) -> _ShapeForm:
    """The form that a transpose brings a value to."""
    return _ShapeForm(_shape(eqn.outvars[0]), tuple(map(int, eqn.params["permutation"])))


class _Maps:
    """The maps of a jaxpr by their results, in groups: those that are made from each other, reshaped or not."""

    def __init__(self, jaxpr: jax_core.Jaxpr) -> None:
        self._jaxpr = jaxpr
        self._makers = Makers(jaxpr.eqns)
        self.maps = {eqn.outvars[0]: eqn for eqn in jaxpr.eqns if _is_map(eqn)}
        self._groups = _MapGroups()
        for made, atom in self._given():
            if (before := self._unshaped(atom)) in self.maps:
                self._groups.unite(made, before)

    def _unshaped(self, atom: Any) -> Any:
        """A value, or what it is a reshape of."""
        maker = self._makers.of(atom)
        return maker.invars[0] if maker is not None and is_reshape(maker) else atom

    def _given(self) -> list[tuple[Any, Any]]:
        """The results of maps with each array that they are made of, element by element."""
        return [
            (made, atom)
            for made, eqn in self.maps.items()
            for atom in variables(eqn.invars)
            if _shape(atom) == _shape(made)
        ]

    def parts(self) -> dict[Any, dict[Any, jax_core.JaxprEqn]]:
        """The slices that groups are given, where those of an array together are as large as that."""
        slices: dict[tuple[Any, Any], dict[Any, jax_core.JaxprEqn]] = {}
        for made, atom in self._given():
            maker = self._makers.of(atom)
            if maker is not None and is_understood(maker, "slice") and isinstance(maker.invars[0], jax_core.Var):
                slices.setdefault((self._groups.root(made), maker.invars[0]), {})[atom] = maker
        found: dict[Any, dict[Any, jax_core.JaxprEqn]] = {}
        for (root, whole), own in slices.items():
            if len(own) > 1 and math.prod(_shape(whole)) <= sum(math.prod(_shape(atom)) for atom in own):
                found.setdefault(root, {}).update(own)
        return found

    def members(self) -> dict[Any, list[Any]]:
        """The results of the maps of each group."""
        found: dict[Any, list[Any]] = {}
        for made in self.maps:
            found.setdefault(self._groups.root(made), []).append(made)
        return found

    def _comes_in(self) -> Iterator[tuple[Any, _ShapeForm]]:
        """Groups with the forms of what they are given; what is repeated to fill a shape is small, in any form."""
        for root, atom in dict.fromkeys((self._groups.root(made), atom) for made, atom in self._given()):
            maker = self._makers.of(atom)
            repeats = maker is not None and is_understood(maker, "broadcast_in_dim")
            if not repeats and self._unshaped(atom) not in self.maps:
                yield root, _before(atom, maker)

    def _goes_out(self) -> Iterator[tuple[Any, _ShapeForm, jax_core.JaxprEqn | None]]:
        """Groups with the forms in which their results are read, and by which equation; None: they are results."""
        for eqn in self._jaxpr.eqns:
            reader = self._groups.root(eqn.outvars[0]) if eqn.outvars and eqn.outvars[0] in self.maps else None
            for atom in () if is_reshape(eqn) else variables(eqn.invars):
                made = self._unshaped(atom)
                if made in self.maps and self._groups.root(made) is not reader:
                    is_turned = made is atom and is_understood(eqn, "transpose")
                    form = _after(eqn) if is_turned else _ShapeForm(_read_as(atom, eqn))
                    yield self._groups.root(made), form, eqn
        for atom in variables(self._jaxpr.outvars):
            if (made := self._unshaped(atom)) in self.maps:
                yield self._groups.root(made), _ShapeForm(_shape(atom)), None

    def votes(self) -> dict[Any, Counter[_ShapeForm]]:
        """How many values each group is given, or gives, in which form; what is reduced in each that allows it."""
        votes: dict[Any, Counter[_ShapeForm]] = {root: Counter() for root in self.members()}
        for root, form in self._comes_in():
            votes[root][form] += 1
        read = list(self._goes_out())
        for root, form, _ in read:
            votes[root][form] += 1
        for root, own, eqn in read:
            if eqn is not None and is_understood(eqn, *REDUCTIONS):
                for form in votes[root].keys() - {own}:
                    is_whole = form.order is None and reduces_along(eqn, form.shape, own.shape) is not None
                    votes[root][form] += is_whole
        for root, parts in self.parts().items():
            for form in votes[root]:
                votes[root][form] += len(parts) if form.order is not None else 0
        return votes


class _Made(NamedTuple):
    """How a map is made: in which form, and which of what it is given are slices of what is brought to that."""

    form: _ShapeForm
    parts: tuple[jax_core.JaxprEqn | None, ...]


def _forms(jaxpr: jax_core.Jaxpr) -> dict[Any, _Made]:
    """How each map is to be made, by its result, where that is in another form than its own."""
    found, chosen = _Maps(jaxpr), dict[Any, _Made]()
    votes, all_parts = found.votes(), found.parts()
    for root, members in found.members().items():
        shapes = {_shape(made) for made in members}
        both = {(_shape(atom), _shape(made)) for made in members for atom in found.maps[made].invars}
        repeated = [(own, was) for own, was in both if own not in ((), was)]
        possible = [form for form in votes[root] if form.order is None or len(shapes) == 1]
        possible = [form for form in possible if all(form.takes(*own) for own in repeated)]
        best = max((votes[root][form] for form in possible), default=0)
        for made in members:
            if votes[root][_ShapeForm(_shape(made))] < best:
                form = min((form for form in possible if votes[root][form] == best), key=str)
                parts = {} if form.order is None else all_parts.get(root, {})
                inputs = (None if isinstance(atom, jax_core.Literal) else atom for atom in found.maps[made].invars)
                chosen[made] = _Made(form, tuple(map(parts.get, inputs)))
    return chosen


def _slice_in(order: Shape, part: jax_core.JaxprEqn, array: Any) -> Any:
    """A slice of an array as it is of that with its dimensions in another order."""
    bounds = (part.params[name] for name in ("start_indices", "limit_indices", "strides"))
    return lax.slice(transpose(array, order), *(own and [own[d] for d in order] for own in bounds))


def make_in_shape(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose maps are made in the form of what is around them, in the bodies of loops as well."""
    forms = _forms(closed.jaxpr)
    if not forms and not any(map(bodies_of, closed.jaxpr.eqns)):
        return closed

    def of(eqn: jax_core.JaxprEqn) -> _Made | None:
        return forms.get(eqn.outvars[0]) if eqn.outvars else None  # a print makes nothing

    def sources(eqn: jax_core.JaxprEqn) -> Sequence[Atomic]:
        found = of(eqn)
        if found is None:
            return eqn.invars
        return [atom if part is None else part.invars[0] for atom, part in zip(eqn.invars, found.parts, strict=True)]

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        found = of(eqn)
        if found is None:
            return builder.equation(with_bodies(eqn, make_in_shape), operands)
        (form, parts), was = found, _shape(eqn.outvars[0])
        # Of a single element numbers in the equation are brought to the form too: what is chosen from has one shape.
        bound = eqn if was else eqn.replace(invars=[jax_core.Var(a.aval) for a in eqn.invars])  # type: ignore[attr-defined]

        def one(array: Any, part: jax_core.JaxprEqn | None) -> Any:
            if part is not None and form.order is not None:
                return _slice_in(form.order, part, array)
            return form.of(array, was) if np.ndim(array) or not was else array

        def in_form(*given: Any) -> list[Any]:
            kinds: Any = (atom.aval for atom in bound.invars)
            arrays = given if was else [jnp.asarray(own, kind.dtype) for own, kind in zip(given, kinds, strict=True)]
            return bind(bound, list(map(one, arrays, parts)))

        literals = tuple(isinstance(atom, jax_core.Literal) for atom in eqn.invars)
        sliced = tuple(None if part is None else parameters_of(part) for part in parts)
        key = "made in", form, was, literals, sliced, parameters_of(eqn)
        (made,) = traced_once(builder, key, in_form, operands)
        return traced_once(builder, ("left as", form, was), lambda array: [form.back(array, was)], [made])

    return rebuild(closed, run, sources=sources)
