"""What is stopped (`jax.lax.stop_gradient`) costs no compute set where maps read it, and has no derivatives."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.custom_derivatives import SymbolicZero
from jax.lax import stop_gradient as stop

import codelet as cl
from tests.examples import few

X = jnp.sin(jnp.arange(24.0)).reshape(4, 6)

STOPPED = {
    "softmax": (jax.nn.softmax, ["reduce_max/reduce", "max/map", "sub_exp/map", "reduce_sum/reduce", "div/map"]),
    "a factor": (lambda x: stop(x) * x, ["stop_gradient_mul/map"]),
    "made and read": (lambda x: (lambda y: y * stop(y))(jnp.sin(x)), ["sin_stop_gradient_mul/map"]),
    "a row for all": (lambda x: x - stop(x[:1]), ["sub/map"]),
    "read by a product as well": (
        lambda x: (lambda s: (x - s, s @ x.T))(stop(x[:1])),
        ["sub/map", "stop_gradient/map", "dot_general/multiply"],
    ),
    "returned": (lambda x: (lambda s: (s, x - s))(stop(x[:1])), ["stop_gradient/map", "sub/map"]),
    "twice": (lambda x: x + stop(stop(x[:, :1])), ["stop_gradient_stop_gradient/map", "add/map"]),
}


def loss_of(function):
    return lambda x: sum((own**2).sum() for own in jax.tree.leaves(function(x)))


@few("name", STOPPED, quick=["a factor", "made and read", "a row for all", "returned", "twice"])
def test_what_is_stopped(name):
    function, compute_sets = STOPPED[name]
    traced = cl.trace(function, X)
    assert {own.name for own in traced.graph.compute_sets} - {"dot_general/add up"} == set(compute_sets)
    names, given = [own.source.name for own in traced.flat_outputs], {"x": X}
    values = cl.interpret(traced.graph, values=given, outputs=names, program=traced.program)
    for own, expected in zip(values.values(), jax.tree.leaves(function(X)), strict=True):
        np.testing.assert_allclose(own, np.asarray(expected).reshape(np.shape(own)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(jax.grad(loss_of(traced))(X), jax.grad(loss_of(function))(X), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(
        cl.trace(jax.grad(loss_of(function)), X)(X), jax.grad(loss_of(function))(X), rtol=1e-4, atol=1e-5
    )


@jax.custom_jvp
def kept_beside_others(x, y):
    return jnp.cumsum(x), jnp.cumsum(y)


def _rule(given: Any, slopes: Any) -> Any:
    x, y = given
    moves = not isinstance(slopes[0], SymbolicZero)
    none = jnp.zeros_like(x)
    slope = jnp.cumsum(slopes[0] if moves else slopes[1])
    return kept_beside_others(x, y), (slope, none) if moves else (none, slope)


kept_beside_others.defjvp(_rule, symbolic_zeros=True)


def test_a_rule_that_gives_others_by_several_operands_is_refused_as_a_graph():
    """As that of Equinox's loops, which stops what nothing moved: JAX knows what moves, and a graph does not."""
    traced = cl.trace(lambda x: sum(own.sum() for own in kept_beside_others(jnp.cumsum(x), jnp.sin(x))), X[0])
    with pytest.raises(cl.CodeletTraceError, match="by several operands than by each"):
        cl.gradient(traced.graph, of=traced.outputs, wrt=[traced.inputs[0]], program=traced.program)


@jax.custom_jvp
def refusing(x):
    return 2 * jnp.sin(x)


@refusing.defjvp
def _refused(*_: Any) -> Any:
    raise TypeError("no slopes")


REFUSING = {
    "a number": lambda x: x * refusing(3.0),
    "a number everywhere": lambda x: x + refusing(jnp.full((6,), 2.0)),
    "two numbers, one after another": lambda x: x * refusing(3.0) + refusing(refusing(0.5)) * refusing(2.0),
}


@pytest.mark.parametrize("name", REFUSING)
def test_a_number_may_be_given_to_a_function_without_slopes(name):
    """As Equinox's `nondifferentiable`, whose rule is not asked for where its argument is a literal."""
    function = REFUSING[name]
    traced = cl.trace(function, X[0])
    np.testing.assert_allclose(traced(X[0]), function(X[0]), rtol=1e-6)
    np.testing.assert_allclose(jax.grad(lambda x: traced(x).sum())(X[0]), jax.grad(lambda x: function(x).sum())(X[0]))
