"""Replicas: each row of arguments gives what one run gives, and gradients of what is shared are sums."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh

import codelet as cl
from benchmarks.collectives import collectives
from codelet.models.mnist import init_parameters, network
from tests.at_once import at_once
from tests.examples import examples, few
from tests.meshes import mesh_of
from tests.strategies import Case, arrived, cases
from tests.ways import lowered

MESHES = st.sampled_from([(2,), (3,), (2, 1), (2, 2), (2, 4), (4, 2)]).map(lambda extents: mesh_of(*extents))


def replicated(case: Case, mesh: Mesh, shared: list[str]) -> cl.Lowered:
    """A case, its replicas along the mesh's first axis."""
    return cl.lower(
        case.graph,
        case.sequence(),
        inputs=list(case.inputs),
        outputs=case.outputs,
        mesh=mesh,
        replicas="a",
        shared=shared,
    )


@examples(3)
@given(cases(np.int32), MESHES, st.data())
def test_each_gives_what_one_run_gives(case: Case, mesh: Mesh, data):
    count = mesh.shape["a"]
    shared = [name for name in case.inputs if data.draw(st.booleans())]
    others = [{name: np.roll(value, k) for name, value in case.inputs.items()} for k in range(count)]
    values = {name: np.stack([own[name] for own in others]) for name in case.inputs if name not in shared}
    values |= {name: case.inputs[name] for name in shared}
    run, one = replicated(case, mesh, shared), jax.jit(lowered(case))
    results = jax.jit(run)(values)
    for k, own in enumerate(others):
        expected = arrived(one({**own, **{name: case.inputs[name] for name in shared}}))
        row = arrived(jax.tree.map(lambda array, k=k: array[k], results))
        for name, value in expected.items():
            np.testing.assert_array_equal(row[name], value, err_msg=name)


@cl.codelet
def scaled(x, w):
    return x * w


def scale(graph, x, w):
    i = cl.grid(*x.shape)
    return graph.add_vertex("scale", scaled, x=x[i], w=w[i])


@few("extents", [(4,), (2, 4)], quick=["(4)"])
def test_gradients_of_what_is_shared_are_sums(extents):
    mesh = mesh_of(*extents)
    layer = cl.lower(scale, mesh=mesh, replicas="a", shared=["w"])
    x = np.random.default_rng(0).normal(size=(extents[0], 8)).astype(np.float32)
    w = np.arange(8, dtype=np.float32)
    slope = jax.grad(lambda w, x: (layer(x, w) ** 2).sum())
    np.testing.assert_allclose(slope(w, x), 2 * w * (x**2).sum(0), rtol=1e-6)


def test_a_batch_in_parts_has_the_gradient_of_the_batch():
    parameters = init_parameters(jax.random.key(0))
    random = np.random.default_rng(0)
    images, labels = random.random((8, 784), np.float32), random.integers(0, 10, 8)
    mesh = mesh_of(2, 2)
    parts, whole = cl.lower(network, mesh=mesh, replicas="a", shared=["layers"]), cl.lower(network)

    def loss(logits):
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()

    ours = jax.grad(lambda p: loss(parts(images.reshape(2, 4, 784), p).reshape(8, 10)))
    expected = jax.grad(lambda p: loss(whole(images, p)))
    jax.tree.map(
        lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), *at_once(ours, expected)(parameters)
    )


def test_replicas_send_each_other_nothing():
    mesh = mesh_of(4)
    layer = cl.lower(scale, mesh=mesh, replicas="a", shared=["w"])
    text = jax.jit(layer).lower(np.ones((4, 8), np.float32), np.ones(8, np.float32)).compile().as_text()
    assert text is not None
    assert not collectives(text)


def test_one_that_aborts_aborts_all():
    graph = cl.Graph()
    x = graph.add_variable("x", (), "int32")
    program = cl.AbortOn(x, "too much")
    run = cl.lower(graph, program, inputs=["x"], outputs=["x"], mesh=mesh_of(2), replicas="a")
    np.testing.assert_array_equal(run({"x": np.zeros(2, np.int32)})["x"], [0, 0])
    with pytest.raises(Exception, match="too much"):
        jax.block_until_ready(run({"x": np.array([0, 1], np.int32)}))
    jax.effects_barrier()


def test_streams_are_of_each():
    graph = cl.Graph()
    x, total = graph.add_variable("x", (3,)), graph.add_variable("total", (3,))
    i = cl.grid(3)
    given_, sent = graph.add_input_stream("given", (3,)), graph.add_output_stream("sent", (3,))
    with graph.record() as add:
        graph.add_vertex("add", scaled, x=x[i], w=x[i], out=total[i])
    turn = cl.Sequence(cl.Copy(given_, x), add, cl.Copy(total, sent))
    run = cl.lower(graph, cl.Repeat(5, turn), inputs=[], outputs=[], mesh=mesh_of(2, 3), replicas="a")
    values = np.random.default_rng(0).normal(size=(2, 5, 3)).astype(np.float32)
    np.testing.assert_allclose(run({"given": values})["sent"], values**2, rtol=1e-6)
