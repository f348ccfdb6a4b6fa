"""One slice: a gather or scatter of a single slice as the slice at a place that it is.

`jax.vmap` makes gathers and scatters of slices that are taken and put at one place for all vertices. XLA's CPU backend
runs these as loops of one turn, and keeps the old slice for where the place lies beyond the ends: so it copies all of
what a loop carries, every iteration. As `dynamic_slice` and `dynamic_update_slice` they touch the slice alone.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import Atomic, Makers, has_any
from codelet.jaxprs.primitives import ELEMENTWISE, is_understood
from lowering.arrays import reshape
from lowering.jaxprs.remade import Remade, with_remade
from lowering.jaxprs.reshape_once import is_reshape
from lowering.jaxprs.slice_roots import SLICES, slice_roots

_PLACES = jnp.iinfo(jnp.int32)

_CLAMPED = {
    "gather": (lax.GatherScatterMode.CLIP, lax.GatherScatterMode.PROMISE_IN_BOUNDS),
    "scatter": (lax.GatherScatterMode.CLIP,),
    "scatter-add": (lax.GatherScatterMode.CLIP,),
}
"""What is clamped: of a scatter that only promises to lie within, XLA drops a slice that does not."""


def _is_zero(atom: Atomic, makers: Makers) -> bool:
    """Whether an array is zero everywhere: see `one_number.py`."""
    while isinstance(atom, jax_core.Var):
        eqn = makers.of(atom)
        if eqn is None or not is_understood(eqn, "broadcast_in_dim", "reshape", "transpose", "convert_element_type"):
            return False
        atom = eqn.invars[0]
    return not np.shape(atom.val) and not atom.val


# --- where it lies ----------------------------------------------------------------------------------------------


class _Column(NamedTuple):
    """One of the numbers that say where a slice lies: an element of an array, by its flat position."""

    atom: Atomic
    place: int


def _size(atom: Atomic) -> int:
    return math.prod(getattr(atom.aval, "shape", ()))


def _columns(atom: Atomic, makers: Makers) -> list[_Column]:
    """The numbers that an array of indices is joined of."""
    eqn = makers.of(atom)
    if eqn is not None and (is_reshape(eqn) or is_understood(eqn, "squeeze")):
        return _columns(eqn.invars[0], makers)
    size = _size(atom)
    if not size:
        return []
    if eqn is not None and is_understood(eqn, "broadcast_in_dim") and _size(eqn.invars[0]) in (1, size):
        return _columns(eqn.invars[0], makers) * (size // _size(eqn.invars[0]))
    if eqn is not None and is_understood(eqn, "concatenate") and size == max(atom.aval.shape):  # type: ignore[attr-defined]
        return [column for own in eqn.invars for column in _columns(own, makers)]
    return [_Column(atom, place) for place in range(size)]


@dataclass(frozen=True)
class _OneSlice:
    """A gather or scatter of one slice.

    Attributes:
        eqn: it.
        columns: for each dimension with an index, the number that says where along it; none where there is no choice.
        sizes: of the slice.
        limits: the last place along each dimension.
        adds: whether updates are added to what is there.
    """

    eqn: jax_core.JaxprEqn
    columns: Mapping[int, _Column]
    sizes: tuple[int, ...]
    limits: tuple[int, ...]
    adds: bool

    @property
    def is_gather(self) -> bool:
        return self.eqn.primitive.name == "gather"

    @property
    def sources(self) -> list[Atomic]:
        """What it is made from: the operand, updates, and the numbers."""
        operand, _, *updates = self.eqn.invars
        return [operand, *updates, *(column.atom for column in self.columns.values())]

    def _places(self, numbers: Sequence[Any]) -> list[Any]:
        """Where it begins along each dimension, in a dtype that has all places."""
        made: list[Any] = [np.zeros((), _PLACES.dtype)] * len(self.limits)
        for (d, column), array in zip(self.columns.items(), numbers, strict=True):
            own = reshape(array, (np.size(array),))[column.place] if np.ndim(array) else jnp.asarray(array)
            if jnp.iinfo(own.dtype).max > _PLACES.max:
                own = jnp.clip(own, 0, self.limits[d])
            made[d] = own.astype(_PLACES.dtype)
        return made

    def gather(self, operand: Any, *numbers: Any) -> list[Any]:
        """The slice."""
        taken = lax.dynamic_slice(operand, self._places(numbers), self.sizes, allow_negative_indices=False)
        return [reshape(taken, self.eqn.outvars[0].aval.shape)]  # type: ignore[attr-defined]

    def scatter(self, operand: Any, updates: Any, *numbers: Any) -> list[Any]:
        """The operand with another slice."""
        places, own = self._places(numbers), reshape(jnp.asarray(updates, operand.dtype), self.sizes)
        if self.adds:
            own = lax.dynamic_slice(operand, places, self.sizes, allow_negative_indices=False) + own
        return [lax.dynamic_update_slice(operand, own, places, allow_negative_indices=False)]


def _one_slice(eqn: jax_core.JaxprEqn, makers: Makers) -> _OneSlice | None:
    """What an equation takes or puts; None where it is no gather or scatter of one slice that is clamped."""
    if not is_understood(eqn, *_CLAMPED) or eqn.params["mode"] not in _CLAMPED[eqn.primitive.name]:
        return None
    numbers, is_gather = eqn.params["dimension_numbers"], eqn.primitive.name == "gather"
    shape, of_indices, made = (atom.aval.shape for atom in (*eqn.invars[:2], *eqn.outvars))  # type: ignore[attr-defined]
    if math.prod(of_indices[:-1]) != 1 or numbers.operand_batching_dims or 0 in (*shape, *made):
        return None
    indexed = list(map(int, numbers.start_index_map if is_gather else numbers.scatter_dims_to_operand_dims))
    if is_gather:
        sizes = tuple(eqn.params["slice_sizes"])
    else:
        gone, updates = set(map(int, numbers.inserted_window_dims)), eqn.invars[2].aval.shape  # type: ignore[attr-defined]
        left = iter(updates[int(d)] for d in numbers.update_window_dims)
        sizes = tuple(1 if d in gone else next(left) for d in range(len(shape)))
    limits = tuple(n - size for n, size in zip(shape, sizes, strict=True))
    if max(shape, default=0) > _PLACES.max:
        return None
    columns = dict(zip(indexed, _columns(eqn.invars[1], makers), strict=True))
    adds = eqn.primitive.name == "scatter-add" and not _is_zero(eqn.invars[0], makers)
    return _OneSlice(eqn, {d: own for d, own in columns.items() if limits[d]}, sizes, limits, adds)


def _take_slices(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with slices for gathers and scatters of one, in the bodies of loops as well."""
    makers = Makers(closed.jaxpr.eqns)
    ones = [own for eqn in closed.jaxpr.eqns if (own := _one_slice(eqn, makers)) is not None]
    found = {own.eqn: Remade(own.sources, own.gather if own.is_gather else own.scatter) for own in ones}
    return with_remade(closed, found, _take_slices)


# --- added to ----------------------------------------------------------------------------------------------------


def _added(eqn: jax_core.JaxprEqn, makers: Makers) -> tuple[Atomic, jax_core.JaxprEqn] | None:
    """What a slice among zeros is added to, and the equation that puts it there; None where an equation adds none."""
    if not is_understood(eqn, "add", "add_any"):
        return None
    for atom, other in (eqn.invars, eqn.invars[::-1]):
        maker = makers.of(atom)
        if maker is None or not isinstance(other, jax_core.Var) or other.aval.shape != atom.aval.shape:  # type: ignore[attr-defined]
            continue  # a number is added to all of it
        if is_understood(maker, "dynamic_update_slice") and _is_zero(maker.invars[0], makers):
            return other, maker
    return None


def _add_slices(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr that adds slices where it added arrays of zeros with a slice in them, in the bodies of loops as well."""
    makers = Makers(closed.jaxpr.eqns)
    found: dict[jax_core.JaxprEqn, Remade] = {}

    def add(array: Any, update: Any, *starts: Any) -> list[Any]:
        own = lax.dynamic_slice(array, starts, update.shape, allow_negative_indices=False)
        return [lax.dynamic_update_slice(array, own + update, starts, allow_negative_indices=False)]

    for eqn in closed.jaxpr.eqns:
        own = _added(eqn, makers)
        maker = None if own is None else makers.of(own[0])
        # What is made by element is written anyway, and XLA writes the sum with it in one pass.
        if own is not None and (maker is None or maker in found or maker.primitive.name not in ELEMENTWISE):
            found[eqn] = Remade([own[0], *own[1].invars[1:]], add)
    return with_remade(closed, found, _add_slices)


# --- all of it --------------------------------------------------------------------------------------------------


def as_one_slice(closed: jax_core.ClosedJaxpr) -> jax_core.ClosedJaxpr:
    """A jaxpr with slices at a place for gathers and scatters of one, in the bodies of loops as well."""
    if not has_any(closed.jaxpr, *_CLAMPED, *SLICES):
        return closed
    return slice_roots(_add_slices(_take_slices(closed)))
