"""The usual gathers and scatters by name: `take`, `embedding`, `dynamic_slice`, `dynamic_update_slice`, and gradients.

An index that is known while the graph is built needs none of
    them: it is a view, which costs nothing.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_tensors, checked_axis
from codelet.ops.elementwise import map
from codelet.ops.fill import fill
from codelet.ops.indexing import from_beginning, gather, gather_gradient, scatter
from codelet.ops.lookup_codelets import positions
from codelet.ops.planning import MEMORY_FRACTION
from codelet.ops.schema import checked
from codelet.views.concatenate import concatenate
from codelet.views.tensor import Tensor

_MODES = {None: "fill", "fill": "fill", "clip": "clip", "wrap": "promise_in_bounds"}


def _rows(name: str, x: Tensor, indices: Tensor, axis: Any, mode: Any) -> tuple[Tensor, Any, tuple[int, ...], int]:
    """The elements looked up along an axis, with the dimension numbers and slice sizes of its gather, and the axis."""
    if mode not in _MODES:
        raise OperationError(f"mode of ops.{name} is unknown", given=repr(mode), expected="'fill', 'clip' or 'wrap'")
    if not jnp.issubdtype(indices.dtype, jnp.integer):
        raise OperationError(f"the indices of ops.{name} are no integers", given=indices, expected="int32, say")
    source, at = (x.flatten(), 0) if axis is None else (x, checked_axis(name, "axis", axis, x.ndim))
    if not source.shape[at] and indices.size:
        raise OperationError(f"ops.{name} looks up in nothing", given=x, expected="an axis of one element at least")
    rank = indices.ndim
    offset = (*range(at), *range(at + rank, rank + source.ndim - 1))
    numbers = lax.GatherDimensionNumbers(offset, (at,), (at,))
    return source, numbers, tuple(1 if d == at else n for d, n in enumerate(source.shape)), at


def wrapped(index, *, extent):
    """An index that leads beyond the ends as one that begins again there."""
    return positions(index) % extent


def as_int32(start):
    """A start in 32 bits, which leads beyond the ends if it does so in more."""
    own, ends = jnp.iinfo(start.dtype), jnp.iinfo(jnp.int32)
    return jnp.clip(start, max(own.min, ends.min), min(own.max, ends.max)).astype(jnp.int32)


def _from_beginning(graph: Graph, indices: Tensor, extent: int, mode: str | None) -> Tensor:
    """Indices as a gather takes them, with a last dimension of one number."""
    if mode == "wrap":
        indices = map(graph, functools.partial(wrapped, extent=extent), indices, name="wrap")
    elif mode != "clip":
        indices = from_beginning(graph, indices, extent)
    return indices.expand(indices.ndim)


@checked
def take(
    graph: Graph,
    x: Tensor,
    indices: Tensor,
    axis: int | None = None,
    *,
    mode: str | None = None,
    fill_value: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "take",
) -> Tensor:
    """Elements, rows, ... along an axis by numbers that are known late, as `jax.numpy.take`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor to look up in.
        indices: integers, counted from the end where they are negative.
        axis: along which; None for elements of all of `x`, in row-major order.
        mode: for out-of-range indices: "fill" (default), "clip", as in `numpy.take`, where a negative index becomes 0,
            or "wrap"; default: "fill".
        fill_value: by "fill"; NaN, or the least integer, when left off.
        grain: about how many elements a vertex looks up; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis or mode that there is not, or indices that are no integers.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x, i: cl.ops.take(graph, x, i))(jnp.arange(4.0), jnp.array([2, -1]))
    Array([2., 3.], dtype=float32)
    """
    check_tensors(name, graph, x=x, indices=indices)
    source, numbers, sizes, at = _rows(name, x, indices, axis, mode)
    with graph.scope(name, unique=True):
        own = _from_beginning(graph, indices, source.shape[at], mode)
        options = {"mode": _MODES[mode], "fill_value": fill_value, "grain": grain, "memory_fraction": memory_fraction}
        return gather(graph, source, own, numbers, sizes, **options)


@checked
def take_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    indices: Tensor,
    axis: int | None = None,
    *,
    mode: str | None = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "take_gradient",
) -> Tensor:
    """The gradient of `take` by the tensor that was looked up: cotangents are added where their elements came from.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        x: the tensor that was looked up in; only its shape and dtype are used.
        indices: integers, as `take` was given them.
        axis: the axis; None for elements of all of `x`, in row-major order.
        mode: of indices beyond the ends: "fill", "clip" or "wrap"; default: "fill".
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of `x`.

    Raises:
        OperationError: an axis or mode that there is not, or a cotangent that is not of the result's shape and dtype.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.take_gradient)(jnp.array([1.0, 2.0]), jnp.zeros(3), jnp.array([2, 2]))
    Array([0., 0., 3.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, x=x, indices=indices)
    source, numbers, sizes, at = _rows(name, x, indices, axis, mode)
    with graph.scope(name, unique=True):
        own = _from_beginning(graph, indices, source.shape[at], mode)
        options = {"mode": _MODES[mode], "grain": grain, "memory_fraction": memory_fraction}
        return gather_gradient(graph, cotangent, source, own, numbers, sizes, **options).reshape(x.shape)


@checked
def embedding(
    graph: Graph,
    table: Tensor,
    indices: Tensor,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "embedding",
) -> Tensor:
    """The rows of a table that indices name: `table[indices]`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        table: of shape (rows, columns).
        indices: integers of any shape.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of shape (*indices.shape, columns) and of the dtype of the table.

    Raises:
        OperationError: a table without two dimensions, or indices that are no integers.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.embedding)(jnp.arange(6.0).reshape(3, 2), jnp.array([2, 0]))
    Array([[4., 5.],
           [0., 1.]], dtype=float32)
    """
    check_tensors(name, graph, table=table, indices=indices)
    _check_table(name, table)
    return take(graph, table, indices, 0, grain=grain, memory_fraction=memory_fraction, name=name)


@checked
def embedding_gradient(
    graph: Graph,
    cotangent: Tensor,
    table: Tensor,
    indices: Tensor,
    *,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "embedding_gradient",
) -> Tensor:
    """The gradient of `embedding` by the table: each row has the sum of the cotangents of the indices that named it.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result, of shape (*indices.shape, columns).
        table: of shape (rows, columns); only its shape and dtype are used.
        indices: integers of any shape.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape and dtype of the table.

    Raises:
        OperationError: a table without two dimensions, indices that are no integers, or a cotangent that does not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(cl.ops.embedding_gradient)(jnp.ones((3, 2)), jnp.zeros((2, 2)), jnp.array([1, 1, 0]))
    Array([[1., 1.],
           [2., 2.]], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, table=table, indices=indices)
    _check_table(name, table)
    return take_gradient(graph, cotangent, table, indices, 0, grain=grain, memory_fraction=memory_fraction, name=name)


def _check_table(name: str, table: Tensor) -> None:
    if table.ndim != 2:
        raise OperationError(f"the table of ops.{name} is no matrix", given=table, expected="rows and columns")


# --- slices at places that are known late ---------------------------------------------------------------------


def _checked_starts(name: str, graph: Graph, x: Tensor, starts: Sequence[Any], sizes: Sequence[int]) -> None:
    for k, start in enumerate(starts):
        if isinstance(start, (int, np.integer)) and not isinstance(start, (bool, Tensor)):
            continue
        check_tensors(name, graph, **{f"start {k}": start})
        assert isinstance(start, Tensor)
        if start.shape or not jnp.issubdtype(start.dtype, jnp.integer):
            raise OperationError(
                f"start {k} of ops.{name} is no integer", given=start, expected="an integer, of shape ()"
            )
    try:
        own = tuple(operator.index(size) for size in sizes)
    except TypeError:
        own = ()
    fits = all(0 <= size <= extent for size, extent in zip(own, x.shape, strict=False))
    if len(starts) != x.ndim or len(own) != x.ndim or not fits:
        raise OperationError(
            f"the slice of ops.{name} does not fit",
            given=f"{len(starts)} starts and sizes {tuple(sizes)} for {x.shape}",
            expected="a start and a size for each dimension, of at most as many elements",
        )


def _counted(start: Any, extent: int, from_end: bool) -> int:
    """A start that is a number, counted from the beginning."""
    return int(start) + (extent if from_end and start < 0 else 0)


def _joined(graph: Graph, starts: Sequence[Any], shape: Sequence[int], from_end: bool) -> Tensor:
    """Starts as one array of int32, counted from the beginning.

    Args:
        graph: where.
        starts: tensors, or numbers.
        shape: of the sliced tensor.
        from_end: whether negative ones count from the end.
    """
    parts = []
    for k, (start, extent) in enumerate(zip(starts, shape, strict=True)):
        if isinstance(start, Tensor):
            own = from_beginning(graph, start, extent) if from_end else start
            if own.dtype != np.int32:
                own = map(graph, as_int32, own, name="as int32")
            parts.append(own.reshape(1))
        else:
            number = np.clip(_counted(start, extent, from_end), 0, extent)
            parts.append(graph.add_constant(f"start{k}", np.array([number], np.int32)))
    return concatenate(parts) if parts else graph.add_constant("start", np.zeros(0, np.int32))


def _known(
    starts: Sequence[Any], sizes: Sequence[int], shape: Sequence[int], from_end: bool
) -> tuple[slice, ...] | None:
    """The slice where all its starts are numbers."""
    if any(isinstance(start, Tensor) for start in starts):
        return None
    found = []
    for start, size, extent in zip(starts, sizes, shape, strict=True):
        first = min(max(0, _counted(start, extent, from_end)), extent - size)
        found.append(slice(first, first + size))
    return tuple(found)


@checked
def dynamic_slice(
    graph: Graph,
    x: Tensor,
    start_indices: Sequence[Any],
    slice_sizes: Sequence[int],
    *,
    allow_negative_indices: bool = True,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "dynamic_slice",
) -> Tensor:
    """A slice that begins where numbers say that are known late, as `jax.lax.dynamic_slice`; a view where none is.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor to slice.
        start_indices: for each dimension a tensor of shape (), or a number; moved so far that the slice fits.
        slice_sizes: of the slice.
        allow_negative_indices: whether negative starts count from the end; otherwise the slice begins at 0.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: starts or sizes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x, i: cl.ops.dynamic_slice(graph, x, [i], (2,)))(jnp.arange(4.0), jnp.array(1))
    Array([1., 2.], dtype=float32)
    """
    check_tensors(name, graph, x=x)
    _checked_starts(name, graph, x, start_indices, slice_sizes)
    if (known := _known(start_indices, slice_sizes, x.shape, allow_negative_indices)) is not None:
        return x[known]
    with graph.scope(name, unique=True):
        starts = _joined(graph, start_indices, x.shape, allow_negative_indices)
        numbers = lax.GatherDimensionNumbers(tuple(range(x.ndim)), (), tuple(range(x.ndim)))
        return gather(graph, x, starts, numbers, slice_sizes, mode="clip", grain=grain, memory_fraction=memory_fraction)


@checked
def dynamic_update_slice(
    graph: Graph,
    x: Tensor,
    update: Tensor,
    start_indices: Sequence[Any],
    *,
    allow_negative_indices: bool = True,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "dynamic_update_slice",
) -> Tensor:
    """An array with a slice of it put in another's place, where numbers say, as `jax.lax.dynamic_update_slice`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor to update.
        update: the slice.
        start_indices: for each dimension a tensor of shape (), or a number; moved so far that the slice fits.
        allow_negative_indices: whether negative starts count from the end; otherwise the slice begins at 0.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: starts or shapes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> put = cl.lower(lambda graph, x, own, i: cl.ops.dynamic_update_slice(graph, x, own, [i]))
    >>> put(jnp.zeros(4), jnp.ones(2), jnp.array(1))
    Array([0., 1., 1., 0.], dtype=float32)
    """
    check_tensors(name, graph, x=x, update=update)
    _checked_starts(name, graph, x, start_indices, update.shape)
    with graph.scope(name, unique=True):
        starts = _joined(graph, start_indices, x.shape, allow_negative_indices)
        numbers = lax.ScatterDimensionNumbers(tuple(range(x.ndim)), (), tuple(range(x.ndim)))
        return scatter(graph, x, starts, update, numbers, mode="clip", grain=grain, memory_fraction=memory_fraction)


@checked
def dynamic_slice_gradient(
    graph: Graph,
    cotangent: Tensor,
    x: Tensor,
    start_indices: Sequence[Any],
    *,
    allow_negative_indices: bool = True,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "dynamic_slice_gradient",
) -> Tensor:
    """The gradient of `dynamic_slice` by its operand: zeros, and the cotangent where the slice was.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the slice.
        x: the tensor that was sliced; only its shape is used.
        start_indices: for each dimension a tensor of shape (), or a number.
        allow_negative_indices: whether negative starts count from the end; otherwise the slice begins at 0.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        A tensor of the shape of `x` and of the dtype of the cotangent.

    Raises:
        OperationError: starts or shapes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, g, x, i: cl.ops.dynamic_slice_gradient(graph, g, x, [i]))(jnp.ones(2), jnp.zeros(4), 1)
    Array([0., 1., 1., 0.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, x=x)
    _checked_starts(name, graph, x, start_indices, cotangent.shape)
    with graph.scope(name, unique=True):
        zeros = fill(graph, x.shape, 0, dtype=x.dtype, name="zeros")
        return dynamic_update_slice(
            graph,
            zeros,
            cotangent,
            start_indices,
            allow_negative_indices=allow_negative_indices,
            grain=grain,
            memory_fraction=memory_fraction,
            name="update",
        )


class DynamicUpdateSliceGradient(NamedTuple):
    """The gradients of `dynamic_update_slice`, each of the shape and dtype of its operand.

    Attributes:
        x: with respect to the updated tensor: 0 in the slice.
        update: with respect to the slice put there.
    """

    x: Tensor
    update: Tensor


@checked
def dynamic_update_slice_gradient(
    graph: Graph,
    cotangent: Tensor,
    update: Tensor,
    start_indices: Sequence[Any],
    *,
    allow_negative_indices: bool = True,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "dynamic_update_slice_gradient",
) -> DynamicUpdateSliceGradient:
    """The gradients of `dynamic_update_slice` by its operands.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        cotangent: of the result.
        update: the slice put in; only its shape and dtype are used.
        start_indices: for each dimension a tensor of shape (), or a number.
        allow_negative_indices: whether negative starts count from the end; otherwise the slice begins at 0.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The gradient with respect to `x`, which is 0 in the slice, and by `update`, which is the slice of the cotangent.

    Raises:
        OperationError: starts or shapes that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slopes = lambda graph, g, update, i: cl.ops.dynamic_update_slice_gradient(graph, g, update, [i])
    >>> cl.lower(slopes)(jnp.array([1.0, 2.0, 3.0]), jnp.ones(1), 1).x
    Array([1., 0., 3.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, update=update)
    _checked_starts(name, graph, cotangent, start_indices, update.shape)
    options: dict[str, Any] = {"grain": grain, "memory_fraction": memory_fraction}
    options["allow_negative_indices"] = allow_negative_indices
    with graph.scope(name, unique=True):
        zeros = fill(graph, update.shape, 0, dtype=update.dtype, name="zeros")
        first = dynamic_update_slice(graph, cotangent, zeros, start_indices, **options, name="update")
        second = dynamic_slice(graph, cotangent, start_indices, update.shape, **options, name="slice")
        return DynamicUpdateSliceGradient(first, second)
