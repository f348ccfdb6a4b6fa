"""Products of matrices."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator


@operator("MatMul")
def matmul(node: OnnxNode, a: Any, b: Any) -> Any:
    """As `jax.numpy.matmul`."""
    return jnp.matmul(a, b)


@operator("Gemm")
def gemm(node: OnnxNode, a: Any, b: Any, c: Any = None) -> Any:
    """`alpha * a @ b + beta * c`, of matrices that may be transposed."""
    of_a, of_b = ((0,) if node.attribute("transA", 0) else (1,)), ((1,) if node.attribute("transB", 0) else (0,))
    # By rows of the weights, which are long: the vertices of a row of the result read few pieces of them.
    result = jnp.transpose(lax.dot_general(b, a, ((of_b, of_a), ((), ()))))
    result = _times(result, node.attribute("alpha", 1.0))
    return result if c is None else result + _times(c, node.attribute("beta", 1.0))


def _times(x: Any, factor: float) -> Any:
    return x if factor == 1 else x * np.asarray(factor, x.dtype)


@operator("Einsum")
def einsum(node: OnnxNode, *operands: Any) -> Any:
    """As `jax.numpy.einsum`."""
    return jnp.einsum(node.attribute("equation"), *operands)
