"""A signal correlated with a kernel, by vertices that each take a window of it."""

from __future__ import annotations

from collections.abc import Generator, Sequence

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark


@cl.codelet
def dot(x, w):
    """The product of a window with the kernel."""
    return jnp.dot(x, w)


def slide(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor) -> cl.Tensor:
    """A vertex for each position of the kernel within the signal."""
    window = len(w)
    i = cl.grid(len(x) - window + 1)
    return graph.add_vertex("slide", dot, x=x[i : i + window], w=w)


def plain_slide(x: jax.Array, w: jax.Array) -> jax.Array:
    """XLA's convolution, which is what others call a correlation."""
    return lax.conv_general_dilated(x[None, None], w[None, None], (1,), "VALID")[0, 0]


@benchmark
def correlate(
    points: int = 100_000, windows: Sequence[int] = (16, 128, 1024)
) -> Generator[Comparison | Row, Row, None]:
    """100,000 windows of a signal, of 16, 128 and 1024 points, times a kernel: a vertex for each."""
    for window in windows:

        def arguments(random: np.random.Generator, window: int = window) -> tuple[np.ndarray, ...]:
            return (
                random.standard_normal(points + window - 1, np.float32),
                random.standard_normal(window, np.float32),
            )

        yield Comparison(
            f"correlate/{window}",
            ours=jax.jit(cl.lower(slide)),
            plain=jax.jit(plain_slide),
            arguments=arguments,
            bar=1.2,
        )
