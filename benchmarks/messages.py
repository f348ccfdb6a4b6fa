"""Messages along the edges of a graph with a few nodes that very many point to: ragged fields."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark, gradient_of


@cl.codelet
def message(h, weight):
    """What travels along an edge."""
    return weight * jnp.tanh(h)


@cl.codelet
def total(messages):
    """What a node makes of all that it receives."""
    return jnp.sum(messages)


class Network(NamedTuple):
    """Edges in no order, by their ends; and the edges that come into each node, in compressed rows."""

    senders: np.ndarray
    receivers: np.ndarray
    incoming: np.ndarray
    offsets: np.ndarray


def network(edges: int, nodes: int) -> Network:
    """Random edges. The chance to receive one falls with the square root of a node's rank: a power law of degrees."""
    random = np.random.default_rng(1)
    chances = np.arange(1, nodes + 1) ** -0.5
    receivers = random.choice(nodes, edges, p=chances / chances.sum()).astype(np.int32)
    senders = random.integers(0, nodes, edges, np.int32)
    offsets = np.concatenate([[0], np.cumsum(np.bincount(receivers, minlength=nodes))])
    return Network(senders, receivers, np.argsort(receivers, kind="stable").astype(np.int32), offsets)


def build_messages(known: Network) -> tuple[cl.Graph, list[cl.Tensor], cl.Tensor]:
    """A vertex for each edge, and one for each node over the messages that come in: the graph, inputs and sums."""
    edges, nodes = len(known.senders), len(known.offsets) - 1
    graph = cl.Graph()
    h, weight = graph.add_variable("h", (nodes,)), graph.add_variable("weight", (edges,))
    sent, y = graph.add_variable("sent", (edges,)), graph.add_variable("y", (nodes,))
    e, node = cl.grid(edges), cl.grid(nodes)
    graph.add_vertex("send", message, h=h[cl.table(known.senders)[e]], weight=weight[e], out=sent[e])
    rows = cl.table(known.incoming, offsets=known.offsets)
    graph.add_vertex("receive", total, messages=sent[rows[node]], out=y[node])
    return graph, [h, weight], y


def lower_messages(known: Network) -> cl.Lowered:
    """That graph, fused."""
    graph, inputs, y = build_messages(known)
    return cl.lower(graph, inputs=inputs, outputs=[y])


def ours(lowered: cl.Lowered, h: jax.Array, weight: jax.Array) -> jax.Array:
    """The lowered graph."""
    return lowered({"h": h, "weight": weight})["y"]


def plain(nodes: int, senders: jax.Array, receivers: jax.Array, h: jax.Array, weight: jax.Array) -> jax.Array:
    """A gather and a segment sum. With the edges sorted by receiver first it is no faster."""
    sent = weight * jnp.tanh(h.at[senders].get(mode="promise_in_bounds"))
    return jax.ops.segment_sum(sent, receivers, nodes, mode=jax.lax.GatherScatterMode.PROMISE_IN_BOUNDS)


def seconds_to_compile(which: str, edges: int, nodes: int) -> float:
    """From the network's arrays to what XLA made of one side: of ours with the graph built and lowered."""
    known = network(edges, nodes)
    h, weight = jax.ShapeDtypeStruct((nodes,), np.float32), jax.ShapeDtypeStruct((edges,), np.float32)
    jax.block_until_ready(jnp.zeros(3) + 1)  # starting XLA is no part of it
    start = time.perf_counter()
    if which == "ours":
        jax.jit(ours).lower(lower_messages(known), h, weight).compile()
    else:
        ends = [jnp.asarray(end) for end in (known.senders, known.receivers)]
        jax.jit(plain, static_argnums=0).lower(nodes, *ends, h, weight).compile()
    return time.perf_counter() - start


@benchmark
def messages(edges: int = 1_000_000, nodes: int = 100_000, rounds: int = 5) -> Generator[Comparison | Row, Row, None]:
    """A million random edges over 10^5 nodes: a message along each, and each node adds up what it receives.

    Nodes receive from none to more than a thousand messages. The gradient is with respect to the nodes' values
    and the edges' weights. What compiling costs is measured in a process of its own each time, in turn.
    """

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return random.standard_normal(nodes, np.float32), random.standard_normal(edges, np.float32)

    def plain_held() -> tuple[Any, ...]:
        known = network(edges, nodes)
        return known.senders, known.receivers

    forward = Comparison(
        "messages",
        ours=jax.jit(ours),
        plain=jax.jit(lambda senders, receivers, h, weight: plain(nodes, senders, receivers, h, weight)),
        arguments=arguments,
        bar=1.2,
        ours_held=lambda: (lower_messages(network(edges, nodes)),),
        plain_held=plain_held,
    )
    yield forward
    yield gradient_of(forward, bar=1.2)
    times = [
        [in_fresh_process(seconds_to_compile, which, edges, nodes) for which in ("ours", "plain")]
        for _ in range(rounds)
    ]
    own, theirs = np.median(times, axis=0).tolist()
    yield Row("messages/compile", own, None, own / theirs, 3.0, f"to plain JAX's {1e3 * theirs:.0f} ms")
