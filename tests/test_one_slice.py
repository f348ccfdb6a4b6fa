"""Gathers and scatters of one slice are slices at a place, and mean the same."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.rebuild import inline
from lowering.jaxprs.one_slice import as_one_slice
from tests.examples import examples
from tests.row_cases import PLACES, row_cases
from tests.same_jaxprs import after, assert_same_slopes, primitives


@examples(12)
@given(row_cases())
def test_slices_are_the_same(case):
    after(as_one_slice, case.function, *case.arguments)


@pytest.mark.slow
@examples(200)
@given(row_cases())
def test_many_slices_are_the_same(case):
    after(as_one_slice, case.function, *case.arguments)


@examples(3)
@given(row_cases((np.float32,)))
def test_slopes_are_the_same(case):
    if "while" not in case.name:
        assert_same_slopes(as_one_slice, case.function, *case.arguments)


def test_slices_among_zeros_are_added_as_slices():
    def function(a, row, k):
        return a + lax.dynamic_update_slice(jnp.zeros_like(a), row[None], (k, 0))

    arguments = jnp.ones((5, 3)), jnp.arange(3.0), jnp.int32(4)
    closed = after(as_one_slice, function, *arguments)
    assert "dynamic_update_slice" in primitives(closed)
    assert not [eqn for eqn in closed.jaxpr.eqns if eqn.primitive.name == "add" and eqn.outvars[0].aval.shape == (5, 3)]


def test_a_number_is_added_to_all_that_a_slice_lies_in():
    """As JAX's own equations have it: of an operand without dimensions, beside one with some."""

    def function(number, row, k):
        among = lax.dynamic_update_slice(jnp.zeros((5, 3)), row[None], (k, 0), allow_negative_indices=False)
        return lax.add_p.bind(number, among), lax.add_p.bind(among, number)

    closed = after(as_one_slice, function, jnp.float32(2), jnp.arange(3.0), jnp.int32(4))
    assert primitives(closed).count("add") == 2


@pytest.mark.parametrize("dtype", PLACES)
def test_one_slice_lies_where_jax_has_it(dtype):
    """Beyond the ends as well, in every dtype of places."""
    x, row = jnp.arange(18.0).reshape(6, 3), jnp.full(3, -1.0)
    info = np.iinfo(dtype)
    places = np.asarray([-9, -6, -1, 0, 3, 5, 6, 99, info.min, info.max]).astype(dtype)
    for mode in ("clip", "fill", "promise_in_bounds"):
        own = places[(places < 6) & (places.astype(int) >= -6)] if mode == "promise_in_bounds" else places
        functions = (
            lambda x, k, m=mode: x.at[k].get(mode=m),
            lambda x, k, m=mode: x.at[k].set(row, mode="drop" if m == "fill" else m),
            lambda x, k, m=mode: x.at[k].add(row, mode="drop" if m == "fill" else m, wrap_negative_indices=False),
        )
        for function in functions:
            closed = as_one_slice(inline(jax.make_jaxpr(function)(x, own[0])))
            assert mode != "clip" or not {"gather", "scatter", "scatter-add"} & set(primitives(closed))
            several = jax_core.jaxpr_as_fun(closed), function
            found, expected = jax.jit(
                lambda x, own, f=several: [lax.map(functools.partial(each, x), own) for each in f]
            )(x, own)
            np.testing.assert_array_equal(found[0], expected)


def test_several_slices_stay_and_what_is_dropped_beyond_the_end():
    x, row = jnp.arange(18.0).reshape(6, 3), jnp.ones(3)
    for function in (
        lambda x, k: x.at[jnp.stack([k, k])].get(mode="clip"),
        lambda x, k: x.at[k].set(row, mode="drop"),
        lambda x, k: x.at[k].set(row, mode="promise_in_bounds"),
        lambda x, k: x.at[k].get(mode="fill"),
        lambda x, k: x.at[k].mul(row, mode="clip"),
    ):
        assert {"gather", "scatter", "scatter_mul", "scatter-mul"} & set(
            primitives(after(as_one_slice, function, x, 9))
        )


def test_a_slice_without_an_index_is_all_of_it():
    numbers = lax.GatherDimensionNumbers((1,), (), ())
    own = lambda x, i: lax.gather(x, lax.broadcast_in_dim(i, (1, 0), (1,)), numbers, (3,), mode="clip")  # noqa: E731
    after(as_one_slice, own, jnp.arange(3.0), jnp.zeros(0, np.int32))
    none = lambda x, k: x.at[k].get(mode="clip")  # noqa: E731
    after(as_one_slice, none, jnp.zeros((4, 0)), 1)
