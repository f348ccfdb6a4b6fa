"""How fast a graph is built one vertex at a time."""

from __future__ import annotations

import time
from collections.abc import Generator

import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark

CHUNK = 16

LIMIT_SECONDS = 1e-5
"""For one vertex: 100,000 a second."""


@cl.codelet
def dot(x, w):
    """The product of a chunk of the vector with a chunk of a row."""
    return jnp.dot(x, w)


def seconds_per_vertex(rows: int, parts: int) -> float:
    """What a call of `add_vertex` takes, with the views of its three fields taken by indexing."""
    graph = cl.Graph()
    x = graph.add_variable("x", (CHUNK * parts,))
    w = graph.add_variable("w", (rows, CHUNK * parts))
    part = graph.add_variable("part", (rows, parts))
    multiply = graph.add_compute_set("multiply")
    start = time.perf_counter()
    for row in range(rows):
        for p in range(parts):
            graph.add_vertex(
                multiply,
                dot,
                x=x[CHUNK * p : CHUNK * p + CHUNK],
                w=w[row, CHUNK * p : CHUNK * p + CHUNK],
                out=part[row, p],
            )
    taken = time.perf_counter() - start
    assert graph.num_vertices == rows * parts
    return taken / (rows * parts)


@benchmark
def build(rows: int = 256, parts: int = 256, rounds: int = 9) -> Generator[Comparison | Row, Row, None]:
    """65,536 vertices added by as many calls, with three fields each: the time of one."""
    seconds = float(np.median([seconds_per_vertex(rows, parts) for _ in range(rounds)]))
    note = f"a vertex, to {1e6 * LIMIT_SECONDS:.0f} us: {1 / seconds:,.0f} vertices a second"
    yield Row("build", seconds, None, seconds / LIMIT_SECONDS, 1.0, note)
