"""Cycles of the vertices of a family, each on one worker, as the graph's target estimates them."""

from __future__ import annotations

import weakref

import numpy as np

from codelet.graphs.family import Family
from codelet.target import FamilyCycles, Target
from codelet.views.rows import groups_of, together

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
        return FamilyCycles((target.estimate_cycles(traced),))
    symbols, kinds = list(family.rows), together(list(family.rows.values()))
    lengths, group_of = groups_of(kinds.lengths)
    cycles = [target.estimate_cycles(traced.at(dict(zip(symbols, map(int, row), strict=True)))) for row in lengths]
    number = {own: k for k, own in enumerate(dict.fromkeys(cycles))}
    which = np.array([number[own] for own in cycles], np.int32)
    over_kinds = which[group_of].reshape([axis.extent for axis in kinds.axes])
    own = [axis for axis in family.axes if axis in kinds.axes]
    in_order = over_kinds.transpose([kinds.axes.index(axis) for axis in own])
    spread = in_order.reshape([axis.extent if axis in own else 1 for axis in family.axes])
    return FamilyCycles(tuple(number), np.broadcast_to(spread, family.extents).reshape(-1))
