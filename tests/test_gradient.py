"""Gradients as graphs: what the vertices of a backward pass compute, beside what JAX gives for the lowered program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import event, given
from hypothesis import strategies as st

import codelet as cl
from tests import strategies as s


def slopes(case: s.Case, of: str, wrt: list[str], cotangent: np.ndarray) -> dict[str, np.ndarray]:
    """JAX's gradient of the lowered program."""
    graph = case.graph
    run = cl.lower(graph, inputs=[*case.inputs], outputs=[of], program=case.sequence())
    fixed = {name: value for name, value in case.inputs.items() if name not in wrt}

    def product(own):
        return jnp.vdot(run({**fixed, **own})[of], cotangent)

    return jax.grad(product)({name: case.inputs[name] for name in wrt})


def agree(found: np.ndarray, expected: np.ndarray, name: str) -> None:
    scale = max(1.0, float(np.abs(expected).max(initial=0)))
    np.testing.assert_allclose(found, expected, 2e-4, 2e-4 * scale, err_msg=name)


class TestGenerated:
    @given(st.data())
    def test_it_is_that_of_the_lowered_program(self, data):
        case = data.draw(s.cases(bounded=True))
        floats = [name for name in case.inputs if case.graph_dtype(name) == np.float32]
        outputs = [name for name in case.outputs if case.graph_dtype(name) == np.float32]
        if not floats or not outputs:
            return
        of = data.draw(st.sampled_from(outputs))
        wrt = data.draw(st.lists(st.sampled_from(floats), min_size=1, max_size=4, unique=True))
        shape = case.graph.variable(of).shape
        cotangent = np.random.default_rng(0).uniform(-1, 1, shape).astype(np.float32)
        expected = slopes(case, of, wrt, cotangent)
        found = cl.gradient(case.graph, of, wrt, program=case.sequence(), cotangent=cotangent)
        program = cl.Sequence(found.forward, found.backward)
        names = {name: own.source.name for name, own in zip(wrt, found, strict=True)}
        run = cl.lower(case.graph, inputs=[*case.inputs], outputs=[*names.values()], program=program)
        made = run(case.inputs)
        event("zero" if not any(np.any(own) for own in expected.values()) else "not zero")
        for name in wrt:
            agree(made[names[name]], expected[name], name)


class TestFunctions:
    def test_one_whose_derivative_is_a_codelets(self):
        """What runs is the body, what is differentiated the codelet: here another function, so that it shows."""
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x, y = (graph.add_variable(name, (3,)) for name in "xy")
        a, b = (graph.add_variable(name, (3,)) for name in "ab")
        i = cl.grid(3)
        graph.add_vertex("body", cl.codelet(lambda a: 2 * a), a=a[i], out=b[i])
        derivative = cl.codelet(lambda a: {"b": jnp.sum(a) * a})
        function = graph.add_function(graph.compute_sets[-1], [a, b], derivative=derivative)
        program = [cl.Call(function, a=x, b=y), cl.Call(function, a=y, b=x)]
        found = cl.gradient(graph, x, [x], program=program, cotangent=[1.0, 2.0, 3.0])
        both = cl.Sequence(found.forward, found.backward)
        value = np.array([0.5, -1.0, 2.0], np.float32)
        expected = jax.grad(
            lambda v: cl.lower(graph, inputs=[x], outputs=[x], program=program)({"x": v})["x"] @ np.array([1.0, 2, 3])
        )(value)
        made = cl.interpret(graph, {"x": value}, [found[x]], both)[found[x].source.name]
        np.testing.assert_allclose(made, expected, 1e-5)
