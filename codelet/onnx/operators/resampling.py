"""Operators that read arrays between their elements: resizing, grids of places, regions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.shapes import checked_shape, host_shape

# --- weights of neighbours ----------------------------------------------------------------------------------


def _nearest(ratio: float, how: str) -> np.ndarray:
    second = (
        ratio == 1
        or {
            "round_prefer_floor": ratio > 0.5,
            "round_prefer_ceil": ratio >= 0.5,
            "floor": False,
            "ceil": True,
        }[how]
    )
    return np.array([not second, second], float)


def _linear(ratio: float, scale: float) -> np.ndarray:
    first = math.floor(-1 / scale) + 1
    item = np.clip(1 - np.abs((np.arange(first, 2 - first) - ratio) * scale), 0, 1)
    return item / item.sum()


def cubic_weights(distance: Any, a: float) -> Any:
    """The weight of an element by its distance, of Keys' cubic of a parameter."""
    d = jnp.abs(distance) if isinstance(distance, jax.Array) else np.abs(distance)
    where = jnp.where if isinstance(distance, jax.Array) else np.where
    near = ((a + 2) * d - (a + 3)) * d * d + 1
    far = a * (((d - 5) * d + 8) * d - 4)
    return where(d <= 1, near, where(d < 2, far, 0))


def _cubic(ratio: float, scale: float, a: float) -> np.ndarray:
    first = math.floor(-2 / scale) + 1
    item = cubic_weights((np.arange(first, 2 - first) - ratio) * scale, a)
    return item / item.sum() if scale < 1 else item


def _sources(node: OnnxNode, extent: int, size: int, scale: float, region: Sequence[float]) -> np.ndarray:
    """Where each place of a resized dimension is in the dimension."""
    mode, x = node.attribute("coordinate_transformation_mode", "half_pixel"), np.arange(size, dtype=float)
    wide = scale * extent
    if mode == "align_corners":
        return x * 0 if wide == 1 else x * (extent - 1) / (wide - 1)
    if mode == "asymmetric":
        return x / scale
    if mode == "tf_crop_and_resize":
        low, high = region
        if wide > 1:
            return low * (extent - 1) + x * (high - low) * (extent - 1) / (wide - 1)
        return x * 0 + 0.5 * (low + high) * (extent - 1)
    if mode == "tf_half_pixel_for_nn":
        return (x + 0.5) / scale
    if mode == "pytorch_half_pixel" and wide <= 1:
        return x * 0 - 0.5
    if mode == "half_pixel_symmetric":
        return extent / 2 * (1 - size / wide) + (x + 0.5) / scale - 0.5
    return (x + 0.5) / scale - 0.5


def _matrix(
    node: OnnxNode, extent: int, size: int, scale: float, region: Sequence[float], mode: str
) -> tuple[np.ndarray, np.ndarray]:
    """By how much each element of a dimension is in each place of the resized one; and which places are beyond it."""
    antialias, least = bool(node.attribute("antialias", 0)), min(scale, 1.0)
    by = least if antialias else 1.0

    def weights(ratio: float) -> np.ndarray:
        if mode == "nearest":
            return _nearest(ratio, node.attribute("nearest_mode", "round_prefer_floor"))
        return _linear(ratio, by) if mode == "linear" else _cubic(ratio, by, node.attribute("cubic_coeff_a", -0.75))

    sources, result = _sources(node, extent, size, scale, region), np.zeros((size, extent))
    for row, x in enumerate(sources):
        base = math.ceil(x) - 1  # an element itself is the second of two neighbours
        item = weights(x - base)
        places = base - (len(item) // 2 - 1) + np.arange(len(item))
        if node.attribute("exclude_outside", 0):
            item = np.where((places >= 0) & (places < extent), item, 0)
            item = item / item.sum()
        np.add.at(result[row], np.clip(places, 0, extent - 1), item)
    return result, (sources < 0) | (sources > extent - 1)


def _along(x: Any, axis: int, matrix: np.ndarray) -> Any:
    """A dimension by a matrix: looked up where each row of it is one element."""
    if ((matrix == 1).sum(1) == 1).all() and ((matrix != 0).sum(1) == 1).all():
        places = matrix.argmax(1)
        return x if np.array_equal(places, np.arange(x.shape[axis])) else jnp.take(x, places, axis)
    item = jnp.asarray(matrix.astype(np.float32 if x.dtype.itemsize < 8 else np.float64))
    wide = x if jnp.issubdtype(x.dtype, jnp.floating) else x.astype(np.float32)
    output = jnp.moveaxis(
        jnp.tensordot(wide, item.astype(wide.dtype), ((axis,), (1,)), precision=lax.Precision.HIGHEST), -1, axis
    )
    return output.astype(x.dtype)


# --- resizing -----------------------------------------------------------------------------------------------


def _resized(
    node: OnnxNode, x: Any, sizes: Sequence[int], scales: Sequence[float], regions: Sequence[Sequence[float]], mode: str
) -> Any:
    checked_shape(node, sizes)
    beyond = []
    for axis, (size, scale, region) in enumerate(zip(sizes, scales, regions, strict=True)):
        if scale == 1 and size == x.shape[axis] and tuple(region) == (0, 1):
            continue
        host_shape(node, size, x.shape[axis])
        matrix, outside = _matrix(node, x.shape[axis], size, scale, region, mode)
        x = _along(x, axis, matrix)
        beyond.append(outside.reshape([-1 if d == axis else 1 for d in range(len(sizes))]))
    if node.attribute("coordinate_transformation_mode") != "tf_crop_and_resize":
        return x
    outside = np.zeros([1] * len(sizes), bool)
    for item in beyond:
        outside = outside | item
    return jnp.where(outside, np.asarray(node.attribute("extrapolation_value", 0.0), x.dtype), x)


@operator("Resize", since=10, fixed=(1,))
def resize_of_old(node: OnnxNode, x: Any, scales: Any) -> Any:
    """By factors; from each place as it is divided by them."""
    item = OnnxNode(
        node.operator,
        "",
        10,
        node.name,
        node.outputs,
        {**node.attributes, "coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"},
    )
    return _by_scales(item, x, [float(one) for one in node.known(scales, "scales")])


@operator("Upsample", since=7)
def upsample_of_old(node: OnnxNode, x: Any) -> Any:
    """By factors that an attribute says."""
    return resize_of_old(node, x, np.asarray(node.attribute("scales"), np.float32))


@operator("Upsample", since=9, fixed=(1,))
def upsample(node: OnnxNode, x: Any, scales: Any) -> Any:
    """By factors."""
    return resize_of_old(node, x, scales)


def _by_scales(node: OnnxNode, x: Any, scales: Sequence[float]) -> Any:
    sizes = [math.floor(n * s) for n, s in zip(x.shape, scales, strict=True)]
    return _resized(node, x, sizes, scales, [(0, 1)] * x.ndim, node.attribute("mode", "nearest"))


@operator("Resize", since=11, fixed=(1, 2, 3))
def resize(node: OnnxNode, x: Any, roi: Any = None, scales: Any = None, sizes: Any = None) -> Any:
    """To sizes, or by factors, with neighbours weighted as attributes say."""
    axes = [node.axis(axis, x) for axis in node.attribute("axes") or range(x.ndim)]
    by, to, regions = [1.0] * x.ndim, list(x.shape), [(0.0, 1.0)] * x.ndim
    if scales is not None and scales.size:
        for axis, item in zip(axes, node.known(scales, "scales").tolist(), strict=True):
            by[axis], to[axis] = item, math.floor(x.shape[axis] * item)
    else:
        for axis, item in zip(axes, node.whole_numbers(sizes, "sizes"), strict=True):
            by[axis], to[axis] = item / x.shape[axis], item
        policy = node.attribute("keep_aspect_ratio_policy", "stretch")
        if policy != "stretch":
            common = (min if policy == "not_larger" else max)(by[axis] for axis in axes)
            for axis in axes:
                by[axis], to[axis] = common, math.floor(common * x.shape[axis] + 0.5)
    if node.attribute("coordinate_transformation_mode") == "tf_crop_and_resize":
        item = node.known(roi, "roi").tolist()
        for k, axis in enumerate(axes):
            regions[axis] = item[k], item[k + len(axes)]
    return _resized(node, x, to, by, regions, node.attribute("mode", "nearest"))


# --- grids --------------------------------------------------------------------------------------------------


def _reflected(x: Any, low: float, high: float) -> Any:
    """Places beyond two ends mirrored at them."""
    span = high - low
    if span <= 0:
        return jnp.zeros_like(x)
    turned = jnp.mod(x - low, 2 * span)
    return low + jnp.where(turned > span, 2 * span - turned, turned)


def _ends(node: OnnxNode, extent: int) -> tuple[float, float]:
    return (0.0, extent - 1.0) if node.attribute("align_corners", 0) else (-0.5, extent - 0.5)


def _within(node: OnnxNode, x: Any, extent: int) -> Any:
    """Places of a dimension, those beyond it as the padding has them."""
    how, (low, high) = node.attribute("padding_mode", "zeros"), _ends(node, extent)
    if how == "border":
        return jnp.clip(x, 0, extent - 1)
    return jnp.where((x < low) | (x > high), _reflected(x, low, high), x) if how == "reflection" else x


@operator("AffineGrid", fixed=(1,))
def affine_grid(node: OnnxNode, theta: Any, size: Any) -> Any:
    """The places of a grid moved by a matrix for each of a batch."""
    sizes = node.whole_numbers(size, "size")[2:]
    host_shape(node, *sizes, len(sizes) + 1)
    lines = [
        np.linspace(-1, 1, n) if node.attribute("align_corners", 0) else (2 * np.arange(n) + 1) / n - 1 for n in sizes
    ]
    places = np.stack([*np.meshgrid(*lines, indexing="ij")[::-1], np.ones(sizes)], -1).astype(theta.dtype)
    return jnp.einsum("...k,njk->n...j", places, theta)


@operator("GridSample")
def grid_sample(node: OnnxNode, x: Any, grid: Any) -> Any:
    """Images at places between -1 and 1."""
    shape, rank = x.shape[2:], x.ndim - 2
    mode = {"bilinear": "linear", "bicubic": "cubic"}.get(
        node.attribute("mode", "linear"), node.attribute("mode", "linear")
    )
    taps: list[list[tuple[Any, Any]]] = []
    for d, extent in enumerate(shape):
        item = grid[..., rank - 1 - d]
        place = (item + 1) / 2 * (extent - 1) if node.attribute("align_corners", 0) else ((item + 1) * extent - 1) / 2
        place = jnp.round(place) if mode == "nearest" else place
        place = _within(node, place, extent)
        base = jnp.floor(place)
        if mode == "nearest":
            taps.append([(jnp.round(place), jnp.ones_like(place))])
        elif mode == "linear":
            taps.append([(base + k, 1 - jnp.abs(place - base - k)) for k in (0, 1)])
        else:
            taps.append([(base + k, cubic_weights(place - base - k, -0.75)) for k in (-1, 0, 1, 2)])
    flat = jnp.reshape(x, (*x.shape[:2], -1))
    total: Any = 0
    for chosen in np.ndindex(*map(len, taps)):
        flat_place, weight = jnp.zeros(grid.shape[:-1], np.int32), jnp.ones((), x.dtype)
        for d, (k, extent) in enumerate(zip(chosen, shape, strict=True)):
            place, share = taps[d][k]
            if node.attribute("padding_mode", "zeros") == "zeros":
                share = jnp.where((place >= 0) & (place < extent), share, 0)
            place = jnp.clip(_within(node, place, extent), 0, extent - 1)
            flat_place, weight = flat_place * extent + place.astype(np.int32), weight * share
        result = jax.vmap(lambda item, at: jnp.take(item, at, 1))(flat, flat_place)
        total = total + result * weight[:, None].astype(x.dtype)
    return total


# --- regions ------------------------------------------------------------------------------------------------


def _samples(start: Any, size: Any, count: int, each: int) -> Any:
    """The middle of each part of each of some bins: (bins, parts)."""
    return start + (jnp.arange(count)[:, None] + (jnp.arange(each) + 0.5) / each) * size / count


@operator("RoiAlign", fixed=())
def roi_align(node: OnnxNode, x: Any, regions: Any, batch: Any) -> Any:
    """Regions of images in bins of a number, each the mean, or the greatest, of places in it."""
    height, width = node.attribute("output_height", 1), node.attribute("output_width", 1)
    scale, ratio = node.attribute("spatial_scale", 1.0), node.attribute("sampling_ratio", 0)
    half = (
        0.5
        if node.version >= 16 and node.attribute("coordinate_transformation_mode", "half_pixel") == "half_pixel"
        else 0.0
    )

    def one(region: Any, number: Any, parts: tuple[int, int]) -> Any:
        left, top, right, bottom = (region[k] * scale - half for k in range(4))
        wide, high = right - left, bottom - top
        if not half:
            wide, high = jnp.maximum(wide, 1), jnp.maximum(high, 1)
        rows = jnp.reshape(_samples(top, high, height, parts[0]), (height, 1, parts[0], 1))
        columns = jnp.reshape(_samples(left, wide, width, parts[1]), (1, width, 1, parts[1]))
        four = _four(x[number], *jnp.broadcast_arrays(rows, columns))
        if node.attribute("mode", "avg") == "avg":
            return jnp.mean(sum(four), (-2, -1))
        return jnp.max(jnp.maximum(jnp.maximum(four[0], four[1]), jnp.maximum(four[2], four[3])), (-2, -1))

    if ratio:
        return jax.vmap(lambda region, number: one(region, number, (ratio, ratio)))(regions, batch)
    known = node.known(regions, "rois") * scale
    parts = [(math.ceil((b - t) / height), math.ceil((r - left) / width)) for left, t, r, b in known.tolist()]
    return jnp.stack(
        [one(jnp.asarray(regions)[k], batch[k], (max(1, item[0]), max(1, item[1]))) for k, item in enumerate(parts)]
    )


def _four(image: Any, y: Any, z: Any) -> list[Any]:
    """The four neighbours of places of an image of (channels, rows, columns), each by its weight."""
    rows, columns = image.shape[1:]
    inside = (y >= -1) & (y <= rows) & (z >= -1) & (z <= columns)
    y, z = jnp.maximum(y, 0), jnp.maximum(z, 0)
    y0, z0 = jnp.minimum(jnp.floor(y), rows - 1), jnp.minimum(jnp.floor(z), columns - 1)
    y, z = jnp.where(y0 >= rows - 1, y0, y), jnp.where(z0 >= columns - 1, z0, z)
    y1, z1 = jnp.minimum(y0 + 1, rows - 1), jnp.minimum(z0 + 1, columns - 1)
    result = []
    for at_y, by in ((y0, 1 - (y - y0)), (y1, y - y0)):
        for at_z, and_by in ((z0, 1 - (z - z0)), (z1, z - z0)):
            item = image[:, at_y.astype(np.int32), at_z.astype(np.int32)]
            result.append(item * jnp.where(inside, by * and_by, 0))
    return result
