"""Writes: how arrays are written through access maps, one alone, or several of a compute set together.

A box of an array, or of a reshape of it, is updated in place; all of it is replaced; anything else is scattered.
Several writes that divide an array, or that interleave in it, make it anew together.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from jax import lax

from codelet.views.access import Access
from codelet.views.digits import row_major_strides
from codelet.views.grids import Grid, Key, union_axes
from codelet.views.index import Index
from codelet.views.mixed_radix import Digits, split_digits
from codelet.views.terms import Term
from lowering.arrays import Array, arranged, reshape
from lowering.fast.assembly import Region, assemble, plan_assembly
from lowering.fast.moves import places_of
from lowering.fast.over_grid import Operand
from lowering.plan.radices import Radix, box, box_radices


@dataclass(frozen=True)
class Write:
    """How an array is written through one access map, which names no element twice.

    Attributes:
        access: the access map, taken apart for the array's shape, its keys those of `digits` where there are some.
        digits: of dimensions in mixed radix; None where there are none.
        radices: what is written as a box of the array after a reshape; None where it is scattered.
    """

    access: Access
    digits: Digits | None
    radices: tuple[Radix, ...] | None

    @property
    def is_whole(self) -> bool:
        """Whether all of the array is replaced, so that its old value is not needed."""
        return self.radices is not None and all(radix.length == radix.extent for radix in self.radices)

    @property
    def _terms(self) -> list[Term]:
        return [term for dimension in self.access.dimensions for term in dimension.terms]

    def lying(self, value: Array, keys: Sequence[Key]) -> Array:
        """A value, with one dimension for each of `keys`, as it lies in the array: one for each key of the terms."""
        if self.digits is not None:
            shape, keys = self.digits.opened(keys)
            value = reshape(value, shape)
        backwards = [k for k, key in enumerate(keys) if key in self.access.reversed_keys]
        order = [key for term in self._terms for key in term.keys]
        extents = [extent for term in self._terms for extent in term.extents]
        return arranged(lax.rev(value, backwards) if backwards else value, keys, order, extents)

    def into(self, array: Array | None, shape: Sequence[int], value: Array, keys: Sequence[Key]) -> Array:
        """The array after the write.

        Args:
            array: before; it may be None where it is replaced.
            shape: its shape.
            value: what is written, with one dimension for each of `keys`. Along those that it has not it is
                repeated, and those that the access map does not vary over are of extent 1.
            keys: of its dimensions.
        """
        value = self.lying(value, keys)
        if self.is_whole:
            return reshape(value, shape)
        assert array is not None
        if self.radices is None:
            return self._scattered(array, value)
        extents, starts, lengths = zip(*self.radices, strict=True)
        return reshape(lax.dynamic_update_slice(reshape(array, extents), reshape(value, lengths), starts), shape)

    @property
    def _scattered_along(self) -> int | None:
        """The one dimension that a scatter is along, the others being slices; None where it is of flat positions."""
        dimensions = self.access.dimensions
        irregular = [d for d, dimension in enumerate(dimensions) if box_radices(10**18, *dimension) is None]
        plain = all(
            (len(dimension.terms) == 1 and dimension.terms[0].table is None) or d in irregular
            for d, dimension in enumerate(dimensions)
        )
        return irregular[0] if len(irregular) == 1 and plain else None

    def _scattered(self, array: Array, value: Array) -> Array:
        along, dimensions = self._scattered_along, self.access.dimensions
        if along is None:
            weights = row_major_strides(self.access.shape)
            scale = [w for w, dimension in zip(weights, dimensions, strict=True) for _ in dimension.terms]
            offset = sum(w * dimension.start for w, dimension in zip(weights, dimensions, strict=True))
            target, at = reshape(array, (array.size,)), (places_of(offset, self._terms, scale),)
        else:
            target = reshape(array, self.access.shape)
            at = tuple(
                places_of(start, terms) if d == along else slice(start, start + terms[0].reach + 1, terms[0].grain)
                for d, (start, terms) in enumerate(dimensions)
            )
        written = target.at[at].set(value, mode="promise_in_bounds", unique_indices=True, wrap_negative_indices=False)
        return reshape(written, array.shape)

    def __str__(self) -> str:
        if self.is_whole:
            return "all of it"
        if self.radices is not None:
            return "a box of it, in place"
        by = " by a table" if any(term.table is not None for term in self._terms) else ""
        along = self._scattered_along if len(self.access.dimensions) > 1 else None
        return f"scattered{by}" + ("" if along is None else f" along dimension {along}")


def plan_write(shape: tuple[int, ...], index: Index) -> Write:
    """How an array of `shape` is written through an access map that names no element twice."""
    digits = split_digits(index)
    access = Access.of(index if digits is None else digits.index, shape)
    radices = box(access)
    return Write(access, digits, None if radices is None else _as_dimensions(radices, shape))


def _as_dimensions(radices: Sequence[Radix], shape: Sequence[int]) -> tuple[Radix, ...]:
    """A box of an array after a reshape, where it can be as a box of the array as it is.

    Several vertices write whole rows as a run, or as rows of another length. XLA knows the array in its shape, and
    would have to find out that it may be written in place.
    """
    runs = list[Radix]()
    for own in radices:
        outer = runs[-1] if runs else None
        if outer is not None and (own.length == own.extent or outer.length == 1):
            extent, start, length = outer
            runs[-1] = Radix(extent * own.extent, start * own.extent + own.start, length * own.length)
        else:
            runs.append(own)
    found, left = list[Radix](), list(shape)
    for run in runs:
        own = list[int]()
        while left and math.prod(own) < run.extent:
            own.append(left.pop(0))
        rows = _rows_of(run, own) if math.prod(own) == run.extent else None
        if rows is None:
            return tuple(radices)
        found += rows
    return (*found, *(Radix(1, 0, 1) for _ in left))


def _rows_of(run: Radix, shape: Sequence[int]) -> list[Radix] | None:
    """A run of a flat dimension as a box of the dimensions that it is of; None where it is none."""
    _, start, length = run
    found = list[Radix]()
    for k, extent in enumerate(shape):
        row = math.prod(shape[k + 1 :])
        if start % row == 0 and length % row == 0:
            return [*found, Radix(extent, start // row, length // row), *(Radix(n, 0, n) for n in shape[k + 1 :])]
        if start // row != (start + length - 1) // row:
            return None
        found.append(Radix(extent, start // row, 1))
        start %= row
    return found


# --- several --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class InTurn:
    """Writes one after another."""

    writes: tuple[Write, ...]

    @property
    def needs_old(self) -> bool:
        """Whether something of the old array is left."""
        return not any(write.is_whole for write in self.writes)

    def into(self, array: Array | None, shape: Sequence[int], values: Sequence[Operand]) -> Array:
        """The array after the writes, of a value each; None before where nothing of it is left."""
        for write, (value, keys) in zip(self.writes, values, strict=True):
            array = write.into(array, shape, value, keys)
        assert array is not None
        return array

    def __str__(self) -> str:
        each = "; ".join(dict.fromkeys(map(str, self.writes)))
        return each if len(self.writes) == 1 else f"{len(self.writes)} parts in turn: {each}"


@dataclass(frozen=True)
class Joined:
    """Writes that make an array anew together.

    Attributes:
        region: how the array is put together.
        writes: each a box of it, or of a reshape of it.
    """

    region: Region
    writes: tuple[Write, ...]

    @property
    def needs_old(self) -> bool:
        """Whether something of the old array is left."""
        return not self.region.is_whole

    def into(self, array: Array | None, shape: Sequence[int], values: Sequence[Operand]) -> Array:
        """The array after the writes, of a value each; None before where nothing of it is left."""
        boxes = {k: write.lying(*value) for k, (write, value) in enumerate(zip(self.writes, values, strict=True))}
        return assemble(array, shape, self.region, boxes)

    def __str__(self) -> str:
        rest = " and what is left of it" if self.needs_old else ""
        return f"joined of {len(self.writes)} parts{rest}"


Writes = InTurn | Joined


def plan_writes(shape: tuple[int, ...], indices: Sequence[Index]) -> Writes:
    """How one compute set writes an array of `shape` through several access maps, which name no element twice."""
    writes = tuple(plan_write(shape, index) for index in indices)
    region = plan_assembly(shape, {k: own.access for k, own in enumerate(writes)}) if len(writes) > 1 else None
    return InTurn(writes) if region is None else Joined(region, writes)


# --- what is left of the old array ----------------------------------------------------------------------

_Form = tuple[int, tuple[int, ...], tuple[int, ...], tuple[tuple[int, int], ...]]
"""An access map without tables: offset, shape, strides, and the number of each axis with its coefficient."""


@functools.lru_cache(maxsize=4096)
def _forms_need_old(shape: tuple[int, ...], extents: tuple[int, ...], forms: tuple[_Form, ...]) -> bool:
    axes = Grid([range(extent) for extent in extents]).axes
    indices = [
        Index(offset, own, strides, tuple((axes[k], coefficient) for k, coefficient in symbols))
        for offset, own, strides, symbols in forms
    ]
    return plan_writes(shape, indices).needs_old


def need_old(shape: tuple[int, ...], indices: Sequence[Index]) -> bool:
    """Whether something is left of an array of `shape` that a compute set writes; found once for access maps alike."""
    if any(index.tables for index in indices):
        return plan_writes(shape, indices).needs_old
    axes = union_axes(index.axes for index in indices)
    number = {axis: k for k, axis in enumerate(axes)}
    forms = tuple(
        (index.offset, index.shape, index.strides, tuple((number[axis], c) for axis, c in index.symbols))
        for index in indices
    )
    return _forms_need_old(shape, tuple(axis.extent for axis in axes), forms)
