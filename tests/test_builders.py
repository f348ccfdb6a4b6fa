"""Functions that build graphs, with programs, targets and streams."""

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl


@cl.codelet
def newton(y, x):
    return {"y": (y + x / y) / 2}


@cl.codelet
def is_off(y, x):
    return jnp.max(jnp.abs(y * y - x)) > 1e-3


def roots(graph, x, *, turns=8, form="program"):
    y, i = graph.add_variable("y", x.shape), cl.grid(*x.shape)
    with graph.record() as step:
        graph.add_vertex("step", newton, y=y[i], x=x[i])
    program = cl.Sequence(cl.Copy(1.0, y), cl.Repeat(turns, step))
    return {
        "program": lambda: (y, program),
        "list": lambda: ({"root": y}, [cl.Copy(1.0, y), [cl.Repeat(turns, step)]]),
        "set": lambda: (x, graph.compute_sets[0]),
        "pair": lambda: ((y, y[0]), program),
        "nothing": lambda: ([], program),
    }[form]()


def watched(graph, x):
    """Roots, and what is looked at on the way."""
    y, off, i = graph.add_variable("y", x.shape), graph.add_variable("off", (), bool), cl.grid(*x.shape)
    seen, ends = graph.add_output_stream("seen", x.shape), graph.add_output_stream("ends", ())
    with graph.record() as step:
        graph.add_vertex("step", newton, y=y[i], x=x[i])
    with graph.record() as look:
        graph.add_vertex("look", is_off, y=y, x=x, out=off)
    loop = cl.RepeatWhile(look, off, [step, cl.Copy(y, seen)], max_iterations=9)
    return {"seen": seen, "y": y, "ends": ends}, [cl.Copy(1.0, y), loop, cl.Copy(y[0], ends)]


X = jnp.asarray([4.0, 9.0])


def test_a_function_returns_its_outputs_and_a_program():
    layer = cl.lower(roots)
    np.testing.assert_allclose(layer(X), [2, 3])
    np.testing.assert_allclose(layer(X, form="list")["root"], [2, 3])
    whole, first = layer(X, form="pair")
    assert (whole.tolist(), first.tolist()) == ([2, 3], 2)
    assert layer(X, form="nothing") == []
    np.testing.assert_allclose(jax.jit(layer)(X), [2, 3])
    np.testing.assert_allclose(jax.grad(lambda x: layer(x).sum())(X), [1 / 4, 1 / 6], rtol=1e-5)
    np.testing.assert_allclose(layer(X, turns=0), [1, 1])
    with pytest.raises(cl.UninitializedReadError, match=r"y\[0\] is read"):  # the step alone
        layer(X, form="set")
    run = layer.at(X)
    assert "Repeat(8)" in str(run.program)
    again = pickle.loads(pickle.dumps(layer))
    assert again == layer
    np.testing.assert_allclose(again(X), [2, 3])


def test_a_function_builds_for_a_target():
    target = cl.IPU(num_tiles=3)
    layer = cl.lower(roots, target=target)
    assert layer.at(X).graph.target is target
    assert layer != cl.lower(roots)
    assert layer == cl.lower(roots, target=cl.IPU(num_tiles=3))
    assert pickle.loads(pickle.dumps(layer)).target == target
    run = layer.at(X)
    engine = cl.Engine(run.graph, run.program)
    assert engine.machine().placement.num_tiles == 3
    engine.write({"x": np.asarray(X)})
    engine.run()
    np.testing.assert_allclose(engine.read("y"), layer(X))


def test_a_function_returns_what_it_sends():
    layer = cl.lower(watched)
    made = jax.device_get(jax.jit(layer)(X))
    count = int(made["seen"].count)
    assert 2 < count < 9
    np.testing.assert_allclose(made["seen"].values[count - 1], made["y"])
    assert not np.any(made["seen"].values[count:])
    np.testing.assert_allclose(made["ends"], [2], rtol=1e-3)
    run = layer.at(X)
    expected = cl.interpret(run.graph, values={"x": X}, outputs=["seen", "y"], program=run.program)
    np.testing.assert_allclose(made["seen"].values[:count], expected["seen"], rtol=1e-6)


def fed(graph, x):
    return x, cl.Copy(graph.add_input_stream("s", ()), x[0])


ELSEWHERE = cl.Graph()

MISTAKES = {
    "a program alone": (
        lambda: cl.lower(lambda graph, x: cl.Copy(0.0, x))(X),
        cl.FieldTypeError,
        "return outputs, program",
    ),
    "a program elsewhere": (
        lambda: cl.lower(lambda graph, x: (x, cl.Copy(0.0, ELSEWHERE.add_variable("x", ()))))(X),
        cl.ForeignGraphError,
        "another graph",
    ),
    "an input stream": (lambda: cl.lower(fed)(X), cl.ProgramError, "an argument with a first axis of iterations"),
    "a stream that is not sent to": (
        lambda: cl.lower(lambda graph, x: graph.add_output_stream("s", ()))(X),
        cl.ProgramError,
        "streams that are copied to",
    ),
    "a symbol": (lambda: cl.lower(lambda graph, x: x[cl.grid(2)])(X), cl.FieldTypeError, "without symbols"),
    "a program for a function": (
        lambda: cl.lower(roots, ELSEWHERE.default_program),  # type: ignore[call-overload]
        cl.ProgramError,
        "`return y, program`",
    ),
    "inputs of a function": (
        lambda: cl.lower(roots, inputs=["x"], outputs=["y"]),  # type: ignore[call-overload]
        cl.ProgramError,
        "what it returns are the outputs",
    ),
    "a program first": (
        lambda: cl.lower(ELSEWHERE.default_program),  # type: ignore[call-overload]
        cl.ProgramError,
        "the graph comes first",
    ),
    "a graph for a target": (
        lambda: cl.lower(ELSEWHERE, inputs=[], outputs=[], target=cl.IPU()),  # type: ignore[call-overload]
        cl.ProgramError,
        "cl.Graph(target)",
    ),
    "a target": (lambda: cl.lower(roots, target="mk2"), cl.ProgramError, "cl.IPU"),  # type: ignore[call-overload]
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_what_a_function_may_not_build(mistake):
    make, error, words = MISTAKES[mistake]
    with pytest.raises(error) as caught:
        make()
    assert words in str(caught.value)
    assert "test_builders.py" in str(caught.value)
