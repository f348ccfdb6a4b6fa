"""Tile layout: the words of variables as arrays of tiles by words, and words taken out of such arrays.

In come a placement's words and tables of positions; out come arrays as XLA makes them best.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.views.digits import row_major_strides
from codelet.views.index import Index
from codelet.views.sources import Variable
from ipu_backend.executions.positions import Positions, changes
from ipu_backend.executions.row_boxes import RowBox, row_box
from lowering.arrays import Array, constant, reshape, slice_, take
from lowering.machine.pieces import Pieces, pieces_of, side_by_side
from lowering.machine.placement import Placement
from lowering.machine.words import Words

LEAST_RUN = 4
"""Words that follow each other are taken as slices where all runs are of so many: half as long as one by one."""


def _taken(row: Array, begins: Array, run: int) -> Array:
    """Words of a row, so many from each of some places on, in one more dimension where they are several."""
    if run == 1:
        return take(row, begins)
    numbers = lax.GatherDimensionNumbers((begins.ndim,), (), (0,))
    return lax.gather(row, begins[..., None], numbers, (run,), mode="promise_in_bounds")


class Selection:
    """Words of a flat array by their positions, as XLA takes them best: as they are, by slices, or one by one.

    Args:
        shape: of what is taken.
        pieces: where in the array each of it is; what is in no piece does not matter, and follows the piece before.
        size: of the array.
    """

    def __init__(self, shape: tuple[int, ...], pieces: Pieces, size: int):
        self.shape = shape
        self.pieces = pieces
        self.size = size
        self.count = math.prod(shape)

    @functools.cached_property
    def start(self) -> int | None:
        """Where the words begin, if they follow each other."""
        moved = self.pieces.moves
        return int(moved[0]) if moved[0] >= 0 and (moved == moved[0]).all() else None

    @functools.cached_property
    def run(self) -> int:
        """Of how many words that follow each other all of it consists, those that matter together in the array."""
        pieces = self.pieces
        apart = int(np.gcd.reduce(pieces.starts[1:], initial=self.count))
        whole = int(np.gcd.reduce(np.append(pieces.starts, pieces.stops), initial=apart))
        begin, ends = pieces.starts[0] // apart * apart, -(-pieces.stops // apart) * apart
        is_inside = begin + pieces.moves[0] >= 0 and (ends + pieces.moves <= self.size).all()
        return apart if is_inside else whole

    def _by(self, run: int) -> Positions:
        """Where so many words that follow each other begin."""
        starts = np.append(0, self.pieces.starts[1:]) // run
        return Positions((self.count // run,), (run,), starts, self.pieces.moves, self.size - run)

    @property
    def _together(self) -> int:
        return self.run if self.run >= LEAST_RUN else 1

    @functools.cached_property
    def _begins(self) -> Positions:
        return self._by(self._together)

    @property
    def positions(self) -> np.ndarray:
        """Where in the array each of it is."""
        return self._by(1).numbers.reshape(self.shape) if len(self.pieces.starts) else np.zeros(self.shape, np.int64)

    @property
    def real(self) -> np.ndarray:
        """Where `positions` matter, bool of their shape."""
        made = np.zeros(self.count, bool)
        made[self.pieces.runs.numbers()] = True
        return made.reshape(self.shape)

    def of(self, flat: Array) -> Array:
        """The words, in their shape."""
        if not len(self.pieces.starts):
            return lax.full(self.shape, 0, flat.dtype)
        if self.start is not None:
            stop = min(self.start + self.count, flat.size)
            behind = self.count - (stop - self.start)
            if not behind or behind % self.shape[-1] == 0:  # whole rows, of which nothing matters
                found = slice_(flat, (self.start,), (stop,), (1,))
                padded = lax.pad(found, jnp.zeros((), flat.dtype), [(0, behind, 0)]) if behind else found
                return reshape(padded, self.shape)
        return reshape(_taken(flat, self._begins.array(), self._together), self.shape)


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

    def of(self, rows: Array) -> Array:
        """The words, in the shape of `places` and `extents`, of an array of rows by words."""
        if not math.prod(self.shape):
            return lax.full(self.shape, 0, rows.dtype)
        if self.start is not None:
            stop = self.start + math.prod(self.shape[1:])
            return reshape(slice_(rows, (0, self.start), (len(rows), stop), (1, 1)), self.shape)
        if self.box is not None:
            return reshape(self.box.of(rows), self.shape)
        together = self.run if self.run >= LEAST_RUN else 1
        return reshape(jax.vmap(partial(_taken, run=together))(rows, self.places.array()), self.shape)


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
class Putting:
    """New words of a variable: of a flat array, with the variable's own array before behind it where it keeps any."""

    variable: Variable
    keeps: bool
    words: Selection


def put(variable: Variable, words: Pieces, size: int, layouts: Layouts) -> Putting:
    """The words of a variable, by where they are in a flat array of a size; those that are not are kept."""
    layout = layouts.of(variable)
    keeps = int(words.lengths.sum()) < variable.size
    if keeps:
        words = words.over(pieces_of([0], [size], math.prod(layout.shape)))
    return Putting(variable, keeps, Selection(layout.shape, words, size + math.prod(layout.shape) * keeps))


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
