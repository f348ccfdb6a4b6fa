"""Softmax of rows as an operation, with whole rows and with a large vocabulary; its gradient, and that by JAX."""

from __future__ import annotations

from collections.abc import Generator

import jax
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of


@benchmark
def ops_softmax(
    shape: tuple[int, int] = (512, 1000), large: tuple[int, int] = (32, 50257)
) -> Generator[Comparison | Row, Row, None]:
    """Softmax of 512 rows of 1000, and of 32 rows of 50257: forward, by JAX's gradient, by ours."""

    def ours_by_gradient(graph: cl.Graph, x: cl.Tensor, cotangent: cl.Tensor) -> tuple[cl.Tensor, cl.Tensor]:
        y = cl.ops.softmax(graph, x)
        return y, cl.ops.softmax_gradient(graph, cotangent, y)

    def plain_by_gradient(x: jax.Array, cotangent: jax.Array) -> tuple[jax.Array, jax.Array]:
        y, pull = jax.vjp(jax.nn.softmax, x)
        return y, pull(cotangent)[0]

    for name, extents in (("rows", shape), ("vocabulary", large)):

        def arguments(random: np.random.Generator, extents: tuple[int, int] = extents) -> tuple[np.ndarray, ...]:
            return (random.normal(size=extents).astype(np.float32),)

        forward = Comparison(
            f"ops_softmax/{name}",
            ours=jax.jit(cl.lower(cl.ops.softmax)),
            plain=jax.jit(jax.nn.softmax),
            arguments=arguments,
            bar=1.2,
        )
        yield forward
        yield gradient_of(forward, bar=1.2)
        yield Comparison(
            f"ops_softmax/{name}/gradient_operation",
            ours=jax.jit(cl.lower(ours_by_gradient)),
            plain=jax.jit(plain_by_gradient),
            arguments=lambda random, arguments=arguments: (*arguments(random), *arguments(random)),
            bar=1.2,
        )
