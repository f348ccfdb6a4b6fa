"""Partial results: the dtype in which sums are kept, and how they are put together, in one step or in several.

Source: PopLibs' `reduce` of the partials of convolutions and matrix products (lib/popops/Reduction.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.ops.arguments import checked_dtype
from codelet.ops.block_planning import add_up, home_of_partials, plan_sum, sum_work
from codelet.ops.blockwise import Work, add_work
from codelet.ops.followed import follow
from codelet.ops.homes import settle, settle_read
from codelet.ops.planning import Plan
from codelet.tracing.codelets import Codelet
from codelet.views.tensor import Tensor


def sums_dtype(dtype: np.dtype) -> np.dtype:
    """The dtype of sums of a dtype: float32 for floating point that is shorter."""
    return np.dtype(np.float32) if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4 else dtype


def _holds(dtype: np.dtype, sums: np.dtype) -> bool:
    """Whether a dtype is of the kind of sums of another: of floating point, complex, or integers as wide."""
    if jnp.issubdtype(sums, jnp.complexfloating):
        return jnp.issubdtype(dtype, jnp.complexfloating)
    if jnp.issubdtype(sums, jnp.inexact):
        return jnp.issubdtype(dtype, jnp.inexact)
    wide = jnp.issubdtype(dtype, jnp.integer) and (sums.kind == "b" or jnp.iinfo(dtype).bits >= jnp.iinfo(sums).bits)
    return wide or dtype == sums


def _check_holds(operation: str, name: str, dtype: np.dtype, sums: np.dtype) -> None:
    if not _holds(dtype, sums):
        fits = sums_dtype(sums)
        raise OperationError(
            f"{name} of ops.{operation} cannot hold the sums",
            given=f"{name}={str(dtype)!r}, for sums of {sums}",
            expected=f"a dtype of the same kind, and integers as wide: {fits}, say",
            fix=f"{name}={str(fits)!r}, and ops.cast of the results where others are wanted",
        )


def checked_sums(
    operation: str, dtype: np.dtype, preferred_element_type: Any, partials: Any
) -> tuple[np.dtype, np.dtype]:
    """The dtype of partial sums, and that of results; the default dtype of sums of results.

    Args:
        operation: which.
        dtype: of the operands.
        preferred_element_type: of the results; the operands' where it is None.
        partials: of partial sums.

    Raises:
        OperationError: something that is none, or that is too narrow for the sums.
    """
    out = checked_dtype(operation, "preferred_element_type", preferred_element_type or dtype)
    sums = checked_dtype(operation, "partials", partials or sums_dtype(out))
    if jnp.issubdtype(dtype, jnp.inexact):  # results of integers are what JAX makes of them
        _check_holds(operation, "preferred_element_type", out, dtype)
    _check_holds(operation, "partials", sums, out)
    return sums, out


def sum_partials(graph: Graph, partials: Tensor, out: Tensor, plan: Plan, codelet: Codelet = add_up) -> None:
    """Add up partials, as planned.

    Args:
        graph: where.
        partials: of shape (partials, outputs).
        out: of shape (outputs,).
        plan: of `plan_sum`.
        codelet: adds up.
    """
    count, outputs = partials.shape
    work = sum_work(count, outputs, partials.dtype, out.dtype, codelet)
    left = add_work(graph, work, plan.cuts, codelet, {"partials": partials}, {"out": out})
    settle(out, [plan.cut("outputs").block])
    for sums in left.values():
        last = plan_sum(graph.target, sums.shape[0], outputs, partials.dtype, out.dtype, codelet)
        sum_partials(graph, sums, out, last, codelet)


def add_planned(
    graph: Graph,
    work: Work,
    plan: Plan,
    tensors: Mapping[str, Tensor],
    results: Mapping[str, Tensor],
    *,
    first_tile: int = 0,
) -> dict[str, Tensor]:
    """Add the vertices of a work as planned, and those that put partial results together.

    Args:
        graph: where.
        work: the work.
        plan: of `plan_work`.
        tensors: the tensors whose blocks are its fields.
        results: the tensors written.
        first_tile: of the first block; nothing is noted about the home of results that begin elsewhere than on the
            first.

    Returns:
        The partial results that nobody puts together yet, of shape (partials, outputs).
    """
    follow(plan)
    codelet = work.pair.of(plan.detail("workers"))
    left = add_work(graph, work, plan.cuts, codelet, tensors, results, first_tile=first_tile)
    if first_tile:
        return left
    blocks = [cut.block for cut in plan.cuts]
    for field in work.fields:
        settle_read(tensors[field.name], plan.cuts, field.axes)
    for result in work.results:
        if result.name in results:
            settle(results[result.name], [blocks[a] for a in result.axes])
    for parts in left.values():
        settle(parts)
    several = len(left) > 1
    for result in work.results:
        if result.name in left and result.add is not None:
            parts, out = left.pop(result.name), results[result.name].flatten()
            home = home_of_partials(work, result, plan.cuts)
            count, num_outputs = parts.shape
            sums = plan_sum(graph.target, count, num_outputs, result.partials, result.dtype, result.add, home)
            with graph.scope(f"{work.name} {result.name}" if several else work.name):
                sum_partials(graph, parts, out, sums, result.add)
    return left
