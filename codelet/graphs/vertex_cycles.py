"""Cycles of the vertices of a family, each on one worker, as the graph's target estimates them."""

from __future__ import annotations

import weakref

import numpy as np

from codelet.graphs.family import Family, Field
from codelet.target import FamilyCycles, Target
from codelet.tracing.traced_codelet import TracedCodelet
from codelet.views.rows import together

_KNOWN: weakref.WeakKeyDictionary[Family, dict[Target, FamilyCycles]] = weakref.WeakKeyDictionary()
"""What was found of a family, for a target: placing asks first, and the profile again."""


def family_cycles(family: Family, target: Target) -> FamilyCycles:
    """Cycles of the vertices of a family: one number, or where fields are ragged one for each lengths that occur.

    A ragged codelet is traced for every lengths that occur together: milliseconds each, once for a family.

    Raises:
        CyclesError: the function `cycles=` of the codelet fails.
    """
    known = _KNOWN.setdefault(family, {})
    if target not in known:
        known[target] = _estimated(family, target)
    return known[target]


def _traced(family: Family) -> list[TracedCodelet]:
    """The codelet of a family; where fields are ragged, for each lengths that occur."""
    if not family.rows:
        return [family.codelet]
    symbols, lengths = list(family.rows), together(family.rows.values()).lengths
    return [family.codelet.at(dict(zip(symbols, row, strict=True))) for row in lengths.tolist()]


def interleaved_fields(family: Family, target: Target) -> tuple[Field, ...]:
    """The fields of a family of which a vertex asks for interleaved memory."""
    names = {name for traced in _traced(family) for name in target.interleaved_fields(traced)}
    return tuple(field for field in family.fields if field.name in names)


def _estimated(family: Family, target: Target) -> FamilyCycles:
    if not family.rows:
        return FamilyCycles((target.estimate_cycles(family.codelet),))
    kinds = together(family.rows.values())
    cycles = list(map(target.estimate_cycles, _traced(family)))
    number = {own: k for k, own in enumerate(dict.fromkeys(cycles))}
    which = np.array([number[own] for own in cycles], np.int32)
    over_kinds = which[kinds.group_of].reshape([axis.extent for axis in kinds.axes])
    own = [axis for axis in family.axes if axis in kinds.axes]
    in_order = over_kinds.transpose([kinds.axes.index(axis) for axis in own])
    spread = in_order.reshape([axis.extent if axis in own else 1 for axis in family.axes])
    return FamilyCycles(tuple(number), np.broadcast_to(spread, family.extents).reshape(-1))
