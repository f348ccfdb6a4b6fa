"""Cross-entropy as an operation, with probabilities and with classes, and its gradients."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import pytest

import codelet as cl
from codelet.errors import OperationError
from tests.examples import few
from tests.ops_cases import Case, array, check


def plain(logits, labels, axis):
    if jnp.issubdtype(labels.dtype, jnp.integer):
        own = jnp.take_along_axis(logits, jnp.expand_dims(labels, axis), axis).squeeze(axis)
        return jax.nn.logsumexp(logits, axis) - own
    return -jnp.sum(labels * jax.nn.log_softmax(logits, axis), axis)


@few(
    "of, kind",
    product([((5, 7), -1), ((4, 3, 2), 1)], ["classes", "probabilities"]),
    quick=["((5, 7), -1), probabilities", "((4, 3, 2), 1), classes"],
)
def test_values_and_gradients(of, kind):
    shape, axis = of
    logits = array(shape)
    rows = jnp.sum(logits, axis).shape
    labels = array(rows, jnp.int32, low=0, high=shape[axis] - 1)
    if kind == "probabilities":
        labels = jax.nn.softmax(array(shape, seed=1), axis)
    cotangent = array(rows, seed=2)

    def build(graph, logits, labels, cotangent):
        loss = cl.ops.cross_entropy(graph, logits, labels, axis)
        slopes = cl.ops.cross_entropy_gradient(graph, cotangent, logits, labels, axis)
        if kind == "classes":
            return loss, slopes
        return loss, slopes, cl.ops.cross_entropy_label_gradient(graph, cotangent, logits, labels, axis)

    def both(logits, labels, cotangent):
        if kind == "probabilities":
            loss, pull = jax.vjp(lambda x, y: plain(x, y, axis), logits, labels)
            return loss, *pull(cotangent)
        loss, pull = jax.vjp(lambda logits: plain(logits, labels, axis), logits)
        return loss, pull(cotangent)[0]

    check(Case(build, both, (logits, labels, cotangent)), interpreted=True, on_tiles=axis == -1)


def test_what_does_not_fit_is_told():
    graph = cl.Graph()
    x, n = graph.add_variable("x", (3, 4)), graph.add_variable("n", (4,), jnp.int32)
    with pytest.raises(OperationError, match="do not fit the logits"):
        cl.ops.cross_entropy(graph, x, n)
    with pytest.raises(OperationError, match="an axis that there is not"):
        cl.ops.cross_entropy(graph, x, n, 2)
    with pytest.raises(OperationError, match="classes, which have no gradient"):
        cl.ops.cross_entropy_label_gradient(graph, x[:, 0], x, n[:3])
    with pytest.raises(OperationError, match=r"the cotangent of ops\.cross_entropy_label_gradient is not like"):
        cl.ops.cross_entropy_label_gradient(graph, x, x, x)


@few("dtype", [jnp.uint8, jnp.int8], quick=["int8"])
def test_classes_of_a_dtype_that_does_not_count_them_all(dtype):
    logits, cotangent = array((4, 300)), array((4,), seed=1)
    labels = jnp.array([3, 44, 120, 7]).astype(dtype)

    def build(graph, logits, labels, cotangent):
        loss = cl.ops.cross_entropy(graph, logits, labels, 1)
        return loss, cl.ops.cross_entropy_gradient(graph, cotangent, logits, labels, 1)

    def both(logits, labels, cotangent):
        loss, pull = jax.vjp(lambda own: plain(own, labels.astype(jnp.int32), 1), logits)
        return loss, pull(cotangent)[0]

    check(Case(build, both, (logits, labels, cotangent), slopes=False))
