"""The planner of sorting: lines sorted whole, or in blocks on several tiles each, which a network merges.

In come lines, of all dimensions before and after the sorted one; out comes a `Plan`. Where a tile has whole lines, it
sorts them in one step. Otherwise each line is cut into a power of two of blocks, and each is sorted on its tile. Then
in every step of a bitonic network each tile merges its block with that of another tile and keeps the lower or the upper
half. A comparison of two elements in a sorting network may so merge two sorted blocks (Knuth, The Art of Computer
Programming 3, 5.3.4, exercise 38; Baudet and Stevenson, "Optimal Sorting Algorithms for Parallel Computers", 1978).

The network is Batcher's in the form whose comparisons all put the lesser number first: the padding behind the last
element never moves. Positions in the line are a last key, so that equal elements keep their order.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.graphs.stages import Cut
from codelet.ops.blocks import num_tiles
from codelet.ops.plan_cache import kept_on_disk
from codelet.ops.planning import MEMORY_FRACTION, Option, Plan, block_sizes, cheapest, is_uncut, uncut
from codelet.ops.prices import StepCost, step_cost, vertex_cycles
from codelet.target import Target
from codelet.tracing.codelet_from_jaxpr import codelet_from_jaxpr
from codelet.tracing.codelets import Codelet


@dataclass(frozen=True)
class Lines:
    """Lines that are sorted.

    Attributes:
        before: how many there are along dimensions before the sorted one.
        after: the same of those after it.
        length: of each.
        dtypes: of the operands, which are sorted together.
        num_keys: how many operands, the first ones, are compared.
        stable: whether elements equal in them keep their order.
        positions: the dtype in which the positions are wanted that the elements had, as one result more; None where
            they are not.
        mirrored: whether positions are counted from the end.
    """

    before: int
    after: int
    length: int
    dtypes: tuple[np.dtype, ...]
    num_keys: int = 1
    stable: bool = True
    positions: np.dtype | None = None
    mirrored: bool = False

    @property
    def operands(self) -> tuple[str, ...]:
        """The names of the operands as fields."""
        return tuple(f"x{k}" for k in range(len(self.dtypes)))

    @property
    def results(self) -> tuple[str, ...]:
        """The names of the results as fields."""
        return (*(f"y{k}" for k in range(len(self.dtypes))), *(["positions"] if self.positions is not None else []))

    @property
    def result_dtypes(self) -> tuple[np.dtype, ...]:
        """The dtypes of the results."""
        return (*self.dtypes, *([self.positions] if self.positions is not None else []))

    def __str__(self) -> str:
        dtypes = ", ".join(map(str, self.dtypes))
        return f"sorting {self.before * self.after:,} lines of {self.length:,} {dtypes}"


# --- codelets ---------------------------------------------------------------------------------------------


def _sorted(lines: Lines, *arrays: Any) -> tuple[Any, ...]:
    """Whole lines, along the last dimension."""
    if lines.positions is not None:
        counted = jnp.broadcast_to(lax.iota(lines.positions, arrays[0].shape[-1]), arrays[0].shape)
        arrays = (*arrays, lines.length - 1 - counted if lines.mirrored else counted)
    return tuple(lax.sort(arrays, dimension=-1, is_stable=lines.stable, num_keys=lines.num_keys))


def _with_positions(lines: Lines, arrays: Sequence[Any]) -> list[Any]:
    """Sorted by the keys and then by the positions, which come last."""
    keys, rest, last = arrays[: lines.num_keys], arrays[lines.num_keys : -1], arrays[-1]
    made = lax.sort((*keys, last, *rest), dimension=-1, is_stable=False, num_keys=lines.num_keys + 1)
    return [*made[: lines.num_keys], *made[lines.num_keys + 1 :], made[lines.num_keys]]


def _sorted_block(lines: Lines, *fields: Any) -> tuple[Any, ...]:
    """A block of each line, with the positions of its elements: from `start` on."""
    *arrays, start = fields
    counted = jnp.broadcast_to(start.astype(jnp.int32) + lax.iota(jnp.int32, arrays[0].shape[-1]), arrays[0].shape)
    return tuple(_with_positions(lines, [*arrays, counted]))


def _merged(lines: Lines, last: bool, *fields: Any) -> tuple[Any, ...]:
    """The lower or the upper half of two blocks together."""
    *arrays, upper = fields
    own, other = arrays[: len(arrays) // 2], arrays[len(arrays) // 2 :]
    size = own[0].shape[-1]
    both = _with_positions(lines, [jnp.concatenate(pair, -1) for pair in zip(own, other, strict=True)])
    halves = [jnp.where(upper == 1, array[..., size:], array[..., :size]) for array in both]
    if not last:
        return tuple(halves)
    *values, positions = halves
    if lines.positions is None:
        return tuple(values)
    positions = positions.astype(lines.positions)
    return (*values, lines.length - 1 - positions if lines.mirrored else positions)


Shape = tuple[int, int, int]
"""Of a vertex's part of an operand: lines before, lines after, elements of each."""


def _made(
    function: Callable[..., Any],
    name: str,
    inputs: Sequence[str],
    types: Iterable[Sequence[tuple[Sequence[int], Any]]],
    outputs: Sequence[str],
) -> Codelet:
    """A codelet of a function of arrays, as many as there are, of some shapes and dtypes."""
    structs = [[jax.ShapeDtypeStruct(tuple(shape), dtype) for shape, dtype in own] for own in types]
    jaxprs = [jax.make_jaxpr(function)(*own) for own in structs]
    return codelet_from_jaxpr(jaxprs, inputs, outputs, name=name, workers=6, issue="assembly")


@functools.lru_cache(maxsize=256)
def whole_sorter(lines: Lines, shapes: frozenset[Shape]) -> Codelet:
    """The codelet that sorts whole lines."""
    types = [[(shape, dtype) for dtype in lines.dtypes] for shape in sorted(shapes)]
    return _made(functools.partial(_sorted, lines), "sort_lines", lines.operands, types, lines.results)


@functools.lru_cache(maxsize=256)
def block_sorter(lines: Lines, shapes: frozenset[Shape]) -> Codelet:
    """The codelet that sorts a block of each line."""
    types = [[*((shape, dtype) for dtype in lines.dtypes), ((), jnp.int32)] for shape in sorted(shapes)]
    outputs = [*(f"y{k}" for k in range(len(lines.dtypes))), "order"]
    return _made(functools.partial(_sorted_block, lines), "sort_block", [*lines.operands, "start"], types, outputs)


@functools.lru_cache(maxsize=256)
def merger(lines: Lines, last: bool, shapes: frozenset[Shape]) -> Codelet:
    """The codelet that merges two blocks of each line."""
    held = [*lines.dtypes, np.dtype(np.int32)]
    types = [[*((shape, dtype) for dtype in (*held, *held)), ((), jnp.int32)] for shape in sorted(shapes)]
    inputs = [*(f"own{k}" for k in range(len(held))), *(f"other{k}" for k in range(len(held))), "upper"]
    outputs = lines.results if last else [*(f"y{k}" for k in range(len(lines.dtypes))), "order"]
    return _made(functools.partial(_merged, lines, last), "merge_blocks", inputs, types, outputs)


def shapes_of(cuts: Sequence[Cut], length: int) -> frozenset[Shape]:
    """The shapes of the parts that vertices have of lines that are cut so."""
    sizes = [{min(cut.grain, cut.extent), cut.extent % cut.grain} - {0} for cut in cuts]
    return frozenset((first, second, length) for first, second in itertools.product(*sizes))


# --- the network ------------------------------------------------------------------------------------------


def rounds(blocks: int) -> Iterator[int]:
    """The steps of the network: block i is merged with block i ^ mask, the lesser of them getting the lower half.

    >>> list(rounds(4))
    [1, 3, 1]
    """
    run = 2
    while run <= blocks:
        yield run - 1
        apart = run // 4
        while apart:
            yield apart
            apart //= 2
        run *= 2


# --- prices and ways --------------------------------------------------------------------------------------


def block_length(lines: Lines, blocks: int) -> int:
    """How many elements of a line each of its blocks has, the last ones with padding."""
    return -(-lines.length // blocks)


def _element_bytes(dtypes: Iterable[np.dtype]) -> int:
    return sum(dtype.itemsize for dtype in dtypes)


def _price(target: Target, lines: Lines, cuts: tuple[Cut, Cut, Cut]) -> list[StepCost]:
    before, after, blocks = cuts
    length = block_length(lines, blocks.extent)
    shape = (before.grain, after.grain, length)
    elements = before.block * after.block * blocks.block * length
    types = {name: (shape, dtype) for name, dtype in zip(lines.operands, lines.dtypes, strict=True)}
    if blocks.extent == 1:
        vertex = vertex_cycles(target, whole_sorter(lines, frozenset([shape])), types)
        held = elements * (_element_bytes(lines.dtypes) + _element_bytes(lines.result_dtypes))
        return [step_cost(target, "sort", cuts, vertex, received_bytes=0, tile_bytes=held)]
    dtypes, scalar = [*lines.dtypes, np.dtype(np.int32)], ((), np.dtype(np.int32))
    size = elements * _element_bytes(dtypes)
    first = vertex_cycles(target, block_sorter(lines, frozenset([shape])), {**types, "start": scalar})
    steps = [step_cost(target, "sort blocks", cuts, first, received_bytes=0, tile_bytes=2 * size)]
    types = {f"{which}{k}": (shape, dtype) for which in ("own", "other") for k, dtype in enumerate(dtypes)}
    merge = vertex_cycles(target, merger(lines, False, frozenset([shape])), {**types, "upper": scalar})
    for mask in rounds(blocks.extent):
        received = size if mask >= blocks.block else 0  # of another tile, or of the same
        steps.append(step_cost(target, "merge", cuts, merge, received_bytes=received, tile_bytes=3 * size))
    return steps


def _options(target: Target, lines: Lines, grain: int | None) -> Iterator[Option]:
    powers = [1 << k for k in range(lines.length.bit_length())]
    if grain is not None:  # elements: of a part of a line, or of as many lines as that
        powers = [next((blocks for blocks in powers if block_length(lines, blocks) <= grain), powers[-1])]
    for blocks in powers:
        together = 1 if grain is None else -(-blocks // (1 << target.num_tiles.bit_length() - 1))
        tiles = target.num_tiles * together // blocks
        if not tiles:
            continue
        length = block_length(lines, blocks)
        for after in block_sizes(lines.after, most_parts=tiles):
            parts = -(-lines.after // after)
            before = -(-lines.before // max(1, min(lines.before, tiles // parts)))
            sizes = (before, after)
            if grain is not None:
                each = min(after, max(1, grain // length))
                sizes = (min(before, max(1, grain // (length * each))), each)
            cuts = (
                _cut("before", lines.before, before, sizes[0]),
                _cut("after", lines.after, after, sizes[1]),
                Cut("blocks", blocks, together, 1),
            )
            if num_tiles(cuts) > target.num_tiles:
                continue
            bound = before * after * together * length * max(1.0, math.log2(lines.length or 1)) / 8
            yield Option(cuts, bound, functools.partial(_price, target, lines, cuts))


def _cut(name: str, extent: int, block: int, grain: int) -> Cut:
    return Cut(name, extent, min(-(-block // grain) * grain, extent), grain)


@functools.lru_cache(maxsize=1024)
@kept_on_disk
def plan_lines(
    target: Target, lines: Lines, grain: int | None = None, memory_fraction: float = MEMORY_FRACTION
) -> Plan:
    """How sorting lines is spread over the tiles of a machine: the same plan for the same lines.

    Args:
        target: the machine.
        lines: the lines to sort, one element at least.
        grain: about how many elements a vertex has; None for the planner to choose.
        memory_fraction: the fraction of a tile's memory that the operation may take.
    """
    if is_uncut(grain):
        return uncut(str(lines), (("before", lines.before), ("after", lines.after), ("blocks", 1)))
    return cheapest(str(lines), target, _options(target, lines, grain), memory_fraction)
