"""Steps of training, as ONNX's preview of training has them."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator

_DOMAIN = "ai.onnx.preview.training"


@operator("Gradient", domain=_DOMAIN, is_folded=False)
def gradient(node: OnnxNode, *operands: Any) -> tuple[Any, ...]:
    """The derivatives of the sum of a value of the graph with respect to others, where these are as they are given."""
    count = len(node.attribute("xs"))
    arrays = [jnp.asarray(item) for item in operands]
    value_of = lambda *leading: node.attribute("function")(*leading, *arrays[count:])[0]  # noqa: E731
    value, backward = jax.vjp(value_of, *arrays[:count])
    return tuple(backward(jnp.ones_like(value)))


def _of_each(operands: tuple[Any, ...], kinds: int) -> list[tuple[Any, ...]]:
    """For each parameter its value of each kind: parameters, gradients, states."""
    count = len(operands) // kinds
    return [tuple(operands[kind * count + k] for kind in range(kinds)) for k in range(count)]


def _in_order(output: list[tuple[Any, ...]]) -> tuple[Any, ...]:
    return tuple(item for kind in zip(*output, strict=True) for item in kind)


@operator("Momentum", domain=_DOMAIN)
def momentum(node: OnnxNode, rate: Any, turn: Any, *operands: Any) -> tuple[Any, ...]:
    """Gradient descent with momentum, standard or Nesterov's."""
    alpha, beta, decay = (node.attribute(name) for name in ("alpha", "beta", "norm_coefficient"))
    beta = jnp.where(jnp.reshape(turn, ()) > 0, beta, 1.0)

    def one(x: Any, g: Any, v: Any) -> tuple[Any, Any]:
        g = decay * x + g
        v_new = alpha * v + beta.astype(x.dtype) * g
        step = g + alpha * v_new if node.attribute("mode") == "nesterov" else v_new
        return x - rate * step, v_new

    return _in_order([one(*item) for item in _of_each(operands, 3)])


@operator("Adagrad", domain=_DOMAIN)
def adagrad(node: OnnxNode, rate: Any, turn: Any, *operands: Any) -> tuple[Any, ...]:
    """Gradient descent by the squares of all gradients so far."""
    rate = rate / (1 + turn * node.attribute("decay_factor", 0.0))

    def one(x: Any, g: Any, h: Any) -> tuple[Any, Any]:
        g = node.attribute("norm_coefficient", 0.0) * x + g
        h = h + g * g
        return (x - rate * g / (jnp.sqrt(h) + node.attribute("epsilon", 1e-6))).astype(x.dtype), h

    return _in_order([one(*item) for item in _of_each(operands, 3)])


@operator("Adam", domain=_DOMAIN)
def adam(node: OnnxNode, rate: Any, turn: Any, *operands: Any) -> tuple[Any, ...]:
    """Gradient descent by moments of gradients."""
    alpha, beta = node.attribute("alpha", 0.9), node.attribute("beta", 0.999)
    turn = jnp.asarray(turn)
    corrected = rate * jnp.sqrt(1 - beta**turn) / (1 - alpha**turn)
    rate = jnp.where(turn > 0, corrected, rate)

    def one(x: Any, g: Any, v: Any, h: Any) -> tuple[Any, Any, Any]:
        g = node.attribute("norm_coefficient", 0.0) * x + g
        v, h = alpha * v + (1 - alpha) * g, beta * h + (1 - beta) * g * g
        x = x - rate.astype(x.dtype) * v / (jnp.sqrt(h) + node.attribute("epsilon", 1e-6))
        return (1 - node.attribute("norm_coefficient_post", 0.0)) * x, v, h

    return _in_order([one(*item) for item in _of_each(operands, 4)])
