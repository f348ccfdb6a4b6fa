"""Equations that only move elements: views, which take no vertex."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet import ops
from codelet.frontends.rules import rule
from codelet.frontends.values import Value, data_type, is_key, number_of, reshaped
from codelet.views.concatenate import concatenate as concatenate_views

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk

VIEW = "a view, without vertices"


def _key_dimensions(walk: Walk) -> int:
    """How many dimensions of the data of a first operand are inside of a key."""
    aval: Any = walk.equation.invars[0].aval
    return 1 if is_key(aval.dtype) else 0


@rule("reshape", by=VIEW)
def reshape(walk: Walk, x: Value, *, new_sizes: tuple[int, ...], dimensions: Any, sharding: Any = None) -> Any:
    """The same elements in another shape."""
    inside = x.shape[len(x.shape) - _key_dimensions(walk) :]
    if dimensions is not None:
        x = x.transpose(*map(int, dimensions), *range(len(dimensions), len(x.shape)))
    return reshaped(x, (*new_sizes, *inside))


@rule("transpose", by=VIEW)
def transpose(walk: Walk, x: Value, *, permutation: tuple[int, ...]) -> Any:
    """The same elements, dimensions in another order."""
    inside = range(len(permutation), len(x.shape))
    return x.transpose(*(int(d) for d in permutation), *inside) if x.shape else x


@rule("squeeze", by=VIEW)
def squeeze(walk: Walk, x: Value, *, dimensions: tuple[int, ...]) -> Any:
    """Without dimensions of one element."""
    return reshaped(x, [n for d, n in enumerate(x.shape) if d not in dimensions])


@rule("expand_dims", by=VIEW)
def expand_dims(walk: Walk, x: Value, *, dimensions: tuple[int, ...]) -> Any:
    """With new dimensions of one element."""
    shape = list(x.shape)
    for d in sorted(dimensions):
        shape.insert(d, 1)
    return reshaped(x, shape)


@rule("broadcast_in_dim", by=VIEW)
def broadcast_in_dim(
    walk: Walk,
    x: Value,
    *sizes: Any,
    shape: tuple[int, ...],
    broadcast_dimensions: tuple[int, ...],
    sharding: Any = None,
) -> Any:
    """The same elements again along other dimensions."""
    if sizes:
        return NotImplemented
    inside = x.shape[len(x.shape) - _key_dimensions(walk) :]
    placed = [1] * len(shape)
    for d, n in zip(broadcast_dimensions, x.shape, strict=False):
        placed[int(d)] = n
    spread = reshaped(x, [*placed, *inside])
    whole = (*shape, *inside)
    return np.broadcast_to(spread, whole) if isinstance(spread, np.ndarray) else spread.broadcast_to(whole)


@rule("tile", by=VIEW)
def tile(walk: Walk, x: Value, *, reps: tuple[int, ...]) -> Any:
    """The same elements again and again along dimensions."""
    inside = x.shape[len(x.shape) - _key_dimensions(walk) :]
    own = x.shape[: len(x.shape) - len(inside)]
    own = (*(1,) * (len(reps) - len(own)), *own)
    apart = reshaped(x, [n for size in own for n in (1, size)] + list(inside))
    whole = [n for times, size in zip(reps, own, strict=True) for n in (int(times), size)] + list(inside)
    spread = np.broadcast_to(apart, whole) if isinstance(apart, np.ndarray) else apart.broadcast_to(whole)
    return reshaped(spread, [int(times) * size for times, size in zip(reps, own, strict=True)] + list(inside))


@rule("empty", "empty2", by="nothing: zeros")
def empty(walk: Walk, *, shape: tuple[int, ...] = (), dtype: Any = None) -> Any:
    """An array of which nothing is known."""
    return np.broadcast_to(np.zeros((), data_type(walk.equation.outvars[0].aval)[1]), shape)


@rule("rev", by=VIEW)
def rev(walk: Walk, x: Value, *, dimensions: tuple[int, ...]) -> Any:
    """Backwards along some dimensions."""
    return x[tuple(slice(None, None, -1) if d in dimensions else slice(None) for d in range(len(x.shape)))]


@rule("slice", by=VIEW)
def slice_(
    walk: Walk,
    x: Value,
    *,
    start_indices: tuple[int, ...],
    limit_indices: tuple[int, ...],
    strides: tuple[int, ...] | None = None,
) -> Any:
    """A part, its elements apart by strides."""
    steps = strides or (1,) * len(start_indices)
    return x[tuple(slice(int(a), int(b), int(s)) for a, b, s in zip(start_indices, limit_indices, steps, strict=True))]


@rule("split", by=VIEW)
def split(walk: Walk, x: Value, *, sizes: tuple[int, ...], axis: int) -> Any:
    """Parts one after another."""
    ends = np.cumsum(sizes).tolist()
    before = (slice(None),) * axis
    return [x[(*before, slice(end - n, end))] for n, end in zip(sizes, ends, strict=True)]


@rule("concatenate", by=VIEW)
def concatenate(walk: Walk, *parts: Value, dimension: int) -> Any:
    """Arrays end to end."""
    return concatenate_views([walk.tensor(part) for part in parts], dimension)


@rule("stack", by=VIEW)
def stack(walk: Walk, *parts: Value, axis: int) -> Any:
    """Arrays beside each other, in a new dimension."""
    return concatenate_views([walk.tensor(part).expand(axis) for part in parts], axis)


@rule("unstack", by=VIEW)
def unstack(walk: Walk, x: Value, *, axis: int) -> Any:
    """The parts of an array along a dimension."""
    return [x[(*(slice(None),) * axis, k)] for k in range(x.shape[axis])]


@rule("pad", by=VIEW + "; padded by a map where the padding is not known")
def pad(walk: Walk, x: Value, padding_value: Value, *, padding_config: Sequence[tuple[int, int, int]]) -> Any:
    """Elements around and between those of an array."""
    number = number_of(padding_value) if isinstance(padding_value, np.ndarray) else None
    value = walk.tensor(padding_value) if number is None else number
    return ops.lax_pad(walk.graph, walk.tensor(x), value, [(int(a), int(b), int(c)) for a, b, c in padding_config])


@rule("optimization_barrier", "device_put", "sharding_constraint", "name", by="nothing")
def same(
    walk: Walk,
    *operands: Value,
    name: Any = None,
    devices: Any = None,
    srcs: Any = None,
    copy_semantics: Any = None,
    sharding: Any = None,
    layout: Any = None,
    context_mesh: Any = None,
    unconstrained_dims: Any = None,
) -> Any:
    """Their operands: a graph has one machine, and its order of steps."""
    return list(operands)
