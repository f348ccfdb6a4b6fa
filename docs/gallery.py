"""The profiles of which the site shows reports: a stencil on 64 tiles, and the loss and gradient of a small network."""

from collections.abc import Mapping

import jax
import jax.numpy as jnp

import codelet as cl


def stencil() -> cl.Profile:
    """One step of heat on 128 x 128 points."""

    @cl.codelet
    def diffuse(here, north, south, west, east):
        return here + 0.1 * (north + south + west + east - 4 * here)

    graph = cl.Graph(cl.IPU(num_tiles=64))
    u, v = graph.add_variable("u", (128, 128)), graph.add_variable("v", (128, 128))
    i, j = cl.grid(i=range(1, 127), j=range(1, 127))
    around = {"north": u[i - 1, j], "south": u[i + 1, j], "west": u[i, j - 1], "east": u[i, j + 1]}
    graph.add_vertex("diffuse", diffuse, here=u[i, j], **around, out=v[i, j])
    return cl.Engine(graph).profile()


def network() -> cl.Profile:
    """The loss of two layers and its gradient, on 64 tiles."""

    def loss(weights, x):
        with jax.named_scope("hidden"):
            x = jax.nn.relu(x @ weights[0])
        with jax.named_scope("head"):
            return jnp.mean(jax.nn.log_softmax(x @ weights[1]) ** 2)

    weights = [jnp.ones((64, 128)), jnp.ones((128, 10))]
    return cl.trace(jax.value_and_grad(loss), weights, jnp.ones((32, 64)), target=cl.IPU(num_tiles=64)).profile()


def profiles() -> Mapping[str, cl.Profile]:
    """The profiles, by the names of their files."""
    return {"stencil": stencil(), "network": network()}
