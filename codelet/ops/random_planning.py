"""How random numbers are planned: works of one axis, of elements, that read a key and the numbers of their elements."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.deprecated import old_order
from codelet.errors import OperationError
from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block
from codelet.ops.arguments import checked_dtype, checked_grain
from codelet.ops.block_planning import plan_work
from codelet.ops.blocks import add_blocks
from codelet.ops.blockwise import Axis, Field, Result, Work
from codelet.ops.followed import follow
from codelet.ops.pairs import Pair
from codelet.ops.planning import MEMORY_FRACTION, Plan
from codelet.ops.random_codelets import draw_bits, draw_normal, draw_uniform, drop
from codelet.ops.schema import checked
from codelet.target import Target


def draw_work(
    name: str,
    codelets: Pair,
    count: int,
    operands: Mapping[str, np.dtype],
    dtype: np.dtype,
    static: Mapping[str, Any],
    *,
    is_of_words: bool = False,
) -> Work:
    """The codelets that make numbers of a key and their counters, stretch by stretch.

    Args:
        name: of the compute set.
        codelets: make a stretch.
        count: of numbers, one at least.
        operands: the dtypes of operands with an element for each number.
        dtype: of the numbers.
        static: static values of the codelets.
        is_of_words: whether each is of two words, along a last dimension.
    """
    axes = Axis("elements", count, "kept"), Axis("words", 2, "whole")
    by_element = {"counter": np.dtype(np.int32), **operands}
    fields = Field("key", (1,), np.dtype(np.uint32)), *(Field(own, (0,), kind) for own, kind in by_element.items())
    result = Result("out", (0, 1) if is_of_words else (0,), dtype, dtype)
    return Work(name, axes, fields, (result,), *codelets, static=tuple(static.items()))


def plan_draws(target: Target, work: Work, grain: int | None, memory_fraction: float) -> Plan:
    """How a work is spread; a grain counts numbers, each of which is two elements of the grid: one for each word."""
    return plan_work(target, work, grain and 2 * grain, memory_fraction)


def add_draws(
    graph: Graph, work: Work, grain: int | None, memory_fraction: float, fields: Callable[[slice], Mapping[str, Any]]
) -> None:
    """The vertices of a work, planned, by the fields of each stretch."""
    plan = follow(plan_draws(graph.target, work, grain, memory_fraction))
    codelet = work.pair.of(plan.detail("workers"))
    values = work.values(codelet, plan.cuts)

    def own(elements: Block, _words: Block) -> dict[str, Any]:
        return {**fields(elements.elements), **values}

    add_blocks(graph, work.name, codelet, plan.cuts, own)


@old_order(("dtype",), after=3)
@checked
def plan_draw(
    target: Target,
    operation: str,
    count: int,
    *,
    dtype: Any = jnp.float32,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
) -> Plan:
    """How random numbers are spread over the tiles of a machine.

    Args:
        target: the machine.
        operation: "random_bits", "uniform", "normal" or "dropout".
        count: of numbers, one at least.
        dtype: of them.
        grain: about how many a vertex draws; None for the planner to choose.
        memory_fraction: the fraction of a tile's memory that the plan may use.

    Raises:
        OperationError: an operation that draws nothing, a count below 1, or a dtype that it does not draw.

    >>> import codelet as cl
    >>> plan = plan_draw(cl.IPU(), "uniform", 1_000_000)
    >>> plan.cut("elements").parts, plan.cut("elements").block
    (1462, 684)
    """
    own = checked_dtype("plan_draw", "dtype", dtype)
    if operation in ("uniform", "normal", "dropout") and not jnp.issubdtype(own, jnp.floating):
        raise OperationError("dtype of ops.plan_draw is not of floating point", given=own, expected="jnp.float32, say")
    ways = {
        "random_bits": (draw_bits, {"dtype": own.name}),
        "uniform": (draw_uniform, {"minval": 0.0, "maxval": 1.0, "dtype": own.name}),
        "normal": (draw_normal, {"dtype": own.name}),
        "dropout": (drop, {"kept": 0.5, "dtype": "float32"}),
    }
    if operation not in ways:
        raise OperationError("no operation that draws", given=repr(operation), expected=", ".join(ways))
    codelets, static = ways[operation]
    operands = {"x": own} if operation == "dropout" else {}
    work = draw_work("draw", codelets, count, operands, own, static)
    return plan_draws(target, work, checked_grain(operation, grain), memory_fraction)
