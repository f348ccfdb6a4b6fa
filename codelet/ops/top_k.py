"""The greatest elements along an axis, and where they are: `top_k`, and its gradient.

Lines are whole on their tiles, or cut into stretches of which each tile finds the greatest, and one finds those of
them: in the order of the stretches, so that equal elements keep theirs. Source: PopLibs' `popops::topKWithPermutation`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.deprecated import old_order, warn_old
from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block, Cut
from codelet.ops.arguments import check_tensors, checked_axis, checked_grain, checked_planned, checked_shape
from codelet.ops.blocks import add_blocks, num_tiles
from codelet.ops.followed import follow
from codelet.ops.lines import as_lines, from_lines
from codelet.ops.plan_cache import kept_on_disk
from codelet.ops.planning import MEMORY_FRACTION, Option, Plan, block_sizes, cheapest, is_uncut, uncut
from codelet.ops.prices import StepCost, step_cost, vertex_cycles
from codelet.ops.put_lines import put_back
from codelet.ops.schema import checked
from codelet.schema import is_whole
from codelet.target import Target
from codelet.tracing.codelets import codelet
from codelet.views.tensor import Tensor


@codelet(workers=6, issue="assembly")
def greatest(x, start, *, k):
    """The k greatest of stretches of lines, and their positions on the lines, where the stretches begin at `start`."""
    values, positions = lax.top_k(x, k)
    return {"values": values, "positions": positions + start}


@codelet(workers=6, issue="assembly")
def greatest_of(candidates, places, *, k):
    """The k greatest of candidates, and their places: both (lines, lines, stretches, each)."""
    first, second, stretches, each = candidates.shape
    lines = (first * second, stretches * each)
    values, found = lax.top_k(candidates.reshape(lines), k)
    positions = jnp.take_along_axis(places.reshape(lines), found, axis=-1, mode="promise_in_bounds")
    return {"values": values.reshape(first, second, k), "positions": positions.reshape(first, second, k)}


@dataclass(frozen=True)
class _RankedLines:
    """Lines before and after, their length, how many are wanted of each, and the dtype."""

    before: int
    after: int
    length: int
    k: int
    dtype: np.dtype

    def __str__(self) -> str:
        lines = self.before * self.after
        return f"the greatest {self.k:,} of {lines:,} lines of {self.length:,} {self.dtype}"


_SCALAR = ((), np.dtype(np.int32))


def _price(target: Target, own: _RankedLines, cuts: tuple[Cut, Cut, Cut]) -> list[StepCost]:
    before, after, stretch = cuts
    vertex = vertex_cycles(
        target, greatest, {"x": ((before.grain, after.grain, stretch.grain), own.dtype), "start": _SCALAR}, k=own.k
    )
    size, lines = own.dtype.itemsize, before.block * after.block
    held = lines * (stretch.block * size + own.k * (size + 4))
    steps = [step_cost(target, "find", cuts, vertex, received_bytes=0, tile_bytes=held)]
    if stretch.vertices == 1:
        return steps
    shape = (before.grain, after.grain, stretch.vertices, own.k)
    last = vertex_cycles(target, greatest_of, {"candidates": (shape, own.dtype), "places": (shape, np.int32)}, k=own.k)
    received = lines * stretch.vertices * own.k * (size + 4)
    ends = (before, after)
    return [*steps, step_cost(target, "find of all", ends, last, received_bytes=received, tile_bytes=2 * received)]


def _stretch_of(own: _RankedLines, grain: int) -> int:
    """About so many elements of a line that each of its stretches has k at least."""
    sizes = range(max(grain, own.k), own.length)
    return next((size for size in sizes if own.length % size == 0 or own.length % size >= own.k), own.length)


def _options(target: Target, own: _RankedLines, grain: int | None) -> Iterator[Option]:
    each = None if grain is None else _stretch_of(own, grain)
    for size in block_sizes(own.length, each or 1, target.num_tiles):
        stretch = Cut("elements", own.length, size, each or size)
        last = own.length - (stretch.vertices - 1) * stretch.grain
        if stretch.parts > target.num_tiles or (stretch.vertices > 1 and last < own.k):
            continue
        for after in block_sizes(own.after, most_parts=target.num_tiles // stretch.parts):
            tiles = target.num_tiles // (stretch.parts * -(-own.after // after))
            before = -(-own.before // max(1, min(own.before, tiles)))
            sizes = (before, after)
            if grain is not None:
                lines = max(1, grain // max(1, own.length))
                sizes = (min(before, max(1, lines // min(after, lines))), min(after, lines))
            cuts = (
                Cut("before", own.before, min(-(-before // sizes[0]) * sizes[0], own.before), sizes[0]),
                Cut("after", own.after, min(-(-after // sizes[1]) * sizes[1], own.after), sizes[1]),
                stretch,
            )
            if num_tiles(cuts) <= target.num_tiles:
                yield Option(cuts, before * after * size / 8, functools.partial(_price, target, own, cuts))


@functools.lru_cache(maxsize=1024)
@kept_on_disk
def _plan(target: Target, own: _RankedLines, grain: int | None, memory_fraction: float) -> Plan:
    if is_uncut(grain):
        return uncut(str(own), (("before", own.before), ("after", own.after), ("elements", own.length)))
    return cheapest(str(own), target, _options(target, own, grain), memory_fraction)


@old_order(("dtype",), after=3)
@checked
def plan_top_k(
    target: Target,
    shape: Sequence[int],
    k: int,
    *,
    dtype: Any = jnp.float32,
    axis: int = -1,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
) -> Plan:
    """How the greatest elements along an axis are found on the tiles of a machine.

    Args:
        target: the machine.
        shape: of the tensor to search, of one element at least.
        k: how many, from 1.
        dtype: of the tensor to search.
        axis: along which.
        grain: about how many elements a vertex has; None for the planner to choose.
        memory_fraction: the fraction of a tile's memory that the plan may use.

    Raises:
        OperationError: a shape of no elements, an axis that there is not, or more elements than it has.

    >>> import codelet as cl
    >>> plan_top_k(cl.IPU(), (64, 10_000), 5).cut("elements").parts
    43
    """
    shape, of = checked_planned("plan_top_k", shape, dtype)
    axis = checked_axis("plan_top_k", "axis", axis, len(shape))
    if not 1 <= k <= shape[axis]:
        raise OperationError("k of ops.plan_top_k is not within the axis", given=k, expected=f"1 to {shape[axis]}")
    before, after = math.prod(shape[:axis]), math.prod(shape[axis + 1 :])
    own = _RankedLines(before, after, shape[axis], k, of)
    return _plan(target, own, checked_grain("plan_top_k", grain), memory_fraction)


class TopK(NamedTuple):
    """The results of `top_k`.

    Attributes:
        values: the greatest elements, the greatest first.
        positions: where they were along the axis, int32, in the same shape.
    """

    values: Tensor
    positions: Tensor


@checked
def top_k(
    graph: Graph,
    x: Tensor,
    k: int,
    *,
    axis: int = -1,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "top_k",
) -> TopK:
    """The k greatest elements along an axis, the greatest first, and their positions, as `jax.lax.top_k`.

    Args:
        graph: where its compute sets are added, in a scope of its name.
        x: the tensor to search.
        k: how many.
        axis: along which.
        grain: about how many elements a vertex has; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Returns:
        The values and their positions; of equal elements the first come first.

    Raises:
        OperationError: an axis that there is not, or more elements than it has.

    >>> import codelet as cl, jax.numpy as jnp
    >>> values, positions = cl.lower(lambda graph, x: cl.ops.top_k(graph, x, 2))(jnp.array([9.0, 3, 6, 4, 10]))
    >>> values.tolist(), positions.tolist()
    ([10.0, 9.0], [4, 0])
    """
    check_tensors(name, graph, x=x)
    axis = checked_axis(name, "axis", axis, x.ndim)
    length = x.shape[axis]
    if not isinstance(k, int) or isinstance(k, bool) or not 0 <= k <= length:
        raise OperationError(f"k of ops.{name} is not within the axis", given=repr(k), expected=f"0 to {length}")
    given, grain = as_lines(x, axis), checked_grain(name, grain)
    before, after, _ = given.shape
    own = _RankedLines(before, after, length, k, x.dtype)
    with graph.scope(name, unique=True):
        shape = (before, after, k)
        values = graph.add_variable("values", shape, x.dtype)
        positions = graph.add_variable("positions", shape, np.int32)
        if values.size:
            _add(graph, given, values, positions, own, follow(_plan(graph.target, own, grain, memory_fraction)))
    return TopK(from_lines(values, x.shape, axis), from_lines(positions, x.shape, axis))


def _add(graph: Graph, given: Tensor, values: Tensor, positions: Tensor, own: _RankedLines, plan: Plan) -> None:
    """The vertices, as planned."""
    stretch = plan.cut("elements")
    found, places = values, positions
    if stretch.vertices > 1:
        shape = (own.before, own.after, stretch.vertices, own.k)
        found = graph.add_variable("candidates", shape, own.dtype)
        places = graph.add_variable("places", shape, np.int32)

    def fields(first: Block, second: Block, part: Block) -> dict[str, Any]:
        lines = (first.elements, second.elements)
        place = lines if stretch.vertices == 1 else (*lines, part.number)
        made = {"values": found[place], "positions": places[place]}
        return {"x": given[(*lines, part.elements)], "start": part.elements.start, "k": own.k, **made}

    add_blocks(graph, "find", greatest, plan.cuts, fields)
    if stretch.vertices == 1:
        return

    def last_fields(first: Block, second: Block) -> dict[str, Any]:
        lines = (first.elements, second.elements)
        given = {"candidates": found[lines], "places": places[lines]}
        return {**given, "k": own.k, "values": values[lines], "positions": positions[lines]}

    add_blocks(graph, "find of all", greatest_of, plan.cuts[:2], last_fields)


@checked
def top_k_gradient(
    graph: Graph,
    cotangent: Tensor,
    positions: Tensor,
    x_shape: Sequence[int],
    *,
    axis: int = -1,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
    name: str = "top_k_gradient",
) -> Tensor:
    """The gradient of the values of `top_k` by its operand, as `jax.vjp` gives it.

    Args:
        graph: where its compute set is added, in a scope of its name.
        cotangent: of the values.
        positions: the positions that `top_k` gave with them.
        x_shape: the shape of the searched tensor.
        axis: along which.
        grain: about how many elements a vertex makes; default: chosen by the planner.
        memory_fraction: the fraction of a tile's memory that the plan may use.
        name: of the scope.

    Raises:
        OperationError: shapes or an axis that do not fit.

    >>> import codelet as cl, jax.numpy as jnp
    >>> slope = cl.lower(lambda graph, g, positions: cl.ops.top_k_gradient(graph, g, positions, (4,)))
    >>> slope(jnp.array([1.0, 2.0]), jnp.array([3, 1]))
    Array([0., 2., 0., 1.], dtype=float32)
    """
    check_tensors(name, graph, cotangent=cotangent, positions=positions)
    axis = checked_axis(name, "axis", axis, cotangent.ndim)
    if cotangent.shape != positions.shape:
        raise OperationError(
            f"the cotangent and the positions of ops.{name} are not of one shape",
            given=f"{cotangent.shape} and {positions.shape}",
            expected="that of the values and positions of ops.top_k",
        )
    if is_whole(x_shape):  # as it was given before: along the axis alone
        warn_old("ops.top_k_gradient with a length along the axis", "x_shape, a shape")
        x_shape = (*cotangent.shape[:axis], x_shape, *cotangent.shape[axis + 1 :])
    shape = checked_shape(name, x_shape)
    if len(shape) != cotangent.ndim or any(n != shape[d] for d, n in enumerate(cotangent.shape) if d != axis):
        raise OperationError(
            f"x_shape of ops.{name} does not fit its cotangent",
            given=f"{shape} and {cotangent.shape}",
            expected=f"shapes that differ in dimension {axis} alone",
        )
    return put_back(graph, cotangent, positions, axis, shape[axis], grain, memory_fraction, name)
