"""Patchwork: the patches of a source put together as one array.

Padding around what else there is becomes one `lax.pad`, patches that divide a region along a dimension one
`lax.concatenate`, again and again in what is left of them. What no cut takes apart, as four patches around a fifth, and
patches that are no boxes, are written one after another over the padding under them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.views.boxes import Box, box_of, coordinates_of, hull, hull_of, lengths_of
from codelet.views.index import row_major
from codelet.views.sources import Patch, Patchwork
from lowering.arrays import Array, reshape
from lowering.fast.views import write_access
from lowering.plan.access import take_apart


class Placed(NamedTuple):
    """A patch with the box that it fills; where it fills none, the least one that holds it."""

    patch: Patch
    box: Box
    is_filled: bool

    def covers(self, region: Box) -> bool:
        """Whether it fills all of a region."""
        sides = zip(self.box, region, strict=True)
        return self.is_filled and all(a <= start and stop <= b for (a, b), (start, stop) in sides)


def placed(source: Patchwork, shape: tuple[int, ...]) -> list[Placed]:
    """The patches of a source, in order, in an array of `shape`."""
    found = [(patch, box_of(shape, patch.places)) for patch in source.patches]
    return [Placed(p, hull_of(shape, p.places) if box is None else box, box is not None) for p, box in found]


def _groups(patches: Sequence[Placed], at: int) -> list[list[Placed]]:
    """Patches between which an array can be cut along a dimension, in the order of their places."""
    groups: list[list[int]] = []
    reach = 0
    for k in sorted(range(len(patches)), key=lambda k: patches[k].box[at]):
        start, stop = patches[k].box[at]
        if not groups or start >= reach:
            groups.append([])
        groups[-1].append(k)
        reach = max(reach, stop)
    return [[patches[k] for k in sorted(group)] for group in groups]


def _full(patch: Patch | None, lengths: Sequence[int], dtype: np.dtype) -> Array:
    return jnp.full(lengths, 0 if patch is None else patch.value, dtype)


def _made(
    shape: tuple[int, ...], region: Box, patches: Sequence[Placed], read: Callable[[Patch], Array], dtype: np.dtype
) -> Array:
    """A region of an array of `shape`, of the patches in it and of padding that reaches beyond it."""
    lengths = lengths_of(region)
    covering = [k for k, own in enumerate(patches) if own.covers(region)]
    lowest, above = (patches[covering[-1] :][:1], patches[covering[-1] + 1 :]) if covering else ([], patches)
    under = lowest[0].patch if lowest else None
    if under is not None and under.variable is not None:
        return reshape(read(under), lengths)
    if not above:
        return _full(under, lengths, dtype)
    held = hull([own.box for own in above])
    if under is not None and held != region and all(own.is_filled for own in above):
        widths = [(a - start, stop - b, 0) for (a, b), (start, stop) in zip(held, region, strict=True)]
        return lax.pad(_made(shape, held, [*lowest, *above], read, dtype), under.value, widths)
    for at, (start, stop) in enumerate(region):
        groups = _groups(above, at)
        if len(groups) > 1:
            cuts = [start, *(min(own.box[at][0] for own in group) for group in groups[1:]), stop]
            parts = [(*region[:at], side, *region[at + 1 :]) for side in itertools.pairwise(cuts)]
            made = [_made(shape, p, [*lowest, *own], read, dtype) for p, own in zip(parts, groups, strict=True)]
            return lax.concatenate(made, at)
    array = _full(under, lengths, dtype)
    for patch, _, _ in above:
        here = [place - start for place, (start, _) in zip(coordinates_of(shape, patch.places), region, strict=True)]
        places = row_major(lengths).compose(here, patch.places.shape)
        value = _full(patch, places.shape, dtype) if patch.variable is None else read(patch)
        array = write_access(array, take_apart(lengths, places), value, range(places.ndim))
    return array


def assemble(source: Patchwork, read: Callable[[Patch], Array], region: Box | None = None) -> Array:
    """All of a source, or a region of it, as an array.

    Args:
        source: of patches.
        read: gives the elements of a patch that is no padding.
        region: what is left out of it is padding.
    """
    for shape in (source.shape, (source.size,)):  # flat, where it was joined in one dimension, and reshaped
        patches = placed(source, shape)
        if region is not None or all(own.is_filled for own in patches):
            break
    else:
        shape, patches = source.shape, placed(source, source.shape)
    made = _made(shape, region or tuple((0, n) for n in shape), patches, read, source.dtype)
    return made if region is not None else reshape(made, source.shape)


def within_zeros(source: Patchwork, kept: Sequence[int]) -> Box:
    """The box of a source outside of which there are zeros alone; along dimensions that are `kept` it is whole."""
    patches, region = placed(source, source.shape), tuple((0, n) for n in source.shape)
    for k, own in enumerate(patches[:-1]):
        if own.patch.variable is not None or own.patch.value != 0 or not own.covers(region):
            break
        inner = hull([above.box for above in patches[k + 1 :]])
        region = tuple(side if d in kept else inner[d] for d, side in enumerate(region))
    return region
