"""The layout of an elementwise operation: which dimensions its operands share, as few as their broadcasting allows.

In come tensors; out come the dimensions of their results, in the order in which the largest operand lies in memory.
Neighbours are made one wherever every operand has both or neither and has them as one in memory; and views of the
operands by these dimensions, without those along which they are the same.

Operands that lie on the tiles in blocks of two dimensions do so along no dimension that is both: there is another
layout then, in which they are apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from codelet.errors import OperationError
from codelet.ops.homes import Home, home_of
from codelet.views.tensor import Tensor


@dataclass(frozen=True)
class Layout:
    """The dimensions of an elementwise operation.

    Attributes:
        shape: of its results, by NumPy's rules.
        order: the dimensions of `shape`, in the order in which elements lie.
        groups: how many dimensions, in this order, are one; those of extent 1 are with their neighbours.
    """

    shape: tuple[int, ...]
    order: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the merged dimensions."""
        return tuple(math.prod(self.shape[d] for d in group) for group in self.groups)

    def dimensions(self, tensors: Sequence[Tensor]) -> list[tuple[int, ...]]:
        """The merged dimensions that each tensor has: that it is not the same along, unless all are."""
        found: list[list[int]] = [[] for _ in tensors]
        for k, group in enumerate(self.groups):
            has = [_has(tensor, len(self.shape), group[0]) for tensor in tensors]
            if not any(has):
                has = [_has(tensor, len(self.shape), group[0], spread=True) for tensor in tensors]
            for own, there in zip(found, has, strict=True):
                own += [k] * there
        return list(map(tuple, found))

    def view(self, tensor: Tensor, dimensions: Sequence[int]) -> Tensor:
        """A tensor by some of the merged dimensions, those that it has."""
        lead = len(self.shape) - tensor.ndim
        kept = [d for k in dimensions for d in self.groups[k]]
        view = tensor[tuple(slice(None) if d in kept else 0 for d in range(lead, len(self.shape)))]
        rest = sorted(kept)
        view = view.transpose([rest.index(d) for d in kept]) if kept else view
        return view.reshape(tuple(self.extents[k] for k in dimensions))

    @property
    def lying(self) -> tuple[int, ...]:
        """The shape in which results lie, of no merged dimensions, as a window over one of them asks for."""
        return tuple(self.shape[d] for d in self.order)

    def unmerged(self, made: Tensor) -> Tensor:
        """A tensor by the merged dimensions, in the layout's shape."""
        view = made.reshape(self.lying)
        view = view.transpose([self.order.index(d) for d in sorted(self.order)]) if self.order else view
        return view.reshape(self.shape)


def _has(tensor: Tensor, rank: int, d: int, spread: bool = False) -> bool:
    """Whether a tensor has a dimension of its broadcast shape; `spread` also where it is a view of one element."""
    own = d - (rank - tensor.ndim)
    if own < 0 or tensor.shape[own] == 1:
        return False
    moves = tensor.index.strides[own] != 0 or any(own in table.keys for table in tensor.index.tables)
    return spread or not tensor.shape[own] or moves


def _stride(tensor: Tensor, rank: int, d: int) -> int | None:
    """The stride of a tensor along a dimension of its broadcast shape; None where it has no one."""
    own = d - (rank - tensor.ndim)
    return tensor.index.strides[own] if own >= 0 and tensor.index.is_strided else None


def broadcast_shape(operation: str, tensors: Sequence[Tensor]) -> tuple[int, ...]:
    """The shape to which tensors are broadcast.

    Args:
        operation: for errors.
        tensors: one at least.

    Raises:
        OperationError: shapes that do not fit.
    """
    try:
        return np.broadcast_shapes(*(tensor.shape for tensor in tensors))
    except ValueError:
        raise OperationError(
            f"the operands of ops.{operation} cannot be broadcast to one another",
            given=", ".join(str(tensor.shape) for tensor in tensors),
            expected="shapes that are the same from their ends, but for extents of 1",
        ) from None


def _lie_as_one(tensor: Tensor, home: Home | None, rank: int, first: int, second: int) -> bool:
    """Whether blocks in which a tensor lies are blocks of two of its dimensions made one."""
    lead = rank - tensor.ndim
    if not home:
        return True
    extent, outer, inner = tensor.shape[second - lead], home[first - lead], home[second - lead]
    return inner >= extent or (outer == 1 and extent % inner == 0)


def layouts(operation: str, tensors: Sequence[Tensor], *, merged: bool = True) -> list[Layout]:
    """The layouts of tensors that are broadcast to one another: of as few dimensions as can be, and as they lie.

    Args:
        operation: for errors.
        tensors: one at least.
        merged: False for the one layout of all dimensions as they are.

    Raises:
        OperationError: shapes that do not fit.
    """
    shape = broadcast_shape(operation, tensors)
    if not merged:
        own = _layout(shape, tensors, [None] * len(tensors))
        return [replace(own, groups=tuple((d,) for d in own.order))]
    homes = [home_of(tensor) for tensor in tensors]
    ways = ([None] * len(tensors), homes) if any(homes) else (homes,)
    return list(dict.fromkeys(_layout(shape, tensors, own) for own in ways))


def _layout(shape: tuple[int, ...], tensors: Sequence[Tensor], homes: Sequence[Home | None]) -> Layout:
    """The layout of tensors in which no dimensions are made one that those which lie somewhere do not lie in as one."""
    rank = len(shape)
    has = lambda d: tuple(_has(tensor, rank, d) for tensor in tensors)  # noqa: E731
    large = max(tensors, key=lambda tensor: tensor.size)
    order = [d for d in range(rank) if shape[d] != 1]
    strides = [_stride(large, rank, d) for d in order]
    if all(strides):
        order = [d for _, d in sorted(zip(strides, order, strict=True), key=lambda pair: -abs(pair[0] or 0))]

    def merge(first: int, second: int) -> bool:
        if has(first) != has(second):
            return False
        for tensor, home, own in zip(tensors, homes, has(second), strict=True):
            a, b = _stride(tensor, rank, first), _stride(tensor, rank, second)
            if own and (a is None or b is None or a != b * shape[second]):
                return False
            if own and not _lie_as_one(tensor, home, rank, first, second):
                return False
        return True

    groups: list[tuple[int, ...]] = []
    for d in order:
        if groups and merge(groups[-1][-1], d):
            groups[-1] = (*groups[-1], d)
        else:
            groups.append((d,))
    return Layout(shape, tuple(order), tuple(groups))
