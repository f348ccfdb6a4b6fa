"""Mends that errors name: what they say to write computes what was meant."""

from __future__ import annotations

import operator
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl

MEANT = {
    "+": operator.add,
    "a number first": lambda x, y: 2 * x,
    "-": operator.sub,
    "negative": lambda x, y: -x,
    "/": operator.truediv,
    "//": operator.floordiv,
    "**": lambda x, y: x**y,
    "@": operator.matmul,
    "<": operator.lt,
    "abs": lambda x, y: abs(x),
    "+=": lambda x, y: operator.iadd(x, y),
    "jnp.sum": lambda x, y: jnp.sum(x),
    "jnp.exp": lambda x, y: jnp.exp(x),
    "jnp.tanh": lambda x, y: jnp.tanh(x),
    "jax.nn.softmax": lambda x, y: jax.nn.softmax(x),
    "np.sum": lambda x, y: np.sum(x),
    "np.max": lambda x, y: np.max(x),
    "np.exp": lambda x, y: np.exp(x),
    "np.add": lambda x, y: np.add(x, y),
}
"""What one writes of arrays, and may write of tensors."""


@pytest.mark.parametrize("name", MEANT)
def test_the_mend_computes_what_was_meant(name):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y = (graph.add_variable(own, (4, 4)) for own in "xy")
    with pytest.raises(cl.TensorError) as caught:
        MEANT[name](x, y)
    found = re.search(r"fix: +(cl\.ops\..*), or add a vertex", str(caught.value))
    assert found, caught.value
    made = eval(found[1], {"cl": cl, "jnp": jnp, "jax": jax, "graph": graph, "x": x, "y": y})
    values = {own: np.random.default_rng(k).random((4, 4), np.float32) + 0.5 for k, own in enumerate("xy")}
    results = cl.interpret(graph, values=values, outputs=[made])
    (result,) = results.values()
    expected = np.asarray(MEANT[name](jnp.asarray(values["x"]), jnp.asarray(values["y"])))
    np.testing.assert_allclose(result, expected, rtol=1e-5)


@pytest.mark.parametrize("convert", [np.asarray, jnp.asarray, jnp.cumulative_sum, str.format])
def test_what_has_no_mend_says_how_numbers_are_had(convert):
    graph = cl.Graph()
    x = graph.add_variable("x", (4,))
    with pytest.raises(cl.TensorError, match=r"add a vertex that computes it") as caught:
        convert("{:d}", x) if convert is str.format else convert(x)
    assert "cl.ops" not in str(caught.value)


ASKING = {
    "if": (lambda x: x if x[0] > 0 else -x, "jnp.where"),
    "while": (lambda x: [x := x - 1 for _ in iter(lambda: bool(x[0] > 0), False)][-1], "jax.lax.while_loop"),
    "and": (lambda x: x[0] > 0 and x[1] > 0, "jnp.where"),
    "numpy": (lambda x: np.sin(np.asarray(x)), "use jax.numpy"),
    "a place": (lambda x: [1.0, 2.0][x[0].astype(int)] * x, "index an array of JAX"),
    "a mask": (lambda x: x[x > 0], "jnp.where(mask"),
    "a number": (lambda x: x * float(x[0]), "static value"),
}
"""Functions that ask for values which are not known while they are traced, and what their mends name."""


@pytest.mark.parametrize("name", ASKING)
def test_what_asks_for_values_is_told_what_to_do(name):
    function, mend = ASKING[name]
    graph = cl.Graph()
    with pytest.raises(cl.CodeletTraceError, match=f"fix: .*{re.escape(mend)}"):
        graph.add_vertex("ask", cl.codelet(function), x=graph.add_variable("x", (4,)))
    with pytest.raises(cl.TraceError, match=f"fix: .*{re.escape(mend)}"):
        cl.trace(function, jnp.ones(4))


def test_a_backward_pass_after_the_program_alone_names_forward():
    def loss(x):
        return jnp.sum(jax.lax.fori_loop(0, 3, lambda k, own: jnp.sin(own) * x, x))

    traced = cl.trace(loss, jnp.ones(40), target=cl.IPU(num_tiles=4))
    found = cl.gradient(traced.graph, of=traced.outputs, wrt=traced.flat_inputs, program=traced.program)
    (x,) = traced.flat_inputs
    alone = cl.Sequence(traced.program, found.backward)

    def engine():
        run = cl.Engine(traced.graph, alone)
        run.write({x: np.ones(40, np.float32)})
        run.run()

    for run in (
        engine,
        lambda: cl.lower(traced.graph, alone, inputs=[x], outputs=[found[x]]),
        lambda: cl.interpret(traced.graph, values={x.name: np.ones(40, np.float32)}, outputs=[found[x]], program=alone),
    ):
        with pytest.raises(cl.UninitializedReadError, match=r"fix: +run the `forward` of the gradient in place of the"):
            run()
    both = cl.Sequence(found.forward, found.backward)
    run = cl.lower(traced.graph, both, inputs=[x], outputs=[found[x]])
    np.testing.assert_allclose(run.flat([jnp.ones(40)])[0], jax.grad(loss)(jnp.ones(40)), rtol=1e-5)
