"""Lattice Boltzmann: a fluid on a torus, nine numbers for each cell, every one from another neighbour (D2Q9)."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of

VELOCITIES = ((0, 0), (1, 0), (0, 1), (-1, 0), (0, -1), (1, 1), (-1, 1), (-1, -1), (1, -1))
WEIGHTS = (4 / 9, *[1 / 9] * 4, *[1 / 36] * 4)
RATE = 1.2


def _collide(f: Sequence[Any]) -> list[Any]:
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
    return jnp.stack(_collide((f0, f1, f2, f3, f4, f5, f6, f7, f8)))


@cl.codelet
def collide_apart(f0, f1, f2, f3, f4, f5, f6, f7, f8):
    """What a cell makes of what its neighbours send, as nine fields."""
    return {f"g{q}": value for q, value in enumerate(_collide((f0, f1, f2, f3, f4, f5, f6, f7, f8)))}


def lower_together(height: int, width: int, steps: int) -> cl.Lowered:
    """One variable for all nine numbers of every cell. Every turn takes a step from `f` to `g`, and copies `g` back."""
    graph = cl.Graph()
    f, g = (graph.add_variable(name, (9, height, width)) for name in "fg")
    i, j = cl.grid(height, width)
    arriving = {f"f{q}": f[q, (i - a) % height, (j - b) % width] for q, (a, b) in enumerate(VELOCITIES)}
    with graph.record() as step:
        graph.add_vertex("collide", collide, **arriving, out=g[:, i, j])
    return cl.lower(graph, cl.Repeat(steps, [step, cl.Copy(g, f)]), inputs=[f], outputs=[f])


def lower_apart(height: int, width: int, steps: int) -> cl.Lowered:
    """A variable for each of the nine."""
    graph = cl.Graph()
    f = [graph.add_variable(f"f{q}", (height, width)) for q in range(9)]
    g = [graph.add_variable(f"g{q}", (height, width)) for q in range(9)]
    i, j = cl.grid(height, width)
    arriving = {f"f{q}": f[q][(i - a) % height, (j - b) % width] for q, (a, b) in enumerate(VELOCITIES)}
    with graph.record() as step:
        graph.add_vertex("collide", collide_apart, **arriving, **{f"g{q}": g[q][i, j] for q in range(9)})
    back = [cl.Copy(new, old) for new, old in zip(g, f, strict=True)]
    return cl.lower(graph, cl.Repeat(steps, [step, *back]), inputs=f, outputs=f)


def _rolled(f: list[jax.Array]) -> list[jax.Array]:
    return [jnp.roll(g, velocity, (0, 1)) for g, velocity in zip(f, VELOCITIES, strict=True)]


def _padded(f: list[jax.Array]) -> list[jax.Array]:
    """What arrives, as slices of padded arrays, which an `optimization_barrier` keeps whole."""
    height, width = f[0].shape
    padded = [lax.optimization_barrier(jnp.pad(g, 1, mode="wrap")) for g in f]
    return [g[1 - a : 1 - a + height, 1 - b : 1 - b + width] for g, (a, b) in zip(padded, VELOCITIES, strict=True)]


def plain(f: list[jax.Array], steps: int) -> list[jax.Array]:
    """Nine arrays, each rolled, and the collision on them.

    Among the fastest of thirteen measured on two cores of a CPU (512 x 128, ms a step): this 0.30, as each padded
    and cut; with a barrier behind either 0.31 to 0.35; one array of all nine, padded or rolled, 0.36 to 0.37, carried
    padded 0.44; the collision before the shifts 0.40; index vectors 8.7. On a busier machine, all twice as slow:
    sums and products over an axis of nine, with dots or without, 1.7 and more.
    """

    def step(f: list[jax.Array], _: None) -> tuple[list[jax.Array], None]:
        return _collide(_rolled(f)), None

    return lax.scan(step, f, length=steps)[0]


def plain_for_gradient(f: list[jax.Array], steps: int) -> list[jax.Array]:
    """Nine arrays, each padded and cut; a step is computed again for the gradient.

    The fastest of more than twenty measured on two cores of a busy CPU (512 x 128, ms a step): this 5.4; with the
    collision alone computed again 5.4 to 6.3; one array of all nine 6.6 to 7.1; a barrier within the collision as well
    6.5; rolls 10 to 14; over an axis of nine 21 and more. Where every number of a step is kept, 68 to 98.
    """

    def step(f: list[jax.Array], _: None) -> tuple[list[jax.Array], None]:
        return jax.checkpoint(lambda f: _collide(_padded(f)))(f), None

    return lax.scan(step, f, length=steps)[0]


@benchmark
def lattice_boltzmann(height: int = 512, width: int = 128, steps: int = 20) -> Generator[Comparison | Row, Row, None]:
    """A fluid on a torus of 512 x 128 cells with nine velocities, 20 steps: in one variable, and in nine."""

    def populations(random: np.random.Generator) -> np.ndarray:
        return (np.reshape(WEIGHTS, (9, 1, 1)) * random.uniform(0.5, 1, (9, height, width))).astype(np.float32)

    def apart(lowered: cl.Lowered, f: list[jax.Array]) -> list[jax.Array]:
        made = lowered({f"f{q}": value for q, value in enumerate(f)})
        return [made[f"f{q}"] for q in range(9)]

    def stacked(plain: Callable[[list[jax.Array], int], list[jax.Array]]) -> Callable[[jax.Array], jax.Array]:
        return lambda f: jnp.stack(plain(list(f), steps))

    one = Comparison(
        "lattice_boltzmann/one",
        ours=jax.jit(lambda lowered, f: lowered({"f": f})["f"]),
        plain=jax.jit(stacked(plain)),
        arguments=lambda random: (populations(random),),
        bar=1.2,
        ours_held=lambda: (lower_together(height, width, steps),),
    )
    nine = Comparison(
        "lattice_boltzmann/nine",
        ours=jax.jit(apart),
        plain=jax.jit(lambda f: plain(f, steps)),
        arguments=lambda random: (list(populations(random)),),
        bar=1.2,
        ours_held=lambda: (lower_apart(height, width, steps),),
    )
    yield one
    yield gradient_of(replace(one, plain=jax.jit(stacked(plain_for_gradient))), bar=1.2)
    yield nine
    yield gradient_of(replace(nine, plain=jax.jit(lambda f: plain_for_gradient(f, steps))), bar=1.2)
