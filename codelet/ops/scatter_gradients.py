"""Gradients of `scatter`, whatever its `op`: scatters and look-ups of cotangents.

Each is by the operand and by the updates. Where JAX asks for the promise that indices name no element twice, it is
asked for here too; indices that lead beyond the ends change nothing, or are taken as those of the ends by "clip".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import jax.numpy as jnp
from jax import lax

from codelet.deprecated import warn_old
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
    operation = "scatter_gradient"
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


def _set(slices: _Slices, cotangent: Tensor) -> ScatterGradient:
    shape, updates = (1,) * slices.updates.ndim, slices.updates.shape
    nothing = fill(slices.graph, shape, 0, dtype=cotangent.dtype, name="nothing").broadcast_to(updates)
    return ScatterGradient(
        slices.scattered(cotangent, nothing, "set", "take out"), slices.looked_up(cotangent, "look up")
    )


def _multiplied(slices: _Slices, cotangent: Tensor, operand: Tensor) -> ScatterGradient:
    products = map(slices.graph, lax.mul, cotangent, operand, grain=slices.options["grain"], name="multiply")
    by_operand = slices.scattered(cotangent, slices.updates, "multiply", "scale")
    return ScatterGradient(by_operand, slices.looked_up(products, "look up"))


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


def _greatest(slices: _Slices, cotangent: Tensor, operand: Tensor, result: Tensor) -> ScatterGradient:
    """The gradients of a maximum or a minimum. Elements that are equal to the result share the cotangent."""
    graph, grain = slices.graph, slices.options["grain"]
    most = slices.looked_up(result, "look up results")
    winners = map(graph, won, slices.updates, most, grain=grain, name="compare")
    nothing = fill(graph, (1,) * cotangent.ndim, 0, dtype=cotangent.dtype, name="nothing")
    ties = slices.scattered(nothing.broadcast_to(cotangent.shape), winners, "add", "count ties")
    by_operand, share = map(graph, shares, cotangent, operand, result, ties, grain=grain, name="share")
    parts = slices.looked_up(share, "look up shares")
    return ScatterGradient(by_operand, map(graph, taken, slices.updates, most, parts, grain=grain, name="take"))


_NEEDED = {"multiply": ("operand",), "max": ("operand", "result"), "min": ("operand", "result")}
"""The tensors that a gradient needs beside the cotangent, the indices and the updates, by `op` of the scatter."""


@checked
def scatter_gradient(
    graph: Graph,
    cotangent: Tensor,
    indices: Tensor,
    updates: Tensor,
    dimension_numbers: lax.ScatterDimensionNumbers | None = None,
    *,
    op: str = "set",
    operand: Tensor | None = None,
    result: Tensor | None = None,
    mode: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "scatter_gradient",
) -> ScatterGradient:
    """The gradients of `scatter` with respect to its operand and its updates.

    With "set" and "multiply", no two updates may have the same index: JAX asks for the same promise. With "add", the
    gradient with respect to the operand is the cotangent itself. With "max" and "min", elements that are equal to the
    result share the cotangent, as in JAX. Updates that are out of range have gradient zero.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        indices: where the updates went.
        updates: of floating point; with "add" and "set" only their shape and dtype are used.
        dimension_numbers: as `jax.lax.scatter` takes them; default: those of `scatter`.
        op: "set", "add", "multiply", "min" or "max", as of the scatter.
        operand: the updated array; with "multiply", "min" and "max" alone.
        result: the result of `scatter`; with "min" and "max" alone.
        mode: for out-of-range indices: "clip", "drop" or "promise_in_bounds"; default: that of `scatter`.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradients with respect to `operand` and `updates`, each of its shape and dtype.

    Raises:
        OperationError: arguments that do not fit together, or an `operand` or `result` that is missing.

    >>> import codelet as cl, jax.numpy as jnp
    >>> def gradients(graph, g, x, i, y):
    ...     return cl.ops.scatter_gradient(graph, g, i, y, op="multiply", operand=x)
    >>> found = cl.lower(gradients)(jnp.ones(3), jnp.array([1.0, 2.0, 3.0]), jnp.array([1]), jnp.array([5.0]))
    >>> found.operand, found.updates
    (Array([1., 5., 1.], dtype=float32), Array([2.], dtype=float32))
    """
    tensors = {key: tensor for key, tensor in (("operand", operand), ("result", result)) if tensor is not None}
    needed = _NEEDED.get(op, ())
    if missing := [key for key in needed if key not in tensors]:
        raise OperationError(
            f'ops.scatter_gradient with op="{op}" lacks {" and ".join(missing)}',
            given=", ".join(f"{key}=" for key in tensors) or "neither",
            expected=", ".join(f"{key}=" for key in needed),
        )
    alike = {key: tensors[key] for key in needed}
    slices = _checked(graph, cotangent, indices, updates, dimension_numbers, mode, grain, memory_fraction, **alike)
    with graph.scope(name, unique=True):
        slices = slices.from_beginning()
        if op == "add":
            return ScatterGradient(cotangent, slices.looked_up(cotangent, "look up"))
        form = {"set": _set, "multiply": _multiplied}.get(op, _greatest)
        return form(slices, cotangent, *alike.values())


_OLD_ORDERS = {
    "scatter_add_gradient": "cotangent indices updates dimension_numbers",
    "scatter_set_gradient": "cotangent indices updates dimension_numbers",
    "scatter_multiply_gradient": "cotangent operand indices updates dimension_numbers",
    "scatter_max_gradient": "cotangent operand indices updates result dimension_numbers",
}
"""The positional arguments of the four functions that this one was, by their names."""


def old_scatter_gradient(name: str) -> Callable[..., ScatterGradient] | None:
    """One of the four functions that `scatter_gradient` was, for one release; None for other names."""
    if name not in _OLD_ORDERS:
        return None
    op = name.split("_")[1]
    warn_old(f"ops.{name}", f'ops.scatter_gradient(op="{op}"), with operand= and result= by keyword')

    def called(graph: Graph, *args: Any, **kwargs: Any) -> ScatterGradient:
        return scatter_gradient(graph, **dict(zip(_OLD_ORDERS[name].split(), args, strict=False)), op=op, **kwargs)

    return called
