"""Conway's game of life on a torus of bytes, its periodic neighbours written in three ways.

Run it with `python -m tutorials.programs.life`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show

VARIANTS = ("modulo", "wrap", "windows")

AROUND = {
    "nw": (-1, -1),
    "n": (-1, 0),
    "ne": (-1, 1),
    "w": (0, -1),
    "e": (0, 1),
    "sw": (1, -1),
    "s": (1, 0),
    "se": (1, 1),
}
"""Where the neighbours of a cell are."""


def _rule(here, around):
    """Whether a cell lives on, as a byte."""
    return ((around == 3) | ((around == 2) & (here == 1))).astype(jnp.int8)


@cl.codelet
def live(here, nw, n, ne, w, e, sw, s, se):
    """A cell one step later, from itself and its eight neighbours."""
    return _rule(here, nw + n + ne + w + e + sw + s + se)


@cl.codelet
def live_inside(window):
    """A cell one step later, from the 3 x 3 cells around it."""
    return _rule(window[1, 1], jnp.sum(window, dtype=jnp.int8) - window[1, 1])


def lower_life(side: int, steps: int, variant: str) -> cl.Lowered:
    """Every turn takes one step from `x` to `y`, and copies `y` back."""
    graph = cl.Graph()
    x, y = (graph.add_variable(name, (side, side), jnp.int8) for name in "xy")
    i, j = cl.grid(side, side)
    padded = x.pad(1, "wrap")
    with graph.record() as step:
        if variant == "windows":
            graph.add_vertex("live", live_inside, window=padded[i : i + 3, j : j + 3], out=y[i, j])
        elif variant == "wrap":
            around = {name: padded[i + 1 + a, j + 1 + b] for name, (a, b) in AROUND.items()}
            graph.add_vertex("live", live, here=x[i, j], **around, out=y[i, j])
        else:
            around = {name: x[(i + a) % side, (j + b) % side] for name, (a, b) in AROUND.items()}
            graph.add_vertex("live", live, here=x[i, j], **around, out=y[i, j])
    return cl.lower(graph, cl.Repeat(steps, [step, cl.Copy(y, x)]), inputs=[x], outputs=[x])


def plain_life(x: jax.Array, steps: int) -> jax.Array:
    """The padded array is what the loop carries: slices of it are added up, and what lives on is padded anew.

    The fastest of twelve measured on two cores of a CPU (1024 x 1024, a step): this 0.068 ms; padded in each
    step behind an `optimization_barrier` 0.069; sums of three columns of sums of three rows 0.069 to 0.071, of
    rolls 0.100; padded in each step, which XLA fuses into the sum, 0.22; padded by updates in place 0.24;
    eight rolls 0.25; the inside by slices and its border apart 0.40; `reduce_window` 0.62; index vectors 2.7.
    """

    def step(_: object, padded: jax.Array) -> jax.Array:
        height, width = x.shape
        around = [padded[1 + a : 1 + a + height, 1 + b : 1 + b + width] for a, b in AROUND.values()]
        return jnp.pad(_rule(padded[1:-1, 1:-1], sum(around[1:], around[0])), 1, mode="wrap")

    return lax.fori_loop(0, steps, step, jnp.pad(x, 1, mode="wrap"))[1:-1, 1:-1]


def twin(side: int = 1024, steps: int = 100, variant: str = "modulo") -> Comparison:
    """Both sides."""
    return Comparison(
        f"life/{variant}",
        ours=jax.jit(lambda lowered, x: lowered({"x": x})["x"]),
        plain=jax.jit(lambda x: plain_life(x, steps)),
        arguments=lambda random: (random.integers(0, 2, (side, side), np.int8),),
        ours_held=lambda: (lower_life(side, steps, variant),),
    )


if __name__ == "__main__":
    for variant in VARIANTS:
        show(twin(variant=variant))
