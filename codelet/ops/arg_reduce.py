"""Where the largest or the smallest along an axis is, the first of ties, as `jax.numpy.argmax` and `argmin` have it."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_tensors, checked_axis, checked_grain
from codelet.ops.pairs import both
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.rows import Rows
from codelet.ops.schema import checked
from codelet.views.tensor import Tensor

PLACES = {"argmax": jnp.argmax, "argmin": jnp.argmin}


@both
def place_in_rows(x, *, operation, axes):
    """Where the greatest or least of each row is, of rows along one axis."""
    return PLACES[operation](x, axes[0]).astype(jnp.int32)


@both
def place_in_parts(x, numbers, *, operation, axes):
    """The greatest or least of each part of a row, and where it is in the row."""
    (axis,) = axes
    at = PLACES[operation](x, axis, keepdims=True)
    shape = [n if d == axis else 1 for d, n in enumerate(x.shape)]
    own = jnp.broadcast_to(numbers.reshape(shape), x.shape)
    take = lambda array: jnp.take_along_axis(array, at, axis).squeeze(axis)  # noqa: E731
    return {"value": take(x), "place": take(own)}


@both
def place_of_parts(value, place, *, operation):
    """Where the greatest or least of all parts of rows is, from those of each part."""
    at = PLACES[operation](value, 0, keepdims=True)
    return jnp.take_along_axis(place, at, 0).squeeze(0)


def _place(
    operation: str,
    graph: Graph,
    x: Tensor,
    axis: int | None,
    keepdims: bool,
    grain: int | None,
    memory_fraction: float,
    name: str,
) -> Tensor:
    """The vertices of an operation: by whole rows, or by parts of them in two steps."""
    check_tensors(operation, graph, x=x)
    shape = tuple(1 for _ in x.shape) if keepdims else ()
    if axis is None:
        x, own = x.flatten(), 0
    else:
        own = checked_axis(operation, "axis", axis, x.ndim)
        shape = tuple(1 if d == own else n for d, n in enumerate(x.shape) if keepdims or d != own)
    if not x.shape[own]:
        raise OperationError(
            f"ops.{operation} is given nothing to choose from", given=x, expected="one element at least along the axis"
        )
    rows = Rows(graph, (own,), x, grain=checked_grain(operation, grain), memory_fraction=memory_fraction)
    with graph.scope(name, unique=True):
        if not x.size:
            return graph.add_variable("out", shape, jnp.int32)
        fields: Any = {"x": ("all", x)}
        place: Any = ("one", np.dtype(np.int32))
        whole = rows.work("places", place_in_rows, fields, {"out": place}, "whole", operation=operation)
        fields = {"x": ("all", x), "numbers": ("along", np.dtype(np.int32))}
        results: Any = {"value": ("one", x.dtype), "place": place}
        parts = rows.work("parts", place_in_parts, fields, results, "summed", operation=operation)
        (plan,) = rows.plans([parts])
        if parts.num_partials(plan.cuts) == 1 or rows.takes_whole(whole, [plan]):
            return rows.add(whole, rows.plan(whole), x=x)[0].reshape(shape)
        numbers = graph.add_constant("numbers", np.arange(x.shape[own], dtype=np.int32))
        value, found = rows.partial(parts, plan, x=x, numbers=numbers)
        last = Rows(graph, (0,), value, memory_fraction=1.0)
        fields = {"value": ("all", value), "place": ("all", found)}
        work = last.work("places", place_of_parts, fields, {"out": place}, "whole", operation=operation)
        return last.add(work, last.plan(work), value=value, place=found)[0].reshape(shape)


@checked
def argmax(
    graph: Graph,
    x: Tensor,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "argmax",
) -> Tensor:
    """Where the largest along an axis is, the first of ties and of NaNs, as `jax.numpy.argmax`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor to search.
        axis: along which axis; default: of all elements in order.
        keepdims: whether the axis stays, of one element.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: nothing to choose from, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.argmax(graph, x, 1))(jnp.array([[1.0, 3.0, 3.0], [2.0, 1.0, 0.0]]))
    Array([1, 0], dtype=int32)
    """
    return _place("argmax", graph, x, axis, keepdims, grain, memory_fraction, name)


@checked
def argmin(
    graph: Graph,
    x: Tensor,
    axis: int | None = None,
    *,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "argmin",
) -> Tensor:
    """The position of the smallest element along an axis, the first of equal ones and of NaNs, as `jax.numpy.argmin`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor.
        axis: the axis; default: all elements in row-major order.
        keepdims: whether the axis stays, with one element.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        Positions of int32, int64 with x64.

    Raises:
        OperationError: nothing to choose from, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.argmin(graph, x, 1))(jnp.array([[3.0, 1.0, 1.0], [2.0, 1.0, 0.0]]))
    Array([1, 2], dtype=int32)
    """
    return _place("argmin", graph, x, axis, keepdims, grain, memory_fraction, name)
