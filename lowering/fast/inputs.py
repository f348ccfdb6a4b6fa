"""Inputs: the operands of a family's vertices, each as an array over the grid, decided ahead.

A field reads a source as it was before the compute set, an extension of one, or its part of a variable that several
fields divide among them; or it is vertex state, which is computed or stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from jax import lax

from codelet.graphs.family import Family, Field
from codelet.views.access import Access
from codelet.views.grids import Axis, Key
from codelet.views.index import Index
from codelet.views.sources import Variable
from codelet.views.tensor import Tensor
from codelet.views.terms import Term, flat_terms
from lowering.arrays import SMALL, Arrays, constant
from lowering.fast.moves import positions_of
from lowering.fast.partition import Division, divide, within
from lowering.fast.reads import plan_access, plan_read
from lowering.fast.sources import SplitPiece, Viewed, nothing


@dataclass(frozen=True, eq=False)
class Computed:
    """Vertex state that is computed from positions of the grid, by an access map whose values it is."""

    offset: int
    terms: tuple[Term, ...]
    backwards: frozenset[Key]
    dtype: np.dtype

    @property
    def keys(self) -> tuple[Key, ...]:
        """Of each dimension of the array."""
        return tuple(key for term in self.terms for key in term.keys)

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return tuple(extent for term in self.terms for extent in term.extents)

    def of(self, arrays: Arrays) -> Any:
        """The array."""
        if not self.terms:
            return np.asarray(self.offset).astype(self.dtype)
        values = positions_of(self.offset, self.terms)
        reversed_at = [k for k, key in enumerate(self.keys) if key in self.backwards]
        return (lax.rev(values, reversed_at) if reversed_at else values).astype(self.dtype)

    def __str__(self) -> str:
        return "computed"


@dataclass(frozen=True, eq=False)
class Held:
    """Vertex state that is an array, with the key of each of its dimensions."""

    values: np.ndarray
    keys: tuple[Key, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the array."""
        return self.values.shape

    @property
    def dtype(self) -> np.dtype:
        """Of its elements."""
        return self.values.dtype

    def of(self, arrays: Arrays) -> Any:
        """The array."""
        own = any(isinstance(key, Axis) for key in self.keys)
        return self.values if self.values.size <= SMALL and not own else constant(self.values)

    def __str__(self) -> str:
        return "held"


Input = Viewed | Computed | Held


def _plan_state(field: Field, axes: tuple[Axis, ...]) -> Input:
    """How vertex state over axes comes to be."""
    assert field.state is not None
    index, array = field.state.index, field.state.array
    if index is not None:
        offset, terms, backwards = flat_terms(index)
        return Computed(offset, tuple(terms), backwards, field.type.dtype)
    assert array is not None
    own = axes if array.ndim > len(field.type.shape) else ()
    return Held(array, (*own, *range(len(field.type.shape))))


def plan_input(tensor: Tensor) -> Viewed:
    """How a view is read by itself."""
    if not tensor.size:
        return nothing(tensor.shape, tensor.dtype)
    return Viewed(tensor.source, plan_read(tensor.source.shape, tensor.index), tensor.dtype)


def _divisions(families: Sequence[Family]) -> Iterator[tuple[Variable, Division, dict[Field, Access]]]:
    """The variables that several fields divide among them, how, and the access of each."""
    reads: dict[Variable, dict[Field, Index]] = {}
    for family in families:
        for field in family.fields:
            if field.is_read and field.tensor is not None and field.tensor.size:
                source = field.tensor.source
                if isinstance(source, Variable):
                    reads.setdefault(source, {})[field] = field.tensor.index
    for variable, indices in reads.items():
        accesses = {f: Access.of(i, variable.shape) for f, i in indices.items()} if len(indices) > 1 else {}
        division = divide(variable.shape, accesses)
        if division is not None:
            yield variable, division, accesses


class Inputs:
    """How the fields of a compute set's families are read, each decided when it is first asked for.

    Attributes:
        divided: the variables that several fields divide among them, and how.
    """

    def __init__(self, families: Sequence[Family]):
        self.divided: dict[Variable, Division] = {}
        self._known: dict[Field, Input] = {}
        for variable, division, accesses in _divisions(families):
            self.divided[variable] = division
            for field, access in accesses.items():
                place = division.place[field]
                own = within(access, division, place)
                piece = SplitPiece(variable, division, place)
                self._known[field] = Viewed(piece, plan_access(own.shape, own), variable.dtype)

    def is_piece(self, field: Field) -> bool:
        """Whether a field reads its piece of a variable that several divide."""
        known = self._known.get(field)
        return isinstance(known, Viewed) and isinstance(known.origin, SplitPiece)

    def of(self, field: Field, axes: tuple[Axis, ...]) -> Input:
        """How a field of a family over `axes` is read."""
        if field not in self._known:
            self._known[field] = _plan_state(field, axes) if field.tensor is None else plan_input(field.tensor)
        return self._known[field]
