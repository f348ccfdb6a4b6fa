"""One vertex for each element of a matrix."""

from __future__ import annotations

from collections.abc import Generator

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of


@cl.codelet
def combine(a, b):
    """Three operations on one pair of elements."""
    return jnp.tanh(a * b) + a


def combine_all(graph: cl.Graph, a: cl.Tensor, b: cl.Tensor) -> cl.Tensor:
    """A vertex for each pair of elements of two matrices."""
    i, j = cl.grid(*a.shape)
    return graph.add_vertex("combine", combine, a=a[i, j], b=b[i, j])


@benchmark
def elementwise(rows: int = 1472, columns: int = 1024) -> Generator[Comparison | Row, Row, None]:
    """tanh(a * b) + a on 1472 x 1024 elements, one vertex for each: 1.5 million."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return tuple(random.normal(size=(2, rows, columns)).astype(np.float32))

    forward = Comparison(
        "elementwise",
        ours=jax.jit(cl.lower(combine_all)),
        plain=jax.jit(lambda a, b: jnp.tanh(a * b) + a),
        arguments=arguments,
        bar=1.05,
    )
    yield forward
    yield gradient_of(forward, bar=1.05)
