"""Words: where on its tile each element of a variable lies.

In come the tiles of its elements, out comes one numbering that whatever holds elements on tiles shares. There is a row
for every tile of a placement, the same for all variables, and on a tile the words of a variable are its elements there
in their order, or in that of the placement. So what follows in that order and lives on one tile follows there too, and
the numbering is held by such stretches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lowering.machine.element_tiles import VariableTiles
from lowering.plan.pieces import Pieces
from lowering.plan.runs import overlaps


@dataclass(frozen=True, eq=False)
class Words:
    """Where the elements of a variable lie in an array of tiles by words.

    Attributes:
        shape: rows and words of the array: as many words as the row with most of them holds.
        pieces: the `row * words + word` that each element stands for, by its position in the variable: each piece
            is in one row.
    """

    shape: tuple[int, int]
    pieces: Pieces

    @property
    def rows(self) -> np.ndarray:
        """The row of each piece."""
        return self.pieces.origins // max(1, self.shape[1])


def number_words(tiles: VariableTiles, axis: np.ndarray, order: Pieces | None = None) -> Words:
    """The words of a variable.

    Args:
        tiles: of its elements, in the order in which they lie.
        axis: the tile of each row, rising, all of `tiles` among them.
        order: the place of each position in that order, if it is not their own.

    >>> words = number_words(VariableTiles.of(np.array([3, 0, 3, 3])), np.array([0, 1, 3]))
    >>> words.shape, words.pieces.at(np.arange(4)).tolist()
    ((3, 3), [6, 0, 7, 8])
    """
    if order is not None:
        words = number_words(tiles, axis)
        # Not joined as `Pieces.then` would: each piece is in one row.
        found = overlaps(order.origins, order.origins + order.lengths, words.pieces.runs)
        starts = found.starts - order.moves[found.first]
        by_start = np.argsort(starts, kind="stable")
        origins = (found.starts + words.pieces.moves[found.second])[by_start]
        lengths = (found.stops - found.starts)[by_start]
        return Words(words.shape, Pieces(starts[by_start], starts[by_start] + lengths, origins))
    runs, homes = tiles.stretches()
    rows = np.searchsorted(axis, homes)
    by_row = np.argsort(rows.astype(np.uint16 if len(axis) < 1 << 16 else np.int64), kind="stable")  # as for `balanced`
    lengths = runs.lengths[by_row]
    counts = np.bincount(rows, runs.lengths, len(axis)).astype(np.int64)
    width = int(counts.max(initial=0))
    firsts, origins = np.arange(len(axis)) * width - np.cumsum(counts) + counts, np.empty(len(rows), np.int64)
    origins[by_row] = np.cumsum(lengths) - lengths + firsts[rows[by_row]]
    return Words((len(axis), width), Pieces(*runs, origins))
