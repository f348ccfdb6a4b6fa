"""Elements put back along lines: the gradient of a choice of elements of a line, each once at most.

In come numbers and the positions they are put to, along an axis; all else is zero. A vertex makes a stretch of some
lines, and looks at all numbers of these, as each may belong to its stretch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block, Cut
from codelet.ops.arguments import checked_grain
from codelet.ops.blocks import add_blocks, num_tiles
from codelet.ops.followed import follow
from codelet.ops.lines import as_lines, from_lines
from codelet.ops.lookup_codelets import positions as counted
from codelet.ops.plan_cache import kept_on_disk
from codelet.ops.planning import Option, Plan, block_sizes, cheapest, is_uncut, uncut
from codelet.ops.prices import StepCost, step_cost, vertex_cycles
from codelet.target import Target
from codelet.tracing.codelets import codelet
from codelet.views.tensor import Tensor


@codelet(workers=6, issue="assembly")
def put(values, positions, start, *, length):
    """Stretches of lines, `length` elements from `start` on, with values put to their positions on the lines."""
    lines = values.reshape(math.prod(values.shape[:-1]), values.shape[-1])
    places = counted(positions).reshape(lines.shape)
    places = places - start.astype(places.dtype)
    rows = jnp.arange(lines.shape[0])[:, None]
    zeros = jnp.zeros((lines.shape[0], length), values.dtype)
    places = jnp.where(places < 0, length, places)  # beyond the end, where what comes before the stretch is dropped
    return zeros.at[rows, places].set(lines, mode="drop").reshape((*values.shape[:-1], length))


@dataclass(frozen=True)
class _Puts:
    """The operands: lines before and after, numbers and elements of each line, and the dtypes."""

    before: int
    after: int
    count: int
    length: int
    dtype: np.dtype
    positions: np.dtype


def _price(target: Target, own: _Puts, cuts: tuple[Cut, ...]) -> list[StepCost]:
    before, after, elements = cuts
    shape = (before.grain, after.grain, own.count)
    types = {"values": (shape, own.dtype), "positions": (shape, own.positions), "start": ((), np.dtype(np.int32))}
    vertex = vertex_cycles(target, put, types, length=elements.grain)
    given = before.block * after.block * own.count * (own.dtype.itemsize + own.positions.itemsize)
    held = given + before.block * after.block * elements.block * own.dtype.itemsize
    received = given if elements.parts > 1 else 0
    return [step_cost(target, "put", cuts, vertex, received_bytes=received, tile_bytes=held)]


def _options(target: Target, own: _Puts, grain: int | None) -> Iterator[Option]:
    for size in block_sizes(own.length, most_parts=target.num_tiles):
        parts = -(-own.length // size)
        for after in block_sizes(own.after, most_parts=target.num_tiles // parts):
            tiles = target.num_tiles // (parts * -(-own.after // after))
            before = -(-own.before // max(1, min(own.before, tiles)))
            sizes = (before, after, size)
            if grain is not None:
                each = min(size, grain)
                lines = max(1, grain // each)
                sizes = (min(before, max(1, lines // min(after, lines))), min(after, lines), each)
            extents = {"before": own.before, "after": own.after, "elements": own.length}
            cuts = tuple(
                Cut(name, extent, min(-(-block // each) * each, extent), each)
                for (name, extent), block, each in zip(extents.items(), (before, after, size), sizes, strict=True)
            )
            if num_tiles(cuts) <= target.num_tiles:
                bound = before * after * (size + own.count) / 16
                yield Option(cuts, bound, functools.partial(_price, target, own, cuts))


@functools.lru_cache(maxsize=1024)
@kept_on_disk
def _plan(target: Target, own: _Puts, grain: int | None, memory_fraction: float) -> Plan:
    if is_uncut(grain):
        return uncut("putting", (("before", own.before), ("after", own.after), ("elements", own.length)))
    return cheapest(f"putting {own.count:,} of {own.length:,}", target, _options(target, own, grain), memory_fraction)


def put_back(
    graph: Graph,
    values: Tensor,
    positions: Tensor,
    axis: int,
    length: int,
    grain: int | None,
    memory_fraction: float,
    name: str,
) -> Tensor:
    """Numbers put to positions along an axis of zeros.

    Args:
        graph: where its compute set is added, in a scope of its name.
        values: the values to put.
        positions: where to, integers in the same shape; each once at most on a line.
        axis: along which, counted from the beginning.
        length: of the lines of the result.
        grain: about how many elements a vertex makes; None for the planner to choose.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: positions that are no integers.
    """
    if not jnp.issubdtype(positions.dtype, jnp.integer):
        raise OperationError(f"the positions given to ops.{name} are no integers", given=positions, expected="int32")
    given, places, grain = as_lines(values, axis), as_lines(positions, axis), checked_grain(name, grain)
    before, after, count = given.shape
    own = _Puts(before, after, count, length, values.dtype, positions.dtype)
    with graph.scope(name, unique=True):
        out = graph.add_variable("out", (before, after, length), values.dtype)
        if out.size:

            def fields(first: Block, second: Block, stretch: Block) -> dict[str, Any]:
                lines = (first.elements, second.elements)
                place = out[(*lines, stretch.elements)]
                own_values = {"values": given[lines], "positions": places[lines]}
                return {**own_values, "start": stretch.elements.start, "out": place, "length": place.shape[-1]}

            add_blocks(graph, "put", put, follow(_plan(graph.target, own, grain, memory_fraction)).cuts, fields)
    return from_lines(out, values.shape, axis)
