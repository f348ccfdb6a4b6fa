"""Lifted: a jaxpr of single elements as the jaxpr of blocks of them, equation by equation.

It is what `jax.vmap` traces for blocks, dimension by dimension, made without tracing: primitives that are by element
are the same on blocks, with the same parameters. Where any other is found, nothing is made.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import jax
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import CALLS, Atomic
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.jaxprs.rebuild import struct

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
        shape = tuple(self.sizes[d] for d in dimensions)
        block = jax_core.Var(jax.typeof(struct(var).update(shape=shape))) if shape else var
        self.values[var] = block, dimensions
        return block

    def at(self, atom: Atomic) -> tuple[Atomic, Dimensions]:
        """What takes the place of an atom."""
        return (atom, ()) if isinstance(atom, jax_core.Literal) else self.values[atom]

    def spread(self, atom: Any, dimensions: Dimensions, over: Dimensions, sizes: Sequence[Any]) -> Atomic:
        """A value with other dimensions besides, of some sizes."""
        if dimensions == over:
            return atom
        places = tuple(map(over.index, dimensions))
        spread = lambda value: lax.broadcast_in_dim(value, tuple(sizes), places)  # noqa: E731
        (eqn,) = jax.make_jaxpr(spread)(struct(atom)).eqns
        self.eqns.append(eqn.replace(invars=[atom]))
        return eqn.outvars[0]

    def whole(self, atom: Atomic, dimensions: Dimensions, over: Dimensions) -> Atomic:
        """A value with other dimensions besides, each as long as it is."""
        return self.spread(atom, dimensions, over, [self.sizes[d] for d in over])

    def beside(self, atom: Atomic, dimensions: Dimensions, over: Dimensions) -> Atomic:
        """A value as it stands beside others of more dimensions: a number as it is, others of length one."""
        sizes = [self.sizes[d] if d in dimensions else 1 for d in over]
        return self.spread(atom, dimensions, over, sizes) if dimensions else atom

    def add(self, eqn: jax_core.JaxprEqn) -> None:
        """An equation on blocks where it is given any; else of numbers as it is."""
        inputs = list(map(self.at, eqn.invars))
        operands, dimensions = [atom for atom, _ in inputs], [each for _, each in inputs]
        over = tuple(sorted(set(itertools.chain(*dimensions))))
        params, results = eqn.params, [over] * len(eqn.outvars)
        if over:
            atoms: list[Any] = [*eqn.invars, *eqn.outvars]
            if any(atom.aval.shape for atom in atoms):
                raise _NotByElementError
            if is_understood(eqn, "broadcast_in_dim"):  # of an element to an element
                self.values[eqn.outvars[0]] = inputs[0]
                return
            if is_understood(eqn, *CALLS):
                inner, results = _lifted(eqn.params["jaxpr"], dimensions, self.sizes)
                params = {**eqn.params, "jaxpr": inner}
            elif not is_understood(eqn, *ELEMENTWISE):
                raise _NotByElementError
            elif eqn.primitive.name in _OF_ONE_SHAPE and not _is_of_numbers(eqn, dimensions, over):
                operands = [self.whole(*each, over) for each in inputs]
            else:
                operands = [self.beside(*each, over) for each in inputs]
        outvars = list(map(self.block, eqn.outvars, results))
        self.eqns.append(eqn.replace(invars=operands, outvars=outvars, params=params))


_OF_ONE_SHAPE = ("select_n", "clamp", "add_any")
"""Primitives whose operands have one shape; the others spread theirs."""


def _is_of_numbers(eqn: jax_core.JaxprEqn, dimensions: Sequence[Dimensions], over: Dimensions) -> bool:
    """Whether what chooses, or both bounds of a clamp, are numbers beside whole blocks: these primitives take such."""
    blocks = {"select_n": [(), *[over] * (len(dimensions) - 1)], "clamp": [(), over, ()]}.get(eqn.primitive.name)
    return list(dimensions) == blocks


def _lifted(
    closed: jax_core.ClosedJaxpr, dimensions: Sequence[Dimensions], sizes: Sequence[Any], are_whole: bool = False
) -> tuple[jax_core.ClosedJaxpr, list[Dimensions]]:
    """A jaxpr of blocks, and the dimensions of its results: all, where they are to be whole."""
    jaxpr, lifting = closed.jaxpr, _Lifting(sizes)
    inputs: list[Any] = jaxpr.invars
    if closed.consts or jaxpr.effects or any(var.aval.shape for var in inputs):
        raise _NotByElementError
    invars = list(map(lifting.block, inputs, dimensions))
    for eqn in jaxpr.eqns:
        lifting.add(eqn)
    results = list(map(lifting.at, jaxpr.outvars))
    if are_whole:
        every = tuple(range(len(sizes)))
        results = [(lifting.whole(*each, every), every) for each in results]
    outvars = [atom for atom, _ in results]
    blocks = jax_core.Jaxpr((), invars, outvars, lifting.eqns, debug_info=jaxpr.debug_info)
    return jax_core.ClosedJaxpr(blocks, ()), [each for _, each in results]


def lifted(
    closed: jax_core.ClosedJaxpr, dimensions: Sequence[Dimensions], sizes: Sequence[Any]
) -> jax_core.ClosedJaxpr | None:
    """A jaxpr of single elements as one of blocks; None where it has an equation that is not known to be by element.

    Args:
        closed: of scalars.
        dimensions: which of the block's dimensions each input has, in order. The results have all.
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
        return _lifted(closed, dimensions, sizes, are_whole=True)[0]
    except _NotByElementError:
        return None
