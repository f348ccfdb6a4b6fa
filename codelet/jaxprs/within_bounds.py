"""Within bounds: the equations of a jaxpr that handle indices beyond an array, left out where there are none.

JAX counts an index that is negative from the end, and drops or fills elements beyond; a loop's counter is neither. In
comes a jaxpr, out comes one without choices that are always made in one way, and without limits that are never reached;
its gathers and scatters promise to lie within, where they do (`intervals.py`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, bodies_of, with_bodies
from codelet.jaxprs.intervals import Intervals, Known, only
from codelet.jaxprs.primitives import SCATTERS, is_understood
from codelet.jaxprs.rebuild import Builder, rebuild


def _of_operands(eqn: jax_core.JaxprEqn, known: Sequence[Known]) -> int | None:
    """Which of its operands an equation always makes; None where that depends."""
    if is_understood(eqn, "select_n"):
        number, count = only(known[0]), len(eqn.invars) - 1
        return 1 + number if number is not None and 0 <= number < count else None
    if not is_understood(eqn, "max", "min", "clamp") or any(own is None for own in known):
        return None
    if eqn.primitive.name == "clamp":
        low, own, high = known
        return 1 if np.all(low.high <= own.low) and np.all(own.high <= high.low) else None  # type: ignore[union-attr]
    first, second = known
    if np.all(first.high <= second.low):  # type: ignore[union-attr]
        return 0 if eqn.primitive.name == "min" else 1
    if np.all(second.high <= first.low):  # type: ignore[union-attr]
        return 1 if eqn.primitive.name == "min" else 0
    return None


def limits(eqn: jax_core.JaxprEqn) -> list[int]:
    """Of each column of the indices of a gather or scatter, the last place at which a slice lies within."""
    numbers, shape = eqn.params["dimension_numbers"], eqn.invars[0].aval.shape  # type: ignore[attr-defined]
    if eqn.primitive.name == "gather":
        sizes, indexed = eqn.params["slice_sizes"], numbers.start_index_map
    else:
        gone = {*map(int, numbers.inserted_window_dims), *map(int, numbers.operand_batching_dims)}
        window = iter(eqn.invars[2].aval.shape[int(d)] for d in numbers.update_window_dims)  # type: ignore[attr-defined]
        sizes = [1 if d in gone else next(window) for d in range(len(shape))]
        indexed = numbers.scatter_dims_to_operand_dims
    return [shape[int(d)] - sizes[int(d)] for d in indexed]


def _mode(eqn: jax_core.JaxprEqn, known: Sequence[Known]) -> lax.GatherScatterMode | None:
    """The mode of a gather or scatter whose slices all lie within, however it was given; None of any other equation.

    A single slice that is put is clamped, as by an update at a place; of several, all are promised. What was promised
    and is not known stays as it is: JAX's own derivatives promise it of slices that XLA then drops.
    """
    if not is_understood(eqn, "gather", *SCATTERS):
        return None
    own = known[1]
    if own is None or not (np.all(own.low >= 0) and np.all(own.high <= np.asarray(limits(eqn), object))):
        return None
    is_one = eqn.primitive.name != "gather" and math.prod(eqn.invars[1].aval.shape[:-1]) == 1  # type: ignore[attr-defined]
    return lax.GatherScatterMode.CLIP if is_one else lax.GatherScatterMode.PROMISE_IN_BOUNDS


_COMPARED = ("eq", "ne", "lt", "le", "gt", "ge", "max", "min", "clamp")


def _chooses(jaxpr: jax_core.Jaxpr) -> bool:
    """Whether there is anything to decide: places of slices, or integers that are compared."""
    for eqn in jaxpr.eqns:
        if eqn.primitive.name in ("gather", *SCATTERS, "argmax", "argmin"):
            return True
        dtype = getattr(eqn.invars[0].aval, "dtype", None) if eqn.primitive.name in _COMPARED else None
        if isinstance(dtype, np.dtype) and dtype.kind in "iu":
            return True
    return any(_chooses(body.jaxpr) for eqn in jaxpr.eqns for body in bodies_of(eqn))


def within_bounds(closed: jax_core.ClosedJaxpr, given: Sequence[Known] = ()) -> jax_core.ClosedJaxpr:
    """A jaxpr that does nothing about indices beyond the ends where there are none, in loops and branches as well.

    Args:
        closed: the jaxpr.
        given: the known intervals of its first inputs.
    """
    if not _chooses(closed.jaxpr):
        return closed
    known = Intervals(closed, given)

    def run(builder: Builder, eqn: jax_core.JaxprEqn, operands: list[Atomic]) -> Sequence[Atomic]:
        own = [known.at(atom) for atom in eqn.invars]
        made = _of_operands(eqn, own)
        if made is not None and operands[made].aval == eqn.outvars[0].aval:
            return [operands[made]]
        mode = _mode(eqn, own)
        if mode is not None:
            eqn = eqn.replace(params={**eqn.params, "mode": mode})
        bodies = iter(known.entered.get(id(eqn), ()))
        return builder.equation(with_bodies(eqn, lambda body: within_bounds(body, next(bodies))), operands)

    return rebuild(closed, run)
