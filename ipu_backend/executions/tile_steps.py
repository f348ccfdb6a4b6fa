"""Tile steps: what every tile receives, computes and sends home in a compute set, as tables.

In come a step's families, the words of a placement, and the exchange that was planned for it. Out comes a
`ComputeSet`: for each group of variables that vertices read together what is brought to each tile, every element
once; for each batch of vertices which of its tile's words each field is; and for each variable that is written where
each of its words comes from. Elements of a field that follow each other are found by the first of them, and none of
these tables has more entries than words are moved. All of it is NumPy; `tile_array.py` runs it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from codelet.graphs.family import Family
from codelet.views.sources import Source, Variable, source_variables
from ipu_backend.executions.tile_layout import Layouts, NewWords, RowSelection, put
from ipu_backend.executions.tile_receiving import Bringing, Received, of_variables, receive
from ipu_backend.executions.tile_vertices import Batch, Lanes, Numbers, Varying, batches, lanes_of
from lowering.machine.exchange import StepExchange, Transfer
from lowering.mesh.selection import Selection
from lowering.plan.pieces import Pieces, pieces_of, side_by_side
from lowering.plan.runs import union


@dataclass(frozen=True, eq=False)
class _Want:
    """What a field of a batch reads.

    Attributes:
        rows: the rows of the step that its tiles are.
        groups: the lane axes that it depends on.
        varying: the numbers of elements over its tiles, these lane axes, and the field's own dimensions.
        real: which of them are of vertices.
    """

    rows: np.ndarray
    groups: tuple[int, ...]
    varying: Varying
    real: np.ndarray


@dataclass(frozen=True, eq=False)
class Operand:
    """A field of a batch as an operand.

    Attributes:
        groups: the lane axes that it depends on.
        bringing: the number of what is brought that it is a part of; None for the values of a constant.
        places: where in it; None for a constant.
        dimensions: the field's own, in the order in which they stand in either.
        value: the constant's values, over rows, its lane axes, and its dimensions.
    """

    groups: tuple[int, ...]
    bringing: int | None
    places: RowSelection | None
    dimensions: tuple[int, ...]
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


class Result(NamedTuple):
    """A field that a batch writes: the number of the batch, its name, and in which order its dimensions are taken."""

    batch: int
    name: str
    dimensions: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Storing:
    """What is stored of a variable after tiles have computed: at home, wherever it was computed.

    Attributes:
        results: that it is put from, end to end.
        putting: where.
    """

    results: tuple[Result, ...]
    putting: NewWords


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


def _places(want: _Want, received: Received, repeats: int) -> RowSelection:
    """Where in what each tile has each run of a field is; so often each value of padding stands behind another."""
    numbers, first = want.varying.array, received.space - len(received.bringing.padding)
    if received.bringing.padding:
        numbers = np.where(numbers < 0, first + (-1 - numbers) * repeats, numbers)
    numbers = numbers + want.rows.reshape(-1, *[1] * (numbers.ndim - 1)) * received.space
    real, extents = np.broadcast_to(want.real, numbers.shape), want.varying.extents
    if not received.places.follow(numbers[real], want.varying.run).all():
        # What follows on in the variable does not on the tile: each by itself.
        each = np.arange(want.varying.run).reshape(extents)
        numbers = numbers.reshape(*numbers.shape, *[1] * len(extents)) + each
        real = np.broadcast_to(real.reshape(*real.shape, *[1] * len(extents)), numbers.shape)
        extents = ()
    rows = np.broadcast_to(want.rows.reshape(-1, *[1] * (numbers.ndim - 1)), numbers.shape)
    places = np.zeros(numbers.shape, np.int64)
    places[real] = received.places.at(numbers[real]) - rows[real] * received.width
    return RowSelection(places, real, extents, received.width)


def _in_own_order(
    want: _Want, tiles: np.ndarray, variables: tuple[Variable, ...], layouts: Layouts
) -> tuple[Bringing, list[RowSelection]]:
    """What one field reads, as it reads it."""
    shape, run = want.varying.array.shape, want.varying.run
    numbers = want.varying.array.reshape(shape[0], -1)
    width, places = numbers.shape[1] * run, np.arange(numbers.shape[1]) * run
    real = np.broadcast_to(want.real, shape).reshape(numbers.shape)
    flat, size = layouts.flat(variables)
    words = pieces_of((want.rows[:, None] * width + places)[real], numbers[real], run).then(flat)
    bringing = Bringing(variables, tiles, Selection((len(tiles), width), words, size), None, ())
    places = np.broadcast_to(places, numbers.shape).reshape(shape)
    return bringing, [RowSelection(places, want.real, want.varying.extents, width)]


def _bring(
    variables: tuple[Variable, ...],
    tiles: np.ndarray,
    wants: Sequence[_Want],
    planned: Transfer,
    layouts: Layouts,
    padding: Sequence[Any],
) -> tuple[Bringing, list[RowSelection]]:
    """What tiles have of some variables after the planned exchange, and where in that each field is."""
    padded = [want.varying.run for want in wants if want.varying.array.min(initial=0) < 0]
    repeats = max(padded, default=1)
    received = receive(
        variables, tiles, planned, layouts, tuple(value for value in padding for _ in range(repeats) if padded)
    )
    if len(wants) == 1 and not padded and received.bringing.words is not None:
        (want,) = wants
        count = np.broadcast_to(want.real, want.varying.array.shape).sum() * want.varying.run
        if count == of_variables(planned.touched, variables, layouts.num_elements).lengths.sum():
            # It names no element twice on a tile.
            return _in_own_order(want, tiles, variables, layouts)
    return received.bringing, [_places(want, received, repeats) for want in wants]


# --- storing ----------------------------------------------------------------------------------------------


class _HomeStore:
    """Gathers where what tiles have of a variable, for the planned exchange to send home, comes from."""

    def __init__(self, variable: Variable, planned: Transfer, layouts: Layouts):
        self.variable = variable
        self.layouts = layouts
        self.touched = of_variables(planned.touched, [variable], layouts.num_elements)
        self.pieces: list[Pieces] = []
        self.results: list[Result] = []
        self.base = 0

    def add(self, result: Result, numbers: np.ndarray, run: int, real: np.ndarray, tiles: np.ndarray) -> None:
        """Results over rows, all lane axes, and a field's own dimensions; `numbers` are of the first of each run."""
        own = numbers - self.variable.first_element
        flat = np.flatnonzero((own >= 0) & (own < self.variable.size) & real)
        if not len(flat):
            return
        homes = tiles.astype(np.int64)[flat // (numbers.size // len(tiles))]
        keys = homes * self.layouts.num_elements + numbers.reshape(-1)[flat]
        self.pieces.append(pieces_of(keys, self.base + flat * run, run))
        self.results.append(result)
        self.base += numbers.size * run

    def finish(self) -> Storing | None:
        if not self.results:
            return None
        made, space = side_by_side(self.pieces), self.layouts.num_elements
        assert all(map(np.array_equal, union(made.starts, made.stops), self.touched)), "what is sent is not computed"
        origin = pieces_of(made.starts % space, made.origins, made.lengths)
        putting = put(self.variable, self.layouts.numbers(self.variable).then(origin), self.base, self.layouts)
        return Storing(tuple(self.results), putting)


# --- compute sets ------------------------------------------------------------------------------------------


def plan_compute_set(families: Sequence[Family], layouts: Layouts, planned: StepExchange) -> ComputeSet:
    """A compute set on tiles.

    Args:
        families: its vertices.
        layouts: of the variables; of a placement that has the families.
        planned: what it moves.
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
            varying = batch.elements[name]._replace(axes=(0, *groups), array=own)
            wants[k, name] = _Want(rows_of[k], groups, varying, real)
        for name, varying in batch.state.items():
            groups, own = lanes.needed(varying)
            operands[k][name] = Operand(groups, None, None, tuple(range(own.ndim - 1 - len(groups))), own)

    bringings: list[Bringing] = []
    chosen = {which: made[which[0]].sources[which[1]] for which, want in wants.items() if want.varying.array.size}
    for variables in _pools(list(chosen.values())):
        readers = [which for which, source in chosen.items() if set(source_variables(source)) & set(variables)]
        read = [wants[which].varying.array for which in readers] if numbers.padding else []
        used = {-1 - code for own in read for code in np.unique(own[own < 0]).tolist()}
        # What no field here reads may be of another dtype; it keeps its place, so that the others keep theirs.
        values = (value if code in used else 0 for code, value in enumerate(numbers.padding))
        padding = tuple(np.asarray(value, variables[0].dtype) for value in values)
        bringing, places = _bring(
            variables, tiles, [wants[which] for which in readers], planned.before, layouts, padding
        )
        for (k, name), own in zip(readers, places, strict=True):
            want = wants[k, name]
            operands[k][name] = Operand(want.groups, len(bringings), own, want.varying.dimensions)
        bringings.append(bringing)
    for (k, name), want in wants.items():
        if name not in operands[k]:  # empty, or padding alone
            value = np.zeros(want.varying.array.shape, made[k].sources[name].dtype)
            for code, padding in enumerate(numbers.padding):
                here = want.varying.array == -1 - code
                if here.any():
                    value[here] = padding
            alike = value.reshape(*value.shape, *[1] * len(want.varying.extents))
            value = np.broadcast_to(alike, (*value.shape, *want.varying.extents))
            operands[k][name] = Operand(want.groups, None, None, want.varying.dimensions, value)

    stores: dict[Variable, _HomeStore] = {}
    for k, (batch, lanes) in enumerate(zip(made, by_tile, strict=True)):
        everything = range(len(lanes.groups))
        for name in batch.writes:
            varying = batch.elements[name]
            own, run = lanes.spread(varying, everything), varying.run
            real = np.broadcast_to(lanes.real(everything, own.ndim - 1 - len(lanes.groups)), own.shape)
            for variable in source_variables(batch.sources[name]):
                if variable not in stores:
                    stores[variable] = _HomeStore(variable, planned.after, layouts)
                stores[variable].add(Result(k, name, varying.dimensions), own, run, real, lanes.tiles)
    storings = [store.finish() for store in stores.values()]
    on_tiles = [
        TileBatch(batch, lanes, None if len(rows) == len(tiles) else rows, own)
        for batch, lanes, rows, own in zip(made, by_tile, rows_of, operands, strict=True)
    ]
    return ComputeSet(tuple(bringings), tuple(on_tiles), tuple(own for own in storings if own is not None))
