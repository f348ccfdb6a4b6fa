"""Small updates, for which XLA would go over the whole array, are scattered.

At a known place, by what is computed of the elements that lie there: XLA's CPU backend fuses such an update with the
slice of the same place, and runs the fusion over the whole array (jax 0.10.2; not in loops whose iteration decides the
place): a compute set that changes 20 of 131,072 elements in place took 400 us. Scattered to their positions they take 2
us, 2,000 of them 6 us.

At a place known only at run time, of an array that is new: the update is fused with the map by element that makes the
array, and each element is asked whether it is updated. Whole rows cost nothing by that; a part of them, or of the only
row, is faster by a scatter to the one place, which is made once the array is there (us an iteration of a loop, two
cores):

    array          of it          update    scatter
    (512,)         (1,)             0.37       0.26
    (1500,)        (1,)             0.50       0.18
    (1500,)        (1000,)          1.33       0.63
    (20000,)       (64,)           11.09       3.04
    (40, 40)       (8, 8)           0.39       0.43
    (300, 300)     (280, 280)      28.93      11.38
    (300, 300)     (1, 300)         8.89       9.38
"""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers, bodies_of, starts_of, variables
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from codelet.jaxprs.rebuild import rewrite
from lowering.arrays import Array
from lowering.jaxprs.in_place import MOST_SCATTERED, scattered

FEWEST = 1024
"""Elements of the array from which on an update at a known place is scattered; at a late place half as many."""

_MOST = 64
"""Equations that are looked through for the slice."""


def _known(eqn: jax_core.JaxprEqn) -> tuple[int, ...] | None:
    """Where a small update is put; None of any other."""
    if not is_understood(eqn, "dynamic_update_slice") or variables(eqn.invars[2:]):
        return None
    array, update = (atom.aval.shape for atom in eqn.invars[:2])  # type: ignore[attr-defined]
    if math.prod(array) < FEWEST or not 1 < math.prod(update) < MOST_SCATTERED * math.prod(array):
        return None
    starts = [int(atom.val) for atom in eqn.invars[2:]]  # type: ignore[union-attr]
    return tuple(min(max(0, at), n - m) for at, n, m in zip(starts, array, update, strict=True))


def _is_late(eqn: jax_core.JaxprEqn, makers: Makers) -> bool:
    """Whether an equation updates a part of rows, at a place known only at run time, of an array made by element."""
    if not is_understood(eqn, "dynamic_update_slice") or not variables(eqn.invars[2:]):
        return False
    array, update = (atom.aval.shape for atom in eqn.invars[:2])  # type: ignore[attr-defined]
    maker = makers.of(eqn.invars[0])
    if (
        maker is None
        or not is_understood(maker, *ELEMENTWISE)
        or 2 * math.prod(array) < FEWEST
        or not math.prod(update)
    ):
        return False
    row = next(d for d in reversed(range(len(array))) if array[d] > 1)
    return update[row] < array[row] <= np.iinfo(np.int32).max


def _within(start: Array, most: int) -> Array:
    """A place from 0 to `most` as int32, in whatever dtype it is."""
    kind = start.dtype.type
    return lax.clamp(kind(0), start, kind(min(most, np.iinfo(kind).max))).astype(np.int32)


def _put(array: Array, update: Array, *starts: Array) -> list[Array]:
    """An array with a slice of it put in another's place, as `lax.dynamic_update_slice`, by a scatter."""
    places = [_within(start, n - m) for start, n, m in zip(starts, array.shape, update.shape, strict=True)]
    every = tuple(range(array.ndim))
    numbers = lax.ScatterDimensionNumbers(every, (), every)
    mode = lax.GatherScatterMode.PROMISE_IN_BOUNDS
    return [
        lax.scatter(array, jnp.stack(places), update, numbers, indices_are_sorted=True, unique_indices=True, mode=mode)
    ]


def _slow(closed: jax_core.ClosedJaxpr) -> list[jax_core.JaxprEqn]:
    """The updates for which XLA would go over the whole array, in the bodies of loops as well."""
    makers = Makers(closed.jaxpr.eqns)
    found = [put for put in closed.jaxpr.eqns if _is_late(put, makers)]
    for put in closed.jaxpr.eqns:
        starts = _known(put)
        if starts is None:
            continue
        array, update = put.invars[:2]
        shape, left, seen = update.aval.shape, [update], 0  # type: ignore[attr-defined]
        while left and seen < _MOST:
            var = left.pop()
            eqn, seen = makers.of(var), seen + 1
            if eqn is None:
                continue
            if eqn.invars[0] is array and starts_of(eqn, var) == starts and var.aval.shape == shape:  # type: ignore[attr-defined]
                found.append(put)
                break
            if is_understood(eqn, *ELEMENTWISE, "reshape"):
                left += variables(eqn.invars)
    return found + [eqn for put in closed.jaxpr.eqns for body in bodies_of(put) for eqn in _slow(body)]


def scatter_small_updates(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that scatters small updates for which XLA would go over the whole array, in loops as well."""
    found = {id(eqn) for eqn in _slow(closed)}

    def rule(eqn: jax_core.JaxprEqn) -> Any:
        if id(eqn) not in found:
            return None
        starts = _known(eqn)
        return _put if starts is None else lambda array, update, *_: [scattered(array, update, starts)]

    return rewrite(closed, rule) if found else closed
