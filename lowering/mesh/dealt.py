"""Dealt: rows of arrays on the devices of a mesh, and words taken of arrays that every device has of its own.

In comes the device of each row. A device has its rows in order, and room for as many as the one with most of them.
Words are counted across devices by addresses: those of the first device's flat array, then those of the next.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jax import lax

from codelet.views.index import Index
from lowering.arrays import Array
from lowering.mesh.devices import Devices
from lowering.mesh.positions import DealtPositions, Positions
from lowering.mesh.selection import LEAST_RUN, Selection, taken
from lowering.plan.pieces import Pieces, pieces_of
from lowering.plan.runs import overlaps


@dataclass(frozen=True, eq=False)
class Dealt:
    """Rows on devices.

    Attributes:
        devices: the device of each row, of shape (rows,).
        places: which of its device's rows it is, of shape (rows,).
        counts: how many rows each device has, of shape (devices,).
    """

    devices: np.ndarray
    places: np.ndarray
    counts: np.ndarray

    @property
    def most(self) -> int:
        """How many rows every device has room for."""
        return int(self.counts.max(initial=0))

    @functools.cached_property
    def rows(self) -> np.ndarray:
        """The row in each place of each device, of shape (devices, most).

        Where a device has fewer, its last again; -1 where it has none.
        """
        found = np.full((len(self.counts), self.most), -1)
        found[self.devices, self.places] = np.arange(len(self.devices))
        last = np.maximum(self.counts - 1, 0)
        return np.where(found < 0, found[np.arange(len(found)), last][:, None] if self.most else found, found)

    def addresses(self, width: int, held: int, base: int = 0) -> Pieces:
        """The address of each word of an array of rows, of some width, flat.

        Args:
            width: words of a row.
            held: words of the flat array of each device.
            base: where in that the array's begin.
        """
        rows = np.arange(len(self.devices))
        return pieces_of(rows * width, self.devices * held + base + self.places * width, width)

    def filled(self, width: int) -> Pieces:
        """What stands in the words of all places, by address: the word of an array of rows.

        In places that a device has too many its last row again, so that what is computed there is some row's own.
        """
        rows = self.rows.reshape(-1)
        places = np.flatnonzero(rows >= 0)
        return pieces_of(places * width, rows[places] * width, width)


def deal(devices: np.ndarray, count: int) -> Dealt:
    """Rows to their devices.

    >>> deal(np.array([0, 2, 0, 2, 2]), 3).rows
    array([[ 0,  2,  2],
           [-1, -1, -1],
           [ 1,  3,  4]])
    """
    devices = np.asarray(devices, np.int64)
    counts = np.bincount(devices, minlength=count)
    order, places = np.argsort(devices, kind="stable"), np.empty(len(devices), np.int64)
    places[order] = np.arange(len(devices)) - (np.cumsum(counts) - counts)[devices[order]]
    return Dealt(devices, places, counts)


def by_device(words: Pieces, size: int, count: int) -> list[Pieces]:
    """Maps from addresses to any numbers, one for each device, from its words on.

    Args:
        words: the map.
        size: words of each device.
        count: how many devices there are.
    """
    if not size:
        return [words] * count
    found, (starts, stops, origins) = [], words
    for device in range(count):
        first, last = device * size, (device + 1) * size
        low, high = np.searchsorted(stops, first, "right"), np.searchsorted(starts, last)
        cut = np.maximum(first - starts[low:high], 0)
        begins = starts[low:high] + cut
        lengths = np.minimum(stops[low:high], last) - begins
        found.append(pieces_of(begins - first, origins[low:high] + cut, lengths))
    return found


def _agreed(each: Sequence[Pieces]) -> Pieces | None:
    """One map that holds all of several; None where they differ."""
    made = each[0]
    for own in each[1:]:
        common = overlaps(own.starts, own.stops, made.runs)
        if (own.moves[common.first] != made.moves[common.second]).any():
            return None
        if not np.array_equal(own.starts, made.starts) or not np.array_equal(own.stops, made.stops):
            made = made.over(own)
    return made


class DealtSelection:
    """Words of a flat array by their positions, which may differ by device.

    Args:
        shape: of what is taken.
        each: for each device where in its array each of it is; what is in no piece does not matter.
        size: of the array.
    """

    def __init__(self, shape: tuple[int, ...], each: Sequence[Pieces], size: int):
        self.shape = shape
        agreed = _agreed(each)
        self.alike = None if agreed is None else Selection(shape, agreed, size)
        if self.alike is None:
            some = next(own for own in each if len(own.starts))
            apart = [Selection(shape, own if len(own.starts) else some, size) for own in each]
            run = math.gcd(*(own.run for own in apart))
            self.run = run if run >= LEAST_RUN else 1
            self.begins = DealtPositions([own.by(self.run) for own in apart])

    def of(self, flat: Array, devices: Devices) -> Array:
        """The words, in their shape, inside `jax.shard_map`."""
        if self.alike is not None:
            return self.alike.of(flat)
        return lax.reshape(taken(flat, self.begins.array(devices), self.run), self.shape)


def narrowed_rows(whole: Positions, rows: np.ndarray) -> DealtPositions:
    """Positions of some rows of an array of them, by device.

    Args:
        whole: positions, of shape (rows, *any).
        rows: those of each device, of shape (devices, places); -1 for any.
    """
    shape = (rows.shape[1], *whole.shape[1:])
    level, numbers = Index(0, shape, whole.steps).values(), whole.numbers
    return DealtPositions(
        [
            Positions(shape, whole.steps, np.arange(level.size), (numbers[own] - level).reshape(-1), whole.most)
            for own in np.maximum(rows, 0)
        ]
    )
