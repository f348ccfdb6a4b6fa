"""Views of arrays: reading and writing an array through an access map, as XLA does it best.

An access map is taken apart dimension by dimension of the array it reads: into affine terms, one for
each key (a dimension of the field, or a grid axis), and tables over one or several keys. Then each
dimension is read on its own, by a slice, a reshape and a slice, a stack of slices where windows overlap,
or a gather along that dimension by an index vector. Where the terms do not keep to dimensions, the array
is read as one flat dimension. No step is emitted that would change nothing: it would hide later rules.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.index import Index, Key, row_major
from codelet.integers import affine_length, common_divisor, narrowed
from lowering.digits import split_digits

Array = jax.Array

MAX_STACKED_SLICES = 25
"""Beyond about this many stacked slices, a gather of the windows is faster than the stack on CPU."""


class Lookup(NamedTuple):
    """Positions from data, `scale * values + shift`. The values are the graph's own: no copy is made of them."""

    values: np.ndarray
    scale: int
    shift: int

    def divided(self, divisor: int) -> Lookup:
        """All positions, counted from the least, divided by what divides them."""
        if self.scale % divisor == 0:
            return Lookup(self.values, self.scale // divisor, self.shift // divisor)
        return Lookup(self.positions(np.int64) // divisor, 1, 0)

    def positions(self, dtype: Any) -> np.ndarray:
        """The positions, which must fit the dtype, as an array of it."""
        if (self.scale, self.shift) == (1, 0):
            return self.values.astype(dtype, copy=False)
        # Computed as int64 by blocks and cut to the dtype. A product that does not fit is cut to what is
        # congruent to it, and so the sum, which fits, is right.
        made = np.empty(self.values.shape, dtype)
        np.multiply(self.values, self.scale, out=made, dtype=np.int64, casting="unsafe")
        return np.add(made, self.shift, out=made, dtype=np.int64, casting="unsafe")


class Term(NamedTuple):
    """What a dimension's position depends on: `step * position` along one key, or a table over keys.

    Positions count from the term's least value, so they are never negative; `table` is in units of the
    dimension. `grain` divides every position; `reach` is the greatest.
    """

    keys: tuple[Key, ...]
    extents: tuple[int, ...]
    grain: int
    reach: int
    table: Lookup | None

    def positions(self, start: int = 0, scale: int = 1) -> np.ndarray:
        """`start` plus `scale` times the positions of a table, as int32 where they fit."""
        assert self.table is not None
        values, own, shift = self.table
        return Lookup(values, own * scale, shift * scale + start).positions(_dtype(start, scale * self.reach))


def _dtype(start: int, reach: int) -> Any:
    """The dtype of positions from `start` to `start + reach`."""
    return np.int32 if start >= -(2**31) and start + reach < 2**31 else np.int64


class Dimension(NamedTuple):
    """The access to one dimension: `start` plus the terms."""

    start: int
    terms: tuple[Term, ...]


class Access(NamedTuple):
    """An access map by dimensions of an array of `shape`; keys in `reversed_keys` run backwards."""

    shape: tuple[int, ...]
    dimensions: tuple[Dimension, ...]
    reversed_keys: frozenset[Key]


# --- taking an access map apart -----------------------------------------------------------------------


def _table_groups(index: Index) -> list[tuple[Key, ...]]:
    """The keys of tables, those of tables that share a key together."""
    groups: list[set[Key]] = []
    for table in index.tables:
        keys = set(table.keys)
        for group in [group for group in groups if group & keys]:
            groups.remove(group)
            keys |= group
        groups.append(keys)
    return [tuple(key for key in index.keys if key in group) for group in groups]


def _table_term(index: Index, keys: tuple[Key, ...]) -> tuple[int, Term | None, bool]:
    """The least value of what an index adds up to along keys of tables, the rest of it, and if that runs backwards."""
    own = tuple(table for table in index.tables if set(table.keys) <= set(keys))
    if len(own) == 1 and not any(map(index.coefficient, keys)):
        scale = own[0].scale
        values = own[0].values.transpose([own[0].keys.index(key) for key in keys])
    else:
        scale, values = 1, narrowed(index.only(keys, own, 0).values_over(keys))
    low, high = int(values.min()), int(values.max())
    least, reach = min(low * scale, high * scale), (high - low) * abs(scale)
    if not reach:
        return least, None, False
    if values.ndim == 1 and affine_length(values) == len(values):  # a table may turn out to be affine
        stride = (int(values[1]) - int(values[0])) * scale
        return least, Term(keys, values.shape, abs(stride), reach, None), stride < 0
    grain = common_divisor(values, low) * abs(scale)
    return least, Term(keys, values.shape, grain, reach, Lookup(values, scale, -least)), False


def _flat_terms(index: Index) -> tuple[int, list[Term], frozenset[Key]]:
    """The offset of the least element read, the terms from there on, and the keys that run backwards."""
    offset, terms, backwards = index.offset, [], set()
    tabled: set[Key] = set()
    for keys in _table_groups(index):
        tabled.update(keys)
        least, term, is_reversed = _table_term(index, keys)
        offset += least
        backwards.update(keys if is_reversed else ())
        if term is not None:
            terms.append(term)
    for key in index.keys:
        stride, extent = index.coefficient(key), index.extent(key)
        if key not in tabled and stride and extent > 1:
            if stride < 0:
                offset += stride * (extent - 1)
                backwards.add(key)
            terms.append(Term((key,), (extent,), abs(stride), abs(stride) * (extent - 1), None))
    return offset, terms, frozenset(backwards)


def _by_dimension(shape: tuple[int, ...], offset: int, terms: Sequence[Term]) -> tuple[Dimension, ...] | None:
    """The terms assigned to dimensions, in units of them; None when they do not keep to them."""
    weights = row_major(shape).strides
    assigned: list[list[Term]] = [[] for _ in shape]
    for term in terms:
        at = next(d for d, weight in enumerate(weights) if term.grain % weight == 0)
        assigned[at].append(term)
    starts = np.unravel_index(offset, shape) if shape else ()
    dimensions = []
    for weight, extent, start, own in zip(weights, shape, starts, assigned, strict=True):
        if int(start) + sum(term.reach // weight for term in own) >= extent:
            return None
        own.sort(key=lambda term: term.grain, reverse=True)
        dimensions.append(Dimension(int(start), tuple(_divided(term, weight) for term in own)))
    return tuple(dimensions)


def _divided(term: Term, weight: int) -> Term:
    table = None if term.table is None else term.table.divided(weight)
    return term._replace(grain=term.grain // weight, reach=term.reach // weight, table=table)


def take_apart(shape: tuple[int, ...], index: Index) -> Access:
    """The access map of an array of `shape`, by its dimensions, or by the one of its flat form."""
    offset, terms, backwards = _flat_terms(index)
    for tried in (shape, (math.prod(shape),)):
        if not tried and terms:
            continue
        dimensions = _by_dimension(tried, offset, terms)
        if dimensions is not None:
            return Access(tried, dimensions, backwards)
    raise AssertionError((shape, index))


# --- steps that are left out when they would change nothing -------------------------------------------


def constant(values: np.ndarray) -> Array:
    """A known array as a JAX array, which tracing then takes for an argument."""
    with jax.ensure_compile_time_eval():
        return jax.device_put(values)  # `jnp.asarray` compiles a program for every shape


def reshape(array: Array, shape: Sequence[int]) -> Array:
    """A reshape, unless the array has that shape."""
    return array if array.shape == tuple(shape) else lax.reshape(array, tuple(shape))


def transpose(array: Array, order: Sequence[int]) -> Array:
    """A transpose, unless it keeps the order."""
    return array if tuple(order) == tuple(range(array.ndim)) else lax.transpose(array, tuple(order))


def _slice(array: Array, starts: Sequence[int], stops: Sequence[int], steps: Sequence[int]) -> Array:
    """A slice of every dimension, unless all are whole."""
    if not any(starts) and tuple(stops) == array.shape and max(steps, default=1) == 1:
        return array
    return lax.slice(array, starts, stops, steps)


def _slice_dimension(array: Array, start: int, stop: int, step: int, at: int) -> Array:
    whole = range(array.ndim)
    return _slice(
        array,
        [start if d == at else 0 for d in whole],
        [stop if d == at else array.shape[d] for d in whole],
        [step if d == at else 1 for d in whole],
    )


def take(array: Array, positions: Array, at: int = 0, *, is_sorted: bool = False) -> Array:
    """The array at positions along one dimension, which the positions' dimensions replace.

    Positions are promised to be in bounds and not negative, and to be sorted where it says so.
    """
    where = (slice(None),) * at + (positions,)
    return array.at[where].get(mode="promise_in_bounds", wrap_negative_indices=False, indices_are_sorted=is_sorted)


# --- reading ------------------------------------------------------------------------------------------


def positions_of(offset: int, terms: Sequence[Term], scale: Sequence[int] | None = None) -> Array:
    """`offset` plus the terms (each times its scale), with array dimensions for the keys of all terms, in order."""
    scale = scale or [1] * len(terms)
    ranks = [len(term.keys) for term in terms]
    extents = [extent for term in terms for extent in term.extents]
    dtype = _dtype(offset, sum(term.reach * factor for term, factor in zip(terms, scale, strict=True)))
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
    offset, terms, backwards = _flat_terms(index)
    if not terms:
        return np.asarray(offset), ()
    keys = tuple(key for term in terms for key in term.keys)
    reversed_at = [k for k, key in enumerate(keys) if key in backwards]
    values = positions_of(offset, terms)
    return (lax.rev(values, reversed_at) if reversed_at else values), keys


def _read_single(array: Array, at: int, start: int, term: Term) -> Array:
    if term.table is not None:
        return take(array, constant(term.positions(start)), at)
    return _slice_dimension(array, start, start + term.reach + 1, term.grain, at)


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
        array = _slice_dimension(array, start, start + 1, 1, at)
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
    array = _slice_dimension(array, base, base + rows * outer.grain, 1, at)
    array = reshape(array, (*array.shape[:at], rows, outer.grain, *array.shape[at + 1 :]))
    array, keys = _read_dimension(array, at + 1, start - base, rest)
    if outer.table is not None:
        array = take(array, constant(_divided(outer, outer.grain).positions()), at)
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
    return (_slice(array, *zip(*bounds, strict=True)) if bounds else array), left


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


def arranged(array: Array, keys: Sequence[Key], order: Sequence[Key], extents: Sequence[int]) -> Array:
    """An array whose dimensions are `keys`, with those of `order` instead, repeated along the absent ones."""
    present = [key for key in order if key in keys]
    array = transpose(array, [keys.index(key) for key in present])
    if len(present) == len(order):
        return array
    return lax.broadcast_in_dim(array, tuple(extents), tuple(k for k, key in enumerate(order) if key in keys))


# --- writing ------------------------------------------------------------------------------------------


class Radix(NamedTuple):
    """A dimension to be written after a reshape: `length` from `start` of `extent`, along `key` if any."""

    extent: int
    start: int
    length: int
    key: Key | None


def _radices(extent: int, start: int, terms: Sequence[Term]) -> list[Radix] | None:
    """A dimension reshaped so that what is written is a box of it; None when no reshape does that."""
    if any(term.table is not None for term in terms):
        return None
    if not terms:
        return [Radix(extent, start, 1, None)]
    outer, rest = terms[0], terms[1:]
    if outer.grain == 1:
        return [Radix(extent, start, outer.extents[0], outer.keys[0])] if not rest else None
    row, shift = divmod(start, outer.grain)
    if extent % outer.grain or shift + sum(term.reach for term in rest) >= outer.grain:
        return None
    inner = _radices(outer.grain, shift, rest)
    return None if inner is None else [Radix(extent // outer.grain, row, outer.extents[0], outer.keys[0]), *inner]


def _write_box(array: Array | None, shape: tuple[int, ...], radices: list[Radix], value: Array) -> Array:
    """`value`, whose dimensions are those of the radices, written into the box."""
    if all(radix.length == radix.extent for radix in radices):
        return reshape(value, shape)
    assert array is not None
    view = reshape(array, [radix.extent for radix in radices])
    return reshape(lax.dynamic_update_slice(view, value, [radix.start for radix in radices]), shape)


def _write_scattered(array: Array, access: Access, value: Array, keys: Sequence[Key]) -> Array:
    """A scatter: along one dimension where only that one is irregular, else of flat positions."""
    irregular = [d for d, dimension in enumerate(access.dimensions) if _radices(10**18, *dimension) is None]
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


def covers(access: Access) -> bool:
    """Whether a write through an access map replaces the whole array, so that its old value is not needed."""
    radices = box(access)
    return radices is not None and all(radix.length == radix.extent for radix in radices)


def box(access: Access) -> list[Radix] | None:
    """What is written, as a box of the array reshaped to the extents of the result; None when no reshape does that."""
    found: list[Radix] = []
    for extent, (start, terms) in zip(access.shape, access.dimensions, strict=True):
        own = _radices(extent, start, terms)
        if own is None:
            return None
        found += own
    return found


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
