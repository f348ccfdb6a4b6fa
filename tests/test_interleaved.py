"""Interleaved memory: what must lie there is counted as it is touched, and told where there is too little."""

from unittest.mock import patch

import numpy as np
from hypothesis import given

from codelet.graphs.vertices import Vertex
from codelet.target import VertexCycles
from lowering.machine import interleaved
from lowering.machine.exchange import plan_exchange
from lowering.machine.interleaved import interleaved_bytes
from lowering.machine.liveness import live_ranges
from lowering.machine.vertex_cycles import FamilyCycles
from lowering.plan.steps import ExecuteStep
from tests.examples import examples
from tests.placements import TILES, placements, vertices_of


def asks(family, target):
    """Every other field of a family, as if the matrix unit read them."""
    return FamilyCycles((VertexCycles(1, interleaved=tuple(field.name for field in family.fields[::2])),))


def counted_one_by_one(placement, liveness):
    """What each tile needs at each moment."""
    sizes, homes = {}, placement.element_tiles
    for variable in placement.plan.variables:
        sizes |= dict.fromkeys(range(variable.first_element, variable.first_element + variable.size), variable)
    always, at_home, at_times = np.zeros(TILES, int), set(), []
    for moment in liveness.timeline.moments:
        steps = moment.step.families if isinstance(moment.step, ExecuteStep) else ()
        away = set()
        for family, number, tile in vertices_of(placement, steps):
            for field in family.fields[::2]:
                if field.tensor is not None:
                    elements = Vertex(family, number).fields[field.name].elements().reshape(-1)
                    touched = {(tile, element) for element in elements.tolist() if element >= 0}
                    at_home |= {(t, e) for t, e in touched if homes[e] == t}
                    away |= {(t, e) for t, e in touched if homes[e] != t}
        at_times.append(away)
    for family, _, tile in vertices_of(placement, placement.plan.families):
        always[tile] += sum(
            int(np.prod(field.type.shape)) * field.type.dtype.itemsize
            for field in family.fields[::2]
            if field.state is not None
        )
    needed = [always.copy() for _ in at_times]
    for number, away in enumerate(at_times):
        for tile, element in away:
            needed[number][tile] += sizes[element].dtype.itemsize
        for own in liveness.ranges:
            if own.moments[number]:
                each = np.zeros((len(own.variables), TILES), int)
                for tile, element in at_home:
                    if sizes[element] in own.variables:
                        each[own.variables.index(sizes[element]), tile] += sizes[element].dtype.itemsize
                needed[number] += each.max(axis=0)
    return np.max(needed, axis=0, initial=0) if needed else always


@examples(30)
@given(placements())
def test_what_must_be_interleaved_is_that_counted_one_by_one(placement):
    liveness = live_ranges(plan_exchange(placement))
    assert not interleaved_bytes(liveness).any()
    with patch.object(interleaved, "family_cycles", asks):
        found = interleaved_bytes(liveness)
    np.testing.assert_array_equal(found, counted_one_by_one(placement, liveness))
