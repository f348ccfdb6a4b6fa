"""Gradients of graphs that are cut by hand, beside JAX's of plain JAX: by `cl.gradient`, and by `jax.grad`.

Products, convolutions, look-ups, maps and norms, in blocks as a user writes them: such as divide what they are blocks
of, and such as leave something over. Stencils in blocks are in `loop_gradients`.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.adjoint import compare_gradients
from benchmarks.harness import Comparison, Row, benchmark, gradient_of
from benchmarks.ops_gradients import IDS, Differentiated, forward_of


def cuts(extent: int, size: int) -> list[tuple[int, int, int]]:
    """The first position, the number and the size of blocks that divide an extent: the even ones, and what is left."""
    even, left = divmod(extent, size)
    return [(0, even, size)] * (even > 0) + [(even * size, 1, left)] * (left > 0)


def blocks(shape: Sequence[int], sizes: Sequence[int]) -> Iterator[tuple[Any, ...]]:
    """Of each family of blocks a slice for each dimension, over the symbols of its grid."""
    for parts in itertools.product(*map(cuts, shape, sizes)):
        symbols = cl.grid(*(count for _, count, _ in parts))
        own = symbols if len(parts) > 1 else (symbols,)
        yield tuple(slice(first + n * k, first + n * k + n) for k, (first, _, n) in zip(own, parts, strict=True))


@cl.codelet
def product(a, b):
    """A block of a product."""
    return a @ b


def _product(graph: cl.Graph, a: cl.Tensor, b: cl.Tensor, *, sizes: tuple[int, int]) -> cl.Tensor:
    c = graph.add_variable("c", (len(a), b.shape[1]))
    for i, j in blocks(c.shape, sizes):
        graph.add_vertex("multiply", product, a=a[i], b=b[:, j], out=c[i, j])
    return c


@cl.codelet
def convolved(x, w):
    """Rows of some results of an image, which has a frame of zeros around it."""
    return lax.conv_general_dilated(x[None], w, (1, 1), "VALID")[0]


def _convolve(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor, *, sizes: tuple[int, int]) -> cl.Tensor:
    around = x.pad(((0, 0), (0, 0), (1, 1), (1, 1)))
    y = graph.add_variable("y", (len(x), len(w), *x.shape[2:]))
    for n, o, h in blocks(y.shape[:3], (1, *sizes)):
        rows = slice(h.start, h.stop + 2)
        graph.add_vertex("convolve", convolved, x=around[n.start, :, rows], w=w[o], out=y[n.start, o, h])
    return y


@cl.codelet
def taken(table, i):
    """A row of a table."""
    return table[i]


def _look_up(graph: cl.Graph, table: cl.Tensor) -> cl.Tensor:
    ids, k = graph.add_constant("ids", IDS), cl.grid(len(IDS))
    found = graph.add_variable("found", (len(IDS), table.shape[1]))
    graph.add_vertex("look up", taken, table=table, i=ids[k], out=found[k])
    return found


@cl.codelet
def normed(x, scale, bias):
    """Rows of mean zero and variance one, scaled and moved."""
    mean, variance = x.mean(-1, keepdims=True), x.var(-1, keepdims=True)
    return (x - mean) * lax.rsqrt(variance + 1e-5) * scale + bias


@cl.codelet
def bent(x, bias):
    """Rows of a layer's activations."""
    return jax.nn.gelu(x + bias)


def _by_rows(graph: cl.Graph, x: cl.Tensor, *others: cl.Tensor, codelet: cl.Codelet, size: int) -> cl.Tensor:
    y, (first, *rest) = graph.add_variable("y", x.shape), codelet.inputs
    for (i,) in blocks(x.shape[:1], (size,)):
        graph.add_vertex("rows", codelet, **{first: x[i]}, **dict(zip(rest, others, strict=True)), out=y[i])
    return y


def _plain_convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, w, (1, 1), "SAME")


IMAGES = ((8, 32, 28, 28), (32, 32, 3, 3))
MATRICES = ((512, 512), (512, 512))
ROWS = (1_024, 512)
NORM, BEND = partial(_by_rows, codelet=normed), partial(_by_rows, codelet=bent)

BY_HAND: Mapping[str, Differentiated] = {
    "product/even": Differentiated(partial(_product, sizes=(64, 32)), jnp.matmul, MATRICES),
    "product/uneven": Differentiated(partial(_product, sizes=(37, 41)), jnp.matmul, MATRICES),
    "conv/even": Differentiated(partial(_convolve, sizes=(8, 7)), _plain_convolution, IMAGES),
    "conv/uneven": Differentiated(partial(_convolve, sizes=(5, 11)), _plain_convolution, IMAGES),
    "embedding": Differentiated(_look_up, lambda table: table[IDS], [(8_000, 64)], 1.5),
    "gelu/even": Differentiated(partial(BEND, size=8), bent.function, [ROWS, ROWS[1:]]),
    "gelu/uneven": Differentiated(partial(BEND, size=7), bent.function, [ROWS, ROWS[1:]]),
    "norm/even": Differentiated(partial(NORM, size=8), normed.function, [ROWS, ROWS[1:], ROWS[1:]]),
    "norm/uneven": Differentiated(partial(NORM, size=7), normed.function, [ROWS, ROWS[1:], ROWS[1:]]),
}


@benchmark
def hand_gradients(by_hand: Mapping[str, Differentiated] = BY_HAND) -> Generator[Comparison | Row, Row, None]:
    """Gradients of what is cut by hand, in even blocks and in others: by `cl.gradient`, and by `jax.grad`."""
    for name, own in by_hand.items():
        draw = lambda random, own=own: tuple(random.standard_normal(shape, np.float32) for shape in own.shapes)  # noqa: E731
        forward = Comparison(name, ours=cl.lower(own.build), plain=own.plain, arguments=draw)
        by_vertices = compare_gradients(forward, partial(forward_of, own, 1_472), own.bar)
        yield replace(by_vertices, name=f"hand_gradients/{name}")
        yield replace(gradient_of(forward, own.bar), name=f"hand_gradients/{name}/jax_grad")
