"""Many families that write the parts of one variable, and many that read it in other parts."""

from __future__ import annotations

import itertools
from collections.abc import Generator

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of


@cl.codelet
def scale(x, *, factor):
    """One element of a part, in the part's own way."""
    return factor * x


@cl.codelet
def bend(x, *, factor):
    """The same, not linear."""
    return x + factor * x * x


def sizes_written(size: int, parts: int) -> list[int]:
    """Parts of one size."""
    return [size // parts] * parts


def sizes_read(size: int, parts: int) -> list[int]:
    """Parts that are by turns half and one and a half times as long: every other one crosses a seam."""
    even = size // parts
    return [even // 2, even + even - even // 2] * (parts // 2)


def patches(graph: cl.Graph, x: cl.Tensor, *, parts: int) -> cl.Tensor:
    """A family for each part written, and one for each part read; each has a number of its own."""
    y, z = graph.add_variable("y", x.shape), graph.add_variable("z", x.shape)
    steps = [("write", scale, x, y, sizes_written), ("read", bend, y, z, sizes_read)]
    for name, codelet, source, target, split in steps:
        sizes = split(len(x), parts)
        for k, (start, size) in enumerate(zip(itertools.accumulate(sizes, initial=0), sizes, strict=False)):
            i = cl.grid(range(start, start + size))
            graph.add_vertex(name, codelet, x=source[i], out=target[i], factor=1 + k / parts)
    return z


def plain_patches(x: jax.Array, *, parts: int) -> jax.Array:
    """Split, concatenate; split, concatenate."""
    steps = [(sizes_written, lambda x, k: k * x), (sizes_read, lambda x, k: x + k * x * x)]
    for split, function in steps:
        pieces = lax.split(x, split(len(x), parts))
        x = jnp.concatenate([function(piece, 1 + k / parts) for k, piece in enumerate(pieces)])
    return x


@benchmark
def patchwork(size: int = 1 << 22, parts: int = 128) -> Generator[Comparison | Row, Row, None]:
    """128 families write 128 parts of a variable of 4,194,304 floats, then 128 families read it in parts."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (random.standard_normal(size, np.float32),)

    lowered = cl.lower(patches)
    forward = Comparison(
        "patchwork",
        ours=jax.jit(lambda x: lowered(x, parts=parts)),
        plain=jax.jit(lambda x: plain_patches(x, parts=parts)),
        arguments=arguments,
        bar=1.2,
    )
    yield forward
    yield gradient_of(forward, bar=1.2)
