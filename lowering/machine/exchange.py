"""Exchange: what moves between tiles in every step.

In come a checked plan and its placement. Out comes, for each step, what every tile receives and sends
before it computes and after: as bytes, and on demand element by element.

Before a step a tile receives each element that its vertices read and that lives elsewhere, once, however
many of them read it. A copy is the same: the tile of the destination receives the source. After a step a
tile sends each element that its vertices wrote and that lives elsewhere to its home. An element that goes
to several tiles is sent once: exchange is multicast. Padding and vertex state do not travel.
Source: Poplar and PopLibs User Guide, "Exchange"; Jia et al., "Dissecting the Graphcore IPU Architecture via
Microbenchmarking" (2019), chapter 4.

What a tile reads is held as runs of element numbers (`lowering/plan/runs.py`). A field's access map is taken
apart: what a tile's vertices read without gaps between is one run by arithmetic, over the dimensions of the
field and over the stretches of the grid's axes along which the tile is the same; what is left is listed, by
blocks, and what follows in a block joined. The tile and the element are one number, so that all tiles' sets
are one set.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from codelet.graphs.family import Family, counted
from codelet.graphs.vertices import free_axes, vertex_numbers
from codelet.views.affine import Table
from codelet.views.index import Index
from codelet.views.tensor import Source, Tensor, Variable, source_elements
from lowering.machine.placement import Placement
from lowering.plan.runs import NONE, Runs, difference, intersection, overlaps, stretches, union, union_of
from lowering.plan.steps import CopyStep, ExecuteStep, Step
from lowering.plan.timeline import Moment, timeline

_BLOCK = 1 << 22
"""How many runs are listed at once."""


# --- what each tile touches of a source ---------------------------------------------------------------


def _split(index: Index, d: int, inner: int) -> Index:
    """An index with dimension `d` as two, of which the second has `inner` positions."""
    outer = index.shape[d] // inner
    tables = []
    for table in index.tables:
        keys: list[int] = []
        extents: list[int] = []
        for key, extent in zip(table.keys, table.values.shape, strict=True):
            assert isinstance(key, int)
            keys += [d, d + 1] if key == d else [key + (key > d)]
            extents += [outer, inner] if key == d else [extent]
        tables.append(Table(tuple(keys), table.values.reshape(extents), table.scale))
    shape = (*index.shape[:d], outer, inner, *index.shape[d + 1 :])
    stride = index.strides[d]
    strides = (*index.strides[:d], stride * inner, stride, *index.strides[d + 1 :])
    return Index(index.offset, shape, strides, (), tuple(tables))


@dataclass(frozen=True, eq=False)
class TilePattern:
    """An array of tiles, with the dimensions along which it does not change folded.

    Attributes:
        tiles: of extent 1 along each dimension in which it is the same everywhere.
        splits: (dimension, positions) of dimensions that were split in two, the last first: the tile is the same
            over as many positions of the second.
    """

    tiles: np.ndarray
    splits: tuple[tuple[int, int], ...]


def tile_pattern(tiles: np.ndarray) -> TilePattern:
    """Tiles over a grid, with the dimensions along which they do not change folded."""
    splits = []
    for d in reversed(range(tiles.ndim)):
        extent = tiles.shape[d]
        if extent == 1:
            continue
        along = np.moveaxis(tiles, d, 0)
        others = tuple(range(1, tiles.ndim))
        changes = np.flatnonzero((along[1:] != along[:-1]).any(axis=others)) + 1
        run = math.gcd(extent, int(np.gcd.reduce(changes))) if len(changes) < extent - 1 else 1
        if run > 1:
            tiles = tiles[(slice(None),) * d + (slice(None, None, run),)]
        if 1 < run < extent:
            tiles = np.expand_dims(tiles, d + 1)
            splits.append((d, run))
    return TilePattern(tiles, tuple(splits))


def _listed(index: Index, tiles: np.ndarray, length: int, space: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """The ends of a stretch of `length` at each position of an index, by blocks, joined to those listed before."""
    count, rows = index.size, index.shape[0] if index.shape else 1
    if index.ndim > 1 and count // rows > _BLOCK:
        for k in range(rows):
            yield from _listed(index[k], tiles[k % tiles.shape[0]], length, space)
        return
    step = max(1, _BLOCK // max(1, count // rows))
    for start in range(0, rows, step):
        block = index[start : start + step] if index.shape else index
        own = tiles[start : start + step] if index.shape and tiles.shape[0] > 1 else tiles
        begins = (block.values() + own.astype(np.int64) * space).reshape(-1)
        moved = np.diff(begins)
        breaks = np.flatnonzero((moved < 0) | (moved > length)) + 1
        first = np.concatenate([[0], breaks])
        last = np.concatenate([breaks, [len(begins)]]) - 1
        yield begins[first], begins[last] + length


def touched_runs(index: Index, pattern: TilePattern, space: int) -> Runs:
    """The positions that the tiles touch, as runs of `tile * space + position`.

    Args:
        index: positions in a source, of a shape without symbols.
        pattern: the tile that touches each, of `tile_pattern`; its array has a dimension for each of the index's
            leading ones, and is the same over the others.
        space: more than any position, so that no run of one tile meets that of the next.
    """
    if 0 in index.shape:
        return NONE
    for d, inner in pattern.splits:
        index = _split(index, d, inner)
    tiles = pattern.tiles.reshape((*pattern.tiles.shape, *[1] * (index.ndim - pattern.tiles.ndim)))
    # Turn the dimensions without tables to go forward, so that one stride can hold another.
    tabled = {key for table in index.tables for key in table.keys}
    offset, strides = index.offset, list(index.strides)
    for d in range(index.ndim):
        if d not in tabled and strides[d] < 0:
            offset += strides[d] * (index.shape[d] - 1)
            strides[d] = -strides[d]
            tiles = np.flip(tiles, d) if tiles.shape[d] > 1 else tiles
    index = Index(offset, index.shape, tuple(strides), (), index.tables)
    length, kept = 1, []
    for d in sorted(range(index.ndim), key=lambda d: index.strides[d]):
        if index.shape[d] == 1 and d not in tabled:
            continue
        if d not in tabled and tiles.shape[d] == 1 and index.strides[d] <= length:
            length += index.strides[d] * (index.shape[d] - 1)
        else:
            kept.append(d)
    kept.sort(key=lambda d: (d not in tabled, -index.strides[d]))
    gone = tuple(d for d in range(index.ndim) if d not in kept)
    order = (*gone, *kept)
    index, tiles = index.transpose(order)[(0,) * len(gone)], tiles.transpose(order)[(0,) * len(gone)]
    starts, stops = zip(*_listed(index, tiles, length, space), strict=True)
    return union(np.concatenate(starts), np.concatenate(stops))


# --- what each tile touches of the graph --------------------------------------------------------------


class _Pieces:
    """A source of several variables or with padding: where in it stand elements that follow each other."""

    def __init__(self, source: Source):
        numbers = source_elements(source)
        # Elements that follow each other have one difference from their positions; padding is given one of its own.
        runs, _ = stretches(np.where(numbers < 0, -len(numbers) - 1, numbers - np.arange(len(numbers))))
        kept = numbers[runs.starts] >= 0
        self.runs = Runs(runs.starts[kept], runs.stops[kept])
        self.numbers = numbers[self.runs.starts]

    def elements(self, touched: Runs, space: int, num_elements: int) -> Runs:
        """The elements at the positions that tiles touch; see `touched_runs`."""
        tiles = touched.starts // space
        found = overlaps(touched.starts - tiles * space, touched.stops - tiles * space, self.runs)
        moved = self.numbers[found.second] - self.runs.starts[found.second] + tiles[found.first] * num_elements
        return union(found.starts + moved, found.stops + moved)


class _Touches:
    """What tiles touch through views, as runs of `tile * num_elements + element`."""

    def __init__(self, placement: Placement):
        self.placement = placement
        self.num_elements = len(placement.element_tiles)
        self._pieces: dict[Source, _Pieces] = {}
        self._patterns: dict[Family, TilePattern] = {}

    def through(self, source: Source, index: Index, pattern: TilePattern) -> Runs:
        """What is touched through an index without symbols."""
        if isinstance(source, Variable):
            return touched_runs(index + source.first_element, pattern, self.num_elements)
        if source not in self._pieces:
            self._pieces[source] = _Pieces(source)
        space = source.size + 1
        return self._pieces[source].elements(touched_runs(index, pattern, space), space, self.num_elements)

    def by_family(self, family: Family, tensor: Tensor) -> Runs:
        """What is touched by the vertices of a family through a field."""
        tiles = self.placement.vertex_tiles[family]
        if tensor.rows is not None:
            own = tiles[vertex_numbers(family, tensor)]
            return self.through(tensor.source, tensor.index.lifted(free_axes(family, tensor)), tile_pattern(own))
        if family not in self._patterns:
            self._patterns[family] = tile_pattern(tiles.reshape(family.extents))
        return self.through(tensor.source, tensor.index.lifted(family.axes), self._patterns[family])

    def by_fields(self, step: ExecuteStep, *, written: bool) -> Runs:
        """What is touched by a step's vertices through the fields that they write, or that they read."""
        touches = [t for t in step.touches() if not t.is_empty and (t.is_written if written else t.is_read)]
        return union_of([self.by_family(touch.family, touch.tensor) for touch in touches if touch.family])

    def by_copy(self, step: CopyStep) -> Runs:
        """What of a copy's source is touched by the tiles of its destination."""
        if not step.source.size:
            return NONE
        source, to = step.source, step.destination
        if to.is_whole_variable:
            assert isinstance(to.source, Variable)
            tiles = self.placement.tiles_of(to.source).reshape(to.shape)
        else:
            tiles = np.asarray(self.placement.element_tiles[to.elements()])
        return self.through(source.source, source.index, tile_pattern(tiles))


# --- transfers ----------------------------------------------------------------------------------------


_SHORT = 4
"""Runs that are shorter on average are cut and counted element by element, which is then faster."""


class _Homes:
    """Where elements live, and how many bytes they take."""

    def __init__(self, placement: Placement):
        self.placement = placement
        self.num_elements = len(placement.element_tiles)
        variables = placement.plan.variables
        self.first_elements = np.array([variable.first_element for variable in variables], np.int64)
        self.itemsizes = np.array([variable.dtype.itemsize for variable in variables], np.int64)

    @functools.cached_property
    def by_element(self) -> tuple[Runs, np.ndarray]:
        """Stretches of elements that live on one tile, side by side, and the tile of each, -1 between variables."""
        return stretches(self.placement.element_tiles)

    @functools.cached_property
    def by_tile(self) -> Runs:
        """The same as runs of `tile * num_elements + element`."""
        runs, tiles = self.by_element
        lived = tiles >= 0
        origin = tiles[lived].astype(np.int64) * self.num_elements
        return union(runs.starts[lived] + origin, runs.stops[lived] + origin)

    def away(self, touched: Runs) -> Runs:
        """What tiles touch and is not at home there: both as runs of `tile * num_elements + element`."""
        if not len(touched.starts) or touched.lengths.mean() >= _SHORT:
            return difference(touched, self.by_tile)
        numbers = touched.numbers()
        tiles = numbers // self.num_elements
        numbers = numbers[self.placement.element_tiles[numbers - tiles * self.num_elements] != tiles]
        return union(numbers, numbers + 1)

    def once(self, starts: np.ndarray, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Stretches of elements that may overlap: each element once, in stretches with one home, and their homes."""
        if _SHORT * len(starts) < self.num_elements:
            runs = union(starts, stops)
            homes, tiles = self.by_element
            found = overlaps(runs.starts, runs.stops, homes)
            return found.starts, found.stops, tiles[found.second]
        # As many stretches as would fill the graph: a flag for each element instead, and the ends of what is set.
        flags = np.zeros(self.num_elements, bool)
        ends = np.bincount(starts, minlength=self.num_elements) - np.bincount(stops, minlength=self.num_elements)
        np.greater(np.cumsum(ends), 0, out=flags)
        elements = np.flatnonzero(flags)
        tiles = self.placement.element_tiles[elements]
        first = np.ones(len(elements), bool)
        first[1:] = (elements[1:] != elements[:-1] + 1) | (tiles[1:] != tiles[:-1])
        last = np.append(first[1:], True)[: len(first)]
        return elements[first], elements[last] + 1, tiles[first]

    def count_bytes(self, starts: np.ndarray, stops: np.ndarray, tiles: np.ndarray) -> np.ndarray:
        """Bytes of stretches of elements, each of one variable, summed by tile: int64 of shape (num_tiles,)."""
        sizes = self.itemsizes
        if len(sizes) and (sizes == sizes[0]).all():
            weights = (stops - starts) * sizes[0]
        else:
            weights = (stops - starts) * sizes[np.searchsorted(self.first_elements, starts, side="right") - 1]
        # Sums of whole numbers below 2**53, which floats hold exactly.
        return np.bincount(tiles, weights, self.placement.num_tiles).astype(np.int64)


class Moves(NamedTuple):
    """Elements that move, one by one: arrays of one length; an element that goes to several tiles is there for each.

    Attributes:
        elements: the graph's numbers, int64.
        senders: the tile that each leaves, int32.
        receivers: the tile that each reaches, int32.
    """

    elements: np.ndarray
    senders: np.ndarray
    receivers: np.ndarray


@dataclass(frozen=True, eq=False)
class Transfer:
    """What moves between tiles at one time.

    Attributes:
        received_bytes: what each tile receives, int64 of shape (num_tiles,).
        sent_bytes: what each tile sends, int64 of shape (num_tiles,); what goes to several tiles counts once.
        shared_bytes: what both tiles of the pair (2k, 2k + 1) receive, int64 of shape (ceil(num_tiles / 2),).
        received_runs: of how many runs of consecutive elements that consists, int64 of shape (num_tiles,).
        sent_runs: the same of what is sent.
        touched: all that tiles read, or write, wherever it lives, as runs of `tile * num_elements + element`.
        away: what of it lives elsewhere, and so moves.
        to_home: whether that tile sends the element to where it lives, rather than receives it from there.
    """

    received_bytes: np.ndarray
    sent_bytes: np.ndarray
    shared_bytes: np.ndarray
    received_runs: np.ndarray
    sent_runs: np.ndarray
    touched: Runs
    away: Runs
    to_home: bool
    placement: Placement

    def moves(self) -> Moves:
        """Every element that moves, with its sender and its receiver, in the order of `away`."""
        tiles, elements = np.divmod(self.away.numbers(), len(self.placement.element_tiles) or 1)
        homes, tiles = self.placement.element_tiles[elements], tiles.astype(np.int32)
        return Moves(elements, tiles, homes) if self.to_home else Moves(elements, homes, tiles)

    def __str__(self) -> str:
        if not self.received_bytes.any():
            return "nothing"
        received, sent = self.received_bytes, self.sent_bytes
        return (
            f"{received.sum():,} bytes received, at most {received.max():,} by tile {received.argmax()}; "
            f"{sent.sum():,} sent, at most {sent.max():,} by tile {sent.argmax()}"
        )


def _transfer(touched: Runs, homes: _Homes, *, to_home: bool) -> Transfer:
    """What of all that tiles touch moves, and its bytes."""
    placement, count, away = homes.placement, homes.num_elements, homes.away(touched)
    num_tiles = placement.num_tiles
    tiles = away.starts // max(1, count)
    starts, stops = away.starts - tiles * count, away.stops - tiles * count
    there = homes.count_bytes(starts, stops, tiles)
    runs_there = np.bincount(tiles, minlength=num_tiles)
    # By element, whichever tile has it away: what its home sends, or receives, once.
    once = homes.once(starts, stops)
    here = homes.count_bytes(*once)
    runs_here = np.bincount(once[2], minlength=num_tiles)
    shared = np.zeros(-(-num_tiles // 2), np.int64)
    if not to_home:
        pairs, odd = np.divmod(tiles, 2)
        first, second = (
            Runs((starts + pairs * count)[own], (stops + pairs * count)[own]) for own in (odd == 0, odd == 1)
        )
        both = intersection(first, second)
        pairs = both.starts // max(1, count)
        shared = homes.count_bytes(both.starts - pairs * count, both.stops - pairs * count, pairs)[: len(shared)]
    received, sent = ((here, runs_here), (there, runs_there)) if to_home else ((there, runs_there), (here, runs_here))
    return Transfer(received[0], sent[0], shared, received[1], sent[1], touched, away, to_home, placement)


@dataclass(frozen=True, eq=False)
class StepExchange:
    """What a step moves: to the vertices that read it, or the copy that takes it, and from those that wrote it."""

    before: Transfer
    after: Transfer

    @property
    def received_bytes(self) -> np.ndarray:
        """What each tile receives before and after, int64 of shape (num_tiles,)."""
        return self.before.received_bytes + self.after.received_bytes

    @property
    def sent_bytes(self) -> np.ndarray:
        """What each tile sends before and after, int64 of shape (num_tiles,)."""
        return self.before.sent_bytes + self.after.sent_bytes


class Exchange:
    """What the steps of a placed plan move, each planned once, when it is first asked for.

    Args:
        placement: where everything lives.
    """

    def __init__(self, placement: Placement):
        self.placement = placement
        self._homes, self._touches = _Homes(placement), _Touches(placement)
        self._none = _transfer(NONE, self._homes, to_home=False)
        self._planned: dict[Any, StepExchange] = {None: StepExchange(self._none, self._none)}

    def of(self, step: Step | None) -> StepExchange:
        """What a step moves: nothing, where it has neither vertices nor a copy."""
        key: Any = None
        if isinstance(step, ExecuteStep):
            key = step.families
            if key not in self._planned:
                read, written = (self._touches.by_fields(step, written=written) for written in (False, True))
                after = _transfer(written, self._homes, to_home=True)
                self._planned[key] = StepExchange(_transfer(read, self._homes, to_home=False), after)
        elif isinstance(step, CopyStep):
            key = step
            if key not in self._planned:
                copied = self._touches.by_copy(step)
                self._planned[key] = StepExchange(_transfer(copied, self._homes, to_home=False), self._none)
        return self._planned[key]

    def at(self, moment: Moment) -> StepExchange:
        """What moves at a moment of the program."""
        return self.of(moment.step)

    @functools.cached_property
    def steps(self) -> Mapping[Step, StepExchange]:
        """What each step of the program moves that has vertices or copies, wherever it stands."""
        steps = [moment.step for moment in timeline(self.placement.plan).moments]
        return {step: self.of(step) for step in steps if isinstance(step, ExecuteStep | CopyStep)}

    def __repr__(self) -> str:
        steps = counted(len(self.steps), "step", "steps")
        return f"<Exchange of {steps} between {counted(self.placement.num_tiles, 'tile', 'tiles')}>"

    def __str__(self) -> str:
        rows = [f"exchange between {counted(self.placement.num_tiles, 'tile', 'tiles')}"]
        for moment in timeline(self.placement.plan).moments:
            step = self.at(moment)
            rows.append(str(moment))
            for when, moved in (("before", step.before), ("after", step.after)):
                if moved.received_bytes.any():
                    rows.append(f"      {when}: {moved}")
        return "\n".join(rows)


def plan_exchange(placement: Placement) -> Exchange:
    """What every step of a placed plan moves between tiles.

    Args:
        placement: where the elements and vertices of a checked plan live.

    >>> import codelet as cl
    >>> from lowering.pipeline import plan_engine
    >>> from lowering.machine.place import place
    >>> @cl.codelet
    ... def total(x):
    ...     return x.sum()
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> x, y = graph.add_variable("x", (8,)), graph.add_variable("y", (4,))
    >>> i = cl.grid(4)
    >>> graph.add_vertex("sums", total, x=x, out=y[i], tile=i)
    >>> graph.set_tile_mapping(x, 0)
    >>> graph.set_tile_mapping(y, 3)
    >>> print(plan_exchange(place(plan_engine(graph, graph.default_program))))
    exchange between 4 tiles
      0 execute sums
          before: 96 bytes received, at most 32 by tile 1; 32 sent, at most 32 by tile 0
          after: 12 bytes received, at most 12 by tile 3; 12 sent, at most 4 by tile 0
    """
    exchange = Exchange(placement)
    for moment in timeline(placement.plan).moments:
        exchange.of(moment.step)
    return exchange
