"""Graphs of maps come back from files where their functions have names; what cannot says why."""

import functools
import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import codelet as cl
from tests.at_once import at_once

factor = 2.0


def scaled(x):
    return factor * jnp.sin(x)


def pair(x, *, by):
    return {"a": x + by, "b": x * jax.nn.relu(x)}


FUNCTIONS = {
    "of a module": scaled,
    "with arguments": functools.partial(pair, by=3.0),
    "of JAX": jax.nn.gelu,
    "with a derivative rule": jax.nn.relu,
    "jitted": jax.nn.silu,
    "of JAX with arguments": functools.partial(jnp.logaddexp, 1.0),
    "of lax": lax.tanh,
}


def saved(value):
    return pickle.loads(pickle.dumps(value))


@pytest.mark.slow
def test_maps_and_their_gradients_come_back():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x = graph.add_variable("x", (33,))
    for function in FUNCTIONS.values():
        y = cl.ops.map(graph, function, x, name="map")
        cotangent = jax.tree.map(lambda _: x, y)
        cl.ops.map_gradient(graph, function, cotangent, x, name="slopes")
    cl.ops.map(graph, jnp.minimum, x, 3, name="number")
    again = saved(graph)
    assert str(again) == str(graph)
    assert [f.codelet.codelet for f in again.families] == [f.codelet.codelet for f in graph.families]
    outputs = [v.name for v in graph.variables if v.name != "x"]
    runs = [cl.lower(own, inputs=["x"], outputs=outputs) for own in (graph, again)]
    own, other = at_once(*runs)({"x": np.linspace(-2, 2, 33, dtype=np.float32)})
    for name in outputs:
        np.testing.assert_array_equal(own[name], other[name])


def test_a_function_is_found_by_a_process_that_has_not_seen_it(monkeypatch):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    cl.ops.map(graph, scaled, graph.add_variable("x", (5,)))
    data, before = pickle.dumps(graph), str(graph.families[0].codelet)
    monkeypatch.setitem(globals(), "factor", 4.0)  # as another process may have it
    again = pickle.loads(data)
    assert again.families[0].codelet.codelet is not graph.families[0].codelet.codelet
    assert "4.0" in str(again.families[0].codelet)
    assert str(pickle.loads(pickle.dumps(graph)).families[0].codelet) == before  # its equations have the numbers


class Unsaved:
    __name__ = "unsaved"

    def __call__(self, x):
        return x

    def __reduce__(self):
        raise TypeError("it is no use")


WITHOUT_NAMES = {
    "a lambda": lambda x: 2 * x,
    "a lambda with arguments": functools.partial(lambda k, x: k * x, 2),
    "what does not pickle": Unsaved(),
}


@pytest.mark.parametrize("kind", WITHOUT_NAMES)
def test_what_has_no_name_comes_back_as_its_equations(kind):
    graph = cl.Graph(cl.IPU(num_tiles=4))
    y = cl.ops.map(graph, WITHOUT_NAMES[kind], graph.add_variable("x", (5,)))
    again = saved(graph)
    assert str(again) == str(graph)
    runs = [cl.lower(own, inputs=["x"], outputs=[y.name]) for own in (graph, again)]
    own, other = at_once(*runs)({"x": np.linspace(-2, 2, 5, dtype=np.float32)})
    np.testing.assert_array_equal(own[y.name], other[y.name])


def library(graph):
    """Operations that map functions of their own, with numbers bound to them."""
    x, row = graph.add_variable("x", (4, 8)), graph.add_variable("row", (8,))
    line, places = graph.add_variable("line", (4,)), graph.add_variable("places", (3,), jnp.int32)
    heads = graph.add_variable("heads", (1, 4, 2, 8))
    ops = cl.ops
    ops.cast(graph, x, dtype=jnp.float16)
    ops.mean(graph, x, 1)
    ops.rms_norm_gradient(graph, x, x, row)
    ops.running_average(graph, line, line, momentum=0.5)
    ops.batch_norm_inference_gradient(graph, x, x, row, row, row)
    for mode in ("fill", "clip", "wrap"):
        ops.take(graph, x, places, 0, mode=mode)
    ops.dot_product_attention(graph, heads, heads, heads, is_causal=True)


def test_operations_of_the_library_come_back():
    graph = cl.Graph(cl.IPU(num_tiles=4))
    library(graph)
    again = saved(graph)
    assert str(again) == str(graph)
    assert [f.codelet.codelet for f in again.families] == [f.codelet.codelet for f in graph.families]
