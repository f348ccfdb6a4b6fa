"""What a run of a program takes with its units on tiles, by the cost model, from its hypergraph alone.

In come a hypergraph and the tile of each unit. Out come the cycles in which each tile computes and the words that it
receives and sends, in each compute set: the same numbers as from a placement, without planning its exchange anew, and
what changes in them where a few units move.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from codelet.graphs.vertex_cycles import family_cycles
from codelet.superstep import PlacedVertices, Traffic, exchange_cycles, tile_cycles
from codelet.target import FamilyCycles, VertexCycles
from lowering.machine.balance import load_of
from lowering.machine.chips import external_exchange_cycles, external_sync_cycles, tiles_per_chip
from lowering.machine.hypergraph import Hypergraph
from lowering.machine.memory import EDGE_BYTES, VERTEX_BYTES
from lowering.plan.runs import Runs, each_once, sums_of


@dataclass(frozen=True, eq=False)
class Grouping:
    """Entries in the order of what they belong to.

    Attributes:
        order: the entries, in 32 bits where these hold their numbers.
        offsets: where those of each begin.
    """

    order: np.ndarray
    offsets: np.ndarray

    @classmethod
    def by(cls, keys: np.ndarray, count: int) -> Grouping:
        """Entries by their keys."""
        counts = np.bincount(keys, minlength=count)
        order = np.argsort(keys, kind="stable").astype(np.int32 if len(keys) < 2**31 else np.int64)
        return cls(order, np.append(0, np.cumsum(counts)))

    def of(self, keys: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """All entries of some keys, and the place among these keys of each."""
        runs = Runs(self.offsets[keys], self.offsets[keys + 1])
        return self.order[runs.numbers()].astype(np.int64), np.repeat(np.arange(len(keys)), runs.lengths)


@dataclass(eq=False)
class WordsMoved:
    """Words of each compute set and tile, int64 of shape (works, tiles); of all chips, bytes from each to each."""

    received: np.ndarray
    sent: np.ndarray
    between: np.ndarray | None = None


class UnitModel:
    """The costs of placing the units of a hypergraph.

    Attributes:
        graph: the hypergraph.
        num_tiles: of the target.
        words: whole words of each net.
    """

    def __init__(self, graph: Hypergraph):
        self.graph = graph
        self.target = graph.plan.graph.target
        self.num_tiles, self.num_works = self.target.num_tiles, len(graph.works)
        self.words = -(-graph.net_bytes // self.target.word_bytes)
        self._arrival = self.target.arrival_cycles()

    # What refinement alone asks for is not held beside a partitioner's own.

    @functools.cached_property
    def pins_of_net(self) -> Grouping:
        """Pins by their nets."""
        return Grouping.by(self.graph.pin_nets, len(self.graph.homes))

    @functools.cached_property
    def pins_of_unit(self) -> Grouping:
        """Pins by their units."""
        return Grouping.by(self.graph.pin_units, self.graph.num_units)

    @functools.cached_property
    def nets_of_unit(self) -> Grouping:
        """Nets by the units that write them."""
        (written,) = np.nonzero(self.graph.homes >= 0)
        nets = Grouping.by(self.graph.homes[written], self.graph.num_units)
        return Grouping(written[nets.order], nets.offsets)

    @functools.cached_property
    def _vertices(self) -> list[tuple[np.ndarray, FamilyCycles]]:
        return [self._vertices_of(k) for k in range(self.num_works)]

    @functools.cached_property
    def _rows(self) -> list[Grouping]:
        return [Grouping.by(units, self.graph.num_units) for units, _ in self._vertices]

    def _vertices_of(self, work: int) -> tuple[np.ndarray, FamilyCycles]:
        """The units and the cycles of all vertices of a compute set."""
        units, kinds, numbers = [], [], []
        known: dict[VertexCycles, int] = {}
        for family in self.graph.works[work].families:
            cycles = family_cycles(family, self.target)
            own = np.array([known.setdefault(each, len(known)) for each in cycles.distinct], np.int64)
            units.append(self.graph.units_of(family))
            of_vertex = np.zeros(family.num_vertices, np.int64) if cycles.of_vertex is None else cycles.of_vertex
            numbers.append(own[of_vertex])
        kinds = tuple(known) or (VertexCycles(0),)
        if not units:
            return np.zeros(0, np.int64), FamilyCycles(kinds, np.zeros(0, np.int64))
        return np.concatenate(units), FamilyCycles(kinds, np.concatenate(numbers))

    @functools.cached_property
    def fixed_bytes(self) -> np.ndarray:
        """Bytes that each unit takes wherever it is: what it writes, its vertices and their pointers."""
        graph = self.graph
        written = graph.homes >= 0
        found = np.bincount(graph.homes[written], graph.net_bytes[written], graph.num_units)
        found += VERTEX_BYTES * np.bincount(graph.unit_of, minlength=graph.num_units)
        return found + EDGE_BYTES * np.bincount(graph.pin_units, minlength=graph.num_units)

    @functools.cached_property
    def unit_cycles(self) -> np.ndarray:
        """Cycles of each unit in each compute set, if workers are never idle: float64 of shape (works, units)."""
        weight, found = load_of(self.target.num_workers), np.zeros((self.num_works, self.graph.num_units))
        for work, (units, cycles) in enumerate(self._vertices):
            found[work] = np.bincount(units, cycles.of_each(len(units), weight), self.graph.num_units)
        return found

    def loads(self, tiles: np.ndarray) -> np.ndarray:
        """The same of each tile."""
        return np.stack([np.bincount(tiles, own, self.num_tiles) for own in self.unit_cycles])

    # --- cycles of computing ----------------------------------------------------------------------------

    def computed(self, tiles: np.ndarray) -> np.ndarray:
        """Cycles of each tile in each compute set, int64 of shape (works, tiles)."""
        target = self.target
        return np.stack(
            [
                tile_cycles(
                    [PlacedVertices(tiles[units], cycles)] if len(units) else [],
                    self.num_tiles, target.num_workers, target.launch_cycles,
                )
                for units, cycles in self._vertices
            ]
        )  # fmt: skip

    def computed_by(self, groups: np.ndarray, units: np.ndarray, count: int) -> np.ndarray:
        """Cycles in each compute set of groups of units, as if each were all of a tile: of shape (works, count)."""
        found = np.zeros((self.num_works, count), np.int64)
        for work, (_, cycles) in enumerate(self._vertices):
            vertices, places = self._rows[work].of(units)
            if len(vertices):
                assert cycles.of_vertex is not None
                own = PlacedVertices(groups[places], FamilyCycles(cycles.distinct, cycles.of_vertex[vertices]))
                found[work] = tile_cycles([own], count, self.target.num_workers, self.target.launch_cycles)
        return found

    # --- words that move --------------------------------------------------------------------------------

    def readers(self, tiles: np.ndarray, nets: np.ndarray | None = None) -> np.ndarray:
        """Which tiles read which nets, rising: `(net * works + work) * tiles + tile`, of some nets or of all."""
        graph = self.graph
        pins = slice(None) if nets is None else self.pins_of_net.of(nets)[0]
        keys = graph.pin_nets[pins] * self.num_works + graph.pin_works[pins]
        return each_once(keys * self.num_tiles + tiles[graph.pin_units[pins]])

    def moved(self, readers: np.ndarray, homes: np.ndarray) -> WordsMoved:
        """What moves.

        Args:
            readers: as `readers` finds them.
            homes: the tile of each net.
        """
        keys, tiles = np.divmod(readers, self.num_tiles)
        nets, works = np.divmod(keys, self.num_works)
        away = homes[nets] != tiles
        nets, works, tiles, keys = nets[away], works[away], tiles[away], keys[away]
        shape = self.num_works, self.num_tiles
        size = shape[0] * shape[1]
        received = np.bincount(works * self.num_tiles + tiles, self.words[nets], size)
        first = np.append(True, keys[1:] != keys[:-1]) if len(keys) else np.zeros(0, bool)
        sending = works[first] * self.num_tiles + homes[nets[first]]
        sent = np.bincount(sending, self.words[nets[first]], size)
        between = None
        if self.target.num_chips > 1:
            between = self._between(nets, works, tiles, homes)
        return WordsMoved(received.astype(np.int64).reshape(shape), sent.astype(np.int64).reshape(shape), between)

    def _between(self, nets: np.ndarray, works: np.ndarray, tiles: np.ndarray, homes: np.ndarray) -> np.ndarray:
        per_chip, chips = tiles_per_chip(self.target), self.target.num_chips
        pairs = (homes[nets].astype(np.int64) // per_chip) * chips + tiles // per_chip
        keys = each_once((nets * self.num_works + works) * chips**2 + pairs)
        keys, pairs = np.divmod(keys, chips**2)
        nets, works = np.divmod(keys, self.num_works)
        far = pairs // chips != pairs % chips
        size = self.num_works * chips**2
        found = np.bincount((works * chips**2 + pairs)[far], self.graph.net_bytes[nets[far]], size)
        return found.astype(np.int64).reshape(self.num_works, chips, chips)

    def exchanged(self, moved: WordsMoved) -> np.ndarray:
        """Cycles of each tile in the exchange of each compute set, float64 of shape (works, tiles)."""
        return np.stack(
            [
                exchange_cycles(Traffic(received, sent), self.target, self._arrival)
                for received, sent in zip(moved.received, moved.sent, strict=True)
            ]
        )

    def total(self, computed: np.ndarray, moved: WordsMoved) -> int:
        """Cycles of a run."""
        exchanged, turns, target = self.exchanged(moved), self.graph.turns, self.target
        moves = moved.received.any(axis=1)
        found = turns @ computed.max(axis=1, initial=0)
        overhead = target.exchange_overhead_cycles + target.sync_cycles
        found += turns @ (moves * (exchanged.max(axis=1, initial=0) + overhead))
        if moved.between is not None:
            for count, own in zip(turns.tolist(), moved.between, strict=True):
                if own.any():
                    found += count * (external_exchange_cycles(own, target) + external_sync_cycles(target))
        return int(found)

    # --- where nets lie ---------------------------------------------------------------------------------

    def homes(self, tiles: np.ndarray, readers: np.ndarray) -> np.ndarray:
        """The tile of each net, -1 where nothing reads or writes it.

        A net that nothing writes lies on a tile that reads it: of these on that which sends least for what it receives.
        """
        graph, fixed = self.graph, self.graph.home_tiles >= 0
        homes = np.where(graph.homes >= 0, tiles[graph.homes], -1).astype(np.int64)
        homes[fixed] = graph.home_tiles[fixed]
        nets, tiles_of = np.divmod(readers, self.num_tiles)
        nets, works = np.divmod(nets, self.num_works)
        moved = self.moved(readers[homes[nets] >= 0], homes) if (homes[nets] >= 0).any() else None
        weights = graph.turns[works] * self.words[nets]
        is_open = homes[nets] < 0
        if not is_open.any():
            return homes
        nets, tiles_of, weights = nets[is_open], tiles_of[is_open], weights[is_open]
        pairs, sums = sums_of(nets * self.num_tiles + tiles_of, weights)
        nets, tiles_of = np.divmod(pairs, self.num_tiles)
        # As if it came from elsewhere; then each net is taken from what one of its readers receives.
        lead = np.bincount(tiles_of, sums, self.num_tiles)
        if moved is not None:
            lead += graph.turns @ (moved.received - moved.sent)
        rounds = 16
        which = np.cumsum(np.append(0, nets[1:] != nets[:-1])) % rounds
        shared = np.bincount(nets, minlength=len(homes)) > 1
        for k in range(rounds):
            own = np.flatnonzero(which == k)
            order = own[np.lexsort((tiles_of[own], -lead[tiles_of[own]], nets[own]))]
            first = order[np.append(True, nets[order][1:] != nets[order][:-1])] if len(order) else order
            homes[nets[first]] = tiles_of[first]
            lost = sums[first] * (1 + shared[nets[first]])
            lead -= np.bincount(tiles_of[first], lost, self.num_tiles)
        return homes

    def tile_bytes(self, tiles: np.ndarray, homes: np.ndarray, moved: WordsMoved) -> np.ndarray:
        """About how many bytes each tile holds."""
        graph = self.graph
        found = np.bincount(tiles, self.fixed_bytes, self.num_tiles)
        (open_nets,) = np.nonzero((graph.homes < 0) & (homes >= 0))
        found += np.bincount(homes[open_nets], graph.net_bytes[open_nets], self.num_tiles)
        return found + self.target.word_bytes * moved.received.max(axis=0, initial=0)
