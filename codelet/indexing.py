"""Indexing by NumPy's rules, where any position may also be a symbol, an index expression or a table.

In come an index and what stands between the brackets; out comes the index at those positions.
"""

from __future__ import annotations

import numpy as np

from codelet.errors import OutOfBoundsError, ViewError
from codelet.index import Index, as_index, broadcast_shapes, filled, from_values


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


def _slice_parts(item: slice, dimension: int, shape: tuple[int, ...]) -> tuple[Index, int, int]:
    """Start, step and length of a slice that may have symbolic ends."""
    extent = shape[dimension]
    ends = [None if end is None else as_index(end) for end in (item.start, item.stop, item.step)]
    given = (item.start, item.stop, item.step)
    if any(index is None and end is not None for index, end in zip(ends, given, strict=True)):
        raise ViewError("a slice has an end that is not an integer", given=item, expected="integers or symbols")
    start, stop, step = (index if index is None or index.constant is None else index.constant for index in ends)
    if not isinstance(start, Index) and not isinstance(stop, Index) and not isinstance(step, Index):
        first, last, stride = slice(start, stop, step).indices(extent)
        return Index(first), stride, len(range(first, last, stride))
    stride = 1 if step is None else step
    if isinstance(stride, Index) or stride == 0:
        raise ViewError("a slice's step must be a number other than zero", given=item)
    wrap = lambda end: end + extent if isinstance(end, int) and end < 0 else end  # noqa: E731
    first = wrap(start) if start is not None else (0 if stride > 0 else extent - 1)
    last = wrap(stop) if stop is not None else (extent if stride > 0 else -1)
    span = (Index(0) + last - first).constant
    if span is None:
        raise ViewError(
            f"the length of a slice of dimension {dimension} depends on a symbol",
            given=f"stop - start = {Index(0) + last - first}",
            expected="stop minus start a fixed number, as in x[8*p : 8*p + 8]",
            fix="add the vertices in a Python loop, where every slice has a length of its own",
        )
    return Index(0) + first, stride, max(0, -(-span // stride))


def _expanded(items: object, shape: tuple[int, ...]) -> list[object]:
    """The items of an indexing with masks made positions, the ellipsis written out, missing slices added."""
    listed: list[object] = []
    for item in items if isinstance(items, tuple) else (items,):
        mask = np.asarray(item) if isinstance(item, (np.ndarray, list)) else None
        if mask is not None and mask.dtype == bool:
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
    return [*listed[:at], *[slice(None)] * (len(shape) - used), *listed[at + 1 :]]


def take(index: Index, items: object) -> Index:
    """Indexing in full: numbers, slices, new axes, symbols and index arrays, by NumPy's rules."""
    shape = index.shape
    plan: list[object] = []  # per item: None for a new axis, (start, step, length) for a slice, else an Index
    dimension = 0
    for item in _expanded(items, shape):
        if item is None:
            plan.append(None)
            continue
        if isinstance(item, slice):
            start, step, length = _slice_parts(item, dimension, shape)
            if length:
                _checked(start, dimension, shape)
                _checked(start + step * (length - 1), dimension, shape)
            plan.append((start, step, length))
        else:
            position = as_index(item)
            if position is None:
                raise ViewError(
                    f"dimension {dimension} cannot be indexed with {type(item).__name__}",
                    given=item,
                    expected="integers, slices, symbols, integer arrays or tables",
                )
            plan.append(_checked(_wrapped(position, shape[dimension]), dimension, shape))
        dimension += 1
    return _apply(index, plan)


def _wrapped(position: Index, extent: int) -> Index:
    """Negative numbers count from the end, as NumPy's do; what depends on a symbol never wraps."""
    if position.axes or (position.offset >= 0 and not position.tables):
        return position
    if position.constant is not None:
        return position + extent if -extent <= position.constant < 0 else position
    values = position.values()
    if values.size and values.min() < 0:
        return from_values(np.where(values < 0, values + extent, values), tuple(range(values.ndim)), values.shape)
    return position


def _apply(index: Index, plan: list[object]) -> Index:
    """Lay out the result's dimensions as NumPy does, then compose."""
    arrays = [k for k, part in enumerate(plan) if isinstance(part, Index)]
    block: tuple[int, ...] = ()
    for k in arrays:
        block = broadcast_shapes(block, plan[k].shape)  # type: ignore[union-attr]
    together = not arrays or arrays == list(range(arrays[0], arrays[-1] + 1))
    result: list[tuple[int, int]] = []  # (item, extent) of each kept dimension, in order
    block_at = 0
    for k, part in enumerate(plan):
        if isinstance(part, Index):
            if together and k == arrays[0]:
                block_at = len(result)
        else:
            result.append((k, 1 if part is None else part[2]))  # type: ignore[index]
    shape = (*(n for _, n in result[:block_at]), *block, *(n for _, n in result[block_at:]))
    place = {k: d if d < block_at else d + len(block) for d, (k, _) in enumerate(result)}
    after = len(result) - block_at
    inner = []
    for k, part in enumerate(plan):
        if isinstance(part, Index):
            spread = part.broadcast_to(block)
            inner.append(spread.with_trailing_ones(after).broadcast_to(shape))
        elif part is not None:
            start, step, _ = part  # type: ignore[misc]
            strides = tuple(step if d == place[k] else 0 for d in range(len(shape)))
            inner.append(Index(0, shape, strides) + start)
    if 0 in shape:
        return filled(0, shape)
    return index.compose(inner, shape)
