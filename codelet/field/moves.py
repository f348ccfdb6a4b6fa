"""Moves over the field: operations that only say which elements go where, exactly."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from jax import lax

from codelet.field import arithmetic, pairs
from codelet.field.meanings import MOVE, Field, NotUnderstood, all_residues, dtype_of, meaning, shape_of
from codelet.field.pairs import numbers_of
from codelet.field.values import Extreme, Unknown, Value, is_known, moved, residues
from codelet.field.whole import of_whole

Array = np.ndarray


def along(lead: int, dimensions: Sequence[int]) -> list[int]:
    """Dimensions behind so many others."""
    return [lead + int(d) for d in dimensions]


@meaning("transpose", "permutation", said=MOVE, is_exact=True, takes_complex=True)
def transpose(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    order = eqn.params["permutation"]
    return [moved(x, lambda own, lead: own.transpose([*range(lead), *along(lead, order)]))]


@meaning("reshape", "new_sizes", "dimensions", said=MOVE, is_exact=True, takes_complex=True)
def reshape(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    order = eqn.params["dimensions"]

    def move(own: Array, lead: int) -> Array:
        if order is not None:
            own = own.transpose([*range(lead), *along(lead, order)])
        return own.reshape((*own.shape[:lead], *shape_of(eqn)))

    return [moved(x, move)]


@meaning("squeeze expand_dims", "dimensions", said=MOVE, is_exact=True, takes_complex=True)
def squeeze(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return [moved(x, lambda own, lead: own.reshape((*own.shape[:lead], *shape_of(eqn))))]


@meaning("rev", "dimensions", said=MOVE, is_exact=True, takes_complex=True)
def rev(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return [moved(x, lambda own, lead: np.flip(own, tuple(along(lead, eqn.params["dimensions"]))))]


@meaning("broadcast_in_dim", "shape", "broadcast_dimensions", said=MOVE, is_exact=True, takes_complex=True)
def broadcast_in_dim(field: Field, eqn: Any, x: Value, *sizes: Any) -> Sequence[Value]:
    shape, places = shape_of(eqn), eqn.params["broadcast_dimensions"]

    def move(own: Array, lead: int) -> Array:
        apart = [1] * len(shape)
        for d, place in enumerate(places):
            apart[place] = own.shape[lead + d]
        return np.broadcast_to(own.reshape((*own.shape[:lead], *apart)), (*own.shape[:lead], *shape))

    return [moved(x, move)]


@meaning("slice", "start_indices", "limit_indices", "strides", said=MOVE, is_exact=True, takes_complex=True)
def slice_(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    starts, limits, strides = (eqn.params[name] for name in ("start_indices", "limit_indices", "strides"))
    items = tuple(map(slice, starts, limits, strides or (1,) * len(starts)))
    return [moved(x, lambda own, lead: own[(slice(None),) * lead + items])]


@meaning("split", "axis", "sizes", said=MOVE, is_exact=True, takes_complex=True)
def split(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    ends, axis = np.cumsum(eqn.params["sizes"]), eqn.params["axis"]

    def part(k: int) -> Callable[[Array, int], Array]:
        own = slice(int(ends[k]) - eqn.params["sizes"][k], int(ends[k]))
        return lambda array, lead: array[(slice(None),) * (lead + axis) + (own,)]

    return [moved(x, part(k)) for k in range(len(ends))]


def row(value: Value, k: int, axis: int = 0) -> Value:
    """One row of a value, along an axis."""
    return moved(value, lambda own, lead: own[(slice(None),) * (lead + axis) + (k,)])


@meaning("unstack", "axis", said=MOVE, is_exact=True, takes_complex=True)
def unstack(field: Field, eqn: Any, x: Value) -> Sequence[Value]:
    return [row(x, k, eqn.params["axis"]) for k in range(len(eqn.outvars))]


@meaning(
    "copy copy_p optimization_barrier stop_gradient sharding_constraint mesh_cast forward_only",
    said=MOVE,
    every=True,
    is_exact=True,
)
def same(field: Field, eqn: Any, *values: Value) -> Sequence[Value]:
    return values


# --- of several ---------------------------------------------------------------------------------------------


def together(field: Field, values: Sequence[Value], dtype: Any) -> tuple[list[Array], int, Callable[[Array], Value]]:
    """Values in one form, how many dimensions are before theirs, and the constructor of a value of such a form.

    Where some are the greatest or least of several elements, and none of the other kind, all are.
    """
    kinds = {own.kind for own in values if isinstance(own, Extreme)}
    if is_known(values):
        return [np.asarray(own) for own in values], 0, lambda own: own
    degree = max(own.degree for own in values if isinstance(own, Unknown))
    if len(kinds) != 1:
        return all_residues(field, values), 1, lambda own: Unknown(own, dtype).of_degree(degree)
    (kind,) = kinds
    told = next(own.told for own in values if isinstance(own, Extreme))
    each = [own.members if isinstance(own, Extreme) else residues(own, field.draws)[:, None] for own in values]
    most = max(own.shape[1] for own in each)
    filled = [np.concatenate([own, np.repeat(own[:, :1], most - own.shape[1], 1)], 1) for own in each]
    return filled, 2, lambda own: Extreme(kind, own, dtype, told).of_degree(degree)


def joined(field: Field, values: Sequence[Value], axis: int) -> Value:
    """Values one behind another along an axis."""
    arrays, lead, made = together(field, values, values[0].dtype)
    return made(np.concatenate(arrays, lead + axis))


def piled(field: Field, values: Sequence[Value], axis: int) -> Value:
    """Values one behind another along an axis that is new."""
    return joined(field, [moved(own, lambda array, lead: np.expand_dims(array, lead + axis)) for own in values], axis)


@meaning("concatenate", "dimension", said=MOVE, is_exact=True, takes_complex=True)
def concatenate(field: Field, eqn: Any, *values: Value) -> Sequence[Value]:
    return [joined(field, values, eqn.params["dimension"])]


@meaning("stack", "axis", said=MOVE, is_exact=True, takes_complex=True)
def stack(field: Field, eqn: Any, *values: Value) -> Sequence[Value]:
    return [piled(field, values, eqn.params["axis"])]


@meaning("pad", "padding_config", said=MOVE, is_exact=True, takes_complex=True)
def pad(field: Field, eqn: Any, x: Value, value: Value) -> Sequence[Value]:
    (array, fill), lead, made = together(field, (x, value), dtype_of(eqn))
    shape = (*array.shape[:lead], *shape_of(eqn))
    result = np.broadcast_to(fill.reshape(*fill.shape[:lead], *(1,) * len(shape_of(eqn))), shape).copy()
    takes, puts = [slice(None)] * lead, [slice(None)] * lead
    for n, size, (low, _, between) in zip(array.shape[lead:], shape[lead:], eqn.params["padding_config"], strict=True):
        step = between + 1
        first = max(0, -(low // step)) if low < 0 else 0  # of those that are not cut off
        last = min(n, max(first, -(-(size - low) // step)))
        takes.append(slice(first, last))
        puts.append(slice(low + first * step, low + (last - 1) * step + 1, step) if last > first else slice(0, 0))
    result[tuple(puts)] = array[tuple(takes)]
    return [made(result)]


# --- at places ----------------------------------------------------------------------------------------------


_SAID_PLACE = "a move; where its places are not known, a function of all elements and of these"


def _starts(starts: Sequence[Value], shape: Sequence[int], sizes: Sequence[int]) -> list[int]:
    """Where a slice begins, within bounds."""
    rows = zip(starts, shape, sizes, strict=True)
    return [min(max(int(np.asarray(at)), 0), n - size) for at, n, size in rows]


@meaning("dynamic_slice", "slice_sizes", said=_SAID_PLACE, takes_complex=True)
def dynamic_slice(field: Field, eqn: Any, x: Value, *starts: Value) -> Sequence[Value]:
    sizes = eqn.params["slice_sizes"]
    if not is_known(starts):
        return of_whole(field, eqn, (x, *starts), 0)
    places = _starts(starts[: len(x.shape)], x.shape, sizes)
    items = tuple(slice(at, at + size) for at, size in zip(places, sizes, strict=True))
    return [moved(x, lambda own, lead: own[(slice(None),) * lead + items])]


@meaning("dynamic_update_slice", said=_SAID_PLACE, takes_complex=True)
def dynamic_update_slice(field: Field, eqn: Any, x: Value, update: Value, *starts: Value) -> Sequence[Value]:
    if not is_known(starts):
        return of_whole(field, eqn, (x, update, *starts), 0)
    places = _starts(starts, x.shape, update.shape)
    (array, new), lead, made = together(field, (x, update), dtype_of(eqn))
    array = array.copy()
    array[(slice(None),) * lead + tuple(slice(at, at + n) for at, n in zip(places, update.shape, strict=True))] = new
    return [made(array)]


MODES = lax.GatherScatterMode


def _named_places(
    eqn: Any,
    indices: Value,
    shape: Sequence[int],
    sizes: Sequence[int],
    indexed: Sequence[int],
    windows: dict[int, int],
    batches: dict[int, int],
    rank: int,
) -> tuple[Array, Array]:
    """The flat position of each element of slices, and whether it is there.

    Args:
        eqn: a gather or scatter.
        indices: (..., numbers of a place).
        shape: of the indexed array.
        sizes: of a slice.
        indexed: the dimensions that the numbers of a place are for.
        windows: by the dimension of slices, that of the indexed array.
        batches: by the dimension of the indexed array, that of the indices.
        rank: of all slices together.
    """
    places, mode = np.asarray(indices), MODES.from_any(eqn.params["mode"])
    places = places.astype(np.int64) if places.dtype != np.uint64 else np.minimum(places, 1 << 62).astype(np.int64)
    beside = [d for d in range(rank) if d not in windows]
    strides = [math.prod(shape[d + 1 :]) for d in range(len(shape))]
    flat, there = np.zeros((1,) * rank, np.int64), np.ones((1,) * rank, bool)
    spread = lambda own: own.reshape(_spread(own.shape, beside, rank))  # noqa: E731
    for k, d in enumerate(indexed):
        own, last = places[..., k], shape[d] - sizes[d]
        is_there = (own >= 0) & (own <= last)
        there = there & spread(is_there if mode == MODES.FILL_OR_DROP else np.ones_like(is_there))
        flat = flat + spread(np.clip(own, 0, last)) * strides[d]
    for d, of_indices in batches.items():
        own = np.arange(shape[d]).reshape([-1 if j == of_indices else 1 for j in range(places.ndim - 1)])
        flat = flat + spread(own) * strides[d]
    for u, d in windows.items():
        flat = flat + np.arange(sizes[d]).reshape([-1 if j == u else 1 for j in range(rank)]) * strides[d]
    return flat, there


def _spread(shape: Sequence[int], beside: Sequence[int], rank: int) -> list[int]:
    made = [1] * rank
    for d, n in zip(beside, shape, strict=True):
        made[d] = n
    return made


@meaning(
    "gather",
    *("dimension_numbers", "slice_sizes", "unique_indices", "mode", "fill_value"),
    said=_SAID_PLACE,
    takes_complex=True,
)
def gather(field: Field, eqn: Any, x: Value, indices: Value) -> Sequence[Value]:
    if not is_known([indices]):
        return of_whole(field, eqn, (x, indices), 0)
    numbers, shape = eqn.params["dimension_numbers"], shape_of(eqn)
    gone = {*map(int, numbers.collapsed_slice_dims), *map(int, numbers.operand_batching_dims)}
    windows = dict(zip(map(int, numbers.offset_dims), (d for d in range(len(x.shape)) if d not in gone), strict=True))
    batches = dict(zip(numbers.operand_batching_dims, numbers.start_indices_batching_dims, strict=True))
    flat, there = _named_places(
        eqn, indices, x.shape, eqn.params["slice_sizes"], numbers.start_index_map, windows, batches, len(shape)
    )
    flat, there = np.broadcast_to(flat, shape), np.broadcast_to(there, shape)
    if not math.prod(x.shape):
        return [np.zeros(shape, dtype_of(eqn))] if not math.prod(shape) else _nothing(eqn)
    made = moved(x, lambda own, lead: own.reshape(*own.shape[:lead], -1)[..., flat])
    if there.all():
        return [made]
    fill = eqn.params["fill_value"]
    dtype = dtype_of(eqn)
    if fill is None:
        fill = np.nan if np.issubdtype(dtype, np.inexact) or dtype.kind == "V" else np.iinfo(dtype).min
        fill = np.iinfo(dtype).max if dtype.kind == "u" else True if dtype.kind == "b" else fill
    (array, other), _, back = together(field, (made, np.asarray(fill, dtype)), dtype)
    return [back(np.where(there, array, other.reshape(*other.shape, *(1,) * len(shape))))]


def _nothing(eqn: Any) -> Sequence[Value]:
    raise NotUnderstood(eqn, "it looks up elements of an array that has none")


_SCATTERS = ("scatter", "scatter-add", "scatter-sub", "scatter-mul", "scatter-min", "scatter-max")
_UPDATES = ("dimension_numbers", "unique_indices", "mode", "update_jaxpr", "update_consts")


@meaning(
    " ".join(_SCATTERS),
    *_UPDATES,
    said="a move, a sum, a product or a set; where indices are not known, a function of all elements",
    takes_complex=True,
)
def scatter(field: Field, eqn: Any, x: Value, indices: Value, updates: Value) -> Sequence[Value]:
    numbers, name, dtype = eqn.params["dimension_numbers"], eqn.primitive.name, dtype_of(eqn)
    if name == "scatter" and eqn.params["update_jaxpr"] is not None:
        raise NotUnderstood(eqn, "it applies a function to what is there")
    if not is_known([indices]):
        return of_whole(field, eqn, (x, indices, updates), 0)
    gone = {*map(int, numbers.inserted_window_dims), *map(int, numbers.operand_batching_dims)}
    kept = [d for d in range(len(x.shape)) if d not in gone]
    windows = dict(zip(map(int, numbers.update_window_dims), kept, strict=True))
    batches = dict(zip(numbers.operand_batching_dims, numbers.scatter_indices_batching_dims, strict=True))
    sizes = [1] * len(x.shape)
    for u, d in windows.items():
        sizes[d] = updates.shape[u]
    flat, there = _named_places(
        eqn, indices, x.shape, sizes, numbers.scatter_dims_to_operand_dims, windows, batches, len(updates.shape)
    )
    at = np.broadcast_to(flat, updates.shape)[np.broadcast_to(there, updates.shape)]
    taken = np.flatnonzero(np.broadcast_to(there, updates.shape))
    if name in ("scatter-min", "scatter-max"):
        return [_extremes(field, name[-3:], x, updates, at, taken, dtype)]
    (array, new), lead, made = together(field, (x, updates), dtype)
    if name != "scatter" and lead != 1:
        array, new = all_residues(field, (x, updates))
        lead, made = 1, lambda own: Unknown(own, dtype)
    array, new = array.reshape(*array.shape[:lead], -1).copy(), new.reshape(*new.shape[:lead], -1)[..., taken]
    if name == "scatter":
        array[..., at] = new
    elif name == "scatter-mul":
        for turn in _apart(at):
            array[..., at[turn]] = numbers_of(dtype).multiply(array[..., at[turn]], new[..., turn])
    else:
        array = _added(numbers_of(dtype), array, at, new if name == "scatter-add" else numbers_of(dtype).negative(new))
    return [made(array.reshape(*array.shape[:lead], *x.shape))]


def _added(numbers: Any, array: Array, at: Array, new: Array) -> Array:
    """Residues with others added at places, which may be several times the same."""
    if numbers is not arithmetic:
        both = zip(pairs.parts(array), pairs.parts(new), strict=True)
        return pairs.pair(*(_added(arithmetic, own, at, other) for own, other in both))
    added = np.zeros_like(array)
    for k in range(len(added)):
        np.add.at(added[k], at, new[k])
    return arithmetic.add(array, arithmetic.reduced(added))


def _apart(at: Array) -> list[Array]:
    """Updates in rounds, in none of which two are for the same position."""
    order = np.argsort(at, kind="stable")
    first = np.flatnonzero(np.r_[True, at[order][1:] != at[order][:-1]]) if len(at) else np.zeros(0, int)
    rank = np.arange(len(at)) - np.repeat(first, np.diff(np.r_[first, len(at)]))
    return [order[rank == k] for k in range(int(rank.max(initial=-1)) + 1)]


def _extremes(field: Field, kind: str, x: Value, updates: Value, at: Array, taken: Array, dtype: Any) -> Value:
    """The greatest or least of the present element and all updates for it."""
    (array, new), _, _ = together(field, [as_extreme(field, kind, own) for own in (x, updates)], dtype)
    array, new = array.reshape(*array.shape[:2], -1), new.reshape(*new.shape[:2], -1)[..., taken]
    parts = [array]
    for turn in _apart(at):
        own = array.copy()
        own[..., at[turn]] = new[..., turn]
        parts.append(own)
    made = np.concatenate(parts, 1)
    return Extreme(kind, made.reshape(*made.shape[:2], *x.shape), dtype)


def as_extreme(field: Field, kind: str, value: Value) -> Extreme:
    """A value as the greatest, or the least, of one element each, if it is none of several."""
    if isinstance(value, Extreme) and value.kind == kind:
        return value
    return Extreme(kind, residues(value, field.draws)[:, None], value.dtype)
