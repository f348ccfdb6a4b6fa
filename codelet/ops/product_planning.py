"""The planner of matrix products: how to cut the free and the summed dimensions over tiles and vertices.

In come the extents of a product's dimensions, by role; out come a `Work` and its `Plan`, perhaps in several iterations.
A vertex makes a block of results from a block of each operand; where the dimension that is summed is cut, it makes
partial sums, and `codelet/ops/partials.py` adds them up.

Source: Poplar plans a matrix product as a convolution, by the same splits (lib/poplin/ConvPlan.cpp); for a matrix times
a vector Graphcore's tutorial has the costs of one split by hand, which this comes to with its codelets.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.ops.block_planning import add_up, plan_work
from codelet.ops.blocks import near
from codelet.ops.blockwise import Axis, Field, Result, Work
from codelet.ops.homes import Home
from codelet.ops.pairs import Pair, both, told
from codelet.ops.planning import MEMORY_FRACTION, Plan, beyond, is_uncut, repeated, uncut
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
    """A dimension of a product: its role, and how many elements it has."""

    name: str
    role: Role
    extent: int


@dataclass(frozen=True)
class Product:
    """A product of two arrays.

    Attributes:
        dimensions: in the order of `ROLES`; `a` has its as (batch, rows, summed), `b` as (batch, summed, columns), the
            result as (batch, rows, columns).
        dtype: of both operands.
        partials: the dtype of sums.
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
    """The codelets of a product, which may be a user's.

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
        """The codelet of products."""
        alone = self.worker if self.product.hints.workers > 1 else None
        return Pair(self.product, alone or self.product)


CODELETS = Codelets()


# --- products as work ---------------------------------------------------------------------------------------


def _multiple(role: Role, own: Product) -> int:
    """Blocks come in multiples of it: the size of a pass of the matrix unit."""
    if role in ("batch", "rows"):
        return 1
    return 16 if own.dtype.itemsize == 2 and role == "summed" else 8


def work_of(own: Product, codelets: Codelets = CODELETS, turns: int = 1) -> Work:
    """A product as work, of fields `a` and `b` to `out`.

    Args:
        own: the product, or the part of it in one round.
        codelets: the codelets of its vertices.
        turns: how many.
    """
    by_unit = codelets.product is product_block.shared  # any other may do any size
    axes = tuple(
        Axis(
            one.name,
            one.extent,
            "summed" if one.role == "summed" else "kept",
            _multiple(one.role, own) if by_unit else 1,
        )
        for one in own.dimensions
    )
    fields = tuple(
        Field(name, own.axes(roles), own.dtype, home)
        for name, roles, home in zip("ab", (A_ROLES, B_ROLES), own.homes, strict=True)
    )
    out = Result("out", own.axes(OUT_ROLES), own.out_dtype, own.partials, codelets.add, own.wanted)
    static = (("numbers", own.numbers),)
    return Work(
        "multiply",
        axes,
        fields,
        (out,),
        *codelets.pair,
        static=static,
        turns=turns,
        counts_edges=False,
        tells_parts=False,
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


def _in_turns(own: Product) -> Iterator[tuple[int, Role, Product]]:
    """A product in ever more rounds, one after another: of so many, the role of the dimension cut, and the product of
    one round.
    """
    yield 1, "rows", own
    kept = own.axes(OUT_ROLES)
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
    memory_fraction: float = MEMORY_FRACTION,
) -> Plan:
    """How a product is spread over the tiles of a machine: the same plan for the same sizes.

    Where the blocks of all tiles do not fit their memory at once, it is done in rounds, each of a part of the results;
    where that does not help, or a grain is given, the plan is the one that takes least memory of all.

    Args:
        target: the machine.
        own: the product.
        codelets: the codelets of its vertices.
        grain: about how many multiply-adds a vertex has; None for the planner to choose.
        memory_fraction: the fraction of a tile's memory that the operation may take.
    """
    if is_uncut(grain):
        return uncut(str(own), [(one.name, one.extent) for one in own.dimensions], told(codelets.product))
    fixed = None if grain is None else _grain_of(own, grain)
    whole = None
    for turns, role, part in _in_turns(own):
        work = work_of(part, codelets, turns)
        plan = replace(plan_work(target, work, None, memory_fraction, fixed), operation=str(own))
        if fixed is not None or not beyond(target, plan.steps, memory_fraction):
            return plan if turns == 1 else repeated(plan, turns, f"turns of {role}")
        whole = whole or plan
    assert whole is not None
    return whole
