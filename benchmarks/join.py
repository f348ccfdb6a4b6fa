"""Operations that were cut, run whole: what a graph of blocks, partial sums and phases lowers to, beside plain JAX.

Every case is cut unevenly: no block divides an extent, so that a compute set has a family for each way in which what is
left over lies. The same by hand: a dot product's vertices and those that add up, by symbols and by loops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark

STRIDE, PADDING = (2, 2), ((1, 1), (1, 1))


@cl.codelet
def dot(x, w):
    """The product of two stretches."""
    return jnp.dot(x, w)


@cl.codelet
def total(parts):
    """The sum of a row."""
    return parts.sum()


class Case(NamedTuple):
    """What is cut.

    Attributes:
        build: from a graph and tensors, the tensor that holds the result.
        plain: the same in JAX.
        shapes: of the inputs.
        tolerance: as of a `Comparison`.
    """

    build: Callable[..., cl.Tensor]
    plain: Callable[..., jax.Array]
    shapes: Sequence[tuple[int, ...]]
    tolerance: float = 1e-5


def _convolution(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor) -> cl.Tensor:
    return cl.ops.conv_general_dilated(graph, x, w, STRIDE, PADDING)


def _plain_convolution(x: jax.Array, w: jax.Array) -> jax.Array:
    return lax.conv_general_dilated(x, w, STRIDE, PADDING)


def input_gradient(shape: tuple[int, ...]) -> tuple[Callable[..., cl.Tensor], Callable[..., jax.Array]]:
    """The gradient of a convolution by its image, which has phases."""

    def build(graph: cl.Graph, cotangent: cl.Tensor, w: cl.Tensor) -> cl.Tensor:
        return cl.ops.conv_input_gradient(graph, cotangent, w, shape, STRIDE, PADDING)

    def plain(cotangent: jax.Array, w: jax.Array) -> jax.Array:
        return jax.vjp(lambda x: _plain_convolution(x, w), jnp.zeros(shape, w.dtype))[1](cotangent)[0]

    return build, plain


def by_symbols(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor) -> cl.Tensor:
    """A matrix by a vector in stretches of 16, and one for what is left over, by a family each."""
    rows, columns = w.shape
    whole = columns // 16
    part = graph.add_variable(graph.free_name("part"), (rows, -(-columns // 16)))
    row, p = cl.grid(rows, whole)
    field = slice(16 * p, 16 * p + 16)
    graph.add_vertex("multiply", dot, x=x[field], w=w[row, field], out=part[row, p])
    row = cl.grid(rows)
    if whole < part.shape[1]:
        graph.add_vertex("multiply", dot, x=x[16 * whole :], w=w[row, 16 * whole :], out=part[row, whole])
    row = cl.grid(rows)
    return graph.add_vertex("add up", total, parts=part[row])


def by_loops(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor) -> cl.Tensor:
    """The same, a vertex a turn of a loop."""
    rows, columns = w.shape
    part = graph.add_variable(graph.free_name("part"), (rows, -(-columns // 16)))
    made = graph.add_variable(graph.free_name("made"), (rows,))
    multiply, add_up = graph.add_compute_set("multiply"), graph.add_compute_set("add up")
    for row in range(rows):
        for p in range(part.shape[1]):
            field = slice(16 * p, min(16 * p + 16, columns))
            graph.add_vertex(multiply, dot, x=x[field], w=w[row, field], out=part[row, p])
        graph.add_vertex(add_up, total, parts=part[row], out=made[row])
    return made


def _matrix_by_vector(x: jax.Array, w: jax.Array) -> jax.Array:
    return w @ x


IMAGE, KERNEL = (8, 64, 57, 57), (128, 64, 3, 3)
_GRADIENT = input_gradient(IMAGE)

CASES = {
    "matmul": Case(lambda graph, a, b: cl.ops.matmul(graph, a, b), jnp.matmul, [(1000, 1500), (1500, 700)], 1e-4),
    "matmul/prime": Case(lambda graph, a, b: cl.ops.matmul(graph, a, b), jnp.matmul, [(499, 997), (997, 701)], 1e-4),
    "conv": Case(_convolution, _plain_convolution, [IMAGE, KERNEL], 1e-4),
    "conv_input_gradient": Case(*_GRADIENT, [(8, 128, 29, 29), KERNEL], 1e-4),
    "sum": Case(lambda graph, x: cl.ops.sum(graph, x, axis=0), lambda x: x.sum(0), [(2_000_003, 3)], 1e-3),
    "dot/symbols": Case(by_symbols, _matrix_by_vector, [(1030,), (512, 1030)], 1e-4),
    "dot/loops": Case(by_loops, _matrix_by_vector, [(1030,), (64, 1030)], 1e-4),
}


@benchmark
def join(cases: dict[str, Case] = CASES) -> Generator[Comparison | Row, Row, None]:
    """Products, convolutions and sums that were cut where no block divides an extent."""
    for name, case in cases.items():

        def arguments(random: np.random.Generator, shapes: Sequence[tuple[int, ...]]) -> tuple[np.ndarray, ...]:
            return tuple(random.standard_normal(shape, np.float32) for shape in shapes)

        yield Comparison(
            f"join/{name}",
            ours=jax.jit(cl.lower(case.build)),
            plain=jax.jit(case.plain),
            arguments=functools.partial(arguments, shapes=case.shapes),
            bar=1.05,
            tolerance=case.tolerance,
        )
