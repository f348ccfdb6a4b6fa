"""The vertices of poolings: patches of windows, of each phase of the results, spread over the tiles as planned."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block
from codelet.ops.blocks import add_blocks
from codelet.ops.fill import filled
from codelet.ops.followed import follow
from codelet.ops.homes import home_of, settle
from codelet.ops.pool_planning import Pooled, cuts_of_phase, plan_pooled
from codelet.ops.pooling_codelets import CODELETS
from codelet.ops.windows import WindowedDimension, places_of
from codelet.views.tensor import Tensor


def add_pooled(
    graph: Graph,
    step: str,
    codelet: str,
    fields: tuple[WindowedDimension, ...],
    windows: Mapping[str, tuple[Tensor, Any]],
    results: Mapping[str, Tensor],
    dtype: Any,
    grain: int | None,
    memory_fraction: float,
    *,
    is_elsewhere: bool = False,
    nothing: Any = 0,
    **static: Any,
) -> Tensor:
    """The vertices of a compute set that pools, planned.

    Args:
        graph: where.
        step: the name of the compute set.
        codelet: by its name.
        fields: how windows move along each dimension.
        windows: the tensors that they move over, by field, with the value of padding.
        results: fields that have the shape of the results.
        dtype: of the results.
        grain: about how many of them a vertex has; default: chosen by the planner.
        memory_fraction: of a tile's memory.
        is_elsewhere: whether its operands were made on other tiles.
        nothing: the result of a window that meets no element.
        static: values of the codelet.
    """
    codelets = CODELETS[codelet]
    out = graph.add_variable("out", tuple(field.results for field in fields), dtype)
    if not out.size:
        return out
    settle(out)
    is_elsewhere = is_elsewhere or any(home_of(own) is not None for own, _ in windows.values())
    types = tuple((name, own.dtype) for name, (own, _) in windows.items())
    beside = tuple((name, own.dtype) for name, own in results.items())
    kinds = tuple(sorted(static.items()))
    work = Pooled(step, fields, types, beside, np.dtype(dtype), codelets, is_elsewhere, kinds)
    widths = [field.widths for field in fields]
    around = {
        name: own.pad(widths, value=value) if any(map(any, widths)) else own for name, (own, value) in windows.items()
    }
    plan = follow(plan_pooled(graph.target, work, grain, memory_fraction))
    chosen, of_nothing = (own.of(plan.detail("workers")) for own in (codelets, filled))
    for phase in work.phases:
        empty = not all(one.taps for one in phase)

        def patch(*blocks: Block, phase: Any = phase, empty: bool = empty) -> dict[str, Any]:
            rows = list(zip(fields, phase, blocks, strict=True))
            reads = tuple(field.window(one, block.elements, slice(0, one.taps)) for field, one, block in rows)
            places = tuple(places_of(one, block.elements) for _, one, block in rows)
            written = out[places]
            if empty:
                return {"out": written, "shape": written.shape, "value": nothing, "dtype": out.dtype.name}
            read = {name: own[reads] for name, own in around.items()}
            read.update({name: own[places] for name, own in results.items()})
            return {**read, "out": written, **work.values(phase)}

        own, parts = cuts_of_phase(plan.cuts, phase), [cut.parts for cut in plan.cuts]
        add_blocks(graph, step, of_nothing if empty else chosen, own, patch, parts=parts)
    return out
