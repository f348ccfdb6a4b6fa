"""Fused execution over a mesh: what one device gives, and what crosses is what must."""

import pickle
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import codelet as cl
from benchmarks.collectives import collectives, elements_carried
from benchmarks.conv import ALEXNET, convolve
from benchmarks.matvec import dot
from benchmarks.mesh import OverMesh, crossing_of_mnist, product
from benchmarks.messages import build_messages
from benchmarks.messages import network as message_network
from benchmarks.mnist_step import training_arguments
from codelet.graphs.by_tensor import key_of
from codelet.models.mnist import SIZES, network
from ipu_backend.jobs.mnist import make_optimizer, slope_of
from lowering.lower import lower_plan, named_ends
from lowering.mesh.homes import Home, Homes, blocked
from lowering.mesh.mesh_fused import MeshFused
from lowering.pipeline import plan_graph
from lowering.plan.plan import Plan
from tests.cut_graphs import heat
from tests.examples import examples, few
from tests.meshes import MESHES, mesh_of
from tests.strategies import Case, arrived, cases
from tests.ways import assert_close, check_engine, check_slopes, interpreted, lowered


def over(case: Case, mesh: Mesh, data: Any = None) -> cl.Lowered:
    """A case over a mesh, its variables where they cost least; or, if there is data, anywhere."""
    if data is None:
        return cl.lower(case.graph, case.sequence(), inputs=list(case.inputs), outputs=case.outputs, mesh=mesh)
    sources, targets = named_ends(case.graph, list(case.inputs), case.outputs)
    plan = plan_graph(case.graph, case.sequence(), sources, targets)
    execution = MeshFused(plan, mesh, any_homes(data, plan, mesh.size))
    return lower_plan(
        plan, tuple(map(key_of, targets)), execution.compile_logical(plan), ("mesh", id(execution)), raises=True
    )


def any_homes(data: Any, plan: Plan, count: int) -> Homes:
    """Variables cut along any dimension, spread in any way, or everywhere."""
    homes, random = Homes(count), np.random.default_rng(data.draw(st.integers(0, 1 << 16)))
    for variable in plan.variables:
        way = data.draw(st.sampled_from(["cut", "cut", "cut", "cut", "any", "everywhere"]))
        if variable.value is not None or way == "everywhere" or not variable.size:
            continue
        if way == "any":
            devices = random.integers(0, count, variable.size)
            homes[variable] = blocked(devices, variable, count)
        elif variable.shape:
            homes[variable] = Home(variable, count, data.draw(st.integers(0, len(variable.shape) - 1)))
    return homes


def check_integers(case: Case, mesh: Mesh, data: Any = None) -> None:
    results = arrived(jax.jit(over(case, mesh, data))(case.inputs))
    for name, value in interpreted(case).items():
        assert results[name].dtype == value.dtype
        np.testing.assert_array_equal(results[name], value, err_msg=name)


@examples(8)
@given(cases(np.int32), MESHES, st.data())
def test_integers_exactly(case: Case, mesh, data):
    check_integers(case, mesh, data)


@pytest.mark.slow
@examples(4)
@given(cases(np.int32), MESHES)
def test_integers_where_they_cost_least(case: Case, mesh):
    check_integers(case, mesh)


@pytest.mark.slow
@examples(300)
@given(cases(np.int32), MESHES, st.data())
def test_integers_exactly_very_often(case: Case, mesh, data):
    check_integers(case, mesh, data)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32, ragged=True), MESHES, st.data())
def test_ragged_fields_exactly(case: Case, mesh, data):
    check_integers(case, mesh, data)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32, calls=True), MESHES, st.data())
def test_calls_exactly(case: Case, mesh, data):
    check_integers(case, mesh, data)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32, loops=True), MESHES, st.data())
def test_loops_that_pass_variables_on_exactly(case: Case, mesh, data):
    check_integers(case, mesh, data)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32), MESHES)
def test_integers_where_they_cost_least_very_often(case: Case, mesh):
    check_integers(case, mesh)


@pytest.mark.slow
@examples(4)
@given(cases(np.float32), MESHES, st.data())
def test_floats(case: Case, mesh, data):
    assert_close(jax.jit(over(case, mesh, data))(case.inputs), interpreted(case), 1e-5)


def check_gradients(data: Any) -> None:
    with jax.enable_x64(True):
        case = data.draw(cases(np.float64, max_iterations=2, bounded=True))
        one, several = lowered(case), over(case, data.draw(MESHES), data)
        check_slopes(case, several, one)


@examples(5)
@given(st.data())
def test_gradients_are_those_of_one_device(data):
    check_gradients(data)


@pytest.mark.slow
@examples(80)
@given(st.data())
def test_gradients_are_those_of_one_device_very_often(data):
    check_gradients(data)


# --- the engine -------------------------------------------------------------------------------------------


def execution_of(engine: cl.Engine) -> MeshFused:
    assert isinstance(engine._execution, MeshFused)
    return engine._execution


def check_parts(engine: cl.Engine) -> None:
    """Every device holds its own part of every variable that is cut, and no other's."""
    homes = execution_of(engine).homes
    for variable, held in engine._state.arrays.items():
        assert {shard.data.shape for shard in held.addressable_shards} == {homes[variable].shape}


def check_engine_of(case: Case, mesh: Mesh) -> None:
    engine = cl.Engine(case.graph, case.sequence(), stream_bytes=40, mesh=mesh)
    check_engine(engine, case)
    check_parts(engine)


@examples(4)
@given(cases(np.int32), MESHES)
def test_the_engine(case: Case, mesh):
    check_engine_of(case, mesh)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32), MESHES)
def test_the_engine_very_often(case: Case, mesh):
    check_engine_of(case, mesh)


@cl.codelet
def count_up(n):
    return {"n": n + 1}


@cl.codelet
def square(x):
    return x * x


@pytest.mark.slow
def test_state_goes_between_engines_of_other_meshes():
    def counting(mesh: Mesh | None) -> tuple[cl.Engine, cl.Tensor]:
        graph = cl.Graph(cl.IPU(num_tiles=5))
        n, i = graph.add_variable("n", (20,), "int32"), cl.grid(20)
        graph.add_vertex("count", count_up, n=n[i], tile=i // 4)
        graph.set_tile_mapping(n, np.arange(20) // 4)
        return cl.Engine(graph, mesh=mesh), n

    engine, n = counting(mesh_of(4))
    engine.write({"n": np.arange(20)})
    for _ in range(3):
        engine.run()
    engine.write({n[2:4]: [0, 0]})
    engine.run()
    expected = np.arange(20) + 4
    expected[2:4] = 1
    np.testing.assert_array_equal(engine.read(n), expected)
    check_parts(engine)
    for mesh in (None, mesh_of(3), mesh_of(2, 2)):
        other, m = counting(mesh)
        other.load_state(engine.state)
        other.run()
        np.testing.assert_array_equal(other.read(m), expected + 1)


# --- what crosses -----------------------------------------------------------------------------------------


@few("devices, tiles", [(4, None), (2, None), (8, None), (4, 16)], quick=["4, 16"])
def test_a_stencil_sends_its_borders_and_nothing_else(devices, tiles):
    size = 64
    graph, program = heat(size, 3, tiles)
    one = cl.lower(graph, program, inputs=["u"], outputs=["u"])
    several = OverMesh(graph, ["u"], ["u"], mesh_of(devices), program=program)
    values = {"u": np.random.default_rng(0).normal(size=(size, size)).astype("f")}
    np.testing.assert_allclose(several.run(values)["u"], one(values)["u"], rtol=1e-5, atol=1e-6)
    carried = collectives(several.hlo(values))
    # Two steps in a turn, at every border one row each way, without the ends, which nobody reads.
    expected = 2 * (devices - 1) * 2 * (size - 2)
    assert {kind: own.elements for kind, own in carried.items()} == {"collective-permute": expected}
    assert several.crossing == expected
    layers = [own for step in several.execution.inner.steps.values() for own in step.layers]
    assert {len(layer.branches) for layer in layers} == {1}


@pytest.mark.parametrize("by", ["rows", "columns"])
def test_a_product_brings_its_vector_once_or_its_partial_sums(by):
    size, devices = 64, 4
    several = OverMesh(product(by, size, devices), ["w", "x"], ["y"], mesh_of(devices))
    random = np.random.default_rng(0)
    values = {"w": random.normal(size=(size, size)).astype("f"), "x": random.normal(size=size).astype("f")}
    np.testing.assert_allclose(several.run(values)["y"], values["w"] @ values["x"], rtol=1e-4, atol=1e-4)
    assert several.crossing == (devices - 1) * size
    assert elements_carried(several.hlo(values)) <= 1.1 * several.crossing


@pytest.mark.parametrize(("cut", "bound"), [("rows", 1.1), ("channels", 1.1)])
def test_a_convolution_sends_what_its_windows_reach_into(cut, bound):
    devices, graph = 4, cl.Graph()
    x, w = graph.add_variable("x", (1, 8, 32, 32)), graph.add_variable("w", (16, 8, 3, 3))
    y = convolve(graph, x, w, stride=1, padding=1)
    name = y.name
    cuts = {"x": 2, name: 2} if cut == "rows" else {"x": 1, "w": 0, name: 1}
    several = OverMesh(graph, [x, w], [y], mesh_of(devices), cuts)
    one = cl.lower(graph, inputs=[x, w], outputs=[y])
    random = np.random.default_rng(0)
    values = {v.name: random.normal(size=v.shape).astype("f") for v in (x, w)}
    np.testing.assert_allclose(several.run(values)[name], one(values)[name], rtol=1e-4, atol=1e-4)
    expected = 2 * (devices - 1) * 8 * 32 if cut == "rows" else (devices - 1) * x.size
    assert several.crossing == expected
    assert elements_carried(several.hlo(values)) <= bound * expected


@pytest.mark.slow
@pytest.mark.parametrize("cut", ["rows", "channels"])
@pytest.mark.parametrize("layer", ALEXNET, ids=lambda layer: layer.name)
def test_alexnets_convolutions(layer, cut):
    graph = cl.Graph()
    x = graph.add_variable("x", (1, layer.channels, layer.side, layer.side))
    w = graph.add_variable("w", (layer.filters, layer.channels, layer.window, layer.window))
    y = convolve(graph, x, w, stride=layer.stride, padding=layer.padding)
    cuts = {"x": 2, y.name: 2} if cut == "rows" else {"x": 1, "w": 0, y.name: 1}
    several = OverMesh(graph, [x, w], [y], mesh_of(4), cuts)
    values = {v.name: np.random.default_rng(0).normal(size=v.shape).astype("f") for v in (x, w)}
    padding = (layer.padding, layer.padding)
    images, filters = map(jnp.asarray, values.values())
    expected = jax.lax.conv_general_dilated(images, filters, [layer.stride] * 2, [padding] * 2)
    np.testing.assert_allclose(several.run(values)[y.name], expected, rtol=1e-3, atol=1e-2)
    assert several.carried <= 1.1 * several.crossing


def test_messages_bring_what_is_listed():
    known = message_network(4000, 500)
    graph, inputs, y = build_messages(known)
    several = OverMesh(graph, inputs, [y], mesh_of(4), dict.fromkeys(["h", "weight", "sent", "y"], 0))
    random = np.random.default_rng(0)
    values = {v.name: random.normal(size=v.shape).astype("f") for v in inputs}
    expected = cl.lower(graph, inputs=inputs, outputs=[y])(values)
    name = y.name
    np.testing.assert_allclose(several.run(values)[name], expected[name], rtol=1e-4, atol=1e-4)
    assert 0 < elements_carried(several.hlo(values)) <= 2 * several.crossing


def test_tiles_that_are_used_are_dealt():
    some = cl.Graph(cl.IPU(num_tiles=1472))
    x, i = some.add_variable("x", (64,)), cl.grid(64)
    y = some.add_vertex("square", square, x=x[i], tile=100 + i // 16)
    for variable in (x, y):
        some.set_tile_mapping(variable, 100 + np.arange(64) // 16)
    several = OverMesh(some, [x], [y], mesh_of(4))
    assert {str(home).split(": ")[-1] for home in several.execution.homes.values()} == {
        "cut along dimension 0, 16 on a device"
    }
    assert several.crossing == 0


def test_small_inputs_are_held_by_all_and_large_ones_cut():
    graph = cl.Graph()
    w, x = graph.add_variable("w", (512, 512)), graph.add_variable("x", (512,))
    i = cl.grid(512)
    graph.add_vertex("multiply", dot, w=w[i], x=x)
    homes = OverMesh(graph, [w, x], ["multiply/out"], mesh_of(4)).execution.homes
    assert [str(homes[v]) for v in homes if v.name in "wx"] == [
        "w: float32[512,512]: cut along dimension 0, 128 on a device",
        "x: float32[512]: on all devices",
    ]


def test_a_plan_prints_where_variables_live_and_what_crosses():
    graph, program = heat(64, 2)
    run = cl.lower(graph, program, inputs=["u"], outputs=["u"], mesh=mesh_of(4))
    printed = str(run.plan).split("\n")
    assert printed[printed.index("over 4 devices") + 1 :] == [
        "  u: float32[64,64]: cut along dimension 0, 16 on a device",
        "  v: float32[64,64]: cut along dimension 0, 16 on a device",
        *["  there, an edge: <Crossing to 4 devices: 186 elements cross by ppermute, 186 carried>"] * 2,
        *["  back, an edge: <Crossing to 4 devices: 186 elements cross by ppermute, 186 carried>"] * 2,
    ]


@pytest.mark.slow
def test_results_are_sharded_as_they_are_cut():
    graph, program = heat(64, 2)
    mesh = mesh_of(4)
    run = jax.jit(cl.lower(graph, program, inputs=["u"], outputs=["u"], mesh=mesh))
    result = run({"u": jax.device_put(np.ones((64, 64), "f"), NamedSharding(mesh, PartitionSpec("a")))})["u"]
    assert result.sharding.is_equivalent_to(NamedSharding(mesh, PartitionSpec("a")), 2)


def test_a_layer_over_a_mesh():
    def squares(graph, x):
        i = cl.grid(*x.shape)
        return graph.add_vertex("square", square, x=x[i])

    layer = cl.lower(squares, mesh=mesh_of(4))
    assert layer == cl.lower(squares, mesh=mesh_of(4)) != cl.lower(squares)
    assert jax.grad(lambda x: layer(x).sum())(np.arange(10.0, dtype="f")).tolist() == [2.0 * k for k in range(10)]


def test_a_layer_over_a_mesh_that_was_traced_within_another_function():
    def taken(graph, x):
        i = cl.grid(5)
        return graph.add_vertex("square", square, x=x[cl.table(np.array([7, 2, 2, 9, 0]))[i]])

    layer, x = cl.lower(taken, mesh=mesh_of(4)), np.arange(10.0, dtype="f")
    for times in (1, 2):
        own = jax.jit(lambda x, times=times: times * layer(x))
        assert own(x).tolist() == [times * k * k for k in (7, 2, 2, 9, 0)]


def test_a_function_over_a_mesh_is_not_pickled():
    graph, program = heat(8, 1)
    run = cl.lower(graph, program, inputs=["u"], outputs=["u"], mesh=mesh_of(2))
    with pytest.raises(cl.SavingError, match=r"a function over a mesh cannot be pickled"):
        pickle.dumps(run)


@few("batch, summed", [(32, "logits"), (100, "logits"), (400, "slopes")], quick=["100, logits"])
def test_a_training_step_of_mnist_sends_what_it_must(batch, summed):
    """Of few images all devices have all, each a part of the weights: they add up logits. Of many each has a part."""
    optimizer = make_optimizer(1000)
    layers, _, images, labels = training_arguments(optimizer, batch, np.random.default_rng(0))
    several, one = (jax.jit(slope_of(own)) for own in (cl.lower(network, mesh=mesh_of(4)), cl.lower(network)))
    ours, expected = (run(layers, images, labels) for run in (several, one))
    for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    found = collectives(several.lower(layers, images, labels).compile().as_text() or "")
    carried = sum(own.elements for own in found.values())
    assert carried <= 1.1 * crossing_of_mnist(batch, mesh_of(4))
    assert found.keys() == {"all-reduce"}
    slopes = sum(own.size for own in jax.tree.leaves(layers)) + 1  # and the loss
    assert carried == 2 * 3 * (batch * SIZES[-1] if summed == "logits" else slopes)


def test_a_traced_training_step_sends_no_weights():
    """Where the planners of products put tiles, and where blocks of vertices end, says nothing about devices."""
    layers = eqx.nn.MLP(96, 10, 64, 1, key=jax.random.key(0))

    def step(layers, x, y):
        def loss(layers):
            return ((jax.vmap(layers)(x) - y) ** 2).mean()

        slopes = eqx.filter_grad(loss)(layers)
        return eqx.apply_updates(layers, jax.tree.map(lambda own: -0.1 * own, slopes))

    random = np.random.default_rng(0)
    x, y = random.normal(size=(8, 96)).astype("f"), random.normal(size=(8, 10)).astype("f")
    traced = cl.trace(step, layers, x, y, grain=400)
    names = [tensor.source.name for tensor in traced.flat_outputs]
    inputs = list(traced.arrays(layers, x, y))
    run = cl.lower(traced.graph, traced.program, inputs=inputs, outputs=names, mesh=mesh_of(4))
    values = {tensor.source.name: value for tensor, value in traced.arrays(layers, x, y).items()}
    compiled = jax.jit(run).lower(values).compile()
    expected = jax.tree.leaves(eqx.filter(step(layers, x, y), eqx.is_array))
    for name, value in zip(names, expected, strict=True):
        np.testing.assert_allclose(compiled(values)[name], value, rtol=1e-4, atol=1e-5)
    assert elements_carried(compiled.as_text() or "") < 64 * 96 / 4


@pytest.mark.parametrize("execution", ["fused", "tiles"])
def test_a_function_that_aborts_raises_on_every_device(execution):
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, i = graph.add_variable("x", (8,), "int32"), cl.grid(8)
    graph.set_tile_mapping(x[i], i)
    engine = cl.Engine(graph, cl.AbortOn(x[5], "too much"), execution=execution, mesh=mesh_of(4))
    run = engine.function(inputs=["x"], outputs=["x"])
    values = (np.arange(8) == 5).astype(np.int32)
    for each in (run, jax.jit(run)):
        # What is compiled by a run that fails leaves an error behind, of which JAX tells others that wait for effects.
        np.testing.assert_array_equal(each({"x": 1 - values})["x"], 1 - values)
        with pytest.raises(Exception, match="too much"):
            jax.block_until_ready(each({"x": values}))
        jax.effects_barrier()


def test_a_run_over_devices_of_a_cpu_is_done_when_it_returns():
    """As those that wait for others' parts pile up, there are no threads left for these parts: it hung."""
    graph = cl.Graph()
    x, i = graph.add_variable("x", (1 << 18,), "int32"), cl.grid(1 << 18)
    with graph.record() as step:
        graph.add_vertex("count up", count_up, n=x[i])
    engine = cl.Engine(graph, cl.Repeat(200, step), mesh=mesh_of(4))
    engine.write({"x": np.ones(1 << 18, np.int32)})
    engine.run()
    assert all(held.is_ready() for held in engine._state.arrays.values())
    np.testing.assert_array_equal(engine.read("x"), 201)
