"""The tile array over a mesh: what one device gives, each with its own rows alone; what crosses is what must."""

import copy
import itertools
import math
import pickle
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import PartitionSpec

import codelet as cl
from benchmarks.collectives import collectives, elements_carried
from codelet.errors import ProgramAbortedError
from ipu_backend.executions.mesh_tiles import MeshTiles
from ipu_backend.running.saved_mesh import SavedMesh
from tests.examples import examples, few
from tests.meshes import MESHES, mesh_of
from tests.strategies import Case, cases
from tests.test_tile_array import PLACES
from tests.ways import assert_close, assert_same, check_engine, check_slopes, interpreted, lowered


def engine_of(case: Case, where: Any, mesh: Any) -> cl.Engine:
    return cl.Engine(case.graph, case.sequence(), execution="tiles", placement=where, stream_bytes=40, mesh=mesh)


def function_of(case: Case, where: Any, mesh: Any) -> Any:
    return engine_of(case, where, mesh).function(inputs=list(case.inputs), outputs=case.outputs)


def tiles_of(engine: cl.Engine) -> MeshTiles:
    assert isinstance(engine._execution, MeshTiles)
    return engine._execution


def check_integers(case: Case, where: Any, mesh: Any) -> None:
    assert_same(jax.jit(function_of(case, where, mesh))(case.inputs), interpreted(case))


@examples(6)
@given(cases(np.int32), PLACES, MESHES)
def test_integers_exactly(case: Case, where, mesh):
    check_integers(case, where, mesh)


@pytest.mark.slow
@examples(150)
@given(cases(np.int32), PLACES, MESHES)
def test_integers_exactly_very_often(case: Case, where, mesh):
    check_integers(case, where, mesh)


@examples(3)
@given(cases(np.float32), PLACES, MESHES)
def test_floats(case: Case, where, mesh):
    assert_close(jax.jit(function_of(case, where, mesh))(case.inputs), interpreted(case), 1e-5)


def check_engine_of(case: Case, where: Any, mesh: Any) -> None:
    engine = engine_of(case, where, mesh)
    check_engine(engine, case)
    check_rows(engine)


def check_rows(engine: cl.Engine) -> None:
    """Every device holds its own rows of every variable on tiles, and no other's."""
    execution = tiles_of(engine)
    for variable, held in engine._state.arrays.items():
        if variable in execution.tiles.layouts and variable.size:
            own = execution.tiles.held_shape(variable)
            assert len(held.addressable_shards) == execution.mesh.size
            assert {shard.data.shape for shard in held.addressable_shards} == {own}
            places = [shard.index[0].start or 0 for shard in held.addressable_shards]
            assert places == [k * own[0] for k in range(execution.mesh.size)]


@pytest.mark.slow
@examples(4)
@given(cases(np.int32), PLACES, MESHES)
def test_the_engine(case: Case, where, mesh):
    check_engine_of(case, where, mesh)


@pytest.mark.slow
@examples(80)
@given(cases(np.int32), PLACES, MESHES)
def test_the_engine_very_often(case: Case, where, mesh):
    check_engine_of(case, where, mesh)


def check_gradients(data: Any) -> None:
    with jax.enable_x64(True):
        case = data.draw(cases(np.float64, max_iterations=2, bounded=True))
        check_slopes(case, function_of(case, data.draw(PLACES), data.draw(MESHES)), lowered(case))


@examples(2)
@given(st.data())
def test_gradients_are_those_of_fused(data):
    check_gradients(data)


@pytest.mark.slow
@examples(60)
@given(st.data())
def test_gradients_are_those_of_fused_very_often(data):
    check_gradients(data)


# --- what crosses ---------------------------------------------------------------------------------------


@cl.codelet
def five(centre, north, south, west, east):
    return centre + 0.1 * (north + south + west + east - 4 * centre)


@cl.codelet
def square(x):
    return x * x


@cl.codelet
def divide(a, b):
    return a / b


@cl.codelet
def count_on(n):
    return {"n": n + 1}


@cl.codelet
def is_late(n):
    return n > 3


def heat(size: int, tiles: int, turns: int = 4) -> tuple[cl.Graph, Any, Any, Any]:
    """A five-point stencil there and back, by bands of rows: its graph, program and variables."""
    graph = cl.Graph(cl.IPU(num_tiles=tiles))
    there, back = (graph.add_variable(name, (size, size)) for name in ("there", "back"))
    i, j = cl.grid(size - 2, size - 2)

    def step(a, b, name):
        near = {"north": a[i, j + 1], "south": a[i + 2, j + 1], "west": a[i + 1, j], "east": a[i + 1, j + 2]}
        graph.add_vertex(name, five, centre=a[i + 1, j + 1], out=b[i + 1, j + 1], tile=(i + 1) * tiles // size, **near)

    with graph.record() as both:
        step(there, back, "forth")
        step(back, there, "home")
    for variable in (there, back):
        graph.set_tile_mapping(variable, np.arange(size)[:, None] * tiles // size + np.zeros((1, size), int))
    return graph, cl.Repeat(turns, both), there, back


def compiled_run(engine: cl.Engine) -> str:
    """The HLO of an engine's program."""
    part = engine._programs["main"].in_place
    assert part is not None
    arguments = part.arguments(dict(engine._state.arrays), engine._connections)
    return part.in_place.lower(*arguments).compile().as_text() or ""


@few("devices", [2, 3, 8], quick=["3"])
def test_a_stencil_sends_its_borders(devices):
    size, tiles = 48, 24
    graph, program, there, _ = heat(size, tiles)
    engines = [cl.Engine(graph, program, execution="tiles", mesh=mesh) for mesh in (None, mesh_of(devices))]
    values = np.random.default_rng(0).normal(size=(size, size)).astype("f")
    for engine in engines:
        engine.write({"there": values, "back": values})
        engine.run()
        engine.run()
    one, several = engines
    np.testing.assert_allclose(several.read(there), one.read(there), rtol=1e-6, atol=1e-6)
    check_rows(several)
    carried = collectives(compiled_run(several))
    # Two steps, at every border one row each way, without the ends, which nobody reads.
    assert {kind: own.elements for kind, own in carried.items()} == {
        "collective-permute": 2 * (devices - 1) * 2 * (size - 2)
    }


@pytest.mark.slow
@examples(3)
@given(cases(np.float32, max_iterations=3), PLACES, MESHES)
def test_nothing_is_carried_but_by_crossings(case: Case, where, mesh):
    engine = engine_of(case, where, mesh)
    run = engine.function(inputs=list(case.inputs), outputs=case.outputs)
    said = {crossing.kind for crossing in tiles_of(engine).tiles.crossed}
    kinds = {"collective-permute": "ppermute", "all-to-all": "all_to_all", "all-gather": "all_gather"}
    hlo = jax.jit(run).lower(case.inputs).compile().as_text() or ""
    assert {kinds[kind] for kind in collectives(hlo)} <= said  # XLA leaves out what nothing needs


@cl.codelet
def dot(row, x):
    return (row * x).sum()


def test_a_product_by_rows_brings_its_vector_once():
    rows, columns, devices = 32, 24, 4
    graph = cl.Graph(cl.IPU(num_tiles=16))
    matrix, vector = graph.add_variable("matrix", (rows, columns)), graph.add_variable("vector", (columns,))
    i = cl.grid(rows)
    graph.set_tile_mapping(matrix, np.arange(rows)[:, None] // 2 + np.zeros((1, columns), int))
    graph.set_tile_mapping(vector, np.arange(columns) % 16)
    result = graph.add_vertex("dot", dot, row=matrix[i], x=vector, tile=i // 2)
    graph.set_tile_mapping(result, np.arange(rows) // 2)
    engine = cl.Engine(graph, execution="tiles", mesh=mesh_of(devices))
    random = np.random.default_rng(0)
    values = {"matrix": random.normal(size=(rows, columns)), "vector": random.normal(size=columns)}
    values = {name: value.astype("f") for name, value in values.items()}
    engine.write(values)
    engine.run()
    np.testing.assert_allclose(engine.read(result), values["matrix"] @ values["vector"], rtol=1e-5)
    # Sixteen tiles read it, on four devices, of which each has a part.
    assert sum(own.elements_crossing for own in tiles_of(engine).tiles.crossed) == (devices - 1) * columns
    assert elements_carried(compiled_run(engine)) == sum(own.elements_carried for own in tiles_of(engine).tiles.crossed)


def test_what_lives_where_it_is_read_does_not_cross():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, i = graph.add_variable("x", (64,)), cl.grid(64)
    y = graph.add_vertex("square", square, x=x[i], tile=i // 8)
    for variable in (x, y):
        graph.set_tile_mapping(variable, np.arange(64) // 8)
    engine = cl.Engine(graph, execution="tiles", mesh=mesh_of(4))
    engine.write({"x": np.arange(64.0)})
    engine.run()
    np.testing.assert_array_equal(engine.read(y), np.arange(64.0) ** 2)
    assert not collectives(compiled_run(engine))


# --- rows that do not divide ------------------------------------------------------------------------------


@cl.codelet(trip_count=4)
def halvings(x):
    """How often a number can be halved: it never ends for zero."""
    return {"out": jax.lax.while_loop(lambda own: own[0] % 2 == 0, lambda own: (own[0] // 2, own[1] + 1), (x, 0))[1]}


@few("tiles, devices", itertools.product([1, 3, 5, 7], [2, 4, 8]), quick=["1, 4", "3, 2", "5, 8", "7, 4"])
def test_rows_of_no_tile_compute_nothing(tiles, devices):
    """Fewer tiles than devices, and some devices with fewer tiles than others: no vertex runs on what is no input."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, i = graph.add_variable("x", (14,), "int32"), cl.grid(14)
    y = graph.add_vertex("halve", halvings, x=x[i], tile=i % tiles)
    z = graph.add_vertex("again", halvings, x=x[13 - i], tile=(i // 5) % tiles)
    engine = cl.Engine(graph, execution="tiles", mesh=mesh_of(devices))
    values = np.arange(1, 15, dtype=np.int32)
    engine.write({"x": values})
    engine.run()
    expected = [int(math.log2(int(v) & -int(v))) for v in values]
    assert engine.read(y).tolist() == expected
    assert engine.read(z).tolist() == expected[::-1]


@pytest.mark.slow
def test_rows_of_no_tile_do_not_spoil_a_gradient():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    a, b = graph.add_variable("a", (7,)), graph.add_variable("b", (7,))
    k = cl.grid(7)
    y = graph.add_vertex("divide", divide, a=a[k], b=b[k], tile=k // 3)
    values = {"a": np.arange(1, 8, dtype=np.float32), "b": np.arange(2, 9, dtype=np.float32)}
    for devices in (2, 4, 8):
        run = cl.Engine(graph, execution="tiles", mesh=mesh_of(devices)).function(inputs=[a, b], outputs=[y])
        slope = jax.jit(jax.grad(lambda v, run=run: run(v)[y.name].sum()))(values)
        np.testing.assert_allclose(slope["a"], 1 / values["b"], rtol=1e-6)
        np.testing.assert_allclose(slope["b"], -values["a"] / values["b"] ** 2, rtol=1e-6)


# --- the engine -------------------------------------------------------------------------------------------


def counting(mesh: Any, count: int = 10) -> tuple[cl.Engine, Any]:
    graph = cl.Graph(cl.IPU(num_tiles=6))
    n, i = graph.add_variable("n", (count,), "int32"), cl.grid(count)
    graph.add_vertex("count", count_on, n=n[i], tile=i % 5)
    return cl.Engine(graph, execution="tiles", mesh=mesh), n


def test_state_is_written_read_and_loaded_into_engines_of_other_meshes():
    engine, n = counting(mesh_of(4))
    engine.write({"n": np.arange(10)})
    for _ in range(20):
        engine.run()
    engine.write({n[2:4]: [0, 0]})
    engine.run()
    expected = np.arange(10) + 21
    expected[2:4] = 1
    np.testing.assert_array_equal(engine.read(n), expected)
    np.testing.assert_array_equal(engine.read(n[::-2]), expected[::-2])
    check_rows(engine)
    for mesh in (None, mesh_of(3), mesh_of(2, 2)):
        other, m = counting(mesh)
        other.load_state(engine.state)
        other.run()
        np.testing.assert_array_equal(other.read(m), expected + 1)


def test_a_mesh_of_several_axes_is_taken_as_all_its_devices_in_order():
    found = []
    for mesh in (mesh_of(6), mesh_of(2, 3), jax.make_mesh((3, 2), ("x", "y"), devices=jax.devices()[:6])):
        engine, n = counting(mesh)
        engine.write({"n": np.arange(10)})
        engine.run()
        np.testing.assert_array_equal(engine.read(n), np.arange(1, 11))
        check_rows(engine)
        held = engine._state.arrays[n.source]
        names = mesh.axis_names
        assert held.sharding.spec == PartitionSpec(*names if len(names) == 1 else [names])
        found.append(np.asarray(held))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


def test_a_copy_and_a_pickle_are_over_the_same_devices():
    mesh = jax.sharding.Mesh(np.array(jax.devices()[5:1:-1]).reshape(2, 2), ("x", "y"))
    engine, _ = counting(mesh)
    engine.write({"n": np.arange(10)})
    engine.run()
    for other in (copy.copy(engine), pickle.loads(pickle.dumps(engine))):
        other.run()
        np.testing.assert_array_equal(other.read("n"), np.arange(2, 12))
        assert tiles_of(other).mesh == mesh
    elsewhere = SavedMesh("cpu", np.array([0, 77]), ("x",))
    with pytest.raises(cl.SavingError, match=r"devices that there are not here\n  given: +cpu devices \[77\]\n"):
        elsewhere.restored()


def test_functions_over_equal_meshes_are_equal():
    made = [
        counting(mesh)[0].function(inputs=["n"], outputs=["n"]) for mesh in (mesh_of(2), mesh_of(2), mesh_of(3), None)
    ]
    assert made[0] != made[2] != made[3]
    assert made[0].plan.graph is not made[1].plan.graph
    values = {"n": np.arange(10, dtype=np.int32)}
    for run in made:
        np.testing.assert_array_equal(run(values)["n"], np.arange(1, 11))  # without jax.jit too


def test_what_speaks_speaks_once(capfd):
    @cl.codelet
    def speak(a):
        jax.debug.print("vertex {}", a)
        return a

    graph = cl.Graph(cl.IPU(num_tiles=4))
    a = graph.add_variable("a", (7,))
    k = cl.grid(7)
    b = graph.add_vertex("speak", speak, a=a[k], tile=k // 3)
    program = cl.Sequence(graph.default_program, cl.Print(b[:2], "beginning"))
    for devices in (2, 4):
        engine = cl.Engine(graph, program, execution="tiles", mesh=mesh_of(devices))
        engine.write({"a": np.arange(7.0)})
        engine.run()
        jax.effects_barrier()
        lines = sorted(capfd.readouterr().out.splitlines())
        assert lines == ["beginning: [0. 1.]", *(f"vertex {k}.0" for k in range(7))]
        np.testing.assert_array_equal(engine.read(b), np.arange(7.0))


def test_a_run_that_aborts_leaves_state_as_it_was():
    engine, n = counting(mesh_of(3))
    graph = engine.graph
    late = graph.add_vertex("late", is_late, n=n[9], tile=1)
    program = cl.Sequence(engine.graph.default_program, cl.AbortOn(late, "too late"))
    engine = cl.Engine(graph, program, execution="tiles", mesh=mesh_of(3))
    engine.write({"n": np.zeros(10, np.int32)})
    for _ in range(3):
        engine.run()
    with pytest.raises(ProgramAbortedError):
        engine.run()
    np.testing.assert_array_equal(engine.read(n), np.full(10, 3))


def test_a_mesh_of_other_devices_than_an_engine_can_have():
    """Devices of another process, as they are under `jax.distributed`."""

    class Elsewhere:
        process_index = 3

    graph = cl.Graph()
    graph.add_variable("a", (7,))
    mesh = jax.sharding.Mesh(np.array([Elsewhere()], object), ("a",))
    with pytest.raises(cl.ProgramError, match=r"has no devices of this process\n  given: +devices of processes \[3\]"):
        cl.Engine(graph, execution="tiles", mesh=mesh)
