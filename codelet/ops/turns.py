"""Rows by turns: what a loop takes of an array in a turn, and what it puts in its place of what it stacks."""

from __future__ import annotations

import math
from typing import Any

from jax import lax

from codelet.graphs.graph import Graph
from codelet.ops.blocks import Cut, add_blocks
from codelet.tracing.codelets import codelet
from codelet.views.tensor import Tensor

FEWEST = 64
"""Elements of a row that a tile takes, at least: fewer are not worth the vertex."""


def _starts(place: Any) -> tuple[Any, Any]:
    """Where a row of (rows, elements) begins, in the dtype of its place."""
    return place, place.dtype.type(0)


@codelet(workers=6, issue="assembly")
def take_row(x, place):
    """The row of (rows, elements) at a place."""
    row = lax.dynamic_slice(x, _starts(place), (1, x.shape[1]), allow_negative_indices=False)
    return lax.reshape(row, (x.shape[1],))


@codelet(workers=6, issue="assembly")
def put_row(x, row, place):
    """A row in its place of (rows, elements)."""
    # A reshape, and not a broadcast: of that of one element JAX's transpose is another than of that of several.
    row = lax.reshape(row, (1, x.shape[1]))
    return {"x": lax.dynamic_update_slice(x, row, _starts(place), allow_negative_indices=False)}


def cut_row(graph: Graph, size: int, grain: int | None) -> Cut:
    """A row, cut over the tiles."""
    block = min(max(FEWEST, -(-size // graph.target.num_tiles)), size)
    grain = block if grain is None else min(block, max(1, grain))
    return Cut("elements", size, min(-(-block // grain) * grain, size), grain)


def take_turn(graph: Graph, x: Tensor, place: Tensor, grain: int | None = None) -> Tensor:
    """What a loop takes of an array in a turn: a row, of a place that a variable says.

    Args:
        graph: where.
        x: of shape (rows, ...).
        place: of shape () and integers.
        grain: elements of a vertex, at most; of a tile when left off.
    """
    rows = x.reshape(x.shape[0], math.prod(x.shape[1:]))
    with graph.scope("take", unique=True):
        row = graph.add_variable("row", rows.shape[1:], x.dtype)
        if row.size:
            fields = lambda own: {"x": rows[:, own.elements], "place": place, "out": row[own.elements]}  # noqa: E731
            add_blocks(graph, "take", take_row, [cut_row(graph, row.size, grain)], fields)
    return row.reshape(x.shape[1:])


def put_turn(graph: Graph, value: Tensor, x: Tensor, place: Tensor, grain: int | None = None) -> None:
    """Put what a turn has made in its place of what a loop stacks; the arguments are as of `take_turn`."""
    rows, row = x.reshape(x.shape[0], math.prod(x.shape[1:])), value.flatten()
    with graph.scope("put", unique=True):
        if row.size:
            fields = lambda own: {"x": rows[:, own.elements], "row": row[own.elements], "place": place}  # noqa: E731
            add_blocks(graph, "put", put_row, [cut_row(graph, row.size, grain)], fields)
