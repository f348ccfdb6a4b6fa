"""`cl.jit`, in every place in which a program has `jax.jit`: the same values, gradients, maps, donations and errors."""

from __future__ import annotations

import functools
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import codelet as cl
from codelet.errors import TraceError

X = jnp.arange(12.0).reshape(3, 4) / 7
W = jnp.cos(jnp.arange(20.0)).reshape(4, 5)

BOTH = pytest.mark.parametrize("jit", [jax.jit, cl.jit], ids=["jax", "codelet"])
"""With both, so that what is expected of one is what the other does."""


def layer(w, x):
    return jnp.tanh(x @ w)


def same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        assert (own.shape, own.dtype, own.weak_type) == (other.shape, other.dtype, other.weak_type)
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "use",
    [
        lambda f: f(W, X),
        lambda f: f(w=W, x=X),
        lambda f: f(W, x=X),
        lambda f: f(np.asarray(W), np.asarray(X)),
        lambda f: jax.grad(lambda w: f(w, X).sum())(W),
        lambda f: jax.jvp(f, (W, X), (W, X)),
        lambda f: jax.jacfwd(lambda w: f(w, X).sum(0))(W),
        lambda f: jax.hessian(lambda x: f(W, x).sum())(X),
        lambda f: jax.vmap(f, (None, 0))(W, X),
        lambda f: jax.vmap(f, (1, None), 1)(W, X),
        lambda f: jax.jit(lambda w, x: 2 * f(w, x))(W, X),
        lambda f: jax.lax.scan(lambda c, x: (c + 1, f(W, x + c)), 0.0, X),
        lambda f: jax.lax.cond(X.sum() > 0, f, lambda w, x: 0 * f(w, x), W, X),
        lambda f: jax.lax.fori_loop(0, 3, lambda k, x: f(jnp.eye(4), x) + k, X),
        lambda f: jax.checkpoint(f)(W, X),
        lambda f: jax.eval_shape(f, W, X).shape,
        lambda f: jax.make_jaxpr(f)(W, X).out_avals[0].shape,
    ],
)
def test_it_is_transformed_as_the_function_is(use):
    found, expected = use(cl.jit(layer)), use(jax.jit(layer))
    if isinstance(expected, tuple) and all(isinstance(own, int) for own in expected):
        assert found == expected
    else:
        same(found, expected)


def test_numbers_yield_their_dtypes():
    for given in [(1, 2), (1.5, 2), (True, X), (X, 2), (2, X.astype(jnp.bfloat16)), (np.float32(2), 3), (1j, X)]:
        same(cl.jit(lambda a, b: a * b + a)(*given), jax.jit(lambda a, b: a * b + a)(*given))


@BOTH
def test_static_arguments(jit):
    def power(x, n, *, times=1):
        return x**n * times if n else x

    for static in ({"static_argnums": 1}, {"static_argnames": "n"}, {"static_argnums": [1]}):
        f = jit(power, **static)
        same(f(X, 3), X**3)
        same(f(X, n=2), X**2)
        same(f(X, 0), X)
        same(f(X, 2, times=3), X**2 * 3)
    named = jit(power, static_argnames=["n", "times"])
    same(named(X, n=2, times=2), X**2 * 2)
    same(jit(lambda x, n: x**n, static_argnums=-1)(X, 2), X**2)
    with pytest.raises((ValueError, TraceError)):
        jit(power, static_argnums=1)(X, [1])


def test_static_values_are_told_apart_by_what_they_are():
    f = cl.jit(lambda x, n: x * n, static_argnums=1)
    whole = jnp.arange(3)
    assert [f.traced(whole, n).flat_outputs[0].dtype for n in (1, 1.0, True)] == ["int32", "float32", "int32"]
    assert f.traced(whole, 1) is f.traced(whole, 1)
    assert f.traced(whole, 1) is not f.traced(whole, True)


@BOTH
def test_it_is_traced_once_for_each_signature(jit):
    told = []

    @jit
    def f(x):
        told.append(x.shape)
        return x + 1

    for shape in [(2,), (3,), (2,), (3,)]:
        same(f(jnp.ones(shape)), jnp.ones(shape) + 1)
    assert told == [(2,), (3,)]
    f(jnp.ones(2, jnp.int32))
    assert len(told) == 3
    f.clear_cache()
    f(jnp.ones(2))
    assert len(told) == 4


def test_other_bits_are_another_trace():
    f = cl.jit(lambda x: x + jnp.arange(3))
    assert f(np.ones(3)).dtype == jnp.float32
    with jax.enable_x64(True):
        assert f(np.ones(3)).dtype == jnp.float64
        assert f.traced(np.ones(3)).flat_outputs[0].dtype == "float64"
    assert f.traced(np.ones(3)).flat_outputs[0].dtype == "float32"


@BOTH
def test_what_is_donated_is_gone(jit):
    def step(state, x):
        return jax.tree.map(lambda own: own + x, state), x

    for donated in ({"donate_argnums": 0}, {"donate_argnames": "state"}):
        state = {"a": jnp.ones(1000), "b": jnp.zeros(500, jnp.float32)}
        result, x = jit(step, **donated)(state, jnp.float32(2))
        assert all(own.is_deleted() for own in state.values())
        assert not x.is_deleted()
        same(result, {"a": jnp.ones(1000) * 3, "b": jnp.ones(500) * 2})


class Model(eqx.Module):
    layers: list
    rate: float
    name: str = eqx.field(static=True)

    @cl.jit
    def __call__(self, x):
        for own in self.layers:
            x = jax.vmap(own)(x) if isinstance(own, eqx.nn.Linear) else own(x)
        return x * self.rate if self.rate > 0 else x


def test_modules_have_functions_and_numbers_that_are_static():
    keys = jax.random.split(jax.random.key(0))
    model = Model([eqx.nn.Linear(4, 6, key=keys[0]), jax.nn.relu, eqx.nn.Linear(6, 2, key=keys[1])], 0.5, "own")
    expected = 0.5 * jax.vmap(model.layers[2])(jax.nn.relu(jax.vmap(model.layers[0])(X)))
    same(model(X), expected)
    other = eqx.tree_at(lambda own: own.rate, model, 0.0)
    same(other(X), 2 * expected)
    same(model(X), expected)
    assert model.__call__.traced(X).graph.num_vertices > 0

    @cl.jit
    def step(model, state, x):
        slopes = eqx.filter_grad(lambda own: (own(x) ** 2).sum())(model)
        updates, state = optimizer.update(slopes, state)
        return eqx.apply_updates(model, updates), state

    optimizer = optax.adam(1e-2)
    state = optimizer.init(eqx.filter(model, eqx.is_inexact_array))
    after, _ = step(model, state, X)
    plain, _ = eqx.filter_jit(step.__wrapped__)(model, state, X)
    same(eqx.filter(after, eqx.is_array), eqx.filter(plain, eqx.is_array))
    assert (after.rate, after.name, after.layers[1]) == (0.5, "own", jax.nn.relu)


def test_a_donated_module_is_gone():
    model = eqx.nn.MLP(4, 4, 8, 1, key=jax.random.key(0))
    after = cl.jit(lambda own: own, donate_argnums=0)(model)
    assert model.layers[0].weight.is_deleted()
    assert after.activation is model.activation


class Scaled:
    def __init__(self, scale):
        self.scale = scale

    @functools.partial(cl.jit, static_argnums=0)
    def times(self, x):
        return x * self.scale

    @cl.jit
    def alone(self, x):
        return x + self.scale


def test_methods():
    a, b = Scaled(2.0), Scaled(3.0)
    same(a.times(X), X * 2)
    same(b.times(X), X * 3)
    same(b.alone(X), X + 3)
    same(a.alone(X), X + 2)
    same(jax.grad(lambda x: a.times(x).sum())(X), 2 * jnp.ones_like(X))
    assert "mul" in str(a.times.traced(X).program)
    assert a.times.__name__ == "times"


def test_as_a_decorator_with_arguments():
    @cl.jit(static_argnames="n", grain=1)
    def f(x, n):
        """The doc."""
        return x * n

    same(f(X, n=2), X * 2)
    assert (f.__name__, f.__doc__) == ("f", "The doc.")
    assert f.traced(X, n=2).graph.num_vertices == 12


@BOTH
def test_values_of_an_enclosing_transformation(jit):
    def outer(p, x):
        inner = jit(lambda y, *, times: {"all": y * p * times, "count": jnp.arange(3) * n})
        found = inner(x, times=3.0)
        return found["all"].sum() + found["count"].sum()

    n = jnp.int32(2)
    p = jnp.float32(2)
    same(jax.grad(outer)(p, X), 3 * X.sum())
    same(jax.jit(outer)(p, X), 6 * X.sum() + 6)
    same(jax.vmap(outer, (0, None))(jnp.arange(2.0), X), jnp.stack([jnp.float32(6), 3 * X.sum() + 6]))


def test_inside_another_graph_it_is_a_part_of_that():
    inner = cl.jit(layer)

    def outer(w, x):
        return inner(w, x).sum()

    plain = cl.trace(lambda w, x: jax.jit(layer)(w, x).sum(), W, X)
    for own in (cl.trace(outer, W, X), cl.jit(outer).traced(W, X)):
        assert str(own.program) == str(plain.program)
    same(cl.jit(outer)(W, X), outer(W, X))
    same(inner(W, X), layer(W, X))  # as before, whatever was traced meanwhile


def test_traced_profiled_and_drawn(tmp_path):
    f = cl.jit(layer, target=cl.IPU(num_tiles=8))
    traced = f.traced(W, X)
    assert traced is f.traced(jax.ShapeDtypeStruct((4, 5), jnp.float32), X)
    assert [own.source.name for own in traced.flat_inputs] == ["w", "x"]
    assert traced.graph.target.num_tiles == 8
    assert f.profile(W, X).summary() == traced.profile().summary()
    assert f.draw(W, X) is not None
    assert "dot_general" in f.lower(W, X).as_text()


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"static_argnums": 7}, "static_argnums"),
        ({"static_argnums": "w"}, "static_argnums"),
        ({"static_argnums": 0.5}, "static_argnums"),
        ({"static_argnums": True}, "static_argnums"),
        ({"static_argnames": 3}, "static_argnames"),
        ({"static_argnames": "other"}, "other"),
        ({"donate_argnums": -9}, "donate_argnums"),
        ({"donate_argnames": [1]}, "donate_argnames"),
        ({"grain": -1}, "grain"),
        ({"replace": [1]}, "replace"),
        ({"target": "IPU"}, "target"),
    ],
)
def test_wrong_options(given, wrong):
    with pytest.raises(cl.CodeletError, match=wrong):
        cl.jit(layer, **given)(W, X)


def test_wrong_calls():
    with pytest.raises(TraceError, match="other than a function"):
        cl.jit(3)
    with pytest.raises(TraceError, match="cannot be told from others"):
        cl.jit(layer, static_argnums=1).traced(W, [1.0])
    with pytest.raises(TraceError, match=r"jnp\.where"):
        cl.jit(lambda x: x if x.sum() > 0 else -x)(X)
    with pytest.raises(TypeError, match="missing"):
        cl.jit(layer)(W)


@jax.custom_jvp
def with_plain_numbers(x):
    return jnp.sin(x), True, 2.0


@with_plain_numbers.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return with_plain_numbers(*primals), (jnp.cos(primals[0]) * tangents[0], 0.0, 0.0)


def test_plain_numbers_among_the_results_of_what_is_called():
    """Which a jaxpr holds as they are, and JAX traces where anything is."""
    same(cl.jit(lambda x: with_plain_numbers(x.sum()))(X), jax.jit(lambda x: with_plain_numbers(x.sum()))(X))
