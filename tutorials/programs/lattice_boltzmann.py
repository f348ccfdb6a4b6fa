"""Lattice Boltzmann: a fluid on a torus, nine numbers for each cell, every one from another neighbour (D2Q9).

Run it with `python -m tutorials.programs.lattice_boltzmann`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show

VELOCITIES = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
WEIGHTS = (4 / 9, *[1 / 9] * 4, *[1 / 36] * 4)
RATE = 1.2


def collisions(f: Sequence[Any]) -> list[Any]:
    """The nine numbers after a collision: nearer to equilibrium (Bhatnagar, Gross and Krook)."""
    density = sum(f[1:], f[0])
    x = (f[1] + f[5] + f[8] - f[3] - f[6] - f[7]) / density
    y = (f[2] + f[5] + f[6] - f[4] - f[7] - f[8]) / density
    square = 1.5 * (x * x + y * y)
    made = []
    for (a, b), weight, old in zip(VELOCITIES, WEIGHTS, f, strict=True):
        along = 3 * (a * x + b * y)
        made.append(old + RATE * (weight * density * (1 + along + 0.5 * along * along - square) - old))
    return made


@cl.codelet
def collide(f0, f1, f2, f3, f4, f5, f6, f7, f8):
    """What a cell makes of what its neighbours send, as one field."""
    return jnp.stack(collisions((f0, f1, f2, f3, f4, f5, f6, f7, f8)))


def lower_fluid(height: int, width: int, steps: int, checkpoint: int | cl.Revolve | None = None) -> cl.Lowered:
    """One variable for all nine numbers of every cell. Every turn takes a step from `f` to `g`, and copies `g` back."""
    graph = cl.Graph()
    f, g = (graph.add_variable(name, (9, height, width)) for name in "fg")
    i, j = cl.grid(height, width)
    arriving = {f"f{q}": f[q, (i - a) % height, (j - b) % width] for q, (a, b) in enumerate(VELOCITIES)}
    with graph.record() as step:
        graph.add_vertex("collide", collide, **arriving, out=g[:, i, j])
    program = cl.Repeat(steps, [step, cl.Copy(g, f)], recompute=checkpoint)
    return cl.lower(graph, program, inputs=[f], outputs=[f])


def _rolled(f: list[jax.Array]) -> list[jax.Array]:
    return [jnp.roll(g, velocity, (0, 1)) for g, velocity in zip(f, VELOCITIES, strict=True)]


def plain(f: list[jax.Array], steps: int) -> list[jax.Array]:
    """Nine arrays, each rolled, and the collision on them.

    Among the fastest of thirteen measured on two cores of a CPU (512 x 128, ms a step): this 0.30, as each padded
    and cut; with a barrier behind either 0.31 to 0.35; one array of all nine, padded or rolled, 0.36 to 0.37, carried
    padded 0.44; the collision before the shifts 0.40; index vectors 8.7. On a busier machine, all twice as slow:
    sums and products over an axis of nine, with dots or without, 1.7 and more.
    """

    def step(f: list[jax.Array], _: None) -> tuple[list[jax.Array], None]:
        return collisions(_rolled(f)), None

    return lax.scan(step, f, length=steps)[0]


def populations(height: int, width: int, random: np.random.Generator) -> np.ndarray:
    """Nine numbers for each cell, of densities from a half to one: shape (9, height, width)."""
    return (np.reshape(WEIGHTS, (9, 1, 1)) * random.uniform(0.5, 1, (9, height, width))).astype(np.float32)


def twin(height: int = 512, width: int = 128, steps: int = 20) -> Comparison:
    """Both sides."""
    return Comparison(
        "lattice_boltzmann",
        ours=jax.jit(lambda lowered, f: lowered({"f": f})["f"]),
        plain=jax.jit(lambda f: jnp.stack(plain(list(f), steps))),
        arguments=lambda random: (populations(height, width, random),),
        ours_held=lambda: (lower_fluid(height, width, steps),),
    )


if __name__ == "__main__":
    show(twin())
