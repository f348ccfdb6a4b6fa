"""What it costs to plan a large graph on the machine and count its cycles and bytes."""

from __future__ import annotations

import time
from collections.abc import Generator

import numpy as np

import codelet as cl
from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.matvec import multiply

LIMIT_SECONDS = 5.0


def seconds_to_profile(rows: int, columns: int) -> float:
    """From the loaded graph of `matvec` to its profile: placement, exchange, live ranges, addresses, cycles."""
    graph = cl.Graph()
    w, x = graph.add_variable("w", (rows, columns)), graph.add_variable("x", (columns,))
    multiply(graph, w, x)
    engine = cl.Engine(graph)
    start = time.perf_counter()
    engine.profile()
    return time.perf_counter() - start


@benchmark
def profile(rows: int = 4096, columns: int = 9216, rounds: int = 5) -> Generator[Comparison | Row, Row, None]:
    """The profile of `matvec`'s graph, 2.36 million vertices without tiles, from cold, in a process of its own."""
    seconds = float(np.median([in_fresh_process(seconds_to_profile, rows, columns) for _ in range(rounds)]))
    yield Row("profile", seconds, None, seconds / LIMIT_SECONDS, 1.0, f"to {LIMIT_SECONDS:.0f} s")
