"""Patchwork: tensors laid end to end, or among padding, as one flat list of patches, made when the view is.

In come tensors without symbols, and where in the new source each of them lies; out comes a `Patchwork`. A tensor that
views a patchwork itself is taken apart here, so that nobody who reads a patchwork ever meets another within it:

- one that holds all of it in order, in whatever shape, has its patches, each at other places;
- one whose positions along each dimension of it follow one dimension of the view, as those of slices, reversals,
  transposes and repetitions do, and those of an array of positions along a dimension, cuts each patch along these: into
  one, or into a few where the view comes back to it, as one that wraps around does;
- of any other, as of overlapping windows or of a reshape that cuts through rows, the elements of each patch are listed
  by a table.

So there are no more patches than parts that the user joined and padded, but for the few of what comes back: never one
for each element or each row. That is why a place is an access map, not always a box: a picture with padding around it,
flattened and joined, is two patches, one of padding and one of rows, where boxes would be two for each row. What was
rejected: laying a part that does not fit beside the others as it is and looking it up by tables; then a small part
makes the view of all others irregular.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.views.boxes import Box, box_of, coordinates_of, lengths_of
from codelet.views.index import Index, row_major
from codelet.views.padding import Widths
from codelet.views.sources import Patch, Patchwork, Source, Variable

if TYPE_CHECKING:
    from codelet.views.tensor import Tensor

MOST_CUTS = 16
"""Into so many a patch is cut by a view that comes back to it; beyond them it is one, its places a table."""


def _tabled(values: np.ndarray) -> Index:
    return Index.from_values(values, tuple(range(values.ndim)), values.shape)


def _cut(patch: Patch, box: Box, coordinates: Sequence[Index], places: Index) -> list[Patch] | None:
    """What a view sees of a patch that is a box; None where that is no box of the view.

    Args:
        patch: one of the viewed source.
        box: of that source, which the patch fills.
        coordinates: the positions of the view along each dimension of that source.
        places: where the elements of the view lie.
    """
    inside: dict[int, np.ndarray] = {}
    for at, (start, stop) in zip(coordinates, box, strict=True):
        low, high = at.bounds() or (start, start)
        if high < start or low >= stop:
            return []
        if start <= low and high < stop:
            continue
        if len(at.keys) > 1:
            return None
        key = at.keys[0]
        assert isinstance(key, int)
        line = at.values_over((key,))
        inside[key] = inside.get(key, True) & (line >= start) & (line < stop)
    parts: dict[int, list[Any]] = {}
    for key, flags in inside.items():
        ends = np.flatnonzero(np.diff(flags, prepend=False, append=False)).tolist()
        parts[key] = [slice(*pair) for pair in zip(ends[::2], ends[1::2], strict=True)]
    if math.prod(map(len, parts.values())) > MOST_CUTS:
        parts = {key: [np.flatnonzero(flags)] for key, flags in inside.items()}
    found = []
    for chosen in itertools.product(*parts.values()):
        own, kept = [at - start for at, (start, _) in zip(coordinates, box, strict=True)], places
        for key, part in zip(parts, chosen, strict=True):
            items = (*[slice(None)] * key, part)
            own, kept = [at[items] for at in own], kept[items]
        index = patch.index.reshape(lengths_of(box)).compose(own, kept.shape)
        found.append(replace(patch, index=index, places=kept))
    return found


def _listed(patch: Patch, size: int, index: Index, places: Index) -> list[Patch]:
    """What a view of a source of some size sees of a patch, each element listed."""
    numbers = np.full(size, -1, np.int64)
    numbers[patch.places.values()] = np.arange(patch.places.size).reshape(patch.places.shape)
    seen = numbers[index.values()]
    if (seen < 0).any():
        chosen = np.flatnonzero(seen >= 0)
        seen, places = seen.reshape(-1)[chosen], places.take_flat(_tabled(chosen))
    return [replace(patch, index=patch.index.take_flat(_tabled(seen)), places=places)] if seen.size else []


def _patches(source: Source, index: Index, places: Index) -> list[Patch]:
    """The patches of a view whose elements lie at some places."""
    if not index.size:
        return []
    if isinstance(source, Variable):
        return [Patch(source, None, index, places)]
    if box_of((source.size,), index) == ((0, source.size),):
        return [replace(own, places=places.take_flat(own.places)) for own in source.patches]
    found: list[Patch] = []
    coordinates = coordinates_of(source.shape, index)
    for patch in source.patches:
        box = box_of(source.shape, patch.places)
        cut = None if box is None else _cut(patch, box, coordinates, places)
        found += _listed(patch, source.size, index, places) if cut is None else cut
    # What fills the whole view hides what lies under it.
    hiding = [k for k, patch in enumerate(found) if patch.places.size == index.size]
    return found[hiding[-1] :] if hiding else found


def joined(parts: Sequence[Tensor], dimension: int) -> Patchwork:
    """Tensors of one dtype, without symbols, laid end to end along a dimension."""
    shape, start = list(parts[0].shape), 0
    shape[dimension] = sum(part.shape[dimension] for part in parts)
    everything, patches = row_major(tuple(shape)), []
    for part in parts:
        stop = start + part.shape[dimension]
        patches += _patches(part.source, part.index, everything[(*[slice(None)] * dimension, slice(start, stop))])
        start = stop
    return Patchwork(parts[0].graph, parts[0].dtype, tuple(shape), tuple(patches))


def padded(part: Tensor, widths: Widths, value: Any) -> Patchwork:
    """A tensor without symbols among padding, some positions of it before and after each dimension."""
    shape = tuple(before + n + after for (before, after), n in zip(widths, part.shape, strict=True))
    everything = row_major(shape)
    inside = tuple(slice(before, before + n) for (before, _), n in zip(widths, part.shape, strict=True))
    patches = _patches(part.source, part.index, everything[inside])
    if patches and patches[0].variable is None and patches[0].value.tobytes() == value.tobytes():
        patches = patches[1:]  # padded with the same before
    under = Patch(None, value, Index.filled(0, shape), everything)
    return Patchwork(part.graph, part.dtype, shape, (under, *patches) if math.prod(shape) else ())
