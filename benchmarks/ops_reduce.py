"""Reductions along the major axis, the minor one and both, as operations planned for a machine."""

from __future__ import annotations

from collections.abc import Generator

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of

AXES = {"major": 0, "minor": 1, "all": None}


@benchmark
def ops_reduce(
    rows: int = 2048, columns: int = 2049, lines: tuple[int, int] = (512, 1024)
) -> Generator[Comparison | Row, Row, None]:
    """Sums and maxima of 2048 x 2049 elements along each axis and both, the gradients of maxima, and variances."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (random.normal(size=(rows, columns)).astype(np.float32),)

    for operation in ("sum", "max"):
        for name, axis in AXES.items():
            ours, plain = getattr(cl.ops, operation), getattr(jnp, operation)
            forward = Comparison(
                f"ops_reduce/{operation}/{name}",
                ours=jax.jit(cl.lower(lambda graph, x, ours=ours, axis=axis: ours(graph, x, axis))),
                plain=jax.jit(lambda x, plain=plain, axis=axis: plain(x, axis)),
                arguments=arguments,
                bar=1.2,
                tolerance=1e-4,
            )
            yield forward
            if operation == "max":
                yield gradient_of(forward, bar=1.2)
    variance = Comparison(
        "ops_reduce/var",
        ours=jax.jit(cl.lower(lambda graph, x: cl.ops.var(graph, x, 1))),
        plain=jax.jit(lambda x: jnp.var(x, 1)),
        arguments=lambda random: (random.standard_normal(lines, np.float32),),
        bar=1.2,
        tolerance=1e-4,
    )
    yield variance
    yield gradient_of(variance, bar=1.2)
