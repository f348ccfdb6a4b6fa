"""In which shape reductions are, and which are done by halves."""

from __future__ import annotations

import itertools
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from benchmarks.traced_steps import lowered_vertices
from codelet.jaxprs.rebuild import inline
from lowering.jaxprs import reduce_by_halves as by_halves
from lowering.jaxprs.reduce_by_halves import reduce_by_halves
from lowering.jaxprs.reduce_in_shape import reduce_in_shape
from lowering.jaxprs.reshape_once import reshape_once, stretches
from tests.at_once import at_once
from tests.examples import examples, few
from tests.patterns.reductions import reshapes

# --- reduce_in_shape --------------------------------------------------------------------------------------------------


def names(closed):
    return [eqn.primitive.name for eqn in closed.eqns]


def changed(rule, function, *arguments):
    """A function after a rule, seen to mean the same."""
    closed = jax.make_jaxpr(function)(*arguments)
    made = rule(closed)
    found, expected = jax.jit(lambda *own: (jax_core.jaxpr_as_fun(made)(*own), function(*own)))(*arguments)
    for own, other in zip(found, jax.tree.leaves(expected), strict=True):
        assert own.shape == other.shape
        np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-6)
    return made


@examples(60)
@given(reshapes())
def test_stretches_are_all_dimensions_in_order_and_least(shapes):
    was, shape = shapes
    found = stretches(was, shape)
    for own, k in ((was, 0), (shape, 1)):
        assert [d for pair in found for d in range(pair[k].start, pair[k].stop)] == list(range(len(own)))
    for before, after in found:
        one, other = was[before], shape[after]
        assert np.prod(one) == np.prod(other)
        for i, j in itertools.product(range(1, len(one)), range(1, len(other))):
            assert np.prod(one[:i]) != np.prod(other[:j])


X = jnp.arange(24.0).reshape(2, 3, 4)


def test_rows_are_reduced_as_the_array_lies():
    made = reshape_once(changed(reduce_in_shape, lambda x: (jnp.exp(x), x.reshape(6, 4).max(1).reshape(2, 3)), X))
    assert sorted(names(made)) == ["exp", "reduce_max"]
    for function in (
        lambda x: x.reshape(6, 4).sum(1),  # nothing reads it as it is
        lambda x: (jnp.exp(x), x.reshape(4, 6).sum(1)),  # of parts of its dimensions
    ):
        closed = jax.make_jaxpr(function)(X)
        assert reduce_in_shape(closed) is closed


@pytest.mark.parametrize("kind", [np.float32, np.int32, np.bool_])
def test_columns_are_reduced_as_they_lie_though_they_are_converted(kind):
    rows = jnp.arange(12, dtype=np.float16).reshape(3, 4) - 6
    made = changed(reduce_in_shape, lambda x: x.T.astype(kind).max(1), rows)
    [converted, reduced] = made.jaxpr.eqns[-2:]
    assert (converted.primitive.name, reduced.primitive.name) == ("convert_element_type", "reduce_max")
    assert reduced.invars[0].aval.shape == (3, 4)
    assert reduced.params["axes"] == (0,)
    assert reduced.invars[0].aval.dtype == kind


def _in_parts(reduce, again, dtype: type = np.float32, axis=0):
    """Rows reduced in blocks of two, what is left over by itself, and all that is found reduced."""

    def function(x):
        x = x.astype(dtype)
        found = [reduce(x[:4].reshape(2, 2, 3), 1), reduce(x[4:], 0)[None]]
        return again(jnp.concatenate(found), axis).astype(np.float32)

    return function


@pytest.mark.parametrize("name", ["sum", "max", "min", "prod"])
def test_reductions_in_parts_are_reduced_apart(name):
    own = getattr(jnp, name)
    made = changed(reduce_in_shape, _in_parts(own, own), jnp.linspace(0.5, 2, 15).reshape(5, 3))
    assert "concatenate" not in names(inline(made))


@pytest.mark.parametrize(
    "function",
    [
        _in_parts(jnp.sum, jnp.max),
        _in_parts(jnp.sum, jnp.sum, axis=1),
        _in_parts(jnp.sum, jnp.sum, dtype=np.float16),  # which rounds what every part is
        lambda x: jnp.concatenate([x[:4].sum(0)[None], x[3:]]).sum(0),  # where two rows are no reduction
    ],
)
def test_other_reductions_of_parts_stay(function):
    made = changed(reduce_in_shape, function, jnp.linspace(0.5, 2, 15).reshape(5, 3))
    assert "concatenate" in names(inline(made))


def test_transposes_that_undo_each_other_are_none():
    made = changed(reshape_once, lambda x: jnp.sin(x.transpose(1, 2, 0).transpose(2, 0, 1)), X)
    assert names(made) == ["sin"]
    assert names(changed(reshape_once, lambda x: x.transpose(1, 2, 0).transpose(1, 0, 2), X)) == ["transpose"]


def test_transposes_around_reshapes_that_undo_each_other_are_one():
    def function(x):
        first = x.transpose(1, 2, 0)
        return first.reshape(-1).reshape(first.shape).transpose(1, 0, 2)

    assert names(changed(reshape_once, function, X)) == ["transpose"]


@few("shape", [(3, 2, 16, 8), (3, 2, 16, 7), (96, 8)], quick=["(3, 2, 16, 8)"])
def test_softmax_is_as_one_would_write_it(shape):
    def softmax(x):
        made = jnp.exp(x - x.max(-1, keepdims=True))
        return made / made.sum(-1, keepdims=True)

    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    traced = cl.trace(softmax, x, target=cl.IPU(num_tiles=24))
    for run in (traced.lowered, lowered_vertices(traced)):
        maps = [eqn for eqn in run.jaxpr.jaxpr.eqns if eqn.primitive.name in ("exp", "div", "sub")]
        assert {eqn.outvars[0].aval.shape for eqn in maps} == {shape}
        reductions = [eqn for eqn in run.jaxpr.jaxpr.eqns if eqn.primitive.name.startswith("reduce_")]
        assert {eqn.invars[0].aval.shape for eqn in reductions} == {shape}
    loss = lambda f: lambda x: jnp.sum(jnp.sin(f(x)))  # noqa: E731
    both = lambda f: (f(x), jax.grad(loss(f))(x))  # noqa: E731
    for own, other in zip(*jax.jit(lambda: (both(traced), both(softmax)))(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)


# --- reduce_by_halves -------------------------------------------------------------------------------------------------


BY_HALVES = [jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.mean]


@pytest.fixture
def low_bound(monkeypatch):
    monkeypatch.setattr(by_halves, "LEAST_BENEATH", 4)


@few(
    "of, reduction",
    product([((7, 5), 0), ((8, 2, 3), 0), ((3, 5, 4), (0, 1)), ((2, 5, 6), 1)], BY_HALVES),
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


def test_by_halves_inside_loops(low_bound):
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
