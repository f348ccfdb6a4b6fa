"""Matrix products by the library of operations: as planned, and with a vertex for every multiply-add."""

from __future__ import annotations

from collections.abc import Generator

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of

SHAPES = {"square": (512, 512, 512), "odd": (500, 700, 300), "vector": (4096, 4096, 1)}
"""Rows, what is summed, and columns."""


@benchmark
def ops_matmul(shapes: dict[str, tuple[int, int, int]] = SHAPES) -> Generator[Comparison | Row, Row, None]:
    """`ops.matmul` of float32, planned for an IPU of 1,472 tiles and at the finest grain, beside `a @ b`."""
    for name, (rows, summed, columns) in shapes.items():

        def arguments(random: np.random.Generator, sizes=(rows, summed, columns)) -> tuple[np.ndarray, ...]:
            rows, summed, columns = sizes
            return (
                random.standard_normal((rows, summed), np.float32),
                random.standard_normal((summed, columns), np.float32),
            )

        for what, grain in (("planned", None), ("finest", 1)):
            ours = cl.lower(lambda graph, a, b, grain=grain: cl.ops.matmul(graph, a, b, grain=grain))
            forward = Comparison(
                f"ops_matmul/{name}/{what}",
                ours=jax.jit(ours),
                plain=jax.jit(jnp.matmul),
                arguments=arguments,
                bar=1.1,
            )
            yield forward
            yield gradient_of(forward, bar=1.1)
