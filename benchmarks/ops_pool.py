"""Poolings as operations, and their gradients, beside XLA's: those of AlexNet and ResNet-50."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark, gradient_of


class Pooling(NamedTuple):
    """The sizes of a pooling, in elements: square images, square windows."""

    name: str
    kind: str
    channels: int
    side: int
    window: int
    stride: int
    padding: int


POOLINGS = (
    Pooling("alexnet/pool1", "max", 64, 55, 3, 2, 0),
    Pooling("alexnet/pool2", "max", 192, 27, 3, 2, 0),
    Pooling("alexnet/pool5", "max", 256, 13, 3, 2, 0),
    Pooling("resnet50/first", "max", 64, 112, 3, 2, 1),
    Pooling("resnet50/last", "avg", 2048, 7, 7, 1, 0),
)
"""Source: Krizhevsky, "One weird trick for parallelizing convolutional neural networks" (2014); He, Zhang, Ren, Sun,
"Deep residual learning for image recognition" (2016).
"""


def compare_pooling(pooling: Pooling, *, finest: bool) -> Comparison:
    """A pooling, planned or with a vertex for each result."""
    name, kind, channels, side, window, stride, padding = pooling
    options = {"axes": (2, 3), "grain": 1 if finest else None}
    around = ((padding, padding),) * 2
    operation = cl.ops.max_pool if kind == "max" else cl.ops.avg_pool

    def plain(x: Any) -> Any:
        windows = (1, 1, window, window), (1, 1, stride, stride), ((0, 0), (0, 0), *around)
        if kind == "max":
            return lax.reduce_window(x, -np.inf, lax.max, *windows)
        return lax.reduce_window(x, 0.0, lax.add, *windows) / window**2

    build = lambda graph, x: operation(graph, x, (window,) * 2, stride, around, **options)  # noqa: E731
    shape = 1, channels, side, side
    return Comparison(
        f"ops_pool/{name}{'/finest' if finest else ''}",
        ours=jax.jit(cl.lower(build)),
        plain=jax.jit(plain),
        arguments=lambda random: (random.standard_normal(shape, np.float32),),
        bar=1.0,
    )


def compare_gradient(pooling: Pooling, *, finest: bool) -> Comparison:
    """The gradient of a pooling as an operation."""
    _, kind, channels, side, window, stride, padding = pooling
    forward = compare_pooling(pooling, finest=finest)
    sizes = ((window,) * 2, stride, ((padding, padding),) * 2)
    options = {"axes": (2, 3), "grain": 1 if finest else None}

    def build(graph: cl.Graph, g: cl.Tensor, x: cl.Tensor) -> cl.Tensor:
        if kind == "max":
            return cl.ops.max_pool_gradient(graph, g, x, *sizes, **options)
        return cl.ops.avg_pool_gradient(graph, g, x.shape, *sizes, **options)

    plain: Callable[..., Any] = lambda g, x: jax.vjp(forward.plain, x)[1](g)[0]  # noqa: E731
    shape = 1, channels, side, side
    small = (side + 2 * padding - window) // stride + 1

    def arguments(random: np.random.Generator) -> tuple[np.ndarray, ...]:
        draw = lambda *shape: random.standard_normal(shape, np.float32)  # noqa: E731
        return draw(1, channels, small, small), draw(*shape)

    return Comparison(
        f"{forward.name}/operation", jax.jit(cl.lower(build)), jax.jit(plain), arguments, bar=1.0, tolerance=1e-5
    )


@benchmark
def ops_pool(poolings: Sequence[Pooling] = POOLINGS) -> Generator[Comparison | Row, Row, None]:
    """Poolings as operations, planned and finest: forward, with their own gradient, and as operations of gradients."""
    for pooling in poolings:
        for finest in (False, True):
            forward = compare_pooling(pooling, finest=finest)
            yield forward
            yield gradient_of(forward, bar=1.0)
            yield compare_gradient(pooling, finest=finest)
