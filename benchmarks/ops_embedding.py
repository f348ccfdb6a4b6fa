"""Rows of a table by indices, and the gradient by the table, as operations."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark


@benchmark
def ops_embedding(
    rows: int = 32_768, columns: int = 256, indices: int = 4_096
) -> Generator[Comparison | Row, Row, None]:
    """`ops.embedding` of 4,096 indices into 32,768 rows of 256, with gradient; and its gradient as an operation."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        table = random.standard_normal((rows, columns), np.float32)
        return table, random.integers(0, rows, indices, np.int32)

    def with_cotangent(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return random.standard_normal((indices, columns), np.float32), *arguments(random)

    def pulled(function: Any) -> Any:
        def run(g: Any, table: Any, i: Any) -> Any:
            value, pull = jax.vjp(lambda table: function(table, i), table)
            return value, pull(g)

        return jax.jit(run)

    ours = cl.lower(lambda graph, table, i: cl.ops.embedding(graph, table, i))
    plain = lambda table, i: jnp.take(table, i, axis=0)  # noqa: E731
    yield Comparison("ops_embedding", jax.jit(ours), jax.jit(plain), arguments, bar=1.2)
    yield Comparison("ops_embedding/gradient", pulled(ours), pulled(plain), with_cotangent, bar=1.2)
    yield Comparison(
        "ops_embedding/operation",
        jax.jit(cl.lower(lambda graph, g, table, i: cl.ops.embedding_gradient(graph, g, table, i))),
        jax.jit(lambda g, table, i: jax.vjp(lambda table: plain(table, i), table)[1](g)[0]),
        with_cotangent,
        bar=1.2,
    )
