"""Choices of the host: branches that call it, as those that raise an error do, are run by who chooses them alone.

`jax.vmap` of a choice runs all branches and selects from what they give, so that an error would be raised for those
that are right as well. Here it runs what calls nothing for all at once, unless one of them chooses the other: then one
after another. Libraries that raise errors on values (Equinox's `error_if`) have special rules for batching to that end,
which a graph has not.

Source: "How JAX primitives work" in JAX's documentation.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core
from jax.interpreters import ad, batching, mlir

from codelet.jaxprs.equations import calls_host, with_inner
from codelet.jaxprs.jvp_of_moving import jvp_of_moving
from codelet.jaxprs.rebuild import Builder, each_once, rebuild

Branches = tuple[jax_core.ClosedJaxpr, ...]

_choice_p = jax_core.Primitive("choice_of_host")
_choice_p.multiple_results = True


@_choice_p.def_impl
def _run(chosen: Any, *operands: Any, branches: Branches) -> list[Any]:
    return list(lax.switch(chosen, [jax_core.jaxpr_as_fun(own) for own in branches], *operands))


@_choice_p.def_abstract_eval
def _types(chosen: Any, *operands: Any, branches: Branches) -> list[Any]:
    return list(branches[0].out_avals)


def _quiet(branch: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A branch, or one of zeros for one that calls the host, which nobody chooses."""
    if not calls_host(branch.jaxpr):
        return branch
    zeros = lambda *_: [jnp.zeros(own.shape, own.dtype) for own in branch.out_avals]  # noqa: E731
    return jax.make_jaxpr(zeros)(*branch.in_avals)


def _batched(given: Sequence[Any], axes: Sequence[Any], *, branches: Branches) -> tuple[list[Any], list[int]]:
    size = next(own.shape[axis] for own, axis in zip(given, axes, strict=True) if axis is not None)
    chosen, *operands = (
        jnp.broadcast_to(own, (size, *own.shape)) if axis is None else jnp.moveaxis(own, axis, 0)
        for own, axis in zip(given, axes, strict=True)
    )
    place = jnp.clip(chosen.astype(jnp.int32), 0, len(branches) - 1)
    asks = jnp.asarray(np.array([calls_host(own.jaxpr) for own in branches]))[place].any()

    def at_once(place: Any, *operands: Any) -> list[Any]:
        quiet = [jax_core.jaxpr_as_fun(_quiet(own)) for own in branches]
        return list(jax.vmap(lambda k, *own: lax.switch(k, quiet, *own))(place, *operands))

    def in_turn(place: Any, *operands: Any) -> list[Any]:
        return list(lax.map(lambda own: _choice_p.bind(*own, branches=branches), (place, *operands)))

    made = tuple(jax.make_jaxpr(own)(place, *operands) for own in (at_once, in_turn))
    results = _choice_p.bind(asks.astype(jnp.int32), place, *operands, branches=made)
    return results, [0] * len(results)


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, branches: Branches) -> tuple[list[Any], list[Any]]:
    return jvp_of_moving(functools.partial(_run, primals[0], branches=branches), primals[1:], tangents[1:])


ad.primitive_jvps[_choice_p] = _jvp
batching.primitive_batchers[_choice_p] = _batched
mlir.register_lowering(_choice_p, mlir.lower_fun(_run, multiple_results=True))


def with_choices_of_host(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr whose choices among branches that call the host are such ones, in all jaxprs within; itself without any.

    Those with effects stay as they are: JAX does not map them.
    """
    if not calls_host(closed.jaxpr):
        return closed

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list) -> list:
        eqn = with_inner(eqn, lambda _, body: changed(body) if calls_host(body.jaxpr) else body)
        if eqn.primitive.name == "cond" and not eqn.effects:
            branches = eqn.params["branches"]
            if any(calls_host(own.jaxpr) for own in branches):
                eqn = eqn.replace(primitive=_choice_p, params={"branches": tuple(branches)})
        return builder.equation(eqn, operands)

    changed = each_once(lambda body: rebuild(body, run))
    return changed(closed)
