"""Folds: reductions by any function, from any beginning, as loops over the elements.

XLA's reductions begin with a value that is combined once with the elements, in their order, and skip padding; so do
these. Where a reduction that is not one of windows has a single element for each result, XLA takes it as it is and
begins with nothing, compiled or not. JAX's gradients follow; so do these. `jax.vmap` has no rule for a reduction whose
beginning is mapped over, as on tiles every field of a vertex is. It has rules for a loop over the elements, which has
derivatives too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import variables

MOST_UNROLLED = 16
"""Elements up to which a fold is written out, which costs less than a loop does."""

COMBINED: dict[str, Callable[[Any, Any], Any]] = {"add": lax.add, "mul": lax.mul, "max": lax.max, "min": lax.min}
"""Operations that have reductions of their own, which begin with nothing."""

_KINDS = {"add": "iufcV", "mul": "iufcV", "max": "iufV", "min": "iufV"}
"""The kinds of dtypes of which they have them."""


def _operation(closed: jax_core.ClosedJaxpr) -> str | None:
    """The primitive of two operands that all of a function is; None where it is more."""
    own = closed.jaxpr
    if len(own.eqns) != 1 or len(own.invars) != 2 or list(own.outvars) != list(own.eqns[0].outvars):
        return None
    (eqn,) = own.eqns
    is_all = len(variables(eqn.invars)) == len(eqn.invars) == 2 and set(eqn.invars) == set(own.invars)
    return eqn.primitive.name if is_all else None


def plain_operation(closed: jax_core.ClosedJaxpr, dtype: np.dtype) -> str | None:
    """The one of `COMBINED` that all of a function is, if it has a special reduction for a dtype; or None."""
    operation = _operation(closed)
    return operation if operation in COMBINED and dtype.kind in _KINDS[operation] else None


def _turn(function: Any, held: Sequence[Any], given: Sequence[Any], counts: Any) -> list[Any]:
    """The state after one element of each array; as before where the element does not count."""
    made = function(*held, *given)
    return list(made) if counts is None else [jnp.where(counts, a, b) for a, b in zip(made, held, strict=True)]


def folded(closed: jax_core.ClosedJaxpr, starts: Sequence[Any], arrays: Sequence[Any], counts: Any = None) -> list[Any]:
    """Arrays folded along their first dimension, in order.

    Args:
        closed: the function from the state, and an element of each array, to the next state.
        starts: the first state: numbers.
        arrays: of one shape.
        counts: which elements count, an array of that shape; all where it is None.
    """
    function = jax_core.jaxpr_as_fun(closed)
    for _ in arrays[0].shape[1:]:
        function = jax.vmap(function)
    held = [jnp.broadcast_to(own, arrays[0].shape[1:]) for own in starts]
    rows = [*arrays, *(() if counts is None else (counts,))]
    split = lambda row: (row[: len(arrays)], row[len(arrays)] if counts is not None else None)  # noqa: E731
    length = arrays[0].shape[0]
    if isinstance(length, int) and length <= MOST_UNROLLED:
        for k in range(length):
            held = _turn(function, held, *split([row[k] for row in rows]))
        return held
    return lax.scan(lambda held, row: (_turn(function, held, *split(row)), None), held, rows)[0]


def begins_with_nothing(shape: Sequence[Any], axes: Sequence[int]) -> bool:
    """Whether XLA's reductions of such an array along some axes take each element as a result, as it is."""
    return all(isinstance(shape[d], int) and shape[d] == 1 for d in axes)


def _reduced(
    closed: jax_core.ClosedJaxpr, arrays: Sequence[Any], starts: Sequence[Any], axes: Sequence[int], count: Any
) -> list[Any]:
    """Arrays reduced along some axes, of `count` elements, from a beginning."""
    operation = plain_operation(closed, arrays[0].dtype)
    if operation is not None:
        reduce = {"add": lax.reduce_sum, "mul": lax.reduce_prod, "max": lax.reduce_max, "min": lax.reduce_min}
        made = reduce[operation](arrays[0], tuple(axes))
        return [COMBINED[operation](jnp.broadcast_to(starts[0], made.shape), made)]
    rest = [d for d in range(arrays[0].ndim) if d not in axes]
    shape = (count, *(arrays[0].shape[d] for d in rest))
    return folded(closed, starts, [own.transpose([*sorted(axes), *rest]).reshape(shape) for own in arrays])


def reduced(
    closed: jax_core.ClosedJaxpr, arrays: Sequence[Any], starts: Sequence[Any], axes: Sequence[int]
) -> list[Any]:
    """`lax.reduce` of arrays along some axes, by a function of numbers."""
    if begins_with_nothing(arrays[0].shape, axes):
        return [lax.squeeze(own, tuple(axes)) for own in arrays]
    count = np.prod([arrays[0].shape[d] for d in axes], dtype=object)
    made = _reduced(closed, arrays, starts, axes, count)
    if isinstance(count, int):
        return made
    # A length that is known late may be one: the sum is then the only element.
    alone = [own.astype(jnp.int32) if own.dtype == bool else own for own in arrays]
    return [
        jnp.where(jnp.asarray(count) == 1, jnp.sum(only, tuple(axes)).astype(own.dtype), own)
        for only, own in zip(alone, made, strict=True)
    ]


def _along_first(array: Any, moves: Sequence[tuple[int, int, int, int]]) -> Any:
    """The elements of the windows of a padded array: those of a window along the first dimension, in order."""
    whole = array[None]
    for d, (width, stride, apart, count) in enumerate(moves, 1):
        starts = [k * apart for k in range(width)]
        parts = [lax.slice_in_dim(whole, at, at + (count - 1) * stride + 1, stride, d) for at in starts]
        whole = jnp.stack(parts, 1).reshape((-1, *parts[0].shape[1:]))
    return whole


def windows_reduced(
    closed: jax_core.ClosedJaxpr,
    arrays: Sequence[Any],
    starts: Sequence[Any],
    shape: Sequence[int],
    *,
    window_dimensions: Sequence[int],
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    base_dilation: Sequence[int],
    window_dilation: Sequence[int],
) -> list[Any]:
    """`lax.reduce_window` of arrays, by a function of numbers; `shape` is that of the results."""
    if 0 in shape or 0 in arrays[0].shape:
        return [jnp.broadcast_to(own, shape) for own in starts]
    widths = [(int(low), int(high), int(apart) - 1) for (low, high), apart in zip(padding, base_dilation, strict=True)]
    moves = list(zip(window_dimensions, window_strides, window_dilation, shape, strict=True))
    counts = None
    if any(map(any, widths)):
        # Ones stand where nothing is: no function that is smooth elsewhere has a slope there that is none.
        counts = _along_first(lax.pad(jnp.ones(arrays[0].shape, bool), False, widths), moves)
        arrays = [lax.pad(own, np.ones((), own.dtype)[()], widths) for own in arrays]
    return folded(closed, starts, [_along_first(own, moves) for own in arrays], counts)
