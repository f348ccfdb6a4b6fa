"""Strided digits: an integer as an offset and a sum of digits, each a step taken so many times at most.

    number = offset + sum(step_k * place_k)        0 <= place_k < extent_k

An array in memory is numbered so, with a digit for each dimension; so are an access map without tables (`Index`: a
digit for each dimension and grid axis). So are the addresses that a field of a family touches, and a reshape, a
transpose or a broadcast of a value. In mixed radix each step is the reach of the smaller digits, and one more. Their
common foundation stands here:

- `ends`: the least and the greatest number; `stretch`: how far they follow each other without a gap;
- digits are *nested* where each step, whatever its sign, is more than all smaller ones reach together. Then no two
  places have one number, and the places are read off it by dividing by the largest step first (`inverse.py`). Digits of
  mixed radix, slices and windows that lie apart are so. Not nested digits may, or may not, meet;
- a digit *tiles* the one after it where its step is the reach of that one and one more step. Both are then one digit
  (`merged`), and a digit is two wherever its extent is a product (`split`). `regrouped` does both: it is a reshape;
- a digit of step zero is a repetition, which the number does not depend on: it is nested in nothing;
- `read_digits` finds the digits that numbers were made of.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, TypeVar

import numpy as np

from codelet.views.integers import affine_length

Item = TypeVar("Item")


class Digit(NamedTuple):
    """A digit: adds `step * place` to a number, at the places from 0 to `extent`."""

    step: int
    extent: int

    def split(self, inner: int) -> tuple[Digit, Digit]:
        """It as two, the second of extent `inner`, which divides its extent."""
        return Digit(self.step * inner, self.extent // inner), Digit(self.step, inner)


def row_major_strides(shape: Sequence[int]) -> tuple[int, ...]:
    """By how many elements the positions along each dimension of an array in row-major order are apart."""
    strides = [1] * len(shape)
    for d in range(len(shape) - 2, -1, -1):
        strides[d] = strides[d + 1] * shape[d + 1]
    return tuple(strides)


def row_major_digits(shape: Sequence[int]) -> list[Digit]:
    """The positions of an array in row-major order, a digit for each dimension."""
    return list(map(Digit, row_major_strides(shape), shape))


def ends(digits: Iterable[tuple[int, int]], offset: int = 0) -> tuple[int, int]:
    """The least and the greatest number, for extents that are not zero.

    >>> ends([(10, 3), (-1, 4)])
    (-3, 20)
    """
    low = high = offset
    for step, extent in digits:
        reach = step * (extent - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high


def are_nested(digits: Iterable[tuple[int, int]]) -> bool:
    """Whether each step is more than all smaller ones reach, so that no two places have one number.

    >>> are_nested([(1, 4), (-10, 3)]), are_nested([(4, 2), (1, 5)]), are_nested([(0, 2)])
    (True, False, False)
    """
    reach = 0
    for step, extent in sorted((abs(step), extent) for step, extent in digits if extent > 1):
        if step <= reach:
            return False
        reach += step * (extent - 1)
    return True


def stretch(digits: Iterable[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """The numbers as copies of a stretch without gaps: its length, and the digits that set them apart, steps positive.

    >>> stretch([(10, 3), (-1, 4), (2, 3)])  # 0 to 7, three times
    (8, [(10, 3)])
    """
    length, apart = 1, []
    for step, extent in sorted((abs(step), extent) for step, extent in digits if extent > 1):
        if step <= length:
            length += step * (extent - 1)
        else:
            apart.append((step, extent))
    return length, apart


def chains(items: Iterable[Item], follows: Callable[[list[Item], Item], bool]) -> list[list[Item]]:
    """Items in order, cut wherever one does not follow those before it.

    >>> chains([3, 4, 5, 0, 1], lambda before, item: item == before[-1] + 1)
    [[3, 4, 5], [0, 1]]
    """
    found: list[list[Item]] = []
    for item in items:
        if found and follows(found[-1], item):
            found[-1].append(item)
        else:
            found.append([item])
    return found


def merged(digits: Iterable[Digit]) -> list[Digit]:
    """The same digits, in order, those made one of which each tiles the next; without those of one place.

    >>> merged([Digit(12, 2), Digit(4, 3), Digit(1, 2)])
    [Digit(step=4, extent=6), Digit(step=1, extent=2)]
    """
    several = (digit for digit in digits if digit.extent != 1)
    tiling = chains(several, lambda outer, inner: outer[-1].step == inner.step * inner.extent)
    return [Digit(chain[-1].step, math.prod(digit.extent for digit in chain)) for chain in tiling]


def regrouped(digits: Sequence[Digit], sizes: Sequence[int]) -> tuple[tuple[Digit, ...], ...] | None:
    """Digits, in order, dealt out to groups of some sizes, split where they must be; None if they cannot.

    None as well where there are no numbers: then no group tells which digits it is made of.

    >>> regrouped([Digit(4, 6), Digit(1, 2)], [3, 4])
    ((Digit(step=8, extent=3),), (Digit(step=4, extent=2), Digit(step=1, extent=2)))
    """
    if 0 in sizes or any(digit.extent == 0 for digit in digits):
        return None
    left = list(digits)[::-1]
    groups: list[tuple[Digit, ...]] = []
    for size in sizes:
        own: list[Digit] = []
        while size > 1:
            if not left:
                return None
            digit = left.pop()
            if digit.extent % size == 0 and digit.extent > size:
                digit, inner = digit.split(digit.extent // size)
                left.append(inner)
            elif size % digit.extent:
                return None
            own.append(digit)
            size //= digit.extent
        groups.append(tuple(own))
    return None if left else tuple(groups)


def common_refinement(*shapes: Sequence[int]) -> list[int] | None:
    """The extents of the coarsest dimensions that those of shapes of one size are all made of; None if there are none.

    >>> common_refinement([6, 4], [3, 8]), common_refinement([6, 4], [4, 6])
    ([3, 2, 4], None)
    """
    assert len(set(map(math.prod, shapes))) <= 1, shapes
    cuts = {1}
    for shape in shapes:
        cuts.update(itertools.accumulate(reversed(shape), operator.mul))
    pairs = list(itertools.pairwise(sorted(cuts, reverse=True)))
    return None if any(outer % inner for outer, inner in pairs) else [outer // inner for outer, inner in pairs]


# --- the digits of numbers that are given ---------------------------------------------------------------


def _runs_are_alike(column: np.ndarray, run: int) -> bool:
    """Whether all runs of a column are its first one, moved."""
    runs = column.reshape(-1, run)
    inner = runs[0].astype(np.int64) - int(runs[0, 0])
    step = max(1, (1 << 16) // run)
    for start in range(0, len(runs), step):
        block = runs[start : start + step].astype(np.int64)
        if not np.array_equal(block, block[:, :1] + inner):
            return False
    return True


def radices(columns: Sequence[np.ndarray]) -> list[int]:
    """The extents, outermost first, of the fewest digits in which all columns are affine, as far as they are.

    The columns are of one length n, and the product of the result is n. Where the columns are affine
    within runs of equal length but the starts of the runs follow no rule, the outermost digit is left
    irregular.
    """
    extents: list[int] = []
    while (n := len(columns[0])) > 1:
        run = min(map(affine_length, columns))
        if run == n or n % run or not all(_runs_are_alike(column, run) for column in columns):
            extents.append(n)
            break
        extents.append(run)
        columns = [column[::run] for column in columns]
    return extents[::-1]


def read_digits(column: np.ndarray) -> list[Digit] | None:
    """The fewest digits, outermost first, that numbers count from their first one on; None where there are none.

    >>> read_digits(np.array([5, 6, 15, 16, 25, 26]))
    [Digit(step=10, extent=3), Digit(step=1, extent=2)]
    """
    extents = radices([column])
    cube = column.reshape(extents)
    if cube.ndim and affine_length(np.ravel(cube[(slice(None), *[0] * (cube.ndim - 1))])) < extents[0]:
        return None
    # All but the outermost are affine by how they were found.
    steps = [int(cube[tuple(int(k == d) for k in range(cube.ndim))]) - int(cube.flat[0]) for d in range(cube.ndim)]
    return list(map(Digit, steps, extents))
