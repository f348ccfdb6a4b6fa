"""The planner of matrix products: how to cut what is kept of each operand, and what is summed, over tiles and vertices.

In come the extents of a product's dimensions, by role; out comes a `Plan`. A vertex makes a block of results from a
block of each operand; where the dimension that is summed is cut, it makes partial sums, and `codelet/ops/partials.py`
adds them up.

Source: Poplar plans a matrix product as a convolution, by the same splits (lib/poplin/ConvPlan.cpp); for a matrix times
a vector Graphcore's tutorial has the costs of one split by hand, which this comes to with its codelets.
"""

from __future__ import annotations

import functools
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.graphs.stages import Cut
from codelet.ops.block_planning import add_up, least_of_sums, with_sums
from codelet.ops.blocks import near
from codelet.ops.homes import Home, moved_elements
from codelet.ops.pairs import Pair, both, told
from codelet.ops.plan_cache import kept_on_disk
from codelet.ops.planning import MEMORY_FRACTION, Offers, Plan, Steps, best_of, block_sizes, repeated
from codelet.ops.prices import POINTER_BYTES, Costs, StepCost, by_group, costs_of, moved_cycles, step_costs
from codelet.ops.ways import Vertices, Ways, of_grain, product_of, ways_of
from codelet.target import Target
from codelet.tracing.codelets import Codelet
from codelet.tracing.field_types import SizeNames, sizes_named

Role = Literal["batch", "rows", "columns", "summed"]

ROLES: tuple[Role, ...] = ("batch", "rows", "summed", "columns")
"""In the order in which blocks follow one another on the tiles, which is that of both operands and of the results."""
A_ROLES: tuple[Role, ...] = ("batch", "rows", "summed")
B_ROLES: tuple[Role, ...] = ("batch", "summed", "columns")
OUT_ROLES: tuple[Role, ...] = ("batch", "rows", "columns")


@dataclass(frozen=True)
class Dimension:
    """A dimension of a product: what it does, and how many elements it has."""

    name: str
    role: Role
    extent: int


@dataclass(frozen=True)
class Product:
    """A product of two arrays.

    Attributes:
        dimensions: in the order of `ROLES`; `a` has its own as (batch, rows, summed), `b` as
            (batch, summed, columns), the result as (batch, rows, columns).
        dtype: of both operands.
        partials: what is summed in.
        out_dtype: of the results.
        homes: where the operands lie; see `homes.py`.
        wanted: where the results are to lie; None where that is all one.
    """

    dimensions: tuple[Dimension, ...]
    dtype: np.dtype
    partials: np.dtype
    out_dtype: np.dtype
    homes: tuple[Home | None, Home | None] = (None, None)
    wanted: Home | None = None

    @functools.cached_property
    def _axes(self) -> dict[tuple[Role, ...], tuple[int, ...]]:
        return {}

    def axes(self, roles: tuple[Role, ...]) -> tuple[int, ...]:
        """The dimensions of an array that has those of some roles, in its order."""
        if roles not in self._axes:
            own = [d for role in roles for d, one in enumerate(self.dimensions) if one.role == role]
            self._axes[roles] = tuple(own)
        return self._axes[roles]

    def size(self, *roles: Role) -> int:
        """The number of elements of the dimensions of some roles."""
        return math.prod(own.extent for own in self.dimensions if own.role in roles)

    @property
    def extents_by_name(self) -> list[tuple[str, int]]:
        """The name and the extent of every dimension."""
        return [(own.name, own.extent) for own in self.dimensions]

    @property
    def out_shape(self) -> tuple[int, ...]:
        """The shape of the results, by these dimensions."""
        return tuple(own.extent for own in self.dimensions if own.role != "summed")

    @property
    def numbers(self) -> Any:
        """The dimension numbers of `lax.dot_general`, of a vertex too."""
        batch, rows, summed = (sum(own.role == role for own in self.dimensions) for role in A_ROLES)
        both = tuple(range(batch))
        left = tuple(range(batch + rows, batch + rows + summed))
        return (left, tuple(range(batch, batch + summed))), (both, both)

    def __str__(self) -> str:
        sizes = ", ".join(f"{own.name} {own.extent:,}" for own in self.dimensions)
        return f"a product of {self.dtype} in {self.partials}: {sizes}"


# --- codelets ---------------------------------------------------------------------------------------------


def _sizes_of_blocks(static: Mapping[str, Any], ranks: Sequence[int]) -> SizeNames:
    names = [[f"{name}{d}" for d in range(rank)] for name, rank in zip("ab", ranks, strict=True)]
    for pairs in static["numbers"]:
        for d, e in zip(*pairs, strict=True):
            names[1][e] = names[0][d]
    return SizeNames((tuple(names[0]), tuple(names[1])))


@both
@sizes_named(_sizes_of_blocks)
def product_block(a, b, *, numbers, partials, dtype):
    """A block of a product, summed in `partials`, as `dtype`."""
    return lax.dot_general(a, b, numbers, preferred_element_type=jnp.dtype(partials)).astype(dtype)


@dataclass(frozen=True)
class Codelets:
    """What a product is made of: codelets that may be a user's own.

    Attributes:
        product: fields `a` and `b`, blocks as `Product` has them; perhaps static `numbers`, `partials` and `dtype`.
        worker: the same for one worker of a tile; None for none such.
        add: adds up partial sums; see `plan_sum`.
    """

    product: Codelet = product_block.shared
    worker: Codelet | None = product_block.worker
    add: Codelet = add_up

    @property
    def pair(self) -> Pair:
        """What makes products."""
        alone = self.worker if self.product.hints.workers > 1 else None
        return Pair(self.product, alone or self.product)

    def static(self, codelet: Codelet, own: Product, dtype: np.dtype) -> dict[str, Any]:
        """The static values that one takes."""
        values = {"numbers": own.numbers, "partials": own.partials.name, "dtype": dtype.name}
        return {name: value for name, value in values.items() if name in codelet.static}


CODELETS = Codelets()


# --- prices -----------------------------------------------------------------------------------------------


def num_partials(cuts: Sequence[Cut], own: Product) -> int:
    """How many partial sums each result has."""
    return math.prod(cuts[d].vertices for d in own.axes(("summed",)))


def _moved_bytes(ways: Ways, own: Product) -> dict[str, Any]:
    """Bytes that a tile receives, and sends: of an operand that several tiles read, or that lies elsewhere."""
    pairs = zip(own.homes, (A_ROLES, B_ROLES), strict=True)
    moved = [moved_elements(home, ways, own.axes(roles)) for home, roles in pairs]
    received, sent = (sum(elements) * own.dtype.itemsize for elements in zip(*moved, strict=True))
    return {"received_bytes": received, "sent_bytes": sent}


def _later_cycles(target: Target, own: Product, ways: Ways) -> Any:
    """Cycles of the exchange by which results come to where they are wanted, if they are made elsewhere."""
    if not own.wanted:
        return 0
    received, sent = (
        elements * own.out_dtype.itemsize for elements in moved_elements(own.wanted, ways, own.axes(OUT_ROLES))
    )
    cycles = target.sync_cycles + moved_cycles(target, received, ways.num_tiles, sent)
    return np.where((received > 0) | (sent > 0), cycles, 0)


def _pointers(ways: Ways, own: Product) -> Any:
    """Bytes that a tile keeps for the edges of its vertices: one for each row of a block."""
    rows = sum(product_of(ways.grains, own.axes(roles)[:-1]) for roles in (A_ROLES, B_ROLES, OUT_ROLES))
    return POINTER_BYTES * rows * ways.vertices_of_tile.prod(axis=0)


def _cost(target: Target, own: Product, codelets: Codelets, codelet: Codelet, dtype: np.dtype) -> Costs:
    """What vertices take that make blocks in a dtype, by their sizes: numbers, or columns of these."""
    costs = costs_of(target, codelet, **codelets.static(codelet, own, dtype))
    pairs = (("a", own.axes(A_ROLES)), ("b", own.axes(B_ROLES)))
    return lambda sizes: costs.of({name: ([sizes[d] for d in axes], own.dtype) for name, axes in pairs})


def _price(
    target: Target, own: Product, codelets: Codelets, ways: Ways, which: np.ndarray, turns: int
) -> tuple[StepCost, np.ndarray]:
    """What the products take, with the codelets of these numbers, and how many partial sums results have: columns."""
    summed = own.axes(("summed",))
    count = np.broadcast_to(product_of(ways.vertices, summed), (len(ways),))
    dtypes = own.out_dtype, own.partials
    cost = functools.cache(lambda group: _cost(target, own, codelets, codelets.pair[group // 2], dtypes[group % 2]))
    vertex = by_group(target, 2 * which + (count > 1), lambda group, sizes: cost(group)(sizes))
    blocks = ways.blocks
    operands = product_of(blocks, own.axes(A_ROLES)) + product_of(blocks, own.axes(B_ROLES))
    of_tile = product_of(blocks, summed) // np.maximum(1, product_of(ways.grains, summed))
    itemsizes = np.where(count > 1, own.partials.itemsize, own.out_dtype.itemsize)
    results = product_of(blocks, own.axes(OUT_ROLES)) * np.maximum(1, of_tile) * itemsizes
    held = operands * own.dtype.itemsize + results + turns * _pointers(ways, own)
    return step_costs(target, "multiply", ways, vertex, **_moved_bytes(ways, own), tile_bytes=held), count


# --- the ways there are -----------------------------------------------------------------------------------

_CANDIDATES = 128
"""So many blocks of tiles, those that promise the least, are priced exactly."""

_ALONE = 64
"""How large the other dimensions are where it is asked how the time of a vertex grows with one."""


def _multiple(role: Role, own: Product) -> int:
    """What blocks come in multiples of: what a pass of the matrix unit takes."""
    if role in ("batch", "rows"):
        return 1
    return 16 if own.dtype.itemsize == 2 and role == "summed" else 8


def _main(own: Product) -> dict[Role, int]:
    """The dimension of each role that is cut over tiles: the largest."""
    main: dict[Role, int] = {}
    for d, dimension in enumerate(own.dimensions):
        role = dimension.role
        if role not in main or dimension.extent > own.dimensions[main[role]].extent:
            main[role] = d
    return main


def _placed(own: Product) -> list[tuple[Home, tuple[int, ...]]]:
    """The operands, and the results, that lie somewhere or are wanted there, with the dimensions of each."""
    found = zip((*own.homes, own.wanted), map(own.axes, (A_ROLES, B_ROLES, OUT_ROLES)), strict=True)
    return [(home, axes) for home, axes in found if home]


def _sizes(target: Target, own: Product, codelets: Codelets, d: int, grain: int | None) -> list[int]:
    """The blocks of a dimension that are worth trying: those of operands, and multiples of a grain, or else of what the
    matrix unit takes.
    """
    dimension = own.dimensions[d]
    multiple = _multiple(dimension.role, own) if grain is None else grain
    if grain is None and (
        dimension.extent < 4 * multiple or codelets.product is not product_block.shared
    ):  # any size may do
        multiple = 1
    sizes = block_sizes(dimension.extent, multiple, target.num_tiles)
    homes = {home[axes.index(d)] for home, axes in _placed(own) if d in axes}
    return sorted(
        {*sizes, *(size for size in homes if size <= dimension.extent and size % (grain or 1) == 0)}, reverse=True
    )


def _grain_of(own: Product, grain: int) -> tuple[int, ...]:
    """The block of a vertex that has about so many multiply-adds: first all that is summed, then as a square."""
    left, sizes = grain, [1] * len(own.dimensions)
    for d in reversed(range(len(own.dimensions))):
        if own.dimensions[d].role == "summed":
            sizes[d] = near(own.dimensions[d].extent, left)
            left = max(1, left // sizes[d])
    free = [d for d in range(len(own.dimensions)) if own.dimensions[d].role in ("rows", "columns")]
    for k, d in enumerate(sorted(free, key=lambda d: own.dimensions[d].extent)):
        sizes[d] = near(own.dimensions[d].extent, round(left ** (1 / (len(free) - k))))
        left = max(1, left // sizes[d])
    for d in range(len(own.dimensions)):
        if own.dimensions[d].role == "batch":
            sizes[d] = near(own.dimensions[d].extent, left)
            left = max(1, left // sizes[d])
    return tuple(sizes)


def _rates(
    target: Target, own: Product, codelets: Codelets, cut: Sequence[int], choices: Sequence[Sequence[int]]
) -> tuple[float, list[np.ndarray]]:
    """Cycles of a tile for a multiply-add, in a block of `_ALONE`; and by which factor they are more for each size."""
    base = [min(dimension.extent, _ALONE) for dimension in own.dimensions]
    sizes = np.array(base, np.int64)[:, None] + np.zeros(1 + sum(map(len, choices)), np.int64)
    ends = np.cumsum([1, *map(len, choices)])
    for d, first, one in zip(cut, ends, choices, strict=False):
        sizes[d, first : first + len(one)] = one
    vertex = _cost(target, own, codelets, codelets.product, own.partials)(sizes)
    rates = vertex.tile_cycles(target.num_workers) / sizes.prod(axis=0)
    return float(rates[0]), np.split(rates / rates[0], ends)[1:-1]


def _blocks(
    target: Target, own: Product, codelets: Codelets, grains: Sequence[int] | None, memory: int
) -> tuple[np.ndarray, np.ndarray]:
    """A bound below the cycles of blocks of tiles that promise the least, whatever is computed; and these blocks.

    What a vertex takes is asked along one dimension at a time; a block of several is supposed to take the product of
    what that tells. Those that promise the least on these terms are priced exactly afterwards.
    """
    main = _main(own)
    cut = list(main.values())
    choices = [_sizes(target, own, codelets, d, None if grains is None else grains[d]) for d in cut]
    sizes = dict(zip(cut, np.meshgrid(*map(np.array, choices), indexing="ij"), strict=True))
    parts = {d: -(-own.dimensions[d].extent // sizes[d]) for d in cut}

    def size(*roles: Role) -> Any:
        dimensions = enumerate(own.dimensions)
        return math.prod(sizes.get(d, one.extent) for d, one in dimensions if one.role in roles)

    def part(role: Role) -> Any:
        return parts[main[role]] if role in main else 1

    count = len(own.dimensions) and part("summed")
    outputs, itemsize = own.size(*OUT_ROLES), own.partials.itemsize
    # Of operands that lie elsewhere nothing is said: how much of them a tile has already is not told by their size.
    received = np.where(part("columns") > 1, size(*A_ROLES), 0) + np.where(part("rows") > 1, size(*B_ROLES), 0)
    sums = np.where(np.asarray(count) > 1, -(-outputs * count // target.num_tiles) * itemsize, 0)
    bound = (received * own.dtype.itemsize + sums) / target.exchange_bytes_per_cycle
    promise, factors = _rates(target, own, codelets, cut, choices)
    work = promise * size(*A_ROLES, "columns")
    for axis, factor in enumerate(factors):
        work = work * factor.reshape([-1 if k == axis else 1 for k in range(len(cut))])
    held = size(*A_ROLES) * own.dtype.itemsize + size(*B_ROLES) * own.dtype.itemsize + size(*OUT_ROLES) * itemsize
    # What lies in other blocks is likely to move: that is no bound, but says which to look at first.
    for home, axes in _placed(own):
        is_there = math.prod((sizes[d] == home[k] for k, d in enumerate(axes) if d in sizes), start=np.bool_(True))
        moves = math.prod(home) * own.dtype.itemsize / target.exchange_bytes_per_cycle
        work = work + np.where(is_there, 0, moves + target.sync_cycles + target.exchange_overhead_cycles)
    tiles = math.prod(parts[d] for d in cut)
    allowed = np.broadcast_to((tiles <= target.num_tiles) & (held <= memory), work.shape)
    order = np.argsort(np.where(allowed, bound + work, np.inf), axis=None, kind="stable")
    chosen = order[:_CANDIDATES][allowed.reshape(-1)[order[:_CANDIDATES]]]
    blocks = np.array([one.extent for one in own.dimensions], np.int64)[:, None] + 0 * chosen
    for d in cut:
        blocks[d] = sizes[d].reshape(-1)[chosen]
    return np.broadcast_to(bound, work.shape).reshape(-1)[chosen], blocks


def _ways(
    target: Target, own: Product, codelets: Codelets, blocks: np.ndarray, fixed: tuple[int, ...] | None
) -> Iterator[Vertices]:
    """How tiles' blocks are made: by the codelets of which numbers, in what grains, and of which blocks."""
    every, workers = np.ones(blocks.shape[1], bool), target.num_workers
    if fixed is not None:
        yield of_grain(blocks, fixed, workers)
        return
    shared, main = codelets.product.hints.workers > 1, _main(own)
    if shared:
        yield 0, blocks, every
    if shared and codelets.worker is None:
        return
    for role in ("rows", "columns", "batch"):
        if role in main:
            grains = blocks.copy()
            grains[main[role]] = -(-blocks[main[role]] // workers)
            yield 1, grains, blocks[main[role]] > 1
    if not shared:
        summed = np.array([one.role == "summed" for one in own.dimensions], bool)
        yield 1, np.where(summed[:, None], blocks, 1), every


def _offers(
    target: Target, own: Product, codelets: Codelets, grain: int | None, memory: int, turns: int
) -> Offers | None:
    """The ways that promise the least, and what they take; None where there are none."""
    fixed = None if grain is None else _grain_of(own, grain)
    bounds, blocks = _blocks(target, own, codelets, fixed, memory)
    ways, which, place = ways_of(
        own.extents_by_name, blocks, _ways(target, own, codelets, blocks, fixed), target.num_tiles
    )
    if not len(ways):
        return None
    step, count = _price(target, own, codelets, ways, which, turns)
    outputs, dtypes = own.size(*OUT_ROLES), (own.partials, own.out_dtype)

    def finish(some: Sequence[int], steps: Sequence[Steps]) -> list[Steps]:
        return with_sums(target, count[some], outputs, dtypes, codelets.add, steps)

    details, later = [told(codelet) for codelet in codelets.pair], _later_cycles(target, own, ways)
    least = least_of_sums(target, count, outputs, dtypes, codelets.add)
    return Offers(ways, [step], bounds[place], details, which, later, finish=finish, least_to_finish=least)


def _in_turns(own: Product) -> Iterator[tuple[int, Role, Product]]:
    """A product in ever more turns, one after another: of so many, the role of what is cut, and that of one turn."""
    yield 1, "rows", own
    main = _main(own)
    kept = [main[role] for role in OUT_ROLES if role in main]
    if not kept:
        return
    d = max(kept, key=lambda d: own.dimensions[d].extent)
    dimension, turns = own.dimensions[d], 1
    while turns < dimension.extent:
        turns = min(2 * turns, dimension.extent)
        part = replace(dimension, extent=-(-dimension.extent // turns))
        yield turns, dimension.role, replace(own, dimensions=(*own.dimensions[:d], part, *own.dimensions[d + 1 :]))


@functools.lru_cache(maxsize=1024)
@kept_on_disk
def plan_product(
    target: Target,
    own: Product,
    codelets: Codelets = CODELETS,
    grain: int | None = None,
    memory_fraction: float = MEMORY_FRACTION,
) -> Plan:
    """How a product is spread over the tiles of a machine: the same plan for the same sizes.

    Where the blocks of all tiles do not fit their memory at once, it is done in turns, each of a part of the results;
    where that does not help, or a grain is given, the plan is the one that takes least memory of all.

    Args:
        target: the machine.
        own: the product.
        codelets: what it is made of.
        grain: about how many multiply-adds a vertex has; None for the planner to choose.
        memory_fraction: of a tile's memory, what the operation may take.
    """
    memory = int(memory_fraction * target.bytes_per_tile)
    for turns, role, part in _in_turns(own) if grain is None else ():
        offers = _offers(target, part, codelets, grain, memory, turns)
        if offers is None:
            continue
        plan = best_of(str(own), target, offers, memory_fraction)
        if plan.tile_bytes <= memory:
            return plan if turns == 1 else repeated(plan, turns, f"turns of {role}")
    offers = _offers(target, own, codelets, grain, sys.maxsize, 1)
    assert offers is not None
    return best_of(str(own), target, offers, memory_fraction)
