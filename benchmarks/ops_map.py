"""Elementwise maps as operations: a GELU of very many elements, and a bias over a batch."""

from __future__ import annotations

from collections.abc import Generator

import jax
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of


@benchmark
def ops_map(
    elements: int = 4_000_037, rows: int = 2_049, columns: int = 1_001
) -> Generator[Comparison | Row, Row, None]:
    """`ops.map` of a GELU over 4 million elements, and of a sum with a bias and a GELU over a batch, with gradients."""

    def many(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (random.standard_normal(elements, np.float32),)

    def batch(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return random.standard_normal((rows, columns), np.float32), random.standard_normal(columns, np.float32)

    gelu = Comparison(
        "ops_map/gelu",
        ours=jax.jit(cl.lower(lambda graph, x: cl.ops.map(graph, jax.nn.gelu, x))),
        plain=jax.jit(jax.nn.gelu),
        arguments=many,
        bar=1.1,
    )

    def biased(x, b):
        return jax.nn.gelu(x + b)

    bias = Comparison(
        "ops_map/bias",
        ours=jax.jit(cl.lower(lambda graph, x, b: cl.ops.map(graph, biased, x, b))),
        plain=jax.jit(biased),
        arguments=batch,
        bar=1.1,
    )
    yield gelu
    yield gradient_of(gelu, bar=1.1)
    yield bias
    yield gradient_of(bias, bar=1.1)
    yield Comparison(
        "ops_map/bias/operation",
        ours=jax.jit(cl.lower(lambda graph, g, x, b: cl.ops.map_gradient(graph, biased, g, x, b))),
        plain=jax.jit(lambda g, x, b: jax.vjp(biased, x, b)[1](g)),
        arguments=lambda random: (random.standard_normal((rows, columns), np.float32), *batch(random)),
        bar=1.1,
    )
