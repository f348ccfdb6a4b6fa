"""The fully connected network on MNIST, one vertex for each dot product of a chunk.

In come tensors of a graph: a batch of images and the parameters of the layers. Out comes the tensor of logits. A layer
is three compute sets: dot products over chunks of the input, their sums, an activation. The batch is a grid axis, so
every image has separate vertices.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp

import codelet as cl

SIZES = (784, 128, 10)


class Layer(NamedTuple):
    """The parameters of a fully connected layer, as arrays or as tensors of a graph.

    Attributes:
        w: weights, of shape (outputs, inputs): a vertex reads a run of one row.
        b: biases, of shape (outputs,).
    """

    w: Any
    b: Any


def init_parameters(key: jax.Array, sizes: Sequence[int] = SIZES) -> list[Layer]:
    """Layers drawn at random: weights normal with variance 2 / inputs, biases zero.

    Args:
        key: a JAX random key.
        sizes: the width of the input, then of every layer.

    Source: He et al., "Delving Deep into Rectifiers" (2015), equation 10.

    >>> [layer.w.shape for layer in init_parameters(jax.random.key(0))]
    [(128, 784), (10, 128)]
    """
    keys = jax.random.split(key, len(sizes) - 1)
    return [
        Layer(jnp.sqrt(2 / inputs) * jax.random.normal(key, (outputs, inputs)), jnp.zeros(outputs))
        for key, inputs, outputs in zip(keys, sizes, sizes[1:], strict=False)
    ]


@cl.codelet
def dot(x, w):
    """The dot product of a chunk of an image, or of a hidden layer, with a chunk of a row of weights."""
    return jnp.dot(x, w)


@cl.codelet
def total(partials, bias):
    """The sum of a row's partial products and its bias."""
    return jnp.sum(partials) + bias


@cl.codelet
def relu(x):
    """The positive part of one value."""
    return jax.nn.relu(x)


@cl.codelet
def surprise(logits, label):
    """Minus the logarithm of the probability that softmax gives the label of an image."""
    return jax.nn.logsumexp(logits) - logits[label]


@cl.codelet
def mean(x):
    """The mean of a batch."""
    return jnp.mean(x)


def dense(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor, b: cl.Tensor, *, chunk: int = 16) -> cl.Tensor:
    """A fully connected layer before its activation: `x @ w.T + b`.

    Args:
        graph: receives the vertices.
        x: of shape (batch, inputs).
        w: of shape (outputs, inputs).
        b: of shape (outputs,).
        chunk: how many inputs one dot-product vertex takes; it divides their number.

    Returns:
        A tensor of shape (batch, outputs).

    Raises:
        ViewError: a chunk that does not divide the inputs, or `w` or `b` that do not fit `x`.

    >>> graph = cl.Graph()
    >>> x, w = graph.add_variable("x", (32, 784)), graph.add_variable("w", (128, 784))
    >>> dense(graph, x, w, graph.add_variable("b", (128,))).shape
    (32, 128)
    >>> graph.num_vertices
    204800
    """
    batch, inputs = x.shape
    outputs = len(w)
    if w.shape != (outputs, inputs) or b.shape != (outputs,):
        raise cl.ViewError(
            "the parameters of a dense layer do not fit its input",
            given=f"x of shape {x.shape}, w of {w.shape}, b of {b.shape}",
            expected="(batch, inputs), (outputs, inputs), (outputs,)",
        )
    if chunk < 1 or inputs % chunk:
        raise cl.ViewError(
            "a dense layer's input does not split into equal chunks",
            given=f"{inputs} inputs in chunks of {chunk}",
            expected="a chunk that divides the number of inputs",
        )
    image, row, part = cl.grid(batch, outputs, inputs // chunk)
    here = slice(chunk * part, chunk * part + chunk)
    partials = graph.add_vertex("multiply", dot, x=x[image, here], w=w[row, here])
    image, row = cl.grid(batch, outputs)
    return graph.add_vertex("add up", total, partials=partials[image, row], bias=b[row])


def network(graph: cl.Graph, x: cl.Tensor, layers: Sequence[Layer], *, chunk: int = 16) -> cl.Tensor:
    """The network: dense layers with a relu between each two.

    Args:
        graph: receives the vertices.
        x: a batch of images, of shape (batch, inputs).
        layers: the parameters, as tensors; see `init_parameters`.
        chunk: how many inputs one dot-product vertex takes; it divides the width of every layer but the last.

    Returns:
        The logits, of shape (batch, outputs of the last layer).

    Raises:
        ViewError: layers that do not fit, or a chunk that does not divide.

    >>> logits = cl.lower(network)
    >>> logits(jnp.ones((5, 784)), init_parameters(jax.random.key(0))).shape
    (5, 10)
    """
    for number, layer in enumerate(layers, 1):
        with graph.scope(f"layer {number}"):
            x = dense(graph, x, layer.w, layer.b, chunk=chunk)
            if number < len(layers):
                image, row = cl.grid(*x.shape)
                x = graph.add_vertex("activate", relu, x=x[image, row])
    return x


def mean_loss(graph: cl.Graph, logits: cl.Tensor, labels: cl.Tensor) -> cl.Tensor:
    """The mean cross entropy of a batch: a vertex for each image, and one for their mean.

    Args:
        graph: receives the vertices.
        logits: of shape (batch, classes).
        labels: integers of shape (batch,), from 0 to classes - 1.

    >>> print(jnp.round(cl.lower(mean_loss)(jnp.zeros((2, 4)), jnp.array([0, 3])), 4))
    1.3863
    """
    image = cl.grid(len(labels))
    with graph.scope("loss"):
        each = graph.add_vertex("surprise", surprise, logits=logits[image], label=labels[image])
        return graph.add_vertex("mean", mean, x=each)


def slopes(
    graph: cl.Graph, x: cl.Tensor, labels: cl.Tensor, layers: Sequence[Layer]
) -> tuple[tuple[cl.Tensor, list[Layer]], cl.Program]:
    """The mean loss of a batch and its gradient with respect to the layers, forward and backward by vertices.

    Args:
        graph: receives the vertices.
        x: a batch of images, of shape (batch, inputs).
        labels: integers of shape (batch,).
        layers: the parameters, as tensors.

    Returns:
        The loss and the gradient, and the program that makes them.

    >>> layers = init_parameters(jax.random.key(0))
    >>> loss, gradient = cl.lower(slopes)(jnp.ones((2, 784)), jnp.array([1, 7]), layers)
    >>> loss.shape, gradient[0].w.shape
    ((), (128, 784))
    """
    loss = mean_loss(graph, network(graph, x, layers), labels)
    found = cl.gradient(graph, of=loss, wrt=[own for layer in layers for own in layer])
    gradient = [Layer(found[layer.w], found[layer.b]) for layer in layers]
    return (loss, gradient), cl.Sequence(found.forward, found.backward)
