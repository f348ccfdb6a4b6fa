"""Output streams whose number of values depends on data: sent in loops on conditions, and in some cases of a choice."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from lowering.plan.streams import Sent


class Hailstone:
    """From a number to one, by steps that depend on it: what it goes through is sent, and odd ones once more."""

    def __init__(self, max_iterations: int | None = 20):
        self.graph = graph = cl.Graph(cl.IPU(num_tiles=4))
        self.n, self.x = graph.add_variable("n", (), "int32"), graph.add_variable("x", (2,))
        self.more, self.odd = graph.add_variable("more", (), bool), graph.add_variable("odd", (), bool)
        look, step = graph.add_compute_set("look"), graph.add_compute_set("step")
        graph.add_vertex(look, cl.codelet(lambda n: n > 1), n=self.n, out=self.more)
        graph.add_vertex(look, cl.codelet(lambda n: n % 2 == 1), n=self.n, out=self.odd)
        graph.add_vertex(step, cl.codelet(lambda n: {"n": jnp.where(n % 2 == 0, n // 2, 3 * n + 1)}), n=self.n)
        i = cl.grid(2)
        graph.add_vertex(step, cl.codelet(lambda x: {"x": 0.5 * x + 1}), x=self.x[i])
        self.path, self.odds = graph.add_output_stream("path", (2,)), graph.add_output_stream("odds", (), "int32")
        self.ends = graph.add_output_stream("ends", (), "int32")
        body = [cl.Copy(self.x, self.path), cl.If(self.odd, cl.Copy(self.n, self.odds)), step]
        self.program = cl.Sequence(
            cl.RepeatWhile(look, self.more, body, max_iterations=max_iterations), cl.Copy(self.n, self.ends)
        )

    def values(self, n):
        return {"n": np.int32(n), "x": np.asarray([8.0, -8.0], np.float32)}


@pytest.mark.slow
def test_what_a_loop_and_a_choice_send_is_the_same_everywhere():
    stones = Hailstone()
    graph, program = stones.graph, stones.program
    run = jax.jit(cl.lower(graph, program, inputs=["n", "x"], outputs=["n"]))
    engines = {how: cl.Engine(graph, program, execution=how) for how in ("fused", "tiles", "addresses")}
    functions = {how: jax.jit(e.function(inputs=["n", "x"], outputs=["n"])) for how, e in engines.items()}
    called = []
    engines["fused"].connect("odds", called.append)
    for n in (6, 1, 7):
        values = stones.values(n)
        expected = cl.interpret(graph, values=values, outputs=["path", "odds", "ends"], program=program)
        assert expected["odds"].tolist() == {6: [3, 5], 1: [], 7: [7, 11, 17, 13, 5]}[n]
        for how in (run, *functions.values()):
            got = how(values)
            assert isinstance(got["path"], Sent)
            assert got["path"].values.shape == (20, 2)
            assert got["path"].count.dtype == "int32"
            assert got["ends"].tolist() == [1]
            for name in ("path", "odds"):
                values_sent, count = jax.device_get(got[name])
                assert int(count) == len(expected[name])
                np.testing.assert_allclose(values_sent[:count], expected[name], rtol=1e-6)
                assert not np.any(values_sent[count:])
        for how, engine in engines.items():
            engine.write(values)
            called.clear()
            engine.run()
            for name in ("path", "odds", "ends"):
                got = np.asarray(called, np.int32) if (how, name) == ("fused", "odds") else engine.read(name)
                np.testing.assert_allclose(got, expected[name], rtol=1e-6)
                assert got.dtype == expected[name].dtype


def test_gradients_and_vmap_go_through_what_was_sent():
    stones = Hailstone()
    run = cl.lower(stones.graph, stones.program, inputs=["n", "x"], outputs=[])
    x, weights = np.asarray([8, -8], np.float32), np.arange(1, 21, dtype=np.float32)[:, None]
    jitted = jax.jit(run)

    def loss(x):
        return (jitted({"n": np.int32(6), "x": x})["path"].values * weights).sum()

    slope = sum((k + 1) * 0.5**k for k in range(8))  # eight steps from six to one
    np.testing.assert_allclose(jax.jit(jax.grad(loss))(x), [slope, slope], rtol=1e-5)
    np.testing.assert_allclose((loss(x + 0.5) - loss(x - 0.5)), 2 * slope, rtol=1e-4)
    starts = {"n": np.asarray([6, 1, 7], np.int32), "x": np.broadcast_to(x, (3, 2))}
    many = jax.device_get(jax.jit(jax.vmap(run))(starts))
    assert many["path"].count.tolist() == [8, 0, 16]
    for k in range(3):
        one = jitted({name: values[k] for name, values in starts.items()})
        np.testing.assert_allclose(many["path"].values[k], one["path"].values, rtol=1e-6)
        np.testing.assert_array_equal(many["odds"].values[k], one["odds"].values)


def test_forward_mode_through_choices_that_send():
    graph = cl.Graph()
    x, n, out = graph.add_variable("x", ()), graph.add_variable("n", (), "int32"), graph.add_output_stream("out", ())
    graph.add_vertex("square", cl.codelet(lambda x: {"x": x * x}), x=x)
    (square,) = graph.compute_sets
    program = cl.Repeat(2, [square, cl.Switch(n, {1: cl.Copy(x, out), 2: [cl.Copy(x, out)] * 2})])
    run = cl.lower(graph, program, inputs=[x, n], outputs=[])
    for n, expected in ((0, []), (1, [4, 32]), (2, [4, 4, 32, 32])):
        _, slope = jax.jvp(lambda x, n=n: run({"x": x, "n": n})["out"].values, (2.0,), (1.0,))
        assert slope.tolist() == expected + [0] * (4 - len(expected))


def test_functions_and_calls_in_a_row_send_as_many_as_there_are():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    own, flags = graph.add_variable("own", (), "int32"), graph.add_variable("flags", (5,), "int32")
    out, all_ = graph.add_output_stream("out", (), "int32"), graph.add_output_stream("all", (), "int32")
    inner = graph.add_function([cl.If(own, cl.Copy(own, out)), cl.Copy(own, all_)], {"own": own}, name="inner")
    calls = [cl.Call(inner, own=flags[k]) for k in range(5)]
    program = [*calls, cl.Repeat(2, [calls[1], calls[0]]), cl.Repeat(0, calls), cl.Copy(flags[4], out)]
    values = {"flags": np.asarray([0, 3, 0, 5, 7], np.int32)}
    expected = cl.interpret(graph, values=values, outputs=["out", "all"], program=program)
    assert expected["out"].tolist() == [3, 5, 7, 3, 3, 7]
    got = jax.device_get(jax.jit(cl.lower(graph, program, inputs=["flags"], outputs=[]))(values))
    assert got["out"].values.shape == (10,)
    assert got["out"].values[: int(got["out"].count)].tolist() == [3, 5, 7, 3, 3, 7]
    assert got["all"].tolist() == expected["all"].tolist()
    for execution in ("fused", "tiles"):
        engine = cl.Engine(graph, program, execution=execution, stream_bytes=8)
        engine.write(values)
        engine.run()
        assert engine.read("out").tolist() == [3, 5, 7, 3, 3, 7]


def test_a_loop_that_goes_on_beyond_its_bound_sends_nothing():
    stones = Hailstone(max_iterations=5)
    engine = cl.Engine(stones.graph, stones.program)
    engine.write(stones.values(6))
    with pytest.raises(cl.ProgramAbortedError):
        engine.run()
    assert len(engine.read("path")) == 0
    engine.write(stones.values(8))
    engine.run()
    assert len(engine.read("path")) == 3


def test_what_has_no_bound_is_told():
    stones = Hailstone(max_iterations=None)
    with pytest.raises(cl.ProgramError) as caught:
        cl.lower(stones.graph, stones.program, inputs=["n", "x"], outputs=[])
    for word in ("'path'", "how often a loop without a bound runs", "max_iterations=", "test_sent.py", "RepeatWhile"):
        assert word in str(caught.value)
