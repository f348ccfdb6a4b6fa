"""Programs in jraph."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import jraph
import numpy as np

from tests.ecosystem.program import drawn, program, whole

NODES, EDGES = 34, 156


def _graph() -> Any:
    return jraph.GraphsTuple(
        nodes=drawn(NODES, 16),
        edges=drawn(EDGES, 8),
        senders=whole(NODES, EDGES),
        receivers=whole(NODES, EDGES, seed=1),
        n_node=np.array([NODES], np.int32),
        n_edge=np.array([EDGES], np.int32),
        globals=np.zeros((1, 4), np.float32),
    )


def _trained(run: Any, parameters: Any, loss: Any) -> tuple[Any, tuple[Any, ...]]:
    graph = _graph()

    def step(parameters, nodes, edges):
        own = lambda parameters: loss(run(parameters, graph._replace(nodes=nodes, edges=edges)))  # noqa: E731
        value, slopes = jax.value_and_grad(own)(parameters)
        return jax.tree.map(lambda a, b: a - 0.01 * b, parameters, slopes), value

    return step, (parameters, graph.nodes, graph.edges)


@program("jraph/convolution", "jraph examples: Zachary's karate club, graph convolutions")
def convolution():
    def run(parameters, graph):
        for k, weights in enumerate(parameters):
            last = k == len(parameters) - 1
            act = (lambda own: own) if last else jax.nn.relu
            layer = jraph.GraphConvolution(lambda nodes, w=weights: nodes @ w, add_self_edges=True)
            graph = layer(graph)
            graph = graph._replace(nodes=act(graph.nodes))
        return graph

    loss = lambda graph: -jax.nn.log_softmax(graph.nodes)[jnp.array([0, 33]), jnp.array([0, 1])].sum()  # noqa: E731
    return _trained(run, [drawn(16, 5), drawn(5, 2)], loss)


@program("jraph/network", "jraph.readthedocs.io: GraphNetwork of edges, nodes and the whole")
def network():
    def run(parameters, graph):
        joined = lambda w: lambda *own: jax.nn.relu(jnp.concatenate(own, 1) @ w)  # noqa: E731
        edges, nodes, whole = parameters
        layer = jraph.GraphNetwork(
            lambda own, sent, received, around: joined(edges)(own, sent, received, around),
            lambda own, sent, received, around: joined(nodes)(own, sent, received, around),
            lambda own_nodes, own_edges, around: joined(whole)(own_nodes, own_edges, around),
        )
        return layer(graph)

    parameters = [drawn(8 + 16 + 16 + 4, 12), drawn(16 + 12 + 12 + 4, 10), drawn(10 + 12 + 4, 6)]
    return _trained(run, parameters, lambda graph: (graph.globals**2).sum() + (graph.nodes**2).mean())


@program("jraph/attention", "jraph.readthedocs.io: GAT, attention between neighbours")
def attention():
    def run(parameters, graph):
        query, scores = parameters
        layer = jraph.GAT(
            lambda nodes: nodes @ query,
            lambda sent, received, edges: jax.nn.leaky_relu(jnp.concatenate([sent, received], 1) @ scores),
            None,
        )
        return layer(graph._replace(edges=None))

    return _trained(run, [drawn(16, 12), drawn(24, 1)], lambda graph: (graph.nodes**2).sum())
