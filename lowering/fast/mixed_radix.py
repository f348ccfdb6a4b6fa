"""Mixed radix: dimensions of a view that step in mixed radix, taken apart into dimensions that step evenly.

A dimension that was made of several by a reshape, as `x.transpose(1, 0, 2).reshape(n, -1)` makes one of heads and
features, has a table for its positions: each digit of its number, in the radices of the reshape, has a step of its
own. In comes the access map of such a view; out comes one with a dimension for each digit, which is read and
written by slices and transposes where the table would be a gather or a scatter. Grid axes are taken apart alike
when families are brought into normal form; see `lowering/plan/collect.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from codelet.views.affine import Table
from codelet.views.index import Axis, Index, Key
from codelet.views.integers import radices


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


def _steps(values: np.ndarray, extents: Sequence[int]) -> list[int] | None:
    """The step of each digit of a number in these radices; None where they do not add up to the values."""
    cube = values.reshape(extents)
    corner = int(cube.flat[0])
    steps = [int(np.moveaxis(cube, k, 0)[1].flat[0]) - corner for k in range(cube.ndim)]
    total = corner + sum(
        np.multiply.outer(np.arange(n), s).reshape([-1 if k == j else 1 for j in range(cube.ndim)])
        for k, (n, s) in enumerate(zip(extents, steps, strict=True))
    )
    return steps if all(steps) and np.array_equal(total, cube) else None


def split_digits(index: Index) -> Digits | None:
    """An access map with a dimension for each digit of those that step in mixed radix; None where there is none."""
    split: dict[int, tuple[int, list[int], list[int]]] = {}
    for d, extent in enumerate(index.shape):
        own = [table for table in index.tables if d in table.keys]
        if not own or any(table.keys != (d,) for table in own) or extent < 4:
            continue
        values = index.only((d,), tuple(own), 0).values_over((d,))
        extents = radices([values])
        steps = _steps(values, extents) if len(extents) > 1 else None
        if steps is not None:
            split[d] = int(values[0]), extents, steps
    if not split:
        return None
    shape: list[int] = []
    strides: list[int] = []
    groups: list[tuple[int, ...]] = []
    for d, extent in enumerate(index.shape):
        _, extents, steps = split.get(d, (0, [extent], [index.strides[d]]))
        groups.append(tuple(range(len(shape), len(shape) + len(extents))))
        shape += extents
        strides += steps
    kept = [table for table in index.tables if not set(table.keys) & set(split)]
    tables = tuple(Table(tuple(k if isinstance(k, Axis) else groups[k][0] for k in t.keys), *t[1:]) for t in kept)
    offset = index.offset + sum(first for first, _, _ in split.values())
    return Digits(Index(offset, tuple(shape), tuple(strides), index.symbols, tables), tuple(groups))
