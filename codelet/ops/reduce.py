"""Reductions over any axes, as `jax.numpy` has them: sum, prod, max, min, all, any; mean and variance by them.

Kept and reduced dimensions are cut over the tiles; where the reduced ones are, blocks give partial results, which
`partials.py` puts together. Sums and products of floating point of 16 bits are kept in float32 and rounded once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import check_tensors, checked_axes, checked_dtype, checked_grain
from codelet.ops.block_planning import add_up, of_partials, plan_work
from codelet.ops.blockwise import Axis, Field, Result, Work, merged, regroup
from codelet.ops.fill import add_filled
from codelet.ops.homes import home_of
from codelet.ops.pairs import both
from codelet.ops.partials import add_planned, sums_dtype
from codelet.ops.planning import MEMORY_FRACTION, Plan
from codelet.ops.schema import checked
from codelet.tracing.codelets import Codelet, codelet
from codelet.tracing.field_types import SizeNames, sizes_named
from codelet.views.tensor import Tensor

Axes = int | Iterable[int] | None

# --- codelets ---------------------------------------------------------------------------------------------


@codelet(workers=6, issue="assembly")
@of_partials
def multiply_up(partials, *, dtype):
    """The products of the rows of (partials, outputs), as `dtype`."""
    return lax.reduce_prod(partials, (0,)).astype(dtype)


@codelet(workers=6, issue="assembly")
@of_partials
def largest(partials):
    """The largest of each column."""
    return lax.reduce_max(partials, (0,))


@codelet(workers=6, issue="assembly")
@of_partials
def smallest(partials):
    """The smallest of each column."""
    return lax.reduce_min(partials, (0,))


@codelet(workers=6, issue="assembly")
@of_partials
def all_true(partials):
    """Whether a column is all true."""
    return lax.reduce_and(partials, (0,))


@codelet(workers=6, issue="assembly")
@of_partials
def any_true(partials):
    """Whether any of a column is true."""
    return lax.reduce_or(partials, (0,))


class Reduction(NamedTuple):
    """A reduction: of `jax.numpy`, of blocks, and how its partial results are put together."""

    reduce: Callable[..., Any]
    of_block: Callable[..., Any]
    add: Codelet
    has_identity: bool = True


REDUCTIONS = {
    "sum": Reduction(jnp.sum, lax.reduce_sum, add_up),
    "prod": Reduction(jnp.prod, lax.reduce_prod, multiply_up),
    "max": Reduction(jnp.max, lax.reduce_max, largest, has_identity=False),
    "min": Reduction(jnp.min, lax.reduce_min, smallest, has_identity=False),
    "all": Reduction(jnp.all, lax.reduce_and, all_true),
    "any": Reduction(jnp.any, lax.reduce_or, any_true),
}


@both
@sizes_named(lambda static, ranks: SizeNames((tuple(f"d{d}" for d in range(*ranks)),)))
def reduce_block(x, *, operation, axes, partials, dtype):
    """A block reduced along some axes, in `partials`, as `dtype`."""
    return REDUCTIONS[operation].of_block(x.astype(partials), axes).astype(dtype)


# --- what is planned ----------------------------------------------------------------------------------------


def _result_dtype(operation: str, dtype: np.dtype) -> np.dtype:
    return np.dtype(jax.eval_shape(REDUCTIONS[operation].reduce, jax.ShapeDtypeStruct((1,), dtype)).dtype)


class _ReductionWork(NamedTuple):
    """A reduction as work.

    Attributes:
        x: the operand, with a dimension for each axis.
        work: on it.
        shape: of the result, as asked for.
    """

    x: Tensor
    work: Work
    shape: tuple[int, ...]


def _work(operation: str, x: Tensor, axes: tuple[int, ...], keepdims: bool, dtype: np.dtype | None) -> _ReductionWork:
    """A reduction of a tensor."""
    shape = tuple(1 if d in axes else n for d, n in enumerate(x.shape) if keepdims or d not in axes)
    labels = ["summed" if d in axes else "kept" for d in range(x.ndim)]
    groups = merged([(x, range(x.ndim))], labels)
    x = regroup(x, range(x.ndim), groups)
    roles: Any = [labels[group[0]] for group in groups]
    names = {"kept": iter(["kept", *map("kept{}".format, range(2, 99))])}
    names["summed"] = iter(["reduced", *map("reduced{}".format, range(2, 99))])
    own = tuple(Axis(next(names[role]), n, role) for role, n in zip(roles, x.shape, strict=True))
    out = dtype or _result_dtype(operation, x.dtype)
    partials = sums_dtype(out) if operation in ("sum", "prod") else out
    summed = tuple(a for a, role in enumerate(roles) if role == "summed")
    kept = tuple(a for a, role in enumerate(roles) if role == "kept")
    static = ("operation", operation), ("axes", summed)
    result = Result("out", kept, out, partials, REDUCTIONS[operation].add)
    fields = (Field("x", tuple(range(x.ndim)), x.dtype, home_of(x)),)
    return _ReductionWork(x, Work("reduce", own, fields, (result,), *reduce_block, static=static), shape)


def _checked(operation: str, graph: Graph, x: Tensor, axis: Axes, keepdims: bool, dtype: Any) -> _ReductionWork:
    """A reduction as work, its arguments checked."""
    check_tensors(operation, graph, x=x)
    axes = checked_axes(operation, "axis", axis, x.ndim)
    if not REDUCTIONS[operation].has_identity and math.prod(x.shape[d] for d in axes) == 0:
        raise OperationError(
            f"ops.{operation} is given nothing to choose from",
            given=f"{x.shape}, along {axes}",
            expected="one element at least along the axes that are reduced",
        )
    return _work(operation, x, axes, keepdims, None if dtype is None else checked_dtype(operation, "dtype", dtype))


def _reduce(
    operation: str,
    graph: Graph,
    x: Tensor,
    axis: Axes,
    keepdims: bool,
    grain: int | None,
    memory_fraction: float,
    name: str,
    dtype: Any = None,
) -> Tensor:
    """The vertices of a reduction."""
    x, work, shape = _checked(operation, graph, x, axis, keepdims, dtype)
    grain = checked_grain(operation, grain)
    with graph.scope(name, unique=True):
        (result,) = work.results
        out = graph.add_variable("out", tuple(work.axes[a].extent for a in result.axes), result.dtype)
        if out.size and not work.size:
            with jax.ensure_compile_time_eval():  # where it is traced within a jitted function, too
                nothing = REDUCTIONS[operation].reduce(jnp.zeros(0, bool)).item()
            add_filled(graph, out, nothing)
        elif out.size:
            plan = plan_work(graph.target, work, grain, memory_fraction)
            add_planned(graph, work, plan, {"x": x}, {"out": out})
        return out.reshape(shape)


@checked
def plan_reduce(
    graph: Graph,
    x: Tensor,
    axis: Axes = None,
    *,
    operation: str = "sum",
    dtype: Any = None,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
) -> Plan:
    """The plan of a reduction: it prints.

    Args:
        graph: for whose target.
        x: the tensor to reduce; with elements.
        axis: one axis or several; default: all.
        operation: "sum", "prod", "max", "min", "all" or "any".
        dtype: of the result.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.

    Raises:
        OperationError: an operation or an axis that there is not, or a tensor without elements.

    >>> import codelet as cl
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> plan = cl.ops.plan_reduce(graph, graph.add_variable("x", (100, 8)), 0)
    >>> plan.total_cycles > 0
    True
    """
    work = _checked(operation, graph, x, axis, False, dtype).work
    return plan_work(graph.target, work, checked_grain(operation, grain), memory_fraction)


# --- the operations -------------------------------------------------------------------------------------------


@checked
def sum(
    graph: Graph,
    x: Tensor,
    axis: Axes = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "sum",
) -> Tensor:
    """The sum along some axes, as `jax.numpy.sum`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor to reduce.
        axis: one axis or several; default: all.
        dtype: of the result; default: as `jax.numpy` has it.
        keepdims: whether reduced dimensions stay, of one element.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.sum(graph, x, 0))(jnp.ones((3, 2)))
    Array([3., 3.], dtype=float32)
    """
    return _reduce("sum", graph, x, axis, keepdims, grain, memory_fraction, name, dtype)


@checked
def prod(
    graph: Graph,
    x: Tensor,
    axis: Axes = None,
    *,
    dtype: Any = None,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "prod",
) -> Tensor:
    """The product along some axes, as `jax.numpy.prod`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the factors.
        axis: one axis or several; default: all.
        dtype: of the result; default: that of `jax.numpy.prod`, which widens short integers.
        keepdims: whether the reduced dimensions stay, with one element each.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not, or something that is no dtype.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.prod(graph, x, 1))(jnp.array([[2.0, 3.0], [4.0, 5.0]]))
    Array([ 6., 20.], dtype=float32)
    """
    return _reduce("prod", graph, x, axis, keepdims, grain, memory_fraction, name, dtype)


@checked
def max(
    graph: Graph,
    x: Tensor,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "max",
) -> Tensor:
    """The largest along some axes, NaN where one is, as `jax.numpy.max`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor, of any dtype; with an element along the reduced axes.
        axis: one axis or several; default: all.
        keepdims: whether the reduced dimensions stay, with one element each.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: nothing to choose from, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.max(graph, x, 0))(jnp.array([[1.0, 4.0], [3.0, 2.0]]))
    Array([3., 4.], dtype=float32)
    """
    return _reduce("max", graph, x, axis, keepdims, grain, memory_fraction, name)


@checked
def min(
    graph: Graph,
    x: Tensor,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "min",
) -> Tensor:
    """The smallest along some axes, NaN where one is, as `jax.numpy.min`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor, of any dtype; with an element along the reduced axes.
        axis: one axis or several; default: all.
        keepdims: whether the reduced dimensions stay, with one element each.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: nothing to choose from, or an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.min(graph, x, 0))(jnp.array([[1.0, 4.0], [3.0, 2.0]]))
    Array([1., 2.], dtype=float32)
    """
    return _reduce("min", graph, x, axis, keepdims, grain, memory_fraction, name)


@checked
def all(
    graph: Graph,
    x: Tensor,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "all",
) -> Tensor:
    """Whether all elements along some axes are true, as `jax.numpy.all`; the result is of bool.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor; numbers are true where they are not 0.
        axis: one axis or several; default: all.
        keepdims: whether the reduced dimensions stay, with one element each.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.all(graph, x, 1))(jnp.array([[True, True], [True, False]]))
    Array([ True, False], dtype=bool)
    """
    return _reduce("all", graph, x, axis, keepdims, grain, memory_fraction, name)


@checked
def any(
    graph: Graph,
    x: Tensor,
    axis: Axes = None,
    *,
    keepdims: bool = False,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "any",
) -> Tensor:
    """Whether any element along some axes is true, as `jax.numpy.any`; the result is of bool.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor; numbers are true where they are not 0.
        axis: one axis or several; default: all.
        keepdims: whether the reduced dimensions stay, with one element each.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: an axis that there is not.

    >>> import codelet as cl, jax.numpy as jnp
    >>> cl.lower(lambda graph, x: cl.ops.any(graph, x, 1))(jnp.array([[False, True], [False, False]]))
    Array([ True, False], dtype=bool)
    """
    return _reduce("any", graph, x, axis, keepdims, grain, memory_fraction, name)
