"""Operators that move elements, or make arrays of shapes: none of them computes with the values of elements."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.onnx.node import OnnxNode, is_known
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.casts import dtype_of

MOST_ELEMENTS = 1 << 31
"""Of an array that an operator makes out of nothing but a shape."""

MOST_ON_HOST = 1 << 24
"""Of an array that is made when the model is traced, as tables of weights are."""


def checked_shape(node: OnnxNode, shape: Sequence[int], most: int = MOST_ELEMENTS) -> tuple[int, ...]:
    """A shape that an array can have.

    Raises:
        ModelError: a negative extent, or more elements than `most`.
    """
    if any(n < 0 for n in shape) or math.prod(shape) > most:
        raise node.error(
            "no array is made of this shape",
            given=list(shape),
            expected=f"extents from 0, {most:,} elements at most",
        )
    return tuple(shape)


def host_shape(node: OnnxNode, *shape: int) -> tuple[int, ...]:
    """A shape of an array that is made when the model is traced."""
    return checked_shape(node, shape, MOST_ON_HOST)


# --- shapes -------------------------------------------------------------------------------------------------


@operator("Shape", by_type=(0,))
def shape(node: OnnxNode, x: Any) -> np.ndarray:
    """The shape of an array, or a stretch of it."""
    return np.array(x.shape[node.attribute("start", 0) : node.attribute("end")], np.int64)


@operator("Size", by_type=(0,))
def size(node: OnnxNode, x: Any) -> np.ndarray:
    """The number of elements."""
    return np.array(math.prod(x.shape), np.int64)


@operator("Constant")
def constant(node: OnnxNode) -> np.ndarray:
    """A value of the file."""
    item = node.attributes
    for name, dtype in (
        ("value_int", np.int64),
        ("value_ints", np.int64),
        ("value_float", np.float32),
        ("value_floats", np.float32),
    ):
        if name in item:
            return np.array(item[name], dtype)
    if "value" not in item:
        raise node.error(
            "a constant that is not an array of numbers",
            given=", ".join(item) or "nothing",
            expected="value, value_int(s), value_float(s)",
        )
    return np.asarray(item["value"])


@operator("ConstantOfShape", fixed=(0,))
def constant_of_shape(node: OnnxNode, extents: Any) -> Any:
    """An array of one value."""
    value = np.asarray(node.attribute("value", np.zeros(1, np.float32))).reshape(-1)
    return jnp.full(checked_shape(node, node.whole_numbers(extents, "input")), value[0])


@operator("EyeLike", by_type=(0,))
def eye_like(node: OnnxNode, x: Any) -> Any:
    """Ones on a diagonal, in the shape of another array."""
    number = node.attribute("dtype")
    dtype = x.dtype if number is None else dtype_of(node, number)
    return jnp.eye(*x.shape, k=node.attribute("k", 0), dtype=dtype)


@operator("Range", fixed=(0, 1, 2))
def number_range(node: OnnxNode, start: Any, limit: Any, delta: Any) -> Any:
    """Numbers at equal distances."""
    first, last, step = (
        node.known(entry, name).item() for entry, name in ((start, "start"), (limit, "limit"), (delta, "delta"))
    )
    count = max(math.ceil((last - first) / step), 0)
    host_shape(node, count)
    return (np.asarray(first) + np.arange(count) * np.asarray(step)).astype(start.dtype)


@operator("Reshape", since=1)
def reshape_of_old(node: OnnxNode, x: Any) -> Any:
    """In a shape that an attribute says."""
    return _reshaped(node, x, node.attribute("shape"))


@operator("Reshape", since=5, fixed=(1,))
def reshape(node: OnnxNode, x: Any, shape: Any) -> Any:
    """In another shape: 0 keeps an extent, -1 is the rest."""
    return _reshaped(node, x, node.whole_numbers(shape, "shape"))


def _reshaped(node: OnnxNode, x: Any, shape: Sequence[int]) -> Any:
    if not node.attribute("allowzero", 0):
        shape = [x.shape[d] if n == 0 else n for d, n in enumerate(shape)]
    return jnp.reshape(x, tuple(shape))


@operator("Flatten")
def flatten(node: OnnxNode, x: Any) -> Any:
    """As a matrix: the dimensions before an axis, and those from it on."""
    axis = node.attribute("axis", 1)
    axis = x.ndim if axis == x.ndim else node.axis(axis, x)
    return jnp.reshape(x, (math.prod(x.shape[:axis]), math.prod(x.shape[axis:])))


def _given_axes(node: OnnxNode, axes: Any) -> list[int] | None:
    return node.attribute("axes") if axes is None else node.whole_numbers(axes, "axes")


@operator("Squeeze", fixed=(1,))
def squeeze(node: OnnxNode, x: Any, axes: Any = None) -> Any:
    """Without dimensions of one."""
    item = _given_axes(node, axes)
    return jnp.squeeze(x, None if item is None else tuple(item))


@operator("Unsqueeze", fixed=(1,))
def unsqueeze(node: OnnxNode, x: Any, axes: Any = None) -> Any:
    """With dimensions of one more."""
    return jnp.expand_dims(x, tuple(_given_axes(node, axes) or ()))


@operator("Expand", fixed=(1,))
def expand(node: OnnxNode, x: Any, shape: Any) -> Any:
    """Repeated to a shape, by the rules of broadcasting."""
    wanted = np.broadcast_shapes(x.shape, tuple(node.whole_numbers(shape, "shape")))
    return jnp.broadcast_to(x, checked_shape(node, wanted))


@operator("Tile")
def tile_of_old(node: OnnxNode, x: Any, tiles: Any, axis: Any) -> Any:
    """Repeated along one axis."""
    (times,), (along,) = node.whole_numbers(tiles, "tiles"), node.whole_numbers(axis, "axis")
    host_shape(node, times)
    return jnp.concatenate([x] * times, along)


@operator("Tile", since=6, fixed=(1,))
def tile(node: OnnxNode, x: Any, repeats: Any) -> Any:
    """Repeated along each axis."""
    item = node.whole_numbers(repeats, "repeats")
    checked_shape(node, [n * times for n, times in zip(x.shape, item, strict=True)])
    return jnp.tile(x, item)


# --- parts --------------------------------------------------------------------------------------------------


@operator("Transpose")
def transpose(node: OnnxNode, x: Any) -> Any:
    """With its dimensions in another order."""
    return jnp.transpose(x, node.attribute("perm"))


@operator("Concat")
def concat(node: OnnxNode, *operands: Any) -> Any:
    """Arrays one after another along an axis."""
    return jnp.concatenate(operands, node.attribute("axis", 1 if node.version < 4 else 0))


@operator("Split", fixed=(1,))
def split(node: OnnxNode, x: Any, sizes: Any = None) -> tuple[Any, ...]:
    """In parts along an axis, equal where no sizes are given."""
    axis = node.axis(node.attribute("axis", 0), x)
    item = node.attribute("split") if sizes is None else node.whole_numbers(sizes, "split")
    if item is None:
        count = node.attribute("num_outputs", len(node.outputs))
        each = -(-x.shape[axis] // max(1, *host_shape(node, count)))
        item = [max(0, min(each, x.shape[axis] - k * each)) for k in range(count)]
    if sum(item) != x.shape[axis]:
        raise node.error("the parts do not add up", given=item, expected=f"a sum of {x.shape[axis]}")
    edges = np.cumsum([0, *item])
    return tuple(lax.slice_in_dim(x, int(a), int(b), axis=axis) for a, b in itertools.pairwise(edges))


@operator("Slice")
def slice_of_old(node: OnnxNode, x: Any) -> Any:
    """A part that attributes say."""
    starts, ends = node.attribute("starts"), node.attribute("ends")
    return _sliced(node, x, starts, ends, node.attribute("axes"), None)


@operator("Slice", since=10, fixed=(1, 2, 3, 4))
def slice_by(node: OnnxNode, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    """A part, of some axes, with steps."""
    first, last = node.whole_numbers(starts, "starts"), node.whole_numbers(ends, "ends")
    along = None if axes is None else node.whole_numbers(axes, "axes")
    return _sliced(node, x, first, last, along, None if steps is None else node.whole_numbers(steps, "steps"))


def _sliced(
    node: OnnxNode,
    x: Any,
    starts: Sequence[int],
    ends: Sequence[int],
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Any:
    item = [slice(None)] * x.ndim
    axes = range(len(starts)) if axes is None else axes
    for start, end, axis, step in zip(starts, ends, axes, steps or [1] * len(starts), strict=True):
        extent = x.shape[axis]
        if step == 0:
            raise node.error("a step of a slice is 0", given=0, expected="any other")
        if step > 0:
            first, last = _bounded(start, extent, 0, extent), _bounded(end, extent, 0, extent)
            item[axis] = slice(first, max(first, last), step)
        else:
            first, last = _bounded(start, extent, 0, extent - 1), _bounded(end, extent, -1, extent - 1)
            item[axis] = slice(first, None if last < 0 else last, step) if first > last else slice(0, 0)
    return x[tuple(item)] if is_known(x) else jnp.asarray(x)[tuple(item)]


def _bounded(place: int, extent: int, low: int, high: int) -> int:
    return min(max(place + extent if place < 0 else place, low), high)


_PADDED = {"constant": "constant", "reflect": "reflect", "edge": "edge", "wrap": "wrap"}


@operator("Pad")
def pad_of_old(node: OnnxNode, x: Any) -> Any:
    """With elements more at the ends, as attributes say."""
    widths = node.attribute("pads") or node.attribute("paddings")
    return _padded(node, x, widths, np.asarray(node.attribute("value", 0.0), x.dtype), None)


@operator("Pad", since=11, fixed=(1, 3))
def pad(node: OnnxNode, x: Any, pads: Any, value: Any = None, axes: Any = None) -> Any:
    """With elements more, or fewer, at the ends of some axes."""
    along = None if axes is None else node.whole_numbers(axes, "axes")
    return _padded(node, x, node.whole_numbers(pads, "pads"), value, along)


def _padded(node: OnnxNode, x: Any, pads: Sequence[int], value: Any, axes: Sequence[int] | None) -> Any:
    axes = range(x.ndim) if axes is None else [node.axis(axis, x) for axis in axes]
    widths = [(0, 0)] * x.ndim
    for k, axis in enumerate(axes):
        widths[axis] = pads[k], pads[k + len(axes)]
    checked_shape(node, [n + max(0, a) + max(0, b) for n, (a, b) in zip(x.shape, widths, strict=True)])
    mode = node.attribute("mode", "constant")
    cropped = tuple(slice(max(0, -a), n - max(0, -b)) for n, (a, b) in zip(x.shape, widths, strict=True))
    share_kept, more = jnp.asarray(x)[cropped], [(max(0, a), max(0, b)) for a, b in widths]
    if mode == "constant":
        fill = jnp.zeros((), x.dtype) if value is None else jnp.reshape(value, ()).astype(x.dtype)
        return lax.pad(share_kept, fill, [(a, b, 0) for a, b in more])
    return jnp.pad(share_kept, more, mode=_PADDED[mode])


@operator("CenterCropPad", fixed=(1,))
def center_crop_pad(node: OnnxNode, x: Any, shape: Any) -> Any:
    """The middle of an array, or an array with zeros around it, along some axes."""
    sizes = node.whole_numbers(shape, "shape")
    axes = node.attribute("axes") or list(range(x.ndim))
    pads = [0] * 2 * x.ndim
    for axis, size in zip(axes, sizes, strict=True):
        axis, more = node.axis(axis, x), size - x.shape[axis]
        before = more // 2 if more >= 0 else -((-more) // 2)
        pads[axis], pads[axis + x.ndim] = before, more - before
    return _padded(node, x, pads, None, None)


@operator("Trilu", fixed=(1,))
def trilu(node: OnnxNode, x: Any, k: Any = None) -> Any:
    """One side of a diagonal, and zeros on the other."""
    diagonal = 0 if k is None else node.whole_numbers(k, "k")[0]
    return (jnp.triu if node.attribute("upper", 1) else jnp.tril)(x, diagonal)


# --- blocks -------------------------------------------------------------------------------------------------


@operator("DepthToSpace")
def depth_to_space(node: OnnxNode, x: Any) -> Any:
    """Channels as blocks of positions."""
    b, (n, c, h, w) = node.attribute("blocksize"), x.shape
    if node.attribute("mode", "DCR") == "DCR":
        blocks = jnp.transpose(jnp.reshape(x, (n, b, b, c // b**2, h, w)), (0, 3, 4, 1, 5, 2))
    else:
        blocks = jnp.transpose(jnp.reshape(x, (n, c // b**2, b, b, h, w)), (0, 1, 4, 2, 5, 3))
    return jnp.reshape(blocks, (n, c // b**2, h * b, w * b))


@operator("SpaceToDepth")
def space_to_depth(node: OnnxNode, x: Any) -> Any:
    """Blocks of positions as channels."""
    b, (n, c, h, w) = node.attribute("blocksize"), x.shape
    if node.attribute("mode", "DCR") == "DCR":
        order, split = (0, 3, 5, 1, 2, 4), (n, c, h // b, b, w // b, b)
    else:
        order, split = (0, 1, 3, 5, 2, 4), (n, c, h // b, b, w // b, b)
    return jnp.reshape(jnp.transpose(jnp.reshape(x, split), order), (n, c * b * b, h // b, w // b))


@operator("Col2Im", fixed=(1, 2))
def columns_to_image(node: OnnxNode, x: Any, image: Any, block: Any) -> Any:
    """Blocks of an image, added up where they lie over one another: the transpose of cutting it into them."""
    sizes, kernel = node.whole_numbers(image, "image_shape"), node.whole_numbers(block, "block_shape")
    rank = len(sizes)
    strides, dilations = node.attribute("strides") or [1] * rank, node.attribute("dilations") or [1] * rank
    pads = node.attribute("pads") or [0] * 2 * rank
    channels = x.shape[1] // math.prod(kernel)

    def cut(item: Any) -> Any:
        result = lax.conv_general_dilated_patches(
            item, kernel, strides, list(zip(pads[:rank], pads[rank:], strict=True)), rhs_dilation=dilations
        )
        return jnp.reshape(result, (x.shape[0], x.shape[1], -1))

    whole = jax.ShapeDtypeStruct((x.shape[0], channels, *sizes), x.dtype)
    (result,) = jax.linear_transpose(cut, whole)(x)
    return result
