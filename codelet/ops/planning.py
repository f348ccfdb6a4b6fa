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
import math
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from weakref import WeakKeyDictionary

import numpy as np

from codelet.graphs.stages import Cut
from codelet.ops.blocks import num_tiles, num_vertices
from codelet.superstep import PlacedVertices, Traffic, exchange_cycles, tile_cycles
from codelet.target import FamilyCycles, Target, VertexCycles
from codelet.tracing.any_size import OfSizes
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import FieldType
from codelet.tracing.statics import trace_settings

MEMORY_SHARE = 0.6
"""Of a tile's memory, what an operation may take: PopLibs' availableMemoryProportion."""

POINTER_BYTES = 4
"""What a vertex keeps for an edge: where it begins."""

Types = Mapping[str, tuple[Sequence[int], object]]
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


_KNOWN: WeakKeyDictionary[Codelet, dict[Hashable, dict[Hashable, VertexCycles]]] = WeakKeyDictionary()
"""What vertices take, by all that it depends on; what they run is not kept, of which there are ten thousands."""


class VertexCosts:
    """What vertices of a codelet take, with some static values, by the types of their inputs."""

    def __init__(self, target: Target, codelet: Codelet, **static: object):
        self.target, self._traces = target, OfSizes(codelet, static)
        key = target, self._traces.keys, trace_settings()
        of_codelet = _KNOWN.setdefault(self._traces.codelet, {})
        self._known: dict[Hashable, VertexCycles] = of_codelet.setdefault(key, {})

    def of(self, inputs: Types) -> VertexCycles:
        """What a vertex takes whose inputs have these types."""
        types = {name: FieldType(tuple(shape), np.dtype(dtype)) for name, (shape, dtype) in inputs.items()}  # type: ignore[call-overload]
        key = tuple(types.items())
        if key not in self._known:
            self._known[key] = self.target.estimate_cycles(self._traces.traced(types))
        return self._known[key]


def vertex_cycles(target: Target, codelet: Codelet, inputs: Types, **static: object) -> VertexCycles:
    """What a vertex takes whose inputs have these types."""
    return VertexCosts(target, codelet, **static).of(inputs)


def _tiles(cuts: Sequence[Cut]) -> Iterator[list[tuple[tuple[int, ...], int]]]:
    """The kinds of tiles that a grid has: the sizes of the vertices of each, and how many it has of each size."""
    of_cuts: list[list[list[tuple[int, int]]]] = []
    for cut in cuts:
        blocks = {min(cut.block, cut.extent), cut.extent - (cut.parts - 1) * cut.block}
        sizes = [[(cut.grain, block // cut.grain), (block % cut.grain, 1)] for block in sorted(blocks, reverse=True)]
        of_cuts.append([[(size, n) for size, n in own if size and n] for own in sizes])
    for kind in itertools.product(*of_cuts):
        yield [(tuple(size for size, _ in own), math.prod(n for _, n in own)) for own in itertools.product(*kind)]


@functools.lru_cache(maxsize=1 << 16)
def _computed(target: Target, vertices: tuple[tuple[VertexCycles, int], ...]) -> int:
    """What a tile takes for some vertices, so many of each, with the launch."""
    if len(vertices) == 1 and vertices[0][1]:
        [(own, n)] = vertices
        alone, each = (own.tile_cycles(target.num_workers), 0) if own.shared else (own.supervisor, own.worker)
        return target.launch_cycles + n * alone + -(-n // target.num_workers) * target.num_workers * each
    placed = [PlacedVertices(np.zeros(n, np.int64), FamilyCycles((own,))) for own, n in vertices]
    return int(tile_cycles(placed, 1, target.num_workers, target.launch_cycles)[0])


@functools.lru_cache(maxsize=1 << 12)
def _arrival(target: Target, tiles: int) -> np.ndarray:
    """How long words are under way to the farthest of the first tiles."""
    return target.arrival_cycles()[: max(1, tiles)].max(keepdims=True)


def step_cost(
    target: Target,
    name: str,
    cuts: Sequence[Cut],
    vertex: VertexCycles,
    *,
    received_bytes: int,
    tile_bytes: int,
    sent_bytes: int = 0,
    others: Sequence[tuple[VertexCycles, int]] = (),
    at_edges: Callable[[tuple[int, ...]], VertexCycles] | None = None,
) -> StepCost:
    """What a compute set takes whose vertices are the blocks of a grid, by its fullest tile.

    Args:
        target: the machine.
        name: of the compute set.
        cuts: of the dimensions of the grid.
        vertex: what a vertex of full size takes.
        received_bytes: what the fullest tile receives of others.
        tile_bytes: what it holds: inputs, results, temporaries.
        sent_bytes: what the fullest tile sends to others.
        others: vertices that it has besides, and how many of each.
        at_edges: what a vertex of another size takes, by which tiles at the edges are counted too; None to suppose that
            they take no longer.
    """
    tiles, of_tile = num_tiles(cuts), math.prod(cut.vertices_of_tile for cut in cuts)
    kinds = [((vertex, of_tile),)]
    if at_edges is not None:
        full = tuple(cut.grain for cut in cuts)
        kinds = [tuple((vertex if size == full else at_edges(size), n) for size, n in kind) for kind in _tiles(cuts)]
    compute = max((_computed(target, (*kind, *others)) for kind in kinds), default=0)
    count = num_vertices(cuts) + sum(n for _, n in others) * tiles
    if not received_bytes:
        return StepCost(name, count, tiles, 0, 0, compute, tile_bytes)
    exchange = moved_cycles(target, received_bytes, tiles, sent_bytes)
    return StepCost(name, count, tiles, target.sync_cycles, exchange, compute, tile_bytes)


@functools.lru_cache(maxsize=1 << 14)
def moved_cycles(target: Target, received_bytes: int, tiles: int, sent_bytes: int = 0) -> int:
    """Cycles of an exchange in which the fullest of the first `tiles` tiles moves so much, without the sync."""
    received, sent = (np.array([-(-moved // target.word_bytes)]) for moved in (received_bytes, sent_bytes))
    traffic = Traffic(received, sent)
    return int(exchange_cycles(traffic, target, _arrival(target, tiles))[0]) + target.exchange_overhead_cycles


def least_to_move(target: Target) -> int:
    """Cycles that an exchange takes at least, however little moves: with the sync, and the way to the first tile."""
    return target.sync_cycles + target.exchange_overhead_cycles + int(_arrival(target, 1)[0])


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


@dataclass(frozen=True)
class Option:
    """A way to spread an operation.

    Attributes:
        cuts: of its dimensions.
        bound: cycles that it takes at least.
        price: what its compute sets take, one after another; asked only where the bound does not rule it out, and no
            further than until those so far do.
        details: what else it chooses.
        refine: counts them more closely, asked only of those that may be the best; None where `price` does.
        later_cycles: what it costs steps that follow, and are not planned here.
    """

    cuts: tuple[Cut, ...]
    bound: float
    price: Callable[[], Iterable[StepCost]]
    details: tuple[tuple[str, object], ...] = ()
    refine: Callable[[], Iterable[StepCost]] | None = None
    later_cycles: int = 0


_MEMORY_STEPS = 32
"""What is over the memory is counted in such parts of a tile's: less than one is not worth a cycle."""


def cheapest(operation: str, target: Target, options: Iterable[Option], memory_share: float = MEMORY_SHARE) -> Plan:
    """The plan of the fewest cycles among those that fit the memory; where none does, of those that take least of it.

    Of equals it is the one on fewer tiles, then of fewer vertices, then the first.

    Args:
        operation: what is planned, for print.
        target: the machine.
        options: the ways there are; at least one.
        memory_share: of a tile's memory, what may be taken.
    """
    ordered = sorted(options, key=lambda option: option.bound + option.later_cycles)
    memory, step = int(memory_share * target.bytes_per_tile), max(1, target.bytes_per_tile // _MEMORY_STEPS)
    best: list[tuple[tuple[int, ...], Plan]] = []  # the two best so far

    def counted(option: Option, steps: Iterable[StepCost]) -> tuple[tuple[int, ...], Plan] | None:
        """An option with the steps that it takes, and its place among others; None where two are better."""
        sizes, taken = (num_tiles(option.cuts), num_vertices(option.cuts)), []
        cycles, tile_bytes, place = option.later_cycles, 0, (0,)
        for own in steps:
            taken.append(own)
            cycles, tile_bytes = cycles + own.cycles, max(tile_bytes, own.tile_bytes - own.there_bytes)
            place = (max(0, -(-(tile_bytes - memory) // step)), cycles, *sizes)
            if len(best) == 2 and place >= best[1][0]:
                return None
        return place, Plan(operation, option.cuts, tuple(taken), option.details)

    for option in ordered:
        if len(best) == 2 and not best[1][0][0] and option.bound + option.later_cycles > best[1][0][1]:
            break
        found = counted(option, option.price())
        if found is not None and option.refine is not None:
            found = counted(option, option.refine())
        if found is not None:
            best = sorted([*best, found], key=lambda entry: entry[0])[:2]
    return replace(best[0][1], next_best=best[1][1] if best[1:] else None, num_options=len(ordered))
