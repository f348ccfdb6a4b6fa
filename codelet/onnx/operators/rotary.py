"""Parts of transformers; the other operators of this kind, ONNX's function bodies compute."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator


@operator("RotaryEmbedding")
def rotary_embedding(node: OnnxNode, x: Any, cosines: Any, sines: Any, positions: Any = None) -> Any:
    """Pairs of features turned by an angle for each position."""
    heads, shape = node.attribute("num_heads", 0), x.shape
    if x.ndim == 3:
        x = jnp.transpose(jnp.reshape(x, (*shape[:2], heads, -1)), (0, 2, 1, 3))
    size = node.attribute("rotary_embedding_dim", 0) or x.shape[-1]
    turned, rest = x[..., :size], x[..., size:]
    if positions is not None:
        cosines, sines = jnp.take(cosines, positions, 0), jnp.take(sines, positions, 0)
    cosines, sines = cosines[:, None, :, : size // 2], sines[:, None, :, : size // 2]
    if node.attribute("interleaved", 0):
        first, second = turned[..., 0::2], turned[..., 1::2]
    else:
        first, second = jnp.split(turned, 2, axis=-1)
    real, imaginary = cosines * first - sines * second, sines * first + cosines * second
    if node.attribute("interleaved", 0):
        output = jnp.reshape(jnp.stack([real, imaginary], -1), turned.shape)
    else:
        output = jnp.concatenate([real, imaginary], -1)
    output = jnp.concatenate([output, rest], -1) if rest.shape[-1] else output
    return output if len(shape) == 4 else jnp.reshape(jnp.transpose(output, (0, 2, 1, 3)), shape)
