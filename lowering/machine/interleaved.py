"""Interleaved memory: how much each tile needs of the memory that is read twice as wide.

In come live ranges. Out comes for each tile the most bytes at once that vertices ask to lie there, because they read
them 16 bytes a cycle or go on adding to them: the target names the fields. What a field touches at home
counts as long as the variable is live there; what it has from another tile, while the step runs; a vertex's own
constants always. A machine without such memory asks for none.
"""

from __future__ import annotations

import math

import numpy as np
from jax.extend import core as jax_core

from codelet.graphs.family import Family, Field
from codelet.jaxprs.equations import inner_jaxprs
from codelet.views.sources import Variable
from lowering.machine.liveness import Liveness
from lowering.machine.placement import Placement
from lowering.machine.touched import Touches
from lowering.machine.vertex_cycles import interleaved_fields
from lowering.plan.runs import Runs, difference, intersection, union_of
from lowering.plan.steps import ExecuteStep


def _multiplies(jaxpr: jax_core.Jaxpr) -> bool:
    """Whether a jaxpr has a product, which alone a matrix unit computes; others are not estimated for its sake."""
    return any(
        eqn.primitive.name in ("dot_general", "conv_general_dilated") or any(map(_multiplies, inner_jaxprs(eqn)))
        for eqn in jaxpr.eqns
    )


def _asking(liveness: Liveness) -> dict[Family, tuple[Field, ...]]:
    """The fields of each family that ask for interleaved memory."""
    placement = liveness.placement
    target = placement.plan.graph.target
    found = {}
    for family in placement.vertex_tiles if target.interleaved_bytes else ():
        if _multiplies(family.codelet.jaxpr.jaxpr) and (fields := interleaved_fields(family, target)):
            found[family] = fields
    return found


class _Counter:
    """Counts bytes of what tiles touch, as runs of `tile * num_elements + element`."""

    def __init__(self, placement: Placement):
        self.placement = placement
        self.space = max(1, len(placement.element_tiles))
        self.homes = placement.homes
        self.firsts = np.array([variable.first_element for variable in placement.plan.variables], np.int64)
        self.itemsizes = np.array([variable.dtype.itemsize for variable in placement.plan.variables], np.int64)

    def by_variable(self, touched: Runs) -> dict[Variable, np.ndarray]:
        """The bytes of each variable among them on each tile."""
        tiles = touched.starts // self.space
        variables = np.searchsorted(self.firsts, touched.starts - tiles * self.space, side="right") - 1
        num_bytes = touched.lengths * self.itemsizes[variables]
        found = {}
        for number in np.unique(variables).tolist():
            own = variables == number
            by_tile = np.bincount(tiles[own], num_bytes[own], self.placement.num_tiles).astype(np.int64)
            found[self.placement.plan.variables[number]] = by_tile
        return found


def interleaved_bytes(liveness: Liveness) -> np.ndarray:
    """The most bytes at once that each tile needs in interleaved memory, int64 of shape (num_tiles,).

    Raises:
        CyclesError: a codelet's own `cycles=` or `turns=` fails.
    """
    placement, moments, asking = liveness.placement, liveness.timeline.moments, _asking(liveness)
    always = np.zeros(placement.num_tiles, np.int64)
    if not asking:
        return always
    touches, count = Touches(placement), _Counter(placement)
    # Of a loop of no turns nothing runs, but what its vertices keep is there.
    run = {own for moment in moments if isinstance(moment.step, ExecuteStep) for own in moment.step.families}
    touched: dict[Family, Runs] = {}
    at_times = np.zeros((len(moments), placement.num_tiles), np.int64)
    for family, fields in asking.items():
        if family in run:
            touched[family] = union_of(
                [touches.by_family(family, own.tensor) for own in fields if own.tensor is not None]
            )
        states = sum(math.prod(own.type.shape) * own.type.dtype.itemsize for own in fields if own.state is not None)
        always += states * np.bincount(placement.vertex_tiles[family], minlength=placement.num_tiles)
    for moment in moments:
        families = moment.step.families if isinstance(moment.step, ExecuteStep) else ()
        away = difference(union_of([touched[own] for own in families if own in touched]), count.homes)
        at_times[moment.number] += sum(count.by_variable(away).values())
    at_home = count.by_variable(intersection(union_of(list(touched.values())), count.homes))
    for own in liveness.ranges:
        num_bytes = [at_home[variable] for variable in own.variables if variable in at_home]
        if num_bytes and own.always:
            always += num_bytes[0]
        elif num_bytes:
            at_times[own.moments] += np.maximum.reduce(num_bytes)
    return always + at_times.max(axis=0, initial=0)
