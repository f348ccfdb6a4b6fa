"""Patchwork: tensors laid end to end, or among padding, as one flat list of patches, made when the view is.

In come tensors without symbols, and where in the new source each of them lies; out comes a `Patchwork`. A tensor that
views a patchwork itself is taken apart here, so that nobody who reads a patchwork ever meets another within it:

- one that holds all of it in order, in whatever shape, has its patches, each at other places;
- one whose positions along each dimension of it follow one dimension of the view, as those of slices, reversals,
  transposes, repetitions and arrays of positions do. It has of each patch a box, or a few where it comes back to it, as
  one that wraps around does; where they follow several, of which one is short, as those of windows do, it has some for
  each position along that; where these would be too many, its part of a patch along each dimension is a table;
- any other lists the elements that it has of a patch.

So a concatenated or padded tensor has a patch for each part and each padding, and few more for repeated parts: never
one for each element or each row. That is why the places of a patch are an access map, and not always a box. A picture
with padding around it, flattened and joined, is one patch of padding and one of rows, where boxes would be two for each
row. All patches are exact. The rejected alternative: laying a part that does not fit beside the others as it is, and
looking it up by a table in the view of all; one irregular part then makes the view of all others irregular.

A join that grows by one tensor at a time has its patches moved each time: 10 microseconds for each patch that does not
stay where it was.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from codelet.views.boxes import Box, box_of, lengths_of
from codelet.views.index import Index, row_major
from codelet.views.padding import Widths
from codelet.views.sources import Patch, Patchwork, Source, Variable

if TYPE_CHECKING:
    from codelet.views.tensor import Tensor

MOST_CUTS = 16
"""Into so many boxes a view cuts a patch."""


def _tabled(values: np.ndarray) -> Index:
    return Index.from_values(values, tuple(range(values.ndim)), values.shape)


Items = tuple[Any, ...]
"""What stands between brackets to choose part of a view."""


def _chosen(patch: Patch, box: Box, coordinates: Sequence[Index], places: Index, items: Sequence[Items]) -> Patch:
    """The part of a patch that a view sees, of the part of the view that is all of it within the patch."""
    own = [at - start for at, (start, _) in zip(coordinates, box, strict=True)]
    for item in items:
        own, places = [at[item] for at in own], places[item]
    return replace(patch, index=patch.index.reshape(lengths_of(box)).compose(own, places.shape), places=places)


def _cut(patch: Patch, box: Box, coordinates: Sequence[Index], places: Index, most: int) -> list[Patch] | None:
    """The part of a patch that is a box which a view sees; None where that is none of some positions along each
    dimension.

    Args:
        patch: one of the viewed source.
        box: of that source, which the patch fills.
        coordinates: the positions of the view along each dimension of that source.
        places: where the elements of the view lie.
        most: into how many boxes it may be cut.
    """
    inside: dict[int, np.ndarray] = {}
    for at, (start, stop) in zip(coordinates, box, strict=True):
        low, high = at.bounds() or (start, start)
        if high < start or low >= stop:
            return []
        if start <= low and high < stop:
            continue
        # Counted in what divides the ends that matter, rows for example, it may vary along fewer dimensions.
        unit = math.gcd(start if low < start else 0, stop if high >= stop else 0)
        counted = at // unit
        keys = [key for key in counted.keys if isinstance(key, int)]
        key = min(keys, key=counted.extent)
        if len(keys) > 1:
            extent = counted.extent(key)
            if extent > most:
                return None
            found: list[Patch] = []
            for k in range(extent):
                one = (*[slice(None)] * key, slice(k, k + 1))
                cut = _cut(patch, box, [other[one] for other in coordinates], places[one], most // extent)
                if cut is None:
                    return None
                found += cut
            return found
        line = counted.values_over((key,))
        inside[key] = inside.get(key, True) & (line >= start // unit) & (line < -(-stop // unit))
    parts: list[list[Items]] = []
    for key, flags in inside.items():
        ends = np.flatnonzero(np.diff(flags, prepend=False, append=False)).tolist()
        parts.append([(*[slice(None)] * key, slice(*pair)) for pair in zip(ends[::2], ends[1::2], strict=True)])
    if math.prod(map(len, parts)) > most:
        parts = [[(*[slice(None)] * key, np.flatnonzero(flags))] for key, flags in inside.items()]
    return [_chosen(patch, box, coordinates, places, items) for items in itertools.product(*parts)]


def _listed(patch: Patch, size: int, index: Index, places: Index) -> list[Patch]:
    """The part of a patch that a view of a source of some size sees, each element listed."""
    numbers = np.full(size, -1, np.int64)
    numbers[patch.places.values()] = np.arange(patch.places.size).reshape(patch.places.shape)
    seen = numbers[index.values()]
    if (seen < 0).any():
        chosen = np.flatnonzero(seen >= 0)
        seen, places = seen.reshape(-1)[chosen], places.take_flat(_tabled(chosen))
    return [replace(patch, index=patch.index.take_flat(_tabled(seen)), places=places)] if seen.size else []


def _moved(source: Patchwork, places: Index, *, has_its_shape: bool) -> list[Patch]:
    """The patches of a whole source, which lies, in order, at other places."""
    if box_of((source.size,), places) == ((0, source.size),):
        return list(source.patches)
    found = []
    for patch in source.patches:
        box = box_of(source.shape, patch.places) if has_its_shape else None
        if box is not None and lengths_of(box) == patch.places.shape:
            moved = places[tuple(slice(*side) for side in box)]
        else:
            moved = places.take_flat(patch.places)
        found.append(replace(patch, places=moved))
    return found


def _patches(source: Source, index: Index, places: Index) -> list[Patch]:
    """The patches of a view whose elements lie at some places."""
    if not index.size:
        return []
    if isinstance(source, Variable):
        return [Patch(source, None, index, places)]
    if box_of((source.size,), index) == ((0, source.size),):
        return _moved(source, places, has_its_shape=index.shape == source.shape)
    found: list[Patch] = []
    coordinates = index.unravelled(source.shape)
    for patch in source.patches:
        box = box_of(source.shape, patch.places)
        cut = None if box is None else _cut(patch, box, coordinates, places, MOST_CUTS)
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
