"""Tile layout: the words of variables as arrays of tiles by words, and words taken out of such arrays.

In come a placement's words and tables of positions; out come arrays as XLA makes them best.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jax import lax

from codelet.views.digits import row_major_strides
from codelet.views.index import Index
from codelet.views.sources import Variable
from ipu_backend.executions.row_boxes import RowBox, row_box
from lowering.arrays import Array, constant, reshape, slice_, take
from lowering.machine.placement import Placement
from lowering.machine.words import Words
from lowering.mesh.positions import Positions, changes
from lowering.mesh.selection import LEAST_RUN, Selection, taken
from lowering.plan.pieces import Pieces, pieces_of, side_by_side


def _steps_along(places: np.ndarray, real: np.ndarray) -> tuple[int, ...]:
    """By how much places differ along each dimension but the first, where the row begins that has most."""
    rows = np.broadcast_to(real, places.shape).reshape(len(places), -1).sum(axis=1)
    row = places[int(rows.argmax())]
    lines = (np.moveaxis(row, d, 0).reshape(n, -1)[:2, 0] for d, n in enumerate(row.shape))
    return tuple(int(line[-1] - line[0]) for line in lines)


class RowSelection:
    """For every row words of it, by their places in the row: no row sees another.

    Args:
        places: of shape (rows, *any), not negative.
        real: of the same shape, or one that broadcasts to it: where what is taken matters.
        extents: of the words that follow each other from each place on, which are taken together.
        width: how many words a row has.
    """

    def __init__(self, places: np.ndarray, real: np.ndarray, extents: tuple[int, ...], width: int):
        self.shape = (*places.shape, *extents)
        self.run = math.prod(extents)
        self.start: int | None = None
        self.box: RowBox | None = None
        if not math.prod(self.shape):
            return
        flat = None if real.all() else np.flatnonzero(np.broadcast_to(real, places.shape))
        together = tuple(self.run * step for step in row_major_strides(places.shape[1:]))
        for steps in (together, _steps_along(places, real)):
            added = places - Index(0, places.shape, (0, *steps)).values()
            starts, added = changes(added.reshape(-1), flat)
            if len(added) == 1:
                break
        if len(added) == 1 and steps == together and int(added[0]) + math.prod(self.shape[1:]) <= width:
            self.start = int(added[0])
        elif len(added) == 1:
            along = [(step, n) for step, n in zip((*steps, 1), (*places.shape[1:], self.run), strict=True) if n > 1]
            self.box = row_box(int(added[0]), [step for step, _ in along], [n for _, n in along], width)
        if self.run < LEAST_RUN:
            shape, steps, starts, most = (*places.shape, self.run), (*steps, 1), starts * self.run, width - 1
        else:
            shape, most = places.shape, width - self.run
        self.places = Positions(shape, (0, *steps), starts, added, most)

    @property
    def is_even(self) -> bool:
        """Whether the words are at the same places of every row, and these steps."""
        return not math.prod(self.shape) or self.start is not None or self.box is not None

    def of(self, rows: Array) -> Array:
        """The words, in the shape of `places` and `extents`, of an array of rows by words; of any, where it is even."""
        shape = (len(rows), *self.shape[1:])
        if not math.prod(shape):
            return lax.full(shape, 0, rows.dtype)
        if self.start is not None:
            stop = self.start + math.prod(shape[1:])
            return reshape(slice_(rows, (0, self.start), (len(rows), stop), (1, 1)), shape)
        if self.box is not None:
            return reshape(self.box.of(rows), shape)
        return self.by(rows, self.places.array())

    def by(self, rows: Array, places: Array) -> Array:
        """The words of some rows, at places in these as `places` has them for its own."""
        together = self.run if self.run >= LEAST_RUN else 1
        found = jax.vmap(partial(taken, run=together))(rows, places)
        return reshape(found, (len(rows), *self.shape[1:]))


def distinct(numbers: np.ndarray) -> np.ndarray:
    """The numbers that occur, each once, rising.

    As `numpy.unique`, whose hashing took 8.6 s for the MNIST network placed by bytes where this takes 0.3.
    """
    ordered = np.sort(numbers.reshape(-1))
    return ordered[np.concatenate([[True], ordered[1:] != ordered[:-1]])] if len(ordered) else ordered


class Layouts:
    """The arrays of tiles by words of the variables of a placement."""

    def __init__(self, placement: Placement):
        self.placement = placement
        self.num_elements = len(placement.element_tiles)
        self._placed = set(placement.plan.variables)

    def __contains__(self, variable: Variable) -> bool:
        """Whether a variable is on tiles: what is no variable of the graph is not."""
        return variable in self._placed

    def of(self, variable: Variable) -> Words:
        """Where the elements of a variable are in its array."""
        return self.placement.words_of(variable)

    def loading(self, variable: Variable) -> Selection:
        """The array of a variable, from its elements in order."""
        words = self.of(variable)
        return Selection(words.shape, words.pieces.inverse(), variable.size)

    def unloading(self, variable: Variable) -> Selection:
        """The elements of a variable in order, from its array."""
        words = self.of(variable)
        return Selection(variable.shape, words.pieces, math.prod(words.shape))

    def numbers(self, variable: Variable) -> Pieces:
        """The number of the element in each word of the array of a variable, flat."""
        return self.of(variable).pieces.inverse().moved(0, variable.first_element)

    def flat(self, variables: Sequence[Variable], num_padding: int = 0) -> tuple[Pieces, int]:
        """Where elements, by their numbers, lie in the arrays of some variables end to end, and the size of that.

        So many values of padding stand behind the arrays, and their numbers behind those of elements.
        """
        found, base = [], 0
        for variable in variables:
            found.append(self.of(variable).pieces.moved(variable.first_element, base))
            base += math.prod(self.of(variable).shape)
        found.append(pieces_of([self.num_elements], [base], num_padding))
        return side_by_side(found), base + num_padding


@dataclass(frozen=True, eq=False)
class NewWords:
    """New words of a variable: of a flat array, with the variable's own array before behind it where it keeps any."""

    variable: Variable
    keeps: bool
    words: Selection


def put(variable: Variable, words: Pieces, size: int, layouts: Layouts) -> NewWords:
    """The words of a variable, by where they are in a flat array of a size; those that are not are kept."""
    layout = layouts.of(variable)
    keeps = int(words.lengths.sum()) < variable.size
    if keeps:
        words = words.over(pieces_of([0], [size], math.prod(layout.shape)))
    return NewWords(variable, keeps, Selection(layout.shape, words, size + math.prod(layout.shape) * keeps))


def rows_of(array: Array, rows: np.ndarray | None) -> Array:
    """Some rows of an array, rising; all for None."""
    if rows is None:
        return array
    steps = np.unique(np.diff(rows))
    if len(rows) and len(steps) < 2:
        step = int(steps[0]) if len(steps) else 1
        return lax.slice_in_dim(array, int(rows[0]), int(rows[-1]) + 1, step)
    return take(array, constant(rows.astype(np.int32)))


def joined(arrays: Sequence[Array]) -> Array:
    """Arrays end to end, each flat."""
    flat = [reshape(array, (array.size,)) for array in arrays]
    return flat[0] if len(flat) == 1 else lax.concatenate(flat, 0)
