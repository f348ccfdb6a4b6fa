"""Slices of slices, and of parts of what is joined, are one slice that means the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

from lowering.jaxprs.slice_once import slice_once
from tests.examples import examples
from tests.same_jaxprs import after, assert_same_slopes, primitives

EXTENTS = (0, 1, 2, 5, 7)


def ends(draw, extent):
    """Where a slice of a dimension starts, ends, and its stride; empty ones too."""
    low, high = sorted((draw(st.integers(0, extent)), draw(st.integers(0, extent))))
    return low, high, draw(st.integers(1, 3))


@st.composite
def sliced(draw):
    """A function of two arrays that slices, joins and reverses what it has in turn; and the arrays."""
    rank, kind = draw(st.integers(1, 2)), draw(st.sampled_from((np.float32, jnp.bfloat16, np.int8, np.uint8, bool)))
    shapes = [tuple(draw(st.sampled_from(EXTENTS)) for _ in range(rank)) for _ in range(2)]
    count, looped = draw(st.integers(1, 5)), draw(st.booleans())
    arrays = [np.arange(np.prod(shape)).reshape(shape).astype(kind) for shape in shapes]
    trial = [jax.ShapeDtypeStruct(own.shape, own.dtype) for own in arrays]
    steps = []
    shapes = [own.shape for own in trial]
    for _ in range(count):
        which = draw(st.sampled_from(range(len(shapes))))
        shape = shapes[-1] if draw(st.booleans()) else shapes[which]
        at = len(shapes) - 1 if shape is shapes[-1] else which
        axis = draw(st.integers(0, rank - 1))
        if draw(st.integers(0, 3)):
            own = [ends(draw, n) for n in shape]
            steps.append(("slice", at, own))
            shapes.append(tuple(-(-(b - a) // s) for a, b, s in own))
        else:
            alike = [k for k, s in enumerate(shapes) if s[:axis] + s[axis + 1 :] == shape[:axis] + shape[axis + 1 :]]
            parts = [draw(st.sampled_from(alike)) for _ in range(2)]
            parts.insert(draw(st.integers(0, 2)), at)
            steps.append(("join", parts, axis))
            extent = sum(shapes[k][axis] for k in parts)
            shapes.append((*shape[:axis], extent, *shape[axis + 1 :]))

    def function(*given):
        values = list(map(jnp.asarray, given))
        for name, which, how in steps:
            if name == "slice":
                values.append(lax.slice(values[which], *zip(*how, strict=True)))
            else:
                values.append(lax.concatenate([values[k] for k in which], how))
        return values[2:]

    def in_a_loop(*given):
        return lax.scan(lambda held, _: (held, function(*held)), given, length=2)[1]

    return (in_a_loop if looped else function), arrays


@examples(20)
@given(sliced())
def test_slices_are_the_same(case):
    function, arrays = case
    after(slice_once, function, *arrays)


@pytest.mark.slow
@examples(300)
@given(sliced())
def test_many_slices_are_the_same(case):
    function, arrays = case
    after(slice_once, function, *arrays)


@examples(3)
@given(sliced())
def test_slopes_of_slices_are_the_same(case):
    function, arrays = case
    arrays = [own.astype(np.float32) for own in arrays]
    assert_same_slopes(slice_once, function, *arrays)


def test_a_slice_of_a_slice_of_a_part_is_one_slice():
    def function(x, y):
        return lax.concatenate([x, y], 0)[6:10][1:4:2]

    made = after(slice_once, function, jnp.arange(5.0), jnp.arange(7.0))
    assert primitives(made) == ["slice"]
    assert made.jaxpr.eqns[0].invars == [made.jaxpr.invars[1]]
    assert str(made.jaxpr.eqns[0].params["limit_indices"]) == "(5,)"


def test_a_slice_of_two_parts_stays():
    made = after(slice_once, lambda x, y: lax.concatenate([x, y], 0)[3:7], jnp.arange(5.0), jnp.arange(7.0))
    assert primitives(made) == ["concatenate", "slice"]


def test_a_slice_without_elements_may_start_beyond_the_end():
    """At 6 of 5 elements, in steps of 3: it is of the slice, which has two."""
    after(slice_once, lambda x: lax.slice(lax.slice(x, (0,), (5,), (3,)), (2,), (2,)), jnp.arange(5.0))
