"""Backward passes of calls: the adjoint of a function is one function, however often it is called."""

from __future__ import annotations

from itertools import product
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import event, given
from hypothesis import strategies as st

import codelet as cl
from lowering.check.initialized import written_by
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from lowering.plan.timeline import without_calls
from tests import strategies as s
from tests.at_once import at_once
from tests.examples import examples, few
from tests.gradients import agree, ends
from tests.test_gradient import AGAIN, slopes
from tests.test_gradient_machine import mapped


def kept(case: s.Case) -> set[str]:
    """The variables that hold afterwards what the forward pass leaves: all that it has not left to chance to write."""
    plan = without_calls(flow(collect(case.graph, case.sequence(), (), ())))
    certain = written_by(plan)
    changed = {variable for step in plan.steps for variable in step.writes}
    return {own.name for own in plan.variables if own not in changed or certain.of(own).is_all}


def check(data: Any, *ways: str) -> None:
    """A generated program of calls has the gradient that JAX gives, and leaves what it leaves without it."""
    draw = data.draw
    case = draw(s.cases(max_iterations=1, bounded=True, calls=True))
    of, wrt = ends(draw, case, np.float32)
    cotangent = np.random.default_rng(0).uniform(-1, 1, case.graph.variable(of).shape).astype(np.float32)
    expected = slopes(case, of, wrt, cotangent)
    plain = cl.interpret(case.graph, values=case.inputs, outputs=case.outputs, program=case.sequence())
    if draw(st.integers(0, 3)) == 0:
        mapped(case, draw(st.integers(0, 99)))
    again = draw(st.sampled_from(AGAIN))
    found = cl.gradient(case.graph, of=of, wrt=wrt, program=case.sequence(), cotangent=cotangent, recompute=again)
    both = cl.Sequence(found.forward, found.backward)
    names = {name: own.source.name for name, own in zip(wrt, found, strict=True)}
    way, wanted = draw(st.sampled_from(ways)), [*names.values(), *case.outputs]
    if way == "interpreted":
        made = cl.interpret(case.graph, values=case.inputs, outputs=wanted, program=both)
    elif way == "lowered":
        made = jax.jit(cl.lower(case.graph, inputs=[*case.inputs], outputs=wanted, program=both))(case.inputs)
    else:
        engine = cl.Engine(case.graph, both, execution=way, stream_bytes=40)
        made = jax.jit(engine.function(inputs=[*case.inputs], outputs=wanted))(case.inputs)
    event("zero" if not any(np.any(own) for own in expected.values()) else "not zero")
    for name in wrt:
        agree(made[names[name]], expected[name], name)
    for name in set(case.outputs) & kept(case):
        np.testing.assert_allclose(made[name], plain[name], 1e-4, 1e-4, err_msg=name)


class TestGenerated:
    @pytest.mark.slow
    @examples(1000)
    @given(st.data())
    def test_many(self, data):
        check(data, "interpreted", "lowered", "tiles", "addresses")

    @pytest.mark.slow
    @examples(6)
    @given(st.data())
    def test_interpreted(self, data):
        check(data, "interpreted")

    @examples(2)
    @given(st.data())
    def test_compiled(self, data):
        check(data, "lowered", "tiles", "addresses")


@cl.codelet
def dot(x, w):
    return jnp.vdot(x, w)


@cl.codelet
def bend(x, b):
    return jnp.sin(x + b)


def network(count: int, wide: int = 8) -> tuple[cl.Graph, cl.Program, list[cl.Tensor], list[cl.Tensor]]:
    """A network whose layers are calls of one function, which reads its bias from outside: its states and weights."""
    graph = cl.Graph(cl.IPU(num_tiles=16))
    states = [graph.add_variable(f"h{k}", (wide, wide)) for k in range(count + 1)]
    weights = [graph.add_variable(f"w{k}", (wide, wide)) for k in range(count)]
    bias = graph.add_variable("b", (wide,))
    x, products, w, y = (graph.add_variable(f"layer/{name}", (wide, wide)) for name in ("x", "products", "w", "y"))
    i, j = cl.grid(wide, wide)
    graph.add_vertex("layer/multiply", dot, x=x[i], w=w[j], out=products[i, j])
    i, j = cl.grid(wide, wide)
    graph.add_vertex("layer/bend", bend, x=products[i, j], b=bias[j], out=y[i, j])
    layer = graph.add_function([*graph.compute_sets], {"x": x, "w": w, "y": y})
    calls = [cl.Call(layer, x=states[k], w=weights[k], y=states[k + 1]) for k in range(count)]
    return graph, cl.Sequence(*calls), states, [*weights, bias]


def trained(count: int, **how: Any) -> tuple[cl.Graph, cl.Profile, list[np.ndarray], list[np.ndarray]]:
    """Such a network's graph with its backward pass, its profile, its gradients, and those by JAX."""
    graph, program, states, parameters = network(count)
    random = np.random.default_rng(0)
    inputs = {own.name: random.normal(size=own.shape).astype(np.float32) for own in [states[0], *parameters]}
    run = cl.lower(graph, program, inputs=[*inputs], outputs=[states[-1]])
    slope = jax.jit(jax.grad(lambda given: run({**inputs, **given})[states[-1].name].sum()))
    expected = slope({own.name: inputs[own.name] for own in parameters})
    found = cl.gradient(
        graph, of=states[-1], wrt=parameters, program=program, cotangent=np.ones(states[-1].shape), **how
    )
    engine = cl.Engine(graph, cl.Sequence(found.forward, found.backward))
    profile = engine.profile(host_visible=[states[0], *parameters, *found])
    engine.write(inputs)
    engine.run()
    made = [np.asarray(engine.read(own)) for own in found]
    return graph, profile, made, [np.asarray(expected[own.name]) for own in parameters]


class TestOneFunction:
    @pytest.mark.slow
    def test_what_fifty_calls_add_is_what_two_add(self):
        graphs, profiles = {}, {}
        for count in (2, 50):
            graphs[count], profiles[count], made, expected = trained(count)
            for own, other in zip(made, expected, strict=True):
                np.testing.assert_allclose(own, other, 1e-4, 1e-5)
        assert len(graphs[50].compute_sets) == len(graphs[2].compute_sets)
        assert graphs[50].num_vertices == graphs[2].num_vertices
        for kind in ("code", "edge pointers"):
            assert profiles[50].memory_by_kind[kind] == profiles[2].memory_by_kind[kind]


class TestRecompute:
    @pytest.mark.slow
    def test_calls_keep_what_goes_between_them_alone(self):
        """One layer's own values at a time, for less than half as many cycles again, and the same gradients."""
        _, plain, made, _ = trained(24)
        for again in (cl.Recompute.all(), cl.Recompute.scopes("layer")):
            graph, profile, others, _ = trained(24, recompute=again)
            assert profile.total_cycles < 1.5 * plain.total_cycles
            assert 2 * profile.memory_by_kind["not always live"] < plain.memory_by_kind["not always live"]
            saved = [own for own in graph.variables if own.name.startswith("backward/saved/")]
            assert not saved
            for own, other in zip(made, others, strict=True):
                np.testing.assert_array_equal(own, other)

    def test_a_scope_that_no_function_is_in(self):
        with pytest.raises(cl.ProgramError, match="is in a scope that is to be made again") as error:
            trained(3, recompute=cl.Recompute.scopes("other"))
        assert "layer/multiply, layer/bend" in str(error.value)

    def test_what_a_function_copies_in_vain_is_given_when_it_runs_again(self):
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, y, a, b, c = (graph.add_variable(name, (3,)) for name in "xyabc")
        i = cl.grid(3)
        graph.add_vertex("sine", cl.codelet(jnp.sin), x=c[i], out=b[i])
        function = graph.add_function([cl.Copy(a, c), cl.Copy(b[::-1], c), graph.compute_sets[0]], [a, b])
        calls = [cl.Call(function, a=x, b=y)] * 2
        found = cl.gradient(
            graph, of=y, wrt=[y], program=cl.Sequence(*calls), cotangent=np.ones(3), recompute=cl.Recompute.all()
        )
        value = np.array([0.5, 1, 2], np.float32)
        both = cl.Sequence(found.forward, found.backward)
        made = cl.interpret(graph, values={"x": np.zeros(3), "y": value}, outputs=[found[y]], program=both)
        expected = jax.jit(jax.grad(lambda v: jnp.sin(jnp.sin(v)).sum()))(value)
        np.testing.assert_allclose(made[found[y].source.name], expected, 1e-5)

    def test_what_a_function_began_with_and_overwrites_is_that_of_each_call(self):
        """It is kept as the function runs again, not by the forward pass, which has run all calls by then."""
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, state, a = (graph.add_variable(name, (3,)) for name in ("x", "state", "a"))
        i = cl.grid(3)
        graph.add_vertex("one", cl.codelet(lambda a, c: {"c": jnp.sin(a * c)}), a=a[i], c=state[i])
        function = graph.add_function([graph.compute_sets[0]] * 2, [a])
        calls = cl.Sequence(*[cl.Call(function, a=x)] * 3)
        values = {"x": np.array([0.5, 1, 2], np.float32), "state": np.array([1, -1, 0.5], np.float32)}

        def last(x):
            held = values["state"]
            for _ in range(6):
                held = jnp.sin(x * held)
            return held.sum()

        for again in (None, cl.Recompute.all()):
            found = cl.gradient(graph, of=state, wrt=[x], program=calls, cotangent=np.ones(3), recompute=again)
            both = cl.Sequence(found.forward, found.backward)
            made = cl.interpret(graph, values=values, outputs=[found[x]], program=both)[found[x].source.name]
            np.testing.assert_allclose(made, jax.jit(jax.grad(last))(values["x"]), 1e-4, 1e-5)


NESTED = [("bh first ah", "yt xy yt"), ("bh first ah", "yt xt"), ("bh first second", "xy"), ("first out", "xy")]
"""What a function does before its work, and what the one does that it calls: `xy` copies x to y."""


def nested(body: str, inner: str) -> tuple[cl.Graph, cl.Function]:
    """A function that calls another, and what each of them does as `NESTED` writes it."""
    graph, i = cl.Graph(cl.IPU(num_tiles=4)), cl.grid(3)
    a, b, c, x, y, held, other = (graph.add_variable(f"{name} inside", (3,)) for name in "abcxyht")
    copies = {"a": a, "b": b, "c": c, "x": x, "y": y, "h": held, "t": other}
    steps = [cl.Copy(copies[own[0]], copies[own[1]]) for own in inner.split()]
    called = graph.add_function(steps, {"a": x, "c": y}, name="called")
    step = graph.add_compute_set("work")
    graph.add_vertex(step, cl.codelet(lambda a, h: a * jnp.sin(h)), a=a[i], h=held[i], out=c[i])
    calls = {"first": cl.Call(called, a=a, c=held), "second": cl.Call(called, a=b, c=held)}
    calls["out"] = cl.Call(called, a=a, c=c)
    steps = [calls[own] if own in calls else cl.Copy(copies[own[0]], copies[own[1]]) for own in body.split()]
    return graph, graph.add_function([*steps, step], {"a": a, "b": b, "c": c}, name="caller")


class TestCopiesInVain:
    """What nothing reads is copied by programs, and then has a value; a call of what overwrites it needs none."""

    @few(
        "loop, again",
        product([None, 2, cl.Revolve(1)], [cl.Recompute.all(), None, cl.Recompute.every(1)]),
        quick=["None, every", "Revolve(snapshots=1), None"],
        ids=lambda own: getattr(own, "kind", own),
    )
    @pytest.mark.parametrize(("body", "inner"), NESTED)
    def test_the_gradient_is_that_of_the_lowered_program(self, body, inner, loop, again):
        for num_calls in (1, 2):
            graph, caller = nested(body, inner)
            x, y, z = (graph.add_variable(name, (3,)) for name in "xyz")
            calls = [cl.Call(caller, a=x, b=y, c=z), cl.Call(caller, a=z, b=y, c=x)][:num_calls]
            program = cl.Repeat(3, calls, recompute=loop)
            given = {"x": np.array([0.5, 1, 2], np.float32), "y": np.array([1, 0.25, 0.5], np.float32)}
            run = cl.lower(graph, program, inputs=[*given], outputs=[z])
            found = cl.gradient(graph, of=z, wrt=[x, y], program=program, cotangent=1.0, recompute=again)
            both = cl.Sequence(found.forward, found.backward)
            backward = cl.lower(graph, both, inputs=[*given], outputs=[*found])
            made, expected = at_once(backward, jax.grad(lambda own: run(own)["z"].sum()))(given)
            for own in (x, y):
                agree(made[found[own].source.name], expected[own.name], own.name)


class TestWhatIsLeft:
    def test_what_runs_again_leaves_what_it_left_the_first_time(self):
        """A turn writes something that nothing reads: it is that of the last turn, not of the one made again last."""
        graph = cl.Graph(cl.IPU(num_tiles=4))
        x, y = graph.add_variable("x", (3,)), graph.add_variable("y", (3,))
        i = cl.grid(3)
        turn = cl.codelet(lambda x: {"x": 1.5 * jnp.sin(x), "y": 2 * x})
        graph.add_vertex("turn", turn, x=x[i], y=y[i])
        program = cl.Repeat(6, graph.compute_sets[0], recompute=2)
        found = cl.gradient(graph, of=x, wrt=[x], cotangent=np.ones(3), program=program)
        value = {"x": np.array([0.5, 1, 2], np.float32)}
        expected = cl.interpret(graph, values=value, outputs=[x, y], program=program)
        made = cl.interpret(graph, values=value, outputs=[x, y], program=cl.Sequence(found.forward, found.backward))
        for name in "xy":
            np.testing.assert_array_equal(made[name], expected[name])
