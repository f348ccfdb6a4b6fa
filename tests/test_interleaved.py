"""Interleaved memory: what must lie there is counted as it is touched, and told where there is too little."""

from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given

import codelet as cl
from codelet.graphs.vertices import Vertex
from lowering.machine import interleaved
from lowering.machine.exchange import plan_exchange
from lowering.machine.interleaved import interleaved_bytes
from lowering.machine.liveness import live_ranges
from lowering.plan.steps import ExecuteStep
from tests.examples import examples
from tests.placements import TILES, placements, vertices_of


def asks(family, target):
    """Every other field of a family, as if the matrix unit read them."""
    return family.fields[::2]


def counted_one_by_one(placement, liveness):
    """What each tile needs at each moment."""
    sizes, homes = {}, np.asarray(placement.element_tiles)
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


@examples(12)
@given(placements())
def test_what_must_be_interleaved_is_that_counted_one_by_one(placement):
    liveness = live_ranges(plan_exchange(placement))
    products = ("dot_general", "conv_general_dilated")
    multiplies = any(name in str(family.codelet.jaxpr) for family in placement.plan.families for name in products)
    assert multiplies or not interleaved_bytes(liveness).any()
    with patch.object(interleaved, "interleaved_fields", asks), patch.object(interleaved, "_multiplies", bool):
        found = interleaved_bytes(liveness)
    np.testing.assert_array_equal(found, counted_one_by_one(placement, liveness))


# --- which fields ask for it ------------------------------------------------------------------------------


@cl.codelet(issue="assembly", workers=6)
def layer(x, w):
    return (x @ w.reshape(x.shape[1], -1)).reshape(-1)


@cl.codelet(issue="assembly", workers=6)
def scaled(x, w, b):
    return x @ (2 * w) + b


@cl.codelet(issue="assembly", workers=6)
def correlated(field, kernel):
    return jax.lax.conv_general_dilated(field, kernel, (1, 1), "SAME")


@cl.codelet
def written_in_cpp(x, w):
    return jnp.tanh(x @ w)


def fields_of(codelet, target=None, dtype="float16", **shapes):
    graph = cl.Graph(target or cl.IPU(num_tiles=1))
    inputs = {name: graph.add_variable(name, shape, dtype) for name, shape in shapes.items()}
    graph.add_vertex("work", codelet, **inputs)
    return graph.target.interleaved_fields(graph.families[0].codelet)


def test_what_the_matrix_unit_loads_and_gives_asks_for_it():
    assert fields_of(layer, x=(64, 32), w=(32 * 48,)) == ("w", "out")
    assert fields_of(layer, x=(64, 32), w=(32 * 48,), dtype="float32") == ("w", "out")
    assert fields_of(correlated, field=(1, 16, 8, 8), kernel=(16, 16, 3, 3)) == ("kernel", "out")
    # Weights, or results, that are computed from it lie where the vertex has room.
    assert fields_of(scaled, x=(64, 32), w=(32, 48), b=(48,)) == ()
    # Few weights and a large field: the field is loaded for them, if that takes less.
    assert fields_of(layer, x=(4096, 16), w=(16 * 16,)) in (("w", "out"), ("x", "out"))
    # A product of two vectors, one that is compiled, integers, and a machine without a unit need none.
    assert fields_of(layer, x=(1, 32), w=(32,)) == ()
    assert fields_of(written_in_cpp, x=(64, 32), w=(32, 48)) == ()
    assert fields_of(layer, x=(64, 32), w=(32 * 48,), dtype="int32") == ()
    plain = cl.IPU(num_tiles=1, float16_macs_per_cycle=0, float32_macs_per_cycle=0)
    assert fields_of(layer, plain, x=(64, 32), w=(32 * 48,)) == ()


def crowded(target):
    graph = cl.Graph(target)
    field = graph.add_variable("field", (1, 480, 4, 4), "float16")
    kernel = graph.add_variable("kernel", (480, 480, 1, 1), "float16")
    graph.add_vertex("work", correlated, field=field, kernel=kernel)
    return cl.Engine(graph)


def test_too_much_of_it_is_told():
    mk2 = cl.IPU(num_tiles=1)
    assert mk2.interleaved_bytes == 0xE8000 - 0x80000
    assert cl.IPU("mk1").interleaved_bytes == 0x20000
    engine = crowded(mk2)
    needed = 2 * (480 * 480 + 16 * 480)
    with pytest.raises(cl.OutOfInterleavedMemoryError) as caught:
        engine.profile()
    assert str(caught.value).split("\n  at:")[0] == (
        "tile 0 is out of interleaved memory by 50,176 bytes\n"
        "  given:    476,160 bytes that a matrix unit loads as weights, or adds to\n"
        "  expected: at most 425,984 bytes on a tile of IPU('mk2', num_tiles=1)\n"
        "  fix:      spread the weights over more tiles, or see all with allow_out_of_memory=True"
    )
    assert isinstance(caught.value, cl.OutOfTileMemoryError)
    memory = engine.machine(allow_out_of_memory=True).memory
    assert memory.interleaved_by_tile.tolist() == [needed]
    assert "in interleaved memory: at most 476,160 of 425,984 bytes, on tile 0" in str(memory)
    # Where all memory is alike, nothing asks for some of it.
    assert not crowded(cl.IPU(num_tiles=1, interleaved_bytes=0)).machine().memory.interleaved_by_tile.any()
