"""The five convolutions of AlexNet, one vertex for each output value."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of, mean_row


class Convolution(NamedTuple):
    """The sizes of a convolution, in elements: square images, square filters."""

    name: str
    channels: int
    side: int
    filters: int
    window: int
    stride: int
    padding: int


ALEXNET = (
    Convolution("conv1", channels=4, side=224, filters=64, window=11, stride=4, padding=3),
    Convolution("conv2", channels=64, side=27, filters=192, window=5, stride=1, padding=2),
    Convolution("conv3", channels=192, side=13, filters=384, window=3, stride=1, padding=1),
    Convolution("conv4", channels=384, side=13, filters=256, window=3, stride=1, padding=1),
    Convolution("conv5", channels=256, side=13, filters=256, window=3, stride=1, padding=1),
)
"""One tower, with three-by-three pooling by two between the first three.

Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014).
"""


@cl.codelet
def dot(x, w):
    """The product of a window over all channels with a filter."""
    return jnp.vdot(x, w)


def convolve(graph: cl.Graph, x: cl.Tensor, w: cl.Tensor, *, stride: int, padding: int) -> cl.Tensor:
    """A convolution of images `x`, (batch, channels, height, width), with filters `w`, (filters, channels, k, k)."""
    padded = x.pad(((0, 0), (0, 0), (padding, padding), (padding, padding)))
    batch, _, height, width = padded.shape
    filters, _, window, _ = w.shape
    image, out, row, column = cl.grid(batch, filters, (height - window) // stride + 1, (width - window) // stride + 1)
    down = slice(stride * row, stride * row + window)
    across = slice(stride * column, stride * column + window)
    return graph.add_vertex("convolve", dot, x=padded[image, :, down, across], w=w[out])


def compare_layer(layer: Convolution, batch: int) -> Comparison:
    """One convolution beside XLA's, which pads by itself."""
    _, channels, side, filters, window, stride, padding = layer

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        return (
            random.standard_normal((batch, channels, side, side), np.float32),
            random.standard_normal((filters, channels, window, window), np.float32),
        )

    lowered = cl.lower(convolve)
    around = [(padding, padding)] * 2
    return Comparison(
        f"conv/batch{batch}/{layer.name}",
        ours=jax.jit(lambda x, w: lowered(x, w, stride=stride, padding=padding)),
        plain=jax.jit(lambda x, w: lax.conv_general_dilated(x, w, (stride, stride), around)),
        arguments=arguments,
        bar=1.3,
    )


@benchmark
def conv(
    batches: Sequence[int] = (1, 8), layers: Sequence[Convolution] = ALEXNET
) -> Generator[Comparison | Row, Row, None]:
    """AlexNet's five convolutions on batches of 1 and 8, a vertex for each output value, and the mean ratios."""
    rows: dict[str, list[Row]] = {"": [], "/gradient": []}
    for batch in batches:
        for layer in layers:
            forward = compare_layer(layer, batch)
            for kind, comparison in (("", forward), ("/gradient", gradient_of(forward, bar=1.3))):
                rows[kind].append((yield comparison))
    for kind, found in rows.items():
        yield from mean_row(f"conv/mean{kind}", found)
