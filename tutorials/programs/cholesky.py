"""A Cholesky factorization by blocks: a triangle of vertices that shrinks from step to step.

Run it with `python -m tutorials.programs.cholesky`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show


@cl.codelet
def factor(block):
    """The Cholesky factor of a block on the diagonal."""
    return {"block": jnp.linalg.cholesky(block)}


@cl.codelet
def solve(block, diagonal):
    """A block below the diagonal: what times the transposed factor of the diagonal block makes it."""
    return {"block": lax.linalg.triangular_solve(diagonal, block, lower=True, transpose_a=True)}


@cl.codelet
def update(block, left, right):
    """What is left of a block once a column of blocks is known."""
    return {"block": block - left @ right.T}


def lower_cholesky(blocks: int, size: int) -> cl.Lowered:
    """For each column of blocks: its diagonal, what is below it, and all that is right of it, lower half alone."""
    graph = cl.Graph()
    a = graph.add_variable("a", (blocks * size, blocks * size))
    block = a.reshape(blocks, size, blocks, size).transpose(0, 2, 1, 3)
    for k in range(blocks):
        graph.add_vertex(f"factor {k}", factor, block=block[k, k])
        if k + 1 < blocks:
            i = cl.grid(range(k + 1, blocks))
            graph.add_vertex(f"solve {k}", solve, block=block[i, k], diagonal=block[k, k])
            for column in range(k + 1, blocks):
                row = cl.grid(range(column, blocks))
                graph.add_vertex(
                    f"update {k}", update, block=block[row, column], left=block[row, k], right=block[column, k]
                )
    return cl.lower(graph, inputs=[a], outputs=[a])


def plain_cholesky(a: jax.Array, blocks: int, size: int) -> jax.Array:
    """The same by slices; each update is one product of all that is below the column with itself."""
    for k in range(blocks):
        start, stop = k * size, (k + 1) * size
        diagonal = jnp.linalg.cholesky(a[start:stop, start:stop])
        a = a.at[start:stop, start:stop].set(diagonal)
        if k + 1 < blocks:
            below = lax.linalg.triangular_solve(diagonal, a[stop:, start:stop], lower=True, transpose_a=True)
            a = a.at[stop:, start:stop].set(below).at[stop:, stop:].add(-below @ below.T)
    return a


def twin(blocks: int = 8, size: int = 64) -> Comparison:
    """Both sides; what is above the diagonal is scratch."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray]:
        side = blocks * size
        drawn = random.standard_normal((side, side), np.float32)
        return (drawn @ drawn.T / side + np.eye(side, dtype=np.float32),)

    return Comparison(
        "cholesky",
        ours=jax.jit(lambda lowered, a: jnp.tril(lowered({"a": a})["a"])),
        plain=jax.jit(lambda a: jnp.tril(plain_cholesky(a, blocks, size))),
        arguments=arguments,
        tolerance=1e-4,
        ours_held=lambda: (lower_cholesky(blocks, size),),
    )


if __name__ == "__main__":
    show(twin())
