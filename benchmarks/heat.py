"""The heat equation on a square: a five-point stencil, one vertex for each point, repeated."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import jax
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark

RATE = 0.1


@cl.codelet
def diffuse(here, north, south, west, east):
    """A point's temperature one step later."""
    return here + RATE * (north + south + west + east - 4 * here)


def _step(graph: cl.Graph, name: str, u: cl.Tensor, v: cl.Tensor) -> cl.Program:
    """The inner points of `v` one step later than those of `u`."""
    step = graph.add_compute_set(name)
    height, width = u.shape
    i, j = cl.grid(range(1, height - 1), range(1, width - 1))
    graph.add_vertex(
        step,
        diffuse,
        here=u[i, j],
        north=u[i - 1, j],
        south=u[i + 1, j],
        west=u[i, j - 1],
        east=u[i, j + 1],
        out=v[i, j],
    )
    return cl.Execute(step)


def heat_steps(side: int, steps: int) -> tuple[cl.Graph, cl.Program]:
    """Every turn takes one step from `u` to `v`, and copies `v` back."""
    graph = cl.Graph()
    u, v = graph.add_variable("u", (side, side)), graph.add_variable("v", (side, side))
    turn = cl.Sequence(_step(graph, "step", u, v), cl.Copy(v, u))
    return graph, cl.Sequence(cl.Copy(u, v), cl.Repeat(steps, turn))


def there_and_back(shape: tuple[int, int], steps: int) -> tuple[cl.Graph, cl.Program]:
    """Every turn takes a step from `u` to `v` and one from `v` to `u`: half as many turns."""
    graph = cl.Graph()
    u, v = graph.add_variable("u", shape), graph.add_variable("v", shape)
    turn = cl.Sequence(_step(graph, "there", u, v), _step(graph, "back", v, u))
    return graph, cl.Sequence(cl.Copy(u, v), cl.Repeat(steps // 2, turn))


HEAT = {"heat": heat_steps, "heat/there_and_back": lambda side, steps: there_and_back((side, side), steps)}
"""By the names of rows, the graphs of so many steps on a square."""


def plain_heat(u: jax.Array, steps: int) -> jax.Array:
    """Two buffers, a step from one to the other and back in each turn of the loop.

    The fastest of six measured on two cores of a CPU (2048 x 2048, 100 steps): this 0.14 s; the padded
    inside chosen by a mask 0.28; a padded whole chosen by a mask 0.38; the inside alone carried 0.70; two
    buffers that change places each turn 0.73, since XLA copies them; one buffer 1.21.
    """

    def step(u: jax.Array, v: jax.Array) -> jax.Array:
        here = u[1:-1, 1:-1]
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return v.at[1:-1, 1:-1].set(here + RATE * (around - 4 * here))

    def turn(_: Any, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        u, v = both
        v = step(u, v)
        return step(v, u), v

    return lax.fori_loop(0, steps // 2, turn, (u, u))[0]


@benchmark
def heat(side: int = 2048, steps: int = 100) -> Generator[Comparison | Row, Row, None]:
    """A five-point stencil on 2048 x 2048 points, 100 steps, a vertex for each of 4,186,116 inner points."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (random.standard_normal((side, side), np.float32),)

    for name, make in HEAT.items():
        yield Comparison(
            name,
            ours=jax.jit(lambda lowered, u: lowered({"u": u})["u"]),
            plain=jax.jit(lambda u: plain_heat(u, steps)),
            arguments=arguments,
            bar=1.2,
            ours_held=lambda make=make: (cl.lower(*make(side, steps), inputs=["u"], outputs=["u"]),),
        )
