"""Lookups: gather, scatter, dynamic slices and updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from jax import lax

from codelet import ops
from codelet.frontends.rules import rule
from codelet.frontends.values import Value

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


@rule("gather", by="`ops.gather`")
def gather(
    walk: Walk,
    operand: Value,
    indices: Value,
    *,
    dimension_numbers: lax.GatherDimensionNumbers,
    slice_sizes: Any,
    indices_are_sorted: bool,
    unique_indices: bool,
    mode: Any,
    fill_value: Any,
) -> Any:
    """Slices at places that are known late."""
    own = dimension_numbers
    if getattr(own, "operand_batching_dims", ()):
        return NotImplemented
    table, places = walk.tensor(operand), walk.tensor(indices)
    return ops.gather(walk.graph, table, places, own, slice_sizes, mode=mode, fill_value=fill_value, grain=walk.grain)


_PUTS = {"scatter": "set", "scatter-add": "add", "scatter-mul": "multiply", "scatter-min": "min", "scatter-max": "max"}


def _scatter(primitive: str, op: str) -> None:
    @rule(primitive, by="`ops.scatter`")
    def scatter(
        walk: Walk,
        operand: Value,
        indices: Value,
        updates: Value,
        *,
        dimension_numbers: lax.ScatterDimensionNumbers,
        indices_are_sorted: bool,
        unique_indices: bool,
        mode: Any,
        update_jaxpr: Any,
        update_consts: Any,
    ) -> Any:
        if getattr(dimension_numbers, "operand_batching_dims", ()):
            return NotImplemented
        return ops.scatter(
            walk.graph,
            walk.tensor(operand),
            walk.tensor(indices),
            walk.tensor(updates),
            dimension_numbers,
            op=op,
            mode=mode,
            grain=walk.grain,
            name=primitive.replace("-", "_"),
        )


for _primitive, _op in _PUTS.items():
    _scatter(_primitive, _op)


def _starts(walk: Walk, starts: tuple[Value, ...]) -> list[Any]:
    return [int(own) if isinstance(own, np.ndarray) else own for own in starts]


@rule("dynamic_slice", by="`ops.dynamic_slice`; a view where the place is known")
def dynamic_slice(walk: Walk, x: Value, *starts: Value, slice_sizes: tuple[int, ...]) -> Any:
    """A part that begins at a place known late."""
    places = _starts(walk, starts)
    if all(isinstance(own, int) for own in places):
        rows = zip(places, x.shape, slice_sizes, strict=True)
        return x[tuple(slice(at := min(max(a, 0), n - k), at + k) for a, n, k in rows)]
    return ops.dynamic_slice(walk.graph, walk.tensor(x), places, slice_sizes, grain=walk.grain)


@rule("dynamic_update_slice", by="`ops.dynamic_update_slice`")
def dynamic_update_slice(walk: Walk, x: Value, update: Value, *starts: Value) -> Any:
    """An array with a part, that begins at a place known late, replaced."""
    tensor, own = walk.tensor(x), walk.tensor(update)
    return ops.dynamic_update_slice(walk.graph, tensor, own, _starts(walk, starts), grain=walk.grain)
