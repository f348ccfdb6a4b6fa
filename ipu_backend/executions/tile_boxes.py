"""Tile boxes: what tiles receive of an array, laid out as the same box on each.

In come the stretches of an array's elements that each tile needs; out comes a place for each on its tile, as in a box
that all of them fit: so what a stencil's vertices read lies at the same places on every tile, and at even steps, though
no corner is read and blocks are not all of one size. A box may go on from the end of a dimension at its beginning, as
neighbours on a torus do.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from codelet.views.digits import row_major_strides
from ipu_backend.executions.tile_vertices import places_of
from lowering.plan.runs import Runs, overlaps

MOST_HOLES = 2.0
"""How many times what the fullest tile needs the box may be."""


class Boxed(NamedTuple):
    """Stretches of elements on tiles, none longer than a line of the array.

    Attributes:
        rows: of the tile of each.
        starts: its first position in the array, flat.
        lengths: of how many elements it is.
        places: where on its tile it begins.
        width: how many places the box has.
    """

    rows: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    places: np.ndarray
    width: int


def _box_along(rows: np.ndarray, starts: np.ndarray, stops: np.ndarray, extent: int) -> tuple[np.ndarray, int]:
    """Where the box of each row begins along a dimension, by the stretch, and how long the longest is.

    It begins after the longest gap, that around the end of the dimension among them.
    """
    order = np.lexsort((starts, rows))
    rows_of, begins = rows[order].astype(np.int64), starts[order]
    # The furthest end so far in a row: rows are further apart than any two positions.
    ends = np.maximum.accumulate(stops[order] + rows_of * 2 * extent) - rows_of * 2 * extent
    first = np.flatnonzero(np.diff(rows_of, prepend=-1))
    last = np.append(first[1:], len(order)) - 1
    gaps = begins - np.append(0, ends[:-1])
    gaps[first] = begins[first] + extent - ends[last]
    longest = np.maximum.reduceat(gaps, first)
    at = np.flatnonzero(gaps == np.repeat(longest, last - first + 1))
    at = at[np.searchsorted(at, first)]
    begin = np.zeros(int(rows_of[-1]) + 1, np.int64)
    begin[rows_of[first]] = begins[at]
    return begin[rows], int(extent - longest.min())


def in_boxes(rows: np.ndarray, runs: Runs, shape: tuple[int, ...]) -> Boxed | None:
    """Elements of an array on tiles, in a box; None where it would have too many holes.

    Args:
        rows: of the tile of each stretch.
        runs: the stretches, of flat positions in the array.
        shape: of the array.

    >>> in_boxes(np.zeros(3, int), Runs(np.array([9, 16, 25]), np.array([10, 19, 26])), (5, 8)).places  # a cross
    array([1, 3, 7])
    """
    if len(shape) < 2 or not len(rows):
        return None
    counts = np.bincount(rows, runs.lengths)
    lines = np.arange(0, math.prod(shape), shape[-1])
    cut = overlaps(runs.starts, runs.stops, Runs(lines, lines + shape[-1]))
    starts, lengths, rows = cut.starts, cut.stops - cut.starts, rows[cut.first]
    box, offsets = [], []
    places = places_of(starts, shape)
    for d, (place, extent) in enumerate(zip(places, shape, strict=True)):
        begin, longest = _box_along(rows, place, place + (lengths if d == len(shape) - 1 else 1), extent)
        box.append(longest)
        offsets.append((place - begin) % extent)
    if math.prod(box) > MOST_HOLES * counts.max():
        return None
    # A stretch that runs over the end of its line's box cannot be: it would be in the gap.
    found = sum(offset * step for offset, step in zip(offsets, row_major_strides(box), strict=True))
    return Boxed(rows, starts, lengths, np.asarray(found), math.prod(box))
