"""Access: an access map taken apart by the dimensions of the array that it reads or writes.

Into affine terms, one for each key (a dimension of the field, or a grid axis), and tables over one or several keys.
Where the terms do not keep to a dimension, it is one with that before it: an array may be taken as one flat dimension.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from codelet.views.digits import ends, row_major_strides
from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.integers import affine_length, common_divisor, narrowed


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
        return Lookup(values, own * scale, shift * scale + start).positions(
            dtype_of_positions(start, scale * self.reach)
        )


def dtype_of_positions(start: int, reach: int) -> Any:
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


def flat_terms(index: Index) -> tuple[int, list[Term], frozenset[Key]]:
    """The offset of the least element read, the terms from there on, and the keys that run backwards."""
    offset, terms, backwards = index.offset, [], set()
    tabled: set[Key] = set()
    for keys in index.table_groups:
        tabled.update(keys)
        least, term, is_reversed = _table_term(index, keys)
        offset += least
        backwards.update(keys if is_reversed else ())
        if term is not None:
            terms.append(term)
    digits = {key: index.digit(key) for key in index.keys if key not in tabled and index.extent(key) > 1}
    terms += [Term((key,), (n,), abs(step), abs(step) * (n - 1), None) for key, (step, n) in digits.items()]
    backwards.update(key for key, digit in digits.items() if digit.step < 0)
    return ends(digits.values(), offset)[0], terms, frozenset(backwards)


def _by_dimension(shape: tuple[int, ...], offset: int, terms: Sequence[Term]) -> tuple[Dimension, ...] | int:
    """The terms assigned to dimensions, in units of them; or the number of one that they do not keep to."""
    weights = row_major_strides(shape)
    assigned: list[list[Term]] = [[] for _ in shape]
    for term in terms:
        at = next(d for d, weight in enumerate(weights) if term.grain % weight == 0)
        assigned[at].append(term)
    starts = np.unravel_index(offset, shape) if shape else ()
    dimensions = []
    for d, (weight, extent, start, own) in enumerate(zip(weights, shape, starts, assigned, strict=True)):
        if int(start) + sum(term.reach // weight for term in own) >= extent:
            return d
        own.sort(key=lambda term: term.grain, reverse=True)
        dimensions.append(Dimension(int(start), tuple(divided_term(term, weight) for term in own)))
    return tuple(dimensions)


def divided_term(term: Term, weight: int) -> Term:
    table = None if term.table is None else term.table.divided(weight)
    return term._replace(grain=term.grain // weight, reach=term.reach // weight, table=table)


def take_apart(shape: tuple[int, ...], index: Index) -> Access:
    """The access map of an array of `shape`, by its dimensions, or by those of it with some made one."""
    offset, terms, backwards = flat_terms(index)
    tried = shape if shape or not terms else (1,)
    while not isinstance(found := _by_dimension(tried, offset, terms), tuple):
        assert found, (shape, index)
        tried = (*tried[: found - 1], tried[found - 1] * tried[found], *tried[found + 1 :])
    return Access(tried, found, backwards)


class Radix(NamedTuple):
    """A dimension to be written after a reshape: `length` from `start` of `extent`."""

    extent: int
    start: int
    length: int


def box_radices(extent: int, start: int, terms: Sequence[Term]) -> list[Radix] | None:
    """A dimension reshaped so that what is written is a box of it; None when no reshape does that."""
    if any(term.table is not None for term in terms):
        return None
    if not terms:
        return [Radix(extent, start, 1)]
    outer, rest = terms[0], terms[1:]
    if outer.grain == 1:
        return [Radix(extent, start, outer.extents[0])] if not rest else None
    row, shift = divmod(start, outer.grain)
    if extent % outer.grain or shift + sum(term.reach for term in rest) >= outer.grain:
        return None
    inner = box_radices(outer.grain, shift, rest)
    return None if inner is None else [Radix(extent // outer.grain, row, outer.extents[0]), *inner]


def run_of(start: int, terms: Sequence[Term]) -> tuple[int, int] | None:
    """The run of a dimension that is covered, each position once: from where to where; None if none is."""
    count = 1
    for term in reversed(terms):
        if term.table is not None or term.grain != count:
            return None
        count *= term.extents[0]
    return start, start + count


def box(access: Access) -> list[Radix] | None:
    """What is written, as a box of the array reshaped to the extents of the result; None when no reshape does that."""
    found: list[Radix] = []
    for extent, (start, terms) in zip(access.shape, access.dimensions, strict=True):
        own = box_radices(extent, start, terms)
        if own is None:
            run = run_of(start, terms)
            if run is None:
                return None
            own = [Radix(extent, start, run[1] - start)]
        found += own
    return found
