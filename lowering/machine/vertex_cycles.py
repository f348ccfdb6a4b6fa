"""Cycles of the vertices of a family, each on one worker, as the graph's target estimates them."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np

from codelet.graphs.family import Family
from codelet.target import Target
from codelet.views.rows import groups_of, together


@dataclass(frozen=True, eq=False)
class FamilyCycles:
    """Cycles of the vertices of a family, each on one worker.

    Attributes:
        distinct: the numbers of cycles that occur, int64.
        of_vertex: which of them each vertex takes, int32, in row-major order over the family's axes; None
            where all take the first.
    """

    distinct: np.ndarray
    of_vertex: np.ndarray | None = None

    def of_each(self, num_vertices: int) -> np.ndarray:
        """Cycles of every vertex, int64."""
        if self.of_vertex is None:
            return np.full(num_vertices, self.distinct[0])
        return self.distinct[self.of_vertex]

    def total(self, num_vertices: int) -> int:
        """Cycles of all vertices together."""
        if self.of_vertex is None:
            return int(self.distinct[0]) * num_vertices
        return int(np.bincount(self.of_vertex, minlength=len(self.distinct)) @ self.distinct)


_KNOWN: weakref.WeakKeyDictionary[Family, dict[Target, FamilyCycles]] = weakref.WeakKeyDictionary()
"""What was found of a family, for a target: placing asks first, and the profile again."""


def family_cycles(family: Family, target: Target) -> FamilyCycles:
    """Cycles of the vertices of a family: one number, or where fields are ragged one for each lengths that occur.

    A ragged codelet is traced for every lengths that occur together: milliseconds each, once for a family.

    Raises:
        CyclesError: the codelet's own `cycles=` fails.
    """
    known = _KNOWN.setdefault(family, {})
    if target not in known:
        known[target] = _estimated(family, target)
    return known[target]


def _estimated(family: Family, target: Target) -> FamilyCycles:
    traced = family.codelet
    if not family.rows:
        return FamilyCycles(np.array([target.estimate_cycles(traced)], np.int64))
    symbols, kinds = list(family.rows), together(list(family.rows.values()))
    lengths, group_of = groups_of(kinds.lengths)
    cycles = [target.estimate_cycles(traced.at(dict(zip(symbols, map(int, row), strict=True)))) for row in lengths]
    distinct, number = np.unique(np.array(cycles, np.int64), return_inverse=True)
    over_kinds = number[group_of].astype(np.int32).reshape([axis.extent for axis in kinds.axes])
    own = [axis for axis in family.axes if axis in kinds.axes]
    in_order = over_kinds.transpose([kinds.axes.index(axis) for axis in own])
    spread = in_order.reshape([axis.extent if axis in own else 1 for axis in family.axes])
    return FamilyCycles(distinct, np.broadcast_to(spread, family.extents).reshape(-1))
