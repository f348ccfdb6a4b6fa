"""Updates that add to what an array has there: their slopes, of every order, are those of the updates as they are."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.added_in_place import with_slopes_added
from tests.examples import examples, few


def primitives(jaxpr):
    """The names of all primitives of a jaxpr, those within it too."""
    found = set()
    for eqn in jaxpr.eqns:
        found.add(eqn.primitive.name)
        for value in eqn.params.values():
            for own in value if isinstance(value, tuple) else (value,):
                inner = getattr(own, "jaxpr", own)
                if isinstance(inner, jax_core.Jaxpr):
                    found |= primitives(inner)
    return found


def taken(x, starts, sizes, late):
    """A part of an array, by starts that are known as the whole is compiled, or late."""
    if late:
        return lax.dynamic_slice(x, [jnp.asarray(own) for own in starts], sizes)
    return lax.slice(x, starts, [a + n for a, n in zip(starts, sizes, strict=True)])


@st.composite
def updates(draw):
    """A function of an array, another, and a number that puts a part of the first back, and the numbers of the part."""
    shape = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple))
    sizes = tuple(draw(st.integers(1, n)) for n in shape)
    starts = tuple(draw(st.integers(0, n - m)) for n, m in zip(shape, sizes, strict=True))
    kinds = draw(st.lists(st.sampled_from(("+", "a +", "-", "a -", "flat", "*", "itself")), max_size=4))
    late, elsewhere, twice = draw(st.booleans()), draw(st.booleans()), draw(st.booleans())

    def function(x, y, s):
        places = [s + own for own in starts] if late else list(starts)
        from_ = [own - (own > 0) for own in places] if elsewhere and not late else places
        old = own = taken(x, from_, sizes, late)
        other = jnp.sin(y[tuple(slice(n) for n in sizes)])
        for kind in kinds:
            beside = other.reshape(own.shape)
            if kind == "flat":
                own = own.reshape(-1)
            elif kind == "itself":
                own = own + old.reshape(own.shape)
            else:
                made = {"+": own + beside, "a +": beside + own, "-": own - beside, "a -": beside - own, "*": own * 2}
                own = made[kind]
        made = lax.dynamic_update_slice(x, own.reshape(sizes), places)
        return (made, old, own) if twice else (made,)

    return function, shape


@examples(12)
@given(updates(), st.integers(0, 9))
def test_slopes_are_those_of_the_update(drawn, seed):
    function, shape = drawn
    random = np.random.default_rng(seed)
    x, y, weights = (jnp.asarray(random.normal(size=shape), jnp.float32) for _ in range(3))
    closed = jax.make_jaxpr(lambda x, y, s: list(function(x, y, s)))(x, y, 0)
    made = jax_core.jaxpr_as_fun(with_slopes_added(closed))

    def loss(run):
        def of(x, y):
            first, *others = run(x, y, 0)
            return jnp.sum(weights * first**2) + sum(jnp.sum(jnp.cos(own)) for own in others)

        return of

    plain, own = loss(function), loss(made)

    def every(run, of):
        """All orders of slopes, as one program."""
        return (
            run(x, y, 0),
            jax.grad(of, (0, 1))(x, y),
            jax.grad(of, 1)(x, y),
            jax.jvp(of, (x, y), (y, x)),
            jax.jvp(lambda x: of(x, y), (x,), (y,)),
            jax.grad(lambda x: jnp.sum(jnp.sin(jax.grad(of)(x, y))))(x),
            jax.vmap(jax.grad(of, (0, 1)))(jnp.stack([x, y]), jnp.stack([y, x])),
        )

    before, after = jax.jit(lambda: (every(function, plain), every(made, own)))()
    for one, other in zip(jax.tree.leaves(before), jax.tree.leaves(after), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_what_adds_nothing_is_as_it_was():
    def function(x, y):
        x = lax.dynamic_update_slice(x, y, (1,))
        x = lax.dynamic_update_slice(x, lax.slice(x, (0,), (2,)) + y, (1,))  # of another place
        x = lax.dynamic_update_slice(x, 2 * lax.slice(x, (1,), (3,)), (1,))
        return lax.dynamic_update_slice(x, y - lax.slice(x, (1,), (3,)), (1,))

    closed = jax.make_jaxpr(function)(jnp.ones(4), jnp.ones(2))
    assert "custom_jvp_call" not in primitives(with_slopes_added(closed).jaxpr)
    without = jax.make_jaxpr(jnp.sin)(1.0)
    assert with_slopes_added(without) is without
    integers = jax.make_jaxpr(lambda x: lax.dynamic_update_slice(x, lax.slice(x, (1,), (3,)) + 1, (1,)))(jnp.arange(4))
    assert "custom_jvp_call" not in primitives(with_slopes_added(integers).jaxpr)


@few("size", [6, 7], quick=["7"])
def test_a_loop_that_adds_has_the_cotangent_it_is_given(size):
    """Of finite differences in turn: no part of a cotangent is replaced by zeros, and added again."""

    def function(x, y):
        def turn(_, both):
            x, y = both
            x = x.at[1:].add(0.5 * (y[1:] - y[:-1]))
            return x, y.at[:-1].add(-0.25 * (x[1:] - x[:-1]))

        return lax.fori_loop(0, 5, turn, (x, y))

    arguments = tuple(jnp.asarray(own, jnp.float32) for own in np.random.default_rng(0).normal(size=(2, size, 3)))
    loss = lambda f: lambda *own: sum(jnp.sum(jnp.sin(each)) for each in f(*own))  # noqa: E731
    traced = cl.trace(function, *arguments, target=cl.IPU(num_tiles=3))
    gradient = jax.grad(loss(traced), (0, 1))
    found, expected = jax.jit(lambda *own: (gradient(*own), jax.grad(loss(function), (0, 1))(*own)))(*arguments)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)
    eqns = jax.make_jaxpr(gradient)(*arguments).jaxpr.eqns
    backwards = [eqn for eqn in eqns if eqn.primitive.name == "scan"][-1]
    assert "dynamic_update_slice" not in primitives(backwards.params["jaxpr"].jaxpr)
