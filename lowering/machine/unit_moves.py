"""Refinement: units moved from tiles that others wait for, as long as the modelled cycles fall.

In come a model of units and their tiles, out come better tiles. A partitioner minimises what moves in all, with even
weights; a step takes as long as its slowest tile computes, in rounds of its workers, and as its busiest tile exchanges.
So units are moved from the slowest tiles to tiles that have what they read, by what both would take then, many in a
round, each tile in one move (after Fiduccia and Mattheyses, "A Linear-Time Heuristic for Improving Network Partitions",
1982).

What is lowered is a smooth maximum of what tiles take, so that a move counts which takes one of several slowest tiles
from among them. The tiles that are returned are those of the round with the fewest cycles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from codelet.superstep import Traffic, exchange_cycles
from lowering.machine.unit_model import UnitModel, WordsMoved
from lowering.plan.runs import Runs, each_once

_POWER = 32.0
"""Of the norm over tiles that stands for the slowest of them."""

_HOT = 48
"""So many of the slowest tiles of each phase are relieved in a round."""

_CANDIDATES = 1 << 11
"""So many moves are compared in a round, at most."""

_NEAR = 48
"""Nets that more tiles read draw no unit to a tile."""

_FEW = 96
"""Tiles with more vertices on average are taken to share them evenly among their workers."""

_EVEN = 0.25
"""What a cycle of a vertex counts for beside those of the round of workers that it is in: so that a tile is relieved of
several, the last of which saves a round."""

BYTE_CYCLES = 0.1
"""What a byte of the fullest tile counts for."""


@dataclass(frozen=True, eq=False)
class Refined:
    """Units on tiles.

    Attributes:
        tiles: of each unit.
        homes: of each net, -1 for those that nothing touches.
        cycles: of a run, by the model.
        num_bytes: about what each tile holds, int64.
    """

    tiles: np.ndarray
    homes: np.ndarray
    cycles: int
    num_bytes: np.ndarray

    @property
    def fullest(self) -> int:
        """About how many bytes the fullest tile holds."""
        return int(self.num_bytes.max(initial=0))

    def rank(self, most_bytes: int) -> tuple[bool, int, int]:
        """The best comes first: of those that keep within some bytes, that of the fewest cycles."""
        return self.fullest > most_bytes, self.cycles, self.fullest


def measured(model: UnitModel, tiles: np.ndarray) -> Refined:
    """What units on tiles take."""
    readers = model.readers(tiles)
    homes = model.homes(tiles, readers)
    moved = model.moved(readers, homes)
    num_bytes = model.tile_bytes(tiles, homes, moved).astype(np.int64)
    return Refined(tiles, homes, model.total(model.computed(tiles), moved), num_bytes)


@dataclass(frozen=True, eq=False)
class _UnitMoves:
    """Units that may move: arrays of one length; what the move changes has shape (works, moves)."""

    units: np.ndarray
    sources: np.ndarray
    targets: np.ndarray

    def of(self, some: np.ndarray) -> _UnitMoves:
        return _UnitMoves(self.units[some], self.sources[some], self.targets[some])


class _Refining:
    """The state of a refinement."""

    def __init__(self, model: UnitModel, tiles: np.ndarray, most_bytes: int):
        self.model, self.graph, self.most_bytes = model, model.graph, most_bytes
        self.tiles = tiles.astype(np.int64)
        self.readers = model.readers(self.tiles)
        self.homes = model.homes(self.tiles, self.readers)
        self.moved = model.moved(self.readers, self.homes)
        self.computed, self.loads = model.computed(self.tiles), model.loads(self.tiles)
        self.bytes = model.tile_bytes(self.tiles, self.homes, self.moved)
        self.turns = self.graph.turns.astype(np.float64)
        self.barred = np.zeros(self.graph.num_units, bool)
        self.barred[self.graph.fixed >= 0] = True
        per_tile = len(self.graph.unit_of) / max(1, len(np.unique(self.tiles)))
        self.is_even = per_tile > _FEW
        self.by_tile = None

    # --- what is minimised ------------------------------------------------------------------------------

    def _phases(self, computed: np.ndarray, exchanged: np.ndarray, num_bytes: np.ndarray) -> np.ndarray:
        """What each tile takes in each phase, of shape (phases, tiles), in cycles of a run."""
        turns = self.turns[:, None]
        return np.concatenate([turns * computed, turns * exchanged, BYTE_CYCLES * num_bytes[None]])

    def phases(self) -> np.ndarray:
        """Of the present tiles."""
        return self._phases(self.computed + _EVEN * self.loads, self.model.exchanged(self.moved), self.bytes)

    # --- which moves there are --------------------------------------------------------------------------

    def _hot(self, phases: np.ndarray) -> np.ndarray:
        hot = np.zeros(phases.shape[1], bool)
        most = phases.max(axis=1)
        for phase, top in zip(phases, most, strict=True):
            if top > 0.005 * most.sum():
                chosen = np.argsort(-phase, kind="stable")[:_HOT]
                hot[chosen[phase[chosen] >= 0.9 * top]] = True
        return np.flatnonzero(hot)

    def _candidates(self, hot: np.ndarray, phases: np.ndarray, round_: int) -> _UnitMoves:
        model, tiles = self.model, self.tiles
        is_hot = np.zeros(model.num_tiles, bool)
        is_hot[hot] = True
        (units,) = np.nonzero(is_hot[tiles] & ~self.barred)
        if len(units) > _CANDIDATES:
            units = units[round_ % (-(-len(units) // _CANDIDATES)) :: -(-len(units) // _CANDIDATES)]
        pins, of_pin = model.pins_of_unit.of(units)
        nets, of_net = model.nets_of_unit.of(units)
        found_units = np.concatenate([units[of_pin], units[of_net]])
        found_nets = np.concatenate([self.graph.pin_nets[pins], nets])
        pairs = [found_units * model.num_tiles + np.maximum(self.homes[found_nets], 0)]
        low = np.searchsorted(self.readers, found_nets * model.num_works * model.num_tiles)
        high = np.searchsorted(self.readers, (found_nets + 1) * model.num_works * model.num_tiles)
        near = high - low <= _NEAR
        runs = Runs(low[near], high[near])
        reading = self.readers[runs.numbers()] % model.num_tiles
        pairs.append(np.repeat(found_units[near], runs.lengths) * model.num_tiles + reading)
        idle = np.argsort(phases.sum(axis=0), kind="stable")[:2]
        pairs += [units * model.num_tiles + tile for tile in idle]
        keys, counts = np.unique(np.concatenate(pairs), return_counts=True)
        units, targets = np.divmod(keys, model.num_tiles)
        kept = targets != tiles[units]
        units, targets, counts = units[kept], targets[kept], counts[kept]
        if len(units) > _CANDIDATES:  # those with most in common
            chosen = np.sort(np.argsort(-counts, kind="stable")[:_CANDIDATES])
            units, targets = units[chosen], targets[chosen]
        return _UnitMoves(units, tiles[units], targets)

    # --- what they would change -------------------------------------------------------------------------

    def _count(self, keys: np.ndarray, counted: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """How many units read a net on a tile: of keys as `readers` has them."""
        known, counts = counted
        if not len(known):
            return np.zeros(len(keys), np.int64)
        at = np.minimum(np.searchsorted(known, keys), len(known) - 1)
        return np.where(known[at] == keys, counts[at], 0)

    def _words_moved(self, moves: _UnitMoves) -> tuple[np.ndarray, ...]:
        """Words received and sent by the sources and the targets of moves, as they would change: four arrays."""
        model, graph = self.model, self.graph
        tiles_, works_ = model.num_tiles, model.num_works
        units = np.unique(moves.units)
        pins, _ = model.pins_of_unit.of(units)
        homes_nets, _ = model.nets_of_unit.of(units)
        nets = each_once(np.concatenate([graph.pin_nets[pins], homes_nets]))
        every, _ = model.pins_of_net.of(nets)
        keys = graph.pin_nets[every] * works_ + graph.pin_works[every]
        counted = np.unique(keys * tiles_ + self.tiles[graph.pin_units[every]], return_counts=True)
        readers = np.unique(counted[0] // tiles_, return_counts=True)
        shape = works_, len(moves.units)
        changes = [np.zeros(shape[0] * shape[1]) for _ in range(4)]

        def add(which: int, entries: np.ndarray, works: np.ndarray, words: np.ndarray) -> None:
            changes[which] += np.bincount(works * shape[1] + entries, words, shape[0] * shape[1])

        # What the unit reads.
        pins, of_move = model.pins_of_unit.of(moves.units)
        net, work = graph.pin_nets[pins], graph.pin_works[pins]
        own_home = graph.homes[net] == moves.units[of_move]
        net, work, of_move = net[~own_home], work[~own_home], of_move[~own_home]
        key, words = net * works_ + work, model.words[net]
        source, to, home = moves.sources[of_move], moves.targets[of_move], self.homes[net]
        alone = self._count(key * tiles_ + source, counted) == 1
        fresh = self._count(key * tiles_ + to, counted) == 0
        away = self._count(key, readers) - (self._count(key * tiles_ + home, counted) > 0)
        add(0, of_move, work, -words * (alone & (home != source)))
        add(2, of_move, work, words * (fresh & (home != to)))
        after = away - (alone & (home != source)) + (fresh & (home != to))
        starts, ends = (away == 0) & (after > 0), (away > 0) & (after == 0)
        for which, tile in ((1, source), (3, to)):
            add(which, of_move, work, words * (home == tile) * (starts.astype(np.int64) - ends))
        # What it writes.
        nets, of_move = model.nets_of_unit.of(moves.units)
        for k in range(works_):
            key, words = nets * works_ + k, model.words[nets]
            source, to, work = moves.sources[of_move], moves.targets[of_move], np.full(len(nets), k)
            by_itself = self._reads(moves.units[of_move], nets, k)
            there, here = (self._count(key * tiles_ + tile, counted) for tile in (to, source))
            all_tiles = self._count(key, readers)
            before = all_tiles - (here > 0) > 0
            left = here - by_itself > 0
            after = all_tiles - (here > 0) + left - (there > 0) > 0
            add(0, of_move, work, words * left)
            add(2, of_move, work, -words * (there > 0))
            add(1, of_move, work, -words * before)
            add(3, of_move, work, words * after)
        return tuple(own.reshape(shape) for own in changes)

    def _reads(self, units: np.ndarray, nets: np.ndarray, work: int) -> np.ndarray:
        """Whether units read nets themselves in a compute set."""
        graph = self.graph
        key = (graph.pin_nets * self.model.num_works + graph.pin_works) * graph.num_units + graph.pin_units
        own = (nets * self.model.num_works + work) * graph.num_units + units
        at = np.minimum(np.searchsorted(key, own), max(0, len(key) - 1))
        return (key[at] == own).astype(np.int64) if len(key) else np.zeros(len(own), np.int64)

    def _computed_after(self, moves: _UnitMoves) -> tuple[np.ndarray, np.ndarray]:
        """What the sources and the targets of moves compute after them, as `phases` counts it: (works, moves)."""
        model = self.model
        each = model.unit_cycles[:, moves.units]
        sources, targets = self._rounds_after(moves)
        sources += _EVEN * (self.loads[:, moves.sources] - each)
        return sources, targets + _EVEN * (self.loads[:, moves.targets] + each)

    def _rounds_after(self, moves: _UnitMoves) -> tuple[np.ndarray, np.ndarray]:
        """Cycles of the sources and the targets of moves after them, of shape (works, moves)."""
        model, count = self.model, len(moves.units)
        if self.is_even:
            each = model.unit_cycles[:, moves.units]
            return self.computed[:, moves.sources] - each, self.computed[:, moves.targets] + each
        rows = self._members()
        groups, units = [], []
        for tiles, first in ((moves.sources, 0), (moves.targets, count)):
            runs = Runs(rows[1][tiles], rows[1][tiles + 1])
            groups.append(first + np.repeat(np.arange(count), runs.lengths))
            units.append(rows[0][runs.numbers()])
        groups[0] = groups[0][(stays := units[0] != np.repeat(moves.units, np.bincount(groups[0], minlength=count)))]
        units[0] = units[0][stays]
        groups.append(count + np.arange(count))
        units.append(moves.units)
        found = model.computed_by(np.concatenate(groups), np.concatenate(units), 2 * count)
        return found[:, :count].astype(float), found[:, count:].astype(float)

    def _members(self) -> tuple[np.ndarray, np.ndarray]:
        if self.by_tile is None:
            counts = np.bincount(self.tiles, minlength=self.model.num_tiles)
            self.by_tile = np.argsort(self.tiles, kind="stable"), np.append(0, np.cumsum(counts))
        return self.by_tile

    def _gains(self, moves: _UnitMoves, phases: np.ndarray) -> np.ndarray:
        """By how much each move lowers the smooth maximum."""
        model = self.model
        received_from, sent_from, received_to, sent_to = self._words_moved(moves)
        from_computed, to_computed = self._computed_after(moves)
        received, sent, word = self.moved.received, self.moved.sent, model.target.word_bytes
        own_bytes = model.fixed_bytes[moves.units]
        is_full = np.zeros(len(moves.units), bool)
        most = phases.max(axis=1)
        sums = _powers(phases, most).sum(axis=1)
        old = most * sums ** (1 / _POWER)
        totals = np.broadcast_to(sums[:, None], (len(sums), len(moves.units))).copy()
        for tiles, computed, more_received, more_sent, sign in (
            (moves.sources, from_computed, received_from, sent_from, -1),
            (moves.targets, to_computed, received_to, sent_to, 1),
        ):
            after = WordsMoved(
                (received[:, tiles] + more_received).astype(np.int64), (sent[:, tiles] + more_sent).astype(np.int64)
            )
            exchanged = np.stack(
                [self._exchange(one, two, tiles) for one, two in zip(after.received, after.sent, strict=True)]
            )
            num_bytes = self.bytes[tiles] + sign * own_bytes + word * more_received.max(axis=0, initial=0)
            if sign > 0:
                is_full = num_bytes > self.most_bytes
            totals += _powers(self._phases(computed, exchanged, num_bytes), most) - _powers(phases[:, tiles], most)
        gains = (old[:, None] - most[:, None] * np.maximum(totals, 0) ** (1 / _POWER)).sum(axis=0)
        return np.where(is_full, 0.0, gains)

    def _exchange(self, received: np.ndarray, sent: np.ndarray, tiles: np.ndarray) -> np.ndarray:
        target = self.model.target
        arrival = np.broadcast_to(target.arrival_cycles(), self.model.num_tiles)[tiles]
        return exchange_cycles(Traffic(received, sent), target, arrival)

    # --- moving -----------------------------------------------------------------------------------------

    def _apply(self, moves: _UnitMoves) -> float | None:
        """Move units if that lowers the smooth maximum: by how much, or `None`."""
        model, graph = self.model, self.graph
        pins, _ = model.pins_of_unit.of(moves.units)
        own, _ = model.nets_of_unit.of(moves.units)
        nets = each_once(np.concatenate([graph.pin_nets[pins], own]))
        before = model.readers(self.tiles, nets)
        tiles, homes = self.tiles.copy(), self.homes.copy()
        tiles[moves.units] = moves.targets
        homes[own] = tiles[graph.homes[own]]
        fixed = own[graph.home_tiles[own] >= 0]
        homes[fixed] = graph.home_tiles[fixed]
        after = model.readers(tiles, nets)
        homes = self._followed(homes, nets, after)
        less, more = model.moved(before, self.homes), model.moved(after, homes)
        received = self.moved.received - less.received + more.received
        sent = self.moved.sent - less.sent + more.sent
        between = None
        if self.moved.between is not None and less.between is not None and more.between is not None:
            between = self.moved.between - less.between + more.between
        moved = WordsMoved(received, sent, between)
        touched = np.unique(np.concatenate([moves.sources, moves.targets]))
        number = np.full(model.num_tiles, -1)
        number[touched] = np.arange(len(touched))
        (members,) = np.nonzero(number[tiles] >= 0)
        computed = self.computed.copy()
        computed[:, touched] = model.computed_by(number[tiles[members]], members, len(touched))
        loads = model.loads(tiles)
        num_bytes = model.tile_bytes(tiles, homes, moved)
        old = _smooth(self.phases()) + self._outside(self.moved)
        new = _smooth(self._phases(computed + _EVEN * loads, model.exchanged(moved), num_bytes)) + self._outside(moved)
        if new >= old or num_bytes.max() > max(self.most_bytes, self.bytes.max()):
            return None
        self.readers = _replaced(self.readers, before, after)
        self.tiles, self.homes, self.moved, self.computed, self.bytes = tiles, homes, moved, computed, num_bytes
        self.loads, self.by_tile = loads, None
        return old - new

    def _outside(self, moved: WordsMoved) -> float:
        """What goes between chips, in cycles of its busiest pair: a rough measure that falls with it."""
        if moved.between is None:
            return 0.0
        target = self.model.target
        each = target.clock_hertz / target.link_bytes_per_second
        return float(self.turns @ moved.between.max(axis=(1, 2))) * each

    def _followed(self, homes: np.ndarray, nets: np.ndarray, readers: np.ndarray) -> np.ndarray:
        """Homes of nets that nothing writes, moved to a reader where their tile reads them no more."""
        graph = self.graph
        some = nets[(graph.homes[nets] < 0) & (graph.home_tiles[nets] < 0)]
        if not len(some):
            return homes
        works, tiles = self.model.num_works, self.model.num_tiles
        own, on = readers // (works * tiles), readers % tiles
        read_at_home = np.zeros(len(homes), bool)
        read_at_home[own[homes[own] == on]] = True
        first = np.append(True, own[1:] != own[:-1]) if len(own) else np.zeros(0, bool)
        reader = np.full(len(homes), -1)
        reader[own[first]] = on[first]
        lost = some[~read_at_home[some] & (reader[some] >= 0)]
        homes[lost] = reader[lost]
        return homes

    def found(self) -> Refined:
        """The present tiles, and what they take."""
        cycles = self.model.total(self.computed, self.moved)
        return Refined(self.tiles, self.homes, cycles, self.bytes.astype(np.int64))

    def round(self, round_: int) -> float:
        """Relieve the slowest tiles once: by how much the smooth maximum falls."""
        phases = self.phases()
        hot = self._hot(phases)
        moves = self._candidates(hot, phases, round_)
        if not len(moves.units):
            return 0.0
        gains = self._gains(moves, phases)
        order = np.argsort(-gains, kind="stable")
        used, chosen, units = set(), [], set()
        for k in order[: 4 * len(hot) + 64].tolist():
            if gains[k] <= 0:
                break
            source, to, unit = int(moves.sources[k]), int(moves.targets[k]), int(moves.units[k])
            if source in used or to in used or unit in units:
                continue
            used.update((source, to))
            chosen.append(k)
        picked = np.array(chosen, np.int64)
        while len(picked):
            if (gained := self._apply(moves.of(picked))) is not None:
                return gained
            if len(picked) == 1:
                self.barred[moves.units[picked]] = True
                return 0.0
            picked = picked[: len(picked) // 2]
        return 0.0


def _powers(phases: np.ndarray, most: np.ndarray) -> np.ndarray:
    return (np.maximum(phases, 0) / np.maximum(most, 1.0)[:, None]) ** _POWER


def _smooth(phases: np.ndarray) -> float:
    """The sum over phases of a norm of what tiles take, which is little more than the slowest takes."""
    most = phases.max(axis=1)
    return float((most * _powers(phases, most).sum(axis=1) ** (1 / _POWER)).sum())


def _replaced(keys: np.ndarray, old: np.ndarray, new: np.ndarray) -> np.ndarray:
    """Rising keys without some and with others."""
    kept = np.ones(len(keys), bool)
    kept[np.searchsorted(keys, old)] = False
    kept_keys = keys[kept]
    return np.insert(kept_keys, np.searchsorted(kept_keys, new), new)


def refined(model: UnitModel, tiles: np.ndarray, most_bytes: int, rounds: int = 150) -> Refined:
    """Better tiles of units.

    Args:
        model: what they take.
        tiles: of each unit, to begin with; those placed by hand stay.
        most_bytes: no tile is given more, by `Refined.fullest`.
        rounds: how often the slowest tiles are relieved, at most.
    """
    best = measured(model, tiles)
    state = _Refining(model, tiles, most_bytes)
    idle = 0
    for round_ in range(rounds):
        gained = state.round(round_)
        if gained and (found := state.found()).rank(most_bytes) < best.rank(most_bytes):
            best = found
        idle = 0 if gained > 1e-4 * best.cycles else idle + 1
        if idle > 2:
            break
    found = measured(model, state.tiles)
    return min(best, found, key=lambda own: own.rank(most_bytes))
