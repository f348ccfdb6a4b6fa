"""Gradients of operations as graphs and of operations that are lowered, beside JAX's of plain JAX.

`cl.gradient` adds a backward pass of vertices; `jax.grad` of a lowered graph has none. Both give the value and the
gradients, pulled back from random cotangents, for machines of 1,472 tiles and of 64: the grain should not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.adjoint import Forward, compare_gradients
from benchmarks.harness import Comparison, Row, benchmark, gradient_of


class Differentiated(NamedTuple):
    """Operations whose gradient is taken.

    Attributes:
        build: adds them to a graph: from their operands, tensors, to their result.
        plain: the same in JAX.
        shapes: of the operands.
        bar: what the ratio may be at most.
    """

    build: Callable[..., cl.Tensor]
    plain: Callable[..., jax.Array]
    shapes: Sequence[tuple[int, ...]]
    bar: float = 1.2


IDS = np.random.default_rng(0).integers(0, 8_000, 1_024).astype(np.int32)
"""The tokens that are looked up."""


def _embed(graph: cl.Graph, table: cl.Tensor) -> cl.Tensor:
    return cl.ops.embedding(graph, table, graph.add_constant("ids", IDS))


def _convolve(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor, strides: int = 1) -> cl.Tensor:
    return cl.ops.conv_general_dilated(graph, x, w, strides, padding="SAME")


def _plain_convolution(x: jax.Array, w: jax.Array, strides: int = 1) -> jax.Array:
    return lax.conv_general_dilated(x, w, (strides, strides), "SAME")


def _gelu(x: Any, bias: Any) -> Any:
    return jax.nn.gelu(x + bias)


def _map(graph: cl.Graph, x: cl.Tensor, bias: cl.Tensor) -> cl.Tensor:
    return cl.ops.map(graph, _gelu, x, bias)


def _pool(graph: cl.Graph, x: cl.Tensor) -> cl.Tensor:
    return cl.ops.max_pool(graph, x, (3, 3), 2, axis=(2, 3))


def _plain_pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -np.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2), "VALID")


def _plain_norm(x: jax.Array, scale: jax.Array, offset: jax.Array) -> jax.Array:
    return jax.nn.standardize(x) * scale + offset


def _plain_cell(x: jax.Array, h: jax.Array, c: jax.Array, of_x: jax.Array, of_h: jax.Array) -> jax.Array:
    i, f, g, o = jnp.split(x @ of_x.T + h @ of_h.T, 4, axis=1)
    return jax.nn.sigmoid(o) * jnp.tanh(jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g))


CELL = ((128, 256), (128, 256), (128, 256), (1_024, 256), (1_024, 256))
"""Of a long short-term memory: inputs, states, memories, and the weights of its four gates."""

IMAGES = ((8, 32, 28, 28), (64, 32, 3, 3))

OPERATIONS: Mapping[str, Differentiated] = {
    "embedding": Differentiated(_embed, lambda table: table[IDS], [(8_000, 64)], 1.5),
    "attention": Differentiated(cl.ops.dot_product_attention, jax.nn.dot_product_attention, [(4, 128, 8, 32)] * 3),
    "conv": Differentiated(_convolve, _plain_convolution, IMAGES),
    "strided": Differentiated(partial(_convolve, strides=2), partial(_plain_convolution, strides=2), IMAGES),
    "product/256x64x192": Differentiated(cl.ops.matmul, jnp.matmul, [(256, 64), (64, 192)]),
    "product/512": Differentiated(cl.ops.matmul, jnp.matmul, [(512, 512)] * 2),
    "product/1000x1500x700": Differentiated(cl.ops.matmul, jnp.matmul, [(1000, 1500), (1500, 700)]),
    "product/prime": Differentiated(cl.ops.matmul, jnp.matmul, [(211, 307), (307, 101)]),
    "gelu": Differentiated(_map, _gelu, [(512, 1_024), (1_024,)]),
    "layer_norm": Differentiated(cl.ops.layer_norm, _plain_norm, [(512, 1_000), (1_000,), (1_000,)]),
    "max": Differentiated(lambda graph, x: cl.ops.max(graph, x, 1), lambda x: jnp.max(x, 1), [(512, 1_000)]),
    "lstm": Differentiated(lambda graph, *own: cl.ops.lstm_cell(graph, *own)[0], _plain_cell, CELL),
    "max_pool": Differentiated(_pool, _plain_pool, [(8, 32, 28, 28)]),
    "softmax": Differentiated(cl.ops.softmax, jax.nn.softmax, [(512, 1_000)]),
}


def forward_of(own: Differentiated, tiles: int) -> Forward:
    """A graph of operations for a machine of so many tiles."""
    graph = cl.Graph(cl.IPU(num_tiles=tiles))
    wrt = [graph.add_variable(f"x{k}", shape) for k, shape in enumerate(own.shapes)]
    return Forward(graph, own.build(graph, *wrt), wrt)


@benchmark
def ops_gradients(
    operations: Mapping[str, Differentiated] = OPERATIONS, machines: Sequence[int] = (1_472, 64)
) -> Generator[Comparison | Row, Row, None]:
    """Gradients of embedding, attention, convolutions, products, a map and softmax: by vertices, and by `jax.grad`."""
    for name, own in operations.items():
        for tiles in machines:
            draw = lambda random, own=own: tuple(random.standard_normal(shape, np.float32) for shape in own.shapes)  # noqa: E731
            forward = Comparison(
                f"{name}/{tiles}",
                ours=cl.lower(own.build, target=cl.IPU(num_tiles=tiles)),
                plain=own.plain,
                arguments=draw,
            )
            by_vertices = compare_gradients(forward, partial(forward_of, own, tiles), own.bar)
            yield replace(by_vertices, name=f"ops_gradients/{name}/{tiles}")
            yield replace(gradient_of(forward, own.bar), name=f"ops_gradients/{name}/{tiles}/jax_grad")
