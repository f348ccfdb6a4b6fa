"""Rows: operations along some axes of a tensor, by vertices that have whole rows, or by steps on rows that are cut.

In come tensors of one shape, and others that have one element for each row; out come works of `blockwise.py`, and their
vertices. Whole rows need no partial results and are exchanged once at most; rows that no tile holds, or that are fewer
than the tiles, are cut, all steps alike.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import numpy as np

from codelet.graphs.graph import Graph
from codelet.ops.block_planning import plan_work, priced
from codelet.ops.blockwise import Axis, Field, Result, Work, merged, regroup
from codelet.ops.homes import home_of
from codelet.ops.pairs import Pair
from codelet.ops.partials import add_planned
from codelet.ops.planning import Plan, is_uncut
from codelet.tracing.codelets import Codelet
from codelet.views.tensor import Tensor

Kind = str | tuple[int, ...]
"""Which axes a tensor has: see `Rows.own_axes`."""

Along = Literal["whole", "summed", "kept"]
"""What happens to the axes of rows: never cut, cut and summed, or cut as the others are."""


class Rows:
    """The rows of tensors of one shape: some of their axes, the others together number them."""

    def __init__(
        self,
        graph: Graph,
        axes: tuple[int, ...],
        *tensors: Tensor,
        others: Sequence[tuple[Tensor, tuple[int, ...]]] = (),
        apart: tuple[int, ...] = (),
        grain: int | None = None,
        memory_fraction: float,
    ):
        """Along `axes` of tensors of one shape; `others` have some of their dimensions, `apart` are never joined."""
        self.graph, self.grain, self.memory_fraction = graph, grain, memory_fraction
        self.shape = tensors[0].shape
        self.axes = axes
        labels = [(d in axes, d in apart) for d in range(len(self.shape))]
        self.groups = merged([*((tensor, tuple(range(tensor.ndim))) for tensor in tensors), *others], labels)
        self._own = [a for a, group in enumerate(self.groups) if group[0] in axes]
        self._extents = [math.prod(self.shape[d] for d in group) for group in self.groups]

    @property
    def size(self) -> int:
        """Elements of the tensors."""
        return math.prod(self.shape)

    @property
    def length(self) -> int:
        """Elements of a row."""
        return math.prod(self.shape[d] for d in self.axes)

    @property
    def row_axes(self) -> tuple[int, ...]:
        """The axes of rows, of the fields of vertices."""
        return tuple(self._own)

    def own_axes(self, kind: Kind) -> tuple[int, ...]:
        """The axes of a tensor: "all", "one" element for each row, one for each "along" a row, or by its dimensions."""
        every = range(len(self.groups))
        if isinstance(kind, tuple):
            return tuple(a for a in every if self.groups[a][0] in kind)
        return tuple(a for a in every if kind == "all" or (a in self._own) == (kind == "along"))

    def work(
        self,
        name: str,
        codelets: Pair,
        fields: Mapping[str, tuple[Kind, Tensor | np.dtype]],
        results: Mapping[str, tuple[Kind, np.dtype]],
        along: Along,
        *,
        add: Codelet | None = None,
        partials: np.dtype | None = None,
        **static: Any,
    ) -> Work:
        """The work on all rows.

        Args:
            name: of the compute set.
            codelets: for a block, shared by the workers of a tile, and for one worker.
            fields: of the codelets: which axes each has, and the tensor; of one that a step before makes, its dtype.
            results: of the codelets: which axes each has, and its dtype.
            along: the axes of rows afterwards.
            add: puts partial results together.
            partials: their dtype; default: the results'.
            static: more static values than `axes`, the axes of rows.
        """
        names = iter(["rows", *(f"rows{k}" for k in range(2, 99))])
        own_names = iter(["row", *(f"row{k}" for k in range(2, 99))])
        axes = tuple(
            Axis(next(own_names), n, along) if a in self._own else Axis(next(names), n, "kept")
            for a, n in enumerate(self._extents)
        )
        values = {"axes": self.row_axes, **static}
        return Work(
            name,
            axes,
            tuple(self._field(name, self.own_axes(kind), given) for name, (kind, given) in fields.items()),
            tuple(
                Result(field, self.own_axes(kind), np.dtype(dtype), np.dtype(partials or dtype), add)
                for field, (kind, dtype) in results.items()
            ),
            *codelets,
            static=tuple(values.items()),
        )

    def _field(self, name: str, axes: tuple[int, ...], given: Tensor | np.dtype) -> Field:
        """A field, which lies where its tensor does."""
        if not isinstance(given, Tensor):
            return Field(name, axes, np.dtype(given))
        return Field(name, axes, given.dtype, home_of(self._by_axes(given, axes)))

    def plan(self, work: Work) -> Plan:
        """How a work is spread."""
        return plan_work(self.graph.target, work, self.grain, self.memory_fraction)

    def plans(self, works: Sequence[Work]) -> list[Plan]:
        """How the steps of an operation are spread: all cut alike, as one of them would be by itself."""
        if is_uncut(self.grain):
            return list(map(self.plan, works))
        ways = [[priced(self.graph.target, work, self.plan(chief)) for work in works] for chief in works]
        memory = self.memory_fraction * self.graph.target.bytes_per_tile

        def cost(plans: list[Plan]) -> tuple[float, int]:
            return max(0, max(own.tile_bytes for own in plans) - memory), sum(own.total_cycles for own in plans)

        return min(ways, key=cost)

    def takes_whole(self, whole: Work, steps: Sequence[Plan]) -> bool:
        """Whether whole rows are the better way than some steps."""
        if self.grain is not None:
            return self.grain >= self.length
        plan, memory = self.plan(whole), self.memory_fraction * self.graph.target.bytes_per_tile
        ours, theirs = plan.tile_bytes, max(step.tile_bytes for step in steps)
        if (ours > memory) != (theirs > memory):
            return ours <= memory
        return plan.total_cycles <= sum(step.total_cycles for step in steps)

    def partial(self, work: Work, plan: Plan, **tensors: Tensor) -> tuple[Tensor, ...]:
        """The vertices of a work whose partial results nobody puts together, and these: (partials, rows)."""
        fields = {name: self._regrouped(tensor, work, name) for name, tensor in tensors.items()}
        left = add_planned(self.graph, work, plan, fields, {})
        return tuple(left[result.name] for result in work.results)

    def add(self, work: Work, plan: Plan, **tensors: Tensor) -> tuple[Tensor, ...]:
        """The vertices of a work, and its results, in the shapes of the tensors and of the rows.

        Args:
            work: the work.
            plan: how it is spread.
            tensors: the fields, in their shapes.
        """
        fields = {name: self._regrouped(tensor, work, name) for name, tensor in tensors.items()}
        results = {}
        for result in work.results:
            shape = tuple(self._extents[a] for a in result.axes)
            results[result.name] = self.graph.add_variable(f"{result.name} of {work.name}", shape, result.dtype)
        add_planned(self.graph, work, plan, fields, results)
        return tuple(results[own.name].reshape(self._dimensions(own.axes)) for own in work.results)

    def _dimensions(self, axes: Iterable[int]) -> tuple[int, ...]:
        """The shape of a tensor that has some of the axes."""
        return tuple(self.shape[d] for a in axes for d in self.groups[a])

    def _regrouped(self, tensor: Tensor, work: Work, name: str) -> Tensor:
        """A tensor with a dimension for each of its axes."""
        return self._by_axes(tensor, next(field.axes for field in work.fields if field.name == name))

    def _by_axes(self, tensor: Tensor, axes: Sequence[int]) -> Tensor:
        return regroup(tensor, [d for a in axes for d in self.groups[a]], [self.groups[a] for a in axes])
