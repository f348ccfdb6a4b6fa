"""Dot products of vectors gathered by tables: edges without any pattern."""

from __future__ import annotations

from collections.abc import Generator

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of


@cl.codelet
def dot(a, b):
    """The product of two gathered vectors."""
    return jnp.dot(a, b)


def tables(vertices: int, length: int, elements: int) -> tuple[np.ndarray, np.ndarray]:
    """Which elements the two vectors of every vertex are made of."""
    random = np.random.default_rng(1)
    left, right = random.integers(0, elements, (2, vertices, length), np.int32)
    return left, right


def build_dots(vertices: int, length: int, elements: int) -> tuple[cl.Graph, cl.Tensor, cl.Tensor]:
    """A vertex for each pair of vectors: the graph, the floats and the products."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (elements,)), graph.add_variable("y", (vertices,))
    left, right = tables(vertices, length, elements)
    v = cl.grid(vertices)
    graph.add_vertex("dots", dot, a=x[cl.table(left)[v]], b=x[cl.table(right)[v]], out=y[v])
    return graph, x, y


def lower_dots(vertices: int, length: int, elements: int) -> cl.Lowered:
    """That graph, fused."""
    graph, x, y = build_dots(vertices, length, elements)
    return cl.lower(graph, inputs=[x], outputs=[y])


@benchmark
def gather_dot(
    vertices: int = 1_000_000, length: int = 16, elements: int = 16_000_000
) -> Generator[Comparison | Row, Row, None]:
    """A million dot products of two vectors of 16, gathered at random from 16 million floats.

    On both sides the tables are arguments of what is jitted: ours come with the lowered graph, whose leaves
    they are. The gradient is with respect to the floats.
    """

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (random.standard_normal(elements, np.float32),)

    forward = Comparison(
        "gather_dot",
        ours=jax.jit(lambda lowered, x: lowered({"x": x})["y"]),
        plain=jax.jit(lambda left, right, x: jax.vmap(lambda a, b: jnp.dot(x[a], x[b]))(left, right)),
        arguments=arguments,
        bar=1.05,
        ours_held=lambda: (lower_dots(vertices, length, elements),),
        plain_held=lambda: tables(vertices, length, elements),
    )
    yield forward
    yield gradient_of(forward, bar=1.15)
