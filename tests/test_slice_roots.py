"""Slices of rearranged arrays are slices of these arrays, rearranged, and mean the same."""

from __future__ import annotations

import functools
import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from lowering.jaxprs.slice_roots import SLICES, slice_roots
from tests.examples import examples
from tests.same_jaxprs import after, assert_same_slopes, equations, primitives

SHAPES = ((), (1,), (7,), (2, 3), (3, 1, 2), (2, 3, 4), (5, 6), (0, 3), (200,))


@st.composite
def _rearranged(draw, shape):
    """Reshapes, transposes and broadcasts, and the shape after them."""
    steps = []
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(("transpose", "reshape", "ones", "repeat")))
        if kind == "transpose":
            order = tuple(draw(st.permutations(range(len(shape)))))
            steps.append(functools.partial(lax.transpose, permutation=order))
            shape = tuple(shape[d] for d in order)
        elif kind == "repeat":
            shape = (*shape[:1], 2, *shape[1:])
            places = tuple(d for d in range(len(shape)) if d != min(1, len(shape) - 1))
            steps.append(functools.partial(lax.broadcast_in_dim, shape=shape, broadcast_dimensions=places))
        else:
            size = math.prod(shape)
            cuts = [n for n in (1, 2, 3, 4, 6, 12) if size % n == 0]
            first = draw(st.sampled_from(cuts))
            own = [first, size // first] if kind == "reshape" else list(shape)
            own.insert(draw(st.integers(0, len(own))), 1)
            shape = tuple(own)
            steps.append(functools.partial(lax.reshape, new_sizes=shape))
    return steps, shape


@st.composite
def _stages(draw, shape, place):
    """A function that rearranges an array and slices it, or puts a slice there; the result's shape; its arguments."""
    steps, made = draw(_rearranged(shape))
    sizes = tuple(n if draw(st.booleans()) else draw(st.integers(0 if n < 2 else 1, n)) for n in made)
    starts = [np.asarray(draw(st.integers(-3, 9)) % 256).astype(place) for _ in made]
    name, literal = draw(st.sampled_from(("slice", *SLICES))), draw(st.booleans())
    strides = [draw(st.integers(1, 2)) for _ in made]
    update = (np.arange(math.prod(sizes)) - 99).reshape(sizes).astype(np.int8)  # which wraps
    begins = [min(abs(int(a)), n - size) for a, n, size in zip(starts, made, sizes, strict=True)]
    ends = [begin + size for begin, size in zip(begins, sizes, strict=True)]

    def function(array, update, *places):
        for own in steps:
            array = own(array)
        places = starts if literal else places
        if name == "slice":
            return lax.slice(array, begins, ends, strides)
        if name == "dynamic_slice":
            return lax.dynamic_slice(array, places, sizes, allow_negative_indices=False)
        return lax.dynamic_update_slice(array, update, places, allow_negative_indices=False)

    taken = tuple(-(-n // step) for n, step in zip(sizes, strides, strict=True)) if name == "slice" else sizes
    return function, made if name == "dynamic_update_slice" else taken, (update, *starts)


@st.composite
def cases(draw, kinds=(np.float32, jnp.bfloat16, np.int8, bool)):
    """A function that slices rearranged arrays, or puts slices there, up to three times; and its arguments."""
    shape, kind = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(kinds))
    place, looped = np.dtype(draw(st.sampled_from((np.int8, np.uint8, np.int32)))), draw(st.booleans())
    array = np.arange(math.prod(shape)).reshape(shape).astype(kind)
    stages = []
    for _ in range(draw(st.integers(1, 3))):
        own, shape, (update, *starts) = draw(_stages(shape, place))
        stages.append((own, (update.astype(kind), *starts)))

    def function(array, *given):
        left = iter(given)
        for own, arguments in stages:
            array = own(array, *(next(left) for _ in arguments))
        return array

    def in_a_loop(*given):
        return lax.fori_loop(0, 2, lambda k, held: (held[0], function(*given)), (0, function(*given)))

    return (in_a_loop if looped else function), (array, *(own for _, arguments in stages for own in arguments))


@examples(25)
@given(cases())
def test_slices_are_the_same(case):
    function, arguments = case
    after(slice_roots, function, *arguments)


@pytest.mark.slow
@examples(300)
@given(cases())
def test_many_slices_are_the_same(case):
    function, arguments = case
    after(slice_roots, function, *arguments)


@examples(3)
@given(cases(kinds=(np.float32,)))
def test_slopes_are_the_same(case):
    function, arguments = case
    assert_same_slopes(slice_roots, function, *arguments)


def test_a_row_of_columns_is_a_column():
    x = jnp.arange(12.0).reshape(3, 4)
    made = after(slice_roots, lambda x, k: lax.dynamic_index_in_dim(x.T, k, 0, keepdims=False), x, jnp.int32(2))
    (own,) = (eqn for eqn in equations(made) if eqn.primitive.name == "dynamic_slice")
    assert (own.invars[0], own.params["slice_sizes"]) == (made.jaxpr.invars[0], (3, 1))
    assert "transpose" not in primitives(made)


def test_a_column_is_put_as_a_row():
    x = jnp.arange(12.0).reshape(3, 4)
    made = after(
        slice_roots, lambda x, row, k: lax.dynamic_update_index_in_dim(x.T, row, k, 0).T, x, jnp.ones(3), jnp.int32(2)
    )
    (own,) = (eqn for eqn in equations(made) if eqn.primitive.name == "dynamic_update_slice")
    assert own.invars[0] is made.jaxpr.invars[0]


def test_a_slice_of_a_number_has_no_places():
    after(slice_roots, lambda x: lax.dynamic_slice(x.reshape(()), (), ()), jnp.ones(1))


def test_what_is_repeated_is_sliced_as_it_is():
    made = after(
        slice_roots, lambda x, k: lax.dynamic_slice(jnp.broadcast_to(x, (2, 3)), (k, 0), (1, 3)), jnp.ones(3), 1
    )
    assert "broadcast_in_dim" in primitives(made)


def test_slices_put_one_after_the_other_are_put_into_the_root():
    def function(x, k):
        for row in (1.0, 2.0, 3.0):
            x = lax.dynamic_update_slice(x.reshape(5, 12), jnp.full((1, 12), row), (k, 0)).reshape(5, 3, 4)
        return lax.dynamic_slice(x.reshape(5, 12), (k, 0), (1, 12))

    made = after(slice_roots, function, np.zeros((5, 3, 4), np.float32), np.int32(2))
    shapes = {eqn.invars[0].aval.shape for eqn in equations(made) if eqn.primitive.name in SLICES}
    assert shapes == {(5, 3, 4)}
