"""Values by tensor or name, results by both, one or several, and views as outputs: in all ways of running."""

from __future__ import annotations

import pickle

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.graphs.by_tensor import key_of, several

X = np.arange(6, dtype=np.float32).reshape(2, 3)


def doubled():
    """Twice a variable, which a stream says as well."""
    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y = graph.add_variable("x", (2, 3)), graph.add_variable("y", (2, 3))
    i, j = cl.grid(2, 3)
    graph.add_vertex("double", cl.codelet(lambda x: 2 * x), x=x[i, j], out=y[i, j])
    return graph, x, y


def views(x, y):
    """Views of many kinds, each with what it holds."""
    two = np.array(2 * X)
    return {
        y: two,
        y[1]: two[1],
        y[:, ::-1]: two[:, ::-1],
        y.T: two.T,
        y[[1, 0, 1]]: two[[1, 0, 1]],
        y[[0, 0, 1]]: two[[0, 0, 1]],
        y[0].pad(1): np.pad(two[0], 1),
        cl.concatenate([x, y]): np.concatenate([X, two]),
        x[0, 1]: X[0, 1],
    }


def by_interpret(graph, x, outputs):
    return cl.interpret(graph, values={x: X}, outputs=outputs)


def by_lower(graph, x, outputs):
    return cl.lower(graph, inputs=x, outputs=outputs)({x: X})


def by_engine(execution):
    def run(graph, x, outputs):
        return cl.Engine(graph, execution=execution).function(inputs=[x], outputs=outputs)({"x": X})

    return run


WAYS = {
    "interpret": by_interpret,
    "lower": by_lower,
    "jit": lambda graph, x, outputs: jax.jit(cl.lower(graph, inputs=["x"], outputs=outputs))({"x": X}),
    **{name: by_engine(name) for name in ("fused", "tiles", "addresses")},
}


@pytest.mark.parametrize("way", WAYS)
def test_views_are_outputs(way):
    graph, x, y = doubled()
    wanted = views(x, y)
    found = WAYS[way](graph, x, list(wanted))
    assert len(found) == len(wanted)
    for view, value in wanted.items():
        np.testing.assert_array_equal(found[view], value)
        assert view in found
    assert "y" in found
    np.testing.assert_array_equal(found["y"], found[y])
    np.testing.assert_array_equal(found[y[1]], 2 * X[1])  # another view of the same elements
    assert y[0] not in found
    assert found.get(y[0], 3) == 3
    assert [3] not in found
    with pytest.raises(KeyError):
        found[y[0]]


@pytest.mark.parametrize("way", WAYS)
def test_one_will_do_for_a_list(way):
    graph, x, y = doubled()
    for one in (y, "y"):
        assert list(WAYS[way](graph, x, one)) == ["y"]


def test_results_are_a_pytree():
    graph, x, y = doubled()
    run = cl.lower(graph, inputs=x, outputs=[y, x])
    found = run({x: X})
    assert isinstance(found, cl.Results)
    halved = jax.tree.map(lambda own: own / 2, found)
    assert isinstance(halved, cl.Results)
    np.testing.assert_array_equal(halved[y], X)
    assert jax.tree.structure(found) == jax.tree.structure(run({"x": X + 1}))
    slope = jax.grad(lambda values: run(values)[y].sum())({"x": X})
    np.testing.assert_array_equal(slope["x"], np.full((2, 3), 2.0))
    stacked = jax.vmap(run)({"x": jnp.stack([X, X])})
    assert stacked[y].shape == (2, 2, 3)
    _, every = jax.lax.scan(lambda carry, own: (carry, run({"x": own})), 0, jnp.stack([X, X]))
    assert every[y].shape == (2, 2, 3)
    assert type(pickle.loads(pickle.dumps(jax.tree.map(np.asarray, found)))) is cl.Results
    assert jax.tree.structure(dict(found)) == jax.tree.structure({"x": 0, "y": 0})


def test_a_carry_that_is_a_dict():
    graph, x, y = doubled()
    swap = cl.lower(graph, inputs=x, outputs=y)
    turn = lambda state, _: ({"x": swap(state)[y]}, None)  # noqa: E731
    state, _ = jax.lax.scan(turn, {"x": jnp.asarray(X)}, length=3)
    np.testing.assert_array_equal(state["x"], 8 * X)


def test_graphs_that_are_alike_have_results_that_are():
    """What is jitted of one is looked up by the views of another."""
    seen = []
    for _ in range(2):
        graph, x, y = doubled()
        run = cl.lower(graph, inputs=x, outputs=[y[1], y[[1, 0, 1]]])
        own = jax.jit(lambda values, run=run: run(values))({"x": X})
        seen.append((jax.tree.structure(own), np.asarray(own[y[[1, 0, 1]]])))
    assert seen[0][0] == seen[1][0]
    np.testing.assert_array_equal(seen[0][1], seen[1][1])


def test_values_by_tensor():
    graph, x, y = doubled()
    vertex = graph.vertex("double", 4)
    assert vertex.run({x: X})["out"] == vertex.run({"x": X})["out"] == 8
    assert not cl.check_gradient(graph, of=y, wrt=x, values={x: X}).wrong
    engine, other = cl.Engine(graph), cl.Engine(graph)
    engine.write({x: X})
    other.load_state({x: engine.state["x"]})
    np.testing.assert_array_equal(other.read(x), X)
    assert engine.profile(host_visible=x).kept == engine.profile(host_visible=["x"]).kept
    found = cl.gradient(graph, of=y[0, 0], wrt=x)
    assert found[x].shape == (2, 3)


def test_what_is_given_for_another_graph():
    graph, x, y = doubled()
    other = doubled()[1]
    run = cl.lower(graph, inputs=x, outputs=y)
    with pytest.raises(cl.ForeignGraphError, match="of another graph"):
        run({other: X})
    with pytest.raises(cl.ForeignGraphError, match="another graph"):
        cl.lower(graph, inputs=x, outputs=[other[0]])
    with pytest.raises(cl.ForeignGraphError, match="of another graph"):
        graph.vertex("double", 0).run({other: X})


def test_keys():
    graph, x, y = doubled()
    stream = graph.add_input_stream("s", (2,))
    assert (key_of(x), key_of(stream), key_of("own"), key_of(3)) == ("x", "s", "own", 3)
    tables = [key_of(y[own]) for own in ([0, 1, 1], [1, 1, 0])]
    assert len({*tables, key_of(y[0]), key_of(y[1])}) == 4
    assert several(x) == [x]
    assert several("x") == ["x"]
    assert several([x, y]) == [x, y]
    assert several(3) is None
