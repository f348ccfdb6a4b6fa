"""Lines: how a view runs along each dimension of what it views, where that is by one axis and one dimension of its own.

Convolutions are recognised by these, and put together of parts of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from codelet.views.access import Access
from codelet.views.affine import sorted_symbols
from codelet.views.grids import Axis, Key
from codelet.views.index import Index
from codelet.views.tensor import Tensor


class Line(NamedTuple):
    """Positions along a dimension: `start`, plus `step` for each position along an axis and `inner` along a field's."""

    start: int
    axis: Axis | None
    step: int
    key: int | None
    inner: int


def lines_of(tensor: Tensor) -> list[Line] | None:
    """How a view runs along each dimension of its source; None where it is not by one axis and one dimension of it."""
    if tensor.rows is not None or tensor.index.tables or not tensor.size:
        return None
    access = Access.of(tensor.index, tensor.source.shape)
    if access.shape != tensor.source.shape:
        return None
    found = []
    for start, terms in access.dimensions:
        steps: dict[bool, tuple[Key, int]] = {}
        for (key,), _, grain, reach, _ in terms:
            is_axis = isinstance(key, Axis)
            if is_axis in steps:
                return None
            backwards = key in access.reversed_keys
            steps[is_axis] = key, -grain if backwards else grain
            start += reach if backwards else 0
        axis, step = steps.get(True, (None, 0))
        key, inner = steps.get(False, (None, 0))
        found.append(Line(start, axis, step, key, inner))  # type: ignore[arg-type]
    return found


def strided_index(offset: int, shape: Sequence[int], steps: Sequence[int], symbols: Mapping[Axis, int]) -> Index:
    """An index by its offset, the step along each of its dimensions, and the step along axes."""
    kept = {axis: step for axis, step in symbols.items() if step}
    return Index(offset, tuple(shape), tuple(steps), sorted_symbols(kept))
