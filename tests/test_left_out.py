"""What a program makes for itself alone, which engines leave out of a run, and make where the host asks for it."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from tests import strategies as s
from tests.examples import examples


@pytest.fixture(autouse=True)
def everything_is_much(monkeypatch):
    """Programs of tests make little."""
    monkeypatch.setattr("ipu_backend.running.runs.LEAST_LEFT_OUT", 1)


@cl.codelet
def double(x):
    return 2 * x


@cl.codelet
def add(x, y):
    return x + y


def built() -> tuple[cl.Graph, cl.Program]:
    """`state` is doubled into `inside`, added to it, and the result is read by nothing."""
    graph = cl.Graph(cl.IPU(num_tiles=2))
    state, inside, out = (graph.add_variable(name, (4,)) for name in ("state", "inside", "out"))
    i = cl.grid(4)
    graph.add_vertex("double", double, x=state[i], out=inside[i])
    graph.add_vertex("add", add, x=state[i], y=inside[i], out=out[i])
    return graph, cl.Sequence(*graph.compute_sets, cl.Copy(out, state))


def engine_of(graph: cl.Graph, program: Any) -> cl.Engine:
    """An engine whose state is 1, 2, 3, 4."""
    engine = cl.Engine(graph, program)
    engine.write({"state": [1, 2, 3, 4]})
    return engine


def left_out(engine: cl.Engine, name: str = "main") -> set[str]:
    """The variables that runs leave out."""
    return {own.name for own in engine._programs[name]._left_out}


def test_what_the_program_makes_for_itself_is_left_out():
    engine = engine_of(*built())
    engine.run()
    assert left_out(engine) == {"inside", "out"}
    np.testing.assert_array_equal(engine.read("state"), [3, 6, 9, 12])
    assert left_out(engine) == {"inside", "out"}


def test_it_is_made_where_the_host_asks_and_kept_from_then_on():
    engine = engine_of(*built())
    engine.run()
    engine.run()
    np.testing.assert_array_equal(engine.read("inside"), [6, 12, 18, 24])
    assert left_out(engine) == {"out"}
    engine.run()
    np.testing.assert_array_equal(engine.read("inside"), [18, 36, 54, 72])
    np.testing.assert_array_equal(engine.read("state"), [27, 54, 81, 108])


def test_it_is_what_the_run_began_with_that_counts():
    engine = engine_of(*built())
    engine.run()
    engine.write({"state": [0, 0, 0, 0]})
    np.testing.assert_array_equal(engine.read("inside"), [2, 4, 6, 8])
    np.testing.assert_array_equal(engine.read("state"), 0)


def test_a_write_takes_its_place():
    engine = engine_of(*built())
    engine.run()
    engine.write({"inside": [7, 7, 7, 7]})
    np.testing.assert_array_equal(engine.read("inside"), 7)
    engine.run()
    engine.write({engine.graph.variable("inside")[1]: 5.0})
    np.testing.assert_array_equal(engine.read("inside"), [6, 5, 18, 24])


def test_states_and_copies_hold_all_of_it():
    engine = engine_of(*built())
    engine.run()
    assert set(engine.state) == {"state", "inside", "out"}
    assert left_out(engine) == {"inside", "out"}, "all of it is not asked for by itself"
    other = pickle.loads(pickle.dumps(engine))
    np.testing.assert_array_equal(other.read("inside"), [2, 4, 6, 8])


def test_what_another_program_begins_with_is_kept():
    graph, program = built()
    seen = graph.add_variable("seen", (4,))
    engine = engine_of(graph, {"step": program, "look": cl.Copy(graph.variable("inside"), seen)})
    engine.run("step")
    assert left_out(engine, "step") == {"out"}
    engine.run("look")
    np.testing.assert_array_equal(engine.read("seen"), [2, 4, 6, 8])


def test_what_is_written_in_part_is_kept():
    graph = cl.Graph(cl.IPU(num_tiles=2))
    state, inside, out = (graph.add_variable(name, (4,)) for name in ("state", "inside", "out"))
    i = cl.grid(2)
    graph.add_vertex("double", double, x=state[i], out=inside[i])
    graph.add_vertex("add", add, x=state[i], y=inside[i], out=out[i])
    engine = engine_of(graph, None)
    engine.write({"inside": [9, 9, 9, 9], "out": [0, 0, 0, 0]})
    engine.run()
    assert left_out(engine) == set()
    np.testing.assert_array_equal(engine.read("inside"), [2, 4, 9, 9])


def test_values_of_streams_are_taken_once():
    graph, program = built()
    stream = graph.add_input_stream("fed", (4,))
    given = graph.add_variable("given", (4,))
    turn = cl.Sequence(cl.Copy(stream, given), program)
    engine = engine_of(graph, cl.Repeat(2, turn))
    engine.connect("fed", np.arange(16.0, dtype=np.float32).reshape(4, 4))
    engine.run()
    np.testing.assert_array_equal(engine.read("inside"), [6, 12, 18, 24])
    engine.run()
    np.testing.assert_array_equal(engine.read("inside"), [54, 108, 162, 216])
    with pytest.raises(cl.StreamError, match="ended after 4"):
        engine.run()


def test_what_calls_the_host_runs_once():
    import jax

    calls = []

    @cl.codelet
    def told(x):
        jax.debug.callback(lambda own: calls.append(float(own)), x)
        return x + 1

    graph = cl.Graph(cl.IPU(num_tiles=2))
    state, inside, out = (graph.add_variable(name, ()) for name in ("state", "inside", "out"))
    graph.add_vertex("tell", told, x=state, out=inside)
    graph.add_vertex("double", double, x=inside, out=out)
    engine = cl.Engine(graph)
    engine.write({"state": 1.0})
    engine.run(wait=True)
    assert float(engine.read("inside")) == 2.0
    assert calls == [1.0]


KINDS: list[dict[str, Any]] = [{}, *({kind: True} for kind in ("loops", "calls", "updates", "ragged"))]


@examples(8)
@given(st.data())
def test_every_variable_has_the_value_that_it_has_where_nothing_is_left_out(data):
    case, engines = data.draw(s.cases(np.int32, **data.draw(st.sampled_from(KINDS)))), []
    for least in (1 << 60, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("ipu_backend.running.runs.LEAST_LEFT_OUT", least)
            engine = cl.Engine(case.graph, case.sequence(), stream_bytes=data.draw(st.sampled_from([40, 1 << 20])))
            fed = {stream.name for stream in case.graph.streams}
            engine.write({name: value for name, value in case.inputs.items() if name not in fed})
            for name in fed & case.inputs.keys():
                engine.connect(name, case.inputs[name])
            engine.run()
            engines.append(engine)
    wanted, made = (engine.state for engine in engines)
    assert made.keys() == wanted.keys()
    for name, value in wanted.items():
        own = np.ma.filled(made[name], 0), np.ma.filled(value, 0)
        np.testing.assert_allclose(*own, rtol=1e-5, atol=1e-5, err_msg=name)
