"""Meanings: the function of each primitive of JAX over the field. The other files of this room register them here.

A meaning is asked only where some operand is not known, and says of every parameter that it takes account of; an
equation with another one, or of a primitive without a meaning, is not understood, and nothing that depends on it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import Line
from codelet.field.roots import Roots
from codelet.field.shifts import Shifts
from codelet.field.values import Unknown, Value, are_positive, residues, stored
from codelet.jaxprs.primitives import says_nothing


class NotUnderstood(Exception):
    """Something has no meaning over the field.

    Attributes:
        eqn: the equation; None where it is of a program of a graph.
        why: the part that is not understood.
        line: the user's line that it is of, where there is no equation.
        around: the equations that call it, from the inside.
    """

    def __init__(self, eqn: Any, why: str, line: Line | None = None):
        self.eqn, self.why, self.line, self.around = eqn, why, line, list[Any]()
        super().__init__(why if eqn is None else f"{eqn.primitive.name}: {why}")


class Field(Protocol):
    """How a program is evaluated.

    Attributes:
        draws: at how many random points.
        casts: whether a conversion between floats of different precision is a function of which nothing is known,
            rather than the identity.
        shifts: the known sums of greatest and least numbers.
        roots: the known squares of numbers.
    """

    draws: int
    casts: bool
    shifts: Shifts
    roots: Roots

    def run(self, jaxpr: Any, inputs: Sequence[Value]) -> list[Value]:
        """The results of a jaxpr."""
        ...

    def equation(self, eqn: Any, operands: Sequence[Value]) -> Sequence[Value]:
        """The results of an equation."""
        ...

    def known(self, value: Any) -> np.ndarray:
        """A literal or a constant, as it is computed with."""
        ...


Function = Callable[..., Sequence[Value]]
"""Of the field, the equation and the values of its operands: its results."""


Exact = bool | Callable[[Any], bool]
"""Whether an equation tells no elements apart, or what says so of it."""


MOVE = "a move"
"""What is said of what only puts elements elsewhere, whatever they are: of values that are known as well."""


Degree = Callable[[Any, Sequence[int]], int]
"""Of an equation and the degrees of its operands."""


def greatest(eqn: Any, degrees: Sequence[int]) -> int:
    """The degree of operands that are added up, or moved."""
    return max(degrees)


def summed(eqn: Any, degrees: Sequence[int]) -> int:
    """The degree of operands that are multiplied, or divided."""
    return sum(degrees)


def hashed(eqn: Any, degrees: Sequence[int]) -> int:
    """The degree of a function of which nothing is known: it is a new unknown."""
    return 1


@dataclass(frozen=True)
class Meaning:
    """The meaning of a primitive over the field.

    Attributes:
        function: the results.
        parameters: those that are taken account of; None for all.
        said: in a few words, for the table in the documentation.
        degree: of the results, given the equation and the degrees of its operands; None where the results have theirs.
        keeps_positive: whether the results are greater than zero wherever all operands are.
        is_exact: whether it tells no elements apart: no hash of them, and no set.
        takes_complex: whether it takes account of complex numbers.
        hashes: the numbers of the operands that it tells apart; None for all.
    """

    function: Function
    parameters: frozenset[str] | None
    said: str
    degree: Degree | None
    keeps_positive: bool = False
    is_exact: Exact = False
    takes_complex: bool = False
    hashes: tuple[int, ...] | None = None

    def told_apart(self, eqn: Any, operands: Sequence[Any]) -> Sequence[Any]:
        """Those operands of an equation whose elements it tells apart, by hashes of them."""
        if self.is_exact(eqn) if callable(self.is_exact) else self.is_exact:
            return ()
        return operands if self.hashes is None else [operands[k] for k in self.hashes]

    def ignored(self, eqn: Any) -> Iterator[tuple[str, Any]]:
        """The parameters of an equation that say something, and are not taken account of."""
        for name, value in eqn.params.items() if self.parameters is not None else ():
            if name not in self.parameters and name not in _HARMLESS and not says_nothing(value):
                yield name, value


MEANINGS: dict[str, Meaning] = {}
"""By the names of primitives."""


def meaning(
    names: str,
    *parameters: str,
    said: str,
    every: bool = False,
    degree: Degree | None = greatest,
    keeps_positive: bool = False,
    is_exact: Exact = False,
    takes_complex: bool = False,
    hashes: tuple[int, ...] | None = None,
) -> Callable[[Function], Function]:
    """Register the meanings of primitives.

    Args:
        names: of the primitives, between spaces.
        parameters: of their equations, those that are taken account of.
        said: in a few words.
        every: whether all parameters are, whatever they are.
        degree: of the results; None where they have theirs.
        keeps_positive: whether the results are greater than zero wherever all operands are.
        is_exact: whether it tells no elements apart: no hash of them, and no set.
        takes_complex: whether it takes account of complex numbers.
        hashes: the numbers of the operands that it tells apart; None for all.
    """

    def registered(function: Function) -> Function:
        for name in names.split():
            known = None if every else frozenset(parameters)
            MEANINGS[name] = Meaning(function, known, said, degree, keeps_positive, is_exact, takes_complex, hashes)
        return function

    return registered


def runs_jaxprs(eqn: Any) -> bool:
    """Whether an equation is a loop, a branch or a call, whose results have the degrees of its body."""
    own = MEANINGS.get(eqn.primitive.name)
    return own is not None and own.degree is None


_HARMLESS = {"precision", "accuracy", "weak_type", "indices_are_sorted", "name", "inline", "keep_unused", "sharding"}
"""Parameters that say how exactly, or how fast, and nothing of what is computed."""


def results_of(field: Field, eqn: jax_core.JaxprEqn, operands: Sequence[Value]) -> Sequence[Value]:
    """The results of an equation, some of whose operands are not known.

    Raises:
        NotUnderstood: it has no meaning.
    """
    own = MEANINGS.get(eqn.primitive.name)
    if own is None:
        raise NotUnderstood(eqn, "the primitive has no meaning over the field")
    if not own.takes_complex and own.degree is not None and any(map(_is_complex, (*eqn.invars, *eqn.outvars))):
        raise NotUnderstood(eqn, "complex numbers that are not known")
    for name, value in own.ignored(eqn):
        raise NotUnderstood(eqn, f"its parameter {name}={value!r:.40} is not taken account of")
    if own.degree is not None and not any(math.prod(var.aval.shape) for var in eqn.outvars):  # type: ignore[attr-defined]
        return [np.zeros(shape_of(eqn, k), dtype_of(eqn, k)) for k in range(len(eqn.outvars))]
    results = own.function(field, eqn, *operands)
    if own.degree is not None:
        degree = own.degree(eqn, [each.degree if isinstance(each, Unknown) else 0 for each in operands])
        for each in results:
            if isinstance(each, Unknown):
                each.degree = degree
    if own.keeps_positive and are_positive(operands):
        for each in results:
            if isinstance(each, Unknown):
                each.is_positive = bool(math.prod(operands[0].shape))  # the sum of none is zero
    return results


def _is_complex(atom: Any) -> bool:
    return bool(jnp.issubdtype(atom.aval.dtype, np.complexfloating))


def dtype_of(eqn: jax_core.JaxprEqn, k: int = 0) -> np.dtype:
    """The dtype of a result."""
    return np.dtype(eqn.outvars[k].aval.dtype)  # type: ignore[attr-defined]


def shape_of(eqn: jax_core.JaxprEqn, k: int = 0) -> tuple[int, ...]:
    """The shape of a result."""
    return tuple(eqn.outvars[k].aval.shape)  # type: ignore[attr-defined]


def all_residues(field: Field, values: Sequence[Value]) -> list[np.ndarray]:
    """The residues of values."""
    return [residues(own, field.draws) for own in values]


def by_element(field: Field, values: Sequence[Value]) -> list[np.ndarray]:
    """The residues of values of one shape, or of none, with as many dimensions."""
    return _alike(all_residues(field, values))


def _alike(own: Sequence[np.ndarray]) -> list[np.ndarray]:
    rank = max(each.ndim for each in own)
    return [each.reshape(*each.shape, *(1,) * (rank - each.ndim)) for each in own]


MOST_AT_ONCE = 1 << 25
"""Residues of a result by element that are made at once."""


def made_by_element(field: Field, values: Sequence[Value], function: Callable[..., np.ndarray]) -> np.ndarray:
    """The residues of the results of a function by element; draw by draw where they are many."""
    own = _alike([stored(value, field.draws) for value in values])
    shape = np.broadcast_shapes(*(each.shape for each in own))
    wide = lambda array: array.astype(np.int64, copy=False)  # noqa: E731
    if math.prod(shape) <= MOST_AT_ONCE:
        return function(*map(wide, own))
    made = np.empty(shape, np.int32)
    for k in range(len(made)):
        made[k] = function(*(wide(each[k]) for each in own))
    return made
