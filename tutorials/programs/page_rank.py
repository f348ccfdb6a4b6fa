"""PageRank of a random graph: a vertex for each node, whose field is the ragged row of those that link to it.

Run it with `python -m tutorials.programs.page_rank`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show
from tutorials.programs.random_network import Network, random_network

DAMPING = 0.85


@cl.codelet
def share(rank, out_degree):
    """What a page gives each page that it links to."""
    return rank / out_degree


@cl.codelet
def collect(shares, *, pages):
    """What a page gets: a little from chance, the rest from those that link to it."""
    return (1 - DAMPING) / pages + DAMPING * jnp.sum(shares)


def lower_page_rank(network: Network, steps: int) -> cl.Lowered:
    """As many rounds as there are steps, from equal ranks."""
    pages = network.nodes
    graph = cl.Graph()
    rank, given = graph.add_variable("rank", (pages,)), graph.add_variable("given", (pages,))
    out_degree = graph.add_constant("out_degree", np.maximum(network.out_degrees, 1).astype(np.float32))
    page = cl.grid(pages)
    linking = cl.table(network.senders, offsets=network.offsets)
    with graph.record() as step:
        graph.add_vertex("share", share, rank=rank[page], out_degree=out_degree[page], out=given[page])
        graph.add_vertex("collect", collect, shares=given[linking[page]], pages=pages, out=rank[page])
    return cl.lower(graph, cl.Repeat(steps, step), inputs=[rank], outputs=[rank])


def plain_page_rank(network: Network, steps: int, rank: jax.Array) -> jax.Array:
    """The same by a segment sum over the edges."""
    pages = network.nodes
    receivers = np.repeat(np.arange(pages), np.diff(network.offsets))
    out_degree = np.maximum(network.out_degrees, 1).astype(np.float32)

    def step(_: object, rank: jax.Array) -> jax.Array:
        shares = (rank / out_degree)[network.senders]
        got = jax.ops.segment_sum(shares, receivers, pages, indices_are_sorted=True)
        return (1 - DAMPING) / pages + DAMPING * got

    return jax.lax.fori_loop(0, steps, step, rank)


def twin(pages: int = 20_000, links: int = 400_000, steps: int = 20) -> Comparison:
    """Both sides."""
    network = random_network(pages, links)
    return Comparison(
        "page_rank",
        ours=jax.jit(lambda lowered, rank: lowered({"rank": rank})["rank"]),
        plain=jax.jit(lambda rank: plain_page_rank(network, steps, rank)),
        arguments=lambda _: (np.full(pages, 1 / pages, np.float32),),
        ours_held=lambda: (lower_page_rank(network, steps),),
    )


if __name__ == "__main__":
    show(twin())
