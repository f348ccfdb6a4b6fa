"""Operators that look elements up, or write them, at places that are data."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codelet.onnx.node import OnnxNode, is_known
from codelet.onnx.operator_table import operator


def _places(x: Any, indices: Any, axis: int) -> Any:
    """Indices counted from the beginning."""
    return jnp.where(indices < 0, indices + x.shape[axis], indices)


@operator("Gather")
def gather(node: OnnxNode, x: Any, indices: Any) -> Any:
    """Slices at places along an axis."""
    axis = node.axis(node.attribute("axis", 0), x)
    if is_known(x) and is_known(indices):
        return np.take(x, indices, axis)
    return jnp.take(x, _places(x, indices, axis), axis, mode="clip")


@operator("GatherElements")
def gather_elements(node: OnnxNode, x: Any, indices: Any) -> Any:
    """One element for each place along an axis."""
    axis = node.axis(node.attribute("axis", 0), x)
    return jnp.take_along_axis(x, _places(x, indices, axis), axis, mode="clip")


def _split(x: Any, indices: Any, batch: int) -> tuple[Any, ...]:
    """The index of each dimension that the last one of indices numbers, and those of a batch before them."""
    count = indices.shape[-1]
    shape = indices.shape[:-1]
    before = [jnp.reshape(jnp.arange(shape[d]), [-1 if k == d else 1 for k in range(len(shape))]) for d in range(batch)]
    return (*before, *(_places(x, indices[..., k], batch + k) for k in range(count)))


@operator("GatherND")
def gather_nd(node: OnnxNode, x: Any, indices: Any) -> Any:
    """Slices at places of several dimensions."""
    return jnp.asarray(x)[_split(x, jnp.asarray(indices), node.attribute("batch_dims", 0))]


def _written(node: OnnxNode, at: Any, updates: Any) -> Any:
    """The elements at some places with updates, as the attribute `reduction` puts them together."""
    how = node.attribute("reduction", "none")
    ways = {"none": at.set, "add": at.add, "mul": at.multiply, "max": at.max, "min": at.min}
    return ways[how](updates)


@operator("ScatterND")
def scatter_nd(node: OnnxNode, x: Any, indices: Any, updates: Any) -> Any:
    """Slices written at places of several dimensions."""
    return _written(node, jnp.asarray(x).at[_split(x, jnp.asarray(indices), 0)], updates)


@operator("Scatter", "ScatterElements")
def scatter_elements(node: OnnxNode, x: Any, indices: Any, updates: Any) -> Any:
    """Elements written at places along an axis."""
    axis = node.axis(node.attribute("axis", 0), x)
    grid = [
        jnp.reshape(jnp.arange(n), [-1 if k == d else 1 for k in range(x.ndim)]) for d, n in enumerate(indices.shape)
    ]
    grid[axis] = _places(x, jnp.asarray(indices), axis)
    return _written(node, jnp.asarray(x).at[tuple(grid)], updates)


@operator("TensorScatter")
def tensor_scatter(node: OnnxNode, cache: Any, update: Any, starts: Any = None) -> Any:
    """A cache with the new elements of each of a batch from a place on, which may go round."""
    axis = node.axis(node.attribute("axis", -2), cache)
    length, new = cache.shape[axis], update.shape[axis]
    first = jnp.zeros(cache.shape[0], jnp.int32) if starts is None else jnp.asarray(starts).astype(jnp.int32)
    places = first[:, None] + jnp.arange(new)
    if node.attribute("mode", "linear") == "circular":
        places = places % length
    moved, item = jnp.moveaxis(cache, axis, 1), jnp.moveaxis(update, axis, 1)
    written = moved.at[jnp.arange(cache.shape[0])[:, None], places].set(item)
    return jnp.moveaxis(written, 1, axis)


@operator("OneHot", fixed=(1,))
def one_hot(node: OnnxNode, indices: Any, depth: Any, values: Any) -> Any:
    """One value where an index is, another elsewhere, along a new axis."""
    (count,) = node.whole_numbers(depth, "depth")
    axis = node.attribute("axis", -1)
    places = jnp.asarray(indices).astype(jnp.int32)
    places = jnp.where(places < 0, places + count, places)
    result = jnp.expand_dims(places, axis)
    axis %= places.ndim + 1
    numbers = jnp.reshape(jnp.arange(count), [-1 if d == axis else 1 for d in range(places.ndim + 1)])
    return jnp.where(result == numbers, values[1], values[0])


@operator("Compress", fixed=(1,))
def compress(node: OnnxNode, x: Any, condition: Any) -> Any:
    """The slices for which a condition holds, which must be known."""
    chosen = np.flatnonzero(node.known(condition, "condition"))
    axis = node.attribute("axis")
    return jnp.take(jnp.reshape(x, -1), chosen) if axis is None else jnp.take(x, chosen, axis)


@operator("NonZero", fixed=(0,))
def non_zero(node: OnnxNode, x: Any) -> Any:
    """Where a known array is not zero."""
    return np.array(np.nonzero(node.known(x, "X")), np.int64)


@operator("ReverseSequence")
def reverse_sequence(node: OnnxNode, x: Any, lengths: Any) -> Any:
    """The beginning of each of a batch, so long as it is, the other way round."""
    time, batch = node.attribute("time_axis", 0), node.attribute("batch_axis", 1)
    moved = jnp.moveaxis(x, (batch, time), (0, 1))
    steps, ends = jnp.arange(moved.shape[1]), jnp.asarray(lengths)[:, None]
    places = jnp.where(steps < ends, ends - 1 - steps, steps)
    result = jax.vmap(lambda item, at: jnp.take(item, at, 0))(moved, places)
    return jnp.moveaxis(result, (0, 1), (batch, time))


@operator("ArrayFeatureExtractor", domain="ai.onnx.ml")
def array_feature_extractor(node: OnnxNode, x: Any, indices: Any) -> Any:
    """Columns by their numbers."""
    return jnp.take(x, jnp.reshape(indices, -1), x.ndim - 1)
