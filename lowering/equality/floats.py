"""Jaxprs in float64: every float is one, whatever the jaxpr says, and loops and calls run iteration by iteration.

So a difference that is rounding alone is not taken for one of programs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.field.meanings import MEANINGS, runs_jaxprs
from codelet.field.roots import Roots
from codelet.field.shifts import Shifts
from codelet.jaxprs.equations import evaluate


def _longer(dtype: Any) -> Any:
    """The dtype of 64 bits for one of floats, or complex numbers; any other as it is."""
    if jnp.issubdtype(dtype, np.floating):
        return np.dtype(np.float64)
    return np.dtype(np.complex128) if jnp.issubdtype(dtype, np.complexfloating) else dtype


def _is_plain(value: Any) -> bool:
    return not jnp.issubdtype(value.dtype, jax.dtypes.extended)


def in_float64(value: Any) -> Any:
    """An array with its floats as float64."""
    if not _is_plain(value):
        return value
    own = np.asarray(value)
    return own.astype(_longer(own.dtype))


def _is_shorter(eqn: jax_core.JaxprEqn) -> bool:
    """Whether a conversion between floats loses digits."""
    before, after = eqn.invars[0].aval.dtype, eqn.params["new_dtype"]  # type: ignore[attr-defined]
    both = all(jnp.issubdtype(own, np.floating) for own in (before, after))
    return bool(both and jnp.finfo(after).nmant < jnp.finfo(before).nmant)


_DTYPES = ("new_dtype", "preferred_element_type", "dtype")


class Floats:
    """Evaluates jaxprs in float64.

    Attributes:
        draws: none: all is known.
        casts: whether a conversion that loses digits loses them, though its result is in float64.
        shifts: of no use here.
        roots: of no use here.
    """

    draws = 0

    def __init__(self, casts: bool = False) -> None:
        self.casts, self.shifts, self.roots = casts, Shifts(), Roots()

    def run(self, jaxpr: Any, inputs: Sequence[Any]) -> list[Any]:
        """The results of a jaxpr, closed or not."""
        closed = jaxpr if isinstance(jaxpr, jax_core.ClosedJaxpr) else jax_core.ClosedJaxpr(jaxpr, ())
        return evaluate(closed, list(inputs), self.equation, known=self.known)

    def known(self, value: Any) -> Any:
        """A literal or a constant, in float64."""
        return in_float64(jnp.asarray(value))

    def equation(self, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> Sequence[Any]:
        """The results of an equation."""
        if runs_jaxprs(eqn):
            return MEANINGS[eqn.primitive.name].function(self, eqn, *operands)
        params = dict(eqn.params)
        for name in _DTYPES:
            if params.get(name) is not None:
                params[name] = _longer(params[name])
        if eqn.primitive.name == "reduce_precision" and not self.casts:
            return operands
        if eqn.primitive.name == "convert_element_type" and self.casts and _is_shorter(eqn):
            operands = [in_float64(jnp.asarray(operands[0]).astype(eqn.params["new_dtype"]))]
        update = params.get("update_jaxpr")
        if update is not None:
            params["update_jaxpr"] = _retyped(update, params["update_consts"])
        made = eqn.primitive.bind(*operands, **params)
        several = made if eqn.primitive.multiple_results else [made]
        return [own if not _is_plain(own) else np.asarray(own) for own in several]


def _retyped(jaxpr: Any, consts: Sequence[Any]) -> Any:
    """The result of an element and an update for it, of floats of 64 bits."""
    closed = jax_core.ClosedJaxpr(jaxpr, consts)
    structs = [jax.ShapeDtypeStruct((), _longer(var.aval.dtype)) for var in jaxpr.invars]
    return jax.make_jaxpr(lambda *own: evaluate(closed, own, _in_place))(*structs).jaxpr


def _in_place(eqn: jax_core.JaxprEqn, operands: list[Any]) -> list[Any]:
    return [eqn.primitive.bind(*operands, **eqn.params)]
