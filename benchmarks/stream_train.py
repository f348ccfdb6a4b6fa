"""Training in one call: a loop of steps on batches that a stream brings."""

from __future__ import annotations

import itertools
from collections.abc import Generator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark
from codelet.models.mnist import SIZES, Layer, dense, init_parameters, relu
from ipu_backend.jobs.mnist import plain_network

RATE = 0.1
CHUNK = 16


@cl.codelet
def slope_of_loss(logits, label):
    """The gradient of an image's cross entropy with respect to its logits."""
    return jax.nn.softmax(logits) - jax.nn.one_hot(label, logits.shape[0])


@cl.codelet
def back(slopes, column, activation):
    """The gradient with respect to one hidden value before its relu."""
    return jnp.dot(slopes, column) * (activation > 0)


@cl.codelet
def descend(w, slopes, inputs):
    """A chunk of a row of weights, one step down the mean gradient of the batch."""
    return {"w": w - RATE / slopes.shape[0] * (slopes @ inputs)}


@cl.codelet
def descend_bias(b, slopes):
    """One bias, one step down."""
    return {"b": b - RATE * jnp.mean(slopes)}


def _descend(graph: cl.Graph, name: str, layer: Layer, slopes: cl.Tensor, inputs: cl.Tensor) -> None:
    rows, columns = layer.w.shape
    row, part = cl.grid(rows, columns // CHUNK)
    here = slice(CHUNK * part, CHUNK * part + CHUNK)
    with graph.scope(name):
        graph.add_vertex("weights", descend, w=layer.w[row, here], slopes=slopes[:, row], inputs=inputs[:, here])
        row = cl.grid(rows)
        graph.add_vertex("biases", descend_bias, b=layer.b[row], slopes=slopes[:, row])


def training(batch: int, steps: int) -> tuple[cl.Graph, cl.Program, list[Layer]]:
    """The MNIST network and its gradient as a graph, a program of so many steps, and the network's parameters."""
    graph = cl.Graph()
    layers = [
        Layer(graph.add_variable(f"w{k}", (rows, columns)), graph.add_variable(f"b{k}", (rows,)))
        for k, (columns, rows) in enumerate(itertools.pairwise(SIZES))
    ]
    x, y = graph.add_variable("x", (batch, SIZES[0])), graph.add_variable("y", (batch,), "int32")
    images = graph.add_input_stream("images", x.shape)
    labels = graph.add_input_stream("labels", y.shape, "int32")
    with graph.record() as step:
        image, unit = cl.grid(batch, SIZES[1])
        with graph.scope("hidden"):
            hidden = graph.add_vertex("relu", relu, x=dense(graph, x, *layers[0], chunk=CHUNK)[image, unit])
        with graph.scope("logits"):
            logits = dense(graph, hidden, *layers[1], chunk=CHUNK)
        every = cl.grid(batch)
        slopes = graph.add_vertex("slopes", slope_of_loss, logits=logits[every], label=y[every])
        of_hidden = graph.add_vertex(
            "back", back, slopes=slopes[image], column=layers[1].w[:, unit], activation=hidden[image, unit]
        )
        _descend(graph, "descend hidden", layers[0], of_hidden, x)
        _descend(graph, "descend logits", layers[1], slopes, hidden)
    turn = cl.Sequence(cl.Copy(images, x), cl.Copy(labels, y), step)
    return graph, cl.Repeat(steps, turn), layers


def lower_training(batch: int, steps: int) -> cl.Lowered:
    """All steps as one function of the parameters and the stacked batches."""
    graph, program, layers = training(batch, steps)
    parameters = [tensor for layer in layers for tensor in layer]
    return cl.lower(graph, program, inputs=parameters, outputs=parameters)


def plain(layers: list[Layer], images: jax.Array, labels: jax.Array) -> list[Layer]:
    """A scan over the stacked batches."""

    def loss(layers: list[Layer], x: jax.Array, y: jax.Array) -> jax.Array:
        chosen = jnp.take_along_axis(jax.nn.log_softmax(plain_network(x, layers)), y[:, None], 1)
        return -chosen.mean()

    def step(layers: list[Layer], batch: tuple[jax.Array, jax.Array]) -> tuple[list[Layer], None]:
        slope = jax.grad(loss)(layers, *batch)
        return jax.tree.map(lambda p, g: p - RATE * g, layers, slope), None

    return lax.scan(step, layers, (images, labels))[0]


@benchmark
def stream_train(batch: int = 32, steps: int = 100) -> Generator[Comparison | Row, Row, None]:
    """The MNIST network, 100 steps of gradient descent on batches of 32 in one call, fed by streams."""

    def arguments(random: np.random.Generator) -> tuple[Any, ...]:
        images = random.random((steps, batch, SIZES[0]), np.float32)
        labels = random.integers(0, SIZES[-1], (steps, batch), np.int32)
        return init_parameters(jax.random.key(0)), images, labels

    def ours(lowered: cl.Lowered, layers: list[Layer], images: jax.Array, labels: jax.Array) -> list[Layer]:
        parameters = {f"{name}{k}": array for k, layer in enumerate(layers) for name, array in layer._asdict().items()}
        made = lowered({**parameters, "images": images, "labels": labels})
        return [Layer(made[f"w{k}"], made[f"b{k}"]) for k in range(len(layers))]

    yield Comparison(
        "stream_train",
        ours=jax.jit(ours),
        plain=jax.jit(plain),
        arguments=arguments,
        bar=1.1,
        tolerance=1e-4,
        ours_held=lambda: (lower_training(batch, steps),),
    )
