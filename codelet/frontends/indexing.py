"""Lookups: gather, scatter, dynamic slices and updates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet import ops
from codelet.frontends.known_places import Box, Promises, box_of, is_written_at_once, scattered
from codelet.frontends.rules import rule
from codelet.frontends.values import Value, data_type
from codelet.views.concatenate import concatenate

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk

Mode = lax.GatherScatterMode


class _RowLookup(NamedTuple):
    """A look-up as one of rows: without places that say nothing, and slices without dimensions of one place each.

    So is `vmap(lambda i: e[i])`, whose slices are of one row and all columns, the same as `e[ids]`.

    Attributes:
        numbers: the dimension numbers.
        indices: the places, of the dimensions that are looked up.
        slices: the shape of the slices looked up, or of updates.
        is_cut: whether places were left out, so that the promises about all of them are not about these.
    """

    numbers: Any
    indices: Value
    slices: tuple[int, ...]
    is_cut: bool


_NAMES = {
    lax.GatherDimensionNumbers: ("offset_dims", "collapsed_slice_dims", "start_index_map"),
    lax.ScatterDimensionNumbers: ("update_window_dims", "inserted_window_dims", "scatter_dims_to_operand_dims"),
}


def _as_rows(
    walk: Walk,
    numbers: Any,
    indices: Value,
    shape: Sequence[int],
    sizes: Sequence[int],
    slices: Sequence[int],
    mode: Any,
) -> _RowLookup:
    """A look-up as one of rows.

    A place of a dimension of which slices have all is the first, wherever places beyond the ends lead to the ends.
    """
    offset, gone, indexed = (getattr(numbers, name) for name in _NAMES[type(numbers)])
    clips = Mode.from_any(mode) in (Mode.CLIP, Mode.PROMISE_IN_BOUNDS)
    kept = [k for k, d in enumerate(indexed) if not (clips and sizes[d] == shape[d])] or list(range(len(indexed)))[:1]
    held = [d for d in range(len(shape)) if d not in gone and d not in numbers.operand_batching_dims]
    single = [d for d in held if d in indexed and sizes[d] == 1]
    out = {at for at, d in zip(offset, held, strict=True) if d in single}
    place = lambda at: at - sum(own < at for own in out)  # noqa: E731
    changed = dict(
        zip(
            _NAMES[type(numbers)],
            (
                tuple(place(at) for at in offset if at not in out),
                tuple(sorted({*gone, *single})),
                tuple(indexed[k] for k in kept),
            ),
            strict=True,
        )
    )
    if len(kept) < len(indexed):
        parts = [walk.tensor(indices)[..., k : k + 1] for k in kept]
        indices = parts[0] if len(parts) == 1 else concatenate(parts, len(indices.shape) - 1)
    slices = tuple(n for at, n in enumerate(slices) if at not in out)
    return _RowLookup(numbers._replace(**changed), indices, slices, len(kept) < len(indexed))


def _promises(own: _RowLookup, shape: Any, sizes: Any, unique: bool, in_order: bool) -> Promises:
    """The promises about indices, in every batch."""
    indexed = [int(d) for d in getattr(own.numbers, _NAMES[type(own.numbers)][2])]
    last, is_single = [shape[d] - sizes[d] for d in indexed], all(sizes[d] == 1 for d in indexed)
    promised = Promises(unique and not own.is_cut, in_order and not own.is_cut)
    return promised.or_known(own.indices, indexed, last, is_single)


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
    """Slices at places known only at run time."""
    table, numbers, shape = walk.tensor(operand), dimension_numbers, operand.shape
    made = data_type(walk.equation.outvars[0].aval)[0]
    gone, indexed = numbers.collapsed_slice_dims, [int(d) for d in numbers.start_index_map]
    if not numbers.operand_batching_dims:
        box = box_of(indices, indexed, gone, numbers.offset_dims, shape, slice_sizes, mode)
        if box is not None:
            return box.gathered(table, made)
    own = _as_rows(walk, numbers, indices, shape, slice_sizes, made, mode)
    promises = _promises(own, shape, slice_sizes, unique_indices, indices_are_sorted)
    options = {"mode": mode, "fill_value": fill_value, "grain": walk.grain, **promises._asdict()}
    return ops.gather(walk.graph, table, walk.tensor(own.indices), own.numbers, slice_sizes, **options).reshape(made)


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
        numbers = dimension_numbers
        values = walk.tensor(updates)
        if primitive == "scatter-sub":
            values = ops.map(walk.graph, jnp.negative, values, grain=walk.grain, name="negative")
        table, name = walk.tensor(operand), primitive.replace("-", "_")
        gone, indexed = list(map(int, numbers.inserted_window_dims)), list(numbers.scatter_dims_to_operand_dims)
        windows = iter(updates.shape[d] for d in numbers.update_window_dims)
        alone = {*gone, *numbers.operand_batching_dims}
        sizes = [1 if d in alone else next(windows) for d in range(len(table.shape))]
        if not numbers.operand_batching_dims:
            box = box_of(indices, indexed, gone, numbers.update_window_dims, table.shape, sizes, mode)
            if box is not None and is_written_at_once(box, table.shape, op):
                return scattered(walk, box, table, values, op, name)
        own = _as_rows(walk, numbers, indices, table.shape, sizes, updates.shape, mode)
        promises = _promises(own, table.shape, sizes, unique_indices, indices_are_sorted)
        options = {"op": op, "mode": mode, "grain": walk.grain, "name": name, **promises._asdict()}
        values = values.reshape(own.slices)
        return ops.scatter(walk.graph, table, walk.tensor(own.indices), values, own.numbers, **options)


for _primitive, _op in _PUTS.items():
    _scatter(_primitive, _op)


def _starts(walk: Walk, starts: tuple[Value, ...]) -> list[Any]:
    return [int(own) if isinstance(own, np.ndarray) else own for own in starts]


@rule("dynamic_slice", by="`ops.dynamic_slice`; a view where the place is known")
def dynamic_slice(walk: Walk, x: Value, *starts: Value, slice_sizes: tuple[int, ...]) -> Any:
    """A part that begins at a place known only at run time."""
    places = _starts(walk, starts)
    if all(isinstance(own, int) for own in places):
        rows = zip(places, x.shape, slice_sizes, strict=True)
        return x[tuple(slice(at := min(max(a, 0), n - k), at + k) for a, n, k in rows)]
    own, options = walk.tensor(x), {"allow_negative_indices": False, "grain": walk.grain}
    return ops.dynamic_slice(walk.graph, own, places, slice_sizes, **options)  # the equation's starts only clamp


@rule("dynamic_update_slice", by="`ops.dynamic_update_slice`; copies where the place is known")
def dynamic_update_slice(walk: Walk, x: Value, update: Value, *starts: Value) -> Any:
    """An array with a part, that begins at a place known only at run time, replaced."""
    tensor, own, places = walk.tensor(x), walk.tensor(update), _starts(walk, starts)
    if all(isinstance(at, int) for at in places) and 0 not in update.shape:
        sides = zip(places, x.shape, update.shape, strict=True)
        items = tuple(slice(at := min(max(a, 0), n - k), at + k) for a, n, k in sides)
        every = [d for d, n in enumerate(update.shape) if n > 1]
        box = Box(items, tuple(range(len(every))), update.shape)
        return scattered(walk, box, tensor, own, "set", "dynamic_update_slice")
    options = {"allow_negative_indices": False, "grain": walk.grain}
    return ops.dynamic_update_slice(walk.graph, tensor, own, places, **options)
