"""Tables of updates: what is added to several tables of zeros, which are summed, or to another array, as one table.

Each of three rules finds one form of it: tables that one equation makes and another sums; a table that is added to an
array, which takes the updates in its place; updates of one table after others, as one list.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers
from codelet.jaxprs.primitives import is_understood
from codelet.views.digits import Digit, merged, row_major_digits
from lowering.arrays import reshape
from lowering.jaxprs.parts import part_of
from lowering.jaxprs.rearrangement import Rearrangement, rearrange, rearrangement
from lowering.jaxprs.remade import Remade
from lowering.jaxprs.summed import Sum, dtype_of, shape_of

_OF_SAME = ("broadcast_in_dim", "reshape", "squeeze", "transpose", "split", "slice")
"""Primitives whose results have no elements but those of their operand."""


def repeated(atom: Atomic, makers: Makers) -> np.ndarray | None:
    """The number that an array has everywhere; None where it is not known to."""
    while not isinstance(atom, jax_core.Literal):
        maker = makers.of(atom)
        if maker is None or not is_understood(maker, *_OF_SAME):
            return None
        atom = maker.invars[0]
    return np.asarray(atom.val)  # type: ignore[union-attr]


def is_zero(atom: Atomic, makers: Makers) -> bool:
    """Whether an array is one zero, repeated."""
    number = repeated(atom, makers)
    return number is not None and not number.any()


def _renumbered(dimensions: Sequence[int], places: dict[int, int]) -> tuple[int, ...]:
    """Dimensions by their new numbers, those that are gone left out."""
    return tuple(places[int(d)] for d in dimensions if int(d) in places)


def one_table(own: Sum, makers: Makers) -> Remade | None:
    """A sum of tables of zeros with updates as one table with all of them; None where it is none.

    Its rows lie together, as what is put there does; one table, of which they do, stays.
    """
    maker, numbers = own.maker, own.maker.params["dimension_numbers"]
    batch = list(map(int, numbers.operand_batching_dims))
    if not set(own.summed) <= set(batch) or not is_zero(maker.invars[0], makers):
        return None
    shape, dtype = shape_of(own.array), own.dtype
    gone = {int(d) for d in (*numbers.inserted_window_dims, *batch)}
    left = [d for d in range(len(shape)) if d not in own.summed]
    order = sorted(left, key=lambda d: d not in gone)
    if order == list(range(len(shape))):
        return None
    places = {d: k for k, d in enumerate(order)}
    pairs = [(d, k) for d, k in zip(batch, numbers.scatter_indices_batching_dims, strict=True) if d in places]
    of_table = lax.ScatterDimensionNumbers(
        tuple(map(int, numbers.update_window_dims)),
        tuple(sorted(_renumbered(numbers.inserted_window_dims, places))),
        _renumbered(numbers.scatter_dims_to_operand_dims, places),
        tuple(places[d] for d, _ in pairs),
        tuple(int(k) for _, k in pairs),
    )
    # Two updates of different tables may be for one place of the sum, and are sorted in each table alone.
    promised = {name: not own.summed and maker.params[name] for name in ("indices_are_sorted", "unique_indices")}
    is_short = own.summed and jnp.issubdtype(dtype, jnp.floating) and np.dtype(dtype).itemsize < 4
    wide = np.dtype(np.float32) if is_short else dtype  # sums of few updates lose less than one of all of them

    def run(indices: Any, updates: Any) -> list[Any]:
        zeros = lax.full([shape[d] for d in order], 0, wide)
        made = lax.scatter_add(zeros, indices, updates.astype(wide), of_table, mode=maker.params["mode"], **promised)
        return [own.back(made, order)]

    return Remade(tuple(maker.invars[1:]), run)


MOST_JOINED = 2**16
"""Updates that are put behind others where that copies them: more take longer than to start once more."""


def _part(scatter: jax_core.JaxprEqn, makers: Makers) -> Any:
    """The part of an array that its updates are; None where they are none."""
    listed = _listed(scatter.invars[2], len(shape_of(scatter.invars[1])) - 1, makers)
    return None if listed is None else part_of(listed.array, listed.along, makers)


def _are_long_and_apart(one: jax_core.JaxprEqn | None, other: jax_core.JaxprEqn, makers: Makers) -> bool:
    """Whether updates of two tables of zeros take longer than a sum of both: XLA runs the two beside each other.

    Not those that are parts of one array, which become one list.
    """
    if one is None or not is_understood(one, "scatter-add") or not is_zero(one.invars[0], makers):
        return False
    fewest = min(math.prod(shape_of(own.invars[2])) for own in (one, other))
    if fewest < max(MOST_JOINED, math.prod(shape_of(other.invars[0]))):
        return False
    return None in (_part(one, makers), _part(other, makers))


def _is_read_once(table: Any, root: Any, makers: Makers, uses: Counter[Any]) -> bool:
    """Whether nothing else reads a rearranged table, its root, or what lies between them."""
    while uses[table] == 1:
        if table is root:
            return True
        (table,) = makers[table].invars
    return False


def one_start(eqn: jax_core.JaxprEqn, makers: Makers, uses: Counter[Any]) -> Remade | None:
    """An array and a table of zeros with updates, added, as the updates of the array; None where they lie otherwise."""
    for array, table in (eqn.invars, eqn.invars[::-1]):
        if isinstance(table, jax_core.Literal) or isinstance(array, jax_core.Literal) or 0 in shape_of(table):
            continue
        view, of = (rearrangement(own, makers, stop=lambda _: False) for own in (table, array))
        maker, shape = makers.of(view.root), shape_of(table)
        if maker is None or not is_understood(maker, "scatter-add") or not is_zero(maker.invars[0], makers):
            continue
        is_alone = _is_read_once(table, view.root, makers, uses) and view.root is not of.root
        alike = merged(view.digits) == merged(of.digits) and all(digit.step for digit in view.digits)
        if not is_alone or not alike or math.prod(shape_of(of.root)) != math.prod(shape):
            continue
        if _are_long_and_apart(makers.of(of.root), maker, makers):
            continue

        def run(start: Any, *given: Any, maker: jax_core.JaxprEqn = maker, view: Rearrangement = view) -> list[Any]:
            start = reshape(start, shape_of(view.root))
            return [rearrange(maker.primitive.bind(start, *given, **maker.params), view.digits, shape)]

        return Remade((of.root, *maker.invars[1:]), run)
    return None


@dataclass(frozen=True)
class _SliceList:
    """Updates, or indices, as a list of slices, of an array whose slices lie along a dimension.

    Attributes:
        array: that array.
        shape: of the array, with that dimension.
        along: the dimension.
        digits: of the list, without its first dimension, as positions in the array without the dimension.
        slices: the shape of a slice in the list.
    """

    array: Atomic
    shape: tuple[int, ...]
    along: int
    digits: tuple[Digit, ...]
    slices: tuple[int, ...]

    @property
    def sides(self) -> tuple[int, int]:
        """How many elements of the array lie side by side before the dimension, and behind it."""
        return math.prod(self.shape[: self.along]), math.prod(self.shape[self.along + 1 :])

    def is_like(self, other: _SliceList) -> bool:
        """Whether the lists are of slices that lie alike."""
        return (self.sides, self.digits, self.slices) == (other.sides, other.digits, other.slices)

    def before(self, other: _SliceList, first: Any, second: Any) -> Any:
        """One list of this one's slices and another's behind them."""
        outer, inner = self.sides
        shapes, along = [self.shape, other.shape], self.along
        if (other.along, *other.shape[:along], *other.shape[along + 1 :]) != (
            along,
            *self.shape[:along],
            *self.shape[along + 1 :],
        ):
            shapes, along = [(outer, own.shape[own.along], inner) for own in (self, other)], 1
        whole = lax.concatenate([reshape(*own) for own in zip((first, second), shapes, strict=True)], along)
        n = whole.shape[along]
        rest = [Digit(own.step * n if own.step >= inner else own.step, own.extent) for own in self.digits]
        return rearrange(whole, [Digit(inner, n), *rest], (n, *self.slices))


def _listed(atom: Atomic, leading: int, makers: Makers) -> _SliceList | None:
    """An array with some leading dimensions that list slices as a list; None where these do not lie so."""
    view, shape = rearrangement(atom, makers, stop=lambda _: False), shape_of(atom)
    listed = merged(digit for dim in view.dims[:leading] for digit in dim)
    extents = shape_of(view.root)
    if len(listed) != 1 or not all(digit.step for digit in view.digits):
        return None
    inner, n = listed[0]
    if listed[0] in row_major_digits(extents):
        along = row_major_digits(extents).index(listed[0])
    else:
        along, extents = 1, (math.prod(extents) // (n * inner), n, inner)
    rest = (digit for dim in view.dims[leading:] for digit in dim)
    digits = tuple(Digit(own.step // n if own.step > inner else own.step, own.extent) for own in rest)
    return _SliceList(view.root, extents, along, digits, shape[leading:])


def one_list(eqn: jax_core.JaxprEqn, makers: Makers, uses: Counter[Any]) -> Remade | None:
    """Updates that are added after others as one list of all; None where they are none, or of other slices."""
    before, own = makers.of(eqn.invars[0]), eqn.params["dimension_numbers"]
    if before is None or not is_understood(before, "scatter-add") or uses[eqn.invars[0]] > 1:
        return None
    lists = []
    for one in (before, eqn):
        numbers, leading = one.params["dimension_numbers"], len(shape_of(one.invars[1])) - 1
        windows = tuple(range(leading, len(shape_of(one.invars[2]))))
        of_table = numbers.inserted_window_dims, numbers.scatter_dims_to_operand_dims, numbers.operand_batching_dims
        same = (own.inserted_window_dims, own.scatter_dims_to_operand_dims, ())
        if of_table != same or tuple(numbers.update_window_dims) != windows:
            return None
        if one.params["mode"] != eqn.params["mode"] or any(isinstance(at, jax_core.Literal) for at in one.invars[1:]):
            return None
        lists.append([_listed(at, leading, makers) for at in one.invars[1:]])
    (indices, updates), (more_indices, more_updates) = lists
    if indices is None or updates is None or more_indices is None or more_updates is None:
        return None
    if not indices.is_like(more_indices) or not updates.is_like(more_updates):
        return None
    windows = tuple(range(1, 1 + len(updates.slices)))
    numbers = lax.ScatterDimensionNumbers(windows, own.inserted_window_dims, own.scatter_dims_to_operand_dims)

    # XLA finds that neighbouring parts of an array, in order, are that array.
    parts = [part_of(own.array, own.along, makers, own.shape) for own in (updates, more_updates)]
    if None in parts and math.prod(shape_of(more_updates.array)) > MOST_JOINED:
        return None
    turned = None not in parts and parts[0].start > parts[1].start  # type: ignore[union-attr]

    def run(table: Any, *given: Any) -> list[Any]:
        own, other, first, second = (indices, updates), (more_indices, more_updates), given[:2], given[2:]
        if turned:
            own, other, first, second = other, own, second, first
        where, values = (one.before(*rest) for one, *rest in zip(own, other, first, second, strict=True))
        return [lax.scatter_add(table, where, values, numbers, mode=eqn.params["mode"])]

    sources = indices.array, updates.array, more_indices.array, more_updates.array
    return Remade((before.invars[0], *sources), run)


def with_rows_together(eqn: jax_core.JaxprEqn, makers: Makers) -> Remade | None:
    """Updates of a table of zeros as those of one whose rows lie together; None where they do, or there is none."""
    (table,) = eqn.outvars
    every = tuple((d, digit) for d, digit in enumerate(row_major_digits(shape_of(table))) if digit.extent > 1)
    return one_table(Sum(table, eqn, (), every, shape_of(table), dtype_of(table)), makers)
