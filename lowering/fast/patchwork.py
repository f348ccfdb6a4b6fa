"""Patchwork: the patches of a source put together as one array.

Padding around the other patches becomes one `lax.pad`, patches that divide a region along a dimension one
`lax.concatenate`, again and again in the rest of them. A patch whose elements stand apart is one `lax.pad` with the
elements between them. Patches that no cut takes apart, as four patches around a fifth, and other patches that are no
boxes, are written one after another over the padding under them.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.views.boxes import Box, box_of, hull, hull_of, lengths_of
from codelet.views.digits import chains
from codelet.views.index import Index, row_major
from codelet.views.sources import Patch, Patchwork, Variable
from lowering.arrays import Array, arranged, reshape
from lowering.fast.writes import plan_write


class Placed(NamedTuple):
    """A patch with the box that it fills; where it fills none, one that holds it."""

    patch: Patch
    box: Box
    is_filled: bool

    def covers(self, region: Box) -> bool:
        """Whether it fills all of a region."""
        sides = zip(self.box, region, strict=True)
        return self.is_filled and all(a <= start and stop <= b for (a, b), (start, stop) in sides)


def placed(source: Patchwork, shape: tuple[int, ...]) -> list[Placed]:
    """The patches of a source in an array of `shape`."""
    found = [(patch, box_of(shape, patch.places)) for patch in source.patches]
    return [Placed(p, hull_of(shape, p.places) if box is None else box, box is not None) for p, box in found]


def _groups(patches: Sequence[Placed], at: int) -> list[list[Placed]]:
    """Patches between which an array can be cut along a dimension, in the order of their places."""
    sides = [own.box[at] for own in patches]
    order = sorted(range(len(patches)), key=lambda k: sides[k])
    reached = [0, *itertools.accumulate((sides[k][1] for k in order), max)]  # by those before each
    groups = chains(zip(order, reached, strict=False), lambda _, own: sides[own[0]][0] < own[1])
    return [[patches[k] for k, _ in sorted(group)] for group in groups]


class _Spacing(NamedTuple):
    """Where the elements of a patch stand along one dimension: from `start`, `step` positions apart.

    Attributes:
        start: the position of the first.
        step: from each to the next; 1 where there is one.
        extent: how many there are.
        key: the dimension of the patch that they are; None where there is one.
    """

    start: int
    step: int
    extent: int
    key: int | None

    @property
    def stop(self) -> int:
        """The position behind the last."""
        return self.start + (self.extent - 1) * self.step + 1


def _spacings(shape: tuple[int, ...], places: Index) -> list[_Spacing] | None:
    """Places in an array as evenly apart along each dimension; None where they are not, or run backwards."""
    if not places.is_strided:
        return None
    found, left = [], {d for d, n in enumerate(places.shape) if n > 1}
    for at in places.unravelled(shape):
        keys = at.keys
        if not at.is_strided or len(keys) > 1 or not left.issuperset(keys):
            return None
        left.difference_update(keys)
        key = next((own for own in keys if isinstance(own, int)), None)
        step, extent = (1, 1) if key is None else at.digit(key)
        if step < 1:
            return None
        found.append(_Spacing(at.offset, step, extent, key))
    return None if left else found


def assemble(
    shape: tuple[int, ...], region: Box, patches: Sequence[Placed], values: Mapping[Patch, Array], dtype: np.dtype
) -> Array:
    """A region of an array put together of patches.

    Args:
        shape: of the array.
        region: whose every position is that of a patch.
        patches: those in it, in order, and padding that reaches beyond it.
        values: the elements of those that are no padding.
        dtype: of the array.
    """
    lengths = lengths_of(region)
    covering = [k for k, own in enumerate(patches) if own.covers(region)]
    under = patches[covering[-1]] if covering else None
    above = patches[covering[-1] + 1 :] if covering else patches
    if under is not None and under.patch.variable is not None:
        return reshape(values[under.patch], lengths)
    if not above:
        return jnp.full(lengths, 0 if under is None else under.patch.value, dtype)
    lowest = [] if under is None else [under]
    held = hull([own.box for own in above])
    if held != region and all(own.is_filled for own in above):
        assert under is not None
        widths = [(a - start, stop - b, 0) for (a, b), (start, stop) in zip(held, region, strict=True)]
        return lax.pad(assemble(shape, held, [under, *above], values, dtype), under.patch.value, widths)
    for at, (start, stop) in enumerate(region):
        groups = _groups(above, at)
        if len(groups) > 1:
            cuts = [start, *(min(own.box[at][0] for own in group) for group in groups[1:]), stop]
            parts = [
                assemble(shape, (*region[:at], (a, b), *region[at + 1 :]), [*lowest, *group], values, dtype)
                for a, b, group in zip(cuts, cuts[1:], groups, strict=False)
            ]
            return lax.concatenate(parts, at)
    spacings = _spacings(shape, above[0].patch.places) if len(above) == 1 else None
    if spacings is not None and above[0].patch.variable is not None:
        order = [spacing.key for spacing in spacings if spacing.key is not None]
        value = values[above[0].patch]
        value = reshape(arranged(value, range(value.ndim), order, ()), [spacing.extent for spacing in spacings])
        around = (
            (along.start - a, b - along.stop, along.step - 1) for along, (a, b) in zip(spacings, region, strict=True)
        )
        return lax.pad(value, np.asarray(0 if under is None else under.patch.value, dtype), list(around))
    array = jnp.full(lengths, 0 if under is None else under.patch.value, dtype)
    for patch, _, _ in above:
        here = [at - start for at, (start, _) in zip(patch.places.unravelled(shape), region, strict=True)]
        places = row_major(lengths).compose(here, patch.places.shape)
        value = jnp.full(places.shape, patch.value, dtype) if patch.variable is None else values[patch]
        array = plan_write(lengths, places).into(array, lengths, value, range(places.ndim))
    return array


def patchwork_array(source: Patchwork, values: Mapping[Patch, Array]) -> Array:
    """All of a source, from the elements of those of its patches that are no padding."""
    patches, shape = placed(source, source.shape), source.shape
    if not all(own.is_filled for own in patches):
        flat = placed(source, (source.size,))
        if all(own.is_filled for own in flat):  # what was joined in one dimension, and reshaped
            patches, shape = flat, (source.size,)
    region = tuple((0, n) for n in shape)
    return reshape(assemble(shape, region, patches, values, source.dtype), source.shape)


def without_zeros(source: Patchwork, kept: Collection[int], value: object = 0) -> tuple[Box, list[Placed]]:
    """The box of a source outside of which there are zeros alone, or another value alone, and its patches.

    Along dimensions that are `kept` it is whole.
    """
    patches, region = placed(source, source.shape), tuple((0, n) for n in source.shape)
    for k, own in enumerate(patches[:-1]):
        if own.patch.variable is not None or own.patch.value != value or not own.covers(region):
            break
        inner = hull([above.box for above in patches[k + 1 :]])
        region = tuple(side if d in kept else inner[d] for d, side in enumerate(region))
    return region, patches


class Dilated(NamedTuple):
    """A source that is a view of one variable among zeros, which stand around it and between its elements.

    Attributes:
        variable: whose elements it holds.
        index: which of them stand along each dimension.
        starts: the position of the first along each dimension.
        steps: by how many positions they are apart.
    """

    variable: Variable
    index: Index
    starts: tuple[int, ...]
    steps: tuple[int, ...]


def between_zeros(source: Patchwork) -> Dilated | None:
    """A source as a view of a variable with zeros between its elements; None where it is none."""
    if len(source.patches) != 2:
        return None
    under, own = source.patches
    variable, index, places = own.variable, own.index, own.places
    is_zero = (
        under.variable is None and under.value == 0 and box_of((source.size,), under.places) == ((0, source.size),)
    )
    spacings = _spacings(source.shape, places) if is_zero and variable is not None and index.is_strided else None
    if variable is None or spacings is None or all(spacing.step == 1 for spacing in spacings):
        return None
    extents = tuple(spacing.extent for spacing in spacings)
    strides = tuple(0 if spacing.key is None else index.coefficient(spacing.key) for spacing in spacings)
    starts, steps = (tuple(own) for own in zip(*((spacing.start, spacing.step) for spacing in spacings), strict=True))
    return Dilated(variable, Index(index.offset, extents, strides), starts, steps)
