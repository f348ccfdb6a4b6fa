"""Tile steps: what every tile receives, computes and sends home in a compute set, as tables.

In come a step's families, the words of a placement, and the exchange that was planned for it. Out comes a
`ComputeSet`: for each group of variables that vertices read together what is brought to each tile, every element
once; for each batch of vertices which of its tile's words each field is; and for each variable that is written where
each of its words comes from. Elements of a field that follow each other are found by the first of them, and none of
these tables has more entries than words are moved. All of it is NumPy; `tile_array.py` runs it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from codelet.graphs.family import Family
from codelet.views.sources import Source, Variable, source_variables
from codelet.views.tensor import Tensor
from ipu_backend.executions.tile_layout import Layouts, RowSelection, Selection
from ipu_backend.executions.tile_vertices import Batch, Lanes, Numbers, Varying, batches, lanes_of
from lowering.machine.exchange import StepExchange, Transfer
from lowering.machine.words import cyclic
from lowering.plan.runs import Runs
from lowering.plan.steps import CopyStep

# --- what is brought to the tiles -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Bringing:
    """What is brought to each tile of a compute set of some variables, before it computes.

    Attributes:
        variables: those that vertices read through one source, directly or by a chain of sources.
        tiles: the tile of each row, int32 of shape (rows,).
        words: where they are, in the arrays of the variables end to end; None where each tile has all it needs in
            its own words, and works on these.
        rows: then the rows of the variable's array that are the rows here; None where they are all of them.
        padding: values that each tile has behind.
    """

    variables: tuple[Variable, ...]
    tiles: np.ndarray
    words: Selection | None
    rows: np.ndarray | None
    padding: tuple[Any, ...]


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

    @property
    def numbers(self) -> np.ndarray:
        """The first of each run of elements."""
        return self.varying.array

    @property
    def run(self) -> int:
        """How many elements each run has."""
        return math.prod(self.varying.extents)


@dataclass(frozen=True, eq=False)
class Operand:
    """A field of a batch as an operand.

    Attributes:
        groups: the lane axes that it depends on.
        bringing: the number of what is brought that it is a part of; None for the values of a constant.
        places: where in it; None for a constant.
        dimensions: the field's own, in the order in which they stand in either.
        value: the constant's values, over rows, its lane axes, and its own dimensions.
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


@dataclass(frozen=True, eq=False)
class Storing:
    """What is stored of a variable after tiles have computed: at home, wherever it was computed.

    Attributes:
        variable: what is written.
        results: whose results, by the number of the batch and the name of the field, end to end.
        keeps: whether the variable's array before stands behind them.
        words: which of all that each word is.
    """

    variable: Variable
    results: tuple[tuple[int, str], ...]
    keeps: bool
    words: Selection


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


def _of_variables(runs: Runs, variables: Sequence[Variable], space: int) -> Runs:
    """Those runs of `tile * space + element` that are of some variables, which are in order."""
    elements = runs.starts % space
    firsts = np.array([variable.first_element for variable in variables])
    which = np.searchsorted(firsts, elements, side="right") - 1
    own = (which >= 0) & (elements < (firsts + [variable.size for variable in variables])[which])
    return runs if own.all() else Runs(runs.starts[own], runs.stops[own])


def _places(want: _Want, width: int, repeats: int, of: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> RowSelection:
    """Where in `width` words each run of a field is, or in `repeats` of each padding behind them.

    `of` says it of numbers of elements, and of the rows of the step, one for each.
    """
    numbers = want.numbers
    rows = np.broadcast_to(want.rows.reshape(-1, *[1] * (numbers.ndim - 1)), numbers.shape)
    if numbers.min(initial=0) >= 0:
        places = of(numbers, rows)
    else:
        places, here = width + (-1 - numbers) * repeats, numbers >= 0
        places[here] = of(numbers[here], rows[here])
    return RowSelection(places, want.real, want.varying.extents)


def _in_own_order(want: _Want, tiles: np.ndarray, variables: tuple[Variable, ...], layouts: Layouts) -> Bringing:
    """What one field reads, as it reads it."""
    own = (want.numbers[..., None] + np.arange(want.run)).reshape(len(want.rows), -1)
    elements = np.full((len(tiles), own.shape[1]), own.flat[0] if own.size else 0)
    real = np.zeros(elements.shape, bool)
    elements[want.rows] = own
    real[want.rows] = np.broadcast_to(want.real[..., None], (*want.numbers.shape, want.run)).reshape(own.shape)
    return Bringing(variables, tiles, Selection(layouts.flat(variables, elements), real), None, ())


def _bring(
    variables: tuple[Variable, ...],
    tiles: np.ndarray,
    wants: Sequence[_Want],
    planned: Transfer,
    layouts: Layouts,
    padding: Sequence[Any],
) -> tuple[Bringing, list[RowSelection]]:
    """What tiles have of some variables after the planned exchange, and where in that each field is."""
    space = len(layouts.placement.element_tiles)
    padded = [want.run for want in wants if want.numbers.min(initial=0) < 0]
    repeats = max(padded, default=1)
    behind = tuple(value for value in padding for _ in range(repeats)) if padded else ()
    if len(variables) == 1 and not len(_of_variables(planned.away, variables, space).starts):
        # What each tile needs lives there.
        layout, first = layouts.of(variables[0]), variables[0].first_element
        at, width = np.searchsorted(layouts.placement.tiles, tiles), layout.shape[1]
        everything = len(at) == len(layouts.placement.tiles)
        places = [_places(want, width, repeats, lambda n, _: layout.addresses[n - first] % width) for want in wants]
        return Bringing(variables, tiles, None, None if everything else at, behind), places
    touched = _of_variables(planned.touched, variables, space)
    needed = touched.numbers()
    real_of = lambda want: np.broadcast_to(want.real, want.numbers.shape).sum() * want.run  # noqa: E731
    if len(wants) == 1 and not padded and real_of(wants[0]) == len(needed):
        # It names no element twice on a tile, nor padding.
        (want,) = wants
        step = np.arange(math.prod(want.numbers.shape[1:])).reshape(1, *want.numbers.shape[1:]) * want.run
        places = RowSelection(np.broadcast_to(step, want.numbers.shape), want.real, want.varying.extents)
        return _in_own_order(want, tiles, variables, layouts), [places]
    counts = np.bincount(np.searchsorted(tiles, needed // space), minlength=len(tiles))
    starts, width = np.cumsum(counts) - counts, int(counts.max(initial=0))
    elements = needed[np.minimum(cyclic(starts, counts, width), max(0, len(needed) - 1))] % space
    words = Selection(layouts.flat(variables, elements), np.arange(width) < counts[:, None])
    key = lambda numbers, rows: numbers + tiles.astype(np.int64)[rows] * space  # noqa: E731
    place = lambda numbers, rows: touched.places(key(numbers, rows)) - starts[rows]  # noqa: E731
    return Bringing(variables, tiles, words, None, behind), [_places(want, width, repeats, place) for want in wants]


# --- storing ----------------------------------------------------------------------------------------------


class _Store:
    """Gathers where what tiles have of a variable, for the planned exchange to send home, comes from."""

    def __init__(self, variable: Variable, planned: Transfer, layouts: Layouts):
        self.variable = variable
        self.layout = layouts.of(variable)
        self.space = len(layouts.placement.element_tiles)
        self.touched = _of_variables(planned.touched, [variable], self.space)
        self.origin = np.full(int(self.touched.lengths.sum()), -1, np.int64)
        self.results: list[tuple[int, str]] = []
        self.base = 0

    def add(self, which: tuple[int, str], numbers: np.ndarray, real: np.ndarray, tiles: np.ndarray) -> None:
        """Results over rows, all lane axes, and a field's own dimensions, whose elements have these numbers."""
        own = numbers - self.variable.first_element
        flat = np.flatnonzero((own >= 0) & (own < self.variable.size) & real)
        if not len(flat):
            return
        keys = numbers.reshape(-1)[flat] + tiles.astype(np.int64)[flat // (numbers.size // len(tiles))] * self.space
        self.origin[self.touched.places(keys)] = self.base + flat
        self.results.append(which)
        self.base += numbers.size

    def finish(self) -> Storing | None:
        if not self.results:
            return None
        assert self.origin.min() >= 0, "what is to be sent has not been computed"
        origin = self.base + self.layout.addresses
        origin[self.touched.numbers() % self.space - self.variable.first_element] = self.origin
        words = Selection(origin[self.layout.elements], self.layout.real)
        return Storing(self.variable, tuple(self.results), len(self.origin) < self.variable.size, words)


# --- compute sets and copies ------------------------------------------------------------------------------


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
    chosen = {which: made[which[0]].sources[which[1]] for which, want in wants.items() if want.numbers.size}
    for variables in _pools(list(chosen.values())):
        readers = [which for which, source in chosen.items() if set(source_variables(source)) & set(variables)]
        read = [wants[which].numbers for which in readers] if numbers.padding else []
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
            value = np.zeros(want.numbers.shape, made[k].sources[name].dtype)
            for code, padding in enumerate(numbers.padding):
                here = want.numbers == -1 - code
                if here.any():
                    value[here] = padding
            alike = value.reshape(*value.shape, *[1] * len(want.varying.extents))
            value = np.broadcast_to(alike, (*value.shape, *want.varying.extents))
            operands[k][name] = Operand(want.groups, None, None, want.varying.dimensions, value)

    stores: dict[Variable, _Store] = {}
    for k, (batch, lanes) in enumerate(zip(made, by_tile, strict=True)):
        everything = range(len(lanes.groups))
        for name in batch.writes:
            own = lanes.spread(batch.elements[name].listed(), everything)
            real = np.broadcast_to(lanes.real(everything, own.ndim - 1 - len(lanes.groups)), own.shape)
            for variable in source_variables(batch.sources[name]):
                if variable not in stores:
                    stores[variable] = _Store(variable, planned.after, layouts)
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
        words: where they are, in the view's shape.
    """

    variables: tuple[Variable, ...]
    padding: tuple[Any, ...]
    words: Selection


def plan_taking(tensor: Tensor, layouts: Layouts) -> Taking:
    """The elements of a view without symbols."""
    numbers = Numbers()
    own = numbers.of(tensor.source, tensor.index.values())
    variables = source_variables(tensor.source)
    padding = tuple(np.asarray(value, tensor.dtype) for value in numbers.padding)  # of one source, so of one dtype
    return Taking(variables, padding, Selection(layouts.flat(variables, own, padding)))


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


def plan_copy(step: CopyStep, layouts: Layouts) -> CopySet:
    """A copy, from where the source lives straight to where the destination does."""
    taking = plan_taking(step.source, layouts)
    size = sum(int(np.prod(layouts.of(v).shape)) for v in taking.variables) + len(taking.padding)
    puttings = plan_putting(step.destination, taking.words.positions, size, layouts)
    return CopySet(taking, tuple(puttings))
