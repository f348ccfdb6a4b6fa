"""What is left out of a jaxpr that lies within bounds changes nothing."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax

from codelet.jaxprs.intervals import interval
from codelet.jaxprs.within_bounds import within_bounds
from tests.examples import examples
from tests.integer_programs import integer_programs
from tests.row_cases import row_cases
from tests.same_jaxprs import after, assert_same_slopes, equations, primitives

X = jnp.arange(15.0).reshape(5, 3)
MODE = lax.GatherScatterMode


@examples(10)
@given(row_cases())
def test_slices_are_the_same(case):
    after(within_bounds, case.function, *case.arguments)


@pytest.mark.slow
@examples(200)
@given(row_cases())
def test_many_slices_are_the_same(case):
    after(within_bounds, case.function, *case.arguments)


def integers_are_the_same(program):
    for arguments in program.arguments:
        after(
            lambda closed: within_bounds(closed, [interval(*ends) for ends in program.ends]),
            program.function,
            *arguments,
        )


@examples(6)
@given(integer_programs(most=6, depth=1))
def test_integers_are_the_same(program):
    integers_are_the_same(program)


@pytest.mark.slow
@examples(150)
@given(integer_programs())
def test_many_integers_are_the_same(program):
    integers_are_the_same(program)


@examples(3)
@given(row_cases((np.float32,)))
def test_slopes_are_the_same(case):
    if "while" not in case.name:
        assert_same_slopes(within_bounds, case.function, *case.arguments)


def modes(function, *arguments):
    """The modes of gathers and scatters, of a function that means the same."""
    made = after(within_bounds, function, *arguments)
    return [own.params["mode"] for own in equations(made) if own.primitive.name[:7] in ("gather", "scatter")]


def test_counters_of_loops_are_not_counted_from_the_end():
    function = lambda x: lax.fori_loop(0, 5, lambda k, x: x.at[k].set(x[k] + 1), x)  # noqa: E731
    made = after(within_bounds, function, X)
    assert "select_n" not in primitives(made)
    assert not [own for own in equations(made) if own.params.get("mode") == MODE.FILL_OR_DROP]


def test_modes_are_of_what_is_known():
    inside, beyond = np.array([[0], [4]]), np.array([[0], [5]])
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    taken = lambda i, mode: lambda x: lax.gather(x, i, numbers, (1, 3), mode=mode)  # noqa: E731
    assert modes(taken(inside, "fill"), X) == [MODE.PROMISE_IN_BOUNDS]
    assert modes(taken(beyond, "fill"), X) == [MODE.FILL_OR_DROP]
    assert modes(taken(beyond, "clip"), X) == [MODE.CLIP]
    own = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    put = lambda i, mode: lambda x: lax.scatter(x, i, X[: len(i)], own, mode=mode)  # noqa: E731
    assert modes(put(inside, "fill"), X) == [MODE.PROMISE_IN_BOUNDS]
    assert modes(put(inside[:1], "fill"), X) == [MODE.CLIP]
    assert modes(put(beyond[1:], "fill"), X) == [MODE.FILL_OR_DROP]


def test_windows_have_to_lie_within_all_of_them():
    numbers = lax.GatherDimensionNumbers((0, 1), (), (0, 1))
    taken = lambda i: lambda x: lax.gather(x, np.asarray(i), numbers, (2, 2), mode="fill")  # noqa: E731
    assert modes(taken([3, 1]), X) == [MODE.PROMISE_IN_BOUNDS]
    assert modes(taken([3, 2]), X) == modes(taken([4, 1]), X) == modes(taken([-1, 0]), X) == [MODE.FILL_OR_DROP]


def test_choices_and_limits_that_are_never_reached_are_left_out():
    def function(k):
        k = lax.rem(k, 4)
        return lax.max(k, -4), lax.min(k, 4), lax.clamp(-4, k, 4), lax.select_n(k < 9, -k, k)

    made = after(lambda closed: within_bounds(closed, [interval(-9, 9)]), function, jnp.int32(7))
    assert not {"max", "min", "clamp", "select_n"} & set(primitives(made))
    kept = after(within_bounds, lambda k: (lax.max(lax.rem(k, 4), -2), lax.min(lax.rem(k, 4), 2)), jnp.int32(-7))
    assert {"max", "min"} <= set(primitives(kept))


def test_a_choice_beyond_its_cases_stays():
    choice = lambda x: lax.select_n(lax.max(jnp.int32(5), jnp.int32(4)), x, 2 * x, 3 * x)  # noqa: E731
    after(within_bounds, choice, X)


def test_what_holds_nothing_to_decide_stays():
    closed = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(X)
    assert within_bounds(closed) is closed
