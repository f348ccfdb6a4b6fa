"""Interleaved memory: how much each tile needs of the memory that is read twice as wide.

In come live ranges. Out comes for each tile the most bytes at once that vertices ask to lie there, because they read
them 16 bytes a cycle or go on adding to them: the target names the fields. What a field touches at home
counts as long as the variable is live there; what it has from another tile, while the step runs; a vertex's own
constants always. A machine without such memory asks for none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from jax.extend import core as jax_core

from codelet.graphs.family import Family, Field
from codelet.graphs.vertex_cycles import interleaved_fields
from codelet.jaxprs.equations import inner_jaxprs
from codelet.views.sources import Variable
from lowering.machine.liveness import Liveness
from lowering.machine.messages import Messages
from lowering.machine.multicast import merged
from lowering.machine.placement import Placement
from lowering.machine.region import Region, Stretches
from lowering.machine.touched import Touches
from lowering.plan.runs import Runs, union_of
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


class _Asked:
    """What the vertices of a step touch of what must be interleaved.

    Attributes:
        away: bytes of each tile that it has from others, int64 of shape (num_tiles,).
        at_home: of each variable what tiles touch where it lives, as runs of `tile * num_elements + element`.
    """

    def __init__(self, families: Iterable[Family], asking: Mapping[Family, Sequence[Field]], touches: Touches):
        placement = touches.placement
        tensors = [(own, field.tensor) for own in families for field in asking[own] if field.tensor is not None]
        target = placement.plan.graph.target
        self.away = np.zeros(placement.num_tiles, np.int64)
        self.at_home: dict[Variable, Runs] = {}
        found = [touches.multicast_by_family(*own, may_share=True) for own in tensors]
        for part in merged(found, max(1, touches.num_elements)):
            region = Region(part.runs, part.variables, placement)
            starts, stops, leaders, homes = region.away(np.ones(placement.num_tiles, bool))
            num_bytes = region.sizes(starts, stops)
            self.away += Messages(leaders, num_bytes, starts, target, part.leaders, homes).bytes_by_tile
            there = part.leaders[homes] == leaders
            at_home = Stretches(starts[there], stops[there], homes[there].astype(np.int64), homes[there])
            self.at_home.update(region.by_variable(at_home))


def _bytes_at_home(found: Sequence[Runs], variable: Variable, placement: Placement) -> np.ndarray:
    """The bytes of a variable on each tile that several steps touch there."""
    runs = union_of(found)
    tiles = runs.starts // max(1, len(placement.element_tiles))
    return np.bincount(tiles, runs.lengths * variable.dtype.itemsize, placement.num_tiles).astype(np.int64)


def interleaved_bytes(liveness: Liveness) -> np.ndarray:
    """The most bytes at once that each tile needs in interleaved memory, int64 of shape (num_tiles,).

    Raises:
        CyclesError: a codelet's own `cycles=` or `trip_count=` fails.
    """
    placement, moments, asking = liveness.placement, liveness.timeline.moments, _asking(liveness)
    always = np.zeros(placement.num_tiles, np.int64)
    if not asking:
        return always
    for family, fields in asking.items():
        states = sum(math.prod(own.type.shape) * own.type.dtype.itemsize for own in fields if own.state is not None)
        always += states * np.bincount(placement.vertex_tiles[family], minlength=placement.num_tiles)
    touches = Touches(placement)
    at_times = np.zeros((len(moments), placement.num_tiles), np.int64)
    # Of a loop of no turns nothing runs, but what its vertices keep is there.
    when: dict[tuple[Family, ...], list[int]] = {}
    for moment in moments:
        if isinstance(moment.step, ExecuteStep):
            families = tuple(own for own in moment.step.families if own in asking)
            when.setdefault(families, []).append(moment.number)
    touched: dict[Variable, list[Runs]] = {}
    for families, numbers in when.items():
        asked = _Asked(families, asking, touches)
        at_times[numbers] += asked.away
        for variable, runs in asked.at_home.items():
            touched.setdefault(variable, []).append(runs)
    at_home = {variable: _bytes_at_home(found, variable, placement) for variable, found in touched.items()}
    for own in liveness.ranges:
        num_bytes = [at_home[variable] for variable in own.variables if variable in at_home]
        if num_bytes and own.always:
            always += num_bytes[0]
        elif num_bytes:
            at_times[own.moments] += np.maximum.reduce(num_bytes)
    return always + at_times.max(axis=0, initial=0)
