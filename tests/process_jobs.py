"""What several processes do together in tests: the functions that `tests/processes.py` runs in each of them."""

from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import codelet as cl
from lowering.mesh.processes import fetched, put
from tests.meshes import mesh_of
from tests.strategies import Case, arrived, cases
from tests.test_lowered import assert_close, interpreted, lowered
from tests.test_mesh_fused import heat, over


def everywhere() -> Mesh:
    """All devices of all processes."""
    return mesh_of(jax.device_count())


def drawn(few: int, check: Any, *strategies: Any) -> None:
    """Check a few drawn examples, the same in every process; the first that fails ends it."""
    quiet = [HealthCheck.too_slow, HealthCheck.data_too_large]
    how = settings(
        max_examples=few, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=quiet, report_multiple_bugs=False,
    )  # fmt: skip

    @how
    @given(st.tuples(*strategies))
    def checked(own: tuple[Any, ...]) -> None:
        check(*own)

    checked()


def here(results: dict[str, Any]) -> dict[str, Any]:
    """Results on the host."""
    return arrived({name: jax.tree.map(fetched, value) for name, value in results.items()})


# --- graphs -----------------------------------------------------------------------------------------------


def check_function(case: Case, mesh: Mesh) -> None:
    results = here(jax.jit(over(case, mesh))(case.inputs))
    for name, value in interpreted(case).items():
        assert results[name].dtype == value.dtype
        np.testing.assert_array_equal(results[name], value, err_msg=name)


def check_floats(case: Case, mesh: Mesh) -> None:
    assert_close(here(jax.jit(over(case, mesh))(case.inputs)), interpreted(case), 1e-5)


def check_engine(case: Case, execution: Any, mesh: Mesh) -> None:
    engine = cl.Engine(case.graph, case.sequence(), execution=execution, stream_bytes=40, mesh=mesh)
    streams = {stream.name for stream in case.graph.streams}
    engine.write({name: value for name, value in case.inputs.items() if name not in streams})
    for name in streams & case.inputs.keys():
        engine.connect(name, case.inputs[name])
    engine.run()
    for name, value in interpreted(case).items():
        np.testing.assert_array_equal(engine.read(name), value, err_msg=name)
    for held in engine._state.arrays.values():
        assert len(held.sharding.device_set) == mesh.size


def check_gradients(case: Case, mesh: Mesh) -> None:
    one, several = lowered(case), over(case, mesh)
    random = np.random.default_rng(0)
    smooth = {k: v for k, v in case.inputs.items() if v.dtype.kind == "f"}
    rest = {k: v for k, v in case.inputs.items() if k not in smooth}
    weights = {v.name: random.normal(size=v.shape) for v in case.graph.variables}

    def slope(run: Any) -> Any:
        def loss(values: Any) -> Any:
            results = run({**values, **rest})
            return sum((weights[k] * results[k]).sum() for k in case.outputs if results[k].dtype.kind == "f")

        return jax.jit(jax.grad(loss))(smooth)

    ours, expected = here(slope(several)), slope(one)
    for name, value in expected.items():
        np.testing.assert_allclose(ours[name], value, rtol=1e-9, atol=1e-9, err_msg=name)


def check_stencil(mesh: Mesh, *, thoroughly: bool) -> None:
    """A stencil fused, by a function and by the engine, and on tiles; its gradient; arguments that are sharded."""
    size = 16
    graph, program = heat(size, 3, 8)
    values = {"u": np.random.default_rng(0).normal(size=(size, size)).astype("f")}
    one, several = (cl.lower(graph, program, inputs=["u"], outputs=["u"], mesh=own) for own in (None, mesh))

    def with_slope(run: Any) -> Any:
        def both(u: Any) -> tuple[Any, Any]:
            result, back = jax.vjp(lambda u: run({"u": u})["u"], u)
            return result, back(2 * result)[0]

        return jax.jit(both)

    cut = NamedSharding(mesh, PartitionSpec("a"))
    sharded = put(values["u"], cut)
    expected = with_slope(one)(values["u"])
    results = with_slope(several)(sharded)
    for ours, theirs in zip(results, expected, strict=True):
        assert ours.sharding.is_equivalent_to(cut, 2)
        np.testing.assert_allclose(fetched(ours), theirs, rtol=1e-4, atol=1e-5)
    for execution in ("fused", "tiles"):
        engine = cl.Engine(graph, program, execution=execution, mesh=mesh)
        engine.write(values)
        engine.run()
        np.testing.assert_allclose(engine.read("u"), expected[0], rtol=1e-5, atol=1e-6)
        engine.write({graph.variable("u")[3:5, 7]: [1.0, 2.0]})
        np.testing.assert_array_equal(engine.read(graph.variable("u")[3:5, 7]), [1.0, 2.0])
        np.testing.assert_allclose(engine.read("u")[5:], expected[0][5:], rtol=1e-5, atol=1e-6)
        if thoroughly:
            run = engine.function(inputs=["u"], outputs=["u"])
            np.testing.assert_allclose(fetched(jax.jit(run)(values)["u"]), expected[0], rtol=1e-5, atol=1e-6)
    if thoroughly:  # without jax.jit, and with what all processes have
        np.testing.assert_allclose(fetched(several(values)["u"]), expected[0], rtol=1e-5, atol=1e-6)


# --- what processes have to have in common ------------------------------------------------------------------


@cl.codelet
def scaled(x, *, by):
    return x * by


def scaling(mesh: Mesh | None, *, by: float = 2.0, name: str = "x", tiles: int = 4, size: int = 16) -> cl.Engine:
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, i = graph.add_variable(name, (size,)), cl.grid(size)
    graph.add_vertex("scale", scaled, x=x[i], by=by, out=x[i], tile=i * tiles // size)
    graph.set_tile_mapping(x, np.arange(size) * tiles // size)
    return cl.Engine(graph, mesh=mesh)


def check_agreement(mesh: Mesh) -> None:
    """Processes that make another engine are told so at once, all of them, and go on."""
    second = jax.process_index() == 1
    differing = {
        "program": {"by": 3.0},
        "graph, by its variables": {"name": "y"},
        "choice of where variables live": {"tiles": 2},
    }
    for what, settings_of_second in differing.items():
        with pytest.raises(cl.ProcessesError, match=f"process 1 has another {what} than process 0"):
            scaling(mesh, **settings_of_second if second else {})
    engine = scaling(mesh)
    engine.write({"x": np.arange(16.0)})
    engine.run()
    np.testing.assert_array_equal(engine.read("x"), 2 * np.arange(16.0))


def check_graphs(mesh: Mesh, few: int) -> None:
    drawn(few, lambda case: check_function(case, mesh), cases(np.int32))
    drawn(few, lambda case, how: check_engine(case, how, mesh), cases(np.int32), st.sampled_from(["fused", "tiles"]))
    drawn(few, lambda case: check_floats(case, mesh), cases(np.float32))
    with jax.enable_x64(True):
        drawn(few, lambda case: check_gradients(case, mesh), cases(np.float64, max_steps=2, bounded=True))


# --- checkpoints ----------------------------------------------------------------------------------------------


def check_checkpoints(folder: Path, mesh: Mesh) -> None:
    """What another process saved is restored and goes on, and what these save is written by each."""
    checkpoints, engine = cl.Checkpoints(folder), scaling(mesh)
    assert checkpoints.restore(engine) == 1
    assert {shard.data.shape for shard in engine._state.arrays[engine._names.by_name["x"]].addressable_shards} == {(4,)}
    engine.run()
    checkpoints.save(engine, 2)
    assert checkpoints.steps() == [1, 2]
    with pytest.raises(cl.CheckpointError, match="there is a checkpoint of step 2 already"):
        checkpoints.save(engine, 2)
    np.testing.assert_array_equal(engine.read("x"), 2 * np.arange(16.0))


# --- all of it ------------------------------------------------------------------------------------------------


def little(folder: str) -> None:
    """Some of everything, for one start of processes."""
    mesh = everywhere()
    check_agreement(mesh)
    check_stencil(mesh, thoroughly=False)
    check_checkpoints(Path(folder), mesh)
    drawn(1, lambda case: check_function(case, mesh), cases(np.int32))
    drawn(1, lambda case, how: check_engine(case, how, mesh), cases(np.int32), st.sampled_from(["tiles", "fused"]))


def much(few: str) -> None:
    """Many graphs."""
    mesh = everywhere()
    check_stencil(mesh, thoroughly=True)
    check_graphs(mesh, int(few))
