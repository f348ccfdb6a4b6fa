"""Placement: the tile of every element and of every vertex.

In comes a checked plan, out what the graph leaves open. What the user has mapped stays where it is, and what vertices
that were given tiles write lives with its writer, unless it was mapped. For the rest there are four ways, each of
which places all of it (`candidates.py`):

`linear`: every variable is cut into ranges of equal length, laid on the tiles in order, and so are the vertices of
every family (`codelet/graphs/linear.py`).

`bytes`: a vertex is put where most of the bytes of its fields live (`votes.py`), as far as that makes no tile compute
for longer than it must; what is over goes to the tiles with the least to do (`balance.py`). Elements follow the vertex
that writes them first; those that are read before anything has written them are mapped linearly.

`blocks`: a family over several axes is cut into blocks over its grid, each on one tile (`blocks.py`), so that
neighbours of a stencil, or the rows and columns of a matrix product, share a tile. What it writes lives with the
vertices that write it, and what it reads with those that read it, if they are on one tile. A family whose vertices read
elements that are placed goes where they live, and what is left after that goes by bytes.

`rows`: the same, but that all vertices along the last axes stay together, and the rows are laid on the tiles in order.

Five more are those that anyone would try by hand, with what a vertex writes, and what it is the first to read, on its
tile: `spread`, in order over all tiles; `rounds`, the same in rounds of as many as a tile has workers; `dealt`, to the
tiles in turn; `columns`, by the last axis first; `before`, as the compute set before that has as many vertices.

Programs whose vertices read through scattered tables are partitioned as well (`irregular.py`): `partition` by METIS,
`hypergraph` by Mt-KaHyPar, `breadth_first` without a library. The best of these is refined by modelled cycles
(`unit_moves.py`), and elements lie in an order in which messages are long (`orders.py`).

`balanced`, the default, is the one of all that takes the fewest cycles, of compute, exchange and sync together, as
`step_cycles.py` counts them: of those whose variables fit the memory of the tiles, where any do. Of equals it is the
first of `WAYS`; a partition is kept where another takes hardly less and far more memory. Of partitions one is tried:
`partition`, if METIS is installed. The others are not tried where the first takes no longer than the vertices alone,
laid out in order. `Placement.tried` has what was compared. What was found is kept for the next time (`searches.py`).

Whatever the way, elements and vertices that were given tiles stay there, and constraints are met (`constrained.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Literal, TypeGuard, get_args

import numpy as np

from codelet.errors import ProgramError
from lowering.machine.candidates import OBVIOUS, PARTITIONS, WAYS, Way, least_in_order, least_of_rows, place_by, ways_of
from lowering.machine.exchange import Exchange, plan_exchange
from lowering.machine.hypergraph import is_irregular
from lowering.machine.irregular import partitioner, warn_without_partitioner
from lowering.machine.partitioners import has_metis
from lowering.machine.placement import Candidate, Placement, changes_between
from lowering.machine.placer import given_tiles
from lowering.machine.searches import KnownSearch, told
from lowering.machine.step_cycles import least_cycles, total_cycles
from lowering.plan.plan import Plan
from lowering.plan.timeline import without_calls

Method = Literal["balanced", Way]
"""How to place what the graph leaves open."""

METHODS: tuple[Method, ...] = ("balanced", *get_args(Way))
"""All of them."""

NEAR = 1.02
"""A placement within this of what its vertices take alone is not compared with the obvious ones."""

WORTH = 0.99
"""An obvious placement is taken where it takes at most this of the cycles of the others."""

ABOUT, LESS = 1.015, 0.97
"""A placement by partition is kept where another takes fewer cycles by less than this, and it less of the memory."""

Place = Method | Callable[[Plan], Placement]
"""How a plan is placed: by a method, or a function, which is given the plan without calls."""


def fits(placement: Placement) -> bool:
    """Whether the variables alone fit the memory of every tile."""
    return int(placement.bytes_by_tile.max(initial=0)) <= placement.plan.graph.target.bytes_per_tile


class _Tried:
    """A placement by a way, what moves then, and how good that is."""

    def __init__(self, way: Way, exchange: Exchange):
        self.way, self.exchange = way, exchange
        self.cycles, self.fits = total_cycles(exchange), fits(exchange.placement)

    def is_beaten(self, way: Way, least: int) -> bool:
        """Whether what another way takes at least shows that this is no worse, and the first of equals."""
        return self.fits and (least, WAYS.index(way)) > (self.cycles, WAYS.index(self.way))

    @functools.cached_property
    def num_bytes(self) -> int:
        """Bytes of variables on the fullest tile, with what that receives in a step."""
        own = self.exchange.placement.bytes_by_tile
        received = [step.before.received_bytes for step in self.exchange.steps.values()]
        return int((own + np.max([0 * own, *received], axis=0)).max(initial=0))

    def is_about_as_good(self, other: _Tried) -> bool:
        """Whether this is by partition, takes hardly more cycles than another way, and much less memory."""
        is_near = self.fits and self.cycles <= ABOUT * other.cycles
        return self.way in PARTITIONS and is_near and self.num_bytes <= LESS * other.num_bytes

    def candidate(self) -> Candidate:
        """What is told of it."""
        return Candidate(self.way, self.cycles, self.num_bytes, self.fits)


class _Compared:
    """The best placement so far of a plan, and all that were compared with it.

    What moves by one is known for the others where they are alike, so that little is planned of those.
    """

    def __init__(self, plan: Plan):
        self._given = given_tiles(plan)
        self.best = _Tried("bytes", plan_exchange(place_by(plan, "bytes", self._given)))
        self.plan = plan
        self.candidates = [self.best.candidate()]

    def _beaten(self, way: Way, least: int) -> None:
        self.candidates.append(Candidate(way, least))

    def compare(self, way: Way) -> None:
        """Try another way, unless it is seen to be no better."""
        found = self.best
        if way == "rows" and found.is_beaten(way, least := least_of_rows(self.plan)):
            return self._beaten(way, least)
        other = place_by(self.plan, way, self._given)
        if found.fits and not fits(other):
            return None
        changes = changes_between(found.exchange.placement, other)
        if not changes:
            return None
        if found.fits and changes.families:
            least = least_cycles(self.plan, other.vertex_tiles)
            if found.is_beaten(way, least):
                return self._beaten(way, least)
        compared = _Tried(way, plan_exchange(other, found.exchange))
        self.candidates.append(compared.candidate())
        self.best = min(found, compared, key=lambda own: (not own.fits, own.cycles, WAYS.index(own.way)))
        if way in OBVIOUS and found.fits and compared.cycles > WORTH * found.cycles:
            self.best = found
        other = compared if self.best is found else found
        if other.is_about_as_good(self.best):
            self.best = other
        return None

    def exchange(self) -> Exchange:
        """What moves by the best, whose placement tells what was tried."""
        chosen = self.best.way
        order = sorted(self.candidates, key=lambda own: (own.way != chosen, own.num_bytes is None, own.cycles))
        return told(self.best.exchange, order)


def _cheapest(plan: Plan, irregular: bool) -> Exchange:
    """The placement that takes the fewest cycles of those that fit, and what moves then."""
    compared = _Compared(plan)
    least = least_in_order(plan)
    if not irregular and compared.best.fits and compared.best.cycles <= least:
        return compared.exchange()
    if irregular:
        compared.compare(partitioner())
    for way in ways_of(plan):
        if way != "bytes" and not (way in OBVIOUS and compared.best.fits and compared.best.cycles <= NEAR * least):
            compared.compare(way)
    return compared.exchange()


def _searched(plan: Plan) -> Exchange:
    """The placement that a search finds, or found before, and what moves then."""
    irregular = any(family.tile is None for family in plan.families) and is_irregular(plan)
    if irregular and not has_metis():
        warn_without_partitioner()
    known = KnownSearch(plan)
    if known.tried is not None:
        found = plan_exchange(place_by(plan, known.tried[0].way))  # type: ignore[arg-type]
        if known.holds(total_cycles(found), fits(found.placement)):
            return told(found, known.tried)
    found = _cheapest(plan, irregular)
    known.keep(found.placement.tried)
    return found


def is_method(value: object) -> TypeGuard[Method]:
    """Whether there is such a way to place."""
    return isinstance(value, str) and value in METHODS


def place_and_exchange(plan: Plan, method: Method = "balanced") -> Exchange:
    """Where everything lives, as `place` says it, and what moves between tiles then.

    Args:
        plan: the unfused plan. What is placed is the plan without calls.
        method: how to place what the graph leaves open.

    Raises:
        ProgramError: an unknown method.
        SizeError: it would take more memory than this computer has.
        CyclesError: a codelet's own `cycles=` fails.
    """
    if not is_method(method):
        raise ProgramError(
            "there is no such placement",
            given=repr(method),
            expected=", ".join(map(repr, METHODS[:-1])) + f" or {METHODS[-1]!r}",
        )
    plan = without_calls(plan)
    return _searched(plan) if method == "balanced" else plan_exchange(place_by(plan, method))


def place(plan: Plan, method: Method = "balanced") -> Placement:
    """Where every element and every vertex of a checked plan lives. The same plan is always placed the same way.

    Args:
        plan: the unfused plan. What is placed is the plan without calls.
        method: how to place what the graph leaves open; see the module's docstring.

    Raises:
        ProgramError: an unknown method.
        SizeError: it would take more memory than this computer has.
        CyclesError: a codelet's own `cycles=` fails.

    >>> import codelet as cl
    >>> from lowering.pipeline import plan_engine
    >>> @cl.codelet
    ... def double(x):
    ...     return 2 * x
    >>> graph = cl.Graph(cl.IPU(num_tiles=4))
    >>> x = graph.add_variable("x", (128,))
    >>> i = cl.grid(128)
    >>> y = graph.add_vertex("double", double, x=x[i])
    >>> print(place(plan_engine(graph, graph.default_program)))
    placement on 4 tiles
      x: float32[128]: 128 elements on 4 tiles from 0 to 3, at most 32 on one
      double/out: float32[128]: 128 elements on 4 tiles from 0 to 3, at most 32 on one
      double / double: 128 vertices on 4 tiles from 0 to 3, at most 32 on one
    """
    if not is_method(method) or method == "balanced":
        return place_and_exchange(plan, method).placement
    return place_by(without_calls(plan), method)
