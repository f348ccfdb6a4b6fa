"""Breadth-first search: distances from one node, a wave at a time, until nothing changes any more.

Run it with `python -m tutorials.programs.breadth_first`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show
from tutorials.programs.random_network import Network, random_network

FAR = np.int32(2**30)


@cl.codelet
def hop(own, near):
    """A node's distance, from its own and those of the nodes that point to it."""
    return jnp.minimum(own, jnp.min(near, initial=FAR) + 1)


@cl.codelet
def differ(before, after):
    """Whether any distance changed."""
    return jnp.any(before != after)


def lower_search(network: Network) -> cl.Lowered:
    """Waves from the old distances to the new ones and back, as long as they change."""
    nodes = network.nodes
    graph = cl.Graph()
    old, new = (graph.add_variable(name, (nodes,), jnp.int32) for name in ("old", "distance"))
    changed = graph.add_variable("changed", (), jnp.bool_)
    node = cl.grid(nodes)
    near = cl.table(network.senders, offsets=network.offsets)
    with graph.record() as wave:
        graph.add_vertex("hop", hop, own=old[node], near=old[near[node]], out=new[node])
        graph.add_vertex("look", differ, before=old, after=new, out=changed)
    program = cl.RepeatWhile(wave, changed, cl.Copy(new, old))
    return cl.lower(graph, program, inputs=[old], outputs=[new])


def plain_search(network: Network, distance: jax.Array) -> jax.Array:
    """The same by a segment minimum over the edges."""
    nodes = network.nodes
    receivers = np.repeat(np.arange(nodes), np.diff(network.offsets))

    def wave(old: jax.Array) -> jax.Array:
        near = jax.ops.segment_min(old[network.senders], receivers, nodes, indices_are_sorted=True)
        return jnp.minimum(old, jnp.minimum(near, FAR) + 1)

    def is_moving(state: tuple[jax.Array, jax.Array]) -> jax.Array:
        return jnp.any(state[0] != state[1])

    return jax.lax.while_loop(is_moving, lambda state: (state[1], wave(state[1])), (distance, wave(distance)))[1]


def twin(nodes: int = 20_000, edges: int = 60_000) -> Comparison:
    """Both sides."""
    network = random_network(nodes, edges)
    start = np.full(nodes, FAR, np.int32)
    start[int(np.argmax(network.out_degrees))] = 0
    return Comparison(
        "breadth_first",
        ours=jax.jit(lambda lowered, old: lowered({"old": old})["distance"]),
        plain=jax.jit(lambda old: plain_search(network, old)),
        arguments=lambda _: (start,),
        ours_held=lambda: (lower_search(network),),
    )


if __name__ == "__main__":
    show(twin())
