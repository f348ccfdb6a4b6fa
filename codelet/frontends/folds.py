"""Folds: reductions by any function, from any beginning, by one vertex for each result.

XLA's reductions begin with a value that is combined once with the elements, in their order, and skip padding; so do
these. `jax.vmap` has no rule for a reduction whose beginning is mapped over, as on tiles every field of a vertex is.
It has rules for a loop over the elements, which has derivatives too.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet import ops
from codelet.frontends.for_each import add_for_each_view
from codelet.frontends.values import Value, number_of
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk

MOST_UNROLLED = 16
"""Elements up to which a fold is written out, which costs less than a loop does."""


def _turn(function: Any, held: Sequence[Any], given: Sequence[Any], counts: Any) -> list[Any]:
    """What is held after one element of each array; as before where the element does not count."""
    made = function(*held, *given)
    return list(made) if counts is None else [jnp.where(counts, a, b) for a, b in zip(made, held, strict=True)]


def folded(closed: jax_core.ClosedJaxpr, starts: Sequence[Any], arrays: Sequence[Any], counts: Any = None) -> list[Any]:
    """Arrays folded to numbers, all elements in order.

    Args:
        closed: what makes of what is held, and of an element of each array, what is held next.
        starts: what is held at first.
        arrays: of one shape.
        counts: which elements count; all where it is None.
    """
    function = jax_core.jaxpr_as_fun(closed)
    rows = [jnp.reshape(own, -1) for own in (*arrays, *(() if counts is None else (counts,)))]
    split = lambda row: (row[: len(arrays)], row[len(arrays)] if counts is not None else None)  # noqa: E731
    if rows[0].size <= MOST_UNROLLED:
        held = list(starts)
        for k in range(rows[0].size):
            held = _turn(function, held, *split([row[k] for row in rows]))
        return held
    return lax.scan(lambda held, row: (_turn(function, held, *split(row)), None), list(starts), rows)[0]


def add_folds(
    walk: Walk,
    closed: jax_core.ClosedJaxpr,
    tensors: Sequence[Tensor],
    starts: Sequence[Value],
    shape: Sequence[int],
    index: Any,
    counts: Tensor | None = None,
) -> Any:
    """Add a vertex for each result of a reduction.

    Args:
        walk: where.
        closed: what makes of what is held, and of an element of each array, what is held next.
        tensors: the arrays.
        starts: what is held at first: numbers.
        shape: of the results.
        index: that of the elements of a result, by its place.
        counts: which elements count, an array like the others; all where it is None.
    """
    numbers = [number_of(own) if isinstance(own, np.ndarray) else None for own in starts]
    late = [own for own, number in zip(starts, numbers, strict=True) if number is None]

    def fold(*given: Any) -> list[Any]:
        arrays, rest = given[: len(tensors)], list(given[len(tensors) :])
        own = rest.pop(0) if counts is not None else None
        left = iter(rest)
        held = [next(left) if number is None else jnp.asarray(number) for number in numbers]
        return folded(closed, held, arrays, own)

    viewed = [*tensors, *(() if counts is None else (counts,))]
    return add_for_each_view(walk, viewed, shape, index, fold, late)


def lines_folded(
    walk: Walk,
    closed: jax_core.ClosedJaxpr,
    tensors: Sequence[Tensor],
    starts: Sequence[Value],
    axes: Sequence[int],
) -> Any:
    """Add the folds of arrays along some axes."""
    along = sorted(int(axis) for axis in axes)
    rest = [d for d in range(tensors[0].ndim) if d not in along]
    shape = tuple(tensors[0].shape[d] for d in rest)
    if not along:  # XLA begins with nothing where nothing is reduced
        return list(tensors)
    if not tensors[0].size:
        return [spread(walk, own, shape) for own in starts]
    turned = [own.transpose([*rest, *along]) for own in tensors]
    return add_folds(walk, closed, turned, starts, shape, lambda places: places)


def spread(walk: Walk, start: Value, shape: Sequence[int]) -> Value:
    """A number as each of so many results."""
    return np.broadcast_to(start, shape) if isinstance(start, np.ndarray) else start.broadcast_to(tuple(shape))


def is_inside(padding: Sequence[tuple[int, int, int]], shape: Sequence[int]) -> np.ndarray:
    """Which elements of a padded array are the array's own."""
    inside = np.ones((), bool)
    for (low, high, between), extent in zip(padding, shape, strict=True):
        reach = (extent - 1) * (between + 1)
        places = np.arange(low + max(0, reach + 1) + high) - low
        inside = inside[..., None] & (places >= 0) & (places <= reach) & (places % (between + 1) == 0)
    return inside


def operation_of(closed: jax_core.ClosedJaxpr) -> str | None:
    """The primitive of two operands that all of a function is; None where it is more."""
    own = closed.jaxpr
    if len(own.eqns) != 1 or len(own.invars) != 2 or list(own.outvars) != list(own.eqns[0].outvars):
        return None
    (eqn,) = own.eqns
    return (
        eqn.primitive.name
        if all(not isinstance(atom, jax_core.Literal) for atom in eqn.invars)
        and set(eqn.invars) == set(own.invars)
        and len(eqn.invars) == 2
        else None
    )


def from_start(walk: Walk, operation: str, start: Value, made: Tensor) -> Tensor:
    """What an operation makes of a beginning and of each result of a reduction that began with nothing."""
    function = {"add": lax.add, "mul": lax.mul, "max": lax.max, "min": lax.min}[operation]
    own = walk.tensor(spread(walk, start, made.shape))
    return ops.map(walk.graph, function, own, made, grain=walk.grain, name=f"{operation} the beginning")
