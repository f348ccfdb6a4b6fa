"""A function called fifty times: residual blocks in a row, with different weights."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark, gradient_of
from codelet.models.mnist import dense, relu


class Sizes(NamedTuple):
    """How many calls, of how many vectors of which width."""

    calls: int
    batch: int
    width: int


@cl.codelet
def add(x, y):
    """What a residual block adds to its input."""
    return {"x": x + y}


def lower_chain(sizes: Sizes) -> cl.Lowered:
    """A residual block of two layers as a function, called with one slice of the weights after another."""
    calls, batch, width = sizes
    graph = cl.Graph()
    x = graph.add_variable("x", (batch, width))
    weights = [graph.add_variable(name, (calls, width, width)) for name in ("w1", "w2")]
    biases = [graph.add_variable(name, (calls, width)) for name in ("b1", "b2")]
    with graph.scope("block"), graph.record() as body:
        h = graph.add_variable("h", (batch, width))
        w1, w2 = (graph.add_variable(name, (width, width)) for name in ("w1", "w2"))
        b1, b2 = (graph.add_variable(name, (width,)) for name in ("b1", "b2"))
        i, j = cl.grid(batch, width)
        with graph.scope("first"):
            inner = graph.add_vertex("relu", relu, x=dense(graph, h, w1, b1)[i, j])
        with graph.scope("second"):
            outer = dense(graph, inner, w2, b2)
        graph.add_vertex("add", add, x=h[i, j], y=outer[i, j])
    block = graph.add_function(body, [h, w1, b1, w2, b2])
    chain = [
        cl.Call(block, h=x, w1=weights[0][k], b1=biases[0][k], w2=weights[1][k], b2=biases[1][k]) for k in range(calls)
    ]
    return cl.lower(graph, cl.Sequence(*chain), inputs=[x, *weights, *biases], outputs=[x])


def ours(lowered: cl.Lowered, *arrays: jax.Array) -> jax.Array:
    """The lowered graph."""
    return lowered(dict(zip(("x", "w1", "w2", "b1", "b2"), arrays, strict=True)))["x"]


def plain(x: jax.Array, w1: jax.Array, w2: jax.Array, b1: jax.Array, b2: jax.Array) -> jax.Array:
    """A scan over stacked weights. With `x @ w.T` for the products, the gradient takes half as long again."""

    def block(x: jax.Array, own: tuple[jax.Array, ...]) -> tuple[jax.Array, None]:
        w1, w2, b1, b2 = own
        inner = jax.nn.relu(jnp.einsum("bi,oi->bo", x, w1) + b1)
        return x + jnp.einsum("bi,oi->bo", inner, w2) + b2, None

    return lax.scan(block, x, (w1, w2, b1, b2))[0]


def shapes(sizes: Sizes) -> list[tuple[int, ...]]:
    """Of the input, of the weights and of the biases."""
    calls, batch, width = sizes
    return [(batch, width), *[(calls, width, width)] * 2, *[(calls, width)] * 2]


def seconds_to_compile(which: str, *sizes: int) -> float:
    """From the shapes to what XLA made of one side: of ours with the graph built and lowered."""
    structs = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes(Sizes(*sizes))]
    jax.block_until_ready(jnp.zeros(3) + 1)  # starting XLA is no part of it
    start = time.perf_counter()
    if which == "ours":
        jax.jit(ours).lower(lower_chain(Sizes(*sizes)), *structs).compile()
    else:
        jax.jit(plain).lower(*structs).compile()
    return time.perf_counter() - start


@benchmark
def call_chain(
    calls: int = 50, batch: int = 32, width: int = 256, rounds: int = 5
) -> Generator[Comparison | Row, Row, None]:
    """A residual block of two layers of 256, on 32 vectors, called 50 times with different weights.

    The gradient is with respect to the vectors and all weights. What compiling costs is measured in a process of
    its own each time, in turn: beside plain JAX, and beside one call.
    """
    sizes = Sizes(calls, batch, width)

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        scales = (1.0, 0.3 / width**0.5, 0.3 / width**0.5, 0.1, 0.1)
        drawn = [random.standard_normal(shape, np.float32) for shape in shapes(sizes)]
        return tuple(np.float32(scale) * array for scale, array in zip(scales, drawn, strict=True))

    forward = Comparison(
        "call_chain",
        ours=jax.jit(ours),
        plain=jax.jit(plain),
        arguments=arguments,
        bar=1.2,
        ours_held=lambda: (lower_chain(sizes),),
    )
    yield forward
    yield gradient_of(forward, bar=1.2)
    kinds = [("ours", calls), ("plain", calls), ("ours", 1)]
    times = [
        [in_fresh_process(seconds_to_compile, which, n, batch, width) for which, n in kinds] for _ in range(rounds)
    ]
    own, theirs, single = np.median(times, axis=0).tolist()
    yield Row("call_chain/compile", own, None, own / theirs, 2.0, f"to plain JAX's {1e3 * theirs:.0f} ms")
    yield Row("call_chain/compile_one", single, None, None, None)
    yield Row("call_chain/compile_growth", None, None, own / single, 2.0, "of 50 calls to one")
