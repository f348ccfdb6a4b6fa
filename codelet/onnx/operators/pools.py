"""Poolings."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.onnx.node import OnnxNode, whole_dtype
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.shapes import host_shape
from codelet.onnx.operators.window_attributes import WindowSizes, rounded_up, windows_of

_MOST_TAPS = 4096
"""Elements of a window that are compared one by one."""


def _reduced(x: Any, initial: Any, reduce: Any, windows: WindowSizes) -> Any:
    """The elements reduced in each window of the last dimensions."""
    lead = x.ndim - len(windows.sizes)
    return lax.reduce_window(
        x,
        np.asarray(initial, x.dtype),
        reduce,
        (1,) * lead + windows.sizes,
        (1,) * lead + windows.strides,
        ((0, 0),) * lead + windows.pads,
        window_dilation=(1,) * lead + windows.dilations,
    )


def _own_windows(node: OnnxNode, x: Any) -> WindowSizes:
    return rounded_up(node, windows_of(node, x.shape[2:], node.attribute("kernel_shape")), x.shape[2:])


def _least(dtype: Any) -> Any:
    return -np.inf if jnp.issubdtype(dtype, jnp.floating) else jnp.iinfo(dtype).min


@operator("MaxPool")
def max_pool(node: OnnxNode, x: Any) -> Any:
    """The greatest of each window, and where it is."""
    windows = _own_windows(node, x)
    if not node.wants(1):
        return _reduced(x, _least(x.dtype), lax.max, windows)
    host_shape(node, *x.shape)
    if math.prod(windows.sizes) > _MOST_TAPS:
        raise node.error(
            "it asks where the greatest elements of large windows are",
            given=list(windows.sizes),
            expected=f"{_MOST_TAPS:,} elements of a window at most",
        )
    patches, places = _patches(x, windows, _least(x.dtype)), _numbers(x, windows, node.attribute("storage_order", 0))
    best = jnp.argmax(patches, 2)
    greatest = jnp.take_along_axis(patches, best[:, :, None], 2)[:, :, 0]
    where = jnp.take_along_axis(jnp.broadcast_to(places, patches.shape), best[:, :, None], 2)[:, :, 0]
    return greatest, where.astype(whole_dtype())


def _patches(x: Any, windows: WindowSizes, fill: Any) -> Any:
    """The elements of each window: (n, c, elements, positions...)."""
    padded = lax.pad(x, np.asarray(fill, x.dtype), [(0, 0, 0), (0, 0, 0), *((a, b, 0) for a, b in windows.pads)])
    counts = [(n - e) // s + 1 for n, e, s in zip(padded.shape[2:], windows.extents, windows.strides, strict=True)]
    result = []
    for tap in np.ndindex(*windows.sizes):
        starts = [t * d for t, d in zip(tap, windows.dilations, strict=True)]
        stops = [a + (n - 1) * s + 1 for a, n, s in zip(starts, counts, windows.strides, strict=True)]
        result.append(lax.slice(padded, (0, 0, *starts), (*padded.shape[:2], *stops), (1, 1, *windows.strides)))
    return jnp.stack(result, 2)


def _numbers(x: Any, windows: WindowSizes, by_columns: int) -> Any:
    """The number of the element of the whole array that each element of a window is."""
    shape = x.shape[2:]
    each = np.arange(int(np.prod(shape))).reshape(shape[::-1] if by_columns else shape)
    item = each.T if by_columns else each
    planes = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * len(shape)) * item.size
    return _patches(jnp.asarray(planes + item), windows, -1)


def _counts(
    node: OnnxNode, shape: tuple[int, ...], windows: WindowSizes, arguments: WindowSizes, with_padding: bool
) -> np.ndarray:
    """How many elements each window has; with the padding, but not with the elements that rounding up adds behind."""
    result = np.ones((), np.int64)
    for d, n in enumerate(shape):
        before, behind = windows.pads[d]
        item = arguments.pads[d] if with_padding else (0, 0)
        count = (n + before + behind - windows.extents[d]) // windows.strides[d] + 1
        host_shape(node, max(1, count), windows.sizes[d])
        starts = np.arange(count) * windows.strides[d] - before
        host_shape(node, *result.shape, len(starts))
        places = starts[:, None] + np.arange(windows.sizes[d]) * windows.dilations[d]
        result = np.multiply.outer(result, ((places >= -item[0]) & (places < n + item[1])).sum(1))
    return result


@operator("AveragePool")
def average_pool(node: OnnxNode, x: Any) -> Any:
    """The mean of each window."""
    arguments = windows_of(node, x.shape[2:], node.attribute("kernel_shape"))
    windows = rounded_up(node, arguments, x.shape[2:])
    counts = _counts(node, x.shape[2:], windows, arguments, bool(node.attribute("count_include_pad", 0)))
    return _reduced(x, 0, lax.add, windows) / counts.astype(x.dtype)


@operator("LpPool")
def lp_pool(node: OnnxNode, x: Any) -> Any:
    """The p-norm of each window."""
    p = node.attribute("p", 2)
    summed = _reduced(jnp.abs(x) ** p, 0, lax.add, _own_windows(node, x))
    return summed ** np.asarray(1 / p, x.dtype)


def _positions(x: Any) -> tuple[int, ...]:
    return tuple(range(2, x.ndim))


@operator("GlobalAveragePool")
def global_average_pool(node: OnnxNode, x: Any) -> Any:
    """The mean over all positions."""
    return jnp.mean(x, _positions(x), keepdims=True)


@operator("GlobalMaxPool")
def global_max_pool(node: OnnxNode, x: Any) -> Any:
    """The greatest of all positions."""
    return jnp.max(x, _positions(x), keepdims=True)


@operator("GlobalLpPool")
def global_lp_pool(node: OnnxNode, x: Any) -> Any:
    """The p-norm over all positions."""
    p = node.attribute("p", 2)
    return jnp.sum(jnp.abs(x) ** p, _positions(x), keepdims=True) ** np.asarray(1 / p, x.dtype)


@operator("MaxUnpool", fixed=(2,))
def max_unpool(node: OnnxNode, x: Any, places: Any, shape: Any = None) -> Any:
    """The elements that a max pool has chosen, put where they were, and zeros elsewhere."""
    rank = x.ndim - 2
    sizes, strides = node.attribute("kernel_shape"), node.attribute("strides") or [1] * rank
    pads = node.attribute("pads") or [0] * 2 * rank
    smallest = [
        (n - 1) * s + k - pads[d] - pads[d + rank]
        for d, (n, s, k) in enumerate(zip(x.shape[2:], strides, sizes, strict=True))
    ]
    item = (*x.shape[:2], *smallest)
    zeros = jnp.zeros(int(np.prod(item)), x.dtype)
    output = jnp.reshape(zeros.at[jnp.reshape(places, -1)].set(jnp.reshape(x, -1)), item)
    if shape is None:
        return output
    wanted = node.whole_numbers(shape, "output_shape")
    if list(wanted[2:]) == list(item[2:]):
        return output
    more = [(0, n - have, 0) for n, have in zip(wanted, item, strict=True)]  # places are those of the smallest array
    return lax.pad(output, np.zeros((), x.dtype), more)
