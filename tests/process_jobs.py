"""What several processes do together in tests: the functions that `tests/processes.py` runs in each of them."""

import itertools
import os
import resource
import signal
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import codelet as cl
from ipu_backend.running.checkpoints import _Processes
from lowering.mesh.processes import fetched, put
from tests.cut_graphs import adding, heat
from tests.meshes import mesh_of
from tests.strategies import Case, arrived, cases
from tests.ways import assert_close, assert_same, assert_same_slopes, check_engine, interpreted, lowered, weighted


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
    assert_same(here(jax.jit(lowered(case, mesh))(case.inputs)), interpreted(case))


def check_floats(case: Case, mesh: Mesh) -> None:
    assert_close(here(jax.jit(lowered(case, mesh))(case.inputs)), interpreted(case), 1e-5)


def check_engine_of(case: Case, execution: Any, mesh: Mesh) -> None:
    engine = cl.Engine(case.graph, case.sequence(), execution=execution, stream_bytes=40, mesh=mesh)
    check_engine(engine, case)
    for held in engine._state.arrays.values():
        assert len(held.sharding.device_set) == mesh.size


def check_gradients(case: Case, mesh: Mesh) -> None:
    smooth, loss_of = weighted(case)
    # Two programs: one is of this process's first device, the other of those of all processes.
    expected, ours = (jax.jit(jax.grad(loss_of(lowered(case, own))))(smooth) for own in (None, mesh))
    assert_same_slopes(here(ours), expected)


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
    for execution in ("fused", "tiles") if thoroughly else ("fused",):
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


def check_replicas(mesh: Mesh) -> None:
    """A stencil in two processes, each on its own part of a batch."""
    graph, program = heat(16, 3, 8)
    values = np.random.default_rng(0).normal(size=(2, 16, 16)).astype("f")
    one = cl.lower(graph, program, inputs=["u"], outputs=["u"])
    by_process = Mesh(mesh.devices.reshape(2, -1), ("batch", "devices"))
    run = cl.lower(graph, program, inputs=["u"], outputs=["u"], mesh=by_process, replicas="batch")
    results = fetched(jax.jit(run)({"u": values})["u"])
    for own, result in zip(values, results, strict=True):
        np.testing.assert_allclose(result, one({"u": own})["u"], rtol=1e-5, atol=1e-6)


# --- streams --------------------------------------------------------------------------------------------------


def check_streams(mesh: Mesh) -> None:
    """Each process gives what its devices hold; what is sent is the same everywhere; parts are in one piece."""
    for shape in ((16, 3), (3, 13)):
        values = np.random.default_rng(0).normal(size=(5, *shape)).astype("f")
        engine = adding(shape, int(np.argmax(shape)), mesh, 5, stream_bytes=2 * values[0].nbytes)
        engine.write({"total": np.zeros(shape)})
        part = engine.part("in")
        assert 0 < values[0][part].size < values[0].size
        engine.connect("in", (value[part] for value in values), by_part=True)
        engine.run()
        engine.connect("in", values)
        engine.run()
        np.testing.assert_allclose(engine.read("total"), 2 * values.sum(0), rtol=1e-4, atol=1e-5)
        with pytest.raises(cl.ArrayError, match="a value of stream 'in' has the wrong shape"):
            engine.connect("in", values, by_part=True)
    mixed = Mesh(mesh.devices.reshape(2, 2).T.reshape(-1), ("a",))
    with pytest.raises(cl.StreamError, match=r"not in one piece\n  given: +places \[[01], [23]\] of the mesh"):
        adding((16, 3), 0, mixed, 5).part("in")


def check_sent(mesh: Mesh) -> None:
    """What is sent reaches every process, read or by a function; what is printed is printed once; all abort."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    n, i = graph.add_variable("n", (8,), "int32"), cl.grid(8)
    graph.set_tile_mapping(n, np.arange(8) // 2)
    out, last = graph.add_output_stream("out", (8,), "int32"), graph.add_output_stream("last", (), "int32")
    late = graph.add_variable("late", (), "bool")
    graph.set_tile_mapping(late, np.zeros((), int))
    with graph.record() as count:
        graph.add_vertex("count", count_up, n=n[i], tile=i // 2)
    with graph.record() as look:
        graph.add_vertex("look", is_late, n=n[7], out=late, tile=0)
    turn = cl.Sequence(count, cl.Copy(n, out), cl.Copy(n[7], last), look, cl.AbortOn(late, "too late"))
    engine = cl.Engine(graph, cl.Sequence(cl.Repeat(3, turn), cl.Print(n[2:4], "numbers")), mesh=mesh)
    engine.write({"n": np.zeros(8, np.int32)})
    heard: list[int] = []
    engine.connect("last", lambda value: heard.append(int(value)))
    engine.run()
    assert heard == [1, 2, 3]
    np.testing.assert_array_equal(engine.read("out"), np.repeat([1, 2, 3], 8).reshape(3, 8))
    with pytest.raises(cl.ProgramAbortedError, match="too late"):
        engine.run()
    np.testing.assert_array_equal(engine.read("n"), np.full(8, 3))
    run = jax.jit(engine.function(inputs=["n"], outputs=["n"]))
    np.testing.assert_array_equal(fetched(run({"n": np.zeros(8, np.int32)})["n"]), np.full(8, 3))


# --- what processes have to have in common ------------------------------------------------------------------


@cl.codelet
def count_up(n):
    return {"n": n + 1}


@cl.codelet
def is_late(n):
    return n > 4


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
    drawn(few, lambda case, how: check_engine_of(case, how, mesh), cases(np.int32), st.sampled_from(["fused", "tiles"]))
    drawn(few, lambda case: check_floats(case, mesh), cases(np.float32))
    with jax.enable_x64(True):
        drawn(few, lambda case: check_gradients(case, mesh), cases(np.float64, max_iterations=2, bounded=True))


# --- checkpoints ----------------------------------------------------------------------------------------------


def check_checkpoints(folder: Path, mesh: Mesh) -> None:
    """What another process saved is restored and goes on, and what these save is written by each."""
    checkpoints, engine = cl.Checkpoints(folder), scaling(mesh)
    assert checkpoints.restore(engine) == 1
    assert {shard.data.shape for shard in engine._state.arrays[engine._names.by_name["x"]].addressable_shards} == {(4,)}
    engine.run()
    checkpoints.save(engine, 2)
    assert checkpoints.steps == [1, 2]
    with pytest.raises(cl.CheckpointError, match="there is a checkpoint of step 2 already"):
        checkpoints.save(engine, 2)
    np.testing.assert_array_equal(engine.read("x"), 2 * np.arange(16.0))


def check_full_disk(folder: Path, mesh: Mesh) -> None:
    """Where one process cannot write, all of them are told so at once, and go on."""
    second = jax.process_index() == 1
    checkpoints, engine = cl.Checkpoints(folder), scaling(mesh, size=1 << 16)
    values = np.random.default_rng(0).normal(size=1 << 16).astype("f")
    engine.write({"x": values})
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 14, limits[1]) if second else limits)
    told = (
        "cannot be written\n  given: .*File too large" if second else "in other processes\n  given: +process 1: .*large"
    )
    with pytest.raises(cl.CheckpointError, match=told):
        checkpoints.save(engine, 3)
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    checkpoints.save(engine, 4)
    assert checkpoints.steps == [1, 2, 4]


# --- faults -----------------------------------------------------------------------------------------------------


def killed_in_a_save(folder: str, who: str, call: str, when: str) -> None:
    """One process is killed in a save: before or behind what it does, between one meeting of processes and the next."""
    checkpoints, engine = cl.Checkpoints(folder), scaling(everywhere())
    engine.write({"x": np.arange(16.0)})
    checkpoints.save(engine, 1)
    engine.run()
    met, count = _Processes.do, itertools.count()

    def do(self: _Processes, what: str, action: Any) -> Any:
        dies = jax.process_index() == int(who) and next(count) == int(call)

        def acting() -> Any:
            if dies and when == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            result = action()
            if dies:
                os.kill(os.getpid(), signal.SIGKILL)
            return result

        return met(self, what, acting)

    _Processes.do = do
    print("saving", flush=True)
    checkpoints.save(engine, 2)
    print("saved", flush=True)


def killed_in_a_run(who: str) -> None:
    """One process is killed between runs, while the other goes on."""
    engine = scaling(everywhere())
    engine.write({"x": np.ones(16)})
    for turn in range(1_000_000):
        engine.run(wait=True)
        if turn == 10 and jax.process_index() == int(who):
            os.kill(os.getpid(), signal.SIGKILL)


def raising_in_one(who: str) -> None:
    """One process raises, and ends; the other waits for it in a run."""
    engine = scaling(everywhere())
    engine.write({"x": np.ones(16)})
    if jax.process_index() == int(who):
        raise ValueError("this process has had enough")
    for _ in range(1_000_000):
        engine.run(wait=True)
        engine.read("x")


# --- all of it ------------------------------------------------------------------------------------------------


def little(folder: str) -> None:
    """Some of everything, for one start of processes."""
    mesh = everywhere()
    check_agreement(mesh)
    check_stencil(mesh, thoroughly=False)
    check_checkpoints(Path(folder), mesh)
    check_full_disk(Path(folder), mesh)
    check_streams(mesh)
    check_sent(mesh)
    drawn(1, lambda case: check_function(case, mesh), cases(np.int32))
    drawn(1, lambda case, how: check_engine_of(case, how, mesh), cases(np.int32), st.sampled_from(["tiles", "fused"]))


def much(few: str) -> None:
    """Many graphs."""
    mesh = everywhere()
    check_stencil(mesh, thoroughly=True)
    check_replicas(mesh)
    check_graphs(mesh, int(few))
