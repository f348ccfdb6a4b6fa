"""Window reductions: the sum or the greatest of every window of an array, a dimension at a time.

Nothing is copied for the elements of a window: what it holds along one dimension is reduced first, then what is left of
it along the next. Along a dimension a window of k
elements is put together of windows of 1, 2, 4, ... elements, each two of half the size: as many operations as k has
digits in binary, and as k has ones. Where windows move by a stride that makes k steps less work, k slices are taken.

Measured beside `lax.reduce_window` on two CPU cores, forward and gradient, of float32 images: windows of 3 x 3 by 2
over 64 x 55 x 55 0.26 and 0.40 of its time, 7 x 7 over 64 x 56 x 56 0.03 and 0.05, 16 x 16 0.01 and 0.02; beside slices
for all elements of a window, as `small_windows.py` has them, 0.8 and 0.7 for the smallest, and all others less.

Of ties of the greatest each has the same share of the slope, as by `jnp.max`. So each part of a window carries how many
of its elements are the greatest, and the sum of the tangents of these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.primitives import REDUCTIONS
from codelet.jaxprs.winners import winners_of_both
from codelet.views.access import Access
from codelet.views.grids import Key
from lowering.arrays import Array, Arrays, reshape, slice_
from lowering.fast.moving_windows import axis_of, inside_of
from lowering.fast.sources import Viewed

# --- along one dimension ----------------------------------------------------------------------------------


class MovingReduction(NamedTuple):
    """How windows move along a dimension: `count` of them by `stride`, each of `size` elements `step` apart."""

    dimension: int
    count: int
    stride: int
    size: int
    step: int


Parts = Sequence[Array]
"""Arrays of one shape that are reduced together."""

Combine = Callable[[Parts, Parts], Parts]


def _shifted(arrays: Parts, at: int, start: int, length: int, stride: int = 1) -> Parts:
    """`length` positions of a dimension of several arrays."""

    def one(array: Array) -> Array:
        starts, stops, steps = [0] * array.ndim, list(array.shape), [1] * array.ndim
        starts[at], stops[at], steps[at] = start, start + (length - 1) * stride + 1, stride
        return slice_(array, starts, stops, steps)

    return [one(array) for array in arrays]


def _by_slices(arrays: Parts, moving: MovingReduction, combine: Combine) -> Parts:
    at, count, stride, size, step = moving
    found = _shifted(arrays, at, 0, count, stride)
    for k in range(1, size):
        found = combine(found, _shifted(arrays, at, k * step, count, stride))
    return found


def _by_doubling(arrays: Parts, moving: MovingReduction, combine: Combine) -> Parts:
    at, count, stride, size, step = moving
    length, found, done, width = (count - 1) * stride + 1, None, 0, 1
    while True:
        if size & width:
            part = _shifted(arrays, at, done * step, length)
            found, done = part if found is None else combine(found, part), done + width
        if 2 * width > size:
            break
        left = arrays[0].shape[at] - width * step
        arrays = combine(_shifted(arrays, at, 0, left), _shifted(arrays, at, width * step, left))
        width *= 2
    assert found is not None
    return _shifted(found, at, 0, count, stride) if stride > 1 else found


def _along(arrays: Parts, moving: MovingReduction, combine: Combine) -> Parts:
    """Arrays that begin with the first window, reduced along a dimension."""
    slices = (moving.size - 1) / moving.stride
    doubling = moving.size.bit_length() - 1 + moving.size.bit_count() - 1
    return (_by_slices if slices <= doubling else _by_doubling)(arrays, moving, combine)


# --- along all --------------------------------------------------------------------------------------------


def _reduced(arrays: Parts, windows: Sequence[MovingReduction], combine: Combine) -> Parts:
    for moving in windows:
        arrays = _along(arrays, moving, combine)
    return arrays


def _extreme(operation: Callable[[Any, Any], Any], windows: Sequence[MovingReduction]) -> Callable[[Array], Array]:
    """The greatest or least of every window, with JAX's derivative: those that tie share the slope alike."""
    plain: Combine = lambda one, other: (operation(one[0], other[0]),)  # noqa: E731
    function = jax.custom_jvp(lambda array: _reduced((array,), windows, plain)[0])

    @function.defjvp
    def _(primals: tuple[Array], tangents: tuple[Array]) -> tuple[Array, Array]:
        (array,), (tangent,) = primals, tangents
        best, ties, slope = _reduced((array, jnp.ones_like(array), tangent), windows, winners_of_both(operation))
        return best, slope / ties

    return function


def reduce_windows(name: str, array: Array, windows: Sequence[MovingReduction]) -> Array:
    """A reduction of every window of an array that begins with the first one.

    Args:
        name: of the primitive that reduces.
        array: of which each dimension that no window moves along is kept.
        windows: how they move, along each dimension that they do.
    """
    operation = REDUCTIONS[name]
    if operation in (lax.max, lax.min) and jnp.issubdtype(array.dtype, jnp.inexact):
        return _extreme(operation, windows)(array)
    (result,) = _reduced((array,), windows, lambda one, other: (operation(one[0], other[0]),))
    return result


# --- what a family reads ----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class ReducedWindows:
    """The windows that a field is, reduced.

    Attributes:
        view: all of what is viewed.
        access: how the field runs along each dimension of it.
        mapped: what is computed of each element first.
        reduction: the primitive that reduces.
        dtype: of the results.
    """

    view: Viewed
    access: Access
    mapped: tuple[jax_core.JaxprEqn, ...]
    reduction: str
    dtype: np.dtype

    @property
    def keys(self) -> tuple[Key, ...]:
        """Of each dimension of the array."""
        return tuple(own[0] for own in map(axis_of, self.access.lines) if own is not None)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return tuple(self.access.extents[key] for key in self.keys)

    @property
    def windows(self) -> list[MovingReduction]:
        """How the windows move along dimensions of what is read of the view."""
        found, extents = [], self.access.extents
        for d, line in enumerate(self.access.lines):
            along, inside = axis_of(line), inside_of(line)
            if along is not None and inside is not None:
                found.append(MovingReduction(d, extents[along[0]], along[1], extents[inside[0]], inside[1]))
        return found

    def of(self, arrays: Arrays) -> Array:
        """The array."""
        array, starts, stops, steps = self.view.of(arrays), [], [], []
        for line, (first, stop) in zip(self.access.lines, self.access.box(), strict=True):
            along = axis_of(line)
            starts.append(first)
            stops.append(stop)
            steps.append(1 if along is None or inside_of(line) is not None else along[1])
        mapped = _map(slice_(array, starts, stops, steps), self.mapped)
        return reshape(reduce_windows(self.reduction, mapped, self.windows), self.shape)

    def __str__(self) -> str:
        sizes = " x ".join(str(moving.size) for moving in self.windows)
        return f"{self.view}, windows of {sizes} reduced by {self.reduction.removeprefix('reduce_')}"


def _map(array: Array, eqns: Sequence[jax_core.JaxprEqn]) -> Array:
    """What equations compute element by element of an array: the last of them, whose first is of its elements."""
    values: dict[Any, Any] = {}
    last = array
    for eqn in eqns:
        primitive: Any = eqn.primitive
        operands = [atom.val if isinstance(atom, jax_core.Literal) else values.get(atom, array) for atom in eqn.invars]
        last = values[eqn.outvars[0]] = primitive.bind(*operands, **eqn.params)
    return last
