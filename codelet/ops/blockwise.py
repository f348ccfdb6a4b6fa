"""Block by block: the function of an operation on a block of a grid of elements, and its vertices, as planned.

In come the axes of a grid and a codelet with fields: each a block of a tensor that has some of the axes. A result that
has not the axes which are summed is a part of one: the results of blocks are put side by side, and added up thereafter.
Products, elementwise operations, reductions, norms, softmax and random numbers are of this form. `block_planning.py`
chooses the blocks.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from codelet.graphs.graph import Graph
from codelet.graphs.stages import Block, Cut
from codelet.ops.blocks import add_blocks
from codelet.ops.homes import Home
from codelet.ops.pairs import Pair
from codelet.tracing.codelets import Codelet
from codelet.tracing.statics import static_key
from codelet.views.tensor import Tensor

Role = Literal["kept", "summed", "whole"]


@dataclass(frozen=True)
class Axis:
    """An axis of a grid of elements.

    Attributes:
        name: in print.
        extent: elements.
        role: cut at will; cut where partial results may be put together; or never cut.
        multiple: how many elements are done together, a few of them in no less time: in vectors, or in a pass of the
            matrix unit.
    """

    name: str
    extent: int
    role: Role
    multiple: int = 1


@dataclass(frozen=True)
class Field:
    """A field that is read: a block of a tensor.

    Attributes:
        name: of the codelet's parameter.
        axes: the axes that the tensor has, in its order.
        dtype: of its elements.
        home: where it lies; None where it may lie with its reader. See `homes.py`.
        is_scattered: whether its elements lie apart, so that each has a separate edge and pointer.
    """

    name: str
    axes: tuple[int, ...]
    dtype: np.dtype
    home: Home | None = None
    is_scattered: bool = False


@dataclass(frozen=True)
class Result:
    """A field that is written.

    Attributes:
        name: of the codelet's result.
        axes: the axes that it has; without those that are summed it is partial where they are cut.
        dtype: of its elements.
        partials: dtype of partial results.
        add: puts partial results together, of a field (partials, outputs); None where the caller does.
        wanted: where it is to lie; None where that is all one.
    """

    name: str
    axes: tuple[int, ...]
    dtype: np.dtype
    partials: np.dtype
    add: Codelet | None = None
    wanted: Home | None = None


@dataclass(frozen=True)
class Work:
    """The function on a grid of elements, block by block.

    Attributes:
        name: of the compute set.
        axes: of the grid.
        fields: that are read.
        results: that are written.
        codelet: for a block, shared by the workers of a tile.
        worker: the same of one worker; None where `codelet` serves.
        static: static values of both, by name. Where they take them they get `dtype`, that of the result, and
            `partials`, that of partial results, by the first result.
        turns: in how many rounds it is done, if that many that each tile keeps pointers to the rows of its blocks.
        counts_edges: whether tiles at the edges are counted too; else it is supposed that they take no longer.
        tells_parts: whether the name of its compute set has the number of parts that are summed later, so that those of
            sums of sums differ.
        static_keys: distinguishes static values that `==` does not, as 1 and 1.0.
    """

    name: str
    axes: tuple[Axis, ...]
    fields: tuple[Field, ...]
    results: tuple[Result, ...]
    codelet: Codelet
    worker: Codelet | None = None
    static: tuple[tuple[str, Any], ...] = ()
    turns: int = 0
    counts_edges: bool = True
    tells_parts: bool = True
    static_keys: Hashable = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "static_keys", static_key(self.static))

    @property
    def size(self) -> int:
        """Elements of the grid."""
        return math.prod(axis.extent for axis in self.axes)

    @property
    def summed(self) -> tuple[int, ...]:
        """The axes that are summed."""
        return tuple(a for a, axis in enumerate(self.axes) if axis.role == "summed")

    def num_partials(self, cuts: Sequence[Cut]) -> int:
        """Of how many parts a result is that has not the axes which are summed."""
        return math.prod(cuts[a].vertices for a in self.summed)

    @property
    def pair(self) -> Pair:
        """Both codelets."""
        return Pair(self.codelet, self.worker or self.codelet)

    @property
    def is_for_all_sizes(self) -> bool:
        """Whether its codelet is the same for all sizes, so that one trace gives the cost of vertices of any size."""
        ranks = [len(own.axes) for own in self.fields]
        return self.codelet.size_names(dict(self.static), ranks) is not None

    def may_be_partial(self, result: Result) -> bool:
        """Whether vertices find parts of a result where an axis that is summed is cut."""
        return not set(self.summed) <= set(result.axes)

    def is_partial(self, result: Result, cuts: Sequence[Cut]) -> bool:
        """Whether vertices find parts of a result."""
        return self.may_be_partial(result) and self.num_partials(cuts) > 1

    def step_name(self, cuts: Sequence[Cut]) -> str:
        """Of the compute set."""
        count = self.num_partials(cuts)
        return self.name if count == 1 or not self.tells_parts else f"{self.name} in {count:,} parts"

    def values(self, codelet: Codelet, cuts: Sequence[Cut]) -> dict[str, Any]:
        """The static values of a codelet."""
        return self.values_of(codelet, any(self.is_partial(result, cuts) for result in self.results[:1]))

    def values_of(self, codelet: Codelet, is_partial: bool) -> dict[str, Any]:
        """The static values of a codelet that finds parts of the first result, or all of it."""
        own: dict[str, Any] = {}
        for result in self.results[:1]:
            own = {"dtype": (result.partials if is_partial else result.dtype).name, "partials": result.partials.name}
        return {name: value for name, value in (own | dict(self.static)).items() if name in codelet.static}

    def __str__(self) -> str:
        sizes = ", ".join(f"{axis.name} {axis.extent:,} {axis.role}" for axis in self.axes)
        return f"{self.codelet.name} of {sizes}: {', '.join(f'{own.name} {own.dtype}' for own in self.fields)}"


def merged(tensors: Sequence[tuple[Tensor, Sequence[int]]], labels: Sequence[Any]) -> list[list[int]]:
    """Dimensions in groups that may be one axis: neighbours of one label that lie in memory as one, in all tensors.

    Args:
        tensors: each with the dimensions that it has, in its order; these are numbered in common.
        labels: of all dimensions; only those of one label are joined.

    Returns:
        The groups, in order.
    """
    groups: list[list[int]] = []
    for d, label in enumerate(labels):
        if groups and labels[groups[-1][-1]] == label and all(_joined(*own, groups[-1], d) for own in tensors):
            groups[-1].append(d)
        else:
            groups.append([d])
    return groups


def _joined(tensor: Tensor, dimensions: Sequence[int], group: Sequence[int], d: int) -> bool:
    """Whether a dimension of a tensor lies in memory as one with those of a group before it, or it has none of them."""
    if any((own in dimensions) != (d in dimensions) for own in group):
        return False
    if d not in dimensions:
        return True
    at = [list(dimensions).index(own) for own in (*group, d)]
    if at != list(range(at[0], at[-1] + 1)) or not tensor.index.is_strided:
        return False
    *before, own = [k for k in at if tensor.shape[k] != 1 or k == at[-1]]
    strides = tensor.index.strides
    return tensor.shape[own] == 1 or not before or strides[before[-1]] == strides[own] * tensor.shape[own]


def regroup(tensor: Tensor, dimensions: Sequence[int], groups: Sequence[Sequence[int]]) -> Tensor:
    """A tensor with a dimension for each group of those that it has."""
    own = dict(zip(dimensions, tensor.shape, strict=True))
    return tensor.reshape([math.prod(own[d] for d in group) for group in groups if group[0] in own])


def add_work(
    graph: Graph,
    work: Work,
    cuts: Sequence[Cut],
    codelet: Codelet,
    tensors: Mapping[str, Tensor],
    results: Mapping[str, Tensor],
    *,
    first_tile: int = 0,
) -> dict[str, Tensor]:
    """Add the vertices of a work.

    Args:
        graph: where.
        work: the work.
        cuts: of its axes, as planned.
        codelet: that of the work, or for one worker.
        tensors: the tensors whose blocks are fields, each with its field's axes.
        results: the tensors written, each with its result's axes; a partial one is not.
        first_tile: of the first block.

    Returns:
        The partial results, of shape (partials, outputs).
    """
    partial = [result for result in work.results if work.is_partial(result, cuts)]
    numbers = [cuts[a].vertices for a in work.summed]
    parts = {
        result.name: graph.add_variable(
            f"{result.name} of {work.step_name(cuts)}",
            (*numbers, *(work.axes[a].extent for a in result.axes)),
            result.partials,
        )
        for result in partial
    }
    static = work.values(codelet, cuts)

    def fields(*blocks: Block) -> dict[str, Any]:
        own: dict[str, Any] = dict(static)
        for read in work.fields:
            own[read.name] = tensors[read.name][tuple(blocks[a].elements for a in read.axes)]
        for result in work.results:
            place: tuple[Any, ...] = tuple(blocks[a].elements for a in result.axes)
            if result.name in parts:
                own[result.name] = parts[result.name][(*(blocks[a].number for a in work.summed), *place)]
            else:
                own[result.name] = results[result.name][place]
        return own

    add_blocks(graph, work.step_name(cuts), codelet, cuts, fields, first_tile=first_tile)
    count = math.prod(numbers)
    return {name: tensor.reshape(count, tensor.size // count) for name, tensor in parts.items()}
