"""Tile receiving: what every tile has of some variables once the planned exchange is done, as tables.

In comes what was planned to move before a compute set or a copy. Out comes where in the arrays of variables the words
are that are brought to each tile, every element once, and where among these each element is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.views.sources import Variable
from ipu_backend.executions.tile_boxes import in_boxes
from ipu_backend.executions.tile_layout import Layouts
from lowering.machine.exchange import Transfer
from lowering.mesh.selection import Selection
from lowering.plan.pieces import Pieces, pieces_of, side_by_side
from lowering.plan.runs import Runs


@dataclass(frozen=True, eq=False)
class Bringing:
    """What is brought to each tile of a compute set of some variables, before it computes.

    Attributes:
        variables: those that vertices read through one source, directly or by a chain of sources.
        tiles: the tile of each row, int32 of shape (rows,).
        words: where they are, in the arrays of the variables end to end; None where each tile has all it needs in its
            words, and works on these.
        rows: then the rows of the variable's array that are the rows here; None where they are all of them.
        padding: values that each tile has behind.
    """

    variables: tuple[Variable, ...]
    tiles: np.ndarray
    words: Selection | None
    rows: np.ndarray | None
    padding: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class Received:
    """What each tile has, and where.

    Attributes:
        bringing: how it comes there.
        places: where in all rows, flat, each number of each tile is, by `row * space + number`. A number is an
            element's, or stands for padding behind these.
        space: as many numbers as there are.
        width: how many words a row has, with those of padding.
    """

    bringing: Bringing
    places: Pieces
    space: int
    width: int


def of_variables(runs: Runs, variables: Sequence[Variable], space: int) -> Runs:
    """Those runs of `tile * space + element` that are of some variables, which are in order."""
    elements = runs.starts % space
    firsts = np.array([variable.first_element for variable in variables])
    which = np.searchsorted(firsts, elements, side="right") - 1
    own = (which >= 0) & (elements < (firsts + [variable.size for variable in variables])[which])
    return runs if own.all() else Runs(runs.starts[own], runs.stops[own])


def receive(
    variables: tuple[Variable, ...], tiles: np.ndarray, planned: Transfer, layouts: Layouts, padding: tuple[Any, ...]
) -> Received:
    """What tiles have of some variables after an exchange.

    Args:
        variables: which, in order.
        tiles: that compute.
        planned: the exchange.
        layouts: of the variables.
        padding: values that each tile has behind them.
    """
    space, of_layouts = layouts.num_elements, layouts.placement.tiles
    if len(variables) == 1 and not len(of_variables(planned.away, variables, space).starts):
        # What each tile needs lives there.
        layout, at = layouts.of(variables[0]), np.searchsorted(of_layouts, tiles)
        here, width = np.flatnonzero(np.isin(layout.rows, at)), layout.shape[1]
        rows, places = np.searchsorted(at, layout.rows[here]), layout.pieces.origins[here] % width
        numbers, lengths = layout.pieces.starts[here] + variables[0].first_element, layout.pieces.lengths[here]
        bringing = Bringing(variables, tiles, None, None if len(at) == len(of_layouts) else at, padding)
    else:
        touched = of_variables(planned.touched, variables, space)
        homes, numbers = np.divmod(touched.starts, space)
        rows, lengths = np.searchsorted(tiles, homes), touched.lengths
        boxed = None
        if len(variables) == 1:
            first = variables[0].first_element
            boxed = in_boxes(rows, Runs(numbers - first, numbers - first + lengths), variables[0].shape)
        if boxed is not None:
            rows, numbers, lengths, places, width = boxed._replace(starts=boxed.starts + first)
        else:
            counts = np.bincount(rows, lengths, len(tiles)).astype(np.int64)
            width = int(counts.max(initial=0))
            places = np.cumsum(lengths) - lengths - (np.cumsum(counts) - counts)[rows]
        flat, size = layouts.flat(variables)
        words = pieces_of(rows * width + places, numbers, lengths).then(flat)
        bringing = Bringing(variables, tiles, Selection((len(tiles), width), words, size), None, padding)
    many, words, every = space + len(padding), width + len(padding), np.arange(len(tiles))
    received = pieces_of(rows * many + numbers, rows * words + places, lengths)
    behind = pieces_of(every * many + space, every * words + width, len(padding))
    return Received(bringing, side_by_side([received, behind]), many, words)
