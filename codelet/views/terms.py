"""Terms: the summands of an index along keys, in the dimensions of an array: a step along a key, or a table over keys.

In comes an index, flat positions in an array. Out come the least of these and terms that are never negative, each as it
keeps to a dimension, if it does. Emission follows them: a slice for a step, a gather for a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from codelet.views.digits import row_major_strides
from codelet.views.grids import Key
from codelet.views.index import Index
from codelet.views.integers import affine_length, common_divisor, narrowed


class Lookup(NamedTuple):
    """Positions from data, `scale * values + shift`. The values belong to the graph: no copy is made of them."""

    values: np.ndarray
    scale: int
    shift: int

    def divided(self, divisor: int) -> Lookup:
        """All positions, counted from the least, divided by the divisor."""
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
    """A summand of a dimension's position: `grain * place` along one key, or a table over keys.

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

    def divided(self, weight: int) -> Term:
        """It in units of a weight, which divides all of it."""
        table = None if self.table is None else self.table.divided(weight)
        return self._replace(grain=self.grain // weight, reach=self.reach // weight, table=table)


def dtype_of_positions(start: int, reach: int) -> Any:
    """The dtype of positions from `start` to `start + reach`."""
    return np.int32 if start >= -(2**31) and start + reach < 2**31 else np.int64


class Dimension(NamedTuple):
    """The least position along a dimension, and its summands: terms that are never negative."""

    start: int
    terms: tuple[Term, ...]


def _table_term(keys: tuple[Key, ...], values: np.ndarray, scale: int) -> tuple[int, Term | None, bool]:
    """The least of `scale * values` along keys, the rest of it, if any, and whether that runs backwards along a key."""
    low, high = int(values.min()), int(values.max())
    least, reach = min(low * scale, high * scale), (high - low) * abs(scale)
    if not reach:
        return least, None, False
    if values.ndim == 1 and affine_length(values) == len(values):  # a table may turn out to be affine
        stride = (int(values[1]) - int(values[0])) * scale
        return least, Term(keys, values.shape, abs(stride), reach, None), stride < 0
    grain = common_divisor(values, low) * abs(scale)
    return least, Term(keys, values.shape, grain, reach, Lookup(values, scale, -least)), False


def _index_table(index: Index, keys: tuple[Key, ...]) -> tuple[np.ndarray, int]:
    """The sum of an index along keys of tables: values and a scale."""
    own = tuple(table for table in index.tables if set(table.keys) <= set(keys))
    if len(own) == 1 and not any(map(index.coefficient, keys)):
        return own[0].values.transpose([own[0].keys.index(key) for key in keys]), own[0].scale
    return narrowed(index.only(keys, own, 0).values_over(keys)), 1


def flat_terms(index: Index) -> tuple[int, list[Term], frozenset[Key]]:
    """The offset of the least element read, the terms from there on, and the keys that run backwards."""
    offset, terms, backwards = index.offset, [], set()
    tabled: set[Key] = set()
    for keys in index.table_groups:
        tabled.update(keys)
        least, term, is_reversed = _table_term(keys, *_index_table(index, keys))
        offset += least
        backwards.update(keys if is_reversed else ())
        if term is not None:
            terms.append(term)
    for key in index.keys:
        step, extent = index.digit(key)
        if key not in tabled and extent > 1:
            reach = abs(step) * (extent - 1)
            terms.append(Term((key,), (extent,), abs(step), reach, None))
            if step < 0:
                offset -= reach
                backwards.add(key)
    return offset, terms, frozenset(backwards)


def by_dimension(shape: tuple[int, ...], offset: int, terms: Sequence[Term]) -> tuple[Dimension, ...] | int:
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
        dimensions.append(Dimension(int(start), tuple(term.divided(weight) for term in own)))
    return tuple(dimensions)
