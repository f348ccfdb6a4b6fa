"""Batchable: jaxprs of equations that `jax.vmap` has rules for, whichever of their inputs are mapped.

In comes a jaxpr as it was traced. Out comes one that computes the same. Each equation for which JAX has no rule (a
reduction whose beginning depends on an input, a composite, an update of a Cholesky factor) is written by others. It may
stand anywhere: in bodies of loops, branches, and functions that are called. JAX has derivatives of those too. An
equation of constants alone stays as it is.

Known weakness: the derivative rules of a `custom_vjp` are traced when JAX asks for them, and are not looked at.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, inner_jaxprs, scan_counts, with_inner
from codelet.jaxprs.folds import reduced, windows_reduced
from codelet.jaxprs.rebuild import Builder


def _reduce(eqn: jax_core.JaxprEqn, *operands: Any) -> Sequence[Any]:
    half = len(operands) // 2
    return reduced(eqn.params["jaxpr"], operands[:half], operands[half:], eqn.params["dimensions"])


def _reduce_window(eqn: jax_core.JaxprEqn, *operands: Any) -> Sequence[Any]:
    half, params = len(operands) // 2, dict(eqn.params)
    closed = jax_core.ClosedJaxpr(params.pop("jaxpr"), params.pop("consts"))
    shape = eqn.outvars[0].aval.shape  # type: ignore[attr-defined]
    return windows_reduced(closed, operands[:half], operands[half:], shape, **params)


def _composite(eqn: jax_core.JaxprEqn, *operands: Any) -> Sequence[Any]:
    name = "jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"  # as releases of JAX name it
    return jax_core.jaxpr_as_fun(eqn.params[name])(*operands)


def _cholesky_update(_: jax_core.JaxprEqn, factor: Any, update: Any) -> Sequence[Any]:
    """A Givens rotation for each row, of it and the rest of the update (Golub and Van Loan, 6.5.4)."""

    def turned(left: Any, row: tuple[Any, Any]) -> tuple[Any, Any]:
        line, k = row
        x, y = line[k], left[k]
        nothing = y == 0
        scale = jnp.where(nothing, 1, jnp.maximum(jnp.abs(x), jnp.abs(y)))
        x, y = jnp.where(nothing, 1, x / scale), jnp.where(nothing, 0, y / scale)
        length = jnp.sqrt(x * x + y * y)
        cosine, sine = x / length, y / length
        return cosine * left - sine * line, cosine * line + sine * left

    return [lax.scan(turned, update, (factor, jnp.arange(factor.shape[0])))[1]]


_RULES: Mapping[str, tuple[Callable[..., Sequence[Any]], Callable[[Sequence[bool]], bool]]] = {
    "reduce": (_reduce, lambda depends: any(depends[len(depends) // 2 :])),
    "reduce_window": (_reduce_window, lambda depends: any(depends[len(depends) // 2 :])),
    "composite": (_composite, any),
    "cholesky_update": (_cholesky_update, any),
}
"""By primitive, how it is written by others, and of which operands that depend on inputs it has to be."""


def _may_lack_a_rule(jaxpr: jax_core.Jaxpr) -> bool:
    return any(eqn.primitive.name in _RULES or any(map(_may_lack_a_rule, inner_jaxprs(eqn))) for eqn in jaxpr.eqns)


def _within(eqn: jax_core.JaxprEqn, depends: Sequence[bool]) -> Callable[[str, jax_core.Jaxpr], Sequence[bool]]:
    """Of a jaxpr in a parameter of an equation, by its name, which inputs depend on those of the whole.

    The carry of a loop does, and so do the operands of a branch that has such an equation: `jax.vmap` maps all of it.
    """
    params = eqn.params
    match eqn.primitive.name:
        case "scan":
            consts, carried = scan_counts(eqn)
            own = [*depends[:consts], *[True] * carried, *depends[consts + carried :]]
            return lambda *_: own
        case "while":
            first, both = params["cond_nconsts"], params["cond_nconsts"] + params["body_nconsts"]
            carried = [True] * (len(depends) - both)
            by_name = {"cond_jaxpr": depends[:first], "body_jaxpr": depends[first:both]}
            return lambda name, _: [*by_name[name], *carried]
        case "cond":
            return lambda *_: [True] * (len(depends) - 1) if depends[0] else depends[1:]
    return lambda _, inner: depends if len(inner.invars) == len(depends) else [True] * len(inner.invars)


def _inner(
    within: Callable[[str, jax_core.Jaxpr], Sequence[bool]], name: str, body: jax_core.ClosedJaxpr
) -> jax_core.ClosedJaxpr:
    return _written(body, within(name, body.jaxpr)) if _may_lack_a_rule(body.jaxpr) else body


def _written(closed: jax_core.ClosedJaxpr, depends: Sequence[bool]) -> jax_core.ClosedJaxpr:
    """A jaxpr of which some inputs depend on those of the whole."""
    builder = Builder(closed.jaxpr.invars, closed.jaxpr.debug_info)
    known: dict[Any, bool] = dict(zip(builder.invars, depends, strict=True))

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        own = [not isinstance(atom, jax_core.Literal) and known.get(atom, False) for atom in operands]
        write, applies = _RULES.get(eqn.primitive.name, (None, None))
        if write is not None and applies is not None and applies(own):
            results = builder.traced(functools.partial(write, eqn), operands)
        elif inner_jaxprs(eqn):
            results = builder.equation(with_inner(eqn, functools.partial(_inner, _within(eqn, own))), operands)
        else:
            results = builder.equation(eqn, operands)
        made = any(own) or bool(eqn.effects) or eqn.primitive.name == "dim_as_value"
        known.update((var, made) for var in results if not isinstance(var, jax_core.Literal))
        return results

    return builder.closed(builder.inlined(closed, builder.invars, run))


def batchable(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr of equations that `jax.vmap` has rules for; itself, where it is one.

    >>> import jax
    >>> closed = jax.make_jaxpr(lambda x: lax.reduce(x, x[0], lax.add, (0,)))(jnp.ones(3))
    >>> jax.vmap(jax_core.jaxpr_as_fun(batchable(closed)))(jnp.ones((2, 3)))[0].tolist()
    [4.0, 4.0]
    """
    return _written(closed, [True] * len(closed.jaxpr.invars)) if _may_lack_a_rule(closed.jaxpr) else closed
