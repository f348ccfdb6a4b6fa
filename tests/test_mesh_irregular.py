"""Irregular programs over a mesh, fused: devices have the parts of a partition, and what crosses is its cut."""

import jax
import numpy as np
import pytest
from jax.extend import core as jax_core
from jax.sharding import NamedSharding

import codelet as cl
from benchmarks.collectives import elements_carried
from benchmarks.irregular_graphs import GRAPHS, Nodes, build_program
from benchmarks.mesh import OverMesh
from lowering.lower import named_ends
from lowering.machine.hypergraph import hypergraph_of
from lowering.machine.irregular import element_devices
from lowering.pipeline import plan_engine, plan_graph
from lowering.plan.timeline import without_calls
from tests.meshes import mesh_of

DEVICES = 4


def cut_of(graph: cl.Graph, program: cl.Program) -> int:
    """Elements that the partition has some device receive, each once for each compute set and device."""
    plan = without_calls(plan_engine(graph, program))
    known, devices = hypergraph_of(plan, join=False), element_devices(plan, DEVICES)
    assert known is not None
    assert devices is not None
    homes = devices[known.net_starts]
    written = known.homes >= 0
    of_unit = np.full(known.num_units, -1)
    of_unit[known.homes[written]] = homes[written]
    keys = np.unique((known.pin_nets * len(known.works) + known.pin_works) * DEVICES + of_unit[known.pin_units])
    rest, readers = np.divmod(keys, DEVICES)
    nets = rest // len(known.works)
    return int((known.net_stops - known.net_starts)[nets[homes[nets] != readers]].sum())


def check_over_mesh(nodes: Nodes, bound: float) -> None:
    graph, program = build_program(nodes, 16)
    several = OverMesh(graph, ["x"], ["y"], mesh_of(DEVICES), program=program)
    x = np.random.default_rng(0).standard_normal((nodes.count, nodes.width)).astype(np.float32)
    one = cl.lower(graph, program, inputs=["x"], outputs=["y"])
    np.testing.assert_allclose(several.run({"x": x})["y"], one({"x": x})["y"], rtol=1e-5, atol=1e-5)
    cut = cut_of(graph, program)
    assert several.crossing <= cut
    plan = plan_graph(graph, program, *named_ends(graph, ["x"], ["y"]))
    execution = several.execution
    held = [
        jax.ShapeDtypeStruct(
            execution.held_type(v).shape, v.dtype, sharding=NamedSharding(execution.mesh, execution.spec(v))
        )
        for v in plan.inputs
    ]
    compiled = jax.jit(jax_core.jaxpr_as_fun(execution.compile_held(plan))).lower(*held).compile()
    assert elements_carried(compiled.as_text() or "") <= bound * cut


def test_devices_receive_the_cut_of_the_partition():
    # Each two devices exchange as much as the two that exchange most of as many apart: little, of a small cut.
    check_over_mesh(GRAPHS["mesh_2d"](4000).renumbered(seed=1), 1.15)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["power_law", "mesh_2d", "mesh_3d_corners"])
def test_devices_receive_the_cut_of_larger_partitions(name):
    check_over_mesh(GRAPHS[name](30_000).renumbered(seed=1), 1.1)


def test_an_engine_over_a_mesh_has_the_values_of_one_device():
    nodes = GRAPHS["breadth_first"](200).renumbered(seed=1)  # of as many nodes as do not divide evenly
    results = []
    for mesh in (None, mesh_of(DEVICES)):
        graph, program = build_program(nodes, 16)
        engine = cl.Engine(graph, program, mesh=mesh)
        engine.write("x", np.arange(nodes.count * nodes.width, dtype=np.float32).reshape(nodes.count, nodes.width))
        engine.run()
        results.append(engine.read("x"))
    np.testing.assert_array_equal(*results)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["power_law", "factors"])
def test_tiles_over_a_mesh_hold_elements_in_their_order(name):
    nodes = GRAPHS[name](150).renumbered(seed=2)
    results = []
    for execution, mesh in (("fused", None), ("tiles", mesh_of(DEVICES))):
        graph, program = build_program(nodes, 8)
        engine = cl.Engine(graph, program, execution=execution, mesh=mesh, placement="breadth_first")
        random = np.random.default_rng(1)
        for variable in graph.sources:
            engine.write(variable.name, random.integers(-4, 4, variable.shape).astype(np.float32))
        engine.run()
        state = engine.state
        results.append({variable.name: np.asarray(engine.read(variable.name)) for variable in graph.sources})
        engine.run()
        engine.load_state(state)
        for variable in graph.sources:
            np.testing.assert_array_equal(engine.read(variable.name), results[-1][variable.name])
    assert engine.machine().placement.orders
    for key, value in results[0].items():
        np.testing.assert_allclose(results[1][key], value, atol=1e-4)
