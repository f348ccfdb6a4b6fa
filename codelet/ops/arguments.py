"""Checks of operations' arguments: tensors of one graph, axes, dtypes; and the errors where they do not fit.

Every mistake is an `OperationError` (or `ForeignGraphError`) at the user's line, raised before anything is added.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codelet.errors import FieldTypeError, ForeignGraphError, OperationError
from codelet.graphs.graph import Graph
from codelet.hostdata import is_of_keys
from codelet.schema import is_whole
from codelet.views.tensor import Tensor


def check_tensors(operation: str, graph: Graph, **tensors: object) -> None:
    """See that operands are tensors of a graph, the same for all of the operation: without symbols and ragged rows.

    Args:
        operation: its name, for errors.
        graph: the graph it is added to.
        tensors: the operands, by the names of the parameters.

    Raises:
        FieldTypeError: no graph, or an operand that is no tensor, or depends on symbols.
        ForeignGraphError: a tensor of another graph.
    """
    if not isinstance(graph, Graph):
        raise FieldTypeError(
            f"ops.{operation} is not given a graph first",
            given=f"{graph!r:.80}",
            expected=f"ops.{operation}(graph, {', '.join(tensors)}, ...)",
        )
    for name, tensor in tensors.items():
        if not isinstance(tensor, Tensor):
            raise FieldTypeError(
                f"ops.{operation} is given something else than a tensor for {name!r}",
                given=f"{type(tensor).__name__}: {tensor!r:.60}",
                expected="a tensor of the graph",
                fix="graph.add_constant(name, value) makes one of numbers",
            )
        if tensor.graph is not graph:
            raise ForeignGraphError(
                f"ops.{operation} is given a tensor of another graph for {name!r}",
                given=tensor,
                expected="tensors of the graph that comes first",
            )
        if tensor.axes or tensor.rows is not None:
            raise FieldTypeError(
                f"ops.{operation} is given a view that depends on symbols for {name!r}",
                given=tensor,
                expected="the whole tensor: operations add vertices for all of their operands by themselves",
            )


def check_floating(operation: str, **tensors: Tensor) -> None:
    """See that operands are of floating point.

    Raises:
        OperationError: one that is not.
    """
    for name, tensor in tensors.items():
        if not jnp.issubdtype(tensor.dtype, jnp.inexact):
            raise OperationError(
                f"ops.{operation} is given numbers that are not of floating point for {name!r}",
                given=tensor,
                expected="float32, float16 or bfloat16",
                fix=f"ops.cast(graph, {name}, dtype=jnp.float32)",
            )


def check_same_dtype(operation: str, **tensors: Tensor) -> np.dtype:
    """The dtype that operands have in common.

    Raises:
        OperationError: they have several.
    """
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) != 1:
        raise OperationError(
            f"the operands of ops.{operation} are of several dtypes",
            given=", ".join(f"{name}: {tensor.dtype}" for name, tensor in tensors.items()),
            expected="one",
            fix="ops.cast(graph, tensor, dtype=dtype)",
        )
    return dtypes.pop()


def checked_dtype(operation: str, name: str, dtype: Any) -> np.dtype:
    """A dtype that an operation is to compute in or give, as JAX has it now: 64 bits only with x64.

    Raises:
        OperationError: something that is none.
    """
    is_number = isinstance(dtype, np.dtype) and (dtype.kind == "b" or jnp.issubdtype(dtype, np.number))
    if is_number and jax.dtypes.canonicalize_dtype(dtype) == dtype:
        return dtype  # what an array of it would say, and take longer for
    try:
        return np.dtype(jax.eval_shape(lambda: jnp.zeros((), dtype)).dtype)
    except TypeError:
        raise OperationError(
            f"{name} of ops.{operation} is no dtype", given=repr(dtype), expected="jnp.float32, say"
        ) from None


def checked_axis(operation: str, name: str, axis: Any, ndim: int) -> int:
    """An axis, counted from the end where it is negative, as it is counted from the beginning.

    Raises:
        OperationError: one that there is not.
    """
    try:
        own = operator.index(axis)
    except TypeError:
        own = ndim
    if isinstance(axis, bool) or not -ndim <= own < ndim:
        raise OperationError(
            f"{name} of ops.{operation} is an axis that there is not",
            given=repr(axis),
            expected=f"{-ndim} to {ndim - 1}, of {ndim} dimensions" if ndim else "none: there are no dimensions",
        )
    return own % ndim


def checked_axes(operation: str, name: str, axes: int | Iterable[int] | None, ndim: int) -> tuple[int, ...]:
    """Axes in increasing order: all of them for None, and a single number for one.

    Raises:
        OperationError: one that there is not, or twice.
    """
    if axes is None:
        return tuple(range(ndim))
    several = tuple(axes) if isinstance(axes, Iterable) else (axes,)
    own = [checked_axis(operation, name, axis, ndim) for axis in several]
    if len(set(own)) < len(own):
        raise OperationError(f"{name} of ops.{operation} has an axis twice", given=axes, expected="each once")
    return tuple(sorted(own))


def checked_grain(operation: str, grain: Any) -> int | None:
    """About how much a vertex is to have; None for the planner to choose.

    Raises:
        OperationError: something else than an integer from 1.
    """
    if grain is not None and not is_whole(grain, 1):
        raise OperationError(
            f"grain of ops.{operation} is not an integer from 1",
            given=repr(grain),
            expected="about how many multiply-adds, or elements, a vertex has",
        )
    return None if grain is None else operator.index(grain)


def checked_shape(operation: str, shape: Any) -> tuple[int, ...]:
    """A shape that a result is to have.

    Raises:
        OperationError: something else than extents from 0.
    """
    try:
        own = tuple(int(n) if isinstance(n, (int, np.integer)) else -1 for n in shape) if np.ndim(shape) else (shape,)
    except TypeError:
        own = (-1,)
    if not all(is_whole(n, 0) for n in own):
        raise OperationError(
            f"the shape of ops.{operation} is invalid", given=repr(shape), expected="a tuple of integers from 0"
        )
    return own


def checked_planned(operation: str, shape: Any, dtype: Any) -> tuple[tuple[int, ...], np.dtype]:
    """The shape and dtype of an operand in a plan.

    Raises:
        OperationError: a shape that is none or has no elements; something that is no dtype.
    """
    own = checked_shape(operation, shape)
    if not math.prod(own):
        raise OperationError(
            f"ops.{operation} is given a shape without elements", given=own, expected="one element or more"
        )
    return own, checked_dtype(operation, "dtype", dtype)


def is_key(value: object) -> bool:
    """Whether a value looks like a key of random numbers, or like the data of one: typed, or of uint32."""
    dtype = getattr(value, "dtype", None)
    return dtype is not None and (is_of_keys(dtype) or dtype == np.uint32)
