"""Planning: of the ways to spread an operation over the tiles the one that takes the fewest cycles.

In come options: ways to cut the dimensions of an operation, each with a bound below its cycles and a function that
counts them. Out comes a `Plan`: the cheapest of those whose operands, results and temporaries fit a share of the tiles'
memory. Each compute set of an option is priced as `codelet/superstep.py` counts a step, for its fullest tile:

    sync and overhead     where anything moves
    exchange              what a tile receives that it alone does not read; what one tile alone reads, lives there
    launch and compute    its vertices, each of which takes what the target says of its codelet

The profile of the whole graph asks the same functions, with all that really moves.

Source: PopLibs plans convolutions and matrix products so (lib/poplin/ConvPlan.cpp), with 0.6 of a tile's memory.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from codelet.graphs.stages import Cut
from codelet.ops.ways import Ways
from codelet.superstep import Traffic, exchange_cycles, few_kinds_cycles
from codelet.target import Target, VertexCycles
from codelet.tracing.any_size import OfSizes
from codelet.tracing.codelets import Codelet
from codelet.tracing.statics import trace_settings
from codelet.tracing.traced_codelet import TracedCodelet

MEMORY_SHARE = 0.6
"""Of a tile's memory, what an operation may take: PopLibs' availableMemoryProportion."""

POINTER_BYTES = 4
"""What a vertex keeps for an edge: where it begins."""

Types = Mapping[str, tuple[Sequence[Any], Any]]
"""The shape and dtype of each input field of a vertex."""


@dataclass(frozen=True)
class StepCost:
    """What one compute set of an operation takes.

    Attributes:
        name: of the compute set.
        num_vertices: of all tiles.
        num_tiles: that have any.
        sync: cycles of the synchronization before an exchange; 0 where nothing moves.
        exchange: cycles, with what each exchange takes whatever it moves.
        compute: cycles of the fullest tile, with the launch.
        tile_bytes: what the fullest tile holds while it runs: inputs, results, temporaries.
        there_bytes: of these, what lay on the tile before: it is not taken anew.
    """

    name: str
    num_vertices: int
    num_tiles: int
    sync: int
    exchange: int
    compute: int
    tile_bytes: int
    there_bytes: int = field(default=0, compare=False)

    @property
    def cycles(self) -> int:
        """Of the whole step."""
        return self.sync + self.exchange + self.compute

    def at(self, way: int) -> StepCost:
        """It of one way, where it is of several: see `step_costs`."""
        return StepCost(self.name, *(int(getattr(self, own.name)[way]) for own in fields(self)[1:]))

    def of(self, ways: np.ndarray) -> StepCost:
        """It of some of several ways, by their numbers."""
        return StepCost(self.name, *(getattr(self, own.name)[ways] for own in fields(self)[1:]))

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.num_vertices:,} vertices on {self.num_tiles:,} tiles, "
            f"{self.sync + self.exchange:,} + {self.compute:,} cycles, {self.tile_bytes:,} bytes a tile"
        )


@dataclass(frozen=True)
class Plan:
    """How an operation is spread over the tiles, and what that costs.

    Attributes:
        operation: what is planned, with its sizes.
        cuts: of the dimensions.
        steps: what each compute set takes, in order.
        details: what else was chosen, by name.
        next_best: the next best of the other options; None where there was none.
        num_options: how many ways there were.
        parts: of an operation that consists of several which are planned, their plans; its steps are theirs.
    """

    operation: str
    cuts: tuple[Cut, ...]
    steps: tuple[StepCost, ...]
    details: tuple[tuple[str, object], ...] = ()
    next_best: Plan | None = field(default=None, compare=False)
    num_options: int = field(default=1, compare=False)
    parts: tuple[Plan, ...] = ()

    @property
    def total_cycles(self) -> int:
        """Of all steps."""
        return sum(step.cycles for step in self.steps)

    @property
    def exchange_cycles(self) -> int:
        """Of the exchanges of all steps, with the syncs before them."""
        return sum(step.sync + step.exchange for step in self.steps)

    @property
    def compute_cycles(self) -> int:
        """Of what all steps compute."""
        return sum(step.compute for step in self.steps)

    @property
    def tile_bytes(self) -> int:
        """What the fullest tile holds in any of the steps."""
        return max((step.tile_bytes for step in self.steps), default=0)

    def detail(self, name: str) -> object:
        """What was chosen under a name."""
        return dict(self.details)[name]

    def cut(self, name: str) -> Cut:
        """The cut of a dimension."""
        return next(cut for cut in self.cuts if cut.name == name)

    def choice_text(self) -> str:
        """What was chosen, in one line."""
        chosen = [*map(str, self.cuts), *(f"{name} {value}" for name, value in self.details)]
        return "; ".join(chosen)

    def __str__(self) -> str:
        lines = [
            f"plan of {self.operation}: {self.total_cycles:,} cycles, "
            f"{self.exchange_cycles:,} of exchange and {self.compute_cycles:,} of compute"
        ]
        if self.parts:
            return "\n".join([*lines, *("  " + str(part).replace("\n", "\n  ") for part in self.parts)])
        lines += [
            f"  {self.choice_text()}",
            *(f"  {step}" for step in self.steps[:8]),
            *([f"  and {len(self.steps) - 8} steps more"] if len(self.steps) > 8 else []),
        ]
        other = self.next_best
        if other is not None:
            lines.append(f"  next best of {self.num_options:,}: {other.total_cycles:,} cycles, {other.choice_text()}")
        return "\n".join(lines)


# --- prices ---------------------------------------------------------------------------------------------


_KNOWN: WeakKeyDictionary[Codelet, dict[Hashable, dict[Hashable, Any]]] = WeakKeyDictionary()
"""What vertices take, by all that it depends on; what they run is not kept, of which there are ten thousands."""


class VertexCosts:
    """What vertices of a codelet take, with some static values, by the types of their inputs."""

    def __init__(self, target: Target, codelet: Codelet, **static: object):
        self.target, self._traces = target, OfSizes(codelet, static)
        key = target, self._traces.keys, trace_settings()
        of_codelet = _KNOWN.setdefault(self._traces.codelet, {})
        self._known: dict[Hashable, Any] = of_codelet.setdefault(key, {})

    def of(self, inputs: Types) -> VertexCycles:
        """What a vertex takes whose inputs have these types; sizes may be columns, int64, and then so are cycles."""
        own = self._traces.codelet
        own.check_names(inputs)
        kinds = {name: (len(inputs[name][0]), np.dtype(inputs[name][1])) for name in own.inputs}
        columns = [size for name in own.inputs for size in inputs[name][0]]
        cases = next((len(column) for column in columns if isinstance(column, np.ndarray)), None)
        known = self._known.setdefault(tuple(kinds.items()), {})
        if cases is None:
            keys, places = [tuple(columns)], None
        else:
            sizes, places = _distinct(columns, cases)
            keys = list(map(tuple, sizes.T.tolist())) if columns else [()] * sizes.shape[1]
        if missing := [key for key in keys if key not in known]:
            asked = np.array(missing, np.int64).reshape(len(missing), len(columns)).T
            made = self._traces.of_each(kinds, asked, self._counted, 3)
            known.update(zip(missing, map(tuple, made.T.tolist()), strict=True))
        if places is None:
            worker, supervisor, shared = known[keys[0]]
            return VertexCycles(worker, supervisor, bool(shared))
        found = np.array([known[key] for key in keys], np.int64).reshape(len(keys), 3).T
        return VertexCycles(found[0][places], found[1][places], bool(keys and found[2, 0]))  # type: ignore[arg-type]

    def _counted(self, traced: TracedCodelet) -> tuple[int, int, bool]:
        own = self.target.estimate_cycles(traced)
        return own.worker, own.supervisor, own.shared


def _distinct(columns: Sequence[Any], cases: int) -> tuple[np.ndarray, np.ndarray]:
    """The cases that differ, int64 of shape (columns, different cases), and which of them each case is."""
    sizes = np.empty((len(columns), cases), np.int64)
    for row, column in zip(sizes, columns, strict=True):
        row[:] = column
    number, most = np.zeros(cases, np.int64), 1
    for row in sizes:
        extent = 1 + int(row.max(initial=0))
        if most * extent >= 1 << 62:
            found, places = np.unique(sizes, axis=1, return_inverse=True)
            return found, places.reshape(-1)
        number, most = number * extent + row, most * extent
    _, first, places = np.unique(number, return_index=True, return_inverse=True)
    return sizes[:, first], places


def grouped(target: Target, count: int, groups: Iterable[tuple[np.ndarray, VertexCycles]]) -> VertexCycles:
    """What vertices take, columns, where those of some ways, flagged, run another codelet than those of others.

    What all workers of a tile run together is a part of what the tile takes besides.
    """
    worker, supervisor = (np.zeros(count, np.int64) for _ in range(2))
    for flags, own in groups:
        worker[flags] = 0 if own.shared else own.worker
        supervisor[flags] = own.tile_cycles(target.num_workers) if own.shared else own.supervisor
    return VertexCycles(worker, supervisor)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)
def _costs_of(
    target: Target, codelet: Codelet, static: tuple[tuple[str, Any], ...], _settings: Hashable
) -> VertexCosts:
    return VertexCosts(target, codelet, **dict(static))


def costs_of(target: Target, codelet: Codelet, **static: object) -> VertexCosts:
    """What vertices of a codelet take: the same object for the same codelet, static values and settings of JAX."""
    return _costs_of(target, codelet, tuple(static.items()), trace_settings())


def vertex_cycles(target: Target, codelet: Codelet, inputs: Types, **static: object) -> VertexCycles:
    """What a vertex takes whose inputs have these types: see `VertexCosts.of`."""
    return VertexCosts(target, codelet, **static).of(inputs)


Sizes = tuple[np.ndarray, ...]
"""The sizes of vertices along each dimension: columns over ways."""

Costs = Callable[[Any], VertexCycles]
"""What vertices take by their sizes along each dimension: numbers, or columns of these."""

Vertices = Callable[[Sizes, np.ndarray], VertexCycles]
"""What vertices of some sizes take, of ways of some numbers: columns."""


def by_group(target: Target, groups: np.ndarray, cost: Callable[[int, Sizes], VertexCycles]) -> Vertices:
    """What vertices take of ways that are in groups, by what those of each group take."""

    def of(sizes: Sizes, ways: np.ndarray) -> VertexCycles:
        own = groups[ways]
        flags = [(number, own == number) for number in dict.fromkeys(own.tolist())]
        each = ((here, cost(number, tuple(size[here] for size in sizes))) for number, here in flags)
        return grouped(target, len(own), each)

    return of


def _tiles(ways: Ways) -> Iterator[list[tuple[Sizes, np.ndarray]]]:
    """The kinds of tiles that grids have: the sizes of the vertices of each, and how many it has of each size."""
    of_dimensions: list[list[list[tuple[np.ndarray, np.ndarray]]]] = []
    for extent, block, grain, parts in zip(ways.extents, ways.blocks, ways.grains, ways.parts, strict=True):
        last = extent - (parts - 1) * block
        kinds = (
            [np.minimum(block, np.maximum(1, extent)), last] if (last != block).any() and (parts > 1).any() else [last]
        )
        own = [[(grain, size // grain), (size % grain, np.minimum(1, size % grain))] for size in kinds]
        of_dimensions.append([[(size, n) for size, n in kind if n.any()] for kind in own])
    for kind in itertools.product(*of_dimensions):
        whole = [(tuple(size for size, _ in own), [n for _, n in own]) for own in itertools.product(*kind)]
        yield [(sizes, functools.reduce(np.multiply, counts, np.ones(len(ways), np.int64))) for sizes, counts in whole]


@functools.lru_cache(maxsize=16)
def _arrival(target: Target) -> np.ndarray:
    """How long words are under way to the farthest of the first tiles: of as many as there are, and of fewer."""
    return np.maximum.accumulate(target.arrival_cycles())


def step_costs(
    target: Target,
    name: str,
    ways: Ways,
    vertex: Vertices,
    *,
    received_bytes: Any,
    tile_bytes: Any,
    sent_bytes: Any = 0,
    there_bytes: Any = 0,
    others: Sequence[tuple[VertexCycles, Any]] = (),
    edges: bool = False,
) -> StepCost:
    """What a compute set takes whose vertices are the blocks of a grid, by its fullest tile: of each way, columns.

    Args:
        target: the machine.
        name: of the compute set.
        ways: to cut the dimensions of the grid.
        vertex: what vertices of some sizes take.
        received_bytes: what the fullest tile receives of others.
        tile_bytes: what it holds: inputs, results, temporaries.
        sent_bytes: what the fullest tile sends to others.
        there_bytes: what of `tile_bytes` lay on the tile before.
        others: vertices that it has besides, and how many of each.
        edges: whether tiles at the edges are counted too; else it is supposed that they take no longer.
    """
    compute = np.zeros(len(ways), np.int64)
    column = lambda given: np.broadcast_to(np.asarray(given, np.int64), compute.shape)  # noqa: E731
    beside = [(own, column(n)) for own, n in others]
    kinds = list(_tiles(ways)) if edges else [[(tuple(ways.grains), ways.vertices_of_tile.prod(axis=0))]]
    counts = [n for kind in kinds for _, n in kind]
    each = iter(
        zip(_of_any(target, vertex, [sizes for kind in kinds for sizes, _ in kind], counts), counts, strict=True)
    )
    for kind in kinds:
        placed = [*itertools.islice(each, len(kind)), *beside]
        compute = np.maximum(compute, few_kinds_cycles(placed, target.num_workers))
    tiles = ways.num_tiles
    count = ways.num_vertices + sum((n for _, n in beside), 0 * tiles) * tiles
    received = column(received_bytes)
    exchange = np.where(received > 0, moved_cycles(target, received, tiles, column(sent_bytes)), 0)
    sync = np.where(received > 0, target.sync_cycles, 0)
    columns = sync, exchange, compute + target.launch_cycles, column(tile_bytes), column(there_bytes)
    return StepCost(name, count, tiles, *columns)  # type: ignore[arg-type]


def _of_any(
    target: Target, vertex: Vertices, sizes: Sequence[Sizes], counts: Sequence[np.ndarray]
) -> list[VertexCycles]:
    """What vertices of several sizes take, of those ways that have any of them."""
    if len(counts) == 1 and counts[0].all():
        return [vertex(sizes[0], np.arange(len(counts[0])))]
    flags = np.array(counts) > 0
    ways = np.nonzero(flags)[1]
    every = (np.array(own)[flags] for own in zip(*sizes, strict=True))
    own = grouped(target, flags.size, [(flags.ravel(), vertex(tuple(every), ways))])
    pairs = zip(own.worker.reshape(flags.shape), own.supervisor.reshape(flags.shape), strict=True)  # type: ignore[attr-defined]
    return [VertexCycles(worker, supervisor) for worker, supervisor in pairs]


def step_cost(target: Target, name: str, cuts: Sequence[Cut], vertex: VertexCycles, **given: Any) -> StepCost:
    """What a compute set takes of which every vertex takes the same: see `step_costs`."""
    return step_costs(target, name, Ways.like([cuts]), lambda *_: vertex, **given).at(0)


def moved_cycles(target: Target, received_bytes: Any, tiles: Any, sent_bytes: Any = 0) -> Any:
    """Cycles of exchanges in which the fullest of the first `tiles` tiles moves so much, without the sync: columns."""
    received, sent = (-(-np.asarray(moved) // target.word_bytes) for moved in (received_bytes, sent_bytes))
    arrival = _arrival(target)[np.maximum(1, tiles) - 1]
    return exchange_cycles(Traffic(received, sent), target, arrival) + target.exchange_overhead_cycles


def least_to_move(target: Target) -> int:
    """Cycles that an exchange takes at least, however little moves: with the sync, and the way to the first tile."""
    return target.sync_cycles + target.exchange_overhead_cycles + int(_arrival(target)[0])


# --- the search: which blocks to try ----------------------------------------------------------------------


def block_sizes(extent: int, multiple: int = 1, most_parts: int | None = None) -> list[int]:
    """The sizes of blocks worth trying: for every number of parts the least that makes no more, the largest first.

    Args:
        extent: of the dimension.
        multiple: what a size is rounded up to a multiple of, where it is not all of the dimension.
        most_parts: into how many parts at most.

    >>> block_sizes(10)
    [10, 5, 4, 3, 2, 1]
    >>> block_sizes(100, multiple=16, most_parts=4)
    [100, 64, 48, 32]
    """
    sizes, parts = [max(1, extent)], 2
    while parts <= min(extent, most_parts or extent):
        least = -(-extent // parts)
        size = -(-least // multiple) * multiple
        if size < sizes[-1]:
            sizes.append(size)
        # The next number of parts whose blocks are smaller.
        parts = max(parts + 1, -(-extent // max(1, least - 1)) if least > 1 else extent + 1)
    return sizes


def combined(
    extents: Sequence[int], sizes: Sequence[Sequence[int]], most_tiles: int
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Blocks of all dimensions that are cut over so many tiles at most: of each dimension, a number for each way.

    Args:
        extents: of the dimensions.
        sizes: the blocks of each that are tried.
        most_tiles: over how many tiles, at most.

    Returns:
        The blocks, and over how many tiles each dimension is cut, int64; the last dimension goes fastest.
    """
    blocks = [np.array(own, np.int64) for own in sizes]
    parts = [-(-extent // own) for extent, own in zip(extents, blocks, strict=True)]
    tiles = functools.reduce(np.multiply.outer, parts, np.ones((), np.int64))
    chosen = np.unravel_index(np.flatnonzero(tiles <= most_tiles), tiles.shape)
    return tuple([own[k] for own, k in zip(each, chosen, strict=True)] for each in (blocks, parts))  # type: ignore[return-value]


def repeated(plan: Plan, turns: int, what: str) -> Plan:
    """A plan of what is done in several turns, one after another, from that of one turn.

    Args:
        plan: of one turn.
        turns: how many.
        what: a detail of the plan, under which their number is found.
    """
    steps = tuple(replace(step, name=f"{step.name} in turn {k + 1}") for k in range(turns) for step in plan.steps)
    other = None if plan.next_best is None else repeated(plan.next_best, turns, what)
    return replace(plan, steps=steps, details=(*plan.details, (what, turns)), next_best=other)


# --- the search -----------------------------------------------------------------------------------------

_TOGETHER = 16
"""Of so many ways at a time it is counted closely what they take."""

_MEMORY_STEPS = 32
"""What is over the memory is counted in such parts of a tile's: less than one is not worth a cycle."""


Steps = tuple[StepCost, ...]
"""What the compute sets of one way take, one after another."""


@dataclass(frozen=True, eq=False)
class Offers:
    """Ways to spread an operation, as columns: what all of them take is counted at once.

    Attributes:
        ways: to cut its dimensions.
        steps: what its compute sets take, columns.
        bounds: cycles that each takes at least: of equals, that of the least bound is the first.
        details: what else each chooses, by the number in `which`.
        which: int64 of shape (ways,).
        later_cycles: what it costs steps that follow, and are not planned here.
        finish: from the numbers of some ways and the steps of each to these and those that follow, as sums of partial
            results; None where none do.
        least_to_finish: cycles that those that follow take at least.
    """

    ways: Ways
    steps: Sequence[StepCost]
    bounds: np.ndarray
    details: Sequence[tuple[tuple[str, object], ...]]
    which: np.ndarray
    later_cycles: Any = 0
    finish: Callable[[Sequence[int], Sequence[Steps]], Sequence[Steps]] | None = None
    least_to_finish: Any = 0

    @property
    def cycles(self) -> np.ndarray:
        """Of all steps but those that follow, with what later ones cost."""
        return sum((own.cycles for own in self.steps), np.zeros(len(self.ways), np.int64)) + self.later_cycles

    def plans(self, operation: str, ways: Sequence[int]) -> list[Plan]:
        """The plans of some of them."""
        steps: Sequence[Steps] = [tuple(own.at(way) for own in self.steps) for way in ways]
        steps = steps if self.finish is None else self.finish(ways, steps)
        pairs = zip(ways, steps, strict=True)
        return [Plan(operation, self.ways.at(way), own, self.details[self.which[way]]) for way, own in pairs]


def beyond(target: Target, steps: Iterable[StepCost], memory_share: float = MEMORY_SHARE) -> Any:
    """By how much steps are over the memory: a number, or a column of these."""
    taken = functools.reduce(np.maximum, (own.tile_bytes - own.there_bytes for own in steps), np.int64(0))
    part = max(1, target.bytes_per_tile // _MEMORY_STEPS)
    return np.maximum(0, -(-(taken - int(memory_share * target.bytes_per_tile)) // part))


def best_of(operation: str, target: Target, offers: Offers, memory_share: float = MEMORY_SHARE) -> Plan:
    """The plan of the fewest cycles among those that fit the memory; where none does, of those that take least of it.

    Of equals it is the one on fewer tiles, then of fewer vertices, then of the least bound, then the first.

    Args:
        operation: what is planned, for print.
        target: the machine.
        offers: the ways there are; at least one.
        memory_share: of a tile's memory, what may be taken.
    """
    ways, count = offers.ways, len(offers.ways)
    least = offers.cycles + offers.least_to_finish
    places = np.empty((4, count))
    places[:] = [beyond(target, offers.steps, memory_share) + 0 * least, least, ways.num_tiles, ways.num_vertices]
    later = np.zeros(count, np.int64) + offers.later_cycles
    best: list[tuple[tuple[float, ...], Plan]] = []  # the two best so far
    order = np.lexsort((offers.bounds, *places[::-1]))
    together = _TOGETHER if offers.finish is not None else 2
    for first in range(0, count, together):
        chunk = order[first : first + together]
        if len(best) == 2:
            chunk = [way for way in chunk if tuple(places[:, way]) <= best[1][0]]
        if not len(chunk):
            break
        for way, plan in zip(chunk, offers.plans(operation, list(map(int, chunk))), strict=True):
            place = beyond(target, plan.steps, memory_share), later[way] + plan.total_cycles, *places[2:, way]
            best = sorted([*best, (place, plan)], key=lambda entry: entry[0])[:2]
    return replace(best[0][1], next_best=best[1][1] if best[1:] else None, num_options=count)


@dataclass(frozen=True)
class Option:
    """A way to spread an operation, of which others are not counted with it.

    Attributes:
        cuts: of its dimensions.
        bound: cycles that it takes at least.
        price: what its compute sets take, one after another; asked only where the bound does not rule it out.
        details: what else it chooses.
    """

    cuts: tuple[Cut, ...]
    bound: float
    price: Callable[[], Iterable[StepCost]]
    details: tuple[tuple[str, object], ...] = ()


def cheapest(operation: str, target: Target, options: Iterable[Option], memory_share: float = MEMORY_SHARE) -> Plan:
    """`best_of` of some options, at least one, each of which is counted by itself."""
    own = list(options)
    ways, bounds = Ways.like([option.cuts for option in own]), np.array([option.bound for option in own])
    details, finish = [option.details for option in own], lambda ways, _: [tuple(own[k].price()) for k in ways]
    offers = Offers(ways, [], bounds, details, np.arange(len(own)), finish=finish, least_to_finish=bounds)
    return best_of(operation, target, offers, memory_share)
