"""Partial sums added up: in one step or in several, each output's partials on one tile.

Source: PopLibs' `reduce` of the partials of convolutions and matrix products (lib/popops/Reduction.cpp).
"""

from __future__ import annotations

import functools
from typing import Any

import jax.numpy as jnp
import numpy as np

import codelet as cl
from codelet.ops.blocks import Block, Cut, add_blocks
from codelet.ops.planning import Option, Plan, StepCost, cheapest, step_cost, vertex_cycles
from codelet.target import Target


@cl.codelet(workers=6, issue="assembly")
def add_up(partials, *, dtype):
    """The sums of the rows of (partials, outputs), in the dtype of the partials, as `dtype`."""
    return jnp.sum(partials, 0, dtype=partials.dtype).astype(dtype)


def _step(
    target: Target, codelet: cl.Codelet, name: str, count: int, outputs: Cut, groups: Cut, dtypes: tuple[Any, Any]
) -> StepCost:
    """What it takes to sum groups of `count` partials of every output."""
    (dtype, out_dtype), block = dtypes, outputs.block * groups.block
    types = {"partials": ((count, outputs.grain), dtype)}
    vertex = vertex_cycles(target, codelet, types, **_static(codelet, out_dtype))
    received = count * block * np.dtype(dtype).itemsize
    held = received + block * np.dtype(out_dtype).itemsize
    return step_cost(target, name, (groups, outputs), vertex, received_bytes=received, tile_bytes=held)


def _static(codelet: cl.Codelet, dtype: Any) -> dict[str, Any]:
    """The static values that a codelet which adds up takes."""
    return {"dtype": np.dtype(dtype).name} if "dtype" in codelet.static else {}


def _grains(block: int, codelet: cl.Codelet, target: Target) -> list[int]:
    """How many outputs a vertex may have: all of its tile's where workers share it, else a worker's share, or one."""
    if codelet.hints.workers > 1:
        return [block]
    return sorted({1, -(-block // target.num_workers)})


@functools.lru_cache(maxsize=4096)
def plan_sum(
    target: Target, count: int, num_outputs: int, dtype: np.dtype, out_dtype: np.dtype, codelet: cl.Codelet = add_up
) -> Plan:
    """How `count` partials of each of some outputs are added up.

    Args:
        target: the machine.
        count: of partials.
        num_outputs: what each has partials of.
        dtype: of the partials.
        out_dtype: of the sums.
        codelet: what adds up: a field `partials` of shape (partials, outputs), and perhaps a static `dtype`.
    """
    options = []
    # One step; or two, of groups of a power of two up to the root.
    for groups in {1, *(-(-count // 2**k) for k in range(1, count.bit_length() // 2 + 1) if count >= 8)}:
        each, tiles = -(-count // groups), max(1, target.num_tiles // groups)
        # The more tiles the better, but for what every vertex takes however small it is.
        shares = {-(-num_outputs // max(1, tiles >> k)) for k in range(4)}
        for size in sorted({min(num_outputs, -(-share // n) * n) for share in shares for n in (1, 4, 8)}):
            for grain in _grains(size, codelet, target):
                block = min(-(-size // grain) * grain, num_outputs)
                outputs = Cut("outputs", num_outputs, block, grain)
                cuts = (Cut("groups", groups, 1, 1), outputs)

                def price(cuts: tuple[Cut, ...] = cuts, each: int = each) -> list[StepCost]:
                    groups, outputs = cuts
                    if groups.extent == 1:
                        return [_step(target, codelet, "add up", count, outputs, groups, (dtype, out_dtype))]
                    last = plan_sum(target, groups.extent, num_outputs, dtype, out_dtype, codelet)
                    first = _step(target, codelet, "add up groups", each, outputs, groups, (dtype, dtype))
                    return [first, *last.steps]

                words = each * block * dtype.itemsize / target.exchange_bytes_per_cycle
                options.append(Option(cuts, words, price))
    return cheapest(f"sum of {count:,} x {num_outputs:,} {dtype}", target, options)


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
    groups, outputs = plan.cuts
    if groups.extent == 1:

        def fields(k: Block) -> dict[str, Any]:
            own = k.elements
            return {"partials": partials[:, own], "out": out[own], **_static(codelet, out.dtype)}

        add_blocks(graph, "add up", codelet, [outputs], fields)
        return
    count, extent = partials.shape
    each = -(-count // groups.extent)
    sums = graph.add_variable("sums of groups", (groups.extent, extent), partials.dtype)
    cut = Cut("summed", count, each, each)

    def group_fields(group: Block, k: Block) -> dict[str, Any]:
        own = k.elements
        return {
            "partials": partials[group.elements, own],
            "out": sums[group.number, own],
            **_static(codelet, partials.dtype),
        }

    add_blocks(graph, "add up groups", codelet, [cut, outputs], group_fields)
    last = plan_sum(graph.target, groups.extent, extent, partials.dtype, out.dtype, codelet)
    sum_partials(graph, sums, out, last, codelet)
