"""Reductions in the shapes that arrays have, and reshapes and transposes in a row as one, meaning the same."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.reduce_in_shape import reduce_in_shape
from lowering.jaxprs.reshape_once import reshape_once, stretches
from tests.examples import examples


def names(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def changed(rule, function, *arguments):
    """A function after a rule, seen to mean the same."""
    closed = jax.make_jaxpr(function)(*arguments)
    made = rule(closed)
    found, expected = jax.jit(lambda *own: (jax_core.jaxpr_as_fun(made)(*own), function(*own)))(*arguments)
    for own, other in zip(found, jax.tree.leaves(expected), strict=True):
        assert own.shape == other.shape
        np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-6)
    return made


@st.composite
def reshapes(draw):
    """Two shapes of as many elements."""
    factors = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))

    def shape():
        cuts = sorted(draw(st.sets(st.integers(0, len(factors)))) | {0, len(factors)})
        own = [int(np.prod(factors[a:b])) for a, b in itertools.pairwise(cuts)]
        return tuple(own) + (1,) * draw(st.integers(0, 1))

    return shape(), shape()


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


@examples(12)
@given(reshapes(), st.data())
def test_drawn_reductions(shapes, data):
    was, shape = shapes
    axes = tuple(sorted(data.draw(st.sets(st.integers(0, len(shape) - 1), min_size=1))))
    name = data.draw(st.sampled_from(("sum", "max", "min", "prod")))
    function = lambda x: (getattr(x.reshape(shape), name)(axes), jnp.sin(x))  # noqa: E731
    x = jnp.asarray(np.random.default_rng(len(was)).normal(size=was), jnp.float32)
    changed(reduce_in_shape, function, x)
    loop = lambda x: lax.fori_loop(0, 2, lambda _, x: jnp.sin(x) + jnp.sum(function(x)[0]), x)  # noqa: E731
    changed(reduce_in_shape, loop, x)


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


@examples(10)
@given(st.data())
def test_moves_in_a_row_are_one(data):
    moves = data.draw(st.lists(st.sampled_from(("transpose", "reshape")), min_size=1, max_size=6))
    seed = data.draw(st.integers(0, 99))

    def function(x):
        random, made = np.random.default_rng(seed), [x]
        for move in moves:
            own = made[-1]
            shape = tuple(random.permutation([2, 3, 4]).tolist())
            made.append(own.transpose(random.permutation(3).tolist()) if move == "transpose" else own.reshape(shape))
        return [own + 1 for own in made[1:]]

    made = changed(reshape_once, function, X)
    makers = {eqn.outvars[0]: eqn.primitive.name for eqn in made.jaxpr.eqns}
    done = set()
    for eqn in made.jaxpr.eqns:
        if eqn.primitive.name in ("transpose", "reshape"):
            assert makers.get(eqn.invars[0]) != eqn.primitive.name
            own = eqn.invars[0], eqn.params.get("permutation"), eqn.outvars[0].aval.shape
            assert own not in done
            done.add(own)


def test_transposes_that_undo_each_other_are_none():
    made = changed(reshape_once, lambda x: jnp.sin(x.transpose(1, 2, 0).transpose(2, 0, 1)), X)
    assert names(made) == ["sin"]
    assert names(changed(reshape_once, lambda x: x.transpose(1, 2, 0).transpose(1, 0, 2), X)) == ["transpose"]


@pytest.mark.parametrize("shape", [(3, 2, 16, 8), (3, 2, 16, 7), (96, 8)])
def test_softmax_is_as_one_would_write_it(shape):
    def softmax(x):
        made = jnp.exp(x - x.max(-1, keepdims=True))
        return made / made.sum(-1, keepdims=True)

    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    traced = cl.trace(softmax, x, target=cl.IPU(num_tiles=24))
    maps = [eqn for eqn in traced.lowered.jaxpr.jaxpr.eqns if eqn.primitive.name in ("exp", "div", "sub")]
    assert {eqn.outvars[0].aval.shape for eqn in maps} == {shape}
    reductions = [eqn for eqn in traced.lowered.jaxpr.jaxpr.eqns if eqn.primitive.name.startswith("reduce_")]
    assert {eqn.invars[0].aval.shape for eqn in reductions} == {shape}
    loss = lambda f: lambda x: jnp.sum(jnp.sin(f(x)))  # noqa: E731
    both = lambda f: (f(x), jax.grad(loss(f))(x))  # noqa: E731
    for own, other in zip(*jax.jit(lambda: (both(traced), both(softmax)))(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)
