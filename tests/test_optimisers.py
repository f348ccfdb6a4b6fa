"""Optimisers as operations: steps as optax's, in one compute set; parameters as pytrees of graphs and engines."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import codelet as cl
from tests.examples import few

SHAPES = {"w": (7, 5), "b": (5,), "none": (0, 3), "inner": {"scale": ()}}


def tree(seed: int, dtype: Any = np.float32) -> Any:
    """Arrays in the structure of some parameters."""
    random = np.random.default_rng(seed)
    is_shape = lambda own: isinstance(own, tuple)  # noqa: E731
    return jax.tree.map(lambda own: np.asarray(random.normal(size=own), dtype), SHAPES, is_leaf=is_shape)


def _sgd(graph, parameters, gradients, rate):
    cl.ops.sgd(graph, parameters, gradients, learning_rate=rate)
    return None


def _momentum(nesterov):
    def make(graph, parameters, gradients, rate):
        velocity = graph.add_variables("velocity", parameters)
        options = {"learning_rate": rate, "momentum": 0.8, "nesterov": nesterov}
        cl.ops.momentum(graph, parameters, gradients, velocity, **options)
        return velocity

    return make


def _adam(operation, **options):
    def make(graph, parameters, gradients, rate):
        state = cl.ops.adam_state(graph, parameters)
        operation(graph, parameters, gradients, state, learning_rate=rate, **options)
        return state

    return make


RATE = 0.03
CASES = {
    "sgd": (_sgd, optax.sgd(RATE)),
    "momentum": (_momentum(False), optax.sgd(RATE, 0.8)),
    "nesterov": (_momentum(True), optax.sgd(RATE, 0.8, nesterov=True)),
    "adam": (_adam(cl.ops.adam), optax.adam(RATE)),
    "adam of other averages": (_adam(cl.ops.adam, b1=0.5, b2=0.9, eps=1e-3), optax.adam(RATE, 0.5, 0.9, 1e-3)),
    "adamw": (_adam(cl.ops.adamw, weight_decay=0.1), optax.adamw(RATE, weight_decay=0.1)),
}


def steps(make: Any, rate: Any, count: int = 4, tiles: int = 5) -> tuple[cl.Graph, Any]:
    """The parameters after some steps in an engine, with gradients that the host writes."""
    graph = cl.Graph(cl.IPU(num_tiles=tiles))
    parameters, gradients = (graph.add_variables(name, tree(0)) for name in ("parameters", "gradients"))
    tensor = graph.add_variable("rate", ()) if rate is None else rate
    state = make(graph, parameters, gradients, tensor)
    engine = cl.Engine(graph)
    engine.write(parameters, tree(0))
    if state is not None:
        engine.write(state, 0)
    if rate is None:
        engine.write({"rate": RATE})
    for k in range(count):
        engine.write(gradients, tree(k + 1))
        engine.run()
    return graph, engine.read(parameters)


@few("name", CASES, quick=["momentum", "adamw"])
def test_steps_are_optaxs(name):
    make, optimiser = CASES[name]
    wanted = jax.tree.map(jnp.asarray, tree(0))
    state = optimiser.init(wanted)
    for k in range(4):
        updates, state = optimiser.update(tree(k + 1), state, wanted)
        wanted = optax.apply_updates(wanted, updates)
    graph, made = steps(make, RATE)
    jax.tree.map(lambda own, theirs: np.testing.assert_allclose(own, theirs, rtol=2e-5, atol=1e-6), made, wanted)
    sets = [own for own in graph.compute_sets if "count" not in own.name]
    assert len(sets) == 1, "one compute set for all parameters"


@pytest.mark.parametrize("name", ["sgd", "adam"])
def test_a_rate_may_be_a_tensor(name):
    make, _ = CASES[name]
    made, wanted = steps(make, None)[1], steps(make, RATE)[1]
    jax.tree.map(lambda own, theirs: np.testing.assert_allclose(own, theirs, rtol=1e-6, atol=1e-7), made, wanted)


def test_parameters_of_16_bits_have_averages_of_32():
    graph = cl.Graph(cl.IPU(num_tiles=3))
    w, slope = (graph.add_variable(name, (6,), "float16") for name in ("w", "slope"))
    state = cl.ops.adam_state(graph, {"w": w})
    assert state.mean["w"].dtype == np.float32
    cl.ops.adam(graph, {"w": w}, {"w": slope}, state, learning_rate=0.5)
    engine = cl.Engine(graph)
    engine.write({w: np.ones(6, np.float16), slope: np.full(6, 2.0, np.float16)})
    engine.write(state, 0)
    engine.run()
    np.testing.assert_allclose(engine.read(w), 0.5, rtol=1e-3)


def test_what_lies_nowhere_begins_on_other_tiles():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    several = [graph.add_variable(f"p{k}", (4,)) for k in range(6)]
    slopes = [graph.add_variable(f"s{k}", (4,)) for k in range(6)]
    cl.ops.sgd(graph, several, slopes, learning_rate=1.0)
    tiles = {int(v.tile) for v in graph.iter_vertices() if v.tile is not None}
    assert len(tiles) > 1


MISTAKES = {
    "pytrees that are not alike": (
        lambda g, p: cl.ops.sgd(g, p, [p["w"]], learning_rate=1.0),
        "structure of parameters",
    ),
    "shapes that are not": (
        lambda g, p: cl.ops.sgd(g, p, {"w": p["b"], "b": p["b"]}, learning_rate=1.0),
        "gradients of ops.sgd is not of the shapes",
    ),
    "a rate that is none": (lambda g, p: cl.ops.sgd(g, p, p, learning_rate="high"), "learning_rate of ops.sgd"),
    "a rate of several": (lambda g, p: cl.ops.sgd(g, p, p, learning_rate=p["b"]), "is not one number"),
    "no state": (lambda g, p: cl.ops.adam(g, p, p, None, learning_rate=1.0), "state of ops.adam is invalid"),
    "an average beyond 1": (
        lambda g, p: cl.ops.adam(g, p, p, cl.ops.adam_state(g, p), learning_rate=1.0, b1=1.5),
        "b1 of ops.adam",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_told(name):
    graph = cl.Graph(cl.IPU(num_tiles=2))
    parameters = graph.add_variables("p", {"w": np.zeros((2, 3), np.float32), "b": np.zeros(3, np.float32)})
    make, told = MISTAKES[name]
    with pytest.raises(cl.OperationError, match=told):
        make(graph, parameters)


# --- pytrees ----------------------------------------------------------------------------------------------------


def test_variables_in_a_pytree():
    graph = cl.Graph()
    with graph.scope("model"):
        made = graph.add_variables("layers", [{"w": np.zeros((2, 3)), "b": None}, jax.ShapeDtypeStruct((4,), "int32")])
    assert made[0]["b"] is None
    assert [own.name for own in graph.variables] == ["model/layers/0/w", "model/layers/1"]
    assert (made[1].shape, made[1].dtype) == ((4,), np.int32)
    with pytest.raises(cl.VariableError, match="no shape and dtype"):
        graph.add_variables("more", {"x": 3.0})


def test_gradients_by_a_pytree_come_as_one():
    graph = cl.Graph(cl.IPU(num_tiles=2))
    p = graph.add_variables("p", {"w": np.zeros((3, 2), np.float32), "b": np.zeros(2, np.float32)})
    x = graph.add_constant("x", np.arange(3.0, dtype=np.float32).reshape(1, 3))
    y = cl.ops.map(graph, jnp.add, cl.ops.matmul(graph, x, p["w"]), p["b"])
    found = cl.gradient(graph, of=cl.ops.sum(graph, y), wrt=p)
    engine = cl.Engine(graph, cl.Sequence(found.forward, found.backward))
    engine.write(p, 1.0)
    engine.run()
    made = engine.read(found[p])
    np.testing.assert_array_equal(made["w"], [[0, 0], [1, 1], [2, 2]])
    np.testing.assert_array_equal(made["b"], [1, 1])
    assert found[{"only": p["b"]}]["only"] is found[p["b"]]


def test_what_is_written_is_alike():
    graph = cl.Graph()
    p = graph.add_variables("p", {"w": np.zeros(2), "b": np.zeros(3)})
    engine = cl.Engine(graph)
    with pytest.raises(cl.ArrayError, match="not in the structure"):
        engine.write(p, {"w": np.zeros(2)})
    engine.write(p, {"w": [1, 2], "b": np.ones(3)})
    engine.write(p["w"], 5)
    np.testing.assert_array_equal(engine.read(p)["w"], [5, 5])
