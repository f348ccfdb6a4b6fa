"""Decoding a low-density parity-check code by min-sum (Gallager 1963; Fossorier and others 1999), in integers.

A vertex for each bit and for each check. Their messages live on the edges between them, in the order of the checks:
a bit's three are looked up by a table, for reading and for writing.

Run it with `python -m tutorials.programs.ldpc`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show

PER_BIT, PER_CHECK = 3, 6


@cl.codelet
def to_checks(channel, from_checks):
    """What a bit tells each of its checks: what it heard from the channel and from the other checks."""
    belief = channel + jnp.sum(from_checks)
    return {"to": belief - from_checks, "belief": belief}


@cl.codelet
def to_bits(from_bits):
    """What a check tells each of its bits: the parity of the others, and how sure the least sure of them is."""
    others = ~jnp.eye(PER_CHECK, dtype=bool)
    sure = jnp.min(jnp.where(others, jnp.abs(from_bits), 1 << 20), axis=1)
    signs = jnp.where(from_bits < 0, -1, 1)
    return jnp.prod(signs) * signs * sure


def random_code(bits: int, seed: int = 0) -> np.ndarray:
    """For each bit its edges, each an edge of another check's six: shape (bits, 3)."""
    return np.random.default_rng(seed).permutation(bits * PER_BIT).reshape(bits, PER_BIT).astype(np.int32)


def lower_decoder(edges: np.ndarray, rounds: int) -> cl.Lowered:
    """Bits and checks in turn."""
    bits = len(edges)
    graph = cl.Graph()
    channel, belief = (graph.add_variable(name, (bits,), jnp.int32) for name in ("channel", "belief"))
    down, up = (graph.add_variable(name, (bits * PER_BIT,), jnp.int32) for name in ("down", "up"))
    bit, check = cl.grid(bits), cl.grid(bits * PER_BIT // PER_CHECK)
    of_bit, of_check = cl.table(edges)[bit], slice(PER_CHECK * check, PER_CHECK * check + PER_CHECK)
    with graph.record() as one_round:
        graph.add_vertex(
            "bits", to_checks, channel=channel[bit], from_checks=up[of_bit], to=down[of_bit], belief=belief[bit]
        )
        graph.add_vertex("checks", to_bits, from_bits=down[of_check], out=up[of_check])
    return cl.lower(graph, cl.Repeat(rounds, one_round), inputs=[channel, up], outputs=[belief])


def plain_decoder(edges: np.ndarray, rounds: int, channel: jax.Array, up: jax.Array) -> jax.Array:
    """The same on whole arrays."""
    others = ~jnp.eye(PER_CHECK, dtype=bool)
    inverse = np.argsort(edges.reshape(-1)).astype(np.int32)

    def one_round(_: object, state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        up, _ = state
        heard = up[edges]
        belief = channel + jnp.sum(heard, axis=1)
        down = (belief[:, None] - heard).reshape(-1)[inverse].reshape(-1, PER_CHECK)
        sure = jnp.min(jnp.where(others, jnp.abs(down)[:, None, :], 1 << 20), axis=2)
        signs = jnp.where(down < 0, -1, 1)
        return (jnp.prod(signs, axis=1, keepdims=True) * signs * sure).reshape(-1), belief

    return jax.lax.fori_loop(0, rounds, one_round, (up, channel))[1]


def twin(bits: int = 30_000, rounds: int = 20) -> Comparison:
    """Both sides, on the word of zeros sent through noise."""
    edges = random_code(bits)

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        heard = np.rint(16 * (1 + 0.8 * random.standard_normal(bits))).astype(np.int32)
        return heard, np.zeros(bits * PER_BIT, np.int32)

    return Comparison(
        "ldpc",
        ours=jax.jit(lambda lowered, channel, up: lowered({"channel": channel, "up": up})["belief"]),
        plain=jax.jit(lambda channel, up: plain_decoder(edges, rounds, channel, up)),
        arguments=arguments,
        ours_held=lambda: (lower_decoder(edges, rounds),),
    )


if __name__ == "__main__":
    show(twin())
