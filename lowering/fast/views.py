"""Views of arrays: reading and writing an array through an access map, as XLA does it best.

An access map is taken apart dimension by dimension of the array it reads: into affine terms, one for
each key (a dimension of the field, or a grid axis), and tables over one or several keys. Then each
dimension is read on its own, by a slice, a reshape and a slice, a stack of slices where windows overlap,
or a gather along that dimension by an index vector. Where the terms do not keep to dimensions, the array
is read as one flat dimension. No step is emitted that would change nothing: it would hide later rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.views.index import Index, Key, row_major
from lowering.arrays import Array, constant, reshape, slice_, slice_dimension, take, transpose
from lowering.fast.mixed_radix import split_digits
from lowering.plan.access import (
    Access,
    Dimension,
    Radix,
    Term,
    box,
    box_radices,
    divided_term,
    dtype_of_positions,
    flat_terms,
    take_apart,
)

MAX_STACKED_SLICES = 25
"""Beyond about this many stacked slices, a gather of the windows is faster than the stack on CPU."""


# --- reading ------------------------------------------------------------------------------------------


def positions_of(offset: int, terms: Sequence[Term], scale: Sequence[int] | None = None) -> Array:
    """`offset` plus the terms (each times its scale), with array dimensions for the keys of all terms, in order."""
    scale = scale or [1] * len(terms)
    ranks = [len(term.keys) for term in terms]
    extents = [extent for term in terms for extent in term.extents]
    dtype = dtype_of_positions(offset, sum(term.reach * factor for term, factor in zip(terms, scale, strict=True)))
    if len(terms) == 1 and terms[0].table is not None:
        return constant(terms[0].positions(offset, scale[0]))
    total = None
    for k, (term, factor) in enumerate(zip(terms, scale, strict=True)):
        at = sum(ranks[:k])
        if term.table is None:
            values = lax.mul(lax.broadcasted_iota(dtype, extents, at), np.asarray(term.grain * factor, dtype))
        else:
            table = constant(term.positions(0, factor)).astype(dtype)
            values = lax.broadcast_in_dim(table, extents, tuple(range(at, at + ranks[k])))
        total = values if total is None else lax.add(total, values)
    assert total is not None
    return lax.add(total, np.asarray(offset, dtype)) if offset else total


def computed(index: Index) -> tuple[Any, tuple[Key, ...]]:
    """The values of an index themselves, as an array, and the key of each of its dimensions."""
    offset, terms, backwards = flat_terms(index)
    if not terms:
        return np.asarray(offset), ()
    keys = tuple(key for term in terms for key in term.keys)
    reversed_at = [k for k, key in enumerate(keys) if key in backwards]
    values = positions_of(offset, terms)
    return (lax.rev(values, reversed_at) if reversed_at else values), keys


def _read_single(array: Array, at: int, start: int, term: Term) -> Array:
    if term.table is not None:
        return take(array, constant(term.positions(start)), at)
    return slice_dimension(array, start, start + term.reach + 1, term.grain, at)


def _read_windows(array: Array, at: int, start: int, terms: Sequence[Term]) -> tuple[Array, list[Key]]:
    """Overlapping terms: a few shifted slices stacked, or one gather."""
    least = min((term for term in terms if term.table is None), key=lambda term: term.extents[0], default=None)
    if least is not None and least.extents[0] <= MAX_STACKED_SLICES:
        rest = tuple(term for term in terms if term is not least)
        parts = [_read_dimension(array, at, start + k * least.grain, rest) for k in range(least.extents[0])]
        return jnp.stack([part for part, _ in parts], at), [*least.keys, *parts[0][1]]
    positions = positions_of(start, terms)
    return take(array, positions, at), [key for term in terms for key in term.keys]


def _read_dimension(array: Array, at: int, start: int, terms: Sequence[Term]) -> tuple[Array, list[Key]]:
    """The array with dimension `at` replaced by one for each key of `terms`, and those keys in order."""
    if not terms:
        array = slice_dimension(array, start, start + 1, 1, at)
        return reshape(array, (*array.shape[:at], *array.shape[at + 1 :])), []
    if len(terms) == 1:
        return _read_single(array, at, start, terms[0]), list(terms[0].keys)
    outer, rest = terms[0], terms[1:]
    span = sum(term.reach for term in rest) + 1
    rows, extent = outer.reach // outer.grain + 1, array.shape[at]
    if span > outer.grain or rows * outer.grain > extent:
        return _read_windows(array, at, start, terms)
    # Rows of `grain` elements that hold one position of `outer` each: aligned if they can be, else shifted
    # so that none leaves the array.
    base = start - start % outer.grain
    if start % outer.grain + span > outer.grain or base + rows * outer.grain > extent:
        base = min(start, extent - rows * outer.grain)
    array = slice_dimension(array, base, base + rows * outer.grain, 1, at)
    array = reshape(array, (*array.shape[:at], rows, outer.grain, *array.shape[at + 1 :]))
    array, keys = _read_dimension(array, at + 1, start - base, rest)
    if outer.table is not None:
        array = take(array, constant(divided_term(outer, outer.grain).positions()), at)
    return array, [*outer.keys, *keys]


def _read_box(array: Array, dimensions: Sequence[Dimension]) -> tuple[Array, list[Dimension]]:
    """All dimensions that a slice reads, by one slice; and the access to what it leaves."""
    bounds, left = [], []
    for extent, (start, terms) in zip(array.shape, dimensions, strict=True):
        if not terms or (len(terms) == 1 and terms[0].table is None):
            reach, step = (terms[0].reach, terms[0].grain) if terms else (0, 1)
            bounds.append((start, start + reach + 1, step))
            left.append(Dimension(0, tuple(term._replace(grain=1, reach=term.extents[0] - 1) for term in terms)))
        else:
            bounds.append((0, extent, 1))
            left.append(Dimension(start, terms))
    return (slice_(array, *zip(*bounds, strict=True)) if bounds else array), left


def read_access(array: Array, access: Access) -> tuple[Array, tuple[Key, ...]]:
    """`read`, for an access map that is already taken apart for the array's shape."""
    array, dimensions = _read_box(reshape(array, access.shape), access.dimensions)
    keys: list[Key] = []
    for at in reversed(range(len(dimensions))):
        array, own = _read_dimension(array, at, *dimensions[at])
        keys = own + keys
    backwards = [k for k, key in enumerate(keys) if key in access.reversed_keys]
    return (lax.rev(array, backwards) if backwards else array), tuple(keys)


def read(array: Array, index: Index) -> tuple[Array, tuple[Key, ...]]:
    """What an access map reads: an array with one dimension for each key it varies over, in memory order.

    Args:
        array: what is read.
        index: flat positions in the array, all in bounds.

    Returns:
        The array, and the key of each of its dimensions. Keys along which nothing varies have none.
    """
    digits = split_digits(index)
    if digits is not None:
        return digits.closed(*read_access(array, take_apart(array.shape, digits.index)))
    return read_access(array, take_apart(array.shape, index))


# --- writing ------------------------------------------------------------------------------------------


def _write_box(array: Array | None, shape: tuple[int, ...], radices: list[Radix], value: Array) -> Array:
    """`value`, whose dimensions are those of the radices, written into the box."""
    if all(radix.length == radix.extent for radix in radices):
        return reshape(value, shape)
    assert array is not None
    view = reshape(array, [radix.extent for radix in radices])
    return reshape(lax.dynamic_update_slice(view, value, [radix.start for radix in radices]), shape)


def _write_scattered(array: Array, access: Access, value: Array, keys: Sequence[Key]) -> Array:
    """A scatter: along one dimension where only that one is irregular, else of flat positions."""
    irregular = [d for d, dimension in enumerate(access.dimensions) if box_radices(10**18, *dimension) is None]
    plain = all(
        (len(dimension.terms) == 1 and dimension.terms[0].table is None) or d in irregular
        for d, dimension in enumerate(access.dimensions)
    )
    if len(irregular) == 1 and plain:
        where: list[slice | Array] = []
        order: list[Key] = []
        for d, (start, terms) in enumerate(access.dimensions):
            order += [key for term in terms for key in term.keys]
            if d in irregular:
                where.append(positions_of(start, terms))
            else:
                where.append(slice(start, start + terms[0].reach + 1, terms[0].grain))
        target, at = reshape(array, access.shape), tuple(where)
    else:
        weights = row_major(access.shape).strides
        terms = [term for dimension in access.dimensions for term in dimension.terms]
        scale = [w for w, dimension in zip(weights, access.dimensions, strict=True) for _ in dimension.terms]
        offset = sum(w * dimension.start for w, dimension in zip(weights, access.dimensions, strict=True))
        order = [key for term in terms for key in term.keys]
        target, at = reshape(array, (array.size,)), (positions_of(offset, terms, scale),)
    value = transpose(value, [keys.index(key) for key in order])
    written = target.at[at].set(value, mode="promise_in_bounds", unique_indices=True, wrap_negative_indices=False)
    return reshape(written, array.shape)


def _lying(access: Access, value: Array, keys: Sequence[Key]) -> tuple[Array, list[Key]]:
    """A value without the keys that the access map does not vary over, those that run backwards reversed."""
    written = {key for dimension in access.dimensions for term in dimension.terms for key in term.keys}
    gone = [k for k, key in enumerate(keys) if key not in written]
    value = reshape(value, [n for k, n in enumerate(value.shape) if k not in gone])
    keys = [key for key in keys if key in written]
    backwards = [k for k, key in enumerate(keys) if key in access.reversed_keys]
    return (lax.rev(value, backwards) if backwards else value), keys


def _boxed(radices: Sequence[Radix], value: Array, keys: Sequence[Key]) -> Array:
    """A value with a dimension for each radix."""
    ordered = transpose(value, [keys.index(radix.key) for radix in radices if radix.key is not None])
    return reshape(ordered, [radix.length for radix in radices])


def boxed(access: Access, value: Array, keys: Sequence[Key]) -> Array:
    """What is written through an access that has a `box`, with a dimension for each radix of it."""
    radices = box(access)
    assert radices is not None
    return _boxed(radices, *_lying(access, value, keys))


def write_access(array: Array | None, access: Access, value: Array, keys: Sequence[Key]) -> Array:
    """An array after a write through an access map that names no element twice.

    Args:
        array: the array before; it may be None where the write `covers` it.
        access: the access map, taken apart for the array's shape.
        value: what is written, with one dimension for each of `keys`.
        keys: must be what the access map varies over, and may hold more keys of extent 1.

    Returns:
        The array in the shape it had, or without one before in that of the access.
    """
    shape = access.shape if array is None else array.shape
    value, keys = _lying(access, value, keys)
    radices = box(access)
    if radices is not None:
        return _write_box(array, shape, radices, _boxed(radices, value, keys))
    assert array is not None
    return _write_scattered(array, access, value, keys)
