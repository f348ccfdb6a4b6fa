"""One vertex: a primitive without a rule is run whole, by one vertex on one tile."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import jax
import numpy as np
from jax.extend import core as jax_core

from codelet.errors import CollectiveError, OneVertexWarning, user_line
from codelet.frontends.rules import RULES
from codelet.frontends.values import Value, data_type, number_of, unwrapped, wrapped
from codelet.jaxprs.equations import bind, inner_jaxprs
from codelet.ops.prices import vertex_cycles
from codelet.tracing.codelet_from_jaxpr import codelet_from_jaxpr
from codelet.tracing.codelets import Codelet
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


def _named_axes(eqn: jax_core.JaxprEqn) -> list[str]:
    """The named axes along which an equation speaks to other devices, or one in it does."""
    given = [eqn.params[name] for name in ("axes", "axis_name") if name in eqn.params]
    names = [own for value in given for own in (value if isinstance(value, (tuple, list)) else (value,))]
    found = [own for own in names if isinstance(own, str)]
    return found + [own for jaxpr in inner_jaxprs(eqn) for inner in jaxpr.eqns for own in _named_axes(inner)]


def check_no_collective(eqn: jax_core.JaxprEqn) -> None:
    """See that an equation speaks to no other devices.

    Raises:
        CollectiveError: it does.
    """
    if names := _named_axes(eqn):
        raise CollectiveError(
            f"{eqn.primitive.name!r} is a collective over devices, and a graph is of one machine",
            given=f"the named axis {names[0]!r}",
            expected="no named axes; those that jax.vmap(..., axis_name=...) makes are known",
            fix="cl.trace the function that each device runs, and join their results outside of it",
        )


def add_one_vertex(
    walk: Walk, eqn: jax_core.JaxprEqn, given: Sequence[Value], *, as_planned: bool = False
) -> list[Value]:
    """Add a vertex that runs an equation: its results.

    Args:
        walk: where.
        eqn: which.
        given: its operands.
        as_planned: True if a rule chooses one vertex, so that a warning is given only for many elements.

    Warns:
        OneVertexWarning: of the primitive and its operands.

    Raises:
        CollectiveError: it speaks to other devices.
    """
    check_no_collective(eqn)
    fields: dict[str, Tensor] = {}
    names: list[str | None] = []
    for value in given:
        number = number_of(value) if isinstance(value, np.ndarray) else None
        names.append(None if number is not None else f"x{len(fields)}")
        if names[-1] is not None:
            fields[names[-1]] = walk.tensor(value)
    kept = [var for var in eqn.outvars if not isinstance(var, jax_core.DropVar)]

    def run(*held: Any) -> list[Any]:
        left = iter(held)
        operands = [
            wrapped(jax.numpy.asarray(value) if name is None else next(left), atom.aval)
            for name, value, atom in zip(names, given, eqn.invars, strict=True)
        ]
        results = dict(zip(eqn.outvars, bind(eqn, operands), strict=True))
        return [unwrapped(results[var]) for var in kept] if kept else [jax.numpy.zeros(())]

    structs = [jax.ShapeDtypeStruct(tensor.shape, tensor.dtype) for tensor in fields.values()]
    outputs = ["out"] if len(kept) <= 1 else [f"out{k}" for k in range(len(kept))]
    name = eqn.primitive.name.replace("-", "_")
    codelet = codelet_from_jaxpr(jax.make_jaxpr(run)(*structs), list(fields), outputs, name=name)
    with walk.graph.scope(name, unique=True):
        made = walk.graph.add_vertex("run", codelet, **fields)
    found = [made] if len(outputs) == 1 else [made[own] for own in outputs]
    warn_of_one_vertex(walk, codelet, fields, found, as_planned=as_planned)
    results = iter(found)
    return [
        np.zeros(()) if isinstance(var, jax_core.DropVar) else next(results).reshape(data_type(var.aval)[0])
        for var in eqn.outvars
    ]


MANY = 4_096
"""Elements beyond which every vertex that is alone is told, not only the first of a primitive without a rule."""


def warn_of_one_vertex(
    walk: Walk, codelet: Codelet, fields: Mapping[str, Tensor], results: Sequence[Value], *, as_planned: bool
) -> None:
    """Describe the operands of the one vertex that runs the equation being added.

    Of many elements always, of few once for each primitive, and not where a rule plans it so.
    """
    name = walk.equation.primitive.name
    size = sum(math.prod(own.shape) for own in (*fields.values(), *results))
    if not walk.tells or (size <= MANY and (as_planned or name in walk.told)):
        return
    walk.told.add(name)
    target = walk.graph.target
    types = {field: (own.shape, own.dtype) for field, own in fields.items()}
    cycles = vertex_cycles(target, codelet, types).tile_cycles(target.num_workers)
    why = (
        f"its rule, {RULES[name].by!r}, spreads it no further" if name in RULES else "no rule spreads it over the tiles"
    )
    line = user_line()
    warnings.warn(
        f"one vertex on one tile runs {name!r}, of {size:,} elements, in about {cycles:,} cycles: {why}; "
        f"docs/frontends.md lists the rules{'' if line is None else f'; at {line}'}",
        OneVertexWarning,
        stacklevel=2,
    )
