"""Radices: what is written to an array, as a box of it reshaped; in come accesses, dimension by dimension."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from codelet.views.access import Access
from codelet.views.terms import Term


class Radix(NamedTuple):
    """A dimension to be written after a reshape: `length` from `start` of `extent`."""

    extent: int
    start: int
    length: int


def _split_radices(extent: int, start: int, terms: Sequence[Term]) -> list[Radix] | None:
    """A dimension split by the step of its first term, and what is left of it by the others."""
    outer, rest = terms[0], terms[1:]
    if outer.grain == 1:
        return [Radix(extent, start, outer.extents[0])] if not rest else None
    row, shift = divmod(start, outer.grain)
    if extent % outer.grain or shift + sum(term.reach for term in rest) >= outer.grain:
        return None
    inner = box_radices(outer.grain, shift, rest)
    return None if inner is None else [Radix(extent // outer.grain, row, outer.extents[0]), *inner]


def box_radices(extent: int, start: int, terms: Sequence[Term]) -> list[Radix] | None:
    """A dimension reshaped so that what is written is a box of it; None when no reshape does that."""
    if any(term.table is not None for term in terms):
        return None
    if not terms:
        return [Radix(extent, start, 1)]
    found, run = _split_radices(extent, start, terms), run_of(start, terms)
    return [Radix(extent, start, run[1] - start)] if found is None and run is not None else found


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
            return None
        found += own
    return found
