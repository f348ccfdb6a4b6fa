"""Prices: the costs of vertices, and of steps of these, of many ways to cut them at once.

In come columns of sizes, `Ways` to cut a grid, and the bytes that tiles move and store; out come columns of cycles.
Each compute set is priced as `codelet/superstep.py` counts a step, for its fullest tile:

    sync and overhead     where anything moves
    exchange              what a tile receives that it alone does not read; what one tile alone reads, lives there
    launch and compute    its vertices, each of which takes what the target says of its codelet

The profile of the whole graph asks the same functions, with all that really moves. A codelet is traced once for many
sizes (`codelet/tracing/any_size.py`), and the target counts all of these at once (`codelet/tracing/cases.py`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
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

POINTER_BYTES = 4
"""What a vertex keeps for an edge: where it begins."""

Types = Mapping[str, tuple[Sequence[Any], Any]]
"""The shape and dtype of each input field of a vertex."""


@dataclass(frozen=True)
class StepCost:
    """The cost of one compute set of an operation.

    Attributes:
        name: of the compute set.
        num_vertices: of all tiles.
        num_tiles: that have any.
        sync: cycles of the synchronization before an exchange; 0 where nothing moves.
        exchange: cycles, with the fixed cost of each exchange.
        compute: cycles of the fullest tile, with the launch.
        tile_bytes: the most bytes on a tile while it runs: inputs, results, temporaries.
        there_bytes: of these, the bytes that lay on the tile before: they are not taken anew.
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
        return StepCost(self.name, *(int(getattr(self, column.name)[way]) for column in fields(self)[1:]))

    def of(self, ways: np.ndarray) -> StepCost:
        """It of some of several ways, by their numbers."""
        return StepCost(self.name, *(getattr(self, column.name)[ways] for column in fields(self)[1:]))

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.num_vertices:,} vertices on {self.num_tiles:,} tiles, "
            f"{self.sync + self.exchange:,} + {self.compute:,} cycles, {self.tile_bytes:,} bytes a tile"
        )


# --- vertices -------------------------------------------------------------------------------------------

_KNOWN: WeakKeyDictionary[Codelet, dict[Hashable, dict[Hashable, Any]]] = WeakKeyDictionary()
"""What vertices take, by all that it depends on; what they run is not kept, of which there are ten thousands."""


class VertexCosts:
    """The costs of vertices of a codelet, with some static values, by the types of their inputs."""

    def __init__(self, target: Target, codelet: Codelet, **static: object):
        self.target, self._traces = target, OfSizes(codelet, static)
        key = target, self._traces.keys, trace_settings()
        of_codelet = _KNOWN.setdefault(self._traces.codelet, {})
        self._known: dict[Hashable, Any] = of_codelet.setdefault(key, {})

    def of(self, inputs: Types) -> VertexCycles:
        """The cost of a vertex whose inputs have these types; sizes may be columns, int64, and then so are cycles."""
        self._traces.codelet.check_names(inputs)
        names = self._traces.codelet.inputs
        kinds = {name: (len(inputs[name][0]), np.dtype(inputs[name][1])) for name in names}
        columns = [size for name in names for size in inputs[name][0]]
        cases = next((len(column) for column in columns if isinstance(column, np.ndarray)), None)
        known = self._known.setdefault(tuple(kinds.items()), {})
        if cases is None:
            keys, places = [tuple(columns)], None
        else:
            sizes, places = _distinct(columns, cases)
            keys = list(map(tuple, sizes.T.tolist())) if columns else [()] * sizes.shape[1]
        if missing := [key for key in keys if key not in known]:
            asked = np.array(missing, np.int64).reshape(len(missing), len(columns)).T
            cycles = self._traces.of_each(kinds, asked, self._counted, 3)
            known.update(zip(missing, map(tuple, cycles.T.tolist()), strict=True))
        if places is None:
            worker, supervisor, shared = known[keys[0]]
            return VertexCycles(worker, supervisor, bool(shared))
        worker, supervisor, shared = np.array([known[key] for key in keys], np.int64).reshape(len(keys), 3).T
        return VertexCycles(worker[places], supervisor[places], bool(shared.any()))  # type: ignore[arg-type]

    def _counted(self, traced: TracedCodelet) -> tuple[int, int, bool]:
        vertex = self.target.estimate_cycles(traced)
        return vertex.worker, vertex.supervisor, vertex.shared


def _distinct(columns: Sequence[Any], cases: int) -> tuple[np.ndarray, np.ndarray]:
    """The cases that differ, int64 of shape (columns, different cases), and which of them each case is."""
    sizes = np.empty((len(columns), cases), np.int64)
    for row, column in zip(sizes, columns, strict=True):
        row[:] = column
    number, most = np.zeros(cases, np.int64), 1
    for row in sizes:
        extent = 1 + int(row.max(initial=0))
        if most * extent >= 1 << 62:
            distinct, places = np.unique(sizes, axis=1, return_inverse=True)
            return distinct, places.reshape(-1)
        number, most = number * extent + row, most * extent
    _, first, places = np.unique(number, return_index=True, return_inverse=True)
    return sizes[:, first], places


def grouped(target: Target, count: int, groups: Iterable[tuple[np.ndarray, VertexCycles]]) -> VertexCycles:
    """The costs of vertices, columns, where those of some ways, flagged, run another codelet than those of others.

    The cost of all workers of a tile together is a part of the other costs of the tile.
    """
    worker, supervisor = (np.zeros(count, np.int64) for _ in range(2))
    for flags, vertex in groups:
        worker[flags] = 0 if vertex.shared else vertex.worker
        supervisor[flags] = vertex.tile_cycles(target.num_workers) if vertex.shared else vertex.supervisor
    return VertexCycles(worker, supervisor)  # type: ignore[arg-type]


@functools.lru_cache(maxsize=256)
def _costs_of(
    target: Target, codelet: Codelet, static: tuple[tuple[str, Any], ...], _settings: Hashable
) -> VertexCosts:
    return VertexCosts(target, codelet, **dict(static))


def costs_of(target: Target, codelet: Codelet, **static: object) -> VertexCosts:
    """The costs of vertices of a codelet: the same object for the same codelet, static values and settings of JAX."""
    return _costs_of(target, codelet, tuple(static.items()), trace_settings())


def vertex_cycles(target: Target, codelet: Codelet, inputs: Types, **static: object) -> VertexCycles:
    """The cost of a vertex whose inputs have these types: see `VertexCosts.of`."""
    return VertexCosts(target, codelet, **static).of(inputs)


# --- steps ----------------------------------------------------------------------------------------------

Sizes = tuple[np.ndarray, ...]
"""The sizes of vertices along each dimension: columns over ways."""

Costs = Callable[[Any], VertexCycles]
"""What vertices take by their sizes along each dimension: numbers, or columns of these."""

Vertices = Callable[[Sizes, np.ndarray], VertexCycles]
"""What vertices of some sizes take, of ways of some numbers: columns."""


def by_group(target: Target, groups: np.ndarray, cost: Callable[[int, Sizes], VertexCycles]) -> Vertices:
    """The costs of vertices of ways that are in groups, by those of each group."""

    def of(sizes: Sizes, ways: np.ndarray) -> VertexCycles:
        numbers = groups[ways]
        flags = [(number, numbers == number) for number in dict.fromkeys(numbers.tolist())]
        each = ((flag, cost(number, tuple(size[flag] for size in sizes))) for number, flag in flags)
        return grouped(target, len(numbers), each)

    return of


def _tiles(ways: Ways) -> Iterator[list[tuple[Sizes, np.ndarray]]]:
    """The kinds of tiles that grids have: the sizes of the vertices of each, and how many it has of each size."""
    of_dimensions: list[list[list[tuple[np.ndarray, np.ndarray]]]] = []
    for extent, block, grain, parts in zip(ways.extents, ways.blocks, ways.grains, ways.parts, strict=True):
        last = extent - (parts - 1) * block
        kinds = (
            [np.minimum(block, np.maximum(1, extent)), last] if (last != block).any() and (parts > 1).any() else [last]
        )
        each = [[(grain, size // grain), (size % grain, np.minimum(1, size % grain))] for size in kinds]
        of_dimensions.append([[(size, n) for size, n in kind if n.any()] for kind in each])
    for kind in itertools.product(*of_dimensions):
        whole = [tuple(zip(*sizes, strict=True)) or ((), ()) for sizes in itertools.product(*kind)]
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
    """The cost of a compute set whose vertices are the blocks of a grid, by its fullest tile: of each way, columns.

    Args:
        target: the machine.
        name: of the compute set.
        ways: to cut the dimensions of the grid.
        vertex: the costs of vertices of some sizes.
        received_bytes: the most that a tile receives of others.
        tile_bytes: its memory: inputs, results, temporaries.
        sent_bytes: the most that a tile sends to others.
        there_bytes: the part of `tile_bytes` that lay on the tile before.
        others: vertices that it has besides, and how many of each.
        edges: whether tiles at the edges are counted too; else it is supposed that they take no longer.
    """
    compute = np.zeros(len(ways), np.int64)
    column = lambda number: np.broadcast_to(np.asarray(number, np.int64), compute.shape)  # noqa: E731
    beside = [(kind, column(n)) for kind, n in others]
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
    """The cost of vertices of several sizes, of those ways that have any of them."""
    if len(counts) == 1 and counts[0].all():
        return [vertex(sizes[0], np.arange(len(counts[0])))]
    flags = np.array(counts) > 0
    ways = np.nonzero(flags)[1]
    every = (np.array(column)[flags] for column in zip(*sizes, strict=True))
    cycles: Any = grouped(target, flags.size, [(flags.ravel(), vertex(tuple(every), ways))])
    pairs = zip(cycles.worker.reshape(flags.shape), cycles.supervisor.reshape(flags.shape), strict=True)
    return [VertexCycles(worker, supervisor) for worker, supervisor in pairs]


def step_cost(target: Target, name: str, cuts: Sequence[Cut], vertex: VertexCycles, **options: Any) -> StepCost:
    """The cost of a compute set whose vertices cost the
    same: see `step_costs`.
    """
    return step_costs(target, name, Ways.like([cuts]), lambda *_: vertex, **options).at(0)


def moved_cycles(target: Target, received_bytes: Any, tiles: Any, sent_bytes: Any = 0) -> Any:
    """Cycles of exchanges in which the fullest of the first `tiles` tiles moves so much, without the sync: columns."""
    received, sent = (-(-np.asarray(moved) // target.word_bytes) for moved in (received_bytes, sent_bytes))
    arrival = _arrival(target)[np.maximum(1, tiles) - 1]
    return exchange_cycles(Traffic(received, sent), target, arrival) + target.exchange_overhead_cycles


def least_to_move(target: Target) -> int:
    """Cycles that an exchange takes at least, however little moves: with the sync, and the way to the first tile."""
    return target.sync_cycles + target.exchange_overhead_cycles + int(_arrival(target)[0])
