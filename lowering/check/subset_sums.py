"""Bounded subset sums: can some strides, each taken so many times at most, add up to a number?

In come strides with their extents, and the number; out come how many of each, or None. It is searched from the largest
stride down. Each choice is cut by the interval and the gcd of the sums of the smaller strides (the dependence tests of
Banerjee and of Allen and Kennedy, "Optimizing Compilers for Modern Architectures", chapter 3). Two strides need no
search. A search that visits too many nodes starts again with the sums of the smaller strides tabulated as bits
(Bellman's dynamic programme). After that it does not go wrong in the tabulated part. That replaces a bitmap of the
touched addresses: its cost is the span of the sums and the logarithm of the extents, not their product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

EFFORTS: Sequence[tuple[float, int]] = ((2_000, 0), (200_000, 2**26), (math.inf, 2**30))
"""(nodes, bits): how many nodes a search may visit, and how long a table of sums it may make, try after try.

Ordinary families end within the first try, in microseconds. The last try always ends; 2**30 bits are 128 MiB.
It is slow where at least four strides are large, have large extents and fit no pattern (the problem is
NP-hard): on two CPU cores, half a second with strides near 30 thousand, a minute near a million.
"""


@dataclass(frozen=True)
class Level:
    """One unknown of `sum(stride * value) == total`, 0 <= value < extent; below it are the smaller strides.

    The sum of the levels below is at most `reach`, and a multiple of their gcd; `common` is the gcd of their strides
    and this one. Modulo the gcd below, `stride * value` must equal the remainder, so `value` runs in steps of `step`;
    `inverse` is that of `stride // common` modulo `step`. `sums`, if not empty, has bit r set if and only if the levels
    below can add up to r.
    """

    stride: int
    extent: int
    reach: int
    common: int
    step: int
    inverse: int
    sums: bytes

    def candidates(self, rest: int) -> range:
        """The values after which the levels below may still make up `rest`, a multiple of `common`."""
        low = max(0, -((self.reach - rest) // self.stride))
        high = min(self.extent - 1, rest // self.stride)
        return range(low + (rest // self.common * self.inverse - low) % self.step, high + 1, self.step)


def repeat_bits(bits: int, stride: int, extent: int) -> int:
    """`bits`, or-ed with itself shifted by stride, 2 * stride, ..., (extent - 1) * stride."""
    copies = 1
    while copies < extent:  # doubling: a shift for each binary digit of the extent
        more = min(copies, extent - copies)
        bits |= bits << (stride * more)
        copies += more
    return bits


def stack_levels(unknowns: Iterable[tuple[int, int]], max_bits: int) -> list[Level]:
    """The levels of (stride, extent) pairs, largest stride first, with `sums` no longer than `max_bits`."""
    levels: list[Level] = []
    reach, common, bits = 0, 0, 1
    for stride, extent in sorted(unknowns):
        if levels and reach < max_bits:
            bits = repeat_bits(bits, levels[-1].stride, levels[-1].extent)
        sums = bits.to_bytes(reach // 8 + 1, "little") if reach < max_bits else b""
        below, common = common, math.gcd(stride, common)
        step = max(1, below // common)
        levels.append(Level(stride, extent, reach, common, step, pow(stride // common, -1, step), sums))
        reach += stride * (extent - 1)
    return levels[::-1]


class OutOfNodes(Exception):
    """A search has visited as many nodes as it may."""


@dataclass
class Search:
    """A depth-first search for values of `levels`, largest stride first, that visits at most `num_nodes`."""

    levels: list[Level]
    num_nodes: float

    def values(self, depth: int, rest: int) -> list[int] | None:
        """Values for the levels from `depth` on that add up to `rest`, which the cuts above let through."""
        if depth == len(self.levels):
            return []
        level = self.levels[depth]
        for value in level.candidates(rest):
            self.num_nodes -= 1
            if self.num_nodes < 0:
                raise OutOfNodes
            left = rest - level.stride * value
            if level.sums and not level.sums[left >> 3] >> (left & 7) & 1:
                continue
            values = self.values(depth + 1, left)
            if values is not None:
                return [value, *values]
        return None


def solve(unknowns: Sequence[tuple[int, int]], total: int) -> dict[int, int] | None:
    """Values, by stride, with `sum(stride * value) == total` and 0 <= value < extent; None if there are none.

    The strides of `unknowns`, (stride, extent) pairs, are positive and distinct.

    >>> solve([(7, 11), (11, 10)], 29), solve([(7, 11), (11, 10)], 30)
    ({11: 2, 7: 1}, None)
    """
    common = math.gcd(*(stride for stride, _ in unknowns))
    if not unknowns or total % common:
        return {} if total == 0 else None
    if not 0 <= total <= sum(stride * (extent - 1) for stride, extent in unknowns):
        return None
    for num_nodes, max_bits in EFFORTS:
        levels = stack_levels([(stride // common, extent) for stride, extent in unknowns], max_bits)
        try:
            values = Search(levels, num_nodes).values(0, total // common)
        except OutOfNodes:
            continue
        if values is None:
            return None
        return {level.stride * common: value for level, value in zip(levels, values, strict=True)}
    raise AssertionError("the last effort is unbounded")
