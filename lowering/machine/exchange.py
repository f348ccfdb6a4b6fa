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
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from codelet.graphs.family import counted
from codelet.superstep import Copied, Traffic
from codelet.views.sources import Variable
from lowering.machine.chips import tiles_per_chip
from lowering.machine.messages import Messages, sent_to_pairs
from lowering.machine.multicast import members_of
from lowering.machine.placement import Placement
from lowering.machine.region import Region, Stretches
from lowering.machine.step_forms import StepForms
from lowering.machine.touched import Touches
from lowering.plan.runs import NONE, Runs, overlaps, stretches, union
from lowering.plan.steps import CopyStep, ExecuteStep, Step
from lowering.plan.timeline import timeline


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
        touching: all that tiles read, or write, of what touches a placement.
    """

    received_bytes: np.ndarray
    sent_bytes: np.ndarray
    traffic: Traffic
    received_messages: np.ndarray
    sent_messages: np.ndarray
    to_home: bool
    placement: Placement
    touching: Callable[[Touches], Region]

    @functools.cached_property
    def _region(self) -> Region:
        return self.touching(Touches(self.placement))

    @functools.cached_property
    def touched(self) -> Runs:
        """All that tiles read, or write, wherever it lives, as runs of `tile * num_elements + element`.

        Found again where it is asked for, as it may be larger than all else of a plan together, which never asks.
        """
        return self._region.in_graph(self._region.starts, self._region.stops, self._region.tiles)

    @functools.cached_property
    def away(self) -> Runs:
        """What of it lives elsewhere, and so moves."""
        return self._region.in_graph(*self._region.away().joined()[:3])

    def moves(self) -> Moves:
        """Every element that moves, with its sender and its receiver, in the order of `away`."""
        tiles, elements = np.divmod(self.away.numbers(), len(self.placement.element_tiles) or 1)
        homes, tiles = (own.astype(np.int32) for own in (self.placement.element_tiles[elements], tiles))
        return Moves(elements, tiles, homes) if self.to_home else Moves(elements, homes, tiles)

    def __str__(self) -> str:
        if not self.received_bytes.any():
            return "nothing"
        received, sent = self.received_bytes, self.sent_bytes
        return (
            f"{received.sum():,} bytes received, at most {received.max():,} by tile {received.argmax()}; "
            f"{sent.sum():,} sent, at most {sent.max():,} by tile {sent.argmax()}"
        )


class _Moving:
    """What moves of the elements of some variables, in stretches that live on one tile each.

    Attributes:
        region: the elements.
        leaders: of each tile the leader, which touches the same.
        pieces: what leaders touch, but for what lives on the only tile that touches it.
    """

    def __init__(self, region: Region, leaders: np.ndarray | None = None):
        self.region = region
        self.target = region.placement.plan.graph.target
        self.leaders = np.arange(self.target.num_tiles) if leaders is None else leaders
        self.pieces = region.away(np.bincount(self.leaders, minlength=self.target.num_tiles) > 1)

    def by_tile(self, some: np.ndarray) -> Stretches:
        """Some of the pieces, for every tile that has them away from home."""
        starts, stops, leaders, homes = (own[some] for own in self.pieces)
        tiles, followers = members_of(self.leaders)
        own = Runs(followers.starts[leaders], followers.stops[leaders])
        which, tiles = np.repeat(np.arange(len(starts)), own.lengths), tiles[own.numbers()]
        order = np.argsort(tiles, kind="stable")
        order = order[(tiles != homes[which])[order]]
        which, tiles = which[order], tiles[order]
        return Stretches(starts[which], stops[which], tiles, homes[which]).joined()

    def paired(self, is_silent: np.ndarray) -> Runs:
        """What goes to whole pairs of tiles alone, from tiles the other of whose pair sends nothing."""
        some = is_silent[self.pieces.homes]
        if not some.any():
            return NONE
        starts, stops, tiles, _ = self.by_tile(some)
        to_pairs = sent_to_pairs(tiles, starts, stops, self.region.num_elements, counted=self.region.is_full(starts))
        found = overlaps(*to_pairs, self.region.stretches[0])
        alone = is_silent[self.region.stretches[1][found.second]]
        return Runs(found.starts[alone], found.stops[alone])

    def messages(self, paired: Runs, *, to_home: bool) -> tuple[Messages, Messages]:
        """What tiles receive and what they send, cut where what goes to pairs begins and ends."""
        region = self.region
        begins, ends, leaders, homes = self.pieces
        parts = [region.parts(paired)] if len(paired.starts) else []
        for own in parts:
            begins, ends, of_cut = region.cut(begins, ends, own)
            leaders, homes = leaders[of_cut], homes[of_cut]
        away = Messages(leaders, region.sizes(begins, ends), begins, self.target, self.leaders, homes)
        if not to_home:
            begins, ends = region.once(self.pieces.starts, self.pieces.stops, *parts)
        at_home = Messages(region.tiles_at(begins), region.sizes(begins, ends), begins, self.target)
        return (at_home, away) if to_home else (away, at_home)

    def bytes_between(self, *, to_home: bool) -> np.ndarray | None:
        """What chips send to each other, int64 of shape (num_chips, num_chips); None for nothing.

        A chip receives once what several of its tiles do, or sends it once.
        """
        count, per_chip = self.target.num_chips, tiles_per_chip(self.target)
        if count == 1:
            return None
        has = np.zeros((count, self.target.num_tiles), bool)
        has[np.arange(self.target.num_tiles) // per_chip, self.leaders] = True
        starts, stops, leaders, homes = self.pieces
        home, space = homes.astype(np.int64) // per_chip, max(1, self.region.num_elements)
        num_bytes = np.zeros((count, count), np.int64)
        for chip in range(count):
            (away,) = np.nonzero(has[chip][leaders] & (home != chip))
            first = home[away] * space
            moved = union(first + starts[away], first + stops[away])
            others = moved.starts // space
            sizes = self.region.sizes(moved.starts - others * space, moved.stops - others * space)
            num_bytes[chip] = np.bincount(others, sizes, count)
        return (num_bytes if to_home else num_bytes.T) if num_bytes.any() else None


def _sum(arrays: Iterable[np.ndarray | None]) -> np.ndarray | None:
    """The sum of arrays, None for nothing."""
    return functools.reduce(lambda one, other: other if one is None else one if other is None else one + other, arrays)


class _Amounts(NamedTuple):
    """How much moves at one time: the first attributes of `Transfer`."""

    received_bytes: np.ndarray
    sent_bytes: np.ndarray
    traffic: Traffic
    received_messages: np.ndarray
    sent_messages: np.ndarray


def _moved(parts: Sequence[_Moving], placement: Placement, *, to_home: bool) -> _Amounts:
    """What moves of parts that have no variable in common: its bytes, words and messages."""
    target = placement.plan.graph.target
    none = np.zeros(target.num_tiles, np.int64)
    sends, is_silent = np.zeros(target.num_tiles + 2, bool), np.zeros(target.num_tiles, bool)
    for own in parts:
        sends[own.pieces.homes] = True
    if target.paired_exchange and not to_home:  # what goes home goes to one tile
        is_silent = ~sends[np.arange(target.num_tiles) ^ 1] & sends[: target.num_tiles]
    ways: tuple[list[Messages], list[Messages]] = [], []
    at_twice: tuple[list[np.ndarray], list[np.ndarray]] = [], []
    for own in parts:
        paired = own.paired(is_silent) if is_silent.any() else NONE
        for way, messages, twice in zip(ways, own.messages(paired, to_home=to_home), at_twice, strict=True):
            way.append(messages)
            if len(paired.starts):
                twice.append(messages.by_tile(messages.words * own.region.among(messages.elements, paired)))
    num_bytes, words, counts = (
        [sum((getattr(own, name) for own in way), none) for way in ways]
        for name in ("bytes_by_tile", "words_by_tile", "count_by_tile")
    )
    between = _sum([None, *(own.bytes_between(to_home=to_home) for own in parts)])
    traffic = Traffic(words[0], words[1], _sum([None, *at_twice[0]]), _sum([None, *at_twice[1]]), between)
    return _Amounts(num_bytes[0], num_bytes[1], traffic, counts[0], counts[1])


@dataclass(frozen=True, eq=False)
class StepExchange:
    """What a step moves.

    Attributes:
        before: to the vertices that read it, or the copy that takes it.
        after: from the vertices that wrote it.
        copied: from one place of a tile's own memory to another; None where it is no copy.
    """

    before: Transfer
    after: Transfer
    copied: Copied | None = None


def _key(step: Step) -> Any:
    """What a step moves depends on: its families, which several steps may have, or itself."""
    return step.families if isinstance(step, ExecuteStep) else step


def _variables(step: Step, *, written: bool) -> set[Variable]:
    touches = (touch for touch in step.touches() if (touch.is_written if written else touch.is_read))
    return {variable for touch in touches for variable in touch.variables}


def _read(step: ExecuteStep | CopyStep, touches: Touches) -> Region:
    return Region(touches.read_by(step), _variables(step, written=False), touches.placement)


def _parts(step: ExecuteStep | CopyStep, touches: Touches, *, written: bool) -> list[_Moving]:
    """The same by parts, without some that does not move, and once for all tiles that touch the same."""
    if isinstance(step, CopyStep):
        if step.whole_variables is None:
            return [_Moving(_read(step, touches))]
        away = touches.away_by_copy(*step.whole_variables)
        return [_Moving(Region(away, step.whole_variables[:1], touches.placement))] if len(away.starts) else []
    parts = touches.multicast_away(step, written=written)
    return [_Moving(Region(own.runs, own.variables, touches.placement), own.leaders) for own in parts]


def _written(step: ExecuteStep, touches: Touches) -> Region:
    return Region(touches.by_fields(step, written=True), _variables(step, written=True), touches.placement)


def _copied(step: CopyStep, placement: Placement) -> Copied:
    """What of a copy stays on its tile: what is next to the same in the source as in the destination is a row of it."""
    if step.whole_variables is not None:
        tiles, to_tiles = map(placement.tiles_of, step.whole_variables)
        runs, tiles = stretches(np.where(tiles == to_tiles, tiles, -1))
        rows, alone = ((tiles >= 0) & (runs.lengths > 1), (tiles >= 0) & (runs.lengths == 1))
        in_rows = np.bincount(tiles[rows], runs.lengths[rows], placement.num_tiles).astype(np.int64)
        strided = np.bincount(tiles[alone], minlength=placement.num_tiles)
        return Copied(in_rows * step.destination.dtype.itemsize, strided)
    source, to = step.source.elements().reshape(-1), step.destination.elements().reshape(-1)
    tiles = placement.element_tiles[to]
    (stays,) = np.nonzero((source < 0) | (placement.element_tiles[source] == tiles))  # padding is written where it is
    if len(stays) < len(to):
        source, to, tiles = source[stays], to[stays], tiles[stays]
    ahead = to[1:] - to[:-1]
    alike = (source[1:] - source[:-1] == ahead) | (source[1:] < 0) & (source[:-1] < 0)
    near = alike & (abs(ahead) == 1) & (tiles[1:] == tiles[:-1])
    in_row = (np.append(near, False) | np.append(False, near))[: len(to)]
    count = functools.partial(np.bincount, minlength=placement.num_tiles)
    return Copied(count(tiles[in_row]) * step.destination.dtype.itemsize, count(tiles[~in_row]))


def _nowhere(touches: Touches) -> Region:
    """What nothing touches."""
    return Region(NONE, (), touches.placement)


class Exchange:
    """What the steps of a placed plan move, each planned once, when it is first asked for.

    Args:
        placement: where everything lives.
        like: what moves by other placements of the plan, which tells what moves in steps of the same forms.
    """

    def __init__(self, placement: Placement, like: Exchange | None = None):
        self.placement = placement
        self._forms = StepForms(placement)
        self._of_form: dict[Hashable, tuple[_Amounts, _Amounts, Copied | None]] = {} if like is None else like._of_form
        self._touches = Touches(placement)
        self._none = _moved([], placement, to_home=False)
        nothing = Transfer(*self._none, False, placement, _nowhere)
        self._nothing = StepExchange(nothing, nothing)
        self._planned: dict[Any, StepExchange] = {}

    def _moved(self, step: ExecuteStep | CopyStep) -> tuple[_Amounts, _Amounts, Copied | None]:
        """What a step moves before and after, and what it copies."""
        form = self._forms.of(step)
        found = self._of_form.get(form)
        if found is None:
            before = _moved(_parts(step, self._touches, written=False), self.placement, to_home=False)
            if isinstance(step, CopyStep):
                found = before, self._none, _copied(step, self.placement)
            else:
                after = _moved(_parts(step, self._touches, written=True), self.placement, to_home=True)
                found = before, after, None
            self._of_form[form] = found
        return found

    def of(self, step: Step | None) -> StepExchange:
        """What a step moves: nothing, where it has neither vertices nor a copy."""
        if not isinstance(step, ExecuteStep | CopyStep):
            return self._nothing
        key = _key(step)
        if key not in self._planned:
            before, after, copied = self._moved(step)
            written = partial(_written, step) if isinstance(step, ExecuteStep) else _nowhere
            self._planned[key] = StepExchange(
                Transfer(*before, False, self.placement, partial(_read, step)),
                Transfer(*after, True, self.placement, written),
                copied,
            )
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


def plan_exchange(placement: Placement, like: Exchange | None = None) -> Exchange:
    """What every step of a placed plan moves between tiles.

    Args:
        placement: where the elements and vertices of a checked plan live.
        like: what moves by another placement of it, which tells what moves in steps that are alike.

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
    exchange = Exchange(placement, like)
    for moment in timeline(placement.plan).moments:
        exchange.of(moment.step)
    return exchange
