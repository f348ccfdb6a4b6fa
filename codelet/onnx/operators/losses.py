"""Losses of classes."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp

from codelet.onnx.node import OnnxNode
from codelet.onnx.operator_table import operator


def _loss(node: OnnxNode, logs: Any, target: Any, weight: Any) -> Any:
    """The negative logarithm of the right class's probability, put together as the node says."""
    ignored = node.attribute("ignore_index")
    labels = jnp.asarray(target)
    keep = jnp.ones(labels.shape, bool) if ignored is None else labels != ignored
    safe = jnp.where(keep, labels, 0)
    each = -jnp.take_along_axis(logs, jnp.expand_dims(safe, 1), 1)[:, 0]
    share = jnp.ones((), logs.dtype) if weight is None else jnp.take(weight, safe)
    share = jnp.where(keep, share, 0)
    each = each * share
    how = node.attribute("reduction", "mean")
    if how == "none":
        return each
    return jnp.sum(each) if how == "sum" else jnp.sum(each) / jnp.sum(share)


@operator("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(node: OnnxNode, logs: Any, target: Any, weight: Any = None) -> Any:
    """Of the logarithms of probabilities."""
    return _loss(node, logs, target, weight)


@operator("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(node: OnnxNode, scores: Any, labels: Any, weight: Any = None) -> tuple[Any, Any]:
    """Of scores before the softmax; with the logarithms of the probabilities."""
    logs = jax.nn.log_softmax(scores, 1)
    return _loss(node, logs, labels, weight), logs
