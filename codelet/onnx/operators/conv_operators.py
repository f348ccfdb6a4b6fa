"""Convolutions, and their transposes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.window_attributes import WindowSizes, windows_of

_LETTERS = "DHWABC"


def dimension_numbers(rank: int) -> tuple[str, str, str]:
    """Of images and kernels as ONNX has them: batch, channels, positions."""
    letters = _LETTERS[:rank]
    return f"NC{letters}", f"OI{letters}", f"NC{letters}"


def convolved(x: Any, kernel: Any, windows: WindowSizes, groups: int, **options: Any) -> Any:
    """A convolution."""
    return lax.conv_general_dilated(
        x,
        kernel,
        windows.strides,
        windows.pads,
        rhs_dilation=windows.dilations,
        dimension_numbers=dimension_numbers(len(windows.strides)),
        feature_group_count=groups,
        **options,
    )


def with_bias(x: Any, bias: Any) -> Any:
    """A number for each channel added."""
    return x if bias is None else x + jnp.reshape(bias, (1, -1, *(1,) * (x.ndim - 2)))


@operator("Conv")
def conv(node: OnnxNode, x: Any, kernel: Any, bias: Any = None) -> Any:
    """A convolution with a bias."""
    windows = windows_of(node, x.shape[2:], node.attribute("kernel_shape") or kernel.shape[2:])
    return with_bias(convolved(x, kernel, windows, node.attribute("group", 1)), bias)


def _pads_of_transpose(
    node: OnnxNode, x: Any, extents: Sequence[int], windows: WindowSizes
) -> tuple[list[tuple[int, int]], list[int]]:
    """The elements cut off the ends of a transposed convolution, and those added behind."""
    rank = x.ndim - 2
    more = list(node.attribute("output_padding") or [0] * rank)
    wanted = node.attribute("output_shape")
    full = [
        s * (n - 1) + more[d] + e for d, (s, n, e) in enumerate(zip(windows.strides, x.shape[2:], extents, strict=True))
    ]
    how = node.attribute("auto_pad", "NOTSET")
    if wanted is None and how in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * s for n, s in zip(x.shape[2:], windows.strides, strict=True)]
    if wanted is None:
        arguments = node.attribute("pads") or [0] * 2 * rank
        return list(zip(arguments[:rank], arguments[rank:], strict=True)), more
    total = [have - want for have, want in zip(full, wanted[-rank:], strict=True)]
    small = [item // 2 for item in total]
    if how == "SAME_UPPER":
        return [(a, t - a) for a, t in zip(small, total, strict=True)], more
    return [(t - a, a) for a, t in zip(small, total, strict=True)], more


@operator("ConvTranspose")
def conv_transpose(node: OnnxNode, x: Any, kernel: Any, bias: Any = None) -> Any:
    """The transpose of a convolution, with a bias."""
    rank, groups = x.ndim - 2, node.attribute("group", 1)
    sizes = node.attribute("kernel_shape") or kernel.shape[2:]
    strides, dilations = node.attribute("strides") or [1] * rank, node.attribute("dilations") or [1] * rank
    extents = [(n - 1) * d + 1 for n, d in zip(sizes, dilations, strict=True)]
    windows = WindowSizes(tuple(sizes), tuple(strides), tuple(dilations), ())
    cut, more = _pads_of_transpose(node, x, extents, windows)
    channels, each = kernel.shape[0], kernel.shape[1]
    flipped = jnp.flip(kernel, tuple(range(2, kernel.ndim)))
    by_group = jnp.reshape(flipped, (groups, channels // groups, each, *sizes))
    turned = jnp.reshape(jnp.swapaxes(by_group, 1, 2), (groups * each, channels // groups, *sizes))
    pads = [(n - 1 - a, n - 1 - b + m) for n, (a, b), m in zip(extents, cut, more, strict=True)]
    result = lax.conv_general_dilated(
        x,
        turned,
        (1,) * rank,
        pads,
        lhs_dilation=strides,
        rhs_dilation=dilations,
        dimension_numbers=dimension_numbers(rank),
        feature_group_count=groups,
    )
    return with_bias(result, bias)


@operator("DeformConv")
def deform_conv(node: OnnxNode, x: Any, kernel: Any, offset: Any, bias: Any = None, mask: Any = None) -> Any:
    """A convolution of images whose windows' elements are moved, each by an offset that is data."""
    windows = windows_of(node, x.shape[2:], node.attribute("kernel_shape") or kernel.shape[2:])
    groups, offset_groups = node.attribute("group", 1), node.attribute("offset_group", 1)
    (kh, kw), (n, channels) = windows.sizes, x.shape[:2]
    rows, columns = offset.shape[2:]
    moved = jnp.reshape(offset, (n, offset_groups, kh, kw, 2, rows, columns))
    starts = [
        jnp.reshape(jnp.arange(count) * s - pads[0], [-1 if k == axis else 1 for k in range(2)])
        for axis, (count, s, pads) in enumerate(zip((rows, columns), windows.strides, windows.pads, strict=True))
    ]
    taps = [
        jnp.reshape(jnp.arange(k) * d, (-1, 1, 1, 1) if axis == 0 else (1, -1, 1, 1))
        for axis, (k, d) in enumerate(zip((kh, kw), windows.dilations, strict=True))
    ]
    y = moved[:, :, :, :, 0] + (starts[0] + taps[0]).astype(x.dtype)
    z = moved[:, :, :, :, 1] + (starts[1] + taps[1]).astype(x.dtype)
    result = bilinear(jnp.reshape(x, (n, offset_groups, channels // offset_groups, *x.shape[2:])), y, z)
    if mask is not None:
        result = result * jnp.reshape(mask, (n, offset_groups, 1, kh, kw, rows, columns))
    patches = jnp.reshape(result, (n, groups, channels // groups, kh, kw, rows, columns))
    kernels = jnp.reshape(kernel, (groups, kernel.shape[0] // groups, channels // groups, kh, kw))
    output = jnp.einsum("ngcklrs,gockl->ngors", patches, kernels)
    return with_bias(jnp.reshape(output, (n, kernel.shape[0], rows, columns)), bias)


def bilinear(x: Any, y: Any, z: Any) -> Any:
    """Images of (n, g, c, rows, columns) at places of (n, g, ...) between four of their elements; zero beyond them."""
    rows, columns = x.shape[3:]
    low = [jnp.floor(item) for item in (y, z)]
    total: Any = 0
    flat = jnp.reshape(x, (*x.shape[:3], -1))
    for dy in (0, 1):
        for dz in (0, 1):
            at_y, at_z = low[0] + dy, low[1] + dz
            weight = (1 - jnp.abs(y - at_y)) * (1 - jnp.abs(z - at_z))
            inside = (at_y >= 0) & (at_y < rows) & (at_z >= 0) & (at_z < columns)
            places = jnp.clip(at_y, 0, rows - 1) * columns + jnp.clip(at_z, 0, columns - 1)
            places = jnp.reshape(places.astype(np.int32), (*x.shape[:2], 1, -1))
            result = jnp.take_along_axis(flat, places, 3)
            share = jnp.where(inside, weight, 0)[:, :, None]
            total = total + jnp.reshape(result, (*x.shape[:3], *y.shape[2:])) * share
    return total
