"""Means, variances, running averages and the root-mean-square norm as operations: values and gradients."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import pytest

import codelet as cl
from codelet.errors import OperationError
from tests.examples import few
from tests.ops_cases import Case, array, check

SHAPES = {"minor": ((3, 7), 1), "outer and inner": ((4, 3, 5), (0, -1)), "all": ((97,), None), "none": ((0, 3), 1)}


@few("name", SHAPES, quick=["outer and inner", "all", "none"])
def test_mean_and_variance(name):
    shape, axis = SHAPES[name]
    x = array(shape)
    cotangent = array(jnp.sum(x, axis).shape, seed=1)

    def build(graph, x, cotangent):
        ops = cl.ops
        values = ops.mean(graph, x, axis), ops.var(graph, x, axis, keepdims=True), ops.var(graph, x, axis, ddof=1)
        by_var = ops.var_gradient(graph, cotangent, x, axis, ddof=1, grain=4)
        return values, (ops.mean_gradient(graph, cotangent, x, axis), by_var)

    def plain(x, cotangent):
        values = jnp.mean(x, axis), jnp.var(x, axis, keepdims=True), jnp.var(x, axis, ddof=1)
        kinds = (lambda x: jnp.mean(x, axis)), (lambda x: jnp.var(x, axis, ddof=1))
        return values, tuple(jax.vjp(kind, x)[1](cotangent)[0] for kind in kinds)

    small = name == "minor"
    check(Case(build, plain, (x, cotangent), slopes=small), interpreted=small, on_tiles=small)


@few("dtype", [jnp.float16, jnp.bfloat16, jnp.int32, bool], quick=["bool"])
def test_moments_of_other_dtypes_and_of_nothing(dtype):
    x = array((6, 5), dtype)
    kinds = [(0, {}), (1, {"keepdims": True}), (None, {})]

    def build(graph, x):
        found = [(cl.ops.mean(graph, x, axis, **own), cl.ops.var(graph, x, axis, **own)) for axis, own in kinds]
        return found, cl.ops.mean(graph, x[:0], 0), cl.ops.var(graph, x[:0], 0), cl.ops.var(graph, x[:1], 0, ddof=1)

    def plain(x):
        found = [(jnp.mean(x, axis, **own), jnp.var(x, axis, **own)) for axis, own in kinds]
        return found, jnp.mean(x[:0], 0), jnp.var(x[:0], 0), jnp.var(x[:1], 0, ddof=1)

    check(Case(build, plain, (x,), slopes=False))


def test_running_average():
    def build(graph, average, own, g):
        made = cl.ops.running_average(graph, average, own, momentum=0.9)
        return made, cl.ops.running_average_gradient(graph, g, average, own, momentum=0.9)

    def plain(average, own, g):
        made, pull = jax.vjp(lambda average, own: 0.9 * average + (1 - 0.9) * own, average, own)
        return made, pull(g)

    check(Case(build, plain, (array((4,)), array((4,), seed=1), array((4,), seed=2))), interpreted=True)


def rms(x, scale, axes):
    wide = x.astype(jnp.promote_types(x.dtype, jnp.float32))
    inverse = jax.lax.rsqrt(jnp.mean(wide * wide, axes, keepdims=True) + 1e-3)
    return (wide * inverse * scale).astype(x.dtype)


ROWS = {
    "rows": ((3, 7), (7,), jnp.float32, None),
    "cut": ((3, 8), (8,), jnp.float32, 4),
    "two axes": ((3, 2, 5), (2, 5), jnp.float32, None),
    "short": ((4, 6), (6,), jnp.float16, None),
}


@few("name", ROWS, quick=["two axes"])
def test_rms_norm(name):
    shape, of_row, dtype, grain = ROWS[name]
    axes = tuple(range(-len(of_row), 0))
    x, scale, cotangent = array(shape, dtype), array(of_row, seed=1), array(shape, dtype, seed=2)

    def build(graph, x, scale, cotangent):
        y = cl.ops.rms_norm(graph, x, scale, axis=axes, eps=1e-3, grain=grain)
        return y, cl.ops.rms_norm_gradient(graph, cotangent, x, scale, axis=axes, eps=1e-3, grain=grain)

    def plain(x, scale, cotangent):
        y, pull = jax.vjp(lambda x, scale: rms(x, scale, axes), x, scale)
        return y, pull(cotangent)

    run = grain is not None
    case = Case(build, plain, (x, scale, cotangent), slopes=run)
    check(case, interpreted=run, on_tiles=run)


def test_what_does_not_fit_is_told():
    graph = cl.Graph()
    x, c = graph.add_variable("x", (2, 6)), graph.add_variable("c", (6,))
    with pytest.raises(OperationError, match="an axis that there is not"):
        cl.ops.mean(graph, x, 2)
    with pytest.raises(OperationError, match="variance of nothing"):
        cl.ops.var_gradient(graph, c, x, 0, ddof=2)
    with pytest.raises(OperationError, match=r"the cotangent of ops\.mean_gradient is not like"):
        cl.ops.mean_gradient(graph, c, x, 1)
    with pytest.raises(OperationError, match="is not alike"):
        cl.ops.running_average(graph, c, x)
    with pytest.raises(OperationError, match=r"scale of ops\.rms_norm does not fit"):
        cl.ops.rms_norm(graph, x, c[:5])
    with pytest.raises(OperationError, match=r"cotangent of ops\.rms_norm_gradient is not like"):
        cl.ops.rms_norm_gradient(graph, c, x, c)
    assert not graph.compute_sets
