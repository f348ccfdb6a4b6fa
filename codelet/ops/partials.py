"""Partial results: in what sums are kept, and how they are put together, in one step or in several.

Source: PopLibs' `reduce` of the partials of convolutions and matrix products (lib/popops/Reduction.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

import codelet as cl
from codelet.errors import OperationError
from codelet.ops.arguments import checked_dtype
from codelet.ops.block_planning import add_up, home_of_partials, plan_sum, sum_work
from codelet.ops.blockwise import Work, add_work
from codelet.ops.followed import follow
from codelet.ops.homes import settle, settle_read
from codelet.ops.planning import Plan


def sums_dtype(dtype: np.dtype) -> np.dtype:
    """What sums of a dtype are kept in: float32 for floating point that is shorter."""
    return np.dtype(np.float32) if jnp.issubdtype(dtype, jnp.floating) and dtype.itemsize < 4 else dtype


_RANKS = ("whole numbers", "floats", "complex numbers")
"""Kinds of numbers, each of which holds those before."""


def _rank(dtype: np.dtype) -> int:
    """The kind of a dtype's numbers, by its place in `_RANKS`."""
    return int(jnp.issubdtype(dtype, jnp.inexact)) + int(jnp.issubdtype(dtype, jnp.complexfloating))


def _bits(dtype: np.dtype) -> int:
    return 1 if dtype.kind == "b" else jnp.iinfo(dtype).bits


def _needed(sums: np.dtype, operands: np.dtype, out: np.dtype) -> str | None:
    """What sums have to be of to hold products of operands; None where they are.

    Floats may be summed in shorter ones: that rounds. Whole numbers wrap, which shows in results of more bits alone.
    """
    if _rank(sums) < _rank(operands):
        return _RANKS[_rank(operands)]
    if _rank(operands) == _rank(out) == 0:
        bits = max(_bits(operands), _bits(out))
        if _rank(sums) or _bits(sums) < bits:
            return f"{_RANKS[0]} of {bits} bits or more"
    return None


def checked_sums(operation: str, partials: Any, operands: np.dtype, out: np.dtype) -> np.dtype:
    """The dtype of partial sums of products: that which was asked for, or what sums of them are kept in.

    Raises:
        OperationError: something that is no dtype, or one that cannot hold what is summed.
    """
    usual = sums_dtype(max(out, operands, key=_rank))
    own = checked_dtype(operation, "partials", partials or usual)
    needed = _needed(own, operands, out)
    if needed is not None:
        raise OperationError(
            f"partials of ops.{operation} cannot hold the sums of its products",
            given=f"partials={own}, of operands of {operands} and results of {out}",
            expected=needed,
            fix=f"partials={str(usual)!r}, or none",
        )
    return own


def sum_partials(
    graph: cl.Graph, partials: cl.Tensor, out: cl.Tensor, plan: Plan, codelet: cl.Codelet = add_up
) -> None:
    """Add up partials, as planned.

    Args:
        graph: where.
        partials: of shape (partials, outputs).
        out: of shape (outputs,).
        plan: of `plan_sum`.
        codelet: what adds up.
    """
    count, outputs = partials.shape
    work = sum_work(count, outputs, partials.dtype, out.dtype, codelet)
    left = add_work(graph, work, plan.cuts, codelet, {"partials": partials}, {"out": out})
    settle(out, [plan.cut("outputs").block])
    for sums in left.values():
        last = plan_sum(graph.target, sums.shape[0], outputs, partials.dtype, out.dtype, codelet)
        sum_partials(graph, sums, out, last, codelet)


def add_planned(
    graph: cl.Graph, work: Work, plan: Plan, tensors: Mapping[str, cl.Tensor], results: Mapping[str, cl.Tensor]
) -> dict[str, cl.Tensor]:
    """Add the vertices of a work as planned, and those that put partial results together.

    Args:
        graph: where.
        work: what is done.
        plan: of `plan_work`.
        tensors: what its fields are blocks of.
        results: what is written.

    Returns:
        The partial results that nobody puts together yet, of shape (partials, outputs).
    """
    follow(plan)
    left = add_work(graph, work, plan.cuts, work.pair.of(plan.detail("workers")), tensors, results)
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
            sums = plan_sum(graph.target, *parts.shape, result.partials, result.dtype, result.add, home)
            with graph.scope(f"{work.name} {result.name}" if several else work.name):
                sum_partials(graph, parts, out, sums, result.add)
    return left
