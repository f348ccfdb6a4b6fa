"""The vertices of a convolution as a plan has them: of all results at once, or of one part of them after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block, Cut
from codelet.ops.block_planning import add_up, plan_sum
from codelet.ops.blocks import add_blocks
from codelet.ops.conv_arguments import Seen
from codelet.ops.conv_planning import plan_convolved
from codelet.ops.conv_prices import num_partials
from codelet.ops.convolved import Convolved, Kind, codelets_named, cuts_of_phase, parts_of, static_values
from codelet.ops.fill import add_filled, filled
from codelet.ops.followed import follow
from codelet.ops.homes import settle
from codelet.ops.partials import sum_partials
from codelet.ops.planning import MEMORY_FRACTION, Plan
from codelet.ops.windows import places_of
from codelet.tracing.codelets import Codelet
from codelet.views.line import Phase
from codelet.views.symbols import grid
from codelet.views.tensor import Tensor


def _add_phase(
    seen: Seen,
    graph: Graph,
    cuts: Sequence[Cut],
    phase: Sequence[Phase],
    kind: Kind,
    codelet: Codelet,
    out: Tensor,
) -> None:
    """The vertices of the results of one phase, of `out` of shape (partials..., batch, groups, results, field)."""
    own = seen.own
    ours = cuts_of_phase(cuts, phase)
    count = num_partials(cuts)
    dtype = np.dtype(out.dtype)
    kernels = seen.w[(..., *(slice(one.tap, None, one.tap_step) for one in phase))]

    def fields(*blocks: Block) -> dict[str, Any]:
        at = parts_of(blocks)
        group, batch, channels = at.groups.number, at.batch.elements, at.out_channels.elements
        if kind == "element":
            batch, channels = at.batch.number, at.out_channels.number
        windows: list[Any] = []
        places: list[Any] = []
        for field, one, y, k in zip(own.fields, phase, at.fields, at.kernel, strict=True):
            window, results = field.window(one, y.elements, k.elements), places_of(one, y.elements)
            is_patch = kind == "patch"
            windows.append(window if is_patch else slice(window.start, window.stop, field.step))
            places.append(results if is_patch else results.start)
        numbers = (at.in_channels.number, *(k.number for k in at.kernel)) if count > 1 else ()
        written = out[(*numbers, batch, group, channels, *places)]
        summed = at.in_channels.elements
        return {
            "x": seen.x[(batch, group, summed, *windows)],
            "w": kernels[(group, channels, summed, *(k.elements for k in at.kernel))],
            "out": written,
            **static_values(own, kind, dtype),
        }

    add_blocks(graph, "convolve", codelet, ours, fields, parts=[cut.parts for cut in cuts])


def _add_zeros(graph: Graph, own: Convolved, phase: Sequence[Phase], out: Tensor) -> None:
    """The vertices of a phase whose windows meet no tap: one for each channel of the results, on all tiles."""
    chosen = out.shape[: out.ndim - own.rank]
    at = grid(*chosen)
    places = [slice(one.first, None, one.apart) for one in phase]
    number: Any = 0
    for symbol, extent in zip(at, chosen, strict=True):
        number = number * extent + symbol
    written = out[(*at, *places)]
    each = -(-math.prod(chosen) // graph.target.num_tiles)
    codelet = filled.for_vertices(each, graph.target.num_workers)
    static = {"shape": written.shape, "value": 0, "dtype": out.dtype.name}
    graph.add_vertex("convolve", codelet, out=written, tile=number // each, **static)


def _add_at_once(graph: Graph, seen: Seen, plan: Plan, out: Tensor) -> None:
    """The vertices of a convolution, or of an iteration of it, of results as they are stored."""
    own = seen.own
    back = [seen.order.index(d) for d in range(out.ndim)]
    kind, codelets = codelets_named(plan.detail("codelet"))
    codelet = codelets.of(plan.detail("workers"))
    count, written, extra = num_partials(plan.cuts), out, 0
    if count > 1:
        vertices = parts_of([cut.vertices for cut in plan.cuts])
        numbers = (vertices.in_channels, *vertices.kernel)
        written, extra = graph.add_variable("partials", (*numbers, *out.shape), own.partials), len(numbers)
    view = written.transpose(*range(extra), *(extra + d for d in back))
    for phase in own.phases:
        if not all(one.taps for one in phase):
            _add_zeros(graph, own, phase, view)
        else:
            _add_phase(seen, graph, plan.cuts, phase, kind, codelet, view)
    if count > 1:
        sums = plan_sum(graph.target, count, out.size, own.partials, own.out_dtype, add_up)
        sum_partials(graph, written.reshape(count, out.size), out.flatten(), sums, add_up)


def _add_turns(graph: Graph, seen: Seen, plan: Plan, out: Tensor, memory_fraction: float) -> None:
    """The vertices of a planned convolution: all at once, or of one part of the results after another."""
    extents, cuts = seen.own.kept[:3], parts_of(plan.cuts)
    of_turn = cuts.batch.extent, cuts.groups.extent, cuts.out_channels.extent
    d = next((d for d in range(3) if of_turn[d] < extents[d]), None)
    if d is None:
        _add_at_once(graph, seen, plan, out)
        return
    for turn, start in enumerate(range(0, extents[d], of_turn[d])):
        part = slice(start, min(start + of_turn[d], extents[d]))
        own, results = seen.part(d, part), out[(slice(None),) * seen.order.index(d) + (part,)]
        is_full = part.stop - start == of_turn[d]
        own_plan = plan if is_full else plan_convolved(graph.target, own.own, memory_fraction=memory_fraction)
        with graph.scope(f"turn {turn + 1}"):
            _add_turns(graph, own, own_plan, results, memory_fraction)


def add_planned(graph: Graph, seen: Seen, plan: Plan, memory_fraction: float = MEMORY_FRACTION) -> Tensor:
    """The vertices of a convolution as a plan has them.

    Args:
        graph: where.
        seen: the convolution.
        plan: of `plan_convolved`.
        memory_fraction: the fraction of a tile's memory for the plan of a last round of fewer results.
    """
    follow(plan)
    result = graph.add_variable("out", seen.shape, seen.own.out_dtype)
    settle(result)
    if result.size and not plan.cuts:
        add_filled(graph, result, 0)
    elif result.size:
        _add_turns(graph, seen, plan, result.reshape([seen.own.kept[d] for d in seen.order]), memory_fraction)
    return result
