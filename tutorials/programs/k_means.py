"""k-means (Lloyd, 1957): points choose the nearest centre, centres move to the mean of those that chose them.

Run it with `python -m tutorials.programs.k_means`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show


@cl.codelet
def choose(point, centres):
    """The number of the centre nearest to a point."""
    return jnp.argmin(jnp.sum((centres - point) ** 2, axis=1)).astype(jnp.int32)


@cl.codelet
def move(centre, points, chosen, number):
    """The mean of the points that chose a centre; the centre stays where none did."""
    own = (chosen == number).astype(points.dtype)
    count = jnp.sum(own)
    return {"centre": jnp.where(count > 0, own @ points / jnp.maximum(count, 1), centre)}


def lower_k_means(points: int, dimensions: int, centres: int, rounds: int) -> cl.Lowered:
    """A vertex for each point, then one for each centre."""
    graph = cl.Graph()
    x, c = graph.add_variable("x", (points, dimensions)), graph.add_variable("c", (centres, dimensions))
    chosen = graph.add_variable("chosen", (points,), jnp.int32)
    p, k = cl.grid(points), cl.grid(centres)
    with graph.record() as one_round:
        graph.add_vertex("choose", choose, point=x[p], centres=c, out=chosen[p])
        graph.add_vertex("move", move, centre=c[k], points=x, chosen=chosen, number=k)
    return cl.lower(graph, cl.Repeat(rounds, one_round), inputs=[x, c], outputs=[c])


def plain_k_means(x: jax.Array, centres: jax.Array, rounds: int) -> jax.Array:
    """The same on whole arrays."""

    def one_round(_: object, centres: jax.Array) -> jax.Array:
        chosen = jnp.argmin(jnp.sum((x[:, None] - centres) ** 2, axis=2), axis=1)
        own = (chosen == jnp.arange(len(centres))[:, None]).astype(x.dtype)
        count = jnp.sum(own, axis=1, keepdims=True)
        return jnp.where(count > 0, own @ x / jnp.maximum(count, 1), centres)

    return jax.lax.fori_loop(0, rounds, one_round, centres)


def twin(points: int = 20_000, dimensions: int = 8, centres: int = 16, rounds: int = 10) -> Comparison:
    """Both sides, on points drawn around as many middles as there are centres."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        middles = 10 * random.standard_normal((centres, dimensions), np.float32)
        x = middles[random.integers(0, centres, points)] + random.standard_normal((points, dimensions), np.float32)
        return x, x[:centres] + 0

    return Comparison(
        "k_means",
        ours=jax.jit(lambda lowered, x, c: lowered({"x": x, "c": c})["c"]),
        plain=jax.jit(lambda x, c: plain_k_means(x, c, rounds)),
        arguments=arguments,
        ours_held=lambda: (lower_k_means(points, dimensions, centres, rounds),),
    )


if __name__ == "__main__":
    show(twin())
