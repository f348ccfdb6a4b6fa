"""Shards: functions mapped over a mesh of devices (`jax.shard_map`, `jax.pmap`), on one machine.

In comes an equation with the program of each device on its part of the operands, and its communication. Out comes the
same of whole operands: the parts side by side, mapped over the axes of the mesh.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.extend import core as jax_core

from codelet.frontends.structure import shape_of
from codelet.jaxprs.equations import CALLS, RunEquation, bind, evaluate, inner_jaxprs, with_bodies, with_jaxprs
from codelet.jaxprs.primitives import CUSTOM
from codelet.jaxprs.rebuild import struct

IDENTITIES = ("pvary", "pcast", "pbroadcast", "reshard", "sharding_constraint")
"""Primitives that say where something is, which on one machine is nowhere else."""


def _axes(spec: Any, ndim: int, names: Sequence[str]) -> list[tuple[str, ...]]:
    """Over which axes of the mesh each dimension is spread out."""
    given = [() if own is None else (own,) if isinstance(own, str) else tuple(own) for own in spec]
    own = [tuple(name for name in axes if name in names) for axes in given]
    return [*own, *[()] * (ndim - len(own))]


def _split(array: Any, axes: Sequence[tuple[str, ...]], sizes: dict[str, int]) -> Any:
    """An array with an axis before its for each of the mesh's that it is spread over, in their order."""
    shape: list[int] = []
    named: dict[str, int] = {}
    for size, own in zip(array.shape, axes, strict=True):
        for name in own:
            named[name] = len(shape)
            shape.append(sizes[name])
        shape.append(size // math.prod(sizes[name] for name in own))
    first = [named[name] for name in sizes if name in named]
    return array.reshape(shape).transpose(*first, *(k for k in range(len(shape)) if k not in first))


def _joined(array: Any, axes: Sequence[tuple[str, ...]], sizes: dict[str, int]) -> Any:
    """The inverse, of an array with axes for all of the mesh's; along those that it is not spread over, the first."""
    spread = [name for own in axes for name in own]
    array = array[tuple(slice(None) if name in spread else 0 for name in sizes)]
    named = [name for name in sizes if name in spread]
    order: list[int] = []
    for d, own in enumerate(axes):
        order += [*(named.index(name) for name in own), len(named) + d]
    parts = array.shape[len(named) :]
    shape = [part * math.prod(sizes[name] for name in own) for part, own in zip(parts, axes, strict=True)]
    return array.transpose(order).reshape(shape)


def _runner(keeps_rules: bool) -> RunEquation:
    """Runs an equation of each device's program, by `jax.vmap`'s meaning of named axes.

    Args:
        keeps_rules: whether functions with derivative rules keep them.
    """

    def run(eqn: jax_core.JaxprEqn, given: Sequence[Any]) -> Sequence[Any]:
        if eqn.primitive.name in IDENTITIES:
            return given
        if eqn.primitive.name == "psum_invariant":
            return lax.psum(list(given), eqn.params["axes"])
        if eqn.primitive.name in CALLS:
            return evaluate(eqn.params["jaxpr"], given, run)
        if eqn.primitive.name in CUSTOM and not keeps_rules:
            return evaluate(eqn.params["call_jaxpr"], given, run)
        return bind(with_bodies(eqn, body), given)

    def body(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
        return jax.make_jaxpr(lambda *given: evaluate(closed, given, run))(*map(struct, closed.jaxpr.invars))

    return run


def _has_rules(jaxpr: jax_core.Jaxpr) -> bool:
    return any(eqn.primitive.name in CUSTOM or any(map(_has_rules, inner_jaxprs(eqn))) for eqn in jaxpr.eqns)


def _nowhere(jaxpr: jax_core.Jaxpr, like: jax_core.JaxprEqn) -> jax_core.Jaxpr:
    """A jaxpr whose equations are of no device's part of a mesh, but of where another equation is."""

    def changed(own: Any) -> Any:
        if isinstance(own, jax_core.ClosedJaxpr):
            return jax_core.ClosedJaxpr(_nowhere(own.jaxpr, like), own.consts)
        return _nowhere(own, like)

    equations = [
        eqn.replace(ctx=like.ctx, params={name: with_jaxprs(value, changed) for name, value in eqn.params.items()})
        for eqn in jaxpr.eqns
    ]
    return jaxpr.replace(eqns=equations)


def derives_itself(eqn: jax_core.JaxprEqn) -> bool:
    """Whether the derivatives of a mapping are those of the result of `of_shards`.

    Those of functions with derivative rules are not, where JAX keeps along which axes a value varies: it expects this
    of the rules' results, too.
    """
    return not eqn.params["check_vma"] or not _has_rules(eqn.params["jaxpr"])


def of_shards(eqn: jax_core.JaxprEqn) -> Callable[..., list[Any]]:
    """The results of a mapping over a mesh, of whole operands."""
    parameters = eqn.params
    manual = parameters.get("newly_manual_axes", parameters.get("manual_axes"))
    mesh = parameters["mesh"]
    sizes = {name: int(mesh.shape[name]) for name in mesh.axis_names if name in manual}
    inputs, outputs = (
        [_axes(spec, len(shape_of(atom)), list(sizes)) for spec, atom in zip(specs, atoms, strict=True)]
        for specs, atoms in ((parameters["in_specs"], eqn.invars), (parameters["out_specs"], eqn.outvars))
    )

    jaxpr, run_each = _nowhere(parameters["jaxpr"], eqn), _runner(derives_itself(eqn))

    def run(*operands: Any) -> list[Any]:
        mapped: Callable[..., Any] = lambda *given: evaluate(jaxpr, given, run_each)  # noqa: E731
        for name in reversed(sizes):
            within = [0 if any(name in own for own in axes) else None for axes in inputs]
            mapped = jax.vmap(mapped, within, 0, axis_name=name, axis_size=sizes[name])
        given = [_split(jnp.asarray(own), axes, sizes) for own, axes in zip(operands, inputs, strict=True)]
        return [_joined(own, axes, sizes) for own, axes in zip(mapped(*given), outputs, strict=True)]

    return run
