"""Pads of a transposed array: what they have in common is padded once, before it is transposed."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs.common_pads import pad_in_common
from tests.examples import examples
from tests.ops_cases import array, assert_alike

X = array((4, 3, 5))
BELOW, ABOVE = (0, 1, 0), (1, 0, 0)


def _names(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def _check(function, *arguments):
    """What the rule makes of a function, which gives what the function gives."""
    closed = jax.make_jaxpr(function)(*arguments)
    found = pad_in_common(closed)
    for own, plain in zip(
        jax_core.jaxpr_as_fun(found)(*arguments), jax_core.jaxpr_as_fun(closed)(*arguments), strict=True
    ):
        np.testing.assert_array_equal(own, plain)
    return closed, found


def _padded(x, *widths, value=0.0):
    return lax.pad(x, jnp.asarray(value, x.dtype), widths)


@st.composite
def _pads(draw):
    """A shape, moves of an array of it, and pads of what comes of that, with whether something else reads it."""
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    moves, rank = [], len(shape)
    for _ in range(draw(st.integers(0, 3))):
        kind = draw(st.sampled_from(["transpose", "split", "merge"]))
        if kind == "transpose":
            moves.append((kind, draw(st.permutations(range(rank)))))
        elif kind == "split":
            moves.append((kind, draw(st.integers(0, rank - 1))))
            rank += 1
        elif rank > 1:
            moves.append((kind, draw(st.integers(0, rank - 2))))
            rank -= 1
    sides = st.sampled_from([(0, 0, 0), (0, 0, 0), BELOW, ABOVE, (1, 2, 0), (0, 0, 1), (-1, 1, 0)])
    first = draw(st.lists(sides, min_size=rank, max_size=rank))
    each = [first]
    for _ in range(draw(st.integers(1, 2))):
        own = list(first)
        own[draw(st.integers(0, rank - 1))] = draw(sides)
        each.append(own)
    return shape, moves, each, draw(st.booleans())


def _moved(x, moves):
    for kind, how in moves:
        if kind == "transpose":
            x = x.transpose(how)
        elif kind == "split":
            n = x.shape[how]
            outer = 2 if n % 2 == 0 else 1
            x = x.reshape(*x.shape[:how], outer, n // outer, *x.shape[how + 1 :])
        else:
            x = x.reshape(*x.shape[:how], -1, *x.shape[how + 2 :])
    return x


@examples(60)
@given(_pads())
def test_pads_of_what_is_moved_are_as_they_were(drawn):
    shape, moves, each, is_read = drawn

    def function(x):
        moved = _moved(jnp.sin(x), moves)
        pads = [_padded(moved, *own) for own in each]
        return (*pads, moved) if is_read else tuple(pads)

    _check(function, array(shape))


@examples(5)
@given(st.sampled_from(["float32", "int32", "bool"]), st.sampled_from([0, 1]))
def test_what_is_padded_with(dtype, value):
    x = (X * 10).astype(dtype)

    def function(x):
        moved = x.transpose(1, 2, 0)
        return tuple(_padded(moved, own, (0, 0, 0), (1, 0, 0), value=value) for own in (BELOW, ABOVE))

    before, after = _check(function, x)
    assert _names(before).count("pad") == 2
    assert _names(after) == ["pad", "transpose", "pad", "pad"]
    assert after.jaxpr.eqns[0].outvars[0].aval.shape == (5, 3, 5)


@pytest.mark.parametrize("reason", ["not transposed", "nothing in common", "read besides", "other values", "between"])
def test_what_stays(reason):
    def function(x):
        moved = x.reshape(4, 15) if reason == "not transposed" else x.transpose(1, 2, 0).reshape(15, 4)
        common = {"nothing in common": (0, 0, 0), "between": (1, 0, 1)}.get(reason, ABOVE)
        values = (0.0, 1.0) if reason == "other values" else (0.0, 0.0)
        made = [_padded(moved, own, common, value=v) for own, v in zip((BELOW, ABOVE), values, strict=True)]
        return (*made, jnp.sin(moved)) if reason == "read besides" else tuple(made)

    before, after = _check(function, X)
    assert _names(before) == _names(after)


def test_the_gradient_of_differences_between_neighbours():
    """Of columns as rows, as those of weather models: one pad along the columns, before they are transposed."""

    def function(x):
        columns = jnp.moveaxis(x[1:] + x[:-1], -1, 0)[1:]
        return jnp.sum(jnp.sin(columns[1:] - columns[:-1]))

    gradient = jax.grad(function)
    traced = cl.trace(gradient, X)
    assert_alike(traced(X), gradient(X))
    assert_alike(
        jax.jit(jax.grad(lambda x: jnp.sum(traced(x) ** 2)))(X), jax.grad(lambda x: jnp.sum(gradient(x) ** 2))(X)
    )
    moved = [own for own in traced.lowered.jaxpr.jaxpr.eqns if own.primitive.name in ("pad", "transpose")]
    last = [(own.primitive.name, own.outvars[0].aval.shape) for own in moved[-4:]]
    assert last == [("pad", (5, 3, 3)), ("transpose", (9, 5)), ("pad", (4, 3, 5)), ("pad", (4, 3, 5))]
