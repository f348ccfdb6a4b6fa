"""A matrix product, by vertices that multiply blocks and vertices that add the products up."""

from __future__ import annotations

from collections.abc import Generator

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of

BLOCK = 8
CHUNK = 64


@cl.codelet
def multiply(a, b):
    """A block of rows times a block of columns, over one chunk of what is summed over."""
    return jnp.dot(a, b)


@cl.codelet
def total(partials):
    """The sum of one output block's products."""
    return jnp.sum(partials, axis=0)


def product(graph: cl.Graph, a: cl.Tensor, b: cl.Tensor) -> cl.Tensor:
    """`a @ b`: a vertex for each 8 x 8 block of the result and each chunk of 64."""
    (rows, inner), columns = a.shape, b.shape[1]
    i, j, p = cl.grid(rows // BLOCK, columns // BLOCK, inner // CHUNK)
    down, across = slice(BLOCK * i, BLOCK * i + BLOCK), slice(BLOCK * j, BLOCK * j + BLOCK)
    along = slice(CHUNK * p, CHUNK * p + CHUNK)
    partials = graph.add_vertex("multiply", multiply, a=a[down, along], b=b[along, across])
    c = graph.add_variable("c", (rows, columns))
    i, j = cl.grid(rows // BLOCK, columns // BLOCK)
    down, across = slice(BLOCK * i, BLOCK * i + BLOCK), slice(BLOCK * j, BLOCK * j + BLOCK)
    graph.add_vertex("add up", total, partials=partials[i, j], out=c[down, across])
    return c


@benchmark
def matmul(size: int = 1024) -> Generator[Comparison | Row, Row, None]:
    """1024 x 1024 times 1024 x 1024, in blocks of 8 x 8 and chunks of 64: 262,144 vertices, and 16,384 sums."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return tuple(random.standard_normal((2, size, size), np.float32))

    forward = Comparison(
        "matmul",
        ours=jax.jit(cl.lower(product)),
        plain=jax.jit(lambda a, b: a @ b),
        arguments=arguments,
        bar=1.1,
    )
    yield forward
    yield gradient_of(forward, bar=1.15)
