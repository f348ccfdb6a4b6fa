"""Lookups: gather, scatter, dynamic slices and updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet import ops
from codelet.frontends.rules import rule
from codelet.frontends.values import Value
from codelet.ops.lookup_codelets import position_dtype
from codelet.views.concat import concat

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


_PARTS = {
    lax.GatherDimensionNumbers: ("collapsed_slice_dims", "start_index_map"),
    lax.ScatterDimensionNumbers: ("inserted_window_dims", "scatter_dims_to_operand_dims"),
}


def _without_batches(walk: Walk, numbers: Any, indices: Value) -> tuple[Any, Value]:
    """Dimension numbers without batches, and indices that say the place in each of these: their number there."""
    batches = getattr(numbers, "operand_batching_dims", ())
    if not batches:
        return numbers, indices
    left_out, places = _PARTS[type(numbers)]
    shape = (*indices.shape[:-1], 1)
    own = walk.tensor(indices)
    dtype = position_dtype(own.dtype)  # that of the indices may not count all batches
    if own.dtype != dtype:
        own = ops.cast(walk.graph, own, dtype, grain=walk.grain)
    counts = []
    for d in numbers.start_indices_batching_dims if left_out[0] == "c" else numbers.scatter_indices_batching_dims:
        row = walk.tensor(np.arange(indices.shape[d], dtype=dtype))
        counts.append(row.reshape([-1 if k == d else 1 for k in range(len(shape))]).broadcast_to(shape))
    parts = {
        left_out: tuple(sorted((*getattr(numbers, left_out), *batches))),
        places: (*batches, *getattr(numbers, places)),
    }
    offsets = {name: getattr(numbers, name) for name in ("offset_dims", "update_window_dims") if hasattr(numbers, name)}
    return type(numbers)(**offsets, **parts), concat([*counts, own], len(shape) - 1)


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
    own, indices = _without_batches(walk, dimension_numbers, indices)
    table, places = walk.tensor(operand), walk.tensor(indices)
    return ops.gather(walk.graph, table, places, own, slice_sizes, mode=mode, fill_value=fill_value, grain=walk.grain)


_PUTS = {
    "scatter": "set",
    "scatter-add": "add",
    "scatter-sub": "add",
    "scatter-mul": "multiply",
    "scatter-min": "min",
    "scatter-max": "max",
}


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
        if op != "set" and walk.tensor(operand).dtype == bool:
            return NotImplemented
        if op == "set" and update_jaxpr is not None:  # of `lax.scatter_apply`: any function of what is there
            return NotImplemented
        numbers, places = _without_batches(walk, dimension_numbers, indices)
        values = walk.tensor(updates)
        if primitive == "scatter-sub":
            values = ops.map(walk.graph, jnp.negative, values, grain=walk.grain, name="negative")
        return ops.scatter(
            walk.graph,
            walk.tensor(operand),
            walk.tensor(places),
            values,
            numbers,
            op=op,
            mode=mode,
            unique_indices=unique_indices,
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
    own, options = walk.tensor(x), {"allow_negative_indices": False, "grain": walk.grain}
    return ops.dynamic_slice(walk.graph, own, places, slice_sizes, **options)  # the equation's starts only clamp


@rule("dynamic_update_slice", by="`ops.dynamic_update_slice`")
def dynamic_update_slice(walk: Walk, x: Value, update: Value, *starts: Value) -> Any:
    """An array with a part, that begins at a place known late, replaced."""
    tensor, own = walk.tensor(x), walk.tensor(update)
    options = {"allow_negative_indices": False, "grain": walk.grain}
    return ops.dynamic_update_slice(walk.graph, tensor, own, _starts(walk, starts), **options)
