"""Do two vertices touch one element? Exact answers, by arithmetic, each with an address to show for it.

In: the addresses a field touches, as an `Image`: an offset, and strides over the axes of the grid and of the field.
Out: one address that the two share, or None where there is no such address. Nothing here knows of graphs. Edges that
came from data are looked through in `stamps.py`.

Every question is a linear equation over bounded integers. Two fields meet where

    a.offset + sum(stride * index)  ==  b.offset + sum(stride' * index')

and "vertices g != g'" is split by the first grid axis on which g and g' differ, and by which is the larger. The
remainder has no inequality in it, so vertices that only meet themselves are never listed. Such an equation is a bounded
subset sum; see `lowering/check/subset_sums.py`.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from codelet.views.digits import are_nested, ends
from lowering.check.subset_sums import solve

Digits = tuple[tuple[int, int], ...]
"""What adds `stride * index` to an address, for index in range(extent), as pairs (stride, extent)."""


@dataclass(frozen=True)
class Image:
    """The addresses `offset + sum(stride * index)` that one field of a family touches.

    `vertex` has an axis per axis of the family's grid, in the same order for all its fields. Two vertices differ if an
    index differs, also where the stride is 0. `field` axes run inside a vertex. Extents are at least 1; strides may be
    zero or negative. All numbers count elements of one variable.
    """

    offset: int
    vertex: Digits
    field: Digits

    def __post_init__(self):
        assert all(extent >= 1 for _, extent in self.vertex + self.field), self

    @cached_property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest address touched."""
        return ends(self.vertex + self.field, self.offset)


def enumerate_addresses(image: Image) -> np.ndarray:
    """The addresses of `image`, int64, of shape (vertices, elements per vertex), both in row-major order.

    This is how an affine field is compared with one given by a table, and how to name the vertices that touch
    a given address: `numpy.argwhere(enumerate_addresses(image) == address)`.

    >>> enumerate_addresses(Image(5, ((10, 3),), ((1, 2),))).tolist()
    [[5, 6], [15, 16], [25, 26]]
    """
    addresses = np.array(image.offset, np.int64)
    for stride, extent in image.vertex + image.field:
        addresses = np.add.outer(addresses, stride * np.arange(extent))
    return addresses.reshape(math.prod(extent for _, extent in image.vertex), -1)


# Equations between two images


class Unknown(NamedTuple):
    """An unknown in range(extent), counted `stride` times in the equation, `weight` times in the witness."""

    stride: int
    extent: int
    weight: int


def find_witness(unknowns: Iterable[Unknown], total: int, address: int) -> int | None:
    """`address + sum(weight * value)` for values with `sum(stride * value) == total`; None if none exist."""
    alike: defaultdict[int, list[Unknown]] = defaultdict(list)
    for stride, extent, weight in unknowns:
        if stride < 0:  # count the unknown down from its end, so that every stride is positive
            total -= stride * (extent - 1)
            address += weight * (extent - 1)
            alike[-stride].append(Unknown(-stride, extent, -weight))
        elif stride > 0 and extent > 1:  # an unknown that the equation does not contain stays 0
            alike[stride].append(Unknown(stride, extent, weight))
    # Unknowns of one stride act as their sum, which takes every value of its interval. Unmerged, the search
    # would try each way to write that sum.
    widths = [(stride, 1 + sum(one.extent - 1 for one in group)) for stride, group in alike.items()]
    values = solve([(stride, extent) for stride, extent in widths if extent > 1], total)
    if values is None:
        return None
    for stride, value in values.items():
        for one in alike[stride]:
            part = min(value, one.extent - 1)
            value -= part
            address += one.weight * part
    return address


class Pairs(NamedTuple):
    """Index pairs (g, h) on one grid axis: (g0 + sum(step_g * v), h0 + sum(step_h * v)) over all v.

    `unknowns` are (step_g, step_h, extent), one per v in range(extent).
    """

    g0: int
    h0: int
    unknowns: tuple[tuple[int, int, int], ...]


def any_pairs(extent: int) -> Pairs:
    """Every (g, h)."""
    return Pairs(0, 0, ((1, 0, extent), (0, 1, extent)))


def equal_pairs(extent: int) -> Pairs:
    """Every (g, g)."""
    return Pairs(0, 0, ((1, 1, extent),))


def decreasing_pairs(extent: int) -> Iterator[Pairs]:
    """Every (g, h) with g > h, once: products of intervals, by the highest binary digit in which they differ.

    That digit cuts a block of 2 * half indices in two, h in the lower half and g in the upper. All whole
    blocks make one product; the last block may be cut short. (As a triangle, g > h would tie unknowns to each
    other, and neither the merging of strides nor the table of sums would hold.)
    """
    half = 1
    while half < extent:
        whole, rest = divmod(extent, 2 * half)
        if whole:
            yield Pairs(half, 0, ((2 * half, 2 * half, whole), (1, 0, half), (0, 1, half)))
        if rest > half:
            start = extent - rest
            yield Pairs(start + half, start, ((1, 0, rest - half), (0, 1, half)))
        half *= 2


def swap_pairs(pairs: Pairs) -> Pairs:
    """Every (h, g) for a (g, h) of `pairs`."""
    return Pairs(pairs.h0, pairs.g0, tuple((h, g, extent) for g, h, extent in pairs.unknowns))


def shared_over_pairs(a: Image, b: Image, axes: Iterable[Pairs]) -> int | None:
    """An address that vertex g touches through `a` and vertex h through `b`, for (g, h) that `axes` allow."""
    total, address = b.offset - a.offset, a.offset
    found = [Unknown(stride, extent, stride) for stride, extent in a.field]
    found += [Unknown(-stride, extent, 0) for stride, extent in b.field]
    for (stride_a, _), (stride_b, _), (g0, h0, unknowns) in zip(a.vertex, b.vertex, axes, strict=True):
        total += stride_b * h0 - stride_a * g0
        address += stride_a * g0
        found += [Unknown(stride_a * g - stride_b * h, extent, stride_a * g) for g, h, extent in unknowns]
    return find_witness(found, total, address)


def differing_pairs(a: Image, b: Image) -> Iterator[list[Pairs]]:
    """Every (g, h) with g != h, by the first axis that differs; one of (g, h) and (h, g) of an image and itself."""
    extents = [extent for _, extent in a.vertex]
    for k, extent in enumerate(extents):
        if a.vertex[k][0] == b.vertex[k][0]:
            # Only the difference counts, so that one pair stands for all of the same difference.
            above = [Pairs(1, 0, ((1, 0, extent - 1),))] if extent > 1 else []
        else:
            above = list(decreasing_pairs(extent))
        for pairs in above if a == b else above + [swap_pairs(pairs) for pairs in above]:
            yield [*map(equal_pairs, extents[:k]), pairs, *map(any_pairs, extents[k + 1 :])]


def first_of(answers: Iterable[int | None]) -> int | None:
    """The first answer that is one."""
    return next((answer for answer in answers if answer is not None), None)


def shared_by_differing(a: Image, b: Image) -> int | None:
    """An address that vertex g touches through `a` and vertex h through `b`, for any g != h."""
    return first_of(shared_over_pairs(a, b, axes) for axes in differing_pairs(a, b))


# The questions


def shared_by_families(a: Image, b: Image) -> int | None:
    """An address that is in both images, whichever the vertices; None if they are disjoint.

    >>> evens, odds = Image(0, ((2, 500),), ()), Image(1, ((2, 500),), ())
    >>> shared_by_families(evens, odds), shared_by_families(evens, Image(998, (), ((1, 10),)))
    (None, 998)
    """
    if a.ends[1] < b.ends[0] or b.ends[1] < a.ends[0]:
        return None
    whole_a, whole_b = (Image(image.offset, (), image.vertex + image.field) for image in (a, b))
    return shared_over_pairs(whole_a, whole_b, ())


def shared_by_vertices(image: Image) -> int | None:
    """An address that two different vertices touch; None if each address belongs to one vertex.

    >>> shared_by_vertices(Image(0, ((8, 100),), ((1, 8),)))    # out[8*i:8*i+8]
    >>> shared_by_vertices(Image(0, ((8, 100),), ((1, 9),)))    # out[8*i:8*i+9]
    8
    """
    if are_nested(image.vertex + image.field):
        return None
    return shared_by_differing(image, image)


def aliased_address(image: Image) -> int | None:
    """An address that two different positions of the field share within a vertex; None if there is none.

    >>> aliased_address(Image(0, ((10, 3),), ((1, 4), (2, 2))))     # 0 1 2 3 and 2 3 4 5
    2
    """
    return shared_by_vertices(Image(image.offset, image.field, ()))


def shared_across_vertices(a: Image, b: Image) -> int | None:
    """An address that a vertex touches through `a` and another vertex of its family through `b`, or None.

    The grids of `a` and `b` have equal extents, axis by axis. An element that a vertex shares with itself is no answer.

    >>> written = Image(0, ((1, 100),), ())                         # x[i]
    >>> shared_across_vertices(written, written)                    # x[i], in place
    >>> shared_across_vertices(written, Image(1, ((1, 100),), ()))  # x[i+1]
    1
    """
    assert [extent for _, extent in a.vertex] == [extent for _, extent in b.vertex], (a, b)
    if a == b:
        return shared_by_vertices(a)
    if shared_by_families(a, b) is None:
        return None
    return shared_by_differing(a, b)
