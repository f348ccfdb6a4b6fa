"""Offsets: where ranges that are live at times lie, so that no two that are live at once overlap.

In come the bytes of each range on each tile, and when it is live. Out come offsets. Ranges are placed one after
another at the lowest address that is free at all their moments: first fit, in several orders, of which each
tile keeps its best. Tiles that hold the same are planned once, and all together as arrays.
Source: D. Pisarchyk and J. Lee, "Efficient Memory Management for Deep Neural Net Inference" (2020), whose
greedy-by-size this is, with orders by duration and by start beside it.

Each range is compared with all that lie on the tile already, until the tile has nothing more to place: still minutes
for ResNet-50's step at the planned grain, with thousands of variables and exchanges.
"""

from __future__ import annotations

import numpy as np

_STAY = 1.1
"""Tiles are left aside once they are so many times as many as those that still have something to place."""


def _first_fit(sizes: np.ndarray, overlap: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Offsets of ranges, each the lowest that is free, one after another: int64 of the shape of `sizes`.

    All tiles at once: what is placed on each is held in the order of its offsets.

    Args:
        sizes: bytes of each range on each tile, of shape (ranges, tiles).
        overlap: whether two ranges are live at once, of shape (ranges, ranges).
        order: the ranges in the order in which each tile places them, those that take nothing there last, of the
            shape of `sizes`.
    """
    count, tiles = sizes.shape
    # What lies below 2**31 is planned in 32 bits, which takes half as long.
    narrow = np.int32 if sizes.sum(axis=0).max(initial=0) < 2**31 else np.int64
    sizes, columns = sizes.astype(narrow), np.arange(tiles)
    offsets = np.zeros((count, tiles), narrow)
    starts, stops, placed = (np.zeros((0, tiles), kind) for kind in (narrow, narrow, np.int32))
    for which in order:
        which = which[columns]
        size = sizes[which, columns]
        going = size > 0
        if not going.any():
            break
        if _STAY * np.count_nonzero(going) < len(going):
            columns, which, size = columns[going], which[going], size[going]
            starts, stops, placed = starts[:, going], stops[:, going], placed[:, going]
        meets = overlap[which, placed]
        top = np.maximum.accumulate(np.where(meets, stops, narrow(0)), axis=0)
        below = np.concatenate([np.zeros((1, len(columns)), narrow), top])  # where what meets it and lies lower ends
        fits = meets & (starts - below[:-1] >= size)
        found = np.where(fits.any(axis=0), fits.argmax(axis=0) if len(fits) else 0, len(placed))
        offset = below[found, np.arange(len(columns))]
        offsets[which, columns] = np.where(size > 0, offset, 0)
        at = (starts <= offset).sum(axis=0)
        rows = np.arange(len(placed) + 1, dtype=np.int32)[:, None]
        starts, stops, placed = (
            _inserted(old, new, at, rows)
            for old, new in ((starts, offset), (stops, offset + size), (placed, which.astype(np.int32)))
        )
    return offsets


def _inserted(old: np.ndarray, new: np.ndarray, at: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """A column with one more number, each at its own row."""
    grown = np.concatenate([old, old[-1:] if len(old) else new[None]])
    shifted = np.concatenate([grown[:1], grown[:-1]])
    return np.where(rows < at, grown, np.where(rows == at, new, shifted))


def assign_offsets(sizes: np.ndarray, moments: np.ndarray) -> np.ndarray:
    """Offsets for ranges so that on no tile two that are live at once overlap: int64 of the shape of `sizes`.

    Args:
        sizes: bytes of each range on each tile, int64 of shape (ranges, tiles).
        moments: when each range is live, bool of shape (ranges, moments).

    >>> sizes, moments = np.array([[4], [8], [4]]), np.array([[1, 1, 0], [0, 1, 1], [0, 0, 1]], bool)
    >>> assign_offsets(sizes, moments)[:, 0].tolist()
    [8, 0, 8]
    """
    if not sizes.size:
        return np.zeros(sizes.shape, np.int64)
    pictures, of_tile = np.unique(sizes, axis=1, return_inverse=True)
    live = moments.astype(np.float32)
    overlap = live @ live.T > 0
    least = (live.T.astype(np.float64) @ pictures).max(axis=0, initial=0)
    duration, start = moments.sum(axis=1)[:, None], moments.argmax(axis=1)[:, None]
    # Where everything is of one size the second key decides.
    large = int(pictures.max(initial=0)) + 1
    keys = [
        -pictures * (len(live.T) + 1) - duration,
        -duration * large - pictures,
        -pictures * duration,
        start * large - pictures,
    ]
    best = np.zeros(pictures.shape, np.int64)
    peak = np.full(pictures.shape[1], np.iinfo(np.int64).max)
    for key in keys:
        todo = np.flatnonzero(peak > least)
        if not len(todo):
            break
        # What takes nothing on a tile comes last there.
        key = np.where(pictures[:, todo] > 0, key[:, todo] if key.shape[1] > 1 else key, np.iinfo(np.int64).max)
        offsets = _first_fit(pictures[:, todo], overlap, np.argsort(key, axis=0, kind="stable"))
        ends = np.where(pictures[:, todo] > 0, offsets + pictures[:, todo], 0).max(axis=0)
        better = ends < peak[todo]
        best[:, todo[better]], peak[todo[better]] = offsets[:, better], ends[better]
    return best[:, of_tile.reshape(-1)]
