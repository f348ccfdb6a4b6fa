"""Linear mapping: things in a row, laid on the tiles in order, in ranges of nearly equal length.

Source: `poputil::mapTensorLinearly` of Poplar's API reference, and `calcLinearTileMapping` of the open PopLibs.
"""

from __future__ import annotations

import numpy as np

GRAIN_BYTES = 8
"""Linear ranges are multiples of this: what one vector instruction takes (PopLibs: the vector width)."""

MIN_BYTES = 128
"""A tile that holds any of a variable holds this much, where there is as much (PopLibs: minBytesPerTile)."""


def linear_stops(size: int, num_tiles: int, *, grain: int, least: int) -> list[int]:
    """Where the ranges of things in a row on the tiles from 0 on end.

    Args:
        size: how many there are.
        num_tiles: tiles to use, from 0.
        grain: a range is a multiple of this, but for the last.
        least: a tile that has any has so many, where there are as many.

    Source: `calcLinearTileMapping` and `splitRegions` of the open PopLibs.

    >>> linear_stops(10, 4, grain=2, least=0)
    [2, 6, 10]
    """
    grains = -(-size // grain)
    most = -(-grains // num_tiles)
    if least and grains:
        ranges = max(1, grains // -(-least // grain))
        most = max(most, -(-grains // ranges))
    used = -(-grains // most) if grains else 0
    return [min(size, (k + 1) * grains // used * grain) for k in range(used)]


def linear_tiles(size: int, num_tiles: int, *, grain: int, least: int) -> np.ndarray:
    """The tiles of things in a row, in ranges of nearly equal length: int32 of shape (size,).

    Args:
        size: how many there are.
        num_tiles: tiles to use, from 0.
        grain: as of `linear_stops`.
        least: as of `linear_stops`.

    >>> linear_tiles(10, 4, grain=2, least=0).tolist()
    [0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    """
    stops = np.array(linear_stops(size, num_tiles, grain=grain, least=least), np.int64)
    return np.repeat(np.arange(len(stops), dtype=np.int32), np.diff(stops, prepend=0))
