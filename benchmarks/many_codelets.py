"""Distinct codelets in one compute set: tracing and lowering them takes time in proportion to how many there are."""

from __future__ import annotations

import time
from collections.abc import Generator

import jax
import numpy as np

import codelet as cl
from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark

LIMIT_SECONDS = 60.0


def own_codelet(k: int) -> cl.Codelet:
    """The k-th codelet, which no other computes."""

    def own(x: jax.Array) -> jax.Array:
        return x * (k + 1.5) + k

    return cl.codelet(own)


def seconds(count: int, compiles: bool = False) -> float:
    """From the codelets' functions to a lowered graph of a vertex of each; or from there to what XLA makes of it."""
    jax.devices()  # starting XLA is no part of it
    start = time.perf_counter()
    graph = cl.Graph()
    x, y = graph.add_variable("x", (count,)), graph.add_variable("y", (count,))
    for k in range(count):
        graph.add_vertex("all", own_codelet(k), x=x[k], out=y[k])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    if compiles:
        start = time.perf_counter()
        jax.jit(run).lower({"x": jax.ShapeDtypeStruct((count,), np.float32)}).compile()
    return time.perf_counter() - start


@benchmark
def many_codelets(
    many: int = 10_000, some: int = 1_600, few: int = 400, rounds: int = 3
) -> Generator[Comparison | Row, Row, None]:
    """Tracing and lowering a compute set of 10,000, 1,600 and 400 distinct codelets, from cold.

    Each time in a process of its own, in turn. What XLA takes to compile the smaller two is told beside it.
    """
    all_of_them = in_fresh_process(seconds, many)
    times = [[in_fresh_process(seconds, n) for n in (some, few)] for _ in range(rounds)]
    more, fewer = np.median(times, axis=0).tolist()
    yield Row("many_codelets", all_of_them, None, all_of_them / LIMIT_SECONDS, 1.0, f"to {LIMIT_SECONDS:.0f} s")
    yield Row("many_codelets/some", more, None, None, None)
    yield Row("many_codelets/few", fewer, None, None, None)
    yield Row("many_codelets/growth", None, None, more / fewer, 5.0, "of the last two")
    for name, n in (("some", some), ("few", few)):
        yield Row(f"many_codelets/compile_{name}", in_fresh_process(seconds, n, True), None, None, None)
