"""Mixed radix: dimensions of a view that step in mixed radix, taken apart into dimensions that step evenly.

A dimension that was made of several by a reshape, as `x.transpose(1, 0, 2).reshape(n, -1)` makes one of heads and
features, has a table for its positions. Each digit of its number, in the radices of the reshape, has a separate step.
In comes the access map of such a view; out comes one with a dimension for each digit, which is read and written by
slices and transposes where the table would be a gather or a scatter. Grid axes are taken apart alike when families are
brought into normal form; see `lowering/plan/collect.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from codelet.views.affine import Table
from codelet.views.digits import Digit, read_digits
from codelet.views.grids import Axis, Key
from codelet.views.index import Index


class Digits(NamedTuple):
    """An access map with a dimension for each digit.

    Attributes:
        index: the access map.
        groups: for each dimension of the map it was made from, those that now stand for it, the highest digit first.
    """

    index: Index
    groups: tuple[tuple[int, ...], ...]

    def renamed(self, key: Key) -> tuple[Key, ...]:
        """The keys that stand for a key of the map it was made from."""
        return (key,) if isinstance(key, Axis) else self.groups[key]

    def opened(self, keys: Sequence[Key]) -> tuple[list[int], tuple[Key, ...]]:
        """The shape, and the keys of the new map, that an array by keys of the old map has by digits."""
        opened = tuple(new for key in keys for new in self.renamed(key))
        return [self.index.extent(key) for key in opened], opened

    def closed(self, keys: Sequence[Key]) -> tuple[list[int], list[int], tuple[Key, ...]]:
        """An array by keys of the new map as one by keys of the old, each where its lowest digit was.

        Returns:
            The order to transpose it to, the shape to reshape it to then, and its keys after that.
        """
        old = {group[-1]: d for d, group in enumerate(self.groups)}
        higher = {d for group in self.groups for d in group[:-1]}
        kept = [key for key in keys if isinstance(key, Axis) or key not in higher]
        closed = tuple(key if isinstance(key, Axis) else old[key] for key in kept)
        order = [keys.index(new) for key in closed for new in self.renamed(key)]
        return order, [math.prod(self.index.extent(new) for new in self.renamed(key)) for key in closed], closed


def digits_along(index: Index, d: int) -> list[Digit]:
    """The digits of a dimension that steps in mixed radix, the highest first; none of any other."""
    own = [table for table in index.tables if d in table.keys]
    if not own or any(table.keys != (d,) for table in own) or index.shape[d] < 4:
        return []
    found = read_digits(index.only((d,), tuple(own), 0).values_over((d,)))
    return found if found is not None and len(found) > 1 and all(digit.step for digit in found) else []


def split_digits(index: Index) -> Digits | None:
    """An access map with a dimension for each digit of those that step in mixed radix; None where there is none."""
    offset = index.offset
    split: dict[int, list[Digit]] = {}
    for d in range(index.ndim):
        if found := digits_along(index, d):
            split[d] = found
            own = tuple(table for table in index.tables if d in table.keys)
            offset += int(index.only((d,), own, 0).values_over((d,))[0])
    if not split:
        return None
    digits: list[Digit] = []
    groups: list[tuple[int, ...]] = []
    for d in range(index.ndim):
        parts = split.get(d, [index.digit(d)])
        groups.append(tuple(range(len(digits), len(digits) + len(parts))))
        digits += parts
    strides, shape = zip(*digits, strict=True)
    kept = [table for table in index.tables if not set(table.keys) & set(split)]
    tables = tuple(Table(tuple(k if isinstance(k, Axis) else groups[k][0] for k in t.keys), *t[1:]) for t in kept)
    return Digits(Index(offset, shape, strides, index.symbols, tables), tuple(groups))
