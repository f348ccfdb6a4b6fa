"""Tile copies: views read out of the arrays of variables, written to them, and copied from tile to tile.

In come views without symbols, and for a copy the exchange that was planned for it. Out comes where each word is taken
from. Where the tiles of a copy's destination need as many words as they were planned to have, each is put where it
belongs as it arrives; else what was planned arrives, every element once, and each tile puts its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from ipu_backend.executions.tile_layout import Layouts, NewWords, put
from ipu_backend.executions.tile_receiving import Bringing, of_variables, receive
from ipu_backend.executions.tile_vertices import Numbers, Varying, connected
from lowering.machine.exchange import Transfer
from lowering.mesh.selection import Selection
from lowering.plan.pieces import Pieces, pieces_of
from lowering.plan.runs import Runs, overlaps
from lowering.plan.steps import CopyStep


@dataclass(frozen=True, eq=False)
class Taking:
    """What the elements of a view are taken from: the arrays of variables end to end, and values of padding behind."""

    variables: tuple[Variable, ...]
    padding: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class CopySet:
    """A copy on tiles.

    Attributes:
        source: what is brought to each tile; or all that is put is taken from, wherever it is.
        puttings: of the variables that are written, from there.
    """

    source: Bringing | Taking
    puttings: tuple[NewWords, ...]


def _numbers_of(tensor: Tensor, layouts: Layouts) -> tuple[Pieces, Taking]:
    """The number at each position of a view without symbols: of an element, or behind these of padding."""
    numbers = Numbers()
    varying = connected(tensor, (), numbers)
    if varying.dimensions != tuple(range(tensor.ndim)):
        varying = Varying((), np.asarray(numbers.of(tensor.source, tensor.index.values())))
    run, found = varying.run, varying.array.reshape(-1)
    if numbers.padding:
        found = np.where(found < 0, layouts.num_elements + (-1 - found) * run, found)
    padding = tuple(np.asarray(value, tensor.dtype) for value in numbers.padding for _ in range(run))
    return pieces_of(np.arange(len(found)) * run, found, run), Taking(source_variables(tensor.source), padding)


def plan_taking(tensor: Tensor, layouts: Layouts) -> tuple[Taking, Selection]:
    """What the elements of a view without symbols are taken from, and where in it they are."""
    numbers, taking = _numbers_of(tensor, layouts)
    flat, size = layouts.flat(taking.variables, len(taking.padding))
    return taking, Selection(tensor.shape, numbers.then(flat), size)


def plan_putting(tensor: Tensor, layouts: Layouts) -> list[NewWords]:
    """The variables that a view without symbols is of, when it is written from a flat array of its size."""
    origin = _numbers_of(tensor, layouts)[0].inverse()
    made = [(variable, layouts.numbers(variable).then(origin)) for variable in source_variables(tensor.source)]
    return [put(variable, words, tensor.size, layouts) for variable, words in made if len(words.starts)]


def plan_copy(step: CopyStep, layouts: Layouts, planned: Transfer) -> CopySet:
    """A copy.

    Args:
        step: with elements.
        layouts: of the variables.
        planned: what it moves.
    """
    numbers, taking = _numbers_of(step.source, layouts)
    wanted = _numbers_of(step.destination, layouts)[0].inverse().then(numbers)
    space, tiles = layouts.num_elements, layouts.placement.tiles
    made = {variable: layouts.numbers(variable).then(wanted) for variable in source_variables(step.destination.source)}
    made = {variable: words for variable, words in made.items() if len(words.starts)}
    elements = sum(int(own.lengths[own.origins < space].sum()) for own in made.values())
    if elements == of_variables(planned.touched, taking.variables, space).lengths.sum():
        flat, size = layouts.flat(taking.variables, len(taking.padding))
        puttings = [put(variable, own.then(flat), size, layouts) for variable, own in made.items()]
        return CopySet(taking, tuple(puttings))
    received = receive(taking.variables, tiles, planned, layouts, taking.padding)
    puttings = []
    for variable, own in made.items():
        ends = np.arange(len(tiles) + 1) * layouts.of(variable).shape[1]
        found = overlaps(own.starts, own.stops, Runs(ends[:-1], ends[1:]))
        keys = found.starts + own.moves[found.first] + found.second * received.space
        words = pieces_of(found.starts, keys, found.stops - found.starts).then(received.places)
        puttings.append(put(variable, words, len(tiles) * received.width, layouts))
    return CopySet(received.bringing, tuple(puttings))
