"""Equations folded into one where PopLibs has one vertex: which, and which not."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from ipu_backend.model.body_cycles import jaxpr_cost
from ipu_backend.model.costs import Cost, Mode
from ipu_backend.model.equations import inlined
from ipu_backend.model.folded import folded
from tests import poplibs_oracle as oracle
from tests import poplibs_products as products

F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


def ones(*shape: int, dtype: Any = F32) -> Any:
    return jax.ShapeDtypeStruct(shape, dtype)


def kept(function, *arguments):
    """The primitives that are left."""
    jaxpr, names = jax.make_jaxpr(function)(*arguments).jaxpr, {}
    return [eqn.primitive for eqn in folded(inlined(jaxpr, names), jaxpr.outvars, names)]


def cost(function, *arguments, **mode) -> Cost:
    return jaxpr_cost(jax.make_jaxpr(function)(*arguments), Mode(cl.IPU(), **mode))


@pytest.mark.parametrize("n", [100, 1000])
def test_sums_of_float16_take_no_casts(n):
    x = ones(n, dtype=F16)
    assert cost(jnp.sum, x).worker == oracle.reduce_to_one("f16", n).worker
    assert cost(lambda x: jnp.sum(x, dtype=F32), x).worker == oracle.reduce_to_one("f16", n, out="f32").worker
    rows = ones(16, n, dtype=F16)
    assert cost(lambda x: x.sum(1), rows).worker == oracle.reduce_continuous("f16", 16, n).worker
    assert cost(lambda x: x.sum(0), rows).worker == pytest.approx(oracle.reduce_strided("f16", n, 16).worker, rel=0.01)
    assert cost(lambda x: x.sum().astype(F16), ones(n)).worker == oracle.reduce_to_one("f32", n, out="f16").worker


def test_sums_of_squares_and_of_products():
    x = ones(1000)
    for square in (lambda x: (x**2).sum(), lambda x: (x * x).sum(), lambda x: jnp.square(x).sum()):
        assert cost(square, x).worker == oracle.reduce_to_one("f32", 1000).worker
        assert cost(square, x, compiled=True).worker == 17 + 12 + 1000 * (2 + 1)
    dot = lambda x, y: (x * y).sum()  # noqa: E731
    assert cost(dot, x, x).worker == products.horizontal_mac("f32", 1, 1000, 1).worker
    assert cost(dot, x, x).guessed
    assert cost(dot, x, x, compiled=True) == cost(jnp.dot, x, x, compiled=True)
    shared = cost(dot, x, x, compiled=True, workers=6)
    assert shared.worker * 5 < cost(dot, x, x, compiled=True).worker
    assert kept(lambda x: (x * x[0]).sum(), ones(1)) == ["squeeze", "mul", "reduce_sum"]
    rows, across = (cost(lambda x, y, axis=axis: (x * y).sum(axis), ones(8, 64), ones(8, 64)) for axis in (1, 0))
    assert rows.worker == 17 + 8 * (12 + 32)
    assert across.worker == 17 + 32 * (12 + 16)


def test_histograms():
    x, limits = ones(100), ones(18)
    for counted in (
        lambda x, y: (x[None] >= y[:, None]).sum(1),
        lambda x, y: (y < x[:, None]).sum(0, dtype=jnp.float32),
    ):
        assert kept(counted, x, limits) == ["broadcast_in_dim", "broadcast_in_dim", "histogram"]
        assert cost(counted, x, limits).worker == oracle.histogram("f32", 18, 100).worker
    assert cost(counted, x, limits, compiled=True).worker == 17 + 12 * 18 + 1800 * 3
    for other in (
        lambda x, y: (x[None] >= y[:, None]).sum(),  # over the limits too
        lambda x, y: (x[None] == y[:, None]).sum(1),
        lambda x, y: (x.astype(jnp.int32)[None] >= y.astype(jnp.int32)[:, None]).sum(1),
        lambda x, y: (x[:18] >= y).sum(),
    ):
        assert "histogram" not in kept(other, x, limits)


@pytest.mark.parametrize("n", [99, 100, 1000])
@pytest.mark.parametrize("dtype", [F32, F16])
def test_a_scaled_add(n, dtype):
    name, x, s = {F32: "f32", F16: "f16"}[dtype], ones(n, dtype=dtype), ones(dtype=dtype)
    for subtracts, ways in (
        (False, (lambda x, s, y: x + s * y, lambda x, s, y: y * s + x, lambda x, s, y: x + 2 * y)),
        (True, (lambda x, s, y: x - s * y,)),
    ):
        for way in ways:
            found = cost(way, x, s, x, workers=6)
            estimate = oracle.scaled_add(name, n, subtract=subtracts)
            assert found.supervisor + 6 * found.worker == estimate.tile
            assert cost(way, x, s, x).worker == estimate.worker
    assert cost(lambda x, s, y: x + s * y, x, s, x, compiled=True).worker == (26 if dtype == F16 else 29) + 8 * n


def test_what_is_needed_elsewhere_is_not_folded():
    x, s, half = ones(8), ones(), ones(8, dtype=F16)
    assert kept(lambda x: jnp.sum(x), half) == ["reduce_sum"]
    assert kept(lambda x: x.mean(), half) == ["reduce_sum"]
    assert kept(lambda x: x.mean(0, keepdims=True), ones(4, 4, dtype=F16)) == ["reduce_sum"]
    assert kept(lambda x, s: x.sum() / s, x, s) == ["reduce_sum", "div"]
    assert kept(lambda x: 2 / x.sum(), x) == ["reduce_sum", "div"]
    both = lambda x: (x.astype(F32), jnp.sum(x))  # noqa: E731
    assert kept(both, half).count("convert_element_type") >= 1
    assert kept(lambda x, y: [m := x * y, m.sum()], x, x) == ["mul", "reduce_sum"]
    assert kept(lambda x, s, y: (m := s * y, x + m), x, s, x) == ["mul", "add"]
    # beside other operations on the same elements it is part of their loop
    assert kept(lambda x, s, y: jnp.exp(x) + s * y, x, s, x) == ["exp", "mul", "add"]
    assert kept(lambda x, s, y: jnp.exp(x + s * y), x, s, x) == ["mul", "add", "exp"]
    # neither of one number, nor of numbers that no vector holds, nor of two numbers
    assert kept(lambda x, s, y: x + s * y, s, s, s) == ["mul", "add"]
    whole = ones(8, dtype=np.int32)
    assert kept(lambda x, y: x + 2 * y, whole, whole) == ["mul", "add"]
    assert kept(lambda x, y: x - y * x, x, x) == ["mul", "sub"]
    assert kept(lambda x, s, y: s * y - x, x, s, x) == ["mul", "sub"]
    assert kept(lambda x, s: (s * x).sum(), x, s) == ["mul", "reduce_sum"]
    # loops have equations of their own
    assert kept(lambda x: jax.lax.fori_loop(0, 3, lambda i, x: x * 2, x), x) == ["scan"]


def test_softmax_of_float16():
    found = kept(jax.nn.softmax, ones(16, dtype=F16))
    assert "convert_element_type" not in found
    assert found.count("reduce_sum") == 1
