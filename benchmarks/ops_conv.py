"""Convolutions as operations, and both of their gradients, beside XLA's: AlexNet's and ResNet-50's layers."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from typing import Any

import jax
import numpy as np
from jax import lax

import codelet as cl
from benchmarks.conv import ALEXNET, Convolution
from benchmarks.harness import Comparison, Row, benchmark, mean_row


def _resnet50() -> list[Convolution]:
    """The distinct convolutions of ResNet-50, strides in those of three by three.

    Source: He, Zhang, Ren, Sun, "Deep residual learning for image recognition" (2016), table 1.
    """
    layers = [Convolution("first", 3, 224, 64, 7, 2, 3)]
    channels, side = 64, 56
    for stage, width in enumerate((64, 128, 256, 512)):
        stride = 1 if stage == 0 else 2
        small, wide = side // stride, 4 * width
        layers += [
            Convolution(f"narrow{stage + 2}", channels, side, width, 1, 1, 0),
            Convolution(f"strided{stage + 2}", width, side, width, 3, stride, 1),
            Convolution(f"widen{stage + 2}", width, small, wide, 1, 1, 0),
            Convolution(f"shortcut{stage + 2}", channels, side, wide, 1, stride, 0),
            Convolution(f"again{stage + 2}", wide, small, width, 1, 1, 0),
            Convolution(f"middle{stage + 2}", width, small, width, 3, 1, 1),
        ]
        channels, side = wide, small
    distinct: dict[tuple[int, ...], Convolution] = {}
    for layer in layers:
        distinct.setdefault(layer[1:], layer)
    return list(distinct.values())


RESNET50 = tuple(_resnet50())


def compare_kind(net: str, layer: Convolution, kind: str, *, finest: bool) -> Comparison:
    """A layer forward, or a gradient of it as an operation, planned or with a vertex for each result."""
    name, channels, side, filters, window, stride, padding = layer
    small = (side + 2 * padding - window) // stride + 1
    images, kernels, results = (
        (1, channels, side, side),
        (filters, channels, window, window),
        (1, filters, small, small),
    )
    around = ((padding, padding),) * 2
    plain = lambda x, w: lax.conv_general_dilated(x, w, (stride, stride), around)  # noqa: E731
    image, kernel = (jax.ShapeDtypeStruct(shape, np.float32) for shape in (images, kernels))
    summed = {
        "forward": math.prod(kernels[1:]),
        "by_input": filters * math.ceil(window / stride) ** 2,
        "by_kernel": small**2,
    }
    grain = summed[kind] if finest else None
    ways: dict[str, tuple[Any, Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
        "forward": (
            lambda graph, x, w: cl.ops.conv_general_dilated(graph, x, w, stride, around, grain=grain),
            plain,
            (images, kernels),
        ),
        "by_input": (
            lambda graph, g, w: cl.ops.conv_input_gradient(graph, g, w, images, stride, around, grain=grain),
            lambda g, w: jax.linear_transpose(lambda x: plain(x, w), image)(g)[0],
            (results, kernels),
        ),
        "by_kernel": (
            lambda graph, g, x: cl.ops.conv_kernel_gradient(graph, g, x, kernels, stride, around, grain=grain),
            lambda g, x: jax.linear_transpose(lambda w: plain(x, w), kernel)(g)[0],
            (results, images),
        ),
    }
    build, other, shapes = ways[kind]
    return Comparison(
        f"ops_conv/{net}/{name}/{kind}{'/finest' if finest else ''}",
        ours=jax.jit(cl.lower(build)),
        plain=jax.jit(other),
        arguments=lambda random: tuple(random.standard_normal(shape, np.float32) for shape in shapes),
        bar=1.3,
        tolerance=1e-4,
    )


@benchmark
def ops_conv(
    alexnet: Sequence[Convolution] = ALEXNET,
    resnet50: Sequence[Convolution] = RESNET50,
    kinds: Sequence[str] = ("forward", "by_input", "by_kernel"),
    grains: Sequence[bool] = (False, True),
) -> Generator[Comparison | Row, Row, None]:
    """Convolutions as operations, planned and with a vertex for each result, and the geometric means."""
    for kind in kinds:
        for finest in grains:
            rows = []
            for net, layers in (("alexnet", alexnet), ("resnet50", resnet50)):
                for layer in layers:
                    rows.append((yield compare_kind(net, layer, kind, finest=finest)))
            yield from mean_row(f"ops_conv/mean/{kind}{'/finest' if finest else ''}", rows)
