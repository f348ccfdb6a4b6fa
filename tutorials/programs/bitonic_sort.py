"""A bitonic sort (Batcher, 1968): compare-exchange vertices, a compute set for each of many stages.

Run it with `python -m tutorials.programs.bitonic_sort`.
"""

from __future__ import annotations

from collections.abc import Iterator

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show


def stages(size: int) -> Iterator[tuple[int, int]]:
    """The length of the runs that a stage merges, and how far apart the elements are that it compares."""
    run = 2
    while run <= size:
        apart = run // 2
        while apart:
            yield run, apart
            apart //= 2
        run *= 2


@cl.codelet
def exchange(low, high, up):
    """Two elements in order, in the other where it is not `up`."""
    least, most = jnp.minimum(low, high), jnp.maximum(low, high)
    return {"low": jnp.where(up == 1, least, most), "high": jnp.where(up == 1, most, least)}


def lower_sort(size: int) -> cl.Lowered:
    """A vertex for every pair that a stage compares."""
    graph = cl.Graph()
    x = graph.add_variable("x", (size,))
    for run, apart in stages(size):
        block, lane = cl.grid(size // (2 * apart), apart)
        low = 2 * apart * block + lane
        up = 1 - low // run % 2
        graph.add_vertex(f"runs of {run}, {apart} apart", exchange, low=x[low], high=x[low + apart], up=up)
    return cl.lower(graph, inputs=[x], outputs=[x])


def plain_sort(x: jax.Array) -> jax.Array:
    """Pairs as a reshape, and both orders of them chosen by a mask known beforehand.

    The fastest of seven measured on two cores of a CPU (65,536 floats, ms): this 1.6, as behind a barrier in each
    stage, or with either order apart, which compiles three times as long; on two axes of 256, transposed where pairs
    are near each other, 1.2 times that; a `scan` of index vectors 2.7; updates in place 6.3; the flipped array and
    masks 19.
    """
    size = x.size
    for run, apart in stages(size):
        pairs = x.reshape(-1, 2, apart)
        up = (np.arange(size // (2 * apart)) * 2 * apart // run % 2 == 0)[:, None]
        least, most = jnp.minimum(pairs[:, 0], pairs[:, 1]), jnp.maximum(pairs[:, 0], pairs[:, 1])
        x = jnp.stack([jnp.where(up, least, most), jnp.where(up, most, least)], 1).reshape(size)
    return x


def twin(size: int = 65_536) -> Comparison:
    """Both sides."""
    return Comparison(
        "bitonic",
        ours=jax.jit(lambda lowered, x: lowered({"x": x})["x"]),
        plain=jax.jit(plain_sort),
        arguments=lambda random: (random.standard_normal(size, np.float32),),
        tolerance=0,
        ours_held=lambda: (lower_sort(size),),
    )


if __name__ == "__main__":
    show(twin())
