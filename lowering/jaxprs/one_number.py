"""One number: an array that is one number everywhere is that number, broadcast where it is read.

XLA would not know that an array that it is given is of zeros alone, or that the body of a loop is: it would read them
from memory, and keep them beside what the loop carries. Nor would the rules that come after: `one_slice.py` adds a
slice among zeros where it lies. In comes a jaxpr, out comes one that broadcasts what its constants are, and in the
bodies of loops and the branches of choices, what these are given and do not change; a literal that they are given is a
literal there. What puts a number into an array that is this number everywhere is left out: of the zeros that a gradient
begins with, two scatters of `adjoint_heat`. Where stretches of one number are put into an array one after another until
it is full, or concatenated, it is that number: blocks of ones, and what is left over of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import dtypes
from jax.extend import core as jax_core

from codelet.hostcopies import lies_here
from codelet.jaxprs.equations import Atomic, bodies_of, literal_value, scan_counts, variables
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import Builder, opened
from lowering.arrays import SMALL
from lowering.jaxprs.counted_rows import shape_of
from lowering.jaxprs.reshape_once import is_reshape

_MOVES = ("broadcast_in_dim", "reshape", "transpose", "slice", "rev", "split")

_PUTS = {"scatter": 2, "dynamic_update_slice": 1}
"""What puts values into an array, and which of its operands these are."""


def _of_constant(const: Any) -> np.ndarray | None:
    """The number, bit for bit, that a constant is everywhere; None where there is none, or it lies elsewhere."""
    if not lies_here(const) or not np.ndim(const):
        return None
    if not isinstance(const.dtype, np.dtype) or const.size < 2 or dtypes.canonicalize_dtype(const.dtype) != const.dtype:
        return None
    flat = np.asarray(const).reshape(-1)
    bits = flat.view(np.dtype((np.void, flat.dtype.itemsize)))
    is_one = (bits[:: -(-len(bits) // SMALL)] == bits[0]).all() and (bits == bits[0]).all()
    return flat[0] if is_one else None


def _stretch(eqn: jax_core.JaxprEqn) -> range | None:
    """The elements, in row-major order, that an update at literals puts; None where they are no stretch."""
    if not is_understood(eqn, "dynamic_update_slice"):
        return None
    array, values, *starts = eqn.invars
    starts = [own.val for own in starts if isinstance(own, jax_core.Literal)]
    if len(starts) < len(eqn.invars) - 2:
        return None
    (shape, sizes), first = (shape_of(array), shape_of(values)), 0
    partial = next((d for d, n in enumerate(sizes) if n != 1), len(sizes))
    if sizes[partial + 1 :] != shape[partial + 1 :]:
        return None
    for start, n, size in zip(starts, shape, sizes, strict=True):
        first = first * n + min(max(int(start), 0), n - size)  # where XLA puts it that would lie outside
    return range(first, first + math.prod(sizes))


class _OneNumbers:
    """Which values of a jaxpr are one number.

    Attributes:
        of: the number, by the variable.
        begins: of what begins with one number that, and how many elements in row-major order hold it.
        filled: the results of equations of which each puts the last of one number into an array, or concatenates it.
    """

    def __init__(self, closed: jax_core.ClosedJaxpr, given: Sequence[np.ndarray | None]):
        known = [*zip(closed.jaxpr.constvars, map(_of_constant, closed.consts), strict=True)]
        known += zip(closed.jaxpr.invars, given, strict=True)
        self.of: dict[Any, np.ndarray] = {var: number for var, number in known if number is not None}
        self.begins: dict[Any, tuple[np.ndarray, int]] = {}
        self.filled: set[Any] = set()
        for eqn in closed.jaxpr.eqns:
            number = self.at(eqn.invars[0]) if is_understood(eqn, *_MOVES) or self.puts_the_same(eqn) else None
            if number is None and (number := self.fills(eqn)) is not None:
                self.filled.add(eqn.outvars[0])
            if number is not None:
                self.of.update((var, number) for var in eqn.outvars)

    def at(self, atom: Atomic) -> np.ndarray | None:
        """The number that a value is everywhere."""
        if not isinstance(atom, jax_core.Literal):
            return self.of.get(atom)
        return literal_value(atom) if isinstance(atom.aval.dtype, np.dtype) else None  # type: ignore[attr-defined]

    def puts_the_same(self, eqn: jax_core.JaxprEqn) -> bool:
        """True if an equation puts a number into an array that is this number everywhere, bit for bit."""
        if not is_understood(eqn, *_PUTS):
            return False
        array, values = (self.at(eqn.invars[k]) for k in (0, _PUTS[eqn.primitive.name]))
        return array is not None and values is not None and array.tobytes() == values.tobytes()

    def fills(self, eqn: jax_core.JaxprEqn) -> np.ndarray | None:
        """The number that all of an array is once an equation has concatenated it, or put the last stretch of it."""
        if is_understood(eqn, "concatenate"):
            numbers = [number for number in map(self.at, eqn.invars) if number is not None]
            is_one = len(numbers) == len(eqn.invars) and len({number.tobytes() for number in numbers}) == 1
            return numbers[0] if is_one else None
        begun = [self.begins[var] for var in variables(eqn.invars[:1]) if var in self.begins]
        if is_reshape(eqn):
            self.begins.update((eqn.outvars[0], own) for own in begun)
            return None
        place = _stretch(eqn)
        number = None if place is None else self.at(eqn.invars[1])
        if place is None or number is None:
            return None
        length = max([n for own, n in begun if own.tobytes() == number.tobytes()], default=0)
        if place.start > length:
            return None
        self.begins[eqn.outvars[0]] = number, max(length, place.stop)
        return number if max(length, place.stop) == math.prod(shape_of(eqn.outvars[0])) else None

    def given(self, atoms: Sequence[Atomic]) -> list[np.ndarray | None]:
        """The numbers that a body is given; None for a single element that is no literal."""
        return [
            self.at(atom) if getattr(atom.aval, "shape", ()) or isinstance(atom, jax_core.Literal) else None
            for atom in atoms
        ]

    def within(self, eqn: jax_core.JaxprEqn) -> jax_core.JaxprEqn:
        """An equation whose bodies broadcast the numbers that they are given."""
        name, params = eqn.primitive.name, eqn.params
        if name == "scan":
            body, (first, carried) = params["jaxpr"], scan_counts(eqn)
            own = body.jaxpr
            stays = [var is result for var, result in zip(own.invars[first:], own.outvars[:carried], strict=False)]
            stays = [True] * first + stays + [False] * (len(own.invars) - first - carried)
            given = [n if stay else None for n, stay in zip(self.given(eqn.invars), stays, strict=True)]
            return eqn.replace(params={**params, "jaxpr": as_one_number(body, given)})
        if name == "while":
            cond, body = params["cond_jaxpr"], params["body_jaxpr"]
            first, second = params["cond_nconsts"], params["body_nconsts"]
            carried = [None] * (len(eqn.invars) - first - second)
            of_cond = [*self.given(eqn.invars[:first]), *carried]
            of_body = [*self.given(eqn.invars[first : first + second]), *carried]
            made = {"cond_jaxpr": as_one_number(cond, of_cond), "body_jaxpr": as_one_number(body, of_body)}
            return eqn.replace(params={**params, **made})
        if name == "cond":
            given = self.given(eqn.invars[1:])
            branches = tuple(as_one_number(branch, given) for branch in params["branches"])
            return eqn.replace(params={**params, "branches": branches})
        return eqn


def as_one_number(
    closed: jax_core.ClosedJaxpr, given: Sequence[np.ndarray | None] | None = None
) -> jax_core.ClosedJaxpr:
    """A jaxpr that broadcasts what is one number, in the bodies of loops and the branches of choices as well.

    Args:
        closed: the jaxpr.
        given: the numbers that its inputs are; None for each that is none, or where it is a whole program.
    """
    jaxpr = closed.jaxpr
    given = [None] * len(jaxpr.invars) if given is None else given
    constants = [_of_constant(const) for const in closed.consts]
    puts = any(eqn.primitive.name in (*_PUTS, "concatenate") for eqn in jaxpr.eqns)
    if all(number is None for number in (*given, *constants)) and not puts and not any(map(bodies_of, jaxpr.eqns)):
        return closed
    numbers, builder = _OneNumbers(closed, given), Builder(jaxpr.invars, jaxpr.debug_info)
    read = {var for eqn in jaxpr.eqns for var in variables(eqn.invars)}

    def broadcast(number: np.ndarray, var: Any) -> Atomic:
        if not var.aval.shape:
            return jax_core.Literal(number[()], var.aval)
        return builder.traced(lambda: [jnp.broadcast_to(jnp.asarray(number), var.aval.shape)], [])[0]

    atoms = [
        builder.constant(const) if number is None else broadcast(number, var)
        for const, number, var in zip(closed.consts, constants, jaxpr.constvars, strict=True)
    ]
    atoms += [
        broadcast(number, var) if number is not None and var in read else own
        for own, number, var in zip(builder.invars, given, jaxpr.invars, strict=True)
    ]

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: Sequence[Atomic]) -> Sequence[Atomic]:
        if eqn.outvars and eqn.outvars[0] in numbers.filled:
            return [broadcast(numbers.of[eqn.outvars[0]], eqn.outvars[0])]
        return operands[:1] if numbers.puts_the_same(eqn) else builder.equation(numbers.within(eqn), operands)

    results = builder.inlined(opened(closed), atoms, run)
    inputs = dict(zip(map(id, jaxpr.invars), builder.invars, strict=True))  # what a loop carries on as it is
    return builder.closed([inputs.get(id(var), made) for var, made in zip(jaxpr.outvars, results, strict=True)])
