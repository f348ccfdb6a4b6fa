"""Lattice Boltzmann: a fluid on a torus, in one variable and in nine, and its gradient through all steps."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import replace

import jax
import jax.numpy as jnp
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of
from tutorials.programs.lattice_boltzmann import VELOCITIES, collisions, plain, populations, twin


@cl.codelet
def collide_apart(f0, f1, f2, f3, f4, f5, f6, f7, f8):
    """What a cell makes of what its neighbours send, as nine fields."""
    return {f"g{q}": value for q, value in enumerate(collisions((f0, f1, f2, f3, f4, f5, f6, f7, f8)))}


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


def _padded(f: list[jax.Array]) -> list[jax.Array]:
    """What arrives, as slices of padded arrays, which an `optimization_barrier` keeps whole."""
    height, width = f[0].shape
    padded = [lax.optimization_barrier(jnp.pad(g, 1, mode="wrap")) for g in f]
    return [g[1 - a : 1 - a + height, 1 - b : 1 - b + width] for g, (a, b) in zip(padded, VELOCITIES, strict=True)]


def plain_for_gradient(f: list[jax.Array], steps: int) -> list[jax.Array]:
    """Nine arrays, each padded and cut; a step is computed again for the gradient.

    The fastest of more than twenty measured on two cores of a busy CPU (512 x 128, ms a step): this 5.4; with the
    collision alone computed again 5.4 to 6.3; one array of all nine 6.6 to 7.1; a barrier within the collision as well
    6.5; rolls 10 to 14; over an axis of nine 21 and more. Where every number of a step is kept, 68 to 98.
    """

    def step(f: list[jax.Array], _: None) -> tuple[list[jax.Array], None]:
        return jax.checkpoint(lambda f: collisions(_padded(f)))(f), None

    return lax.scan(step, f, length=steps)[0]


@benchmark
def lattice_boltzmann(height: int = 512, width: int = 128, steps: int = 20) -> Generator[Comparison | Row, Row, None]:
    """A fluid on a torus of 512 x 128 cells with nine velocities, 20 steps: in one variable, and in nine."""

    def apart(lowered: cl.Lowered, f: list[jax.Array]) -> list[jax.Array]:
        made = lowered({f"f{q}": value for q, value in enumerate(f)})
        return [made[f"f{q}"] for q in range(9)]

    def stacked(plain: Callable[[list[jax.Array], int], list[jax.Array]]) -> Callable[[jax.Array], jax.Array]:
        return lambda f: jnp.stack(plain(list(f), steps))

    one = replace(twin(height, width, steps), name="lattice_boltzmann/one", bar=1.2)
    nine = Comparison(
        "lattice_boltzmann/nine",
        ours=jax.jit(apart),
        plain=jax.jit(lambda f: plain(f, steps)),
        arguments=lambda random: (list(populations(height, width, random)),),
        bar=1.2,
        ours_held=lambda: (lower_apart(height, width, steps),),
    )
    yield one
    yield gradient_of(replace(one, plain=jax.jit(stacked(plain_for_gradient))), bar=1.2)
    yield nine
    yield gradient_of(replace(nine, plain=jax.jit(lambda f: plain_for_gradient(f, steps))), bar=1.2)
