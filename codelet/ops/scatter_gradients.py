"""Gradients of `scatter`, whatever it makes of updates: scatters and look-ups of cotangents.

Each is by the operand and by the updates. Where JAX asks for the promise that indices name no element twice, it is
asked for here too; indices that lead beyond the ends change nothing, or are taken as those of the ends by "clip".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_floating, check_tensors, checked_grain
from codelet.ops.elementwise import map
from codelet.ops.fill import fill
from codelet.ops.indexing import checked_mode, from_beginning, look_up_slices, rows_as_slices, scatter
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.schema import checked
from codelet.ops.slice_forms import SliceForm, scatter_form
from codelet.views.tensor import Tensor


@dataclass(frozen=True)
class _Slices:
    """The slices that a scatter updates: scatters into them, and look-ups of them.

    Attributes:
        graph: of all.
        indices: where slices begin.
        numbers: which dimensions are which; those of rows where the indices are of these.
        updates: of the slices.
        form: of the scatter.
        options: of scatters and look-ups.
        rows: how many there are where the indices count them, from the end where they are negative; else None.
    """

    graph: Graph
    indices: Tensor
    numbers: lax.ScatterDimensionNumbers
    updates: Tensor
    form: SliceForm
    options: dict[str, Any]
    rows: int | None

    def from_beginning(self) -> _Slices:
        """The same, by indices that count from the beginning."""
        return self if self.rows is None else replace(self, indices=from_beginning(self.graph, self.indices, self.rows))

    def looked_up(self, x: Tensor, name: str) -> Tensor:
        """The elements there, 0 beyond the ends."""
        with self.graph.scope(name, unique=True):
            return look_up_slices(self.graph, self.form, x, self.indices, **self.options)

    def scattered(self, x: Tensor, updates: Tensor, op: str, name: str) -> Tensor:
        """An array with other updates."""
        return scatter(self.graph, x, self.indices, updates, self.numbers, op=op, **self.options, name=name)


def _checked(
    operation: str,
    graph: Graph,
    cotangent: Tensor,
    indices: Tensor,
    updates: Tensor,
    numbers: Any,
    mode: Any,
    grain: int | None,
    memory_fraction: float,
    **alike: Tensor,
) -> _Slices:
    """The slices of a scatter, of arguments that fit together.

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
    given, rows, own = updates, None, checked_mode(operation, mode)
    if numbers is None:
        indices, updates, numbers = rows_as_slices(operation, cotangent, indices, updates)
        rows = cotangent.shape[0]
    if updates.shape != given.shape:
        raise OperationError(
            f"the updates of ops.{operation} are broadcast", given=str(given.shape), expected=str(updates.shape)
        )
    form = scatter_form(operation, cotangent, indices, updates, numbers, own)
    options = {"mode": own, "grain": checked_grain(operation, grain), "memory_fraction": memory_fraction}
    return _Slices(graph, indices, numbers, updates, form, options, rows)


class ScatterGradient(NamedTuple):
    """The gradients of `scatter`, each of the shape and dtype of its operand.

    Attributes:
        operand: with respect to the updated array.
        updates: by the updates.
    """

    operand: Tensor
    updates: Tensor


@checked
def scatter_add_gradient(
    graph: Graph,
    cotangent: Tensor,
    indices: Tensor,
    updates: Tensor,
    dimension_numbers: lax.ScatterDimensionNumbers | None = None,
    *,
    mode: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "scatter_add_gradient",
) -> ScatterGradient:
    """The gradients of `scatter` with op="add" by its operands.

    That by the operand is the cotangent itself. That by the updates is the cotangent at their indices, and 0 beyond the
    ends.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        indices: where the updates went.
        updates: of floating point.
        dimension_numbers: as `jax.lax.scatter` takes them; default: those of `scatter`.
        mode: of updates beyond the ends: "clip", "drop" or "promise_in_bounds"; default: that of `scatter`.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients by `operand` and `updates`, each of its shape and dtype.

    Raises:
        OperationError: arguments that do not fit together.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slopes = cl.lower(cl.ops.scatter_add_gradient)(jnp.array([1.0, 2.0, 3.0]), jnp.array([2, 2]), jnp.ones(2))
    >>> slopes.updates
    Array([3., 3.], dtype=float32)
    """
    operation = "scatter_add_gradient"
    own = _checked(operation, graph, cotangent, indices, updates, dimension_numbers, mode, grain, memory_fraction)
    with graph.scope(name, unique=True):
        return ScatterGradient(cotangent, own.from_beginning().looked_up(cotangent, "look up"))


@checked
def scatter_set_gradient(
    graph: Graph,
    cotangent: Tensor,
    indices: Tensor,
    updates: Tensor,
    dimension_numbers: lax.ScatterDimensionNumbers | None = None,
    *,
    mode: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "scatter_set_gradient",
) -> ScatterGradient:
    """The gradients of `scatter` with op="set" by its operands. No two updates may have the same index.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        indices: where the updates went.
        updates: of floating point; only their shape and dtype are used.
        dimension_numbers: as `jax.lax.scatter` takes them; default: those of `scatter`.
        mode: of updates beyond the ends: "clip", "drop" or "promise_in_bounds"; default: that of `scatter`.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients by `operand` and `updates`, each of its shape and dtype.

    Raises:
        OperationError: arguments that do not fit together.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slopes = cl.lower(cl.ops.scatter_set_gradient)(jnp.array([1.0, 2.0, 3.0]), jnp.array([-1]), jnp.ones(1))
    >>> slopes.operand, slopes.updates
    (Array([1., 2., 0.], dtype=float32), Array([3.], dtype=float32))
    """
    operation = "scatter_set_gradient"
    given = cotangent, indices, updates, dimension_numbers, mode, grain, memory_fraction
    own = _checked(operation, graph, *given)
    with graph.scope(name, unique=True):
        own = own.from_beginning()
        nothing = fill(graph, (1,) * updates.ndim, 0, dtype=cotangent.dtype, name="nothing").broadcast_to(updates.shape)
        by_operand = own.scattered(cotangent, nothing, "set", "take out")
        return ScatterGradient(by_operand, own.looked_up(cotangent, "look up"))


@checked
def scatter_multiply_gradient(
    graph: Graph,
    cotangent: Tensor,
    operand: Tensor,
    indices: Tensor,
    updates: Tensor,
    dimension_numbers: lax.ScatterDimensionNumbers | None = None,
    *,
    mode: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "scatter_multiply_gradient",
) -> ScatterGradient:
    """The gradients of `scatter` with op="multiply" by its operands.

    That by the updates is right only where no two updates have the same index.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        operand: the array that was multiplied.
        indices: where the updates went.
        updates: of floating point.
        dimension_numbers: as `jax.lax.scatter` takes them; default: those of `scatter`.
        mode: of updates beyond the ends: "clip", "drop" or "promise_in_bounds"; default: that of `scatter`.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients by `operand` and `updates`, each of its shape and dtype.

    Raises:
        OperationError: arguments that do not fit together.

    >>> import codelet as cl, jax.numpy as jnp
    >>> g, x, i, by = jnp.ones(3), jnp.array([1.0, 2.0, 3.0]), jnp.array([1]), jnp.array([5.0])
    >>> cl.lower(cl.ops.scatter_multiply_gradient)(g, x, i, by).operand
    Array([1., 5., 1.], dtype=float32)
    """
    operation = "scatter_multiply_gradient"
    given = cotangent, indices, updates, dimension_numbers, mode, grain, memory_fraction
    own = _checked(operation, graph, *given, operand=operand)
    with graph.scope(name, unique=True):
        own = own.from_beginning()
        products = map(graph, lax.mul, cotangent, operand, grain=grain, name="multiply")
        by_operand = own.scattered(cotangent, updates, "multiply", "scale")
        return ScatterGradient(by_operand, own.looked_up(products, "look up"))


def won(update, most):
    """One where an update is the result."""
    return (update == most).astype(update.dtype)


def shares(cotangent, before, most, ties):
    """The old element has its share of a slope where it is the result; and the share of each that is."""
    share = cotangent / (ties + (before == most))
    return jnp.where(before == most, share, 0), share


def taken(update, most, share):
    """The share of an update that is the result."""
    return jnp.where(update == most, share, 0)


@checked
def scatter_max_gradient(
    graph: Graph,
    cotangent: Tensor,
    operand: Tensor,
    indices: Tensor,
    updates: Tensor,
    result: Tensor,
    dimension_numbers: lax.ScatterDimensionNumbers | None = None,
    *,
    mode: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "scatter_max_gradient",
) -> ScatterGradient:
    """The gradients of `scatter` with op="max" or op="min" by its operands, computed from its result.

    Where several are equal to the result, they share the cotangent, as in JAX. Updates may have the same index.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        operand: the array that was updated.
        indices: where the updates went.
        updates: of floating point.
        result: the result of `scatter`.
        dimension_numbers: as `jax.lax.scatter` takes them; default: those of `scatter`.
        mode: of updates beyond the ends: "clip", "drop" or "promise_in_bounds"; default: that of `scatter`.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients by `operand` and `updates`, each of its shape and dtype.

    Raises:
        OperationError: arguments that do not fit together.

    >>> import codelet as cl, jax.numpy as jnp
    >>> g, x, i, by = jnp.ones(3), jnp.array([1.0, 2.0, 3.0]), jnp.array([1]), jnp.array([5.0])
    >>> cl.lower(cl.ops.scatter_max_gradient)(g, x, i, by, jnp.array([1.0, 5.0, 3.0])).operand
    Array([1., 0., 1.], dtype=float32)
    """
    operation = "scatter_max_gradient"
    given = cotangent, indices, updates, dimension_numbers, mode, grain, memory_fraction
    own = _checked(operation, graph, *given, operand=operand, result=result)

    with graph.scope(name, unique=True):
        own = own.from_beginning()
        most = own.looked_up(result, "look up results")
        winners = map(graph, won, updates, most, grain=grain, name="compare")
        nothing = fill(graph, (1,) * cotangent.ndim, 0, dtype=cotangent.dtype, name="nothing").broadcast_to(
            cotangent.shape
        )
        ties = own.scattered(nothing, winners, "add", "count ties")
        by_operand, share = map(graph, shares, cotangent, operand, result, ties, grain=grain, name="share")
        found = own.looked_up(share, "look up shares")
        return ScatterGradient(by_operand, map(graph, taken, updates, most, found, grain=grain, name="take"))
