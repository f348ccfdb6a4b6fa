"""Slice roots: a slice, at a place known only at run time, of what is a rearrangement of an array as one of that array.

`vmap` and the reads of vertices rearrange whole arrays before they take or put a slice. Of the array itself it is a
slice as well, where each dimension that it has a part of is one of the array's; and a part alone is rearranged then.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Makers
from codelet.jaxprs.primitives import is_understood
from codelet.jaxprs.rebuild import struct
from codelet.views.digits import Digit, row_major_strides
from lowering.arrays import reshape, transpose
from lowering.jaxprs.rearrangement import Rearrangement, in_memory, rearrange, rearrangement
from lowering.jaxprs.remade import Remade, with_remade
from lowering.jaxprs.traced_once import parameters_of

SLICES = ("dynamic_slice", "dynamic_update_slice")


@dataclass(frozen=True)
class _RootSlice:
    """A slice of a rearrangement, as one of its root.

    Attributes:
        view: the rearrangement.
        along: for each dimension of the rearrangement of which the slice has a part, that of the root.
        sizes: of the slice of the root.
        digits: of the slice as it is of the rearrangement, in what is sliced of the root.
    """

    view: Rearrangement
    along: dict[int, int]
    sizes: tuple[int, ...]
    digits: tuple[Digit, ...]

    @property
    def key(self) -> Hashable:
        """All that what is made of it depends on, but for the types of operands."""
        return self.view.digits, tuple(self.along.items()), self.sizes, self.digits

    def places(self, starts: Sequence[Any]) -> list[Any]:
        """Where it begins in the root."""
        kind = jnp.result_type(*starts) if starts else np.int32  # of a number there are none
        made: list[Any] = [np.zeros((), kind)] * len(self.sizes)
        for d, of_root in self.along.items():
            made[of_root] = starts[d]
        return made


def _of_root(view: Rearrangement, shape: Sequence[int], sizes: Sequence[int]) -> _RootSlice | None:
    """A slice of a rearrangement of a `shape` as one of its root; None where it is none, or that is no gain."""
    extents = view.root.aval.shape
    if not all(digit.step for digit in view.digits):
        return None
    strides = row_major_strides(extents)
    whole_dimensions = {Digit(step, n): d for d, (step, n) in enumerate(zip(strides, extents, strict=True)) if n > 1}
    along, own = {}, list(extents)
    for d, (extent, size) in enumerate(zip(shape, sizes, strict=True)):
        if extent != size:
            of_root = whole_dimensions.get(view.dims[d][0]) if len(view.dims[d]) == 1 else None
            if of_root is None:
                return None
            along[d], own[of_root] = of_root, size
    digits = []
    for digit in view.digits:
        of_root = whole_dimensions.get(digit)
        inner = [d for d in along.values() if strides[d] < digit.step]
        step = digit.step * math.prod(own[d] for d in inner) // math.prod(extents[d] for d in inner)
        extent = own[of_root] if of_root in along.values() and of_root is not None else digit.extent
        if extent > 1:
            digits.append(Digit(step, extent))
    return _RootSlice(view, along, tuple(own), tuple(digits))


def _found(eqn: jax_core.JaxprEqn, makers: Makers) -> _RootSlice | None:
    """A slice of a rearrangement as one of its root; None where it is of none, or that is no gain."""
    if not isinstance(eqn.invars[0], jax_core.Var):
        return None
    is_put = eqn.primitive.name == "dynamic_update_slice"
    shape, sizes = (var.aval.shape for var in (eqn.invars[0], eqn.invars[1] if is_put else eqn.outvars[0]))  # type: ignore[attr-defined]
    view = rearrangement(eqn.invars[0], makers, stop=lambda _: False)
    if view.root is eqn.invars[0] or 0 in (*shape, *sizes):
        return None
    return _of_root(view, shape, sizes)


def _remade(eqn: jax_core.JaxprEqn, own: _RootSlice) -> Remade:
    """A slice taken of the root, or put there."""
    made = tuple(eqn.outvars[0].aval.shape)  # type: ignore[attr-defined]

    def take(root: Any, *starts: Any) -> list[Any]:
        taken = lax.dynamic_slice(root, own.places(starts), own.sizes, allow_negative_indices=False)
        return [rearrange(taken, own.digits, made)]

    def put(root: Any, update: Any, *starts: Any) -> list[Any]:
        memory = in_memory(own.digits)
        apart = reshape(update, [digit.extent for digit in own.digits])
        lying = reshape(transpose(apart, [own.digits.index(digit) for digit in memory]), own.sizes)
        written = lax.dynamic_update_slice(root, lying, own.places(starts), allow_negative_indices=False)
        return [rearrange(written, own.view.digits, made)]

    key = "root", own.key, struct(eqn.outvars[0]), parameters_of(eqn)
    return Remade([own.view.root, *eqn.invars[1:]], take if eqn.primitive.name == "dynamic_slice" else put, key)


def slice_roots(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with slices of the arrays that others are rearrangements of, in the bodies of loops as well.

    A slice that is put into a rearrangement is put into its root, of which the result is a rearrangement in its
    iteration.
    """
    has_put = True
    while has_put:
        makers = Makers(closed.jaxpr.eqns)
        slices = [eqn for eqn in closed.jaxpr.eqns if is_understood(eqn, *SLICES)]
        found = {eqn: _remade(eqn, own) for eqn in slices if (own := _found(eqn, makers)) is not None}
        closed = with_remade(closed, found, slice_roots)
        has_put = any(eqn.primitive.name == "dynamic_update_slice" for eqn in found)
    return closed
