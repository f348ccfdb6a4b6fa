"""The planner of gathers and scatters: how the operand and the indices are cut over tiles and vertices.

An index is known only at run time, so that a tile that looks up elements must have all possible ones. The operand is
not cut along the indexed dimension, but the columns beside it are, and the indices. Of indices that are cut over tiles
each tile receives the columns that others look up too; of columns that are cut each receives all the indices. A scatter
writes the operand: it cuts the indices only where it adds to zeros, and sums the results of tiles thereafter.

Where the rows of a column are more than a tile's memory takes they are cut as well. A tile checks which indices are for
its rows, and the results are summed over the blocks of rows, all but one of which give zeros. Every block goes through
all the indices. So it saves cycles only where the rows themselves have to be sent, as those of a batch, or made, as
those of a gradient, which are mostly zero.

Source: PopLibs plans embeddings by the same splits, and one of the table's rows besides (lib/popops/DynamicSlice.cpp).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from codelet.graphs.stages import Cut
from codelet.ops.block_planning import plan_sum
from codelet.ops.blocks import cuts_of, num_tiles
from codelet.ops.lookup_codelets import laid_out
from codelet.ops.plan_cache import kept_on_disk
from codelet.ops.planning import MEMORY_FRACTION, Option, Plan, block_sizes, cheapest, is_uncut, uncut
from codelet.ops.prices import StepCost, moved_cycles, step_cost, vertex_cycles
from codelet.target import Target, VertexCycles
from codelet.tracing.codelets import Codelet

_CANDIDATES = 12
"""So many of the ways to cut over tiles, those of the least bounds, are looked at."""


@dataclass(frozen=True)
class Array:
    """A field of a vertex: its shape, and the cut dimensions (of `Lookup.names`) that some of its dimensions are."""

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype
    dimensions: tuple[tuple[int, int], ...]

    def block(self, sizes: tuple[int, ...]) -> tuple[int, ...]:
        """Its shape where the cut dimensions have some sizes."""
        own = dict(self.dimensions)
        return tuple(sizes[own[d]] if d in own else extent for d, extent in enumerate(self.shape))

    def num_bytes(self, sizes: tuple[int, ...]) -> int:
        """Of such a block."""
        return math.prod(self.block(sizes)) * self.dtype.itemsize


@dataclass(frozen=True)
class Lookup:
    """A gather or scatter, as far as its cost goes.

    Attributes:
        name: of the compute set.
        names: of the dimensions that may be cut.
        extents: of these.
        reads: the fields that are read.
        writes: the field that is written.
        static: the static values of its codelet, by name.
        count: how many indices each of whatever else is cut has to go through.
        by_rows: a codelet for blocks of rows, with the first for a field; None where rows may not be cut.
    """

    name: str
    names: tuple[str, ...]
    extents: tuple[int, ...]
    reads: tuple[Array, ...]
    writes: Array
    static: tuple[tuple[str, object], ...]
    count: int
    by_rows: Codelet | None = None

    def codelet(self, cuts: tuple[Cut, ...], whole: Codelet) -> Codelet:
        """The codelets of its vertices: `whole`, but for blocks of rows."""
        rows = self.num_blocks(cuts) > 1
        assert not rows or self.by_rows is not None
        return self.by_rows if rows and self.by_rows is not None else whole

    def num_blocks(self, cuts: tuple[Cut, ...]) -> int:
        """Into how many blocks rows are cut."""
        return next((cut.vertices for cut in cuts if cut.name == "rows"), 1)

    def num_partials(self, cuts: tuple[Cut, ...]) -> int:
        """How many partial results each element has that is written."""
        return math.prod(cuts[k].vertices for k in self.summed)

    @property
    def is_batched(self) -> bool:
        """Whether each of a batch is looked up in a separate table.

        Such a table is made by another step, as logits are whose labels are picked, and lies all over the tiles. It is
        sent, and the result that takes its place is for others. A table that all share is a parameter, which lives
        where it is looked up.
        """
        return "batch" in self.names

    @property
    def makes_rows(self) -> bool:
        """Whether rows are made, of zeros, and not changed."""
        return self.writes.name == "operand" and all(array.name != "operand" for array in self.reads)

    @property
    def summed(self) -> tuple[int, ...]:
        """The dimensions that may be cut and that the result has not: over their vertices it is summed."""
        kept = dict(self.writes.dimensions).values()
        return tuple(k for k in range(len(self.names)) if k not in kept)

    def __str__(self) -> str:
        arrays = ", ".join(f"{own.name} {own.dtype}{list(own.shape)}" for own in (*self.reads, self.writes))
        return f"{self.name}: {arrays}"


def columns_of(array: Array, cuts: Sequence[Cut]) -> list[int]:
    """The dimension of an array that columns are, where they are cut."""
    return [d for d, k in array.dimensions if cuts[k].name == "columns" and cuts[k].vertices > 1]


def rows_to_lay_out(own: Lookup, cuts: Sequence[Cut], num_tiles: int) -> tuple[int, Cut] | None:
    """The dimension along which the operand is cut to be laid out by columns first, and how; None if it is not."""
    array = own.reads[0]
    columns = columns_of(array, cuts) if array.name == "operand" else []
    before = [d for d, extent in enumerate(array.shape) if d not in columns and extent > 1]
    if not columns or not before:
        return None
    share = -(-array.shape[before[0]] // num_tiles)
    return before[0], Cut("rows", array.shape[before[0]], share, share)


def _sent(own: Lookup, cuts: tuple[Cut, ...]) -> int:
    """Bytes of partial results that the fullest tile has, and sends to those that add them up."""
    blocks = tuple(cut.block for cut in cuts)
    return math.prod(cuts[k].vertices_of_tile for k in own.summed) * own.writes.num_bytes(blocks)


def _held(target: Target, own: Lookup, cuts: tuple[Cut, ...]) -> int:
    """Bytes of the fullest tile: an operand laid out by columns lies there, and is received."""
    blocks = tuple(cut.block for cut in cuts)
    times = {"operand": 2} if rows_to_lay_out(own, cuts, target.num_tiles) is not None else {}
    read = sum(times.get(array.name, 1) * array.num_bytes(blocks) for array in own.reads)
    return read + _sent(own, cuts)


def _lay_out(target: Target, own: Lookup, cuts: tuple[Cut, ...]) -> list[StepCost]:
    """The cost of laying out the operand column by column, where its columns are cut."""
    found = rows_to_lay_out(own, cuts, target.num_tiles)
    if found is None:
        return []
    (d, rows), array = found, own.reads[0]
    block = tuple(rows.grain if k == d else extent for k, extent in enumerate(array.shape))
    vertex = vertex_cycles(target, laid_out, {"rows": (block, array.dtype)})
    held = 2 * math.prod(block) * array.dtype.itemsize
    return [step_cost(target, "lay out", [rows], vertex, received_bytes=0, tile_bytes=held)]


def _received(own: Lookup, array: Array, cuts: tuple[Cut, ...], moved: bool) -> int:
    shared = {k for _, k in array.dimensions}
    brought = moved or (array.name == "operand" and own.is_batched)
    if not brought and all(cuts[k].parts == 1 or k in shared for k in range(len(cuts))):
        return 0
    return array.num_bytes(tuple(cut.block for cut in cuts))


def _moved(own: Lookup, cuts: tuple[Cut, ...], laid_out: bool) -> int:
    """Bytes that the fullest tile receives, or sends of the result where that is for others."""
    received = sum(_received(own, array, cuts, laid_out and array.name == "operand") for array in own.reads)
    sends = own.writes.name == "operand" and (own.is_batched or (own.makes_rows and own.num_partials(cuts) == 1))
    return received + (own.writes.num_bytes(tuple(cut.block for cut in cuts)) if sends else 0)


def _vertex(target: Target, own: Lookup, codelet: Codelet, grains: tuple[int, ...]) -> VertexCycles:
    """The cost of a vertex that has so many of each dimension."""
    types = {array.name: (array.block(grains), array.dtype) for array in own.reads}
    types |= {"first": ((), np.dtype(np.int32))} if "first" in codelet.inputs else {}
    sizes = {"shape": own.writes.block(grains)} if "shape" in codelet.static else {}
    return vertex_cycles(target, codelet, types, **dict(own.static), **sizes)


def _least_of_sums(target: Target, own: Lookup, cuts: tuple[Cut, ...]) -> int:
    """A lower bound of adding up partial results: tiles receive shares, and add eight bytes a cycle."""
    num_bytes = own.num_partials(cuts) * own.writes.num_bytes(own.extents) / target.num_tiles
    fixed = target.sync_cycles + target.exchange_overhead_cycles + target.launch_cycles
    return int(fixed + max(num_bytes, _sent(own, cuts)) / target.exchange_bytes_per_cycle + num_bytes / 8)


def _price(target: Target, own: Lookup, codelet: Codelet, cuts: tuple[Cut, ...]) -> list[StepCost]:
    vertex = _vertex(target, own, own.codelet(cuts, codelet), tuple(cut.grain for cut in cuts))
    first = _lay_out(target, own, cuts)
    received = _moved(own, cuts, bool(first))
    held = _held(target, own, cuts)
    step = step_cost(target, own.name, cuts, vertex, received_bytes=received, tile_bytes=held)
    count = own.num_partials(cuts)
    if count == 1:
        return [*first, step]
    size, dtype = math.prod(own.writes.shape), own.writes.dtype
    add, *others = plan_sum(target, count, size, dtype, dtype).steps
    # The planner of sums supposes that all tiles send alike.
    exchange = max(add.exchange, int(moved_cycles(target, 0, add.num_tiles, _sent(own, cuts))))
    return [*first, step, replace(add, exchange=exchange), *others]


def _num_indices(own: Lookup, grains: Sequence[int]) -> float:
    """How many indices a vertex goes through that has so many of each dimension."""
    dimensions = zip(own.names, own.extents, grains, strict=True)
    return own.count * math.prod(n / extent for name, extent, n in dimensions if name not in ("columns", "rows"))


def _num_columns(own: Lookup, grains: Sequence[int]) -> int:
    """How many columns a vertex has, with so many of each dimension."""
    return dict(zip(own.names, grains, strict=True)).get("columns", 1)


@functools.lru_cache(maxsize=1024)
def _lines(target: Target, own: Lookup, codelet: Codelet) -> tuple[tuple[float, float, float], ...]:
    """The cost of vertices of two columns, and of all: the columns, cycles before the first index, and for each."""
    found = []
    for columns in (2, max(2, _num_columns(own, own.extents))):
        points = []
        for indices in (1, 2):
            most = {"rows": math.inf, "columns": columns}
            named = zip(own.names, own.extents, strict=True)
            grains = tuple(int(min(extent, most.get(name, indices))) for name, extent in named)
            points.append((_num_indices(own, grains), _vertex(target, own, codelet, grains).worker))
        (few, first), (more, second) = points
        each = (second - first) / (more - few) if more > few else 0.0
        found.append((columns, first - each * few, each))
    return tuple(found)


def _worker_cycles(target: Target, own: Lookup, codelet: Codelet, grains: Sequence[int]) -> float:
    """An estimate of a vertex that has so many of each
    dimension: between those of two columns, and of all.
    """
    (two, before, each), (every, before_all, each_all) = _lines(target, own, codelet)
    share = max(0.0, (_num_columns(own, grains) - two) / max(1, every - two))
    between = before + share * (before_all - before), each + share * (each_all - each)
    if own.makes_rows and "rows" in own.names:  # before the first index zeros are made
        k = own.names.index("rows")
        between = between[0] * grains[k] / own.extents[k], between[1]
    return between[0] + between[1] * _num_indices(own, grains)


def _bound(target: Target, own: Lookup, codelet: Codelet, cuts: tuple[Cut, ...]) -> float:
    """A rough lower bound: the exchange, the compute of a tile's workers, and the sums."""
    moved = _moved(own, cuts, False)
    fixed = target.sync_cycles + target.exchange_overhead_cycles if moved else 0
    turns = -(-math.prod(cut.vertices_of_tile for cut in cuts) // target.num_workers)
    vertex = _worker_cycles(target, own, codelet, [cut.grain for cut in cuts])
    computed = target.launch_cycles + target.num_workers * turns * vertex
    sums = _least_of_sums(target, own, cuts) if own.num_partials(cuts) > 1 else 0
    return fixed + moved / target.exchange_bytes_per_cycle + computed + sums


def _sizes(target: Target, own: Lookup, blocks: int) -> Iterator[tuple[int, ...]]:
    """Blocks of tiles: the sizes worth trying that are not near another, of rows so many."""
    tiles = target.num_tiles
    choices = []
    for name, extent in zip(own.names, own.extents, strict=True):
        if name == "rows":
            choices.append([-(-extent // blocks)])
            continue
        sizes = block_sizes(extent, 1, tiles)
        choices.append([size for k, size in enumerate(sizes) if k < 8 or size < 8 or k % (len(sizes) // 16 + 1) == 0])
    for sizes in np.array(np.meshgrid(*choices, indexing="ij")).reshape(len(choices), -1).T if choices else [()]:
        if math.prod(-(-extent // int(size)) for extent, size in zip(own.extents, sizes, strict=True)) <= tiles:
            yield tuple(map(int, sizes))


def _grains(own: Lookup, grain: int) -> tuple[int, ...]:
    """The sizes of a vertex that writes about so many elements: columns first."""
    row = own.writes.num_bytes(tuple(1 for _ in own.extents)) // own.writes.dtype.itemsize
    left, sizes = max(1, grain // max(1, row)), []
    for name, extent in reversed(list(zip(own.names, own.extents, strict=True))):
        sizes.insert(0, extent if name == "rows" else min(extent, left))
        left = max(1, left // (1 if name == "rows" else sizes[0]))
    return tuple(sizes)


def _ways(
    target: Target, own: Lookup, codelet: Codelet, grain: int | None, blocks: int, memory: float
) -> Iterator[tuple[float, tuple[Cut, ...]]]:
    """Cuts with rows in so many blocks whose fullest tile fits a memory, with bounds."""
    for sizes in _sizes(target, own, blocks):
        if grain is not None:
            ways = [_grains(own, grain)]
        else:
            share = lambda d, sizes=sizes: -(-sizes[d] // target.num_workers)  # noqa: E731
            cut = [d for d, name in enumerate(own.names) if name != "rows"]
            ways = [(*sizes[:d], share(d), *sizes[d + 1 :]) for d in cut] or [sizes]
        for grains in dict.fromkeys(ways):
            cuts = cuts_of(zip(own.names, own.extents, strict=True), sizes, grains)
            if own.makes_rows and own.num_blocks(cuts) > 1 and own.num_partials(cuts) > 1:
                continue  # fast execution makes blocks of rows one table, or parts one, but no parts of blocks
            if num_tiles(cuts) <= target.num_tiles and _held(target, own, cuts) <= memory:
                yield _bound(target, own, codelet, cuts), cuts


def _options(
    target: Target, own: Lookup, codelet: Codelet, grain: int | None, memory_fraction: float
) -> Iterator[Option]:
    memory, found, blocks = memory_fraction * target.bytes_per_tile, [], 1
    most = min(target.num_tiles, own.extents[own.names.index("rows")]) if "rows" in own.names else 1
    pays = (own.is_batched or own.makes_rows) and grain is None
    while blocks <= most and (not found or pays):
        found += _ways(target, own, codelet, grain, blocks, memory)
        blocks *= 2
    found = found or list(_ways(target, own, codelet, grain, 1, math.inf))
    ordered = sorted(found, key=lambda entry: entry[0])
    for whole in (False, True):  # of those whose columns have to be laid out first, and of the others
        alike = [entry for entry in ordered if (rows_to_lay_out(own, entry[1], target.num_tiles) is None) is whole]
        for bound, cuts in alike[: _CANDIDATES * max(1, len(own.extents))]:
            yield Option(cuts, bound, functools.partial(_price, target, own, codelet, cuts))


@functools.lru_cache(maxsize=1024)
@kept_on_disk
def plan_lookup(
    target: Target,
    own: Lookup,
    codelet: Codelet,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
) -> Plan:
    """How a gather or scatter is spread over the tiles of a machine: the same plan for the same sizes.

    Args:
        target: the machine.
        own: the look-up.
        codelet: the codelet of its vertices.
        grain: about how many elements a vertex writes; None for the planner to choose.
        memory_fraction: the fraction of a tile's memory that the operation may take.
    """
    if is_uncut(grain):
        return uncut(str(own), zip(own.names, own.extents, strict=True))
    return cheapest(str(own), target, _options(target, own, codelet, grain, memory_fraction), memory_fraction)
