"""A bitonic sort (Batcher, 1968): compare-exchange vertices, a compute set for each of many stages."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark


def _stages(size: int) -> Iterator[tuple[int, int]]:
    """The length of the runs that a stage merges, and how far apart the elements are that it compares."""
    run = 2
    while run <= size:
        apart = run // 2
        while apart:
            yield run, apart
            apart //= 2
        run *= 2


@cl.codelet
def exchange(low, high, up):
    """Two elements in order, in the other where it is not `up`."""
    least, most = jnp.minimum(low, high), jnp.maximum(low, high)
    return {"low": jnp.where(up == 1, least, most), "high": jnp.where(up == 1, most, least)}


def lower_sort(size: int) -> cl.Lowered:
    """A vertex for every pair that a stage compares."""
    graph = cl.Graph()
    x = graph.add_variable("x", (size,))
    for run, apart in _stages(size):
        block, lane = cl.grid(size // (2 * apart), apart)
        low = 2 * apart * block + lane
        up = 1 - low // run % 2
        graph.add_vertex(f"runs of {run}, {apart} apart", exchange, low=x[low], high=x[low + apart], up=up)
    return cl.lower(graph, inputs=[x], outputs=[x])


def plain_sort(x: jax.Array) -> jax.Array:
    """Pairs as a reshape, and both orders of them chosen by a mask known beforehand.

    The fastest of seven measured on two cores of a CPU (65,536 floats, ms): this 1.6, as behind a barrier in each
    stage, or with either order apart, which compiles three times as long; on two axes of 256, transposed where pairs
    are near each other, 1.2 times that; a `scan` of index vectors 2.7; updates in place 6.3; the flipped array and
    masks 19.
    """
    size = x.size
    for run, apart in _stages(size):
        pairs = x.reshape(-1, 2, apart)
        up = (np.arange(size // (2 * apart)) * 2 * apart // run % 2 == 0)[:, None]
        least, most = jnp.minimum(pairs[:, 0], pairs[:, 1]), jnp.maximum(pairs[:, 0], pairs[:, 1])
        x = jnp.stack([jnp.where(up, least, most), jnp.where(up, most, least)], 1).reshape(size)
    return x


def ours(lowered: cl.Lowered, x: jax.Array) -> jax.Array:
    """The lowered graph."""
    return lowered({"x": x})["x"]


def seconds_to_compile(which: str, size: int) -> float:
    """From nothing to what XLA made of one side: of ours with the graph built and lowered."""
    x = jax.ShapeDtypeStruct((size,), np.float32)
    jax.block_until_ready(jnp.zeros(3) + 1)  # starting XLA is no part of it
    start = time.perf_counter()
    if which == "ours":
        jax.jit(ours).lower(lower_sort(size), x).compile()
    else:
        jax.jit(plain_sort).lower(x).compile()
    return time.perf_counter() - start


@benchmark
def bitonic(size: int = 65536, rounds: int = 3) -> Generator[Comparison | Row, Row, None]:
    """A bitonic sort of 65,536 floats: 136 stages of 32,768 compare-exchange vertices.

    What compiling costs is measured in a process of its own each time, in turn.
    """
    yield Comparison(
        "bitonic",
        ours=jax.jit(ours),
        plain=jax.jit(plain_sort),
        arguments=lambda random: (random.standard_normal(size, np.float32),),
        bar=1.1,
        tolerance=0,
        ours_held=lambda: (lower_sort(size),),
    )
    times = [[in_fresh_process(seconds_to_compile, which, size) for which in ("ours", "plain")] for _ in range(rounds)]
    own, theirs = np.median(times, axis=0).tolist()
    yield Row("bitonic/compile", own, None, own / theirs, 1.5, f"to plain JAX's {1e3 * theirs:.0f} ms")
