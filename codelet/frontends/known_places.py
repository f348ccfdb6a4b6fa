"""Known places: gathers and scatters whose indices are known while a function is traced.

Known indices mostly name a box of the indexed array, as those of `x.at[1:].add(y)` do, whose steps along dimensions may
be more than one. Then a gather is a view, and a scatter is written to such a view of a copy. For any others it is found
whether they are sorted, and name no element twice, which the caller does not always tell JAX.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from jax import lax

from codelet import ops
from codelet.ops.elementwise import map_in_place
from codelet.ops.lookup_codelets import ELEMENTS
from codelet.views.tensor import Tensor

if TYPE_CHECKING:
    from codelet.frontends.walk import Walk


class Promises(NamedTuple):
    """The promises about indices: as JAX says it, or as they are."""

    unique_indices: bool
    indices_are_sorted: bool

    def or_known(self, indices: Any, indexed: Sequence[int], last: Sequence[int], is_single: bool) -> Promises:
        """These, and those that hold of known indices.

        Args:
            indices: an array of places, where they are known.
            indexed: the dimensions that the numbers of a place are for.
            last: the last place along each at which a slice lies within.
            is_single: whether slices have one element along these dimensions, so that others do not overlap.
        """
        if not isinstance(indices, np.ndarray) or not indices.size:
            return self
        rows = indices.reshape(-1, indices.shape[-1]).astype(np.int64)
        if not ((rows >= 0) & (rows <= np.asarray(last))).all():
            return self  # those beyond the ends may be taken as others
        order = np.lexsort(rows[:, ::-1].T)
        is_sorted = list(indexed) == sorted(indexed) and bool((order == np.arange(len(rows))).all())
        is_unique = len(rows) == 1 or (is_single and bool((rows[order][1:] != rows[order][:-1]).any(1).all()))
        return Promises(self.unique_indices or is_unique, self.indices_are_sorted or is_sorted)


@dataclass(frozen=True)
class Box:
    """The places that indices name, as a box of the indexed array.

    Attributes:
        items: the slice along each dimension.
        order: of the dimensions of updates, or of gathered slices, that of each dimension that is more than one place.
        lengths: of the box.
    """

    items: tuple[slice, ...]
    order: tuple[int, ...]
    lengths: tuple[int, ...]

    def gathered(self, x: Tensor, shape: Sequence[int]) -> Tensor:
        """The elements there, as a gather gives them."""
        own = x[self.items]
        kept = own.reshape([own.shape[d] for d, n in enumerate(self.lengths) if n > 1])
        moved = kept.transpose(np.argsort(self.order).tolist()) if self.order else kept
        return moved.reshape(tuple(shape))

    def lying(self, updates: Tensor) -> Tensor:
        """Updates of a scatter as they lie there."""
        shape = updates.shape
        kept = updates.reshape([n for n in shape if n > 1])
        return (kept.transpose(list(self.order)) if self.order else kept).reshape(self.lengths)


def box_of(
    indices: Any, indexed: Sequence[int], gone: Sequence[int], offset: Sequence[int], shape: Any, sizes: Any, mode: Any
) -> Box | None:
    """The box that known indices name; None where they name none, or are not known.

    Args:
        indices: an array of places.
        indexed: the dimensions that the numbers of a place are for.
        gone: the dimensions that slices have not.
        offset: the dimensions of gathered slices, or of updates, that are those of slices.
        shape: of the indexed array.
        sizes: of a slice.
        mode: of places beyond the ends.
    """
    if not isinstance(indices, np.ndarray) or 0 in (*indices.shape[:-1], *shape, *sizes):
        return None  # where a place has no number it is all of what is indexed
    last = np.array([shape[d] - sizes[d] for d in indexed], np.int64)
    places = indices.astype(np.int64) if indices.dtype != np.uint64 else np.minimum(indices, 1 << 62).astype(np.int64)
    if mode == lax.GatherScatterMode.CLIP:
        places = np.clip(places, 0, last)
    if not ((places >= 0) & (places <= last)).all():
        return None
    rank = indices.ndim - 1 + len(offset)
    beside = [d for d in range(rank) if d not in offset]
    windows = dict(zip((d for d in range(len(shape)) if d not in gone), offset, strict=True))
    starts, steps, lengths = [0] * len(shape), [1] * len(shape), list(sizes)
    of = dict(windows)
    for k, d in enumerate(indexed):
        own = places[..., k]
        starts[d] = int(own.reshape(-1)[0])
        along = [j for j in range(own.ndim) if own.shape[j] > 1 and (np.diff(own, axis=j) != 0).any()]
        if not along:
            continue
        line = own.reshape(-1)[:: math.prod(own.shape[along[0] + 1 :])][: own.shape[along[0]]]
        step = int(line[1] - line[0])
        spread = line.reshape([-1 if j == along[0] else 1 for j in range(own.ndim)])
        if len(along) > 1 or d not in gone or step < 1 or (np.diff(line) != step).any() or (own != spread).any():
            return None
        steps[d], lengths[d], of[d] = step, len(line), beside[along[0]]
    many = [d for d, n in enumerate(lengths) if n > 1]
    used = [of[d] for d in many]
    extents = {**dict(zip(beside, indices.shape, strict=False)), **{o: sizes[d] for d, o in windows.items()}}
    if sorted(used) != [d for d in range(rank) if extents[d] > 1]:
        return None  # a place is named several times
    items = tuple(slice(a, a + s * (n - 1) + 1, s) for a, s, n in zip(starts, steps, lengths, strict=True))
    left = sorted(used)
    return Box(items, tuple(left.index(d) for d in used), tuple(lengths))


def is_written_at_once(box: Box, shape: Sequence[int], op: str) -> bool:
    """Whether a box of an array of a shape is better written than scattered.

    One without steps is, or of a reshape of the array, which is then updated in place. Updates added at steps of two
    along rows of 400 x 400, in a loop, take 1.7 to 2.3 times plain JAX's time so. As a scatter they take 0.9.
    """
    sides = list(zip(box.items, shape, strict=True))
    if op != "set":
        return all(own.step == 1 for own, _ in sides)
    count = lambda own, n: own.start // own.step + len(range(n)[own])  # noqa: E731
    return all(own.step == 1 or (n % own.step == 0 and count(own, n) <= n // own.step) for own, n in sides)


def scattered(walk: Walk, box: Box, operand: Tensor, updates: Tensor, op: str, name: str) -> Tensor:
    """An array with updates of a box of it: a copy of it, of which the box is written, or added to."""
    graph = walk.graph
    lying = box.lying(updates)
    is_whole, is_added = box.lengths == operand.shape, op == "add"
    if op != "set" and (is_whole or not is_added):
        with walk.recording():
            lying = ops.map(graph, ELEMENTS[op], operand[box.items], lying, grain=walk.grain, name=name)
    if is_whole:
        return lying
    with graph.scope(name, unique=True):
        made = graph.add_variable("out", operand.shape, operand.dtype)
    walk.copy(operand, made)
    if is_added:  # in place, so that the cotangent of what is added to is that of the result
        with walk.recording():
            map_in_place(graph, lax.add, [(made[box.items], lying)], 1, grain=walk.grain, name=name)
    else:
        walk.copy(lying, made[box.items])
    return made
