"""Columns that loops take of what is made by element are rows of it: values stay, bit for bit, and slopes."""

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from lowering.jaxprs.columns_as_rows import columns_as_rows
from tests.examples import examples
from tests.same_jaxprs import after, assert_same_slopes, primitives


def array(*shape):
    return jnp.asarray(np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape), jnp.float32)


@st.composite
def loops(draw):
    """A loop that takes columns of some arrays, forwards or backwards, and what it is given."""
    shape = tuple(draw(st.lists(st.integers(1, 5), min_size=2, max_size=3)))
    along = draw(st.integers(0, len(shape) - 1))
    how, reverse, is_read = draw(st.integers(0, 2)), draw(st.booleans()), draw(st.sampled_from(["", "whole", "twice"]))
    step = draw(st.sampled_from([1, 2]))

    def function(x):
        own = (x, jnp.sin(x), jnp.sin(x.reshape(-1)).reshape(shape))[how]

        def turn(state, k):
            column = lax.dynamic_slice_in_dim(own, step * k, 1, along)
            if is_read == "twice":
                column = column * lax.dynamic_slice_in_dim(own, jnp.maximum(k - 1, 0), 1, along)
            if is_read == "whole":
                column = column + own.sum()
            state = jnp.tanh(state + column)
            return state, state.sum()

        start = jnp.zeros([1 if d == along else n for d, n in enumerate(shape)])
        return lax.scan(turn, start, jnp.arange(shape[along] // step), reverse=reverse)

    return function, shape


@examples(20)
@given(loops())
def test_loops_do_the_same(case):
    function, shape = case
    after(columns_as_rows, function, array(*shape))


@pytest.mark.slow
@examples(300)
@given(loops())
def test_many_loops_do_the_same(case):
    function, shape = case
    after(columns_as_rows, function, array(*shape))
    assert_same_slopes(columns_as_rows, function, array(*shape))


def test_columns_of_what_is_made_by_element_are_scanned_over():
    def function(x):
        turned = 0.5 * x.T
        both = turned + 0.1 * jnp.pad(turned, ((1, 2), (0, 0)))[:-3]
        return lax.scan(lambda state, row: (jnp.tanh(state + row), state), jnp.zeros(x.shape[:1]), both)

    x = array(70, 90)
    run = cl.trace(function, x, target=cl.IPU(num_tiles=4)).lowered
    assert "dynamic_slice" not in primitives(run.jaxpr)


def test_columns_of_what_is_given_stay():
    def function(x):
        turn = lambda state, k: (state + lax.dynamic_slice_in_dim(x, k, 1, 1), None)  # noqa: E731
        return lax.scan(turn, jnp.zeros((len(x), 1)), jnp.arange(x.shape[1]))[0]

    assert "transpose" not in primitives(after(columns_as_rows, function, array(5, 4)))
