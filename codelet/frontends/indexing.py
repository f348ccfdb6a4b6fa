"""Lookups: gather, scatter, dynamic slices and updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet import ops
from codelet.frontends.known_places import Box, Promises, box_of, is_written_at_once, scattered
from codelet.frontends.rules import rule
from codelet.frontends.values import Value, data_type
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


def _promises(indices: Value, indexed: Sequence[int], shape: Any, sizes: Any, unique: bool, in_order: bool) -> Promises:
    """What is promised of indices that say the place in every batch."""
    last, is_single = [shape[d] - sizes[d] for d in indexed], all(sizes[d] == 1 for d in indexed)
    return Promises(unique, in_order).or_known(indices, indexed, last, is_single)


@rule("gather", by="`ops.gather`; a view where a box is known to be gathered")
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
    table, numbers, shape = walk.tensor(operand), dimension_numbers, operand.shape
    own, places = _without_batches(walk, numbers, indices)
    gone, indexed = own.collapsed_slice_dims, [int(d) for d in own.start_index_map]
    if not numbers.operand_batching_dims:
        box = box_of(indices, indexed, gone, own.offset_dims, shape, slice_sizes, mode)
        if box is not None:
            return box.gathered(table, data_type(walk.equation.outvars[0].aval)[0])
    in_order = indices_are_sorted and places is indices  # that of batches comes first where it says the place in them
    promises = _promises(places, indexed, shape, slice_sizes, unique_indices, in_order)
    options = {"mode": mode, "fill_value": fill_value, "grain": walk.grain, **promises._asdict()}
    return ops.gather(walk.graph, table, walk.tensor(places), own, slice_sizes, **options)


_PUTS = {
    "scatter": "set",
    "scatter-add": "add",
    "scatter-sub": "add",
    "scatter-mul": "multiply",
    "scatter-min": "min",
    "scatter-max": "max",
}


def _scatter(primitive: str, op: str) -> None:
    @rule(primitive, by="`ops.scatter`; copies, and a map of what is updated, where that is known to be a box")
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
        table, name = walk.tensor(operand), primitive.replace("-", "_")
        gone, indexed = list(map(int, numbers.inserted_window_dims)), list(numbers.scatter_dims_to_operand_dims)
        windows = iter(updates.shape[d] for d in numbers.update_window_dims)
        sizes = [1 if d in gone else next(windows) for d in range(len(table.shape))]
        if not dimension_numbers.operand_batching_dims:
            box = box_of(indices, indexed, gone, numbers.update_window_dims, table.shape, sizes, mode)
            if box is not None and is_written_at_once(box, table.shape, op):
                return scattered(walk, box, table, values, op, name)
        in_order = indices_are_sorted and places is indices
        promises = _promises(places, indexed, table.shape, sizes, unique_indices, in_order)
        options = {"op": op, "mode": mode, "grain": walk.grain, "name": name, **promises._asdict()}
        return ops.scatter(walk.graph, table, walk.tensor(places), values, numbers, **options)


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


@rule("dynamic_update_slice", by="`ops.dynamic_update_slice`; copies where the place is known")
def dynamic_update_slice(walk: Walk, x: Value, update: Value, *starts: Value) -> Any:
    """An array with a part, that begins at a place known late, replaced."""
    tensor, own, places = walk.tensor(x), walk.tensor(update), _starts(walk, starts)
    if all(isinstance(at, int) for at in places) and 0 not in update.shape:
        sides = zip(places, x.shape, update.shape, strict=True)
        items = tuple(slice(at := min(max(a, 0), n - k), at + k) for a, n, k in sides)
        every = [d for d, n in enumerate(update.shape) if n > 1]
        box = Box(items, tuple(range(len(every))), update.shape)
        return scattered(walk, box, tensor, own, "set", "dynamic_update_slice")
    options = {"allow_negative_indices": False, "grain": walk.grain}
    return ops.dynamic_update_slice(walk.graph, tensor, own, places, **options)
