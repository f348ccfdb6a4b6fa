"""Transforms of signals, and windows for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator
from codelet.onnx.operators.casts import dtype_of
from codelet.onnx.operators.shapes import host_shape


def _transformed(node: OnnxNode, x: Any, axis: int, length: int | None) -> Any:
    """The discrete Fourier transform of numbers whose last dimension is one, or real and imaginary part."""
    inverse, one_sided = bool(node.attribute("inverse", 0)), bool(node.attribute("onesided", 0))
    is_complex = x.shape[-1] == 2
    z = x[..., 0] + (1j * x[..., 1] if is_complex else 0)
    if one_sided and inverse:
        count = length or 2 * (x.shape[axis] - 1)
        return jnp.fft.irfft(z, count, axis)[..., None].astype(x.dtype)
    result = (jnp.fft.ifft if inverse else jnp.fft.fft)(z, length, axis)
    if one_sided:
        result = jnp.take(result, jnp.arange(result.shape[axis] // 2 + 1), axis)
    return jnp.stack([jnp.real(result), jnp.imag(result)], -1).astype(x.dtype)


@operator("DFT", fixed=(1,))
def dft_of_old(node: OnnxNode, x: Any, length: Any = None) -> Any:
    """The discrete Fourier transform along an axis that an attribute says."""
    count = None if length is None else node.whole_numbers(length, "dft_length")[0]
    return _transformed(node, x, node.axis(node.attribute("axis", 1), x), count)


@operator("DFT", since=20, fixed=(1, 2))
def dft(node: OnnxNode, x: Any, length: Any = None, axis: Any = None) -> Any:
    """The discrete Fourier transform along an axis."""
    count = None if length is None else node.whole_numbers(length, "dft_length")[0]
    along = -2 if axis is None else node.whole_numbers(axis, "axis")[0]
    return _transformed(node, x, node.axis(along, x), count)


@operator("STFT", fixed=(1, 3))
def stft(node: OnnxNode, signal: Any, step: Any, window: Any = None, length: Any = None) -> Any:
    """The Fourier transforms of stretches of a signal, one after another."""
    (hop,) = node.whole_numbers(step, "frame_step")
    size = node.whole_numbers(length, "frame_length")[0] if length is not None else window.shape[0]
    count = (signal.shape[1] - size) // hop + 1
    host_shape(node, max(0, count), size)
    places = np.arange(count)[:, None] * hop + np.arange(size)
    frames = jnp.take(signal, places, 1)
    if window is not None:
        before = (size - window.shape[0]) // 2
        whole = jnp.pad(window, (before, size - window.shape[0] - before))
        frames = frames * whole[:, None].astype(frames.dtype)
    sided = {**node.attributes, "onesided": node.attribute("onesided", 1)}
    one = OnnxNode(node.operator, node.domain, node.version, node.name, node.outputs, sided)
    return _transformed(one, frames, 2, size)


def _window(node: OnnxNode, size: Any, weights: Sequence[float]) -> Any:
    (count,) = node.whole_numbers(size, "size")
    host_shape(node, count)
    dtype = dtype_of(node, node.attribute("output_datatype", 1))
    turns = count if node.attribute("periodic", 1) else count - 1
    angles = 2 * math.pi * np.arange(count) / turns
    return sum(weight * np.cos(k * angles) for k, weight in enumerate(weights)).astype(dtype)  # type: ignore[union-attr]


@operator("HannWindow", fixed=(0,))
def hann_window(node: OnnxNode, size: Any) -> Any:
    """Half a cosine off a half."""
    return _window(node, size, (0.5, -0.5))


@operator("HammingWindow", fixed=(0,))
def hamming_window(node: OnnxNode, size: Any) -> Any:
    """As Hann's, and not zero at its ends."""
    return _window(node, size, (25 / 46, -21 / 46))


@operator("BlackmanWindow", fixed=(0,))
def blackman_window(node: OnnxNode, size: Any) -> Any:
    """Of two cosines."""
    return _window(node, size, (0.42, -0.5, 0.08))


@operator("MelWeightMatrix", fixed=(0, 1, 2, 3, 4))
def mel_weight_matrix(node: OnnxNode, bins: Any, length: Any, rate: Any, low: Any, high: Any) -> Any:
    """By how much each frequency is in each band of the mel scale."""
    count, size, per_second = (node.whole_numbers(item, "sizes")[0] for item in (bins, length, rate))
    host_shape(node, size // 2 + 1, count)
    edges = [float(node.known(item, "edges").reshape(())) for item in (low, high)]
    to_mel = lambda hertz: 2595 * np.log10(1 + np.asarray(hertz) / 700)  # noqa: E731
    first, last = to_mel(edges)
    mels = first + np.arange(count + 2) * (last - first) / (count + 2)
    places = np.floor((size + 1) * (700 * (10 ** (mels / 2595) - 1)) / per_second).astype(int)
    result = np.zeros((size // 2 + 1, count))
    for k in range(count):
        before, centre, after = places[k : k + 3]
        if centre == before:
            result[centre, k] = 1
        else:
            for row in range(before, centre + 1):
                result[row, k] = (row - before) / (centre - before)
        if after > centre:
            for row in range(centre, after):
                result[row, k] = (after - row) / (after - centre)
    return result.astype(dtype_of(node, node.attribute("output_datatype", 1)))
