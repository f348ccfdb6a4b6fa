"""A matrix times a vector, by vertices that take 16 products each and vertices that add them up."""

from __future__ import annotations

from collections.abc import Generator

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of

CHUNK = 16


@cl.codelet
def dot(w, x):
    """The product of a chunk of a row with a chunk of the vector."""
    return jnp.dot(w, x)


@cl.codelet
def total(partials):
    """The sum of a row's partial products."""
    return jnp.sum(partials)


def multiply(graph: cl.Graph, w: cl.Tensor, x: cl.Tensor) -> cl.Tensor:
    """`w @ x`, for `w` of shape (rows, columns) and `x` of shape (columns,)."""
    rows, columns = w.shape
    row, part = cl.grid(rows, columns // CHUNK)
    here = slice(CHUNK * part, CHUNK * part + CHUNK)
    partials = graph.add_vertex("multiply", dot, w=w[row, here], x=x[here])
    row = cl.grid(rows)
    return graph.add_vertex("add up", total, partials=partials[row])


@benchmark
def matvec(rows: int = 4096, columns: int = 9216) -> Generator[Comparison | Row, Row, None]:
    """4096 x 9216 times a vector in chunks of 16: 2.36 million dot products and 4096 sums."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (
            random.standard_normal((rows, columns), np.float32),
            random.standard_normal(columns, np.float32),
        )

    forward = Comparison(
        "matvec",
        ours=jax.jit(cl.lower(multiply)),
        plain=jax.jit(lambda w, x: w @ x),
        arguments=arguments,
        bar=1.1,
    )
    yield forward
    yield gradient_of(forward, bar=1.15)
