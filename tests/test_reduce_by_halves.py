"""Reductions over a major dimension with many results: by halves just where they are slow, with JAX's derivative."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs import reduce_by_halves as by_halves
from lowering.jaxprs.reduce_by_halves import reduce_by_halves
from tests.at_once import at_once
from tests.examples import few

REDUCTIONS = [jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.mean]


def names(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


@pytest.fixture
def low_bound(monkeypatch):
    monkeypatch.setattr(by_halves, "LEAST_BENEATH", 4)


@few(
    "of, reduction",
    product([((7, 5), 0), ((8, 2, 3), 0), ((3, 5, 4), (0, 1)), ((2, 5, 6), 1)], REDUCTIONS),
    quick=[
        "((7, 5), 0), prod",
        "((7, 5), 0), mean",
        "((8, 2, 3), 0), sum",
        "((3, 5, 4), (0, 1)), max",
        "((2, 5, 6), 1), min",
    ],
)
def test_values_and_gradients_are_kept(low_bound, of, reduction):
    shape, axes = of
    # Few different numbers, so that greatest ones are tied.
    x = np.random.default_rng(0).choice(np.asarray([0.5, 1.0, -1.5], np.float32), shape)
    function = lambda x: jnp.sin(reduction(x, axis=axes)).sum()  # noqa: E731
    closed = reduce_by_halves(jax.make_jaxpr(function)(x))
    assert "platform_index" in names(closed)
    run = lambda x: jax_core.jaxpr_as_fun(closed)(x)[0]  # noqa: E731
    stacked = np.stack([x, -x])

    def all_of(function):
        return lambda x: (function(x), jax.grad(function)(x), jax.jacfwd(function)(x), jax.vmap(function)(stacked))

    for result, expected in zip(*at_once(all_of(run), all_of(function))(x), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", [jnp.sum, jnp.max, jnp.prod, jnp.all, jnp.any])
def test_integers_and_truth_values_exactly(low_bound, reduction):
    x = np.random.default_rng(0).integers(-3, 4, (11, 6)).astype(np.int32)
    x = x > -3 if reduction in (jnp.all, jnp.any) else x
    closed = reduce_by_halves(jax.make_jaxpr(lambda x: reduction(x, axis=0))(x))
    assert "platform_index" in names(closed)
    (result,), expected = at_once(jax_core.jaxpr_as_fun(closed), lambda x: reduction(x, axis=0))(x)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("shape", "axes"), [((64, 64), 0), ((1 << 16, 8), 1), ((8, 1 << 12), 0), ((8, 1 << 16), (0, 1)), ((1, 1 << 16), 0)]
)
def test_quick_reductions_stay(shape, axes):
    closed = jax.make_jaxpr(lambda x: x.sum(axes))(np.ones(shape, np.float32))
    assert reduce_by_halves(closed) is closed


def test_inside_loops(low_bound):
    def turns(x):
        return lax.scan(lambda carry, _: (carry + x.sum(0), None), jnp.zeros(5), length=3)[0]

    x = np.arange(35, dtype=np.float32).reshape(7, 5)
    closed = reduce_by_halves(jax.make_jaxpr(turns)(x))
    assert "platform_index" in str(closed)
    (result,), expected = at_once(jax_core.jaxpr_as_fun(closed), turns)(x)
    np.testing.assert_allclose(result, expected)


def test_a_family_that_adds_up_along_the_first_dimension():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (5, 1 << 15)), graph.add_variable("y", (1 << 15,))
    i = cl.grid(1 << 15)
    graph.add_vertex("add up", cl.codelet(lambda x: jnp.sum(x)), x=x[:, i], out=y[i])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert names(run.jaxpr) == ["platform_index", "cond"]
    values = np.random.default_rng(0).normal(size=(5, 1 << 15)).astype("f")
    np.testing.assert_allclose(jax.jit(run)({"x": values})["y"], values.sum(0), rtol=1e-5, atol=1e-5)
