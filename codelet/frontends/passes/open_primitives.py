"""Open primitives: those of other libraries, and maps over devices, replaced by their implementations.

In comes a jaxpr, out comes one in which a primitive without a rule is the equations of its implementation, if that is
written in JAX. Equinox's and lineax's are. These are spread over the tiles as any others are. Its derivatives stay
those that its library gave it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.extend import core as jax_core
from jax.sharding import Sharding

from codelet.frontends.passes.bodies import Bodies
from codelet.frontends.rules import RULES
from codelet.frontends.shards import IDENTITIES, derives_itself, of_shards
from codelet.frontends.structure import dtype_of, shape_of
from codelet.jaxprs.equations import bind, inner_jaxprs, may_run_early, with_every_result
from codelet.jaxprs.jvp_of_moving import jvp_of_moving
from codelet.jaxprs.primitives import ELEMENTWISE
from codelet.jaxprs.rebuild import Builder, rebuild, struct


def _implementation(primitive: Any) -> Callable[..., Any] | None:
    """The implementation of a primitive of another library; None for JAX's primitives, which XLA runs."""
    function = primitive.impl
    while isinstance(function, functools.partial):
        function = function.func
    own = getattr(function, "__module__", None) or "jax"
    return None if own.partition(".")[0] in ("jax", "jaxlib") else primitive.impl


def _types(atoms: Sequence[Any]) -> list[Any]:
    return [(shape_of(atom), dtype_of(atom)) for atom in atoms]


def _has(jaxpr: jax_core.Jaxpr, eqn: jax_core.JaxprEqn) -> bool:
    """Whether a jaxpr, or one within, only repeats the equation itself."""
    return any(
        (own.primitive is eqn.primitive and _types(own.invars) == _types(eqn.invars))
        or any(_has(inner, eqn) for inner in inner_jaxprs(own))
        for own in jaxpr.eqns
    )


def _is_smooth(atoms: Sequence[Any]) -> bool:
    return any(jnp.issubdtype(dtype_of(atom), jnp.inexact) for atom in atoms)


def _written(eqn: jax_core.JaxprEqn) -> jax_core.ClosedJaxpr | None:
    """The body of an equation, as its library wrote it in JAX; None where that is not known."""
    if eqn.primitive.name in RULES or eqn.primitive.name in ELEMENTWISE or not may_run_early(eqn):
        return None
    implementation = _implementation(eqn.primitive)
    if implementation is None:
        return None

    def run(*operands: Any) -> list[Any]:
        results = implementation(*operands, **eqn.params)
        return list(results) if eqn.primitive.multiple_results else [results]

    try:
        closed = jax.make_jaxpr(run)(*map(struct, eqn.invars))
    except Exception:  # it is not written in JAX, but in NumPy or another language
        return None
    return None if _types(closed.jaxpr.outvars) != _types(eqn.outvars) or _has(closed.jaxpr, eqn) else closed


def _opened(eqn: jax_core.JaxprEqn) -> jax_core.ClosedJaxpr | None:
    """The body of an equation, with its derivatives; None where it stays as it is."""
    structs, is_mapped = list(map(struct, eqn.invars)), eqn.primitive.name == "shard_map"
    closed = jax.make_jaxpr(of_shards(eqn))(*structs) if is_mapped else _written(eqn)
    is_smooth = _is_smooth(eqn.invars) and _is_smooth(eqn.outvars)
    if closed is None or not is_smooth or (is_mapped and derives_itself(eqn)):
        return closed
    whole, derived = with_every_result(eqn), jax.custom_jvp(jax_core.jaxpr_as_fun(closed))
    derived.defjvp(
        lambda given, slopes: jvp_of_moving(lambda *own: bind(whole, own), given, slopes), symbolic_zeros=True
    )
    return jax.make_jaxpr(derived)(*structs)


def _anywhere(eqn: jax_core.JaxprEqn) -> jax_core.JaxprEqn:
    """An equation that does not say over which devices its results are spread out."""
    params = {name: None if isinstance(value, Sharding) else value for name, value in eqn.params.items()}
    return eqn if all(params[name] is value for name, value in eqn.params.items()) else eqn.replace(params=params)


def open_primitives(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr in which primitives of other libraries are opened, in each of its bodies too."""

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list) -> list:
        if eqn.primitive.name in IDENTITIES:
            return operands
        opened = _opened(eqn)
        if opened is None:
            return builder.equation(bodies.changed(_anywhere(eqn)), operands)
        return builder.inlined(open_primitives(opened), operands)

    bodies = Bodies(lambda body, _: rebuild(body, run))
    return rebuild(closed, run)
