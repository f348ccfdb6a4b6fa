"""Show a program beside its plain JAX twin: what it is made of, whether both agree, and the ratio of their times."""

from __future__ import annotations

import codelet as cl
from benchmarks.harness import HEADER, Comparison, Row, compare


def show(comparison: Comparison, graph: cl.Graph | None = None, *, repeats: int = 9, seconds: float = 1.0) -> Row:
    """Print the size of the graph, then the times of both sides and their ratio.

    Args:
        comparison: the two sides.
        graph: what ours runs; that of the lowered graph that ours holds, when left off.
        repeats: rounds, at least.
        seconds: for which rounds of short calls go on.

    Raises:
        ValuesDiffer: the two do not agree.
    """
    if graph is None:
        (lowered,) = comparison.ours_held()
        graph = lowered.graph
    print(f"{comparison.name}: {graph.num_vertices:,} vertices, {graph.num_edges:,} edges")
    row = compare(comparison, repeats, seconds)
    print(HEADER, row, sep="\n")
    return row
