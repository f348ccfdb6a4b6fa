"""What it costs to plan a large graph on the machine and count its cycles and bytes."""

from __future__ import annotations

import time
from collections.abc import Generator

import numpy as np

import codelet as cl
from benchmarks.fresh import in_fresh_process, peak_bytes
from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.matvec import multiply
from benchmarks.traced_steps import FINE_GRAIN
from ipu_backend.jobs.build import build

LIMIT_SECONDS = 5.0

FINE_LIMIT_SECONDS, FINE_LIMIT_GIB = 90.0, 8.0
"""Of a network's step at a fine grain."""


def seconds_to_profile(rows: int, columns: int) -> float:
    """From the loaded graph of `matvec` to its profile: placement, exchange, live ranges, addresses, cycles."""
    graph = cl.Graph()
    w, x = graph.add_variable("w", (rows, columns)), graph.add_variable("x", (columns,))
    multiply(graph, w, x)
    engine = cl.Engine(graph)
    start = time.perf_counter()
    engine.profile()
    return time.perf_counter() - start


def cost_of_fine_profile(network: str, grain: int) -> tuple[float, float]:
    """Seconds from the checked plan of a step to its profile, and GiB that the process held at the most in all."""
    built = build(network, grain=grain)
    assert built.cycles
    return built.seconds["profile"], peak_bytes() / 2**30


@benchmark
def profile(
    rows: int = 4096, columns: int = 9216, rounds: int = 5, network: str = "alexnet", grain: int = FINE_GRAIN
) -> Generator[Comparison | Row, Row, None]:
    """The profile of `matvec`'s graph, 2.36 million vertices without tiles, and of a network's step at a fine grain.

    Each from cold, in a process of its own.
    """
    seconds = float(np.median([in_fresh_process(seconds_to_profile, rows, columns) for _ in range(rounds)]))
    yield Row("profile", seconds, None, seconds / LIMIT_SECONDS, 1.0, f"to {LIMIT_SECONDS:.0f} s")
    fine, peak = in_fresh_process(cost_of_fine_profile, network, grain)
    yield Row("profile/fine", fine, None, fine / FINE_LIMIT_SECONDS, 1.0, f"to {FINE_LIMIT_SECONDS:.0f} s")
    yield Row("profile/fine_peak", None, None, peak / FINE_LIMIT_GIB, 1.0, f"to {FINE_LIMIT_GIB:.0f} GiB")
