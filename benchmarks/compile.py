"""What lowering and compiling cost, and how little the number of vertices adds."""

from __future__ import annotations

import time
from collections.abc import Generator

import jax
import numpy as np

import codelet as cl
from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.matvec import multiply

LIMIT_SECONDS = 5.0


def seconds_to_compile(rows: int, columns: int) -> float:
    """From the function that builds `matvec`'s graph to what XLA made of it."""
    jax.devices()  # starting XLA is no part of it
    w, x = jax.ShapeDtypeStruct((rows, columns), np.float32), jax.ShapeDtypeStruct((columns,), np.float32)
    start = time.perf_counter()
    jax.jit(cl.lower(multiply)).lower(w, x).compile()
    return time.perf_counter() - start


@benchmark
def compile(
    rows: int = 4096, columns: int = 9216, fewer: int = 100, rounds: int = 5
) -> Generator[Comparison | Row, Row, None]:
    """Building, lowering and compiling `matvec`'s graph, and one of 100 times fewer vertices, from cold.

    Each time in a process of its own, in turn.
    """
    few = round(rows / fewer)
    times = [[in_fresh_process(seconds_to_compile, n, columns) for n in (rows, few)] for _ in range(rounds)]
    full, small = np.median(times, axis=0).tolist()
    yield Row("compile", full, None, full / LIMIT_SECONDS, 1.0, f"to {LIMIT_SECONDS:.0f} s")
    yield Row("compile/fewer_vertices", small, None, None, None)
    yield Row("compile/growth", None, None, full / small, 1.5, "of the last two")
