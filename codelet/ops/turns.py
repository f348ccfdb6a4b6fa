"""Rows by iterations: the rows that a loop takes of an array in an iteration, and those that it stacks in
their place.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax import lax

from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block, Cut
from codelet.ops.blocks import add_blocks
from codelet.ops.planning import is_uncut
from codelet.tracing.codelets import codelet
from codelet.views.tensor import Tensor

FEWEST = 64
"""Elements of a row that a tile takes, at least: fewer are not worth the vertex."""


def _starts(place: Any, rank: int) -> tuple[Any, ...]:
    """Where a row of (rows, ...) begins, in the dtype of its place."""
    return place, *[place.dtype.type(0)] * (rank - 1)


@codelet(workers=6, issue="assembly")
def take_row(x, place):
    """The row of (rows, ...) at a place."""
    row = lax.dynamic_slice(x, _starts(place, x.ndim), (1, *x.shape[1:]), allow_negative_indices=False)
    return lax.reshape(row, x.shape[1:])


@codelet(workers=6, issue="assembly")
def put_row(x, row, place):
    """A row in its place of (rows, ...)."""
    # A reshape, and not a broadcast: of that of one element JAX's transpose is another than of that of several.
    row = lax.reshape(row, (1, *x.shape[1:]))
    return {"x": lax.dynamic_update_slice(x, row, _starts(place, x.ndim), allow_negative_indices=False)}


def cut_row(graph: Graph, shape: tuple[int, ...], grain: int | None) -> list[Cut]:
    """A row, cut over the tiles: into stretches of it, as it lies in memory, where that goes by whole dimensions."""
    if is_uncut(grain):
        return [Cut(f"dimension {d}", extent, extent, extent) for d, extent in enumerate(shape)]
    size = math.prod(shape)
    left = min(max(FEWEST, -(-size // graph.target.num_tiles)), size)
    most, cuts = left if grain is None else min(left, max(1, grain)), []
    for d, extent in reversed([*enumerate(shape)]):
        name = "elements" if len(shape) == 1 else f"dimension {d}"
        own, block = min(most, extent), min(left, extent)
        cuts.append(Cut(name, extent, min(-(-block // own) * own, extent), own))
        left, most = -(-left // extent), -(-most // extent)
    return cuts[::-1]


def _rows(x: Tensor, row: Tensor | None = None) -> tuple[int, ...]:
    """The shape of a row, one dimension where elements lie in steps: else a vertex would read them one by one."""
    if x.ndim == 1:
        return ()
    flat = x.reshape(x.shape[0], math.prod(x.shape[1:]))
    is_flat = flat.index.is_strided and (row is None or row.flatten().index.is_strided)
    return flat.shape[1:] if is_flat else x.shape[1:]


def _part(rows: Tensor, name: str, row: Tensor, blocks: Sequence[Block]) -> dict[str, Any]:
    """The part of all rows, and of the one, that a vertex reads or writes."""
    at = tuple(block.elements for block in blocks)
    return {"x": rows[:, *at], name: row[at]}


def take_turn(graph: Graph, x: Tensor, place: Tensor, grain: int | None = None) -> Tensor:
    """The part of an array that a loop takes in an iteration: a row, of a place that a variable says.

    Args:
        graph: where.
        x: of shape (rows, ...).
        place: of shape () and integers.
        grain: elements of a vertex, at most; default: of a tile.
    """
    shape = _rows(x)
    rows = x.reshape(x.shape[0], *shape)
    with graph.scope("take", unique=True):
        row = graph.add_variable("row", x.shape[1:], x.dtype)  # what a gradient saves of it lies as the array then
        if row.size:
            own_row = row.reshape(shape)
            fields = lambda *own: {**_part(rows, "out", own_row, own), "place": place}  # noqa: E731
            add_blocks(graph, "take", take_row, cut_row(graph, shape, grain), fields)
    return row


def put_turn(graph: Graph, value: Tensor, x: Tensor, place: Tensor, grain: int | None = None) -> None:
    """Put the result of an iteration in its place of a loop's stacked array; the arguments are as of `take_turn`."""
    shape = _rows(x, value)
    rows, row = x.reshape(x.shape[0], *shape), value.reshape(shape)
    with graph.scope("put", unique=True):
        if row.size:
            fields = lambda *own: {**_part(rows, "row", row, own), "place": place}  # noqa: E731
            add_blocks(graph, "put", put_row, cut_row(graph, shape, grain), fields)
