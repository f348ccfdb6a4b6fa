"""One checkerboard sweep of the Ising model on a torus, every vertex with random numbers of its own."""

from __future__ import annotations

import math
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark

INVERSE_TEMPERATURE = 0.44


def _uniform(seed: Any, site: Any) -> jax.Array:
    """The random number of one site."""
    return jax.random.uniform(jax.random.fold_in(jax.random.wrap_key_data(seed), site))


def _metropolis(spin: Any, around: Any, random: Any) -> jax.Array:
    """The spin after it was tried to be flipped.

    The chance of a flip takes few values, so they stand here as numbers: how `exp` is rounded would differ
    between two programs, and one spin with it.
    """
    gain = spin * around
    chance = jnp.where(
        gain >= 4,
        math.exp(-8 * INVERSE_TEMPERATURE),
        jnp.where(gain >= 2, math.exp(-4 * INVERSE_TEMPERATURE), 1.0),
    )
    return jnp.where(random < chance, -spin, spin)


@cl.codelet
def flip(s, north, south, west, east, site, seed):
    """Try to flip the spin of one site."""
    return {"s": _metropolis(s, north + south + west + east, _uniform(seed, site))}


def lower_sweep(side: int) -> cl.Lowered:
    """The black sites, then the white: of either colour those in even rows and those in odd rows."""
    graph = cl.Graph()
    s = graph.add_variable("s", (side, side), jnp.int32)
    seed = graph.add_variable("seed", (2,), jnp.uint32)
    for colour, name in enumerate(("black", "white")):
        step = graph.add_compute_set(name)
        for row in (0, 1):
            i, j = cl.grid(range(row, side, 2), range((row + colour) % 2, side, 2))
            graph.add_vertex(
                step,
                flip,
                s=s[i, j],
                north=s[(i - 1) % side, j],
                south=s[(i + 1) % side, j],
                west=s[i, (j - 1) % side],
                east=s[i, (j + 1) % side],
                site=side * i + j,
                seed=seed,
            )
    return cl.lower(graph, inputs=[s, seed], outputs=[s])


def plain_sweep(s: jax.Array, seed: jax.Array) -> jax.Array:
    """Either colour in an array of its own; rolls, and masks for odd rows; random numbers 32 rows at a time.

    The fastest measured. On two busy cores of a CPU, 2048 x 2048, this takes 0.150 s, of which nearly all is
    the random numbers: XLA's rounds of Threefry are a loop over whole arrays, which should fit the cache.
    With all rows at once 0.237 s. Masks for the colour, with rolls and blocks of rows, 0.180 s; without
    blocks 0.332, then with a wrapped pad instead of rolls 1.3 times that, with index vectors twice. Four
    sublattices by the parity of row and column: 0.311 s with rolls, 0.320 with index vectors.
    """
    side = len(s)
    row = lax.broadcasted_iota(jnp.int32, (side, side // 2), 0)
    column = lax.broadcasted_iota(jnp.int32, (side, side // 2), 1)
    odd = row % 2 == 1
    spins = [jnp.where(odd, s[:, 1::2], s[:, 0::2]), jnp.where(odd, s[:, 0::2], s[:, 1::2])]
    for colour in (0, 1):
        own, other = spins[colour], spins[1 - colour]
        shift = (row + colour) % 2
        beside = jnp.where(shift == 1, jnp.roll(other, -1, 1), jnp.roll(other, 1, 1))
        around = jnp.roll(other, 1, 0) + jnp.roll(other, -1, 0) + other + beside
        sites = side * row + 2 * column + shift
        random = lax.map(jax.vmap(lambda site: _uniform(seed, site)), sites, batch_size=32)
        spins[colour] = _metropolis(own, around, random)
    black, white = spins
    return jnp.stack([jnp.where(odd, white, black), jnp.where(odd, black, white)], 2).reshape(side, side)


@benchmark
def ising(side: int = 2048) -> Generator[Comparison | Row, Row, None]:
    """A checkerboard sweep on a torus of 2048 x 2048 spins, a vertex for each, in two compute sets."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        spins = 2 * random.integers(0, 2, (side, side), np.int32) - 1
        return spins, random.integers(0, 2**32, 2, np.uint32)

    yield Comparison(
        "ising",
        ours=jax.jit(lambda lowered, s, seed: lowered({"s": s, "seed": seed})["s"]),
        plain=jax.jit(plain_sweep),
        arguments=arguments,
        bar=1.2,
        ours_held=lambda: (lower_sweep(side),),
    )
