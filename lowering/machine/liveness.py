"""Live ranges: which variables hold a value that is still needed, at every moment of a program, on every tile.

In come a placement and its exchange. Out comes for each variable the moments at which it is live, and the
bytes it takes on each tile. A variable is live where something may have written it and something may read it
before all of it is written anew (`live_variables.py`); what a loop carries is therefore live throughout the loop, by
the edge from its end to its head. Inputs, outputs, constants and what an engine keeps are always live, but for an input
that a program writes before it reads any of it, unless it is an output too. What arrives in a step is live while it
computes, and so is what it sends home.

An output takes its input's place where this is the input's last use, both lie on the same tiles element by element, and
each vertex reads of the input exactly what it writes of the output, each element for itself: see
`jaxprs/elementwise.py`. A codelet that reads what it overwrites through a field that is in-out keeps what it still
needs in its registers and on its stack, which is not counted.

Source: always live and not always live, Poplar and PopLibs User Guide, "Profiling: memory".
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from codelet.graphs.family import counted
from codelet.views.index import Index
from codelet.views.sources import Variable, source_variables
from codelet.views.tensor import Tensor
from lowering.jaxprs.elementwise import may_overwrite
from lowering.machine.exchange import Exchange, StepExchange
from lowering.machine.live_variables import LiveVariables, bits_of, flags_of, lifetimes, live_variables
from lowering.machine.offsets import sums_at_moments
from lowering.machine.placement import Placement
from lowering.plan.runs import stretches
from lowering.plan.steps import CopyStep, ExecuteStep, Step
from lowering.plan.timeline import Moment, Timeline, timeline

WORD_BYTES = 4
"""What takes memory on a tile is whole words: exchange moves words (Jia et al., 2019, chapter 4)."""


@dataclass(frozen=True, eq=False)
class LiveRange:
    """What takes memory at some moments: variables that share a place, one after another, or an exchange buffer.

    Attributes:
        name: what it is called in print.
        variables: each but the first overwrites one before it; none for an exchange buffer.
        always: whether it is live from before the program starts until after it ends.
        moments: at which moments it is live, bool of shape (moments,).
        num_bytes: what it takes on each tile, whole words, int64 of shape (num_tiles,).
    """

    name: str
    variables: tuple[Variable, ...]
    always: bool
    moments: np.ndarray
    num_bytes: np.ndarray

    def __str__(self) -> str:
        when = "always"
        if not self.always:
            runs, live = stretches(self.moments)
            ends = [(a, b - 1) for a, b, own in zip(runs.starts, runs.stops, live, strict=True) if own]
            when = ", ".join(f"{a}" if a == b else f"{a} to {b}" for a, b in ends)
        most = int(self.num_bytes.max(initial=0))
        return f"{self.name}: {when}; {int(self.num_bytes.sum()):,} bytes, at most {most:,} on a tile"


@dataclass(frozen=True, eq=False)
class Liveness:
    """What is live when, and where.

    Attributes:
        placement: where the elements live.
        exchange: what the steps move.
        timeline: the moments.
        ranges: of variables, by their order in the graph.
        buffers: of what arrives and what is sent home in a step, by the order of the program.
    """

    placement: Placement
    exchange: Exchange
    timeline: Timeline
    ranges: tuple[LiveRange, ...]
    buffers: tuple[LiveRange, ...]

    def live_bytes(self, ranges: Sequence[LiveRange] | None = None) -> np.ndarray:
        """Bytes live at each moment on each tile, of all ranges or of some: int64 of shape (moments, num_tiles)."""
        chosen = [*self.ranges, *self.buffers] if ranges is None else ranges
        shape = (len(self.timeline.moments), self.placement.num_tiles)
        if not chosen:
            return np.zeros(shape, np.int64)
        return sums_at_moments(np.stack([own.num_bytes for own in chosen]), np.stack([own.moments for own in chosen]))

    @property
    def most_bytes_at_times(self) -> int:
        """The most bytes live at once, over all tiles, of variables that are not always live."""
        sometimes = [own for own in self.ranges if not own.always]
        return int(self.live_bytes(sometimes).sum(axis=1).max(initial=0))

    @functools.cached_property
    def most_live_bytes(self) -> np.ndarray:
        """The most bytes live at once on each tile, int64 of shape (num_tiles,)."""
        always = [own.num_bytes for own in self.ranges if own.always]
        none = np.zeros(self.placement.num_tiles, np.int64)
        return np.maximum(self.live_bytes().max(axis=0, initial=0), sum(always, none))

    def __repr__(self) -> str:
        moments = counted(len(self.timeline.moments), "moment", "moments")
        return f"<Liveness of {counted(len(self.ranges), 'variable', 'variables')} over {moments}>"

    def __str__(self) -> str:
        rows = [f"live ranges over {counted(len(self.timeline.moments), 'moment', 'moments')}"]
        rows += [str(moment) for moment in self.timeline.moments]
        rows += [f"  {own}" for own in (*self.ranges, *self.buffers)]
        most = self.most_live_bytes
        if most.any():
            rows.append(f"  most live at once: {most.max():,} bytes, on tile {most.argmax()}")
        return "\n".join(rows)


# --- outputs in the place of inputs -------------------------------------------------------------------


def _same_index(a: Index, b: Index) -> bool:
    """Whether two access maps over the same axes are the same."""
    if (a.offset, a.shape, a.strides, a.symbols) != (b.offset, b.shape, b.strides, b.symbols):
        return False
    return len(a.tables) == len(b.tables) and all(
        s.keys == t.keys and s.scale == t.scale and (s.values is t.values or np.array_equal(s.values, t.values))
        for s, t in zip(a.tables, b.tables, strict=True)
    )


def _same_access(a: Tensor, b: Tensor) -> bool:
    """Whether two views take the same flat positions of variables, vertex by vertex."""
    if not (isinstance(a.source, Variable) and isinstance(b.source, Variable) and _same_index(a.index, b.index)):
        return False
    if a.rows is None or b.rows is None:
        return a.rows is b.rows
    return a.ragged_dimension == b.ragged_dimension and a.rows.key == b.rows.key


def _overwrites(step: Step, old: Variable, new: Variable) -> bool:
    """Whether each vertex of a step, or a copy, can write `new` in the place of `old`, which it reads.

    It reads of `old` exactly the positions that it writes of `new`, and needs none that it has overwritten.
    """
    if isinstance(step, CopyStep):
        return step.whole_variables == (old, new)
    if not isinstance(step, ExecuteStep):
        return False
    for family in step.families:
        connected = [(field, field.tensor) for field in family.fields if field.tensor is not None]
        made = [(field, tensor) for field, tensor in connected if field.is_written and tensor.source is new]
        for field, tensor in connected:
            if field.is_read and old in source_variables(tensor.source):
                places = [own.name for own, target in made if _same_access(tensor, target)]
                if not places or not may_overwrite(family.codelet, field.name, places[0]):
                    return False
    return True


class _SharedPlaces:
    """Which variables share a place, and when it is live: sets that are joined."""

    def __init__(self, live: dict[Variable, int]):
        self.live = {variable: {variable: own} for variable, own in live.items()}

    def moments(self, variable: Variable) -> int:
        return functools.reduce(int.__or__, self.live[variable].values())

    def join(self, old: Variable, new: Variable, moment: int) -> None:
        """Let `new` take the place of `old` if their places are in use together at that moment alone."""
        if self.live[old] is not self.live[new] and self.moments(old) & self.moments(new) == 1 << moment:
            both = {**self.live[old], **self.live[new]}
            for variable in both:
                self.live[variable] = both


def _share_places(
    moments: Sequence[Moment], variables: Sequence[Variable], flow: LiveVariables, placement: Placement
) -> list[tuple[tuple[Variable, ...], int]]:
    """The variables, those that share a place together, and when each place is live, by bits."""
    number = {variable: 1 << k for k, variable in enumerate(variables)}
    during = bits_of(flags_of(flow.during, len(variables)).T)
    places = _SharedPlaces(dict(zip(variables, during, strict=True)))

    def alike(old: Variable, new: Variable) -> bool:
        same_type = old.size == new.size and old.dtype.itemsize == new.dtype.itemsize
        return same_type and placement.element_tiles.of_variable(old).is_same(placement.element_tiles.of_variable(new))

    for k, (moment, before, after) in enumerate(zip(moments, flow.before, flow.after, strict=True)):
        ending = [v for v in moment.reads if v in number and not after & number[v] and v not in moment.writes]
        starting = [v for v in moment.writes if v in number and not before & number[v] and v not in moment.reads]
        for new, old in itertools.product(starting, ending):
            if alike(old, new) and _overwrites(moment.step, old, new):
                places.join(old, new, k)
    found: dict[int, tuple[tuple[Variable, ...], int]] = {}
    for variable in variables:
        shared = places.live[variable]
        found.setdefault(id(shared), (tuple(shared), places.moments(variable)))
    return list(found.values())


# --- live ranges --------------------------------------------------------------------------------------


def whole_words(num_bytes: np.ndarray) -> np.ndarray:
    """Bytes rounded up to whole words."""
    return -(-num_bytes // WORD_BYTES) * WORD_BYTES


def _resident_bytes(variable: Variable, placement: Placement) -> np.ndarray:
    """What a variable takes on each tile."""
    return whole_words(placement.counts_of(variable) * variable.dtype.itemsize)


def _buffers(exchange: Exchange, moments: Sequence[Moment]) -> Iterator[LiveRange]:
    """What arrives at the tiles in each step, and what they send home: one buffer for a step, wherever it stands."""
    when: dict[StepExchange, np.ndarray] = {}
    names: dict[StepExchange, str] = {}
    for moment in moments:
        step = exchange.of(moment.step)
        if step.before.received_bytes.any() or step.after.sent_bytes.any():
            when.setdefault(step, np.zeros(len(moments), bool))[moment.number] = True
            names.setdefault(step, moment.name)
    for step, live in when.items():
        num_bytes = whole_words(step.before.received_bytes) + whole_words(step.after.sent_bytes)
        yield LiveRange(f"exchange of {names[step]}", (), False, live, num_bytes)


def live_ranges(exchange: Exchange, keep: Collection[Variable] | None = None) -> Liveness:
    """What is live when, and where, of a placed plan. Variables that the program does not name take no memory.

    Args:
        exchange: what the steps of the placed plan move.
        keep: the variables that hold a value before and after the program; default: `plan.lasting`. Constants, and what
            the program reads before it has written it, always do.

    >>> import codelet as cl
    >>> from lowering.machine.exchange import plan_exchange
    >>> from lowering.pipeline import plan_graph
    >>> from lowering.machine.place import place
    >>> @cl.codelet
    ... def double(x):
    ...     return 2 * x
    >>> graph = cl.Graph(cl.IPU(num_tiles=2))
    >>> x = graph.add_variable("x", (64,))
    >>> i = cl.grid(64)
    >>> a = graph.add_vertex("one", double, x=x[i])
    >>> b = graph.add_vertex("two", double, x=a[i])
    >>> y = graph.add_vertex("three", double, x=b[i])
    >>> plan = plan_graph(graph, graph.default_program, [x.source], [y])
    >>> print(live_ranges(plan_exchange(place(plan))))
    live ranges over 3 moments
      0 execute one
      1 execute two
      2 execute three
      x: always; 256 bytes, at most 128 on a tile
      one/out, two/out: 0 to 2; 256 bytes, at most 128 on a tile
      three/out: always; 256 bytes, at most 128 on a tile
      most live at once: 384 bytes, on tile 0
    """
    placement = exchange.placement
    plan = placement.plan
    line = timeline(plan)
    held = lifetimes(plan, keep)
    named = {variable for moment in line.moments for variable in (*moment.reads, *moment.writes)}
    named |= {variable for tensor in plan.outputs for variable in source_variables(tensor.source)}
    named |= {*plan.inputs, *(keep or ())}
    passing = [v for v in plan.variables if v in named and v not in held.kept]
    flow = live_variables(plan, line, held, passing)
    count = len(line.moments)
    ranges = [
        LiveRange(variable.name, (variable,), True, np.ones(count, bool), _resident_bytes(variable, placement))
        for variable in plan.variables
        if variable in named and variable in held.kept
    ]
    places = _share_places(line.moments, passing, flow, placement)
    when = flags_of([moments for _, moments in places], count)
    for (variables, _), live in zip(places, when, strict=True):
        name = ", ".join(variable.name for variable in variables)
        if live.any():
            ranges.append(LiveRange(name, variables, False, live, _resident_bytes(variables[0], placement)))
    ranges.sort(key=lambda own: own.variables[0].number)
    return Liveness(placement, exchange, line, tuple(ranges), tuple(_buffers(exchange, line.moments)))
