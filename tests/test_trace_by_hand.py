"""Traced functions of which a user has written a part by hand."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import pytest

import codelet as cl
from tests.ops_cases import array, assert_alike

ROW, MATRIX = array((4,), seed=1), array((4, 4), seed=2)


@cl.codelet
def fused(w, x, y):
    return jnp.tanh(jnp.dot(w, x)) + y


@jax.jit
def block(own, x):
    return jnp.tanh(own["w"] @ x) + x


def rows(graph, w, x):
    i = cl.grid(w.shape[0])
    return graph.add_vertex("rows", fused, w=w[i], x=x, y=x[i])


def test_a_layer_by_hand_among_others():
    function = lambda own, x: block(own, 2 * x) * 3  # noqa: E731
    for key in (block, "block"):
        traced = cl.trace(function, {"w": MATRIX}, ROW, replace={key: rows})
        assert_alike(traced({"w": MATRIX}, ROW), function({"w": MATRIX}, ROW))
        assert [own.name for own in traced.graph.compute_sets] == ["mul/map", "block/rows", "mul_2/map"]
        assert traced.graph.num_vertices == 3 * 4


def test_a_layer_by_hand_that_is_called_again_is_one_function():
    function = lambda own, x: block(own, block(own, x))  # noqa: E731
    traced = cl.trace(function, {"w": MATRIX}, ROW, replace={"block": rows})
    assert_alike(traced({"w": MATRIX}, ROW), function({"w": MATRIX}, ROW))
    assert len(traced.graph.functions) == 1
    assert traced.graph.num_vertices == 4


@cl.codelet
def clipped(x):
    return jnp.clip(x, 0)


def clip_rows(graph, x):
    i = cl.grid(x.shape[0])
    return graph.add_vertex("clip", clipped, x=x[i])


def test_functions_in_loops_and_with_derivative_rules_are_replaced():
    function = lambda own, x: jax.lax.scan(lambda h, _: (jax.nn.relu(block(own, h)), h), x, None, 3)  # noqa: E731
    traced = cl.trace(function, {"w": MATRIX}, ROW, replace={"block": rows, jax.nn.relu: clip_rows})
    jax.tree.map(assert_alike, traced({"w": MATRIX}, ROW), function({"w": MATRIX}, ROW))
    assert {"rows", "clip"} <= {own.name.rpartition("/")[2] for own in traced.graph.compute_sets}


@jax.jit
def forward(w, x):
    return jnp.tanh(w @ x)


@jax.jit
def backward(slope, w, x, y):
    own = slope * (1 - y * y)
    return jnp.outer(own, x), w.T @ own


layer = jax.custom_vjp(forward)
layer.defvjp(lambda w, x: ((y := forward(w, x)), (w, x, y)), lambda kept, slope: backward(slope, *kept))


@cl.codelet
def row_of_slopes(slope, x, y):
    return slope * (1 - y * y) * x


@cl.codelet
def slope_of(w, slope, y):
    return jnp.dot(w, slope * (1 - y * y))


def backward_by_hand(graph, slope, w, x, y):
    i, j = cl.grid(4), cl.grid(4)
    of_w = graph.add_vertex("weights", row_of_slopes, slope=slope[i], x=x, y=y[i])
    return of_w, graph.add_vertex("inputs", slope_of, w=w[:, j], slope=slope, y=y)


def test_a_gradient_by_hand():
    function = jax.grad(lambda w, x: layer(w, x).sum(), (0, 1))
    traced = cl.trace(function, MATRIX, ROW, replace={backward: backward_by_hand})
    jax.tree.map(assert_alike, traced(MATRIX, ROW), function(MATRIX, ROW))
    assert {"weights", "inputs"} <= {own.name.rpartition("/")[2] for own in traced.graph.compute_sets}


def test_what_is_differentiated_is_another_function():
    slopes = jax.grad(lambda own, x: block(own, x).sum())
    with pytest.raises(cl.TraceError, match=r"'block'(?s:.*)fix: .*jax.custom_vjp"):
        cl.trace(slopes, {"w": MATRIX}, ROW, replace={"block": rows})


@pytest.mark.parametrize(
    ("replace", "told"),
    [
        ({"blocks": rows}, r"no function of this name(?s:.*)given: +'blocks'(?s:.*)expected: one of block"),
        ({3: rows}, r"something other than a function, or gives no builder(?s:.*)given: +3"),
        ({"block": 3}, r"something other than a function, or gives no builder(?s:.*)'block': 3"),
        ([rows], "is no dict"),
        ({"block": lambda graph, w, x: w}, r"place of 'block'(?s:.*)given: +Tensor\(float32\[4,4\](?s:.*)float32\[4\]"),
        ({"block": lambda graph, w, x: None}, r"place of 'block'(?s:.*)given: +None"),
    ],
)
def test_what_cannot_be_replaced_is_told(replace: Any, told: str):
    with pytest.raises(cl.TraceError, match=told):
        cl.trace(lambda own, x: block(own, x), {"w": MATRIX}, ROW, replace=replace)
