"""Planning: of the ways to spread an operation over the tiles the one that takes the fewest cycles.

In come offers: ways to cut the dimensions of an operation, and the costs of its compute sets with each, as columns
(`prices.py`). Out comes a `Plan`: the cheapest of those whose operands, results and temporaries fit a share of the
tiles' memory.

Source: PopLibs plans convolutions and matrix products so (lib/poplin/ConvPlan.cpp), with 0.6 of a tile's memory.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from codelet.display import in_one_line
from codelet.graphs.stages import Cut
from codelet.ops.prices import StepCost
from codelet.ops.ways import Ways
from codelet.target import Target

MEMORY_FRACTION = 0.6
"""Of a tile's memory, what an operation may take: PopLibs' availableMemoryProportion."""


WHOLE = 1 << 62
"""The grain of operations that are not cut: each is one vertex, as fast execution runs it."""


@dataclass(frozen=True, repr=False)
class Plan:
    """How an operation is spread over the tiles, and its cost.

    Attributes:
        operation: the planned operation, with its sizes.
        cuts: of the dimensions.
        steps: the cost of each compute set, in order.
        details: other choices, by name.
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
        """Of the compute of all steps."""
        return sum(step.compute for step in self.steps)

    @property
    def tile_bytes(self) -> int:
        """The most that a tile stores in any of the steps."""
        return max((step.tile_bytes for step in self.steps), default=0)

    def detail(self, name: str) -> object:
        """The choice under a name."""
        return dict(self.details)[name]

    def cut(self, name: str) -> Cut:
        """The cut of a dimension."""
        return next(cut for cut in self.cuts if cut.name == name)

    def choice_text(self) -> str:
        """The choices, in one line."""
        chosen = [*map(str, self.cuts), *(f"{name} {value}" for name, value in self.details)]
        return "; ".join(chosen)

    def __repr__(self) -> str:
        return in_one_line(self)

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


def is_uncut(grain: int | None) -> bool:
    """Whether operations of a grain are not cut: see `WHOLE`."""
    return grain is not None and grain >= WHOLE


def uncut(operation: str, dimensions: Iterable[tuple[str, int]], details: Iterable[tuple[str, object]] = ()) -> Plan:
    """The plan of an operation that is not cut, of which nothing is counted.

    Args:
        operation: the operation, for print.
        dimensions: their names and extents.
        details: its other choices.
    """
    cuts = tuple(Cut(name, extent, extent, extent) for name, extent in dimensions)
    return Plan(operation, cuts, (StepCost("uncut", 1, 1, 0, 0, 0, 0),), tuple(details))


# --- the search: which blocks to try ----------------------------------------------------------------------


def block_sizes(extent: int, multiple: int = 1, most_parts: int | None = None) -> list[int]:
    """The sizes of blocks worth trying: for every number of parts the least that makes no more, the largest first.

    Args:
        extent: of the dimension.
        multiple: sizes are rounded up to a multiple of it, where they are not all of the dimension.
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


def combined(extents: Sequence[int], sizes: Sequence[Sequence[int]], most_tiles: int) -> tuple[np.ndarray, np.ndarray]:
    """Blocks of all dimensions that are cut over so many tiles at most, as columns.

    Args:
        extents: of the dimensions.
        sizes: the blocks of each that are tried.
        most_tiles: over how many tiles, at most.

    Returns:
        The blocks, and over how many tiles each dimension is cut, int64 of shape (dimensions, ways); the last dimension
        goes fastest.

    >>> combined((4, 6), ((4, 2), (6, 3)), 2)[0].tolist()
    [[4, 4, 2], [6, 3, 6]]
    """
    blocks = [np.array(own, np.int64) for own in sizes]
    parts = [-(-extent // own) for extent, own in zip(extents, blocks, strict=True)]
    tiles = functools.reduce(np.multiply.outer, parts, np.ones((), np.int64))
    chosen = np.flatnonzero(tiles <= most_tiles)
    places = np.unravel_index(chosen, tiles.shape) if sizes else ()
    shape = (len(sizes), len(chosen))
    columns = ([own[k] for own, k in zip(each, places, strict=True)] for each in (blocks, parts))
    first, second = (np.array(own, np.int64).reshape(shape) for own in columns)
    return first, second


def repeated(plan: Plan, turns: int, what: str) -> Plan:
    """A plan in several rounds, one after another, from that of one round.

    Args:
        plan: of one iteration.
        turns: how many.
        what: a detail of the plan, under which their number is found.
    """
    steps = tuple(replace(step, name=f"{step.name} in turn {k + 1}") for k in range(turns) for step in plan.steps)
    other = None if plan.next_best is None else repeated(plan.next_best, turns, what)
    return replace(plan, steps=steps, details=(*plan.details, (what, turns)), next_best=other)


# --- the search -----------------------------------------------------------------------------------------

_TOGETHER = 16
"""Of so many ways at a time it is counted closely what they take."""

_MEMORY_STEPS = 32
"""What is over the memory is counted in such parts of a tile's: less than one is not worth a cycle."""


Steps = tuple[StepCost, ...]
"""What the compute sets of one way take, one after another."""


@dataclass(frozen=True, eq=False)
class Offers:
    """Ways to spread an operation, as columns: the costs of all of them are counted at once.

    Attributes:
        ways: to cut its dimensions.
        steps: the costs of its compute sets, columns.
        estimates: an estimate of each: of equals, that of the least is the first.
        preference: of ways of the same cycles that of the least is the best.
        details: its other choices, by the number in `which`.
        which: int64 of shape (ways,).
        later_cycles: the cost for steps that follow, and are not planned here.
        finish: from the numbers of some ways and the steps of each to these and those that follow, as sums of partial
            results; None where none do.
        least_to_finish: cycles that those that follow take at least.
    """

    ways: Ways
    steps: Sequence[StepCost]
    estimates: np.ndarray
    details: Sequence[tuple[tuple[str, object], ...]]
    which: np.ndarray
    preference: Any = 0
    later_cycles: Any = 0
    finish: Callable[[Sequence[int], Sequence[Steps]], Sequence[Steps]] | None = None
    least_to_finish: Any = 0

    @property
    def cycles(self) -> np.ndarray:
        """Of all steps but those that follow, with the cost of later ones."""
        return sum((step.cycles for step in self.steps), np.zeros(len(self.ways), np.int64)) + self.later_cycles

    def plans(self, operation: str, ways: Sequence[int]) -> list[Plan]:
        """The plans of some of them."""
        steps: Sequence[Steps] = [tuple(step.at(way) for step in self.steps) for way in ways]
        steps = steps if self.finish is None else self.finish(ways, steps)
        pairs = zip(ways, steps, strict=True)
        return [Plan(operation, self.ways.at(way), each, self.details[self.which[way]]) for way, each in pairs]


def beyond(target: Target, steps: Iterable[StepCost], memory_fraction: float = MEMORY_FRACTION) -> Any:
    """By how much steps are over the memory: a number, or a column of these."""
    taken = functools.reduce(np.maximum, (step.tile_bytes - step.there_bytes for step in steps), np.int64(0))
    part = max(1, target.bytes_per_tile // _MEMORY_STEPS)
    return np.maximum(0, -(-(taken - int(memory_fraction * target.bytes_per_tile)) // part))


def best_of(operation: str, target: Target, offers: Offers, memory_fraction: float = MEMORY_FRACTION) -> Plan:
    """The plan of the fewest cycles among those that fit the memory; where none does, of those that take least of it.

    Of equals it is the preferred one, then that on fewer tiles, of fewer vertices, of the least estimate, the first.

    Args:
        operation: the operation to plan, for print.
        target: the machine.
        offers: the ways there are; at least one.
        memory_fraction: the fraction of a tile's memory that it may take.
    """
    ways, count = offers.ways, len(offers.ways)
    least = offers.cycles + offers.least_to_finish
    places = np.empty((5, count))
    over = beyond(target, offers.steps, memory_fraction)
    places[:] = [own + 0 * least for own in (over, least, offers.preference, ways.num_tiles, ways.num_vertices)]
    later = np.zeros(count, np.int64) + offers.later_cycles
    best: list[tuple[tuple[float, ...], Plan]] = []  # the two best so far
    order = np.lexsort((offers.estimates, *places[::-1]))
    together = _TOGETHER if offers.finish is not None else 2
    for first in range(0, count, together):
        chunk = order[first : first + together]
        if len(best) == 2:
            chunk = [way for way in chunk if tuple(places[:, way]) <= best[1][0]]
        if not len(chunk):
            break
        for way, plan in zip(chunk, offers.plans(operation, list(map(int, chunk))), strict=True):
            place = beyond(target, plan.steps, memory_fraction), later[way] + plan.total_cycles, *places[2:, way]
            best = sorted([*best, (place, plan)], key=lambda entry: entry[0])[:2]
    return replace(best[0][1], next_best=best[1][1] if best[1:] else None, num_options=count)


@dataclass(frozen=True)
class Option:
    """A way to spread an operation, of which others are not counted with it.

    Attributes:
        cuts: of its dimensions.
        bound: cycles that it takes at least.
        price: the costs of its compute sets, one after another; asked only where the bound does not rule it out.
        details: its other choices.
    """

    cuts: tuple[Cut, ...]
    bound: float
    price: Callable[[], Iterable[StepCost]]
    details: tuple[tuple[str, object], ...] = ()


def cheapest(
    operation: str, target: Target, options: Iterable[Option], memory_fraction: float = MEMORY_FRACTION
) -> Plan:
    """`best_of` of some options, at least one, each of which is counted by itself."""
    every = list(options)
    ways, bounds = Ways.like([option.cuts for option in every]), np.array([option.bound for option in every])
    details, finish = [option.details for option in every], lambda some, _: [tuple(every[k].price()) for k in some]
    offers = Offers(ways, [], bounds, details, np.arange(len(every)), finish=finish, least_to_finish=bounds)
    return best_of(operation, target, offers, memory_fraction)
