"""Indexing by NumPy's rules, where any position may also be a symbol, an index expression or a table.

In come an index and the items between the brackets; out comes the index at those positions, a ragged one where a ragged
table or a slice whose length depends on a symbol is among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from jax.core import Tracer

from codelet.errors import OutOfBoundsError, ViewError
from codelet.views.affine import AffineMap
from codelet.views.arithmetic import broadcast_shapes
from codelet.views.conditions import Condition
from codelet.views.grids import Axis, common_axes, union_axes
from codelet.views.operators import NoNumber, shown
from codelet.views.ragged import Ragged, compose_ragged, ragged_slice

if TYPE_CHECKING:
    from codelet.views.index import Index


def _checked(item: Index, dimension: int, shape: tuple[int, ...]) -> Index:
    """A position along a dimension, once it is known to stay inside."""
    ends, extent = item.bounds(), shape[dimension]
    if ends is not None and not (ends[0] >= 0 and ends[1] < extent):
        number = item.constant
        raise OutOfBoundsError(
            f"an index reaches outside dimension {dimension} of a tensor of shape {shape}",
            given=f"{item}, which takes values {ends[0]} to {ends[1]}" if number is None else number,
            expected=f"0 to {extent - 1}" if extent else "nothing: the dimension is empty",
            fix="use `%` to wrap around, or a grid over a smaller range" if item.axes else None,
        )
    return item


def _slice_parts(index: Index, item: slice, dimension: int) -> tuple[Index | Ragged, int, int]:
    """Start, step and length of a slice that may have symbolic ends; a ragged one is all of its positions."""
    extent = index.shape[dimension]
    given = (item.start, item.stop, item.step)
    ends = [None if end is None else index.operand(end) for end in given]
    shown_slice = ":".join("" if end is None else shown(end) for end in given).removesuffix(":")
    if any(position is None and end is not None for position, end in zip(ends, given, strict=True)):
        raise ViewError("a slice has an end that is not an integer", given=shown_slice, expected="integers or symbols")
    start, stop, step = (end if end is None or end.constant is None else end.constant for end in ends)
    stride = 1 if ends[2] is None else ends[2].fixed
    if stride is None or stride == 0:
        raise ViewError(
            "a slice's step is zero" if stride == 0 else "a slice's step depends on a symbol",
            given=shown_slice,
            expected="a number other than zero as the step",
            fix="one position for each vertex is x[i]; a table or a grid's symbol may be at any distances",
        )
    if not isinstance(start, AffineMap) and not isinstance(stop, AffineMap) and not isinstance(step, AffineMap):
        first, last, _ = slice(start, stop, stride).indices(extent)
        return type(index)(first), stride, len(range(first, last, stride))
    wrap = lambda end: end + extent if isinstance(end, int) and end < 0 else end  # noqa: E731
    first = wrap(start) if start is not None else (0 if stride > 0 else extent - 1)
    last = wrap(stop) if stop is not None else (extent if stride > 0 else -1)
    zero = type(index)(0)
    first, span = zero + first, zero + last - first
    if span.shape or first.shape:
        raise ViewError(
            "a slice has an end that is an array", given=item, expected="one start and one stop for each vertex"
        )
    written = () if not isinstance(step, AffineMap) else step.axes
    if span.fixed is None:
        ragged = ragged_slice(first.mentioning(written), span, stride)
        return ragged, stride, ragged.rows.total
    return first.mentioning((*span.axes, *written)), stride, max(0, -(-span.fixed // stride))


def _as_mask(item: object) -> np.ndarray | None:
    """An array of booleans among the items of an indexing; None for anything else."""
    if not isinstance(item, list) and (not hasattr(item, "__array__") or isinstance(item, (NoNumber, Tracer))):
        return None
    try:
        mask = np.asarray(item)
    except ValueError:  # lists of several lengths
        return None
    return mask if mask.dtype == bool and mask.ndim else None


def expanded_items(items: object, shape: tuple[int, ...]) -> list[object]:
    """The items of an indexing with masks made positions, the ellipsis written out, missing slices added."""
    listed: list[object] = []
    masks: list[tuple[int, np.ndarray]] = []  # each with its place among what is listed
    for item in items if isinstance(items, tuple) else (items,):
        mask = _as_mask(item)
        if mask is not None:
            masks.append((len(listed), mask))
            listed.extend(np.nonzero(mask))
        else:
            listed.append(item)
    used = sum(1 for item in listed if item is not None and item is not Ellipsis)
    if used > len(shape):
        raise OutOfBoundsError(
            "more indices than dimensions", given=used, expected=f"at most {len(shape)}, for shape {shape}"
        )
    dots = [k for k, item in enumerate(listed) if item is Ellipsis]
    if len(dots) > 1:
        raise ViewError("an indexing has more than one ellipsis", given=items)
    at = dots[0] if dots else len(listed)
    for place, mask in masks:
        before = sum(1 for item in listed[:place] if item is not None and item is not Ellipsis)
        first = before if place < at else before + len(shape) - used
        if mask.shape != shape[first : first + mask.ndim]:
            raise OutOfBoundsError(
                f"a mask does not fit a tensor of shape {shape}",
                given=f"a mask of shape {mask.shape} for dimension {first}",
                expected=f"a mask of shape {shape[first : first + mask.ndim]}: a boolean for each position",
                fix="the numbers of the positions may be fewer: x[numpy.flatnonzero(mask)]",
            )
    return [*listed[:at], *[slice(None)] * (len(shape) - used), *listed[at + 1 :]]


def _as_position(index: Index, item: object) -> Index | None:
    try:
        return index.operand(item)
    except ValueError:  # lists of several lengths
        return None


def _mended(item: object) -> str | None:
    """The fix for something that is no index."""
    if isinstance(item, Condition):
        return "choose a position, x[cl.where(condition, a, b)], or look it up in a table of those where it holds"
    if isinstance(item, NoNumber) and hasattr(item, "offsets"):
        return "look up a row of the table first: x[table[i]]"
    if hasattr(item, "source"):
        return "positions that are data of the program are looked up in a codelet; those known now are a cl.table"
    if isinstance(item, (bool, np.bool_)):
        return "x[None] is x with one more dimension"
    return None


def take(index: Index, items: object) -> Index | Ragged:
    """Indexing in full: numbers, slices, new axes, symbols and index arrays, by NumPy's rules."""
    shape = index.shape
    # Per item: None for a new axis, (start, step, length) for a slice, else an Index or a Ragged.
    plan: list[object] = []
    dimension = 0
    for item in expanded_items(items, shape):
        if item is None:
            plan.append(None)
            continue
        if isinstance(item, slice):
            start, step, length = _slice_parts(index, item, dimension)
            if isinstance(start, Ragged):
                _checked(start.index, dimension, shape)
            elif length:
                _checked(start, dimension, shape)
                _checked(start + step * (length - 1), dimension, shape)
            plan.append((start, step, length))
        elif isinstance(item, Ragged):
            if item.index.ndim > 1:
                raise ViewError("a tensor is indexed with a ragged index of more than one dimension", given=item)
            _checked(item.index, dimension, shape)
            plan.append(item)
        else:
            position = _as_position(index, item)
            if position is None:
                raise ViewError(
                    f"dimension {dimension} cannot be indexed with {type(item).__name__}",
                    given=shown(item),
                    expected="integers, slices, symbols, integer arrays or tables",
                    fix=_mended(item),
                )
            plan.append(_checked(_wrapped(position, shape[dimension]), dimension, shape))
        dimension += 1
    return _apply(index, plan)


def _wrapped(position: Index, extent: int) -> Index:
    """Negative numbers count from the end, as NumPy's do; an index that depends on a symbol never wraps."""
    if position.axes or (position.offset >= 0 and not position.tables):
        return position
    if position.constant is not None:
        return position + extent if -extent <= position.constant < 0 else position
    ends = position.bounds()
    if ends is not None and ends[0] < 0:
        values = position.values()
        return position.from_values(
            np.where(values < 0, values + extent, values), tuple(range(values.ndim)), values.shape
        )
    return position


def _as_positions(part: object) -> Index | None:
    """The positions of an item of a plan that is no slice and no new axis."""
    return part.index if isinstance(part, Ragged) else part if isinstance(part, AffineMap) else None  # type: ignore[return-value]


def _start(part: object) -> Index | Ragged | None:
    """The positions of an item of a plan, or the first of them; None for a new axis."""
    return part[0] if isinstance(part, tuple) else part  # type: ignore[return-value]


def _find_ragged(plan: list[object]) -> tuple[int, Ragged] | None:
    """The ragged item of a plan, if there is one, and its place."""
    found = [(k, ragged) for k, part in enumerate(plan) if isinstance(ragged := _start(part), Ragged)]
    if len(found) > 1:
        raise ViewError(
            "a tensor is indexed with two lengths that depend on symbols",
            given=" and ".join(str(ragged.rows) for _, ragged in found),
            expected="one ragged dimension",
            fix="connect two fields, or flatten the tensor and look up its elements by a ragged table",
        )
    return found[0] if found else None


def _on_common_axes(
    plan: list[object], index: Index, axes: tuple[Axis, ...]
) -> tuple[list[object], Index, tuple[int, Ragged] | None]:
    """The items of a plan and the indexed map, over axes that stand for all of theirs."""
    changed: list[object] = []
    for part in plan:
        start = _start(part)
        moved = None if start is None else start.over(axes)
        if isinstance(part, tuple):
            length = moved.rows.total if isinstance(moved, Ragged) else part[2]
            changed.append((moved, part[1], length))
        else:
            changed.append(moved)
    return changed, index.over(axes), _find_ragged(changed)


def _apply(index: Index, plan: list[object]) -> Index | Ragged:
    """Lay out the result's dimensions as NumPy does, then compose."""
    ragged = _find_ragged(plan)
    starts = [start for start in map(_start, plan) if start is not None]
    if any(axis.ancestors for part in (index, *starts) for axis in part.axes):
        axes = common_axes(axis for part in (index, *starts) for axis in part.axes)
        plan, index, ragged = _on_common_axes(plan, index, axes)
    positions = [_as_positions(part) for part in plan]
    arrays = [k for k, part in enumerate(positions) if part is not None]
    block: tuple[int, ...] = ()
    for k in arrays:
        if ragged is not None and k != ragged[0] and positions[k].shape:  # type: ignore[union-attr]
            raise ViewError(
                "a tensor is indexed with an index array beside a length that depends on a symbol",
                given=positions[k],
                expected="numbers, symbols and slices beside it",
            )
        block = broadcast_shapes(block, positions[k].shape)  # type: ignore[union-attr]
    together = not arrays or arrays == list(range(arrays[0], arrays[-1] + 1))
    result: list[tuple[int, int]] = []  # (item, extent) of each kept dimension, in order
    block_at = 0
    for k, part in enumerate(plan):
        if positions[k] is not None:
            if together and k == arrays[0]:
                block_at = len(result)
        else:
            result.append((k, 1 if part is None else part[2]))  # type: ignore[index]
    shape = (*(n for _, n in result[:block_at]), *block, *(n for _, n in result[block_at:]))
    place = {k: d if d < block_at else d + len(block) for d, (k, _) in enumerate(result)}
    after = len(result) - block_at
    inner = []
    for k, part in enumerate(plan):
        position = positions[k]
        if position is not None:
            spread = position.broadcast_to(block)
            inner.append(spread.with_trailing_ones(after).broadcast_to(shape))
        elif part is not None:
            start, step, _ = part  # type: ignore[misc]
            if isinstance(start, Ragged):
                inner.append(start.index.rekeyed({0: place[k]}, shape))
            else:
                strides = tuple(step if d == place[k] else 0 for d in range(len(shape)))
                inner.append(type(index)(0, shape, strides) + start)
    if ragged is not None:
        dimension = place.get(ragged[0], block_at)
        return compose_ragged(index, inner, dimension, ragged[1].rows)
    if 0 in shape:
        return index.filled(0, shape).mentioning(union_axes([index.axes, *(part.axes for part in starts)]))
    return index.compose(inner, shape)
