"""Equal constants: tables of the same numbers become one, so that what is computed of them is computed once.

A table that two families are read by is two arrays when it has been emitted, as one that a vertex gathers by and its
adjoint again. XLA, to which tables are arguments, could not know that they are equal: it would gather twice.
They may be of several shapes: what a vertex gathers by is in one dimension what its contributions are summed by.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet.hostcopies import lies_here
from codelet.jaxprs.rebuild import Builder, opened
from lowering.arrays import SMALL


def _sample(flat: np.ndarray) -> Hashable:
    """What equal arrays have in common, and few others."""
    return len(flat), flat.dtype, flat[:: -(-len(flat) // SMALL)].tobytes()


def is_table(const: Any) -> bool:
    return lies_here(const) and np.issubdtype(const.dtype, np.integer) and const.size > SMALL


def _chosen(consts: Sequence[Any]) -> list[Any]:
    """For each constant the one that stands for it: of those that are equal the first of the fewest dimensions.

    Kernels of ragged fields hold theirs in one dimension, and a lowered graph, which tells how it runs, holds kernels.
    """
    alike: dict[Hashable, list[tuple[np.ndarray, Any]]] = {}
    chosen = dict(enumerate(consts))
    for k in sorted(chosen, key=lambda k: np.ndim(consts[k])):
        if is_table(consts[k]):
            flat = np.asarray(consts[k]).reshape(-1)
            others = alike.setdefault(_sample(flat), [])
            equal = next((other for values, other in others if np.array_equal(values, flat)), None)
            if equal is None:
                others.append((flat, consts[k]))
            else:
                chosen[k] = equal
    return [chosen[k] for k in range(len(consts))]


def equal_constants_once(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with one array for tables that are equal, whatever their shapes."""
    jaxpr, consts = closed.jaxpr, _chosen(closed.consts)
    shapes = [np.shape(const) for const in closed.consts]
    if all(np.shape(own) == shape for own, shape in zip(consts, shapes, strict=True)):
        return jax_core.ClosedJaxpr(jaxpr, consts)
    builder = Builder(jaxpr.invars, jaxpr.debug_info)
    tables = []
    for own, shape in zip(consts, shapes, strict=True):
        table = builder.constant(own)
        if np.shape(own) != shape:
            (table,) = builder.traced(lambda array, shape=shape: [jnp.reshape(array, shape)], [table])
        tables.append(table)
    return builder.closed(builder.inlined(opened(closed), [*tables, *builder.invars]))
