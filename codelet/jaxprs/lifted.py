"""Lifted: a jaxpr of single elements as the jaxpr of blocks of them, equation by equation.

It is what `jax.vmap` traces for blocks, dimension by dimension, made without tracing: primitives that are by element
are the same on blocks, with the same parameters. Where any other is found, nothing is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import CALLS, Atomic
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood

Dimensions = tuple[int, ...]
"""Which dimensions of a block a value has, in order; none, where it is one number."""


class _NotByElementError(Exception):
    """An equation is not by element, or is in a way that is not known."""


class _Lifting:
    """A jaxpr under construction, of blocks of some sizes."""

    def __init__(self, sizes: Sequence[Any]):
        self.sizes = sizes
        self.eqns: list[jax_core.JaxprEqn] = []
        self.values: dict[Any, tuple[Atomic, Dimensions]] = {}

    def block(self, var: Any, dimensions: Dimensions) -> Any:
        """What takes the place of a variable, with some dimensions."""
        if isinstance(var, jax_core.DropVar):
            return var
        made = var if not dimensions else jax_core.Var(self._typed(var, [self.sizes[d] for d in dimensions]))
        self.values[var] = made, dimensions
        return made

    def at(self, atom: Atomic) -> tuple[Atomic, Dimensions]:
        """What takes the place of an atom."""
        return (atom, ()) if isinstance(atom, jax_core.Literal) else self.values[atom]

    def spread(self, atom: Atomic, own: Dimensions, over: Dimensions, sizes: Sequence[Any]) -> Atomic:
        """A value with other dimensions besides, of some sizes."""
        if own == over:
            return atom
        places = tuple(over.index(d) for d in own)
        spread = lambda value: lax.broadcast_in_dim(value, tuple(sizes), places)  # noqa: E731
        (eqn,) = jax.make_jaxpr(spread)(jax.ShapeDtypeStruct(atom.aval.shape, atom.aval.dtype)).eqns
        made = jax_core.Var(self._typed(atom, sizes))
        self.eqns.append(eqn.replace(invars=[atom], outvars=[made]))
        return made

    def whole(self, atom: Atomic, own: Dimensions, over: Dimensions) -> Atomic:
        """A value with other dimensions besides, each as long as it is."""
        return self.spread(atom, own, over, [self.sizes[d] for d in over])

    def beside(self, atom: Atomic, own: Dimensions, over: Dimensions) -> Atomic:
        """A value as it stands beside others of more dimensions: a number as it is, others of length one."""
        return self.spread(atom, own, over, [self.sizes[d] if d in own else 1 for d in over]) if own else atom

    def add(self, eqn: jax_core.JaxprEqn) -> None:
        """An equation on blocks where it is given any; else of numbers as it is."""
        given = [self.at(atom) for atom in eqn.invars]
        over = tuple(sorted({d for _, own in given for d in own}))
        operands, params, results = [atom for atom, _ in given], eqn.params, [over] * len(eqn.outvars)
        if over:
            if any(atom.aval.shape for atom in (*eqn.invars, *eqn.outvars)):
                raise _NotByElementError
            if is_understood(eqn, "broadcast_in_dim"):  # of an element to an element
                self.values[eqn.outvars[0]] = given[0]
                return
            if is_understood(eqn, *CALLS):
                inner, results = _lifted(eqn.params["jaxpr"], [own for _, own in given], self.sizes)
                params = {**eqn.params, "jaxpr": inner}
            elif not is_understood(eqn, *ELEMENTWISE):
                raise _NotByElementError
            elif eqn.primitive.name in _OF_ONE_SHAPE and not _is_of_numbers(eqn, [own for _, own in given], over):
                operands = [self.whole(*own, over) for own in given]
            else:
                operands = [self.beside(*own, over) for own in given]
        outvars = [self.block(var, own) for var, own in zip(eqn.outvars, results, strict=True)]
        self.eqns.append(eqn.replace(invars=operands, outvars=outvars, params=params))

    def _typed(self, like: Any, sizes: Sequence[Any]) -> Any:
        return jax.typeof(jax.ShapeDtypeStruct(tuple(sizes), like.aval.dtype, weak_type=like.aval.weak_type))


_OF_ONE_SHAPE = ("select_n", "clamp", "add_any")
"""Primitives whose operands have one shape; the others spread theirs."""


def _is_of_numbers(eqn: jax_core.JaxprEqn, given: Sequence[Dimensions], over: Dimensions) -> bool:
    """Whether what chooses, or both bounds of a clamp, are numbers beside whole blocks: these primitives take such."""
    blocks = {"select_n": [(), *[over] * (len(given) - 1)], "clamp": [(), over, ()]}.get(eqn.primitive.name)
    return list(given) == blocks


def _lifted(
    closed: jax_core.ClosedJaxpr, given: Sequence[Dimensions], sizes: Sequence[Any], are_whole: bool = False
) -> tuple[jax_core.ClosedJaxpr, list[Dimensions]]:
    """A jaxpr of blocks, and the dimensions of its results: all, where they are to be whole."""
    jaxpr, lifting = closed.jaxpr, _Lifting(sizes)
    if closed.consts or jaxpr.effects or any(var.aval.shape for var in jaxpr.invars):
        raise _NotByElementError
    invars = list(map(lifting.block, jaxpr.invars, given))
    for eqn in jaxpr.eqns:
        lifting.add(eqn)
    results = list(map(lifting.at, jaxpr.outvars))
    if are_whole:
        every = tuple(range(len(sizes)))
        results = [(lifting.whole(*own, every), every) for own in results]
    outvars, dimensions = [atom for atom, _ in results], [own for _, own in results]
    return jax_core.ClosedJaxpr(
        jax_core.Jaxpr((), invars, outvars, lifting.eqns, debug_info=jaxpr.debug_info), ()
    ), dimensions


def lifted(
    closed: jax_core.ClosedJaxpr, given: Sequence[Dimensions], sizes: Sequence[Any]
) -> jax_core.ClosedJaxpr | None:
    """A jaxpr of single elements as one of blocks; None where it has an equation that is not known to be by element.

    Args:
        closed: of scalars.
        given: which of the block's dimensions each input has, in order. The results have all.
        sizes: of these dimensions, numbers or JAX's symbols.

    >>> import jax.numpy as jnp
    >>> print(lifted(jax.make_jaxpr(lambda x, y: x * jnp.sin(y) + 1)(1.0, 2.0), [(0,), (0,)], (3,)))
    { lambda ; a:f32[3] b:f32[3]. let
        c:f32[3] = sin b
        d:f32[3] = mul a c
        e:f32[3] = add d 1.0:f32[]
      in (e,) }
    """
    try:
        return _lifted(closed, given, sizes, are_whole=True)[0]
    except _NotByElementError:
        return None
