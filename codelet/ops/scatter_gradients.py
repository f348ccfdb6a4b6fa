"""Gradients of `scatter` that sets, multiplies, or keeps the largest or smallest: scatters and look-ups of cotangents.

Each is by what is updated and by the updates. Where JAX asks for the promise that indices name no element twice, it is
asked for here too; indices that lead beyond the ends change nothing, or are taken as those of the ends by "clip".
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
from jax import lax

import codelet as cl
from codelet.errors import OperationError
from codelet.ops.arguments import check_floating, check_tensors, checked_grain
from codelet.ops.elementwise import map
from codelet.ops.fill import fill
from codelet.ops.indexing import checked_mode, from_beginning, rows_as_slices, scatter, scatter_add_gradient
from codelet.ops.planning import MEMORY_SHARE
from codelet.ops.slice_forms import scatter_form


class _Slices:
    """The slices that a scatter updates: scatters into them, and look-ups of them."""

    def __init__(
        self,
        graph: cl.Graph,
        indices: cl.Tensor,
        numbers: lax.ScatterDimensionNumbers,
        updates: cl.Tensor,
        options: dict[str, Any],
    ):
        self.graph, self.indices, self.numbers, self.updates, self.options = graph, indices, numbers, updates, options

    def looked_up(self, x: cl.Tensor, name: str) -> cl.Tensor:
        """What lies there, 0 beyond the ends."""
        own = scatter_add_gradient(self.graph, x, self.indices, self.updates, self.numbers, **self.options, name=name)
        return own[1]

    def scattered(self, x: cl.Tensor, updates: cl.Tensor, op: str, name: str) -> cl.Tensor:
        """An array with other updates."""
        return scatter(self.graph, x, self.indices, updates, self.numbers, op=op, **self.options, name=name)


def _check(
    operation: str,
    graph: cl.Graph,
    cotangent: cl.Tensor,
    indices: cl.Tensor,
    updates: cl.Tensor,
    numbers: lax.ScatterDimensionNumbers | None,
    mode: Any,
    **alike: cl.Tensor,
) -> None:
    """See that arguments fit together.

    Raises:
        OperationError: they do not.
    """
    check_tensors(operation, graph, cotangent=cotangent, indices=indices, updates=updates, **alike)
    check_floating(operation, cotangent=cotangent, updates=updates)
    for name, tensor in alike.items():
        if (tensor.shape, tensor.dtype) != (cotangent.shape, cotangent.dtype):
            raise OperationError(
                f"{name} of ops.{operation} is not like the cotangent", given=tensor, expected=f"like {cotangent}"
            )
    given = updates
    if numbers is None:
        indices, updates, numbers = rows_as_slices(operation, cotangent, indices, updates)
    if updates.shape != given.shape:
        raise OperationError(
            f"the updates of ops.{operation} are broadcast", given=str(given.shape), expected=str(updates.shape)
        )
    scatter_form(operation, cotangent, indices, updates, numbers, checked_mode(operation, mode))


def _slices(
    graph: cl.Graph,
    cotangent: cl.Tensor,
    indices: cl.Tensor,
    updates: cl.Tensor,
    numbers: lax.ScatterDimensionNumbers | None,
    **options: Any,
) -> _Slices:
    """What a scatter updates, rows counted from the beginning."""
    if numbers is not None:
        return _Slices(graph, indices, numbers, updates, options)
    indices, updates, by_rows = rows_as_slices("scatter", cotangent, indices, updates)
    return _Slices(graph, from_beginning(graph, indices, cotangent.shape[0]), by_rows, updates, options)


def scatter_set_gradient(
    graph: cl.Graph,
    cotangent: cl.Tensor,
    indices: cl.Tensor,
    updates: cl.Tensor,
    dimension_numbers: lax.ScatterDimensionNumbers | None = None,
    *,
    mode: Any = None,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    name: str = "scatter_set_gradient",
) -> tuple[cl.Tensor, cl.Tensor]:
    """The gradients of a `scatter` with op="set", whose indices name no element twice.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        indices: as of `scatter`.
        updates: likewise; only their shape and dtype are looked at.
        dimension_numbers: as of `scatter`.
        mode: likewise.
        grain: about how many elements a vertex has.
        memory_share: of a tile's memory, what the plan may take.
        name: of the scope.

    Returns:
        The gradients by what is updated, and by the updates.

    Raises:
        OperationError: what does not fit together.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.scatter_set_gradient)(jnp.array([1.0, 2.0, 3.0]), jnp.array([-1]), jnp.ones(1))
    (Array([1., 2., 0.], dtype=float32), Array([3.], dtype=float32))
    """
    operation = "scatter_set_gradient"
    _check(operation, graph, cotangent, indices, updates, dimension_numbers, mode)
    options = {"mode": mode, "grain": checked_grain(operation, grain), "memory_share": memory_share}
    with graph.scope(name, unique=True):
        own = _slices(graph, cotangent, indices, updates, dimension_numbers, **options)
        nothing = fill(graph, (1,) * updates.ndim, 0, cotangent.dtype, name="nothing").broadcast_to(updates.shape)
        return own.scattered(cotangent, nothing, "set", "take out"), own.looked_up(cotangent, "look up")


def scatter_multiply_gradient(
    graph: cl.Graph,
    cotangent: cl.Tensor,
    operand: cl.Tensor,
    indices: cl.Tensor,
    updates: cl.Tensor,
    dimension_numbers: lax.ScatterDimensionNumbers | None = None,
    *,
    mode: Any = None,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    name: str = "scatter_multiply_gradient",
) -> tuple[cl.Tensor, cl.Tensor]:
    """The gradients of a `scatter` with op="multiply" by what is updated, and by the updates.

    That by the updates is right where indices name no element twice. Arguments as of `scatter_set_gradient`, and what
    was updated.
    """
    operation = "scatter_multiply_gradient"
    _check(operation, graph, cotangent, indices, updates, dimension_numbers, mode, operand=operand)
    options = {"mode": mode, "grain": checked_grain(operation, grain), "memory_share": memory_share}
    with graph.scope(name, unique=True):
        own = _slices(graph, cotangent, indices, updates, dimension_numbers, **options)
        products = map(graph, lax.mul, cotangent, operand, grain=grain, name="multiply")
        by_operand = own.scattered(cotangent, updates, "multiply", "scale")
        return by_operand, own.looked_up(products, "look up")


def scatter_max_gradient(
    graph: cl.Graph,
    cotangent: cl.Tensor,
    operand: cl.Tensor,
    indices: cl.Tensor,
    updates: cl.Tensor,
    result: cl.Tensor,
    dimension_numbers: lax.ScatterDimensionNumbers | None = None,
    *,
    mode: Any = None,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
    name: str = "scatter_max_gradient",
) -> tuple[cl.Tensor, cl.Tensor]:
    """The gradients of a `scatter` with op="max", or "min", from its result: shared equally among ties, as JAX does.

    Indices may name an element several times. Arguments as of `scatter_set_gradient`, what was updated, and the result.
    """
    operation = "scatter_max_gradient"
    _check(operation, graph, cotangent, indices, updates, dimension_numbers, mode, operand=operand, result=result)
    options = {"mode": mode, "grain": checked_grain(operation, grain), "memory_share": memory_share}

    def won(update, most):
        return (update == most).astype(update.dtype)

    def shares(cotangent, before, most, ties):
        share = cotangent / (ties + (before == most))
        return jnp.where(before == most, share, 0), share

    def taken(update, most, share):
        return jnp.where(update == most, share, 0)

    with graph.scope(name, unique=True):
        own = _slices(graph, cotangent, indices, updates, dimension_numbers, **options)
        most = own.looked_up(result, "look up results")
        winners = map(graph, won, updates, most, grain=grain, name="compare")
        nothing = fill(graph, (1,) * cotangent.ndim, 0, cotangent.dtype, name="nothing").broadcast_to(cotangent.shape)
        ties = own.scattered(nothing, winners, "add", "count ties")
        by_operand, share = map(graph, shares, cotangent, operand, result, ties, grain=grain, name="share")
        found = own.looked_up(share, "look up shares")
        return by_operand, map(graph, taken, updates, most, found, grain=grain, name="take")
