"""Partial results put together: in one step or in several, each output's partials on one tile.

Source: PopLibs' `reduce` of the partials of convolutions and matrix products (lib/popops/Reduction.cpp).
"""

from __future__ import annotations

from collections.abc import Mapping

import codelet as cl
from codelet.ops.block_planning import add_up, plan_sum, sum_work
from codelet.ops.blockwise import Work, add_work
from codelet.ops.planning import Plan


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
    left = add_work(graph, work, plan.cuts, work.pair.of(plan.detail("workers")), tensors, results)
    several = len(left) > 1
    for result in work.results:
        if result.name in left and result.add is not None:
            parts, out = left.pop(result.name), results[result.name].flatten()
            sums = plan_sum(graph.target, *parts.shape, result.partials, result.dtype, result.add)
            with graph.scope(f"{work.name} {result.name}" if several else work.name):
                sum_partials(graph, parts, out, sums, result.add)
    return left
