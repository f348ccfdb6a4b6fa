"""The hypergraph of a program: what shares data, and so belongs on one tile.

In comes a plan without calls. Out come units, which are placed whole, and nets. A net is a stretch of elements that no
vertex reads or writes in part; its pins are the units that read it, and the unit that writes it is its home. So an
element that many vertices read is one net, as it is sent once, not many links. What each compute set reads is counted
for itself, with how often it runs in a run of the program.

A unit is a vertex, or several that exchange data only with each other: a vertex whose results one other vertex alone
reads joins it, so that chained compute sets over one table agree.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from codelet.graphs.family import Family
from codelet.graphs.vertex_cycles import family_cycles
from codelet.target import Target
from codelet.views.affine import Table
from lowering.machine.balance import load_of
from lowering.machine.element_tiles import ElementTiles, in_order
from lowering.machine.placement import Placement, num_elements
from lowering.machine.placer import tiles_in_order
from lowering.machine.touched import Touches
from lowering.plan.components import components
from lowering.plan.plan import Plan
from lowering.plan.runs import Runs, each_once
from lowering.plan.steps import CopyStep, ExecuteStep
from lowering.plan.timeline import timeline

MOST_PINS = 1 << 25
"""A plan with more reads than this is not partitioned: it would take minutes and gigabytes."""

_SHARE = 0.1
"""A plan is irregular where this share of what its vertices read is read through scattered tables."""

_BENDS = 4
"""How often the slope of a table changes that is not scattered: each wrap around changes it twice."""

_JOINED = 0.125
"""What is joined to one unit takes at most this share of an even tile's cycles."""


@dataclass(frozen=True)
class RepeatedSet:
    """The compute sets that run the same families.

    Attributes:
        families: what they run.
        turns: how often, in a run of the program.
    """

    families: tuple[Family, ...]
    turns: int


@dataclass(frozen=True, eq=False)
class Hypergraph:
    """Units and nets of a plan. Pins are sorted by net, then by work and unit, each there once.

    Attributes:
        plan: the plan, without calls.
        works: its compute sets.
        firsts: the number of the first vertex of each family.
        unit_of: the unit of each vertex, int64.
        num_units: how many units there are.
        fixed: the tile of each unit that is placed by hand, -1 for others: int32.
        net_starts: the graph's number of the first element of each net.
        net_stops: one more than that of the last.
        net_bytes: bytes of each net, int64.
        homes: the unit that writes each net, -1 where none does.
        home_tiles: the tile on which each net lies by hand, -1 where it is open.
        pin_nets: the net of each pin.
        pin_works: the number of the compute set that reads it.
        pin_units: the unit that does.
    """

    plan: Plan
    works: tuple[RepeatedSet, ...]
    firsts: Mapping[Family, int]
    unit_of: np.ndarray
    num_units: int
    fixed: np.ndarray
    net_starts: np.ndarray
    net_stops: np.ndarray
    net_bytes: np.ndarray
    homes: np.ndarray
    home_tiles: np.ndarray
    pin_nets: np.ndarray
    pin_works: np.ndarray
    pin_units: np.ndarray

    @functools.cached_property
    def turns(self) -> np.ndarray:
        """How often each compute set runs, int64."""
        return np.array([work.turns for work in self.works], np.int64)

    @functools.cached_property
    def unit_loads(self) -> np.ndarray:
        """Cycles of each unit in a run of the program, float64."""
        loads = np.zeros(self.num_units)
        for family, each in _vertex_loads(self.works, self.plan.graph.target):
            loads += np.bincount(self.units_of(family), each, self.num_units)
        return loads

    @functools.cached_property
    def pin_weights(self) -> np.ndarray:
        """Bytes that each pin receives in a run of the program, where its net lives elsewhere: int64."""
        return self.net_bytes[self.pin_nets] * self.turns[self.pin_works]

    def units_of(self, family: Family) -> np.ndarray:
        """The unit of each vertex of a family."""
        first = self.firsts[family]
        return self.unit_of[first : first + family.num_vertices]


# --- which plans are irregular --------------------------------------------------------------------------


def _is_scattered(table: Table) -> bool:
    """True if a table is more than a few stretches that rise evenly: what wraps around, or stops at an edge, is not."""
    values = table.values.reshape(-1)
    bends = (np.count_nonzero(np.diff(own.astype(np.int64), 2)) for own in (values[:4096], values))
    return any(count > _BENDS for count in bends)


def _reads(family: Family) -> tuple[int, int]:
    """About how many stretches the vertices of a family read: in all, and through scattered tables or ragged rows."""
    every = tabled = 0
    for field in family.fields:
        tensor = field.tensor
        if tensor is None or not tensor.size or not field.is_read:
            continue
        if tensor.rows is not None:
            count = tensor.rows.total
            tabled += count
        else:
            keys = {key for table in tensor.index.tables for key in table.keys if isinstance(key, int)}
            inner = tensor.index.shape[-1] if tensor.ndim and tensor.index.strides[-1] == 1 else 1
            is_tabled = any(map(_is_scattered, tensor.index.tables))
            strided = tensor.size // max(1, inner)
            count = family.num_vertices * max(1, strided if keys or not is_tabled else 1)
            tabled += count * is_tabled
        every += count
    return every, tabled


def is_irregular(plan: Plan) -> bool:
    """True if the vertices of a plan read through scattered tables, and few enough for it to be partitioned."""
    counts = [_reads(family) for family in plan.families]
    every, tabled = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    return 0 < every <= MOST_PINS and tabled >= _SHARE * every


# --- what is read and written -----------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _TouchedStretches:
    """Stretches of elements that vertices touch: arrays of one length."""

    vertices: np.ndarray
    starts: np.ndarray
    stops: np.ndarray
    work: int


def _touched(touches: Touches, work: int, families: Sequence[Family], *, written: bool) -> list[_TouchedStretches]:
    found, count = [], max(1, touches.num_elements)
    for family in families:
        for field in family.fields:
            if field.tensor is None or not field.tensor.size or not family.num_vertices:
                continue
            if field.is_written if written else field.is_read:
                runs = touches.by_family(family, field.tensor)
                vertices, starts = np.divmod(runs.starts, count)
                found.append(_TouchedStretches(vertices, starts, starts + runs.lengths, work))
    return found


def _copied(
    plan: Plan, works: int, vertices: int, cuts: np.ndarray
) -> tuple[list[_TouchedStretches], list[_TouchedStretches], int]:
    """Whole variables that are copied, as vertices that read and write a net each: reads, writes, and how many."""
    reads, writes = [], []
    for moment in timeline(plan).moments:
        if isinstance(moment.step, CopyStep) and moment.step.whole_variables is not None:
            source, to = moment.step.whole_variables
            ends = np.flatnonzero(
                cuts[source.first_element :][: source.size + 1] | cuts[to.first_element :][: to.size + 1]
            )
            if len(ends) < 2:
                continue
            numbers = vertices + np.arange(len(ends) - 1)
            vertices += len(numbers)
            for variable, found in ((source, reads), (to, writes)):
                cuts[variable.first_element + ends] = True
                found.append(
                    _TouchedStretches(
                        numbers, variable.first_element + ends[:-1], variable.first_element + ends[1:], works
                    )
                )
    return reads, writes, vertices


def _pins(touched: Sequence[_TouchedStretches], rank: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Nets, works and vertices of what is touched, each net of a stretch for itself."""
    nets, works, vertices = [], [], []
    for own in touched:
        runs = Runs(rank[own.starts], rank[own.stops])
        nets.append(runs.numbers())
        vertices.append(np.repeat(own.vertices, runs.lengths))
        works.append(np.full(len(nets[-1]), own.work, np.int64))
    if not nets:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    return np.concatenate(nets), np.concatenate(works), np.concatenate(vertices)


# --- what is joined ---------------------------------------------------------------------------------------


def _only(keys: np.ndarray, values: np.ndarray, count: int) -> np.ndarray:
    """The value of each key that has the same in all its entries, else -1."""
    low, high = np.full(count, np.iinfo(np.int64).max), np.full(count, -1)
    np.minimum.at(low, keys, values)
    np.maximum.at(high, keys, values)
    return np.where(low == high, high, -1)


def _joined(
    nets: np.ndarray, vertices: np.ndarray, writers: np.ndarray, loads: np.ndarray, fixed: np.ndarray, most: float
) -> np.ndarray:
    """The unit of each vertex: joined are those whose results only one other unit reads, or that read only one's.

    Args:
        nets: that are read.
        vertices: that read them.
        writers: of each net, or -1.
        loads: cycles of each vertex.
        fixed: their tiles by hand, or -1.
        most: cycles that joined vertices may have together.
    """
    count = len(loads)
    unit_of = np.arange(count)
    written = writers[nets] >= 0
    readers, sources = vertices[written], writers[nets[written]]
    for _ in range(4):
        ends, others = unit_of[readers], unit_of[sources]
        apart = ends != others
        ends, others = ends[apart], others[apart]
        only_reader, only_writer = _only(others, ends, count), _only(ends, others, count)
        # What is read by one alone joins it; then what reads of one alone.
        pairs = []
        for known in (only_reader, only_writer):
            (own,) = np.nonzero(known >= 0)
            pairs.append((own, known[own]))
        before = unit_of
        for own, to in pairs:
            labels = components(own, to, count)[unit_of]
            sums = np.bincount(labels, loads, count)
            tiles = _only(labels[fixed >= 0], fixed[fixed >= 0], count)
            has_fixed = np.zeros(count, bool)
            has_fixed[labels[fixed >= 0]] = True
            fine = (sums <= most) & ~(has_fixed & (tiles < 0))
            unit_of = np.where(fine[labels], labels, unit_of)
        if np.array_equal(before, unit_of):
            break
    _, numbers = np.unique(unit_of, return_inverse=True)
    return numbers.reshape(-1)


# --- all -----------------------------------------------------------------------------------------------


def _works(plan: Plan) -> tuple[RepeatedSet, ...]:
    turns: dict[tuple[Family, ...], int] = {}
    for moment in timeline(plan).moments:
        if isinstance(moment.step, ExecuteStep):
            turns[moment.step.families] = turns.get(moment.step.families, 0) + moment.turns
    return tuple(RepeatedSet(families, count) for families, count in turns.items())


def _net_sizes(plan: Plan, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
    variables = in_order(plan.variables)
    firsts = np.array([own.first_element for own in variables], np.int64)
    sizes = np.array([own.dtype.itemsize for own in variables], np.int64)
    return (stops - starts) * sizes[np.maximum(np.searchsorted(firsts, starts, side="right") - 1, 0)]


def _cuts(plan: Plan, touched: Sequence[_TouchedStretches], tiles: np.ndarray, count: int) -> np.ndarray:
    """Flags of the elements at which a net begins: where something is touched, or lies, that the one before is not.

    Args:
        plan: of which.
        touched: what its vertices read and write.
        tiles: those that elements were given, -1 for none; empty where none was.
        count: of vertices.
    """
    cuts = np.zeros(num_elements(plan) + 2, bool)
    for stretches in touched:
        cuts[stretches.starts] = cuts[stretches.stops] = True
    cuts[np.flatnonzero(tiles[1:] != tiles[:-1]) + 1] = True
    for variable in plan.variables:
        # Rows may live apart, though the same vertices read several: as many at most as there are vertices.
        rows, first = variable.shape[0] if variable.shape else 1, variable.first_element
        if 1 < rows <= count and variable.size:
            cuts[first : first + variable.size : variable.size // rows] = True
            cuts[first + variable.size] = True
    return cuts


def _vertex_loads(works: Sequence[RepeatedSet], target: Target) -> Iterator[tuple[Family, np.ndarray]]:
    """Families of compute sets with the cycles of each vertex in a run of the program, if workers are never idle."""
    for work in works:
        for family in work.families:
            each = family_cycles(family, target).of_each(family.num_vertices, load_of(target.num_workers))
            yield family, work.turns * each


def _loads_and_tiles(
    plan: Plan, works: Sequence[RepeatedSet], numbers: Mapping[Family, np.ndarray], count: int
) -> tuple[np.ndarray, np.ndarray]:
    """Cycles of each vertex in a run of the program, and the tile that it was given, -1 for none."""
    target = plan.graph.target
    loads, fixed = np.zeros(count), np.full(count, -1, np.int32)
    for family, each in _vertex_loads(works, target):
        loads[numbers[family]] += each
    for family, vertices in numbers.items():
        if family.tile is not None:
            fixed[vertices] = tiles_in_order(family, target)
    return loads, fixed


def hypergraph_of(plan: Plan, *, join: bool = True) -> Hypergraph | None:
    """The hypergraph of an irregular plan; `None` of a regular one, or of one that is too large.

    Args:
        plan: without calls.
        join: whether vertices that exchange data with each other alone are one unit.

    Raises:
        CyclesError: a codelet's own `cycles=` fails.
    """
    if not is_irregular(plan):
        return None
    works, total = _works(plan), num_elements(plan)
    if not works:
        return None
    firsts: dict[Family, int] = {}
    count = 0
    for family in plan.families:
        firsts[family] = count
        count += family.num_vertices
    numbers = {f: np.arange(first, first + f.num_vertices) for f, first in firsts.items()}
    touches = Touches(Placement(plan, count, ElementTiles(total, {}, np.int8), numbers))
    reads, writes = (
        [own for k, work in enumerate(works) for own in _touched(touches, k, work.families, written=written)]
        for written in (False, True)
    )
    tiles = plan.graph.element_tiles[:total] if plan.graph.has_tile_mapping else np.full(0, -1, np.int32)
    cuts = _cuts(plan, (*reads, *writes), tiles, count)
    copy_reads, copy_writes, num_vertices = _copied(plan, len(works), count, cuts)
    rank = np.cumsum(cuts, dtype=np.int32 if total < 2**31 else np.int64) - 1
    net_starts = np.flatnonzero(cuts)
    net_stops = np.append(net_starts[1:], total)
    written_nets, _, writing = _pins([*writes, *copy_writes], rank)
    writers = np.full(len(net_starts), -1)
    writers[written_nets[::-1]] = writing[::-1]  # of several the first
    nets, pin_works, vertices = _pins([*reads, *copy_reads], rank)
    # A second writer sends what it writes home, as a reader receives it.
    again = writers[written_nets] != writing
    nets, vertices = np.concatenate([nets, written_nets[again]]), np.concatenate([vertices, writing[again]])
    pin_works = np.concatenate([pin_works, np.zeros(int(again.sum()), np.int64)])
    if len(nets) > 2 * MOST_PINS:
        return None
    loads, fixed = _loads_and_tiles(plan, works, numbers, num_vertices)
    most = max(_JOINED * loads.sum() / plan.graph.target.num_tiles, 1.0)
    unit_of = _joined(nets, vertices, writers, loads, fixed, most) if join else np.arange(num_vertices)
    num_units = int(unit_of.max(initial=-1)) + 1
    fixed_units = np.full(num_units, -1, np.int32)
    fixed_units[unit_of[fixed >= 0]] = fixed[fixed >= 0]
    homes = np.where(writers >= 0, unit_of[writers], -1)
    # Each pin once: copies count as one more compute set, of no cycles.
    copied = sum(moment.turns for moment in timeline(plan).moments if isinstance(moment.step, CopyStep))
    if copy_reads:
        works = (*works, RepeatedSet((), copied))
    turns = len(works)
    keys = each_once((nets * turns + pin_works) * num_units + unit_of[vertices])
    rest, pin_units = np.divmod(keys, num_units)
    pin_nets, pin_works = np.divmod(rest, turns)
    home_tiles = np.full(len(net_starts), -1, np.int32)
    inside = net_starts < len(tiles)
    home_tiles[inside] = tiles[net_starts[inside]]
    return Hypergraph(
        plan, works, firsts, unit_of, num_units, fixed_units, net_starts, net_stops,
        _net_sizes(plan, net_starts, net_stops), homes, home_tiles, pin_nets, pin_works, pin_units,
    )  # fmt: skip
