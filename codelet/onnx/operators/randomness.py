"""Random numbers, of the seed that the file gives: others than another runtime's, as ONNX leaves them open."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.casts import dtype_of
from codelet.onnx.operators.shapes import checked_shape


def _key(node: OnnxNode) -> Any:
    """The key of a node: of its seed, or else of its name."""
    seed = node.attribute("seed")
    number = zlib.crc32(node.name.encode()) if seed is None else struct.unpack("<I", struct.pack("<f", seed))[0]
    return jax.random.key(number)


def _dtype(node: OnnxNode, like: Any = None) -> np.dtype:
    number = node.attribute("dtype")
    return np.dtype(np.float32 if like is None else like.dtype) if number is None else dtype_of(node, number)


def _normal(node: OnnxNode, shape: Sequence[int], dtype: np.dtype) -> Any:
    mean, scale = node.attribute("mean", 0.0), node.attribute("scale", 1.0)
    return jax.random.normal(_key(node), checked_shape(node, shape), dtype) * np.asarray(scale, dtype) + np.asarray(
        mean, dtype
    )


def _uniform(node: OnnxNode, shape: Sequence[int], dtype: np.dtype) -> Any:
    low, high = node.attribute("low", 0.0), node.attribute("high", 1.0)
    return jax.random.uniform(_key(node), checked_shape(node, shape), dtype, low, high)


@operator("RandomNormal", is_folded=False)
def random_normal(node: OnnxNode) -> Any:
    """Normal numbers of a shape."""
    return _normal(node, node.attribute("shape"), _dtype(node))


@operator("RandomNormalLike", is_folded=False)
def random_normal_like(node: OnnxNode, x: Any) -> Any:
    """Normal numbers in the shape of an array."""
    return _normal(node, x.shape, _dtype(node, x))


@operator("RandomUniform", is_folded=False)
def random_uniform(node: OnnxNode) -> Any:
    """Uniform numbers of a shape."""
    return _uniform(node, node.attribute("shape"), _dtype(node))


@operator("RandomUniformLike", is_folded=False)
def random_uniform_like(node: OnnxNode, x: Any) -> Any:
    """Uniform numbers in the shape of an array."""
    return _uniform(node, x.shape, _dtype(node, x))


@operator("Bernoulli", is_folded=False)
def bernoulli(node: OnnxNode, x: Any) -> Any:
    """1 with a probability for each element, else 0."""
    return jax.random.bernoulli(_key(node), x).astype(_dtype(node, x))


@operator("Multinomial", is_folded=False)
def multinomial(node: OnnxNode, x: Any) -> Any:
    """Classes drawn by the logarithms of their weights, some for each row."""
    dtype = np.dtype(np.int32) if node.attribute("dtype") is None else dtype_of(node, node.attribute("dtype"))
    shape = (node.attribute("sample_size", 1), x.shape[0])
    return jnp.transpose(jax.random.categorical(_key(node), x, -1, shape=shape)).astype(dtype)


@operator("Dropout", is_folded=False)
def dropout_of_old(node: OnnxNode, x: Any) -> tuple[Any, Any]:
    """Nothing but when training, which these opsets leave to a flag."""
    if node.version < 7 and not node.attribute("is_test", 0):
        return _dropped(node, x, node.attribute("ratio", 0.5))
    return x, jnp.ones(x.shape, bool if node.version >= 10 else x.dtype)


@operator("Dropout", since=12, is_folded=False, fixed=(1, 2))
def dropout(node: OnnxNode, x: Any, ratio: Any = None, training: Any = None) -> tuple[Any, Any]:
    """Elements zeroed by chance when training, the others scaled up; and which are left."""
    share = 0.5 if ratio is None else float(node.known(ratio, "ratio").reshape(()))
    if training is None or not bool(node.known(training, "training_mode").reshape(())) or share == 0:
        return x, jnp.ones(x.shape, bool)
    return _dropped(node, x, share)


def _dropped(node: OnnxNode, x: Any, share: float) -> tuple[Any, Any]:
    left = jax.random.bernoulli(_key(node), 1 - share, x.shape)
    return jnp.where(left, x / np.asarray(1 - share, x.dtype), 0), left
