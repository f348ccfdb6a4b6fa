"""Placement by partition: its model is exact, its values are right, and the same parts come in every process."""

import hashlib
import itertools
import subprocess
import sys
import warnings
from dataclasses import replace

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from benchmarks.irregular_graphs import GRAPHS, Nodes, build_program
from lowering.machine.exchange import plan_exchange
from lowering.machine.hypergraph import hypergraph_of, is_irregular
from lowering.machine.irregular import best_units, place_by_partition
from lowering.machine.partitioners import (
    bisected_parts,
    breadth_first_order,
    component_parts,
    has_metis,
    has_mtkahypar,
    links_of,
    metis_parts,
    mtkahypar_parts,
    parts_in_order,
)
from lowering.machine.place import place_and_exchange
from lowering.machine.placement import Placement
from lowering.machine.step_cycles import total_cycles
from lowering.machine.unit_model import UnitModel
from lowering.machine.unit_moves import measured, refined
from lowering.pipeline import plan_engine
from lowering.plan.components import components
from lowering.plan.timeline import without_calls
from tests.examples import examples, few

EDGES = 400


def plan_of_nodes(nodes: Nodes, tiles: int = 12, chips: int = 1):
    return without_calls(plan_engine(*build_program(nodes, tiles, chips)))


@st.composite
def drawn_nodes(draw):
    """Any directed links, with self-links, nodes without any, and pieces that hang together by nothing."""
    count = draw(st.integers(1, 40))
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    links = draw(st.integers(0, 120))
    keys = np.unique(random.integers(0, count * count, links))
    program = draw(st.sampled_from(["gather", "product", "search", "messages"]))
    return Nodes(count, *np.divmod(keys, count), program=program, width=draw(st.sampled_from([1, 3, 8])))


def values_of(graph: cl.Graph, seed: int = 0) -> dict:
    random = np.random.default_rng(seed)
    return {own.name: random.integers(-4, 4, own.shape).astype(np.float32) for own in graph.sources}


def run_by(graph: cl.Graph, program: cl.Program, execution: str, placement) -> dict:
    engine = cl.Engine(graph, program, execution=execution, placement=placement)
    for name, value in values_of(graph).items():
        engine.write(name, value)
    engine.run()
    return {own.name: np.asarray(engine.read(own.name)) for own in graph.sources}


# --- values and counts ----------------------------------------------------------------------------------------


@few(
    "name, execution",
    list(itertools.product(["power_law", "factors", "message_passing", "breadth_first"], ["tiles", "addresses"])),
    quick=["factors, tiles", "factors, addresses"],
)
def test_values_are_those_of_the_fused_program(name, execution):
    nodes = GRAPHS[name](150).renumbered(seed=2)
    graph, program = build_program(nodes, 6)
    engine = cl.Engine(graph, program, placement="breadth_first")
    assert engine.machine().placement.orders
    expected = run_by(graph, program, "fused", "balanced")
    found = run_by(graph, program, execution, "breadth_first")
    for key, value in expected.items():
        np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-4)


def _counted(placement: Placement) -> tuple[list, list]:
    """Bytes and messages that each tile receives in each step, one element at a time."""
    num_bytes, messages = [], []
    laid = placement.laid
    for moved in plan_exchange(placement).steps.values():
        elements, senders, receivers = moved.before.moves()
        places = elements if laid is None else laid.at(elements)
        order = np.lexsort((places, receivers))
        places, senders, receivers = places[order], senders[order], receivers[order]
        goes_on = (np.diff(places) == 1) & (np.diff(senders) == 0) & (np.diff(receivers) == 0)
        first = np.append(True, ~goes_on)[: len(places)]
        num_bytes.append(np.bincount(receivers, minlength=placement.num_tiles) * 4)
        messages.append(np.bincount(receivers[first], minlength=placement.num_tiles))
    return num_bytes, messages


@examples(8)
@given(drawn_nodes(), st.sampled_from([1, 5, 12]))
def test_what_moves_is_what_moves_element_by_element(nodes, tiles):
    placement = place_by_partition(plan_of_nodes(nodes, tiles), "breadth_first")
    if placement is None:
        return
    num_bytes, messages = _counted(placement)
    for moved, own, count in zip(plan_exchange(placement).steps.values(), num_bytes, messages, strict=True):
        np.testing.assert_array_equal(moved.before.received_bytes, own)
        np.testing.assert_array_equal(moved.before.received_messages, count)
    # Another order moves the same, in no fewer messages than half as many.
    plain = plan_exchange(replace(placement, orders={}))
    for moved, other in zip(plan_exchange(placement).steps.values(), plain.steps.values(), strict=True):
        np.testing.assert_array_equal(moved.before.received_bytes, other.before.received_bytes)
        np.testing.assert_array_equal(moved.before.sent_bytes, other.before.sent_bytes)


@examples(6)
@given(drawn_nodes(), st.sampled_from([(1, 1), (5, 1), (12, 1), (12, 2)]))
def test_the_model_of_units_is_exact(nodes, machine):
    plan = plan_of_nodes(nodes, *machine)
    graph = hypergraph_of(plan)
    if graph is None:
        return
    found = best_units(graph, "breadth_first")
    again = measured(UnitModel(graph), found.tiles)
    assert found.cycles >= 0
    placement = place_by_partition(plan, "breadth_first")
    assert placement is not None
    for variable in plan.variables:
        own = placement.tiles_of(variable)
        assert ((own >= 0) & (own < machine[0])).all()
    if len(graph.unit_of) == graph.num_units and nodes.program != "search":  # else it is refined once more
        # Steps of which nothing moves between may overlap, which the model leaves out.
        assert total_cycles(plan_exchange(placement)) <= found.cycles
    assert again.cycles <= 1.2 * found.cycles + 1000


@pytest.mark.parametrize("name", ["mesh_3d", "radius_2d", "steep_power_law"])
@pytest.mark.parametrize("machine", [(16, 1), (16, 2)])
def test_the_model_agrees_with_the_exchange(name, machine):
    plan = plan_of_nodes(GRAPHS[name](EDGES), *machine)
    graph = hypergraph_of(plan)
    assert graph is not None
    found = best_units(graph, "breadth_first")
    placement = place_by_partition(plan, "breadth_first")
    assert placement is not None
    assert total_cycles(plan_exchange(placement)) == found.cycles


# --- refinement -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["power_law", "factors", "message_passing"])
def test_refinement_never_makes_it_worse_and_its_counts_stay_right(name):
    graph = hypergraph_of(plan_of_nodes(GRAPHS[name](EDGES), 16))
    assert graph is not None
    model = UnitModel(graph)
    tiles = np.arange(graph.num_units) % 16
    before = measured(model, tiles)
    after = refined(model, tiles, before.fullest)
    assert after.cycles < before.cycles
    assert after.fullest <= before.fullest
    readers = model.readers(after.tiles)
    assert model.total(model.computed(after.tiles), model.moved(readers, after.homes)) == after.cycles


# --- partitions -------------------------------------------------------------------------------------------------


@examples(8)
@given(drawn_nodes(), st.integers(1, 50))
def test_parts_are_of_every_node_and_in_bounds(nodes, parts):
    """More parts than nodes, components, nodes without links: every node has a part."""
    graph = hypergraph_of(plan_of_nodes(nodes))
    if graph is None:
        return
    for links in (links_of(graph), links_of(graph, alike=False), links_of(graph, weighted=False)):
        for found in (
            bisected_parts(links, parts),
            parts_in_order(breadth_first_order(links), links.loads, parts),
            component_parts(links, parts),
        ):
            if found is not None:
                assert found.shape == (links.num_nodes,)
                assert ((found >= 0) & (found < parts)).all()
        assert sorted(breadth_first_order(links).tolist()) == list(range(links.num_nodes))


@pytest.mark.skipif(not has_metis(), reason="needs the extra `placement`")
@examples(10)
@given(drawn_nodes(), st.sampled_from([1, 3, 8, 60]))
def test_metis_parts_are_of_every_node(nodes, parts):
    graph = hypergraph_of(plan_of_nodes(nodes))
    if graph is not None:
        found = metis_parts(links_of(graph), parts)
        assert ((found >= 0) & (found < parts)).all()


@pytest.mark.skipif(not has_mtkahypar(), reason="needs the extra `placement`")
def test_mtkahypar_cuts_fewer_nets_than_a_line():
    graph = hypergraph_of(plan_of_nodes(GRAPHS["mesh_2d"](EDGES).renumbered(seed=3), 8))
    assert graph is not None
    model = UnitModel(graph)
    found = measured(model, mtkahypar_parts(graph, 8).astype(np.int64))
    in_line = measured(model, np.arange(graph.num_units) * 8 // graph.num_units)
    assert found.cycles < in_line.cycles


def test_components_are_joined_through_any_chain():
    random = np.random.default_rng(0)
    order = random.permutation(500)
    labels = components(order[:-1], order[1:], 600)
    assert set(labels[order].tolist()) == {0} if 0 in order else {int(order.min())}
    assert labels[500:].tolist() == list(range(500, 600))


def test_bisection_halves_a_chain_in_two_pieces():
    count = 64
    nodes = Nodes(count, np.arange(1, count), np.arange(count - 1))
    graph = hypergraph_of(plan_of_nodes(nodes, 2))
    assert graph is not None
    parts = bisected_parts(links_of(graph), 2)
    assert np.count_nonzero(np.diff(parts)) == 1
    assert abs(int(parts.sum()) - count // 2) <= 2


# --- regular programs, and others ---------------------------------------------------------------------------------


WHERE = {
    "stencil": (False, lambda i: slice(i, i + 3)),
    "around": (False, lambda i: (i + 5) % 64),
    "clipped": (False, lambda i: cl.table(np.clip(np.arange(64) - 2, 0, 60))[i]),
    "reflected": (False, lambda i: cl.table(np.abs(np.arange(64) - 9))[i]),
    "in pairs": (False, lambda i: cl.table(np.arange(64) ^ 1)[i]),
    "scattered": (True, lambda i: cl.table(np.random.default_rng(0).permutation(64))[i]),
    "scattered late": (True, lambda i: cl.table(np.append(np.arange(54), [60, 54, 63, 57, 61, 55, 62, 56, 59, 58]))[i]),
}


@pytest.mark.parametrize(("irregular", "where"), WHERE.values(), ids=WHERE.keys())
def test_only_what_reads_through_scattered_tables_is_partitioned(irregular, where):
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, i = graph.add_variable("x", (66,)), cl.grid(64)
    graph.add_vertex("read", cl.codelet(lambda x: x.sum()), x=x[where(i)])
    plan = without_calls(plan_engine(graph, graph.default_program))
    assert is_irregular(plan) == irregular
    assert (hypergraph_of(plan) is not None) == irregular
    assert (place_by_partition(plan, "breadth_first") is not None) == irregular


@pytest.mark.parametrize("count", [1, 2, 7])
def test_empty_tables_and_vertices_alone(count):
    nodes = Nodes(count, np.zeros(0, np.int64), np.zeros(0, np.int64))
    graph, program = build_program(nodes, 16)
    found = run_by(graph, program, "fused", "balanced")
    np.testing.assert_array_equal(found["y"], 0)
    assert cl.Engine(graph, program).machine().placement.num_tiles == 16


def test_an_irregular_program_is_placed_better_than_in_its_order():
    nodes = GRAPHS["mesh_2d"](4000).renumbered(seed=1)
    plan = plan_of_nodes(nodes, 32)
    exchange = place_and_exchange(plan)
    tried = {own.way: own.cycles for own in exchange.placement.tried}
    assert exchange.placement.tried[0].way in ("partition", "hypergraph", "breadth_first")
    assert tried[exchange.placement.tried[0].way] <= 0.8 * tried["bytes"]
    assert total_cycles(exchange) == exchange.placement.tried[0].cycles


DIGEST = """
import sys
import tests.test_place_irregular as own
print(own.digest(sys.argv[1]))
"""


def digest(name: str) -> str:
    exchange = place_and_exchange(plan_of_nodes(GRAPHS[name](1500).renumbered(seed=1), 16))
    placement = exchange.placement
    parts = [placement.element_tiles, *placement.vertex_tiles.values()]
    parts += [column for order in placement.orders.values() for column in order]
    return hashlib.sha256(b"".join(np.ascontiguousarray(own, np.int64).tobytes() for own in parts)).hexdigest()


@pytest.mark.slow
def test_two_processes_place_alike():
    name = "radius_2d"
    command = [sys.executable, "-c", DIGEST, name]
    other = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()[-1]
    assert other == digest(name)


def test_what_was_compared_is_printed_and_reported():
    graph, program = build_program(GRAPHS["mesh_2d"](2000).renumbered(seed=1), 16)
    engine = cl.Engine(graph, program)
    tried = engine.machine().placement.tried
    chosen, *rest = [
        line for line in str(engine.machine().placement).splitlines() if line.startswith(("  chosen", "  tried"))
    ]
    assert chosen == f"  chosen {tried[0].way}: {tried[0].cycles:,} cycles, {tried[0].num_bytes:,} bytes"
    assert len(rest) == len(tried) - 1 >= 2
    table = engine.profile().tables().table("placements")
    assert table["way"].tolist() == [own.way for own in tried]
    assert table["is_chosen"].tolist() == [True] + [False] * len(rest)
    assert table["cycles"][0] == engine.profile().total_cycles


def test_without_the_extra_one_warning_tells_what_it_would_save(monkeypatch):
    import lowering.machine.irregular as irregular
    import lowering.machine.place as place_room

    for room in (irregular, place_room):
        monkeypatch.setattr(room, "has_metis", lambda: False)
    monkeypatch.setattr(irregular, "has_mtkahypar", lambda: False)
    irregular.warn_without_partitioner.cache_clear()
    plan = plan_of_nodes(GRAPHS["mesh_2d"](2000).renumbered(seed=1), 16)
    with pytest.warns(UserWarning, match=r"1 % more cycles.*codelet-graphs\[placement\]"):
        placement = place_and_exchange(plan).placement
    assert placement.tried[0].way == "breadth_first"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        place_and_exchange(plan)


def test_a_partitioner_that_is_missing_is_told(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(cl.MissingExtraError, match=r"codelet-graphs\[placement\]"):
        place_by_partition(plan_of_nodes(GRAPHS["mesh_2d"](400)), "partition")


def test_a_long_reduction_in_one_vertex_gets_advice():
    graph = cl.Graph(cl.IPU(num_tiles=32))
    x, i = graph.add_variable("x", (512,)), cl.grid(512)
    y = graph.add_vertex("scale", cl.codelet(lambda x: 2 * x), x=x[i])
    graph.add_vertex("largest", cl.codelet(lambda x: x.max()), x=y)
    found = [own for own in cl.Engine(graph).profile().advice() if own.kind == "long reduction"]
    assert "step largest reduces 512 elements in one vertex" in found[0].text
    assert "cl.ops.max" in found[0].fix


def test_gradients_of_irregular_programs_are_placed_too():
    nodes = replace(GRAPHS["radius_2d"](300), width=2)
    graph, program = build_program(nodes, 4)
    run = cl.lower(graph, program=program, inputs=["x"], outputs=["y"])
    x = np.ones((nodes.count, 2), np.float32)
    slope = jax.grad(lambda x: run({"x": x})["y"].sum())(x)
    np.testing.assert_array_equal(slope[:, 0], np.bincount(nodes.read, minlength=nodes.count))
