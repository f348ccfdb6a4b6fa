"""Turns of scans that are computed again for their gradients: where that keeps less, and not where it keeps as much."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax
from jax.extend import core as jax_core

from benchmarks.loops import windows
from codelet.jaxprs.equations import bodies_of
from codelet.jaxprs.moved import num_bytes
from lowering.jaxprs.recompute import recompute
from tests.examples import examples

TURNS, WIDTH = 6, 5
ROWS = np.linspace(-1, 1, TURNS * WIDTH, dtype=np.float32).reshape(TURNS, WIDTH)
START, FIXED = np.linspace(0.1, 0.5, WIDTH, dtype=np.float32), np.linspace(0.5, 0.9, WIDTH, dtype=np.float32)


def scanned(turn):
    """A scan whose turn makes a state and a row of a state, a row and what is fixed."""

    def function(rows, start, fixed):
        return lax.scan(lambda state, row: turn(state, row, fixed), start, rows)

    return function


def changed(function, *arguments):
    return recompute(jax.make_jaxpr(function)(*arguments))


def is_again(closed):
    """Whether any turn in it is computed again."""
    return any(
        eqn.primitive.name in ("remat2", "checkpoint") or any(is_again(body) for body in bodies_of(eqn))
        for eqn in closed.jaxpr.eqns
    )


def kept(function, *arguments):
    """The bytes that a gradient keeps of a function, but for its arguments."""
    closed = jax.make_jaxpr(lambda *own: jax.tree.leaves(jax.vjp(function, *own)[1]))(*arguments).jaxpr
    results = {atom for atom in closed.outvars if isinstance(atom, jax_core.Var)} - {*closed.invars}
    return sum(num_bytes(var.aval) for var in results)


def long(state, row, fixed):
    """Many equations, of which each would be kept."""
    for _ in range(6):
        state = jnp.sin(state * row) + jnp.cos(state) * fixed
    return state, state


def short(state, row, fixed):
    """One product of what is there."""
    return state + row * fixed, row * fixed


@pytest.mark.parametrize(("turn", "again"), [(long, True), (short, False)])
def test_a_turn_is_computed_again_where_that_keeps_less(turn, again):
    assert is_again(changed(scanned(turn), ROWS, START, FIXED)) is again


def test_a_mean_of_a_window_is_kept_as_well_as_what_it_is_added_to():
    assert not is_again(changed(windows, np.ones((40, WIDTH), np.float32)))


def test_a_turn_may_carry_a_key():
    def draws(key, x):
        return lax.scan(lambda key, x: (jax.random.fold_in(key, 1), jnp.sin(x) * jnp.cos(x)), key, x)[1]

    key = jax.random.key(0)
    closed = changed(draws, key, ROWS)
    np.testing.assert_array_equal(jax_core.jaxpr_as_fun(closed)(key, ROWS)[0], draws(key, ROWS))


OPERATIONS = {
    "sin": lambda a, b: jnp.sin(a),
    "exp": lambda a, b: jnp.exp(-(a**2)),
    "mul": lambda a, b: a * b,
    "add": lambda a, b: a + b,
    "tanh": lambda a, b: jnp.tanh(a),
    "max": jnp.maximum,
    "sum": lambda a, b: a - b.mean(),
    "reverse": lambda a, b: a[::-1] * b,
    "sorted": lambda a, b: jnp.sort(a) + b,
}


@st.composite
def turns(draw):
    """A turn of a few operations on its state, its row, what is fixed, and what it has made."""
    place = st.integers(0, 9)
    steps = draw(st.lists(st.tuples(st.sampled_from(sorted(OPERATIONS)), place, place), min_size=1))
    last, row_of = draw(place), draw(place)

    def turn(state, row, fixed):
        held = [state, row, fixed]
        for name, a, b in steps:
            held.append(OPERATIONS[name](held[a % len(held)], held[b % len(held)]))
        return held[-1 - last % len(steps)], held[row_of % len(held)]

    return turn


def check(turn):
    function = scanned(turn)
    again = jax_core.jaxpr_as_fun(changed(function, ROWS, START, FIXED))
    assert kept(again, ROWS, START, FIXED) <= kept(lambda *own: jax.tree.leaves(function(*own)), ROWS, START, FIXED)

    def loss(function):
        return lambda *own: sum(
            (made * jnp.arange(1.0, made.size + 1).reshape(made.shape)).sum() for made in function(*own)
        )

    for own in (loss, lambda f: jax.grad(loss(f), (0, 1, 2))):
        ours, plain = own(again)(ROWS, START, FIXED), own(function)(ROWS, START, FIXED)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), ours, plain)


@examples(6)
@given(turns())
def test_values_and_gradients_are_the_same_and_no_more_is_kept(turn):
    check(turn)


@pytest.mark.slow
@examples(100)
@given(turns())
def test_of_many_turns_values_and_gradients_are_the_same_and_no_more_is_kept(turn):
    check(turn)
