"""Batch, layer and group norm as operations: values, gradients by JAX and by their own operations, dtypes, mistakes."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import pytest

import codelet as cl
from codelet.errors import OperationError
from tests.examples import few
from tests.ops_cases import Case, array, check

EPS = 1e-3


def normalized(x, axes, eps=EPS):
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    mean, variance = jnp.mean(wide, axes, keepdims=True), jnp.var(wide, axes, keepdims=True)
    return (wide - mean) * jax.lax.rsqrt(variance + eps), mean, variance


def batch(x, scale, offset, axis=1):
    axes = tuple(d for d in range(x.ndim) if d != axis)
    y, mean, variance = normalized(x, axes)
    wide = [jnp.expand_dims(own, axes) for own in (scale, offset)]
    return (y * wide[0] + wide[1]).astype(x.dtype), mean.squeeze(axes), variance.squeeze(axes)


def layer(x, scale, offset, axes=(-1,)):
    return (normalized(x, axes)[0] * scale + offset).astype(x.dtype)


def group(x, scale, offset, groups=2):
    wide = x.reshape(x.shape[0], groups, -1, *x.shape[2:])
    y = normalized(wide, tuple(range(2, wide.ndim)))[0].reshape(x.shape)
    beside = tuple(range(1, x.ndim - 1))
    return (y * jnp.expand_dims(scale, beside) + jnp.expand_dims(offset, beside)).astype(x.dtype)


def build_batch(graph, x, scale, offset, cotangent, grain):
    y, mean, variance = cl.ops.batch_norm(graph, x, scale, offset, eps=EPS, grain=grain)
    slopes = cl.ops.batch_norm_gradient(graph, cotangent, x, scale, mean, variance, eps=EPS, grain=grain)
    return y, slopes, (mean, variance)


def build_layer(graph, x, scale, offset, cotangent, grain):
    axis = tuple(range(-scale.ndim, 0))
    y = cl.ops.layer_norm(graph, x, scale, offset, axis=axis, eps=EPS, grain=grain)
    return y, cl.ops.layer_norm_gradient(graph, cotangent, x, scale, axis=axis, eps=EPS, grain=grain), ()


def build_group(graph, x, scale, offset, cotangent, grain):
    y = cl.ops.group_norm(graph, x, 2, scale, offset, eps=EPS, grain=grain)
    return y, cl.ops.group_norm_gradient(graph, cotangent, x, 2, scale, eps=EPS, grain=grain), ()


CASES = {
    "batch": (build_batch, batch, (3, 4, 5), (4,)),
    "batch of vectors": (build_batch, batch, (7, 3), (3,)),
    "layer": (build_layer, layer, (5, 7), (7,)),
    "layer of two axes": (build_layer, lambda *own: layer(*own, axes=(-2, -1)), (3, 2, 5), (2, 5)),
    "group": (build_group, group, (2, 6, 3), (6,)),
}


def case(name, grain, dtype=jnp.float32, slopes=True, tolerance=None):
    build, plain, shape, scales = CASES[name]
    x, cotangent = array(shape, dtype), array(shape, dtype, seed=1)
    scale, offset = array(scales, seed=2), array(scales, seed=3)

    def both(x, scale, offset, cotangent):
        def result(*own):
            found = plain(*own)
            return found if isinstance(found, tuple) else (found, *())

        values, pull = jax.vjp(
            lambda *own: result(*own)[0] if name.startswith("batch") else plain(*own), x, scale, offset
        )
        statistics = plain(x, scale, offset)[1:] if name.startswith("batch") else ()
        return values, pull(cotangent), statistics

    ours = lambda graph, *own: build(graph, *own, grain)  # noqa: E731
    return Case(ours, both, (x, scale, offset, cotangent), slopes=slopes, tolerance=tolerance)


@few("name, grain", product(CASES, [None, 4]), quick=["batch of vectors, 4"])
def test_values_and_gradients(name, grain):
    check(case(name, grain, slopes=grain is None, tolerance=1e-4), interpreted=True, on_tiles=name == "batch")


@few("name, dtype", product(["batch", "layer", "group"], [jnp.float16, jnp.bfloat16]), quick=["batch, float16"])
def test_short_floats_have_statistics_in_float32(name, dtype):
    check(case(name, None, dtype, slopes=False))


@few("dtype", [jnp.float32, jnp.float16], ids=lambda dtype: dtype.__name__, quick=["float16"])
def test_inference_normalizes_by_what_is_given(dtype):
    x, g = array((3, 4, 5), dtype), array((3, 4, 5), dtype, seed=5)
    scale, offset, mean = (array((4,), seed=k) for k in (1, 2, 3))
    variance = array((4,), seed=4, low=0.5)

    def build(graph, g, x, scale, offset, mean, variance):
        y = cl.ops.batch_norm_inference(graph, x, scale, offset, mean, variance, eps=EPS)
        return y, cl.ops.batch_norm_inference_gradient(graph, g, x, scale, mean, variance, eps=EPS)

    def inferred(x, *own):
        scale, offset, mean, variance = (part[:, None] for part in own)
        return ((x - mean) * jax.lax.rsqrt(variance + EPS) * scale + offset).astype(x.dtype)

    def plain(g, *own):
        y, pull = jax.vjp(inferred, *own)
        return y, pull(g)

    exact = dtype == jnp.float32
    check(Case(build, plain, (g, x, scale, offset, mean, variance), slopes=exact), interpreted=exact)


def test_what_does_not_fit_is_told():
    graph = cl.Graph()
    x, c = graph.add_variable("x", (2, 6, 3)), graph.add_variable("c", (6,))
    with pytest.raises(OperationError, match=r"scale of ops\.batch_norm does not fit"):
        cl.ops.batch_norm(graph, x, c[:5], c)
    with pytest.raises(OperationError, match="does not divide the channels"):
        cl.ops.group_norm(graph, x, 4, c, c)
    with pytest.raises(OperationError, match=r"offset of ops\.layer_norm does not fit"):
        cl.ops.layer_norm(graph, x, c[:3], c)
    with pytest.raises(OperationError, match=r"cotangent of ops\.layer_norm_gradient is not like"):
        cl.ops.layer_norm_gradient(graph, x[:1], x, c[:3])
    for statistics in ((x[:, 0, 0], x[:, 0, 0]), (x[0],), 3):
        with pytest.raises(OperationError, match=r"statistics of ops\.layer_norm_gradient are not those"):
            cl.ops.layer_norm_gradient(graph, x, x, c[:3], statistics=statistics)
    with pytest.raises(OperationError, match="an axis that there is not"):
        cl.ops.batch_norm(graph, x, c, c, channel_axis=3)
    assert not graph.compute_sets
