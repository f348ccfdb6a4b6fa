"""Backward passes on the machine: run, placed, planned, profiled and drawn as any other part of a graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, event, given
from hypothesis import strategies as st

import codelet as cl
from codelet.draw.groups import group_points
from codelet.draw.links import find_links
from codelet.graphs.phases import PHASES, phase_of
from codelet.views.sources import source_variables
from lowering.machine.placer import tiles_in_order
from lowering.pipeline import plan_engine
from lowering.plan.collect import collect
from lowering.plan.steps import ExecuteStep
from lowering.plan.walk import all_steps
from tests import strategies as s
from tests.examples import examples
from tests.gradients import agree, ends
from tests.test_gradient import slopes


@cl.codelet
def multiply(a, b):
    return a * b


@cl.codelet
def sine(x):
    return jnp.sin(x)


class Differentiated(NamedTuple):
    """A generated program, its gradient, and JAX's of the lowered program."""

    case: s.Case
    found: cl.Gradient
    names: dict[str, str]
    expected: dict[str, np.ndarray]

    @property
    def program(self) -> cl.Program:
        return cl.Sequence(self.found.forward, self.found.backward)


def floats(case: s.Case, names: Any, dtype: Any) -> list[str]:
    return [name for name in names if case.graph_dtype(name) == dtype]


def mapped(case: s.Case, seed: int) -> None:
    """Map all elements of a graph to tiles at random."""
    random = np.random.default_rng(seed)
    for variable in case.graph.sources:
        if variable.size:
            case.graph.set_tile_mapping(variable.name, random.integers(0, 8, variable.shape))


@st.composite
def differentiated(draw: Any, dtype: Any = np.float32, max_iterations: int = 3) -> Differentiated:
    case = draw(s.cases(dtype, max_iterations=max_iterations, bounded=True))
    of, wrt = ends(draw, case, dtype)
    cotangent = np.random.default_rng(0).uniform(-1, 1, case.graph.variable(of).shape).astype(dtype)
    expected = slopes(case, of, wrt, cotangent)
    if draw(st.booleans()):
        mapped(case, draw(st.integers(0, 99)))
    found = cl.gradient(case.graph, of=of, wrt=wrt, program=case.sequence(), cotangent=cotangent)
    event("zero" if not any(np.any(own) for own in expected.values()) else "not zero")
    return Differentiated(case, found, {n: t.source.name for n, t in zip(wrt, found, strict=True)}, expected)


class TestGenerated:
    @pytest.mark.slow
    @examples(4)
    @given(differentiated())
    def test_interpreted(self, own: Differentiated):
        made = cl.interpret(own.case.graph, values=own.case.inputs, outputs=[*own.names.values()], program=own.program)
        for name, value in own.expected.items():
            agree(made[own.names[name]], value, name)

    @pytest.mark.slow
    @examples(3)
    @given(differentiated(), st.sampled_from(["balanced", "linear", "bytes", "blocks", "rows"]))
    def test_on_tiles(self, own: Differentiated, where: str):
        engine = cl.Engine(own.case.graph, own.program, execution="tiles", placement=where, stream_bytes=40)
        run = engine.function(inputs=[*own.case.inputs], outputs=[*own.names.values()])
        made = jax.jit(run)(own.case.inputs)
        for name, value in own.expected.items():
            agree(made[own.names[name]], value, name)

    @pytest.mark.slow
    @examples(3)
    @given(differentiated(max_iterations=2))
    def test_on_addresses(self, own: Differentiated):
        engine = cl.Engine(own.case.graph, own.program, execution="addresses", stream_bytes=40)
        run = engine.function(inputs=[*own.case.inputs], outputs=[*own.names.values()])
        made = jax.jit(run)(own.case.inputs)
        for name, value in own.expected.items():
            agree(made[own.names[name]], value, name)


# --- where it lives -----------------------------------------------------------------------------------


def tiles_of(graph: cl.Graph, variable: Any) -> np.ndarray:
    return graph.element_tiles[variable.first_element :][: variable.size].reshape(variable.shape)


class TestMappedByHand:
    @examples(10)
    @given(st.data())
    def test_all_of_it_is_mapped(self, data):
        case = data.draw(s.cases(bounded=True))
        inputs, outputs = floats(case, case.inputs, np.float32), floats(case, case.outputs, np.float32)
        assume(inputs and outputs)
        plan_engine(case.graph, case.sequence())  # the constants that it copies are there then
        mapped(case, data.draw(st.integers(0, 99)))
        of, wrt = data.draw(st.sampled_from(outputs)), [data.draw(st.sampled_from(inputs))]
        cotangent = np.ones(case.graph.variable(of).shape, np.float32)
        found = cl.gradient(case.graph, of=of, wrt=wrt, program=case.sequence(), cotangent=cotangent)
        (own,) = found
        primal = case.graph.variable(wrt[0]).source
        assert (tiles_of(case.graph, own.source) == tiles_of(case.graph, primal)).all()
        tiles = case.graph.element_tiles
        for variable in case.graph.sources:
            own = tiles[variable.first_element :][: variable.size]
            assert (own >= 0).all(), variable
        plan_engine(case.graph, cl.Sequence(found.forward, found.backward))

    def test_where_it_lives(self):
        """Cotangents with what they are of, what is saved with what it was, adjoint vertices with the forward ones."""
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x, y, z = (graph.add_variable(name, (16,)) for name in "xyz")
        tiles = {"x": np.arange(16) // 2, "y": 7 - np.arange(16) // 2, "z": np.arange(16) % 8}
        for name, own in tiles.items():
            graph.set_tile_mapping(name, own)
        i = cl.grid(15)
        graph.set_tile_mapping(z[15], 5)
        graph.add_vertex("near", multiply, a=x[i], b=x[i + 1], out=y[i], tile=(i + 3) % 8)
        graph.add_vertex("last", multiply, a=y[0], b=x[0], out=y[15], tile=2)
        j = cl.grid(16)
        graph.add_vertex("again", sine, x=y[j], out=z[j])
        near, last, again = graph.compute_sets
        program = cl.Sequence(near, last, again, cl.Repeat(3, cl.Sequence(cl.Copy(z, x), near, again)))
        found = cl.gradient(graph, of=z, wrt=[x], program=program, cotangent=np.ones(16))
        plan_engine(graph, cl.Sequence(found.forward, found.backward))
        for name in "xyz":
            primal = tiles_of(graph, graph.variable(name).source)
            assert (tiles_of(graph, graph.variable(f"backward/{name}").source) == primal).all()
        saved = [own for own in graph.sources if own.name.startswith("backward/saved/") and len(own.shape) == 2]
        assert saved
        for stack in saved:
            name = stack.name.removeprefix("backward/saved/")[0]
            if name in tiles:
                expected = np.broadcast_to(tiles_of(graph, graph.variable(name).source), stack.shape)
                assert (tiles_of(graph, stack) == expected).all(), stack
        adjoints = [own for own in graph.families if "multiply_adjoint" in own.codelet.name]
        assert [own.tile is not None for own in adjoints] == [True] * len(adjoints)
        (first,) = (own for own in graph.families if own.compute_set.name == "near")
        for own in adjoints:
            if own.num_vertices == 15:
                assert tiles_in_order(own, graph.target).tolist() == tiles_in_order(first, graph.target).tolist()


# --- what it is of, and by --------------------------------------------------------------------------------


def name_of(tensor: cl.Tensor) -> str:
    """The name of the variable that a tensor is of."""
    (variable,) = source_variables(tensor.source)
    return variable.name


def values(made: dict[str, np.ndarray], *tensors: cl.Tensor) -> list[np.ndarray]:
    """The values of views, from those of their variables."""
    return [made[name_of(own)].reshape(-1)[own.index.values()] for own in tensors]


def run(graph: cl.Graph, inputs: dict[str, Any], program: cl.Program, *tensors: cl.Tensor) -> list[np.ndarray]:
    """What tensors hold after a program, by the interpreter and on addresses, which agree."""
    names = [*dict.fromkeys(map(name_of, tensors))]
    expected = values(cl.interpret(graph, values=inputs, outputs=names, program=program), *tensors)
    engine = cl.Engine(graph, program, execution="addresses")
    engine.write(inputs)
    engine.run()
    for own, value in zip(engine.read([*tensors]), expected, strict=True):
        np.testing.assert_allclose(own, value, 1e-5, 1e-5)
    return expected


class TestWhatItIsBy:
    def test_a_constant(self):
        """What the graph holds for good has a gradient as what the host writes."""
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, w = graph.add_variable("x", (3,)), graph.add_constant("w", np.array([2.0, 3.0, 5.0], np.float32))
        i = cl.grid(3)
        y = graph.add_vertex("scale", multiply, a=x[i], b=w[i])
        found = cl.gradient(graph, of=y, wrt=[w, x], cotangent=[1, 10, 100])
        both = cl.Sequence(found.forward, found.backward)
        by_w, by_x = run(graph, {"x": [1, -1, 4]}, both, found[w], found[x])
        np.testing.assert_allclose(by_w, [1, -10, 400])
        np.testing.assert_allclose(by_x, [2, 30, 500])

    @pytest.mark.slow
    def test_what_nothing_reads_has_a_gradient_of_zero(self):
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, unused, late = (graph.add_variable(name, (2, 3)) for name in ("x", "unused", "late"))
        i, j = cl.grid(2, 3)
        y = graph.add_vertex("sine", sine, x=x[i, j])
        graph.add_vertex("after", sine, x=y[i, j], out=late[i, j])
        found = cl.gradient(graph, of=y, wrt=[unused, late, x[0]], cotangent=np.ones((2, 3)))
        both = cl.Sequence(found.forward, found.backward)
        made = run(graph, {"x": np.ones((2, 3))}, both, found[unused], found[late], found[x[0]])
        for own, shape in zip(made, [(2, 3), (2, 3), (3,)], strict=True):
            assert own.shape == shape
        assert not made[0].any()
        assert not made[1].any()
        np.testing.assert_allclose(made[2], np.cos(np.ones(3)), 1e-5)

    def test_by_the_name_of_a_variable_or_an_equal_view(self):
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x = graph.add_variable("x", (3,))
        y = graph.add_vertex("sine", sine, x=x[cl.grid(3)])
        found = cl.gradient(graph, of=y, wrt=["x", x[:2]], cotangent=[1.0, 2.0, 3.0])
        assert found["x"] is found[x]
        assert found[x[:2]].shape == (2,)
        with pytest.raises(
            cl.ProgramError, match="the gradient with respect to this tensor was not asked for"
        ) as error:
            found[x[1:]]
        assert "with it in `wrt`" in str(error.value)

    def test_views_of_what_and_by_what(self):
        """Some elements in another order; by elements that overlap."""
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, y = graph.add_variable("x", (6,)), graph.add_variable("y", (6,))
        i = cl.grid(6)
        graph.add_vertex("products", multiply, a=x[i], b=x[(i + 1) % 6], out=y[i])
        of, by = y[::-2], [x[1:4], x[::-1], cl.concatenate([x[:2], x[4:]]).reshape(2, 2)]
        found = cl.gradient(graph, of=of, wrt=by, cotangent=[1.0, 2.0, 3.0])
        value = np.array([1, 2, 3, 5, 7, 11], np.float32)
        both = cl.Sequence(found.forward, found.backward)
        slope = jax.jit(jax.grad(lambda v: (v * jnp.roll(v, -1))[::-2] @ jnp.array([1.0, 2, 3])))(value)
        engine = cl.Engine(graph, both, execution="tiles")
        engine.write({"x": value})
        engine.run()
        for tensor, expected in zip(by, (slope[1:4], slope[::-1], slope[np.array([[0, 1], [4, 5]])]), strict=True):
            np.testing.assert_allclose(engine.read(found[tensor]), expected, 1e-6)

    def test_of_elements_that_a_view_repeats_or_pads(self):
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, y = graph.add_variable("x", (3,)), graph.add_variable("y", (3,))
        i = cl.grid(3)
        graph.add_vertex("sine", sine, x=x[i], out=y[i])
        of = cl.concatenate([y, y[::-1], y[:1]]).pad(1)
        weights = np.arange(1.0, 10.0, dtype=np.float32)
        found = cl.gradient(graph, of=of, wrt=[x], cotangent=weights)
        value = np.array([0.1, 0.2, 0.3], np.float32)
        (made,) = run(graph, {"x": value}, cl.Sequence(found.forward, found.backward), found[x])

        def weighed(v):
            y = jnp.sin(v)
            return jnp.pad(jnp.concatenate([y, y[::-1], y[:1]]), 1) @ weights

        np.testing.assert_allclose(made, jax.jit(jax.grad(weighed))(value), 1e-5)

    def test_of_what_it_is_by(self):
        """A tensor that the program leaves as it was is its own gradient's cotangent."""
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x = graph.add_variable("x", (3,))
        found = cl.gradient(graph, of=x, wrt=[x], cotangent=[3.0, 4.0, 5.0], program=cl.Sequence())
        (made,) = run(graph, {"x": np.zeros(3)}, cl.Sequence(found.forward, found.backward), found[x])
        np.testing.assert_array_equal(made, [3, 4, 5])

    def test_a_cotangent_that_a_program_computes(self):
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, g = graph.add_variable("x", (3,)), graph.add_variable("g", (3,))
        i = cl.grid(3)
        y = graph.add_vertex("sine", sine, x=x[i])
        found = cl.gradient(graph, of=y, wrt=[x], cotangent=g)
        (made,) = run(graph, {"x": np.ones(3), "g": [1, 2, 3]}, cl.Sequence(found.forward, found.backward), found[x])
        np.testing.assert_allclose(made, np.cos(1) * np.array([1, 2, 3]), 1e-5)


class TestCalls:
    def test_what_a_call_writes_alone_needs_no_value_before(self):
        """In loops, too; what is saved makes the forward pass a program of its own, with calls as copies."""
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, y = graph.add_variable("x", (3,)), graph.add_variable("y", (3,))
        a, b = graph.add_variable("a", (3,)), graph.add_variable("b", (3,))
        i = cl.grid(3)
        graph.add_vertex("sine", sine, x=a[i], out=b[i])
        function = graph.add_function(graph.compute_sets[-1], [a, b])
        turn = cl.Sequence(cl.Call(function, a=x, b=y), cl.Copy(y, x))
        program = cl.Sequence(turn, cl.Repeat(2, turn))
        found = cl.gradient(graph, of=y, wrt=[x], program=program, cotangent=np.ones(3))
        both = cl.Sequence(found.forward, found.backward)
        value = np.array([0.5, 1.0, 2.0], np.float32)
        made = jax.jit(cl.lower(graph, both, inputs=[x], outputs=[found[x]]))({"x": value})
        expected = jax.jit(jax.grad(lambda v: jnp.sum(jnp.sin(jnp.sin(jnp.sin(v))))))(value)
        np.testing.assert_allclose(made[name_of(found[x])], expected, 1e-5)


class TestStreams:
    @pytest.mark.slow
    def test_what_a_loop_receives_is_played_backwards(self):
        """Each turn back reads what the same turn received; the stream gives its values once, in the forward pass."""
        graph = cl.Graph(cl.IPU(num_tiles=4))
        w, x, state = (graph.add_variable(name, (3,)) for name in ("w", "x", "state"))
        feed, sent = graph.add_input_stream("feed", (3,)), graph.add_output_stream("sent", (3,))
        i = cl.grid(3)
        step = cl.codelet(lambda w, x, state: {"state": jnp.sin(w * x + state)})
        graph.add_vertex("step", step, w=w[i], x=x[i], state=state[i])
        turn = cl.Sequence(cl.Copy(feed, x), graph.compute_sets[0], cl.Copy(state, sent))
        program = cl.Sequence(cl.Copy(feed, state), cl.Repeat(4, turn))
        found = cl.gradient(graph, of=state, wrt=[w], program=program, cotangent=[1.0, 2.0, 3.0])
        assert not [line for line in found.backward.lines() if "feed" in line or "sent" in line]
        random = np.random.default_rng(0)
        fed, value = random.normal(size=(5, 3)).astype(np.float32), random.normal(size=3).astype(np.float32)

        def last(w):
            held = fed[0]
            for own in fed[1:]:
                held = jnp.sin(w * own + held)
            return held @ jnp.array([1.0, 2.0, 3.0])

        both = cl.Sequence(found.forward, found.backward)
        made = cl.interpret(graph, values={"w": value, "feed": fed}, outputs=[found[w], state], program=both)
        expected = jax.jit(jax.grad(last))(value)
        np.testing.assert_allclose(made[name_of(found[w])], expected, 1e-4, 1e-5)
        got: list[np.ndarray] = []
        engine = cl.Engine(graph, both, execution="addresses")
        engine.connect("feed", fed)
        engine.connect("sent", got.append)
        engine.write({"w": value})
        engine.run()
        np.testing.assert_allclose(engine.read(found[w]), expected, 1e-4, 1e-5)
        assert len(got) == 4


class TestTwice:
    def test_a_gradient_of_a_gradient(self):
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, w, y = graph.add_variable("x", (4,)), graph.add_variable("w", (3, 4)), graph.add_variable("y", ())
        i = cl.grid(3)
        hidden = graph.add_vertex("hidden", cl.codelet(lambda w, x: jnp.tanh(jnp.dot(w, x))), w=w[i], x=x)
        graph.add_vertex("loss", cl.codelet(lambda h: jnp.sum(h * h * h)), h=hidden, out=y)
        first = cl.gradient(graph, of=y, wrt=[x])
        u = np.array([1.0, -2.0, 0.5, 3.0], np.float32)
        program = cl.Sequence(first.forward, first.backward)
        second = cl.gradient(graph, of=first[x], wrt=[x, w], program=program, cotangent=u)
        random = np.random.default_rng(0)
        inputs = {
            "x": random.uniform(-1, 1, 4).astype(np.float32),
            "w": random.uniform(-1, 1, (3, 4)).astype(np.float32),
        }
        both = cl.Sequence(second.forward, second.backward)
        made = run(graph, inputs, both, second[x], second[w])
        loss = lambda x, w: jnp.sum(jnp.tanh(w @ x) ** 3)  # noqa: E731
        expected = jax.jit(jax.grad(lambda x, w: jax.grad(loss)(x, w) @ u, (0, 1)))(inputs["x"], inputs["w"])
        for own, value in zip(made, expected, strict=True):
            np.testing.assert_allclose(own, value, 1e-4, 1e-5)

    @pytest.mark.slow
    @examples(4)
    @given(differentiated(max_iterations=2), st.data())
    def test_of_generated_programs(self, own: Differentiated, data):
        """Beside JAX's gradient of the lowered forward and backward pass, which are a program as any other."""
        graph, of = own.case.graph, data.draw(st.sampled_from([*own.names]))
        again = s.Case(graph, own.case.inputs, [own.program])
        cotangent = np.random.default_rng(1).uniform(-1, 1, graph.variable(of).shape).astype(np.float32)
        wrt = floats(again, own.case.inputs, np.float32)
        expected = slopes(again, own.names[of], wrt, cotangent)
        second = cl.gradient(graph, of=own.names[of], wrt=wrt, program=own.program, cotangent=cotangent)
        both = cl.Sequence(second.forward, second.backward)
        run = cl.lower(graph, inputs=[*own.case.inputs], outputs=[t.source.name for t in second], program=both)
        made = jax.jit(run)(own.case.inputs)
        event("zero" if not any(np.any(own) for own in expected.values()) else "not zero")
        for name, tensor in zip(wrt, second, strict=True):
            agree(made[tensor.source.name], expected[name], name)

    def test_one_graph_by_different_things(self):
        """Two backward passes stand beside each other, each with names of its own."""
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, w, y, z = (graph.add_variable(name, (5,)) for name in "xwyz")
        i = cl.grid(5)
        graph.add_vertex("products", multiply, a=x[i], b=w[i], out=y[i])
        graph.add_vertex("sines", sine, x=y[i], out=z[i])
        program = graph.default_program
        by_x = cl.gradient(graph, of=z, wrt=[x], program=program, cotangent=np.ones(5))
        by_w = cl.gradient(graph, of=y, wrt=[w, x], program=program, cotangent=np.full(5, 2.0))
        both = cl.Sequence(by_x.forward, by_x.backward, by_w.backward)
        a, b = np.arange(5.0, dtype=np.float32), np.arange(5.0, 10.0, dtype=np.float32)
        made = run(graph, {"x": a, "w": b}, both, by_x[x], by_w[w], by_w[x])
        np.testing.assert_allclose(made[0], b * np.cos(a * b), 1e-4, 1e-5)
        np.testing.assert_allclose(made[1], 2 * a)
        np.testing.assert_allclose(made[2], 2 * b)


class TestFiniteDifferences:
    @examples(4)
    @given(st.data())
    def test_along_a_direction(self, data):
        """In float64: where the slope is the same from both sides, it is that of the graph."""
        with jax.enable_x64(True):
            own = data.draw(differentiated(np.float64, max_iterations=2))
            case, random = own.case, np.random.default_rng(2)
            direction = {name: random.uniform(-1, 1, case.inputs[name].shape) for name in own.names}
            of = own.found.of
            cotangent = np.random.default_rng(0).uniform(-1, 1, of.shape)
            forward = jax.jit(
                cl.lower(case.graph, inputs=[*case.inputs], outputs=[of.source.name], program=case.sequence())
            )

            def moved(step: float) -> float:
                shifted = {name: case.inputs[name] + step * direction[name] for name in direction}
                return float(np.vdot(forward({**case.inputs, **shifted})[of.source.name], cotangent))

            step = 1e-5
            here, before, after = moved(0), moved(-step), moved(step)
            if abs((after - here) - (here - before)) > 1e-3 * step * max(1, abs(after - before) / step):
                event("a kink")
                return
            run = cl.lower(case.graph, inputs=[*case.inputs], outputs=[*own.names.values()], program=own.program)
            made = jax.jit(run)(case.inputs)
            slope = sum(float(np.vdot(made[own.names[name]], direction[name])) for name in direction)
            np.testing.assert_allclose(slope, (after - before) / (2 * step), 1e-4, 1e-4)


# --- what a training step is seen as ------------------------------------------------------------------


def trained(graph: cl.Graph) -> tuple[cl.Sequence, cl.Gradient]:
    """Two dense layers and a loss; a step of training, and its gradient."""
    x, target = graph.add_variable("x", (4, 8)), graph.add_variable("target", (4, 3))
    weights, made = [], x
    dense = cl.codelet(lambda x, w: jnp.tanh(jnp.dot(x, w)))
    for number, (inputs, outputs) in enumerate([(8, 6), (6, 3)], 1):
        with graph.scope(f"layer {number}"):
            w = graph.add_variable("w", (outputs, inputs))
            i, j = cl.grid(4, outputs)
            made = graph.add_vertex("dense", dense, x=made[i], w=w[j])
            weights.append(w)
    error = cl.codelet(lambda y, target: jnp.sum((y - target) ** 2))
    loss = graph.add_vertex("loss", error, y=made, target=target)
    found = cl.gradient(graph, of=loss, wrt=weights)
    descend = cl.codelet(lambda p, slope: {"p": p - 0.125 * slope})
    with graph.scope("update"), graph.record() as update:
        for w in weights:
            i, j = cl.grid(*w.shape)
            graph.add_vertex(name_of(w).partition("/")[0], descend, p=w[i, j], slope=found[w][i, j])
    return cl.Sequence(found.forward, found.backward, update), found


class TestATrainingStep:
    def test_its_profile_names_what_is_of_each_layer(self):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        step, _ = trained(graph)
        names = [own.name for own in cl.Engine(graph, step).profile().steps if not own.name.startswith("copy ")]
        phases = [phase_of(name) for name in names]
        assert phases == sorted(phases)
        for number in (1, 2):
            for own in (f"layer {number}/dense", f"backward/layer {number}/dense", f"update/layer {number}"):
                assert own in names
        assert all(name.startswith("backward/") for name, phase in zip(names, phases, strict=True) if phase == 1)

    @examples(6)
    @given(differentiated())
    def test_what_the_forward_pass_runs_is_told_as_forward(self, own: Differentiated):
        """What saves values, too, which is there for the backward pass."""
        graph = own.case.graph

        def names(program: cl.Program) -> set[str]:
            steps = all_steps(collect(graph, program, (), ()).steps)
            return {step.name for step in steps if isinstance(step, ExecuteStep)}

        plain, forward, backward = map(names, (own.case.sequence(), own.found.forward, own.found.backward))
        assert {PHASES[phase_of(name)] for name in forward} <= {"forward"}
        # What counts turns, and what runs again, runs in both.
        assert {PHASES[phase_of(name)] for name in backward - forward} <= {"backward"}
        assert plain <= forward
        event("something is saved" if forward - plain else "nothing is saved")

    def test_its_picture_has_a_layer_for_forward_and_backward(self):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        step, _ = trained(graph)
        groups = group_points(find_links(graph, step))
        layers = {}
        for family, layer, is_input in zip(groups.family, groups.layer, groups.is_input, strict=True):
            if not is_input:
                layers.setdefault(graph.families[family].compute_set.name, groups.layers[layer])
        assert layers["layer 1/dense"] == layers["backward/layer 1/dense"] == layers["update/layer 1"] == "layer 1"
        assert layers["layer 2/dense"] == layers["backward/layer 2/dense"] == "layer 2"

    @pytest.mark.slow
    def test_it_is_that_of_jax(self):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        step, found = trained(graph)
        random = np.random.default_rng(0)
        shapes = {"x": (4, 8), "target": (4, 3), "layer 1/w": (6, 8), "layer 2/w": (3, 6)}
        inputs = {name: random.uniform(-1, 1, shape).astype(np.float32) for name, shape in shapes.items()}

        def loss(w, v):
            return jnp.sum((jnp.tanh(jnp.tanh(inputs["x"] @ w.T) @ v.T) - inputs["target"]) ** 2)

        before = inputs["layer 1/w"], inputs["layer 2/w"]
        slopes = jax.jit(jax.grad(loss, (0, 1)))(*before)
        tensors = [*found.tensors]
        after = run(graph, inputs, step, *tensors)
        for own, value, slope in zip(after, before, slopes, strict=True):
            np.testing.assert_allclose(own, value - 0.125 * slope, 1e-4, 1e-5)
