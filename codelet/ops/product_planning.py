"""The planner of matrix products: how to cut what is kept of each operand, and what is summed, over tiles and vertices.

In come the extents of a product's dimensions, by role; out comes a `Plan`. A vertex makes a block of results from a
block of each operand; where the dimension that is summed is cut, it makes partial sums, and `codelet/ops/partials.py`
adds them up.

Source: Poplar plans a matrix product as a convolution, by the same splits (lib/poplin/ConvPlan.cpp); for a matrix times
a vector Graphcore's tutorial has the costs of one split by hand, which this comes to with its codelets.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from codelet.ops.blocks import Cut, num_tiles
from codelet.ops.partials import add_up, plan_sum
from codelet.ops.planning import MEMORY_SHARE, Option, Plan, StepCost, block_sizes, cheapest, step_cost, vertex_cycles
from codelet.target import Target

Role = Literal["batch", "rows", "columns", "summed"]

_A: tuple[Role, ...] = ("batch", "rows", "summed")
_B: tuple[Role, ...] = ("batch", "summed", "columns")
_OUT: tuple[Role, ...] = ("batch", "rows", "columns")


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
        dimensions: in the order batch, rows, columns, summed; `a` has its own as (batch, rows, summed), `b` as
            (batch, summed, columns), the result as (batch, rows, columns).
        dtype: of both operands.
        partials: what is summed in.
        out_dtype: of the results.
    """

    dimensions: tuple[Dimension, ...]
    dtype: np.dtype
    partials: np.dtype
    out_dtype: np.dtype

    def size(self, *roles: Role) -> int:
        """The number of elements of the dimensions of some roles."""
        return math.prod(own.extent for own in self.dimensions if own.role in roles)

    @property
    def numbers(self) -> Any:
        """The dimension numbers of `lax.dot_general`, of a vertex too."""
        batch, rows, summed = (sum(own.role == role for own in self.dimensions) for role in _A)
        both = tuple(range(batch))
        left = tuple(range(batch + rows, batch + rows + summed))
        return (left, tuple(range(batch, batch + summed))), (both, both)

    def __str__(self) -> str:
        sizes = ", ".join(f"{own.name} {own.extent:,}" for own in self.dimensions)
        return f"a product of {self.dtype} in {self.partials}: {sizes}"


# --- codelets ---------------------------------------------------------------------------------------------


def _product(a, b, *, numbers, partials, dtype):
    return lax.dot_general(a, b, numbers, preferred_element_type=jnp.dtype(partials)).astype(dtype)


@cl.codelet(workers=6, issue="assembly")
def product(a, b, *, numbers, partials, dtype):
    """A block of a product, summed in `partials`, as `dtype`: all workers of a tile share it."""
    return _product(a, b, numbers=numbers, partials=partials, dtype=dtype)


@cl.codelet(issue="assembly")
def product_of_worker(a, b, *, numbers, partials, dtype):
    """The same of one worker."""
    return _product(a, b, numbers=numbers, partials=partials, dtype=dtype)


@dataclass(frozen=True)
class Codelets:
    """What a product is made of: codelets that may be a user's own.

    Attributes:
        product: fields `a` and `b`, blocks as `Product` has them; perhaps static `numbers`, `partials` and `dtype`.
        worker: the same for one worker of a tile; None for none such.
        add: adds up partial sums; see `plan_sum`.
    """

    product: cl.Codelet = product
    worker: cl.Codelet | None = product_of_worker
    add: cl.Codelet = add_up

    def static(self, codelet: cl.Codelet, own: Product, dtype: np.dtype) -> dict[str, Any]:
        """The static values that one takes."""
        values = {"numbers": own.numbers, "partials": own.partials.name, "dtype": dtype.name}
        return {name: value for name, value in values.items() if name in codelet.static}


CODELETS = Codelets()


# --- prices -----------------------------------------------------------------------------------------------


def _count(cuts: tuple[Cut, ...], own: Product, roles: tuple[Role, ...], what: str) -> int:
    """A product over the dimensions of some roles of what their cuts say: `block`, `grain`, `parts` or `vertices`."""
    pairs = zip(cuts, own.dimensions, strict=True)
    return math.prod(getattr(cut, what) for cut, dimension in pairs if dimension.role in roles)


def _shape(cuts: tuple[Cut, ...], own: Product, roles: tuple[Role, ...]) -> tuple[int, ...]:
    """The shape of a vertex's block of an operand."""
    pairs = list(zip(cuts, own.dimensions, strict=True))
    return tuple(cut.grain for role in roles for cut, dimension in pairs if dimension.role == role)


def num_partials(cuts: tuple[Cut, ...], own: Product) -> int:
    """How many partial sums each result has."""
    return _count(cuts, own, ("summed",), "vertices")


def _received(cuts: tuple[Cut, ...], own: Product) -> int:
    """Bytes that a tile receives: of an operand that several tiles read its block."""
    words = _count(cuts, own, _A, "block") if _count(cuts, own, ("columns",), "parts") > 1 else 0
    words += _count(cuts, own, _B, "block") if _count(cuts, own, ("rows",), "parts") > 1 else 0
    return words * own.dtype.itemsize


def _price(
    target: Target, own: Product, codelets: Codelets, codelet: cl.Codelet, cuts: tuple[Cut, ...]
) -> list[StepCost]:
    count = num_partials(cuts, own)
    dtype = own.partials if count > 1 else own.out_dtype
    types = {"a": (_shape(cuts, own, _A), own.dtype), "b": (_shape(cuts, own, _B), own.dtype)}
    vertex = vertex_cycles(target, codelet, types, **codelets.static(codelet, own, dtype))
    operands = (_count(cuts, own, _A, "block") + _count(cuts, own, _B, "block")) * own.dtype.itemsize
    of_tile = _count(cuts, own, ("summed",), "block") // max(1, _count(cuts, own, ("summed",), "grain"))
    results = _count(cuts, own, _OUT, "block") * max(1, of_tile) * dtype.itemsize
    moved = {"received_bytes": _received(cuts, own), "tile_bytes": operands + results}
    step = step_cost(target, "multiply", cuts, vertex, **moved)
    if count == 1:
        return [step]
    outputs = own.size(*_OUT)
    return [step, *plan_sum(target, count, outputs, own.partials, own.out_dtype, codelets.add).steps]


# --- the ways there are -----------------------------------------------------------------------------------

_CANDIDATES = 1 << 11
"""So many of the ways, those of the least bounds, are looked at."""


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


def _sizes(target: Target, own: Product, d: int, grain: int) -> list[int]:
    """The blocks of a dimension that are worth trying, in multiples of a grain."""
    dimension = own.dimensions[d]
    multiple = grain if grain > 1 else _multiple(dimension.role, own)
    sizes = block_sizes(dimension.extent, multiple, target.num_tiles)
    if grain == 1 and multiple > 1 and dimension.extent < 4 * multiple:  # so small that any size may do
        sizes = block_sizes(dimension.extent, 1, target.num_tiles)
    return sizes


def _grain_of(own: Product, grain: int) -> tuple[int, ...]:
    """The block of a vertex that has about so many multiply-adds: first all that is summed, then as a square."""
    left, sizes = grain, {}
    for d in reversed(range(len(own.dimensions))):
        if own.dimensions[d].role == "summed":
            sizes[d] = min(own.dimensions[d].extent, left)
            left //= sizes[d]
    free = [d for d in range(len(own.dimensions)) if own.dimensions[d].role in ("rows", "columns")]
    for k, d in enumerate(sorted(free, key=lambda d: own.dimensions[d].extent)):
        each = max(1, round(max(1, left) ** (1 / (len(free) - k))))
        sizes[d] = min(own.dimensions[d].extent, each)
        left //= sizes[d]
    return tuple(sizes.get(d, min(own.dimensions[d].extent, max(1, left))) for d in range(len(own.dimensions)))


def _blocks(target: Target, own: Product, grains: tuple[int, ...]) -> Iterator[tuple[float, tuple[int, ...]]]:
    """Blocks of tiles with a bound below the cycles of each but for what is computed: those of the least bounds."""
    main = _main(own)
    cut = [d for d in range(len(own.dimensions)) if d in main.values()]
    choices = [np.array(_sizes(target, own, d, grains[d])) for d in cut]
    grid = np.meshgrid(*choices, indexing="ij")
    extents = [own.dimensions[d].extent for d in cut]
    parts = [-(-extent // size) for extent, size in zip(extents, grid, strict=True)]
    of_role = {own.dimensions[d].role: k for k, d in enumerate(cut)}
    rest = {
        role: own.size(role) // max(1, own.dimensions[main[role]].extent) if role in main else 1
        for role in (*_A, "columns")
    }
    size = lambda role: (grid[of_role[role]] if role in of_role else 1) * rest[role]  # noqa: E731
    part = lambda role: parts[of_role[role]] if role in of_role else 1  # noqa: E731
    a, b = size("batch") * size("rows") * size("summed"), size("batch") * size("summed") * size("columns")
    words = np.where(part("columns") > 1, a, 0) + np.where(part("rows") > 1, b, 0)  # type: ignore[operator]
    out, sums = size("batch") * size("rows") * size("columns"), part("summed")
    moved = words * own.dtype.itemsize
    summed_words = -(-own.size(*_OUT) * np.asarray(sums) // target.num_tiles) * own.partials.itemsize
    moved = moved + np.where(np.asarray(sums) > 1, summed_words, 0)
    bound = moved / target.exchange_bytes_per_cycle + out * size("summed") * _rate(target, own)
    tiles = math.prod(parts[1:], start=parts[0])
    allowed = np.broadcast_to(tiles, bound.shape) <= target.num_tiles
    flat = np.where(allowed, bound, np.inf).reshape(-1)
    number = min(_CANDIDATES, int(allowed.sum()))
    chosen = np.argpartition(flat, number - 1)[:number] if number < flat.size else np.arange(flat.size)
    whole = [dimension.extent for dimension in own.dimensions]
    for k in chosen:
        if np.isfinite(flat[k]):
            sizes = list(whole)
            for d, choice in zip(cut, grid, strict=True):
                sizes[d] = int(choice.reshape(-1)[k])
            yield float(flat[k]), tuple(sizes)


@functools.lru_cache(maxsize=256)
def _best_rate(target: Target, dtype: np.dtype, partials: np.dtype) -> float:
    """Cycles of a tile for a multiply-add, in a block so large that nothing else counts."""
    sides = {"a": ((512, 512), dtype), "b": ((512, 512), dtype)}
    static = {"numbers": (((1,), (0,)), ((), ())), "partials": partials.name, "dtype": partials.name}
    return vertex_cycles(target, product, sides, **static).tile_cycles(target.num_workers) / 512**3


def _rate(target: Target, own: Product) -> float:
    return 0.9 * _best_rate(target, own.dtype, own.partials)


def _cuts(own: Product, blocks: tuple[int, ...], grains: tuple[int, ...]) -> tuple[Cut, ...]:
    """The cuts of blocks into grains, of which each block has a whole number."""
    cuts = []
    for dimension, block, grain in zip(own.dimensions, blocks, grains, strict=True):
        grain = min(grain, block)
        block = min(-(-block // grain) * grain, dimension.extent)
        cuts.append(Cut(dimension.name, dimension.extent, block, grain))
    return tuple(cuts)


def _options(target: Target, own: Product, codelets: Codelets, grain: int | None) -> Iterator[Option]:
    main = _main(own)
    fixed = None if grain is None else _grain_of(own, grain)
    for bound, blocks in _blocks(target, own, fixed or tuple(1 for _ in own.dimensions)):
        ways: list[tuple[cl.Codelet, tuple[int, ...]]] = []
        shared = codelets.product.hints.workers > 1
        if fixed is not None:
            alone = codelets.worker or codelets.product
            vertices = math.prod(-(-block // own) for block, own in zip(blocks, fixed, strict=True))
            ways.append((alone if vertices >= target.num_workers else codelets.product, fixed))
        elif shared:
            ways.append((codelets.product, blocks))
        alone = codelets.worker if shared else codelets.product
        if fixed is None and alone is not None:
            for role in ("rows", "columns", "batch"):
                if role in main and blocks[d := main[role]] > 1:
                    share = -(-blocks[d] // target.num_workers)
                    ways.append((alone, (*blocks[:d], share, *blocks[d + 1 :])))
            if not shared:
                ways.append(
                    (alone, tuple(b if own.dimensions[d].role == "summed" else 1 for d, b in enumerate(blocks)))
                )
        for codelet, grains in ways:
            cuts = _cuts(own, blocks, grains)
            if num_tiles(cuts) <= target.num_tiles:
                price = functools.partial(_price, target, own, codelets, codelet, cuts)
                yield Option(cuts, bound, price, (("codelet", codelet.name),))


@functools.lru_cache(maxsize=1024)
def plan_product(
    target: Target,
    own: Product,
    codelets: Codelets = CODELETS,
    grain: int | None = None,
    memory_share: float = MEMORY_SHARE,
) -> Plan:
    """How a product is spread over the tiles of a machine: the same plan for the same sizes.

    Args:
        target: the machine.
        own: the product.
        codelets: what it is made of.
        grain: about how many multiply-adds a vertex has; None for the planner to choose.
        memory_share: of a tile's memory, what the operation may take.
    """
    return cheapest(str(own), target, itertools.chain(_options(target, own, codelets, grain)), memory_share)
