"""Slices at places that are known late, dimensions of one element, and windows: what is left means the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from lowering.jaxprs.unmap import unmap
from tests.examples import examples, few
from tests.test_grains import remapped


@st.composite
def late(draw):
    """A function that takes or puts slices of three-dimensional arrays, maps and cuts them; and its arguments."""
    kind = draw(st.sampled_from((np.float32, jnp.bfloat16, np.int8, np.int32, np.bool_)))
    shape = tuple(draw(st.sampled_from((1, 2, 3, 5))) for _ in range(3))
    sizes = tuple(n if draw(st.integers(0, 2)) else draw(st.integers(1, n)) for n in shape)
    name = draw(st.sampled_from(("take", "put", "gather")))
    after = draw(st.sampled_from(("nothing", "map", "taps", "reshape", "transpose", "windows", "sum", "pad", "beside")))
    axis = draw(st.integers(0, 2))
    array = np.arange(np.prod(shape)).reshape(shape).astype(kind)
    update = (np.arange(np.prod(sizes)) + 40).reshape(sizes).astype(kind)
    places = tuple(np.int32(draw(st.integers(-2, 6))) for _ in range(3))

    def function(array, update, *places):
        if name == "put":
            made = lax.dynamic_update_slice(array, update, places, allow_negative_indices=False)
        elif name == "take":
            made = lax.dynamic_slice(array, places, sizes, allow_negative_indices=False)
            made = lax.max(made, update)
        else:
            made = array.at[places[0]].get(mode="clip", wrap_negative_indices=False)[None]
        n = made.shape[axis]
        match after:
            case "map":
                return lax.max(made, lax.full_like(made, 1))
            case "taps" if n > 2:
                taps = [lax.slice_in_dim(made, k, n - 2 + k, axis=axis) for k in range(3)]
                return lax.max(lax.max(*taps[:2]), taps[2])
            case "reshape":
                return made.reshape(made.shape[0], -1)
            case "transpose":
                return made.transpose(2, 0, 1)
            case "windows" if n > 1 and made.dtype != bool:
                own = [2 if d == axis else 1 for d in range(3)]
                first = np.finfo(np.float32).min if made.dtype.kind in "fV" else np.iinfo(made.dtype).min
                return lax.reduce_window(made, np.asarray(first).astype(made.dtype), lax.max, own, [1] * 3, "VALID")
            case "sum":
                return made.max(axis)
            case "pad":
                widths = [(-1 if d == 0 else 1, 2, d) if d == axis else (0, 0, 0) for d in range(3)]
                return lax.pad(made, lax.full_like(places[0], 1, made.dtype), widths)
            case "beside":
                return lax.concatenate([made, lax.full_like(made, 1), made], axis)
        return made

    return function, (array, update, *places)


def is_the_same(case):
    function, arguments = case
    found, expected = jax.jit(lambda *own: (remapped(function)(*own), function(*own)))(*arguments)
    np.testing.assert_array_equal(found.astype(np.float32), expected.astype(np.float32))


@pytest.mark.slow
@examples(25)
@given(late())
def test_what_is_left_of_slices_is_the_same(case):
    is_the_same(case)


@pytest.mark.slow
@examples(200)
@given(late())
def test_what_is_left_of_many_slices_is_the_same(case):
    is_the_same(case)


ARRAY, K = jnp.arange(50.0).reshape(5, 10), jnp.int32(1)


def extents(function, *arguments):
    is_the_same((function, arguments))
    found = unmap(jax.make_jaxpr(function)(*arguments))
    return None if found is None else found.extents


def taps(made):
    return made[:, 1:9] + made[:, :8]


CASES = {
    "a row": (lambda a, k: lax.dynamic_slice(a, (k, 0), (1, 10), allow_negative_indices=False), [ARRAY, K], (10,)),
    "a row put": (
        lambda a, b, k: lax.dynamic_update_slice(a, b, (k, 0), allow_negative_indices=False),
        [ARRAY, ARRAY[:1], K],
        (10,),
    ),
    "all of it": (
        lambda a, k: lax.dynamic_slice(a, (k, 0), (5, 10), allow_negative_indices=False),
        [ARRAY, K],
        (5, 10),
    ),
    "a part of both": (
        lambda a, k: lax.dynamic_slice(a, (k, k), (2, 3), allow_negative_indices=False),
        [ARRAY, K],
        None,
    ),
    "windows of a row": (
        lambda a, k: taps(lax.dynamic_slice(a, (k, 0), (1, 10), allow_negative_indices=False)),
        [ARRAY, K],
        (8,),
    ),
    "windows of what a row is put into": (
        lambda a, b, k: taps(lax.dynamic_update_slice(a, b, (k, 0), allow_negative_indices=False)),
        [ARRAY, ARRAY[:2], K],
        (8,),
    ),
    "windows of rows that are gathered": (
        lambda a, i: taps(a.at[i].get(mode="clip", wrap_negative_indices=False)),
        [ARRAY, jnp.array([4, 0, 7])],
        (3, 8),
    ),
    "of one element along another": (lambda a: a.reshape(1, 1, 1) * 2, [ARRAY[:1, :1]], (1, 1, 1)),
}


@few("name", CASES, quick=["a part of both"])
def test_what_is_taken_through(name):
    function, arguments, expected = CASES[name]
    assert extents(function, *arguments) == expected
