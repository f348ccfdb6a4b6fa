"""Slices unmapped: slices of an array, side by side, as the elements of a window that moves over it.

The taps of a stencil are slices of one patch: tap `t` of the results `r` is at `t + stride * r`. Along each dimension
of which they are parts, what is left of the patch is a window as long as the last tap asks, and of a slice one element
of it. Where the results of the slices are no axis, or they move differently, those dimensions are kept instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from jax import lax
from jax.extend import core as jax_core

from lowering.arrays import reshape
from lowering.jaxprs.dimension_classes import Classes, WindowSteps, spots_of
from lowering.jaxprs.left_dimensions import Left


def _cuts(eqn: jax_core.JaxprEqn) -> Iterator[tuple[int, int, int, bool]]:
    """Of each dimension of the operand: where the slice starts, ends, its stride, and whether it is all of it."""
    extents = eqn.invars[0].aval.shape  # type: ignore[attr-defined]
    starts, limits = eqn.params["start_indices"], eqn.params["limit_indices"]
    strides = eqn.params["strides"] or (1,) * len(extents)
    for start, limit, stride, extent in zip(starts, limits, strides, extents, strict=True):
        yield start, limit, stride, (start, limit, stride) == (0, extent, 1)


def link_slice(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    """A slice whose parts of dimensions are windows of one element."""
    for spot, made, (start, _, stride, is_all) in zip(
        spots_of(eqn.invars[0]), spots_of(eqn.outvars[0]), _cuts(eqn), strict=True
    ):
        if is_all:
            classes.unite(spot, made)
        else:
            classes.move(spot, WindowSteps(made, stride, start + 1, 1, is_picked=True))


def keep_slice(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    """A slice that keeps the dimensions of which it is a part."""
    for spot, made, (*_, is_all) in zip(spots_of(eqn.invars[0]), spots_of(eqn.outvars[0]), _cuts(eqn), strict=True):
        if is_all:
            classes.unite(spot, made)
        else:
            classes.keep([spot, made])


def sliced(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """What is left of a slice: of windows one element."""
    (array,), (own,), (made,) = operands, eqn.invars, eqn.outvars
    kept = []
    for place, result, (start, limit, stride, _) in zip(left.places(own), left.places(made), _cuts(eqn), strict=True):
        if place.left is not None:
            kept.append((start, limit, stride) if result.left is not None else (start, start + 1, 1))
    starts, limits, strides = zip(*kept, strict=True) if kept else ((), (), ())
    return [reshape(lax.slice(array, starts, limits, strides), left.shape(made))]


# --- at places that are known late --------------------------------------------------------------------------


def link_late(classes: Classes, eqn: jax_core.JaxprEqn) -> None:
    """A slice that is taken, or put, at a place known only at run time: along what it has all of, it does the same
    everywhere.
    """
    whole, *others = (spots_of(eqn.invars[0]), spots_of(eqn.outvars[0]), *map(spots_of, eqn.invars[1:2]))
    part = eqn.outvars[0] if eqn.primitive.name == "dynamic_slice" else eqn.invars[1]
    extents = zip(eqn.invars[0].aval.shape, part.aval.shape, strict=True)  # type: ignore[attr-defined]
    for d, (extent, size) in enumerate(extents):
        own = [spots[d] for spots in others if spots]
        if extent == size:
            for spot in own:
                classes.unite(whole[d], spot)
        else:
            classes.keep([whole[d], *own])
            if eqn.primitive.name == "dynamic_update_slice":
                classes.unite(whole[d], own[0])


def late_slice(left: Left, eqn: jax_core.JaxprEqn, operands: Sequence[Any]) -> list[Any]:
    """What is left of a slice taken, or put, at a place known only at run time."""
    is_put = eqn.primitive.name == "dynamic_update_slice"
    array, part = operands[0], operands[1] if is_put else operands[0]
    starts = operands[2 if is_put else 1 :]
    kept = [d for d, place in enumerate(left.places(eqn.invars[0])) if place.left is not None]
    own = [starts[d] for d in kept]
    if not kept:
        return [part]
    if is_put:
        return [lax.dynamic_update_slice(array, part, own, allow_negative_indices=False)]
    sizes = left.shape(eqn.outvars[0])  # along windows less than the whole slice
    return [lax.dynamic_slice(array, own, sizes, allow_negative_indices=False)]
