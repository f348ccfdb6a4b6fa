"""Equations as the machine runs them: those of a jaxpr one after another, its calls inlined."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from jax.extend import core as jax_core

from codelet.jaxprs.equations import inner_jaxprs
from ipu_backend.model.dtypes import computed_in

if TYPE_CHECKING:
    pass


class Equation(NamedTuple):
    """An equation of a jaxpr with its calls inlined: its operands are those outside of the call.

    `jaxprs` are those among its parameters: the bodies of a loop, the branches of a choice.
    """

    primitive: str
    operands: tuple[Any, ...]
    results: tuple[Any, ...]
    params: dict[str, Any]
    jaxprs: Sequence[jax_core.Jaxpr] = ()

    @property
    def size(self) -> int:
        """The elements of the first result."""
        return math.prod(self.results[0].aval.shape)

    @property
    def dtype(self) -> Any:
        """What it computes in: the dtype of its first operand, or of its result where it has none, once converted."""
        return computed_in((self.operands or self.results)[0].aval.dtype)

    @property
    def converted(self) -> tuple[Any, ...]:
        """Those of its operands and results that are converted, since the machine does not compute in their dtype."""
        held = (atom for atom in (*self.operands, *self.results) if hasattr(atom.aval, "dtype"))
        return tuple(atom for atom in held if computed_in(atom.aval.dtype) != atom.aval.dtype)


@dataclass(frozen=True, eq=False)
class Value:
    """What an equation of a call computes: a new one for each time that the call's jaxpr is run."""

    aval: Any


def itemsize_of(dtype: Any) -> int:
    """The bytes of one element."""
    return getattr(dtype, "itemsize", 8)  # random keys have none that NumPy knows: two words


def size_of(atom: Any) -> int:
    """The elements of a value."""
    return math.prod(atom.aval.shape)


_CALLS = {
    *("jit", "pjit", "closed_call", "core_call", "call", "checkpoint", "remat", "remat2"),
    *("custom_jvp_call", "custom_vjp_call", "custom_lin", "composite", "custom_linear_solve", "slices_together"),
}
"""Primitives whose jaxpr is run where they stand."""


def inlined(jaxpr: jax_core.Jaxpr, names: dict[Any, Any], *, again: bool = False) -> Iterator[Equation]:
    """The equations of a jaxpr in order, those of its calls among them.

    Args:
        jaxpr: what is looked through.
        names: what variables inside calls stand for outside; it grows.
        again: whether the same jaxpr may be run elsewhere too, so that its results need values of their own.
    """

    def outside(atom: Any) -> Any:
        return atom if isinstance(atom, jax_core.Literal) else names.get(atom, atom)

    for eqn in jaxpr.eqns:
        operands, inner = tuple(map(outside, eqn.invars)), inner_jaxprs(eqn)
        if eqn.primitive.name == "custom_linear_solve":
            # It runs the solver alone, on its own constants and the right side.
            inner, own = [eqn.params["jaxprs"].solve.jaxpr], eqn.params["const_lengths"]
            before = own.matvec + own.vecmat
            operands = operands[before : before + own.solve] + operands[sum(own) :]
        if eqn.primitive.name in _CALLS and inner:
            names.update(zip(inner[0].invars, operands, strict=True))
            yield from inlined(inner[0], names, again=True)
            names.update(zip(eqn.outvars, map(outside, inner[0].outvars), strict=True))
        else:
            results = tuple(Value(var.aval) for var in eqn.outvars) if again else tuple(eqn.outvars)
            names.update(zip(eqn.outvars, results, strict=True))
            yield Equation(eqn.primitive.name, operands, results, eqn.params, inner)
