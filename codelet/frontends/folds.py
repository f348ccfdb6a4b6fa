"""Folds: reductions by any function, from any beginning, by one vertex for each result."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from codelet import ops
from codelet.frontends.for_each import add_for_each_view
from codelet.frontends.values import Value, number_of
from codelet.jaxprs.folds import COMBINED, begins_with_nothing, folded
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


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
        closed: the function from the state, and an element of each array, to the next state.
        tensors: the arrays.
        starts: the first state: numbers.
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
        return folded(closed, held, [array.reshape(-1) for array in arrays], None if own is None else own.reshape(-1))

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
    if begins_with_nothing(tensors[0].shape, along):
        return [own.reshape(shape) for own in tensors]
    if not tensors[0].size:
        return [spread(walk, own, shape) for own in starts]
    turned = [own.transpose([*rest, *along]) for own in tensors]
    return add_folds(walk, closed, turned, starts, shape, lambda places: places)


def spread(walk: Walk, start: Value, shape: Sequence[int]) -> Value:
    """A number as each of so many results."""
    return np.broadcast_to(start, shape) if isinstance(start, np.ndarray) else start.broadcast_to(tuple(shape))


def is_inside(padding: Sequence[tuple[int, int, int]], shape: Sequence[int]) -> np.ndarray:
    """Which elements of a padded array come from the array."""
    inside = np.ones((), bool)
    for (low, high, between), extent in zip(padding, shape, strict=True):
        reach = (extent - 1) * (between + 1)
        places = np.arange(low + max(0, reach + 1) + high) - low
        inside = inside[..., None] & (places >= 0) & (places <= reach) & (places % (between + 1) == 0)
    return inside


def from_start(walk: Walk, operation: str, start: Value, made: Tensor) -> Tensor:
    """The combination of a beginning and of each result of a reduction that began with nothing."""
    own = walk.tensor(spread(walk, start, made.shape))
    return ops.map(walk.graph, COMBINED[operation], own, made, grain=walk.grain, name=f"{operation} the beginning")
