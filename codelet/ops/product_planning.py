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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.graphs.stages import Cut
from codelet.ops.block_planning import add_up, plan_sum
from codelet.ops.blocks import cuts_of, near, num_tiles
from codelet.ops.homes import Home, moved_elements
from codelet.ops.pairs import Pair, both, told
from codelet.ops.planning import (
    MEMORY_SHARE,
    POINTER_BYTES,
    Option,
    Plan,
    StepCost,
    VertexCosts,
    block_sizes,
    cheapest,
    moved_cycles,
    repeated,
    step_cost,
)
from codelet.target import Target, VertexCycles
from codelet.tracing.codelets import Codelet

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


@both
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


def _count(cuts: tuple[Cut, ...], own: Product, roles: tuple[Role, ...], what: str) -> int:
    """A product over the dimensions of some roles of what their cuts say: `block`, `grain`, `parts` or `vertices`."""
    return math.prod([getattr(cuts[d], what) for d in own.axes(roles)])


def _shape(cuts: tuple[Cut, ...], own: Product, roles: tuple[Role, ...]) -> tuple[int, ...]:
    """The shape of a vertex's block of an operand."""
    return tuple([cuts[d].grain for d in own.axes(roles)])


def num_partials(cuts: tuple[Cut, ...], own: Product) -> int:
    """How many partial sums each result has."""
    return _count(cuts, own, ("summed",), "vertices")


def _moved_bytes(cuts: tuple[Cut, ...], own: Product) -> dict[str, Any]:
    """Bytes that a tile receives, and sends: of an operand that several tiles read, or that lies elsewhere."""
    pairs = zip(own.homes, (A_ROLES, B_ROLES), strict=True)
    moved = [moved_elements(home, cuts, own.axes(roles)) for home, roles in pairs]
    received, sent = (sum(elements) * own.dtype.itemsize for elements in zip(*moved, strict=True))
    return {"received_bytes": received, "sent_bytes": sent}


def _later_cycles(target: Target, own: Product, cuts: tuple[Cut, ...]) -> int:
    """Cycles of the exchange by which results come to where they are wanted, if they are made elsewhere."""
    moved = moved_elements(own.wanted, cuts, own.axes(OUT_ROLES)) if own.wanted else ()
    if not any(moved):
        return 0
    received, sent = (elements * own.out_dtype.itemsize for elements in moved)
    return target.sync_cycles + moved_cycles(target, received, num_tiles(cuts), sent)


def _pointers(cuts: tuple[Cut, ...], own: Product) -> int:
    """Bytes that a tile keeps for the edges of its vertices: one for each row of a block."""
    rows = [math.prod(shape[:-1]) for shape in (_shape(cuts, own, roles) for roles in (A_ROLES, B_ROLES, OUT_ROLES))]
    return POINTER_BYTES * sum(rows) * math.prod(cut.vertices_of_tile for cut in cuts)


class _ProductCosts:
    """What vertices of a product take."""

    def __init__(self, target: Target, own: Product, codelets: Codelets):
        self.target, self.own, self.codelets = target, own, codelets
        self._costs: dict[tuple[Codelet, np.dtype], VertexCosts] = {}

    def of(self, codelet: Codelet, dtype: np.dtype, cuts: tuple[Cut, ...]) -> VertexCycles:
        """One that makes a block in a dtype."""
        own, key = self.own, (codelet, dtype)
        if key not in self._costs:
            self._costs[key] = VertexCosts(self.target, codelet, **self.codelets.static(codelet, own, dtype))
        types = {"a": (_shape(cuts, own, A_ROLES), own.dtype), "b": (_shape(cuts, own, B_ROLES), own.dtype)}
        return self._costs[key].of(types)


def _price(costs: _ProductCosts, codelet: Codelet, cuts: tuple[Cut, ...], turns: int) -> Iterator[StepCost]:
    target, own, codelets = costs.target, costs.own, costs.codelets
    count = num_partials(cuts, own)
    dtype = own.partials if count > 1 else own.out_dtype
    vertex = costs.of(codelet, dtype, cuts)
    operands = (_count(cuts, own, A_ROLES, "block") + _count(cuts, own, B_ROLES, "block")) * own.dtype.itemsize
    of_tile = _count(cuts, own, ("summed",), "block") // max(1, _count(cuts, own, ("summed",), "grain"))
    results = _count(cuts, own, OUT_ROLES, "block") * max(1, of_tile) * dtype.itemsize
    held = operands + results + turns * _pointers(cuts, own)
    yield step_cost(target, "multiply", cuts, vertex, **_moved_bytes(cuts, own), tile_bytes=held)
    if count > 1:
        yield from plan_sum(target, count, own.size(*OUT_ROLES), own.partials, own.out_dtype, codelets.add).steps


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
    costs: _ProductCosts, cut: Sequence[int], choices: Sequence[Sequence[int]]
) -> tuple[float, list[np.ndarray]]:
    """Cycles of a tile for a multiply-add, in a block of `_ALONE`; and by which factor they are more for each size."""
    own, target = costs.own, costs.target

    def rate(sizes: Sequence[int]) -> float:
        vertex = costs.of(costs.codelets.product, own.partials, cuts_of(own.extents_by_name, sizes, sizes))
        return vertex.tile_cycles(target.num_workers) / math.prod(sizes)

    base = [min(dimension.extent, _ALONE) for dimension in own.dimensions]
    most = rate(base)
    factors = [
        np.array([rate([*base[:d], size, *base[d + 1 :]]) / most for size in sizes])
        for d, sizes in zip(cut, choices, strict=True)
    ]
    return most, factors


def _blocks(costs: _ProductCosts, grains: Sequence[int] | None, memory: int) -> list[tuple[float, tuple[int, ...]]]:
    """Blocks of tiles that promise the least, with a bound below the cycles of each, whatever is computed.

    What a vertex takes is asked along one dimension at a time; a block of several is supposed to take the product of
    what that tells. Those that promise the least on these terms are priced exactly afterwards.
    """
    target, own, codelets = costs.target, costs.own, costs.codelets
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
    promise, factors = _rates(costs, cut, choices)
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
    chosen = [k for k in order[:_CANDIDATES] if allowed.reshape(-1)[k]]
    bounds = np.broadcast_to(bound, work.shape).reshape(-1)
    found = []
    for k in chosen:
        own_sizes = [dimension.extent for dimension in own.dimensions]
        for d in cut:
            own_sizes[d] = int(sizes[d].reshape(-1)[k])
        found.append((float(bounds[k]), tuple(own_sizes)))
    return found


def _ways(
    target: Target, own: Product, codelets: Codelets, blocks: tuple[int, ...], fixed: tuple[int, ...] | None
) -> Iterator[tuple[Codelet, tuple[int, ...]]]:
    """The codelets that may make a tile's block, and the blocks of their vertices."""
    shared, workers = codelets.product.hints.workers > 1, target.num_workers
    alone = codelets.worker if shared else codelets.product
    if fixed is not None:
        vertices = math.prod(-(-block // grain) for block, grain in zip(blocks, fixed, strict=True))
        yield codelets.pair.for_vertices(vertices, workers), fixed
        return
    if shared:
        yield codelets.product, blocks
    if alone is None:
        return
    main = _main(own)
    for role in ("rows", "columns", "batch"):
        if role in main and blocks[d := main[role]] > 1:
            yield alone, (*blocks[:d], -(-blocks[d] // workers), *blocks[d + 1 :])
    if not shared:
        yield alone, tuple(b if own.dimensions[d].role == "summed" else 1 for d, b in enumerate(blocks))


def _options(
    target: Target, own: Product, codelets: Codelets, grain: int | None, memory: int, turns: int
) -> Iterator[Option]:
    fixed, costs = None if grain is None else _grain_of(own, grain), _ProductCosts(target, own, codelets)
    for bound, blocks in _blocks(costs, fixed, memory):
        for codelet, grains in _ways(target, own, codelets, blocks, fixed):
            cuts = cuts_of(own.extents_by_name, blocks, grains)
            if num_tiles(cuts) <= target.num_tiles:
                price = functools.partial(_price, costs, codelet, cuts, turns)
                yield Option(cuts, bound, price, told(codelet), later_cycles=_later_cycles(target, own, cuts))


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
def plan_product(
    target: Target,
    own: Product,
    codelets: Codelets = CODELETS,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
) -> Plan:
    """How a product is spread over the tiles of a machine: the same plan for the same sizes.

    Where the blocks of all tiles do not fit their memory at once, it is done in turns, each of a part of the results;
    where that does not help, or a grain is given, the plan is the one that takes least memory of all.

    Args:
        target: the machine.
        own: the product.
        codelets: what it is made of.
        grain: about how many multiply-adds a vertex has; None for the planner to choose.
        memory_share: of a tile's memory, what the operation may take.
    """
    memory = int(memory_share * target.bytes_per_tile)
    for turns, role, part in _in_turns(own) if grain is None else ():
        options = list(_options(target, part, codelets, grain, memory, turns))
        if not options:
            continue
        plan = cheapest(str(own), target, options, memory_share)
        if plan.tile_bytes <= memory:
            return plan if turns == 1 else repeated(plan, turns, f"turns of {role}")
    options = list(_options(target, own, codelets, grain, sys.maxsize, 1))
    return cheapest(str(own), target, options, memory_share)
