"""A bitonic sort: compare-exchange vertices, a compute set for each of many stages."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark
from tutorials.programs.bitonic_sort import twin


def seconds_to_compile(which: str, size: int) -> float:
    """From nothing to what XLA made of one side: of ours with the graph built and lowered."""
    x = jax.ShapeDtypeStruct((size,), np.float32)
    jax.block_until_ready(jnp.zeros(3) + 1)  # starting XLA is no part of it
    start = time.perf_counter()
    made, held = twin(size), twin(size).ours_held() if which == "ours" else ()
    getattr(made, which).lower(*held, x).compile()
    return time.perf_counter() - start


@benchmark
def bitonic(size: int = 65536, rounds: int = 3) -> Generator[Comparison | Row, Row, None]:
    """A bitonic sort of 65,536 floats: 136 stages of 32,768 compare-exchange vertices.

    What compiling costs is measured in a process of its own each time, in turn.
    """
    yield replace(twin(size), bar=1.1)
    times = [[in_fresh_process(seconds_to_compile, which, size) for which in ("ours", "plain")] for _ in range(rounds)]
    own, theirs = np.median(times, axis=0).tolist()
    yield Row("bitonic/compile", own, None, own / theirs, 1.5, f"to plain JAX's {1e3 * theirs:.0f} ms")
