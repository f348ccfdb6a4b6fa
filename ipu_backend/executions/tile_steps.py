"""Tile steps: what every tile receives, computes and sends home in a compute set, as tables.

In come a step's families and a placement. Out comes a `ComputeSet`: for each group of variables that vertices read
together what is brought to each tile, every element once; for each batch of vertices which of its tile's words
each field is; and for each variable that is written where each of its words comes from. All of it is NumPy;
`tile_array.py` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.graphs.family import Family
from codelet.views.tensor import Source, Tensor, Variable, source_variables
from ipu_backend.executions.tile_layout import Layouts, RowSelection, Selection, distinct
from ipu_backend.executions.tile_vertices import Batch, Lanes, Numbers, batches, lanes_of
from lowering.machine.exchange import Moves
from lowering.machine.placement import Placement
from lowering.machine.words import Words, cyclic
from lowering.plan.steps import CopyStep

# --- what is brought to the tiles -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bringing:
    """What is brought to each tile of a compute set of some variables, before it computes.

    Attributes:
        variables: those that vertices read through one source, directly or by a chain of sources.
        tiles: the tile of each row, int32 of shape (rows,).
        elements: the numbers of the elements that each tile then has, of shape (rows, words).
        real: where these are what the tile needs, each once; elsewhere they are never read. Of the same shape.
        words: where they are, in the arrays of the variables end to end; None where each tile has all it needs in
            its own words, and works on these.
        rows: then the rows of the variable's array that are the rows here; None where they are all of them.
        padding: values that each tile has behind.
    """

    variables: tuple[Variable, ...]
    tiles: np.ndarray
    elements: np.ndarray
    real: np.ndarray
    words: Selection | None
    rows: np.ndarray | None
    padding: tuple[Any, ...]

    def moves(self, placement: Placement) -> Moves:
        """What of it comes from other tiles."""
        numbers, receivers = self.elements[self.real], np.broadcast_to(self.tiles[:, None], self.real.shape)[self.real]
        homes = placement.element_tiles[numbers]
        away = homes != receivers
        return Moves(numbers[away], homes[away], receivers[away])


@dataclass(frozen=True, eq=False)
class _Want:
    """What a field of a batch reads: numbers of elements over rows of the step, lane axes, and its own dimensions."""

    rows: np.ndarray
    groups: tuple[int, ...]
    numbers: np.ndarray
    real: np.ndarray


@dataclass(frozen=True, eq=False)
class Operand:
    """A field of a batch as an operand.

    Attributes:
        groups: the lane axes that it depends on.
        bringing: the number of what is brought that it is a part of; None for the values of a constant.
        places: where in it; None for a constant.
        value: the constant's values, over rows, its lane axes, and its own dimensions.
    """

    groups: tuple[int, ...]
    bringing: int | None
    places: RowSelection | None
    value: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class TileBatch:
    """A batch of vertices on its tiles.

    Attributes:
        batch: the vertices.
        lanes: they by tile.
        rows: which rows of the step its tiles are; None for all.
        operands: by the name of the field.
    """

    batch: Batch
    lanes: Lanes
    rows: np.ndarray | None
    operands: Mapping[str, Operand]


@dataclass(frozen=True, eq=False)
class Storing:
    """What is stored of a variable after tiles have computed: at home, wherever it was computed.

    Attributes:
        variable: what is written.
        results: whose results, by the number of the batch and the name of the field, end to end.
        keeps: whether the variable's array before stands behind them.
        words: which of all that each word is.
        elements: what is written, by number; their senders, and whether each is sent to another tile.
        senders: the tile that computed each.
    """

    variable: Variable
    results: tuple[tuple[int, str], ...]
    keeps: bool
    words: Selection
    elements: np.ndarray
    senders: np.ndarray

    def moves(self, placement: Placement) -> Moves:
        """What of it goes to other tiles."""
        homes = placement.element_tiles[self.elements]
        away = homes != self.senders
        return Moves(self.elements[away], self.senders[away], homes[away])


@dataclass(frozen=True, eq=False)
class ComputeSet:
    """A compute set on tiles.

    Attributes:
        bringings: what is brought to them.
        batches: what they compute.
        storings: where it goes.
    """

    bringings: tuple[Bringing, ...]
    batches: tuple[TileBatch, ...]
    storings: tuple[Storing, ...]


# --- bringing ---------------------------------------------------------------------------------------------


def _pools(sources: Sequence[Source]) -> list[tuple[Variable, ...]]:
    """The variables of sources, those that any source joins together."""
    pools: list[set[Variable]] = []
    for source in sources:
        own = set(source_variables(source))
        for other in [pool for pool in pools if pool & own]:
            pools.remove(other)
            own |= other
        pools.append(own)
    ordered = [tuple(sorted(pool, key=lambda variable: variable.number)) for pool in pools if pool]
    return sorted(ordered, key=lambda pool: pool[0].number)


def _bring(
    variables: tuple[Variable, ...],
    tiles: np.ndarray,
    wants: Sequence[_Want],
    layouts: Layouts,
    padding: Sequence[Any],
) -> tuple[Bringing, list[RowSelection]]:
    """What some fields read of some variables, and where in that each has it."""
    space = int(layouts.placement.element_tiles.size) + 1
    rows = len(tiles)
    shaped = lambda want: want.rows.reshape(-1, *[1] * (want.numbers.ndim - 1))  # noqa: E731
    keys = [np.where(want.numbers >= 0, want.numbers + shaped(want) * space, -1) for want in wants]
    needed = distinct(np.concatenate([own.reshape(-1) for own in keys]))
    needed = needed[needed >= 0]
    row, numbers = np.divmod(needed, space)
    count = np.bincount(row, minlength=rows)
    own_words = bool((layouts.placement.element_tiles[numbers] == tiles[row]).all())
    width = int(count.max(initial=0))
    real = np.arange(width) < count[:, None]
    if len(needed):
        elements = numbers[np.minimum(cyclic(np.cumsum(count) - count, count, width), len(needed) - 1)]
    else:
        elements = np.zeros((rows, 0), np.int64)
    layout = layouts.of(variables[0])
    if own_words and len(variables) == 1:
        # What each tile needs lives there.
        at = np.searchsorted(layouts.placement.tiles, tiles)
        everything = len(at) == len(layouts.placement.tiles)
        word = layout.addresses % max(1, layout.shape[1])
        bringing = Bringing(variables, tiles, elements, real, None, None if everything else at, tuple(padding))
        places = []
        for want in wants:
            own = np.clip(want.numbers - variables[0].first_element, 0, max(0, variables[0].size - 1))
            inside = word[own] if len(word) else own
            places.append(np.where(want.numbers >= 0, inside, layout.shape[1] - 1 - want.numbers))
    elif len(wants) == 1 and np.count_nonzero(wants[0].real & (keys[0] >= 0)) == len(needed) and (keys[0] >= 0).all():
        # One field, which names no element twice on a tile, nor padding: brought in its own order.
        want = wants[0]
        own = want.numbers.reshape(len(want.rows), -1)
        elements = np.full((rows, own.shape[1]), own.flat[0] if own.size else 0)
        real = np.zeros(elements.shape, bool)
        elements[want.rows] = own
        real[want.rows] = np.broadcast_to(want.real, want.numbers.shape).reshape(own.shape)
        words = Selection(layouts.flat(variables, elements), real)
        bringing = Bringing(variables, tiles, elements, real, words, None, ())
        step = np.arange(own.shape[1]).reshape(1, *want.numbers.shape[1:])
        places = [np.broadcast_to(step, want.numbers.shape)]
    else:
        words = Selection(layouts.flat(variables, elements), real)
        bringing = Bringing(variables, tiles, elements, real, words, None, tuple(padding))
        start = np.cumsum(count) - count
        places = [
            np.where(want.numbers >= 0, np.searchsorted(needed, own) - start[shaped(want)], width - 1 - want.numbers)
            for want, own in zip(wants, keys, strict=True)
        ]
    return bringing, [RowSelection(own, want.real) for own, want in zip(places, wants, strict=True)]


# --- storing ----------------------------------------------------------------------------------------------


class _Store:
    """Gathers where what is written of a variable comes from."""

    def __init__(self, variable: Variable, layout: Words):
        self.variable = variable
        self.layout = layout
        self.origin = np.full(variable.size, -1, np.int64)
        self.senders = np.full(variable.size, -1, np.int32)
        self.results: list[tuple[int, str]] = []
        self.base = 0

    def add(self, which: tuple[int, str], numbers: np.ndarray, real: np.ndarray, tiles: np.ndarray) -> None:
        """Results over rows, all lane axes, and a field's own dimensions, whose elements have these numbers."""
        own = numbers - self.variable.first_element
        mine = (own >= 0) & (own < self.variable.size) & real
        if not mine.any():
            return
        flat = np.flatnonzero(mine)
        self.origin[own.reshape(-1)[flat]] = self.base + flat
        self.senders[own.reshape(-1)[flat]] = tiles[flat // (numbers.size // len(tiles))]
        self.results.append(which)
        self.base += numbers.size

    def finish(self) -> Storing | None:
        if not self.results:
            return None
        written = self.origin >= 0
        origin = np.where(written, self.origin, self.base + self.layout.addresses)
        words = Selection(origin[self.layout.elements], self.layout.real)
        own = np.flatnonzero(written)
        return Storing(
            self.variable,
            tuple(self.results),
            not written.all(),
            words,
            own + self.variable.first_element,
            self.senders[own],
        )


# --- compute sets and copies ------------------------------------------------------------------------------


def plan_compute_set(families: Sequence[Family], layouts: Layouts) -> ComputeSet:
    """A compute set on tiles.

    Args:
        families: its vertices.
        layouts: of the variables; of a placement that has the families.
    """
    placement, numbers = layouts.placement, Numbers()
    made = [batch for family in families for batch in batches(family, placement.vertex_tiles[family], numbers)]
    by_tile = [lanes_of(batch.tiles) for batch in made]
    tiles = np.unique(np.concatenate([lanes.tiles for lanes in by_tile])) if made else np.zeros(0, np.int32)
    rows_of = [np.searchsorted(tiles, lanes.tiles) for lanes in by_tile]

    wants: dict[tuple[int, str], _Want] = {}
    operands: list[dict[str, Operand]] = [{} for _ in made]
    for k, (batch, lanes) in enumerate(zip(made, by_tile, strict=True)):
        for name in batch.reads:
            groups, own = lanes.needed(batch.elements[name])
            real = lanes.real(groups, own.ndim - 1 - len(groups))
            wants[k, name] = _Want(rows_of[k], groups, own, real)
        for name, varying in batch.state.items():
            groups, own = lanes.needed(varying)
            operands[k][name] = Operand(groups, None, None, own)

    bringings: list[Bringing] = []
    chosen = {which: made[which[0]].sources[which[1]] for which, want in wants.items() if want.numbers.size}
    for variables in _pools(list(chosen.values())):
        readers = [which for which, source in chosen.items() if set(source_variables(source)) & set(variables)]
        read = [wants[which].numbers for which in readers] if numbers.padding else []
        used = {-1 - code for own in read for code in np.unique(own[own < 0]).tolist()}
        # What no field here reads may be of another dtype; it keeps its place, so that the others keep theirs.
        values = (value if code in used else 0 for code, value in enumerate(numbers.padding))
        padding = tuple(np.asarray(value, variables[0].dtype) for value in values)
        bringing, places = _bring(variables, tiles, [wants[which] for which in readers], layouts, padding)
        for (k, name), own in zip(readers, places, strict=True):
            operands[k][name] = Operand(wants[k, name].groups, len(bringings), own)
        bringings.append(bringing)
    for (k, name), want in wants.items():
        if name not in operands[k]:  # empty, or padding alone
            value = np.zeros(want.numbers.shape, made[k].sources[name].dtype)
            for code, padding in enumerate(numbers.padding):
                here = want.numbers == -1 - code
                if here.any():
                    value[here] = padding
            operands[k][name] = Operand(want.groups, None, None, value)

    stores: dict[Variable, _Store] = {}
    for k, (batch, lanes) in enumerate(zip(made, by_tile, strict=True)):
        everything = range(len(lanes.groups))
        for name in batch.writes:
            own = lanes.spread(batch.elements[name], everything)
            real = np.broadcast_to(lanes.real(everything, own.ndim - 1 - len(lanes.groups)), own.shape)
            for variable in source_variables(batch.sources[name]):
                if variable not in stores:
                    stores[variable] = _Store(variable, layouts.of(variable))
                stores[variable].add((k, name), own, real, lanes.tiles)
    storings = [store.finish() for store in stores.values()]
    on_tiles = [
        TileBatch(batch, lanes, None if len(rows) == len(tiles) else rows, own)
        for batch, lanes, rows, own in zip(made, by_tile, rows_of, operands, strict=True)
    ]
    return ComputeSet(tuple(bringings), tuple(on_tiles), tuple(own for own in storings if own is not None))


@dataclass(frozen=True, eq=False)
class Taking:
    """Elements of a view out of tiles.

    Attributes:
        variables: whose arrays, end to end, they are in.
        padding: values behind these.
        words: where they are.
        numbers: of the elements, in the view's shape.
    """

    variables: tuple[Variable, ...]
    padding: tuple[Any, ...]
    words: Selection
    numbers: np.ndarray


def plan_taking(tensor: Tensor, layouts: Layouts) -> Taking:
    """The elements of a view without symbols."""
    numbers = Numbers()
    own = numbers.of(tensor.source, tensor.index.values())
    variables = source_variables(tensor.source)
    padding = tuple(np.asarray(value, tensor.dtype) for value in numbers.padding)  # of one source, so of one dtype
    return Taking(variables, padding, Selection(layouts.flat(variables, own, padding)), own)


@dataclass(frozen=True, eq=False)
class Putting:
    """New words of a variable: of a flat array, with the variable's own array before behind it where it keeps any."""

    variable: Variable
    keeps: bool
    words: Selection


def plan_putting(tensor: Tensor, origin: np.ndarray, size: int, layouts: Layouts) -> list[Putting]:
    """The variables that a view without symbols is of, when it is written.

    Args:
        tensor: what is written.
        origin: where in a flat array the value of each of its positions is, in its shape.
        size: of that array.
        layouts: of the variables.
    """
    numbers, found = tensor.elements().reshape(-1), []
    for variable in source_variables(tensor.source):
        own = numbers - variable.first_element
        mine = np.flatnonzero((own >= 0) & (own < variable.size))
        if not len(mine):
            continue
        layout = layouts.of(variable)
        from_where = size + layout.addresses
        from_where[own[mine]] = origin.reshape(-1)[mine]
        keeps = bool((from_where >= size).any())
        found.append(Putting(variable, keeps, Selection(from_where[layout.elements], layout.real)))
    return found


@dataclass(frozen=True, eq=False)
class CopySet:
    """A copy on tiles: what the tiles of the destination take, and the variables that are written."""

    taking: Taking
    puttings: tuple[Putting, ...]
    senders: np.ndarray
    receivers: np.ndarray

    def moves(self) -> Moves:
        """What goes from tile to tile."""
        away = (self.senders != self.receivers) & (self.taking.numbers.reshape(-1) >= 0)
        return Moves(self.taking.numbers.reshape(-1)[away], self.senders[away], self.receivers[away])


def plan_copy(step: CopyStep, layouts: Layouts) -> CopySet:
    """A copy, from where the source lives straight to where the destination does."""
    taking = plan_taking(step.source, layouts)
    size = sum(int(np.prod(layouts.of(v).shape)) for v in taking.variables) + len(taking.padding)
    puttings = plan_putting(step.destination, taking.words.positions, size, layouts)
    homes = layouts.placement.element_tiles
    senders = homes[np.maximum(taking.numbers, 0)].reshape(-1)
    return CopySet(taking, tuple(puttings), senders, homes[step.destination.elements()].reshape(-1))
