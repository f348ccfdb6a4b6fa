"""Gradients as graphs: the backward pass by vertices of its own, lowered fused, beside JAX's product of plain JAX.

Both sides give the value and its gradient, pulled back from random cotangents.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.conv import ALEXNET, Convolution, compare_layer, convolve
from benchmarks.gather_dot import build_dots, tables
from benchmarks.harness import Comparison, Row, benchmark, gradient_of, mean_row
from benchmarks.heat import RATE, heat_steps
from benchmarks.matvec import multiply
from benchmarks.messages import build_messages, network, plain

LIMIT_SECONDS = 2.0

CHUNK = 16


class Forward(NamedTuple):
    """A graph whose gradient is taken.

    Attributes:
        graph: the graph.
        of: what is differentiated.
        wrt: by what: the inputs of the program.
        program: all compute sets, in order, where it is None.
    """

    graph: cl.Graph
    of: cl.Tensor
    wrt: Sequence[cl.Tensor]
    program: cl.Program | None = None


def lower_gradient(forward: Forward) -> Callable[..., Any]:
    """The backward pass added to a graph, and both passes lowered: from a cotangent and the inputs."""
    graph, of, wrt, program = forward
    cotangent = graph.add_variable("cotangent", of.shape)
    found = cl.gradient(graph, of=of, wrt=wrt, program=program, cotangent=cotangent)
    kept = graph.add_variable("result", of.shape)
    both = cl.Sequence(found.forward, cl.Copy(of, kept), found.backward)
    slopes = [found[own] for own in wrt]
    return cl.lower(graph, both, inputs=[cotangent, *wrt], outputs=[kept, *slopes])


def run(lowered: Any, *arguments: Any) -> tuple[Any, tuple[Any, ...]]:
    """The value and the gradients by a lowered graph, from a cotangent and inputs."""
    value, *slopes = lowered.flat(arguments)
    return value, tuple(slopes)


def compare_gradients(forward: Comparison, build: Callable[[], Forward], bar: float | None) -> Comparison:
    """The gradient of plain JAX, and that of a graph of the same."""
    held = lambda: (lower_gradient(build()),)  # noqa: E731
    return replace(gradient_of(forward, bar), name=f"adjoint_{forward.name}", ours=jax.jit(run), ours_held=held)


# --- a matrix times a vector ----------------------------------------------------------------------------


def _inputs(graph: cl.Graph, **shapes: tuple[int, ...]) -> list[cl.Tensor]:
    return [graph.add_variable(name, shape) for name, shape in shapes.items()]


def build_matvec(rows: int, columns: int) -> Forward:
    """`w @ x`, by both."""
    graph = cl.Graph()
    wrt = _inputs(graph, w=(rows, columns), x=(columns,))
    return Forward(graph, multiply(graph, *wrt), wrt)


@benchmark
def adjoint_matvec(rows: int = 4096, columns: int = 9216, rounds: int = 3) -> Generator[Comparison | Row, Row, None]:
    """The gradient of 2.36 million dot products and 4096 sums, and how long it takes to build and lower it."""
    forward = Comparison(
        "matvec",
        ours=run,
        plain=jax.jit(lambda w, x: w @ x),
        arguments=lambda random: (
            random.standard_normal((rows, columns), np.float32),
            random.standard_normal(columns, np.float32),
        ),
    )
    yield compare_gradients(forward, lambda: build_matvec(rows, columns), bar=1.1)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        lower_gradient(build_matvec(rows, columns))
        times.append(time.perf_counter() - start)
    seconds = float(np.median(times))
    yield Row("adjoint_matvec/build", seconds, None, seconds / LIMIT_SECONDS, 1.0, f"to {LIMIT_SECONDS:.0f} s")


# --- dense layers ---------------------------------------------------------------------------------------


@cl.codelet
def dot(w, x):
    """The product of a chunk of a row of weights with a chunk of what comes in."""
    return jnp.dot(w, x)


@cl.codelet
def neuron(partials, bias):
    """What a neuron makes of its products."""
    return jnp.tanh(jnp.sum(partials) + bias)


def dense(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor, bias: cl.Tensor) -> cl.Tensor:
    """A layer of neurons: `x` is (batch, inputs), `w` (outputs, inputs)."""
    batch, outputs = x.shape[0], w.shape[0]
    image, out, part = cl.grid(batch, outputs, w.shape[1] // CHUNK)
    here = slice(CHUNK * part, CHUNK * part + CHUNK)
    with graph.scope("layer", unique=True):
        partials = graph.add_vertex("dots", dot, w=w[out, here], x=x[image, here])
        image, out = cl.grid(batch, outputs)
        return graph.add_vertex("neurons", neuron, partials=partials[image, out], bias=bias[out])


def build_mlp(batch: int, sizes: Sequence[int]) -> Forward:
    """Dense layers, by the weights and biases of all."""
    graph = cl.Graph()
    x = graph.add_variable("x", (batch, sizes[0]))
    wrt = [x]
    for k, (before, after) in enumerate(pairwise(sizes)):
        own = _inputs(graph, **{f"w{k}": (after, before), f"b{k}": (after,)})
        x = dense(graph, x, *own)
        wrt += own
    return Forward(graph, x, wrt)


def plain_mlp(x: jax.Array, *parameters: jax.Array) -> jax.Array:
    """The same, by matrix products."""
    for w, bias in zip(parameters[::2], parameters[1::2], strict=True):
        x = jnp.tanh(x @ w.T + bias)
    return x


@benchmark
def adjoint_mlp(
    batch: int = 128, sizes: Sequence[int] = (784, 1024, 1024, 512, 16)
) -> Generator[Comparison | Row, Row, None]:
    """The gradient of four dense layers on a batch of 128, by their input, weights and biases."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        made = [random.standard_normal((batch, sizes[0]), np.float32)]
        for before, after in pairwise(sizes):
            made.append(random.standard_normal((after, before), np.float32) / np.float32(before**0.5))
            made.append(random.standard_normal(after, np.float32))
        return tuple(made)

    forward = Comparison("mlp", ours=run, plain=jax.jit(plain_mlp), arguments=arguments)
    yield compare_gradients(forward, lambda: build_mlp(batch, sizes), bar=1.0)


# --- convolutions ---------------------------------------------------------------------------------------


def build_conv(layer: Convolution, batch: int) -> Forward:
    """A convolution, by images and filters."""
    _, channels, side, filters, window, stride, padding = layer
    graph = cl.Graph()
    wrt = _inputs(graph, x=(batch, channels, side, side), w=(filters, channels, window, window))
    return Forward(graph, convolve(graph, *wrt, stride=stride, padding=padding), wrt)


@benchmark
def adjoint_conv(batch: int = 8, layers: Sequence[Convolution] = ALEXNET) -> Generator[Comparison | Row, Row, None]:
    """The gradients of AlexNet's five convolutions on a batch of 8, by images and filters, and the mean ratio."""
    rows = []
    for layer in layers:
        comparison = compare_gradients(compare_layer(layer, batch), lambda layer=layer: build_conv(layer, batch), 1.3)
        rows.append((yield replace(comparison, name=f"adjoint_conv/{layer.name}")))
    yield from mean_row("adjoint_conv/mean", rows)


# --- a stencil in a loop --------------------------------------------------------------------------------


def build_heat(side: int, steps: int) -> Forward:
    """The heat equation's end, by its start."""
    graph, program = heat_steps(side, steps)
    u = graph.variable("u")
    return Forward(graph, u, [u], program)


def plain_steps(u: jax.Array, steps: int) -> jax.Array:
    """Steps written for their gradient: what is added inside, among zeros.

    The fastest gradient of nine measured on two cores of a CPU (1024 x 1024, 100 steps): this 0.09 s; a whole chosen by
    a mask 0.13; a convolution 0.15 to 0.18; the inside set in one buffer 0.30; in two, the fastest forward, 1.1.
    """

    def step(_: Any, u: jax.Array) -> jax.Array:
        around = u[:-2, 1:-1] + u[2:, 1:-1] + u[1:-1, :-2] + u[1:-1, 2:]
        return u + jnp.pad(RATE * (around - 4 * u[1:-1, 1:-1]), 1)

    return jax.lax.fori_loop(0, steps, step, u)


@benchmark
def adjoint_heat(side: int = 1024, steps: int = 100) -> Generator[Comparison | Row, Row, None]:
    """The gradient of 100 steps of a five-point stencil on 1024 x 1024 points, by the start."""
    forward = Comparison(
        "heat",
        ours=run,
        plain=jax.jit(lambda u: plain_steps(u, steps)),
        arguments=lambda random: (random.standard_normal((side, side), np.float32),),
    )
    yield compare_gradients(forward, lambda: build_heat(side, steps), bar=1.1)


# --- tables ---------------------------------------------------------------------------------------------


@benchmark
def adjoint_messages(edges: int = 1_000_000, nodes: int = 100_000) -> Generator[Comparison | Row, Row, None]:
    """The gradient of a million messages over random edges and of their sums at 10^5 nodes: ragged fields."""

    def plain_held() -> tuple[Any, ...]:
        known = network(edges, nodes)
        return known.senders, known.receivers

    def build() -> Forward:
        graph, wrt, of = build_messages(network(edges, nodes))
        return Forward(graph, of, wrt)

    forward = Comparison(
        "messages",
        ours=run,
        plain=jax.jit(lambda senders, receivers, h, weight: plain(nodes, senders, receivers, h, weight)),
        arguments=lambda random: (
            random.standard_normal(nodes, np.float32),
            random.standard_normal(edges, np.float32),
        ),
        plain_held=plain_held,
    )
    yield compare_gradients(forward, build, bar=1.2)


@benchmark
def adjoint_gather(
    vertices: int = 1_000_000, length: int = 16, elements: int = 16_000_000
) -> Generator[Comparison | Row, Row, None]:
    """The gradient of a million dot products of two vectors of 16 that tables gather, by the 16 million floats."""

    def build() -> Forward:
        graph, x, y = build_dots(vertices, length, elements)
        return Forward(graph, y, [x])

    forward = Comparison(
        "gather",
        ours=run,
        plain=jax.jit(lambda left, right, x: jax.vmap(lambda a, b: jnp.dot(x[a], x[b]))(left, right)),
        arguments=lambda random: (random.standard_normal(elements, np.float32),),
        plain_held=lambda: tables(vertices, length, elements),
    )
    yield compare_gradients(forward, build, bar=1.2)
