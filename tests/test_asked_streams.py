"""Input streams of which data decide how many values are taken: in loops on conditions and in choices."""

import jax
import numpy as np
import pytest

import codelet as cl
from lowering.plan.streams import Taken
from tests.examples import few


@cl.codelet
def add(x, total):
    return {"total": total + x * x}


@cl.codelet
def goes_on(x):
    return x >= 0


@cl.codelet
def is_large(x):
    return x > 10


def a_graph():
    """Two numbers, a stream, what looks at the first, the predicate that it makes, and what adds its square."""
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, total = graph.add_variable("x", ()), graph.add_variable("total", ())
    feed = graph.add_input_stream("feed", ())
    with graph.record() as look:
        going = graph.add_vertex("look", goes_on, x=x)
    with graph.record() as step:
        graph.add_vertex("step", add, x=x, total=total)
    return graph, x, total, feed, look, going, step


def until_negative(max_iterations: int | None = 8):
    """The squares of what the host feeds, added up until it feeds a negative number."""
    graph, x, total, feed, look, going, step = a_graph()
    loop = cl.RepeatWhile([cl.Copy(feed, x), look], going, step, max_iterations=max_iterations)
    return graph, [cl.Copy(0.0, total), loop], ["total", "x"]


def in_the_body(max_iterations: int | None = 8):
    """The first value before the loop, the others in its body."""
    graph, x, total, feed, look, going, step = a_graph()
    loop = cl.RepeatWhile(look, going, [step, cl.Copy(feed, x)], max_iterations=max_iterations)
    return graph, [cl.Copy(0.0, total), cl.Copy(feed, x), loop], ["total", "x"]


def in_a_choice(max_iterations: int | None = 8):
    """A large number has another behind it."""
    graph, x, total, feed, look, going, step = a_graph()
    with graph.record() as look_again:
        large = graph.add_vertex("large", is_large, x=x)
    more = [look_again, cl.If(large, [cl.Copy(feed, x), step])]
    loop = cl.RepeatWhile([cl.Copy(feed, x), look], going, [step, more], max_iterations=max_iterations)
    return graph, [cl.Copy(0.0, total), loop], ["total", "x"]


def nested(max_iterations: int | None = 8):
    """Two rounds of the loop, in a function, each of whose values is sent as well."""
    graph, x, total, feed, look, going, step = a_graph()
    sent = graph.add_output_stream("sent", ())
    body = cl.Sequence([step, cl.Copy(x, sent)]) if max_iterations is not None else step
    function = graph.add_function(cl.RepeatWhile([cl.Copy(feed, x), look], going, body, max_iterations=max_iterations))
    ends = [cl.Copy(0.0, total), cl.Repeat(2, [cl.Call(function)])]
    return graph, ends, ["total", "x"] if max_iterations is None else ["total", "x", "sent"]


KINDS = {own.__name__: own for own in (until_negative, in_the_body, in_a_choice, nested)}
VALUES = [3.0, 12.0, 4.0, -1.0, 2.0, -5.0, 7.0]
TAKEN = {"until_negative": 4, "in_the_body": 4, "in_a_choice": 4, "nested": 6}


@few("bounded", [True, False], quick=["True"])
@pytest.mark.parametrize("kind", KINDS)
def test_an_engine_asks_for_as_many_values_as_are_taken(kind, bounded):
    graph, program, outputs = KINDS[kind](8 if bounded else None)
    expected = cl.interpret(graph, values={"feed": np.array(VALUES, np.float32)}, outputs=outputs, program=program)
    for execution in ("fused", "tiles", "addresses"):
        engine = cl.Engine(graph, program, execution=execution)
        engine.connect("feed", (np.float32(v) for v in VALUES[: TAKEN[kind]]))
        engine.run()
        for name in outputs:
            np.testing.assert_allclose(engine.read(name), expected[name], rtol=1e-6, err_msg=execution)
        if kind == "nested":
            assert set(engine.state) == {"x", "total", "look/out"}


@few("kind", KINDS, quick=["until_negative"])
def test_a_lowered_function_takes_the_most_there_may_be_and_counts(kind):
    graph, program, outputs = KINDS[kind]()
    run = cl.lower(graph, program, inputs=[], outputs=[name for name in outputs if name != "sent"])
    (place,) = run.arguments
    given = np.full(place.shape, 50.0, np.float32)
    given[: len(VALUES)] = VALUES
    expected = cl.interpret(graph, values={"feed": given}, outputs=outputs, program=program)
    found = jax.jit(run)({"feed": given})
    assert isinstance(found["feed"], Taken)
    assert int(found["feed"].count) == TAKEN[kind]
    for name in ("total", "x"):
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-6)
    if kind == "nested":
        np.testing.assert_allclose(found["sent"].values[: int(found["sent"].count)], expected["sent"])
    slope = jax.jit(jax.grad(lambda feed: run({"feed": feed})["total"]))(given)
    if kind != "nested":  # 3, 12 and what comes behind it, until -1
        np.testing.assert_allclose(slope[:5], [6.0, 24.0, 8.0, 0.0, 0.0])
    assert not slope[TAKEN[kind] :].any()
    with pytest.raises(cl.ArrayError, match="wrong shape"):
        run({"feed": given[:3]})
    engine = cl.Engine(graph, program, execution="tiles")
    others = engine.function(inputs=[], outputs=["total"])({"feed": given})
    assert int(others["feed"].count) == TAKEN[kind]
    np.testing.assert_allclose(others["total"], expected["total"], rtol=1e-6)


def test_runs_go_on_where_the_last_one_stopped_and_a_stream_that_ends_leaves_the_state_whole():
    graph, program, _ = until_negative(None)
    engine = cl.Engine(graph, program)
    engine.connect("feed", np.array([*VALUES, 1.0], np.float32))
    engine.run()
    assert engine.read("total") == 9 + 144 + 16
    engine.run()
    assert engine.read("total") == 4
    with pytest.raises(cl.StreamError, match="ended after 8 values"):
        engine.run()
    assert (engine.read("total"), engine.read("x")) == (4, -5)
    engine.connect("feed", iter(np.array([2.0, -1.0], np.float32)))
    engine.run()
    assert engine.read("total") == 4


def test_a_loop_that_goes_on_beyond_its_bound_aborts():
    graph, program, _ = until_negative(2)
    engine = cl.Engine(graph, program)
    engine.connect("feed", np.array([1, 2, 3, 4, -1], np.float32))
    with pytest.raises(cl.ProgramAbortedError, match="max_iterations=2"):
        engine.run()
    engine.connect("feed", np.array([1, 2, -1], np.float32))
    engine.run(progress=False)
    assert engine.read("total") == 5


def test_a_function_has_to_know_a_bound():
    graph, program, _ = until_negative(None)
    with pytest.raises(cl.ProgramError, match="without a bound") as caught:
        cl.lower(graph, program, inputs=[], outputs=["total"])
    assert "cl.Engine runs it as it is" in str(caught.value)
    assert "max_iterations=" in str(caught.value)


def test_profiles_count_the_turns_that_are_said():
    graph, program, _ = until_negative(None)
    profile = cl.Engine(graph, program).profile()
    assert profile.host_cycles > 0
    graph, program, _ = until_negative(3)
    assert 0 < cl.Engine(graph, program).profile().host_cycles < profile.host_cycles


@pytest.mark.parametrize("execution", ["fused", "tiles"])
def test_over_a_mesh(execution):
    mesh = jax.make_mesh((2,), ("devices",))
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, total = graph.add_variable("x", (6,)), graph.add_variable("total", (6,))
    feed = graph.add_input_stream("feed", (6,))
    i = cl.grid(6)
    with graph.record() as look:
        going = graph.add_vertex("look", cl.codelet(lambda x: x >= 0), x=x[0])
    with graph.record() as step:
        graph.add_vertex("step", add, x=x[i], total=total[i])
    program = [cl.Copy(0.0, total), cl.RepeatWhile([cl.Copy(feed, x), look], going, step, max_iterations=5)]
    values = np.arange(36, dtype=np.float32).reshape(6, 6)
    values[3, 0] = -1
    expected = cl.interpret(graph, values={"feed": values}, outputs=["total"], program=program)["total"]
    engine = cl.Engine(graph, program, mesh=mesh, execution=execution)
    engine.connect("feed", iter(values[:4]))
    engine.run()
    np.testing.assert_allclose(engine.read("total"), expected)
    if execution == "fused":
        run = cl.lower(graph, program, inputs=[], outputs=["total"], mesh=mesh)
        found = jax.jit(run)({"feed": values})
        np.testing.assert_allclose(found["total"], expected)
        assert int(found["feed"].count) == 4
    function = engine.function(inputs=[], outputs=["total"])
    assert int(function({"feed": values})["feed"].count) == 4


def test_a_gradient_as_vertices_goes_back_through_the_turns_that_took_values():
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x, w, total = (graph.add_variable(name, ()) for name in ("x", "w", "total"))
    feed = graph.add_input_stream("feed", ())
    with graph.record() as look:
        going = graph.add_vertex("look", goes_on, x=x)
    with graph.record() as step:
        graph.add_vertex("step", cl.codelet(lambda x, w, total: {"total": total + w * w * x}), x=x, w=w, total=total)
    loop = cl.RepeatWhile([cl.Copy(feed, x), look], going, step, max_iterations=8)
    found = cl.gradient(graph, of=total, wrt=[w], program=[cl.Copy(0.0, total), loop])
    both = cl.Sequence([found.forward, found.backward])
    values = np.array([3, 12, 4, -1, *[9.0] * 5], np.float32)
    for execution in ("fused", "tiles"):
        engine = cl.Engine(graph, both, execution=execution)
        engine.write({"w": 3.0})
        engine.connect("feed", iter(values[:4]))
        engine.run()
        assert engine.read(found[w]) == 2 * 3 * 19
    name = found[w].source.name
    assert cl.interpret(graph, values={"w": 3.0, "feed": values}, outputs=[name], program=both)[name] == 2 * 3 * 19
    assert cl.lower(graph, both, inputs=[w], outputs=[found[w]])({"w": 3.0, "feed": values})[name] == 2 * 3 * 19
