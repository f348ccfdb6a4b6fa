"""Equal constants: tables of the same numbers become one, so that what is computed of them is computed once.

A table that two families are read by is two arrays when it has been emitted, as one that a vertex gathers by and its
adjoint again. XLA, to which tables are arguments, could not know that they are equal: it would gather twice.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from jax.core import Tracer
from jax.extend import core as jax_core

from lowering.arrays import SMALL


def _sample(array: np.ndarray) -> Hashable:
    """What equal arrays have in common, and few others."""
    flat = array.reshape(-1)
    return array.shape, array.dtype, flat[:: -(-len(flat) // SMALL)].tobytes()


def equal_constants_once(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with one array for tables that are equal."""
    alike: dict[Hashable, list[tuple[np.ndarray, Any]]] = {}
    consts = []
    for const in closed.consts:
        is_known = not isinstance(const, Tracer) and getattr(const, "is_fully_addressable", True)
        is_table = is_known and np.issubdtype(const.dtype, np.integer) and const.size > SMALL
        if not is_table:
            consts.append(const)
            continue
        array = np.asarray(const)
        others = alike.setdefault(_sample(array), [])
        equal = next((other for values, other in others if np.array_equal(values, array)), None)
        if equal is None:
            others.append((array, const))
        consts.append(const if equal is None else equal)
    return jax_core.ClosedJaxpr(closed.jaxpr, consts)
