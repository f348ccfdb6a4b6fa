"""Exchange: what moves between tiles in every step.

In come a checked plan and its placement. Out comes, for each step, what every tile receives and sends
before it computes and after: as bytes, as messages and words (`lowering/machine/messages.py`), and on demand element
by element.

Before a step a tile receives each element that its vertices read and that lives elsewhere, once, however
many of them read it. A copy is the same: the tile of the destination receives the source. After a step a
tile sends each element that its vertices wrote and that lives elsewhere to its home. An element that goes
to several tiles is sent once: exchange is multicast. Padding and vertex state do not travel.
Source: Poplar and PopLibs User Guide, "Exchange"; Jia et al., "Dissecting the Graphcore IPU Architecture via
Microbenchmarking" (2019), chapter 4.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from codelet.graphs.family import counted
from codelet.superstep import Traffic
from lowering.machine.chips import moves_between_chips
from lowering.machine.messages import Messages, sent_to_pairs
from lowering.machine.placement import Changes, Placement
from lowering.machine.touched import Touches
from lowering.plan.runs import NONE, Runs, difference, overlaps, runs_of, union
from lowering.plan.steps import CopyStep, ExecuteStep, Step
from lowering.plan.timeline import timeline

_SHORT = 4
"""Runs that are shorter on average are cut and counted element by element, which is then faster."""


def _away(touched: Runs, placement: Placement) -> Runs:
    """What tiles touch and is not at home there: both as runs of `tile * num_elements + element`."""
    if not len(touched.starts):
        return touched
    if touched.lengths.mean() >= _SHORT:
        return difference(touched, placement.homes)
    numbers, count = touched.numbers(), len(placement.element_tiles)
    tiles = numbers // count
    return runs_of(numbers[placement.element_tiles[numbers - tiles * count] != tiles])


class _Homes:
    """Where elements live, and how many bytes they take."""

    def __init__(self, placement: Placement):
        self.placement = placement
        self.num_elements = len(placement.element_tiles)
        variables = placement.plan.variables
        self.first_elements = np.array([variable.first_element for variable in variables], np.int64)
        self.itemsizes = np.array([variable.dtype.itemsize for variable in variables], np.int64)

    def is_full(self, stretches: np.ndarray) -> bool:
        """Whether so many stretches are counted faster by a flag for each element of the graph."""
        return _SHORT * len(stretches) >= self.num_elements

    def parts(self, paired: Runs) -> Runs:
        """All elements in parts of which all or none are in a set of some."""
        ends = np.stack([paired.starts, paired.stops], axis=1).reshape(-1)
        starts = np.append(0, ends[np.append(ends[:1] > 0, ends[1:] > ends[:-1])])
        return Runs(starts, np.append(starts[1:], self.num_elements))

    def among(self, elements: np.ndarray, paired: Runs) -> np.ndarray:
        """Whether each of some elements is in a set."""
        if self.is_full(elements):
            flags = np.zeros(self.num_elements, bool)
            flags[paired.numbers()] = True
            return flags[elements]
        return np.searchsorted(paired.starts, elements, "right") > np.searchsorted(paired.stops, elements, "right")

    def cut(self, starts: np.ndarray, stops: np.ndarray, parts: Runs) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Stretches cut where parts end, in any order: their ends, and of which stretch each is."""
        (one,), (many,) = np.nonzero(stops - starts == 1), np.nonzero(stops - starts > 1)
        found = overlaps(starts[many], stops[many], parts)
        columns = (starts[one], found.starts), (stops[one], found.stops), (one, many[found.first])
        begins, ends, which = map(np.concatenate, columns)
        return begins, ends, which

    def once(self, starts: np.ndarray, stops: np.ndarray, *parts: Runs) -> tuple[np.ndarray, np.ndarray]:
        """Stretches that may overlap: each element once, cut where no stretch goes on and where any parts end."""
        if not self.is_full(starts):
            # Elements are even numbers and what joins two of them odd ones, so that what only touches stays apart.
            runs = union(2 * starts, 2 * stops - 1)
            starts, stops = runs.starts // 2, runs.stops // 2 + 1
            for own in parts:
                starts, stops, _ = self.cut(starts, stops, own)
            return starts, stops
        # Flags for each element, and whether it goes on from the one before.
        begins, ends = (np.bincount(own, minlength=self.num_elements + 1) for own in (starts, stops))
        covered = np.cumsum(begins - ends)[:-1] > 0
        joined = np.cumsum(np.append(0, begins[:-1]) - ends)[:-1] > 0
        for own in parts:
            joined[own.starts] = False
        return np.flatnonzero(covered & ~joined), np.flatnonzero(covered & ~np.append(joined[1:], False)) + 1

    def sizes(self, starts: np.ndarray, stops: np.ndarray) -> np.ndarray:
        """Bytes of stretches of elements, each of one variable."""
        sizes = self.itemsizes
        if len(sizes) and (sizes == sizes[0]).all():
            return (stops - starts) * sizes[0]
        return (stops - starts) * sizes[np.searchsorted(self.first_elements, starts, side="right") - 1]

    def bytes_between(self, away: Runs, *, to_home: bool) -> np.ndarray | None:
        """What chips send to each other of what tiles have away from home, int64; None for nothing."""
        target = self.placement.plan.graph.target
        if target.num_chips == 1:
            return None
        moves = moves_between_chips(away, self.num_elements, self.placement.stretches, target, to_home=to_home)
        num_bytes = np.bincount(moves.pairs, self.sizes(moves.starts, moves.stops), target.num_chips**2)
        return num_bytes.astype(np.int64).reshape(target.num_chips, -1) if num_bytes.any() else None


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
        traffic: the same in words, as it takes time.
        received_messages: in how many messages each tile receives it, int64 of shape (num_tiles,).
        sent_messages: the same of what is sent.
        to_home: whether a tile sends the elements to where they live, rather than receives them from there.
        placement: where they live.
        touching: all that tiles read, or write, of a placement.
    """

    received_bytes: np.ndarray
    sent_bytes: np.ndarray
    traffic: Traffic
    received_messages: np.ndarray
    sent_messages: np.ndarray
    to_home: bool
    placement: Placement
    touching: Callable[[Placement], Runs]

    @functools.cached_property
    def touched(self) -> Runs:
        """All that tiles read, or write, wherever it lives, as runs of `tile * num_elements + element`.

        Found again where it is asked for, as it may be larger than all else of a plan together, which never asks.
        """
        return self.touching(self.placement)

    @functools.cached_property
    def away(self) -> Runs:
        """What of it lives elsewhere, and so moves."""
        return _away(self.touched, self.placement)

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


def _transfer(touched: Runs, homes: _Homes, touching: Callable[[Placement], Runs], *, to_home: bool) -> Transfer:
    """What of all that tiles touch moves, its bytes, words and messages."""
    placement, count, away = homes.placement, homes.num_elements, _away(touched, homes.placement)
    target = placement.plan.graph.target
    tiles = away.starts // max(1, count)
    starts, stops = away.starts - tiles * count, away.stops - tiles * count
    (parts, homes_of_parts), element_tiles = placement.stretches, placement.element_tiles
    begins, ends, which = homes.cut(starts, stops, parts)
    paired, cut_by = NONE, [parts]
    if target.paired_exchange and not to_home:  # what goes home goes to one tile
        sends = np.zeros(target.num_tiles + 2, bool)
        sends[element_tiles[begins]] = True
        is_silent = ~sends[np.arange(target.num_tiles) ^ 1]
        if (is_silent & sends[: target.num_tiles]).any():
            to_pairs = sent_to_pairs(tiles, starts, stops, count, counted=homes.is_full(starts))
            found = overlaps(*to_pairs, parts)
            alone = is_silent[homes_of_parts[found.second]]
            paired = Runs(found.starts[alone], found.stops[alone])
    if len(paired.starts):
        cut_by.append(homes.parts(paired))
        begins, ends, of_cut = homes.cut(begins, ends, cut_by[1])
        which = which[of_cut]
    received = Messages(tiles[which], homes.sizes(begins, ends), begins, target)
    begins, ends = (begins, ends) if to_home else homes.once(starts, stops, *cut_by)
    sent = Messages(element_tiles[begins], homes.sizes(begins, ends), begins, target)
    if to_home:
        received, sent = sent, received
    at_twice = [None, None]
    if len(paired.starts):
        at_twice = [own.by_tile(own.words * homes.among(own.elements, paired)) for own in (received, sent)]
    between = homes.bytes_between(away, to_home=to_home)
    return Transfer(
        received.bytes_by_tile,
        sent.bytes_by_tile,
        Traffic(received.words_by_tile, sent.words_by_tile, *at_twice, bytes_between=between),
        received.count_by_tile,
        sent.count_by_tile,
        to_home,
        placement,
        touching,
    )


@dataclass(frozen=True, eq=False)
class StepExchange:
    """What a step moves: to the vertices that read it, or the copy that takes it, and from those that wrote it."""

    before: Transfer
    after: Transfer


def _key(step: Step) -> Any:
    """What a step moves depends on: its families, which several steps may have, or itself."""
    return step.families if isinstance(step, ExecuteStep) else step


def _read(step: ExecuteStep | CopyStep, placement: Placement) -> Runs:
    return Touches(placement).read_by(step)


def _written(step: ExecuteStep, placement: Placement) -> Runs:
    return Touches(placement).by_fields(step, written=True)


def _untouched(placement: Placement) -> Runs:
    return NONE


class Exchange:
    """What the steps of a placed plan move, each planned once, when it is first asked for.

    Args:
        placement: where everything lives.
    """

    def __init__(self, placement: Placement):
        self.placement = placement
        self._homes, self._touches = _Homes(placement), Touches(placement)
        self._none = _transfer(NONE, self._homes, _untouched, to_home=False)
        self._nothing = StepExchange(self._none, self._none)
        self._planned: dict[Any, StepExchange] = {}

    def moved(self, placement: Placement, changes: Changes) -> Exchange:
        """The exchange of another placement of the plan: what a step moves is known where it touches nothing changed.

        Args:
            placement: the other.
            changes: between them.
        """
        found = Exchange(placement)
        for moment in timeline(placement.plan).moments:
            key = _key(moment.step)
            if key in self._planned and not changes.reach(moment.step):
                before, after = self._planned[key].before, self._planned[key].after
                both = replace(before, placement=placement), replace(after, placement=placement)
                found._planned.setdefault(key, StepExchange(*both))
        return found

    def of(self, step: Step | None) -> StepExchange:
        """What a step moves: nothing, where it has neither vertices nor a copy."""
        if not isinstance(step, ExecuteStep | CopyStep):
            return self._nothing
        key = _key(step)
        if key not in self._planned:
            before = _transfer(self._touches.read_by(step), self._homes, partial(_read, step), to_home=False)
            after = self._none
            if isinstance(step, ExecuteStep):
                written = self._touches.by_fields(step, written=True)
                after = _transfer(written, self._homes, partial(_written, step), to_home=True)
            self._planned[key] = StepExchange(before, after)
        return self._planned[key]

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
            step = self.of(moment.step)
            rows.append(str(moment))
            for when, moved in (("before", step.before), ("after", step.after)):
                if moved.received_bytes.any():
                    rows.append(f"      {when}: {moved}")
        return "\n".join(rows)


def _plan_all(exchange: Exchange) -> Exchange:
    for moment in timeline(exchange.placement.plan).moments:
        exchange.of(moment.step)
    return exchange


def plan_exchange_anew(exchange: Exchange, placement: Placement, changes: Changes) -> Exchange:
    """What every step moves of a plan that is placed otherwise, as `Exchange.moved` takes it from what is known."""
    return _plan_all(exchange.moved(placement, changes))


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
    return _plan_all(Exchange(placement))
