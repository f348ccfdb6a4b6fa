"""Rows that loops take and put are scanned over and stacked, and mean the same."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.rebuild import inline
from codelet.jaxprs.within_bounds import within_bounds
from lowering.jaxprs.one_slice import as_one_slice
from lowering.jaxprs.recompute import recompute
from lowering.jaxprs.scan_rows import scan_rows, with_slopes_of_scans
from tests.examples import examples
from tests.row_cases import row_cases
from tests.same_jaxprs import after, assert_same_slopes, equations, primitives


def rule(closed):
    """Rows at places that are written as users do."""
    return scan_rows(as_one_slice(within_bounds(closed)))


def row(x, k):
    return lax.dynamic_index_in_dim(x, k, 0, keepdims=False, allow_negative_indices=False)


def put(a, own, k):
    return lax.dynamic_update_slice(a, own[None], (k, *[0] * own.ndim), allow_negative_indices=False)


@examples(20)
@given(row_cases())
def test_rows_are_the_same(case):
    after(scan_rows, case.function, *case.arguments)
    after(rule, case.function, *case.arguments)


@pytest.mark.slow
@examples(200)
@given(row_cases())
def test_many_rows_are_the_same(case):
    after(rule, case.function, *case.arguments)


@examples(4)
@given(row_cases((np.float32,)))
def test_slopes_are_the_same(case):
    if "while" not in case.name:
        assert_same_slopes(rule, case.function, *case.arguments)


# --- what is a row ---------------------------------------------------------------------------------------------------

X = jnp.arange(200.0)
FIVE = X[:15].reshape(5, 3)


def is_scanned(function, *arguments):
    """Whether no turn takes or puts a row any more."""
    names = primitives(after(scan_rows, function, *arguments))
    return not {"dynamic_slice", "dynamic_update_slice"} & set(names)


def counting(dtype, start, step, length):
    """A loop that takes rows at a counter."""
    by = np.asarray(step).astype(dtype)
    return lambda x: lax.scan(lambda k, _: (k + by, row(x, k)), jnp.asarray(start, dtype), None, length=length)[1]


@pytest.mark.parametrize(
    ("dtype", "start", "step", "length", "expected"),
    [
        ("int32", 0, 1, 200, True),
        ("int32", 199, -1, 200, True),
        ("int32", 3, 1, 5, True),
        ("int32", -1, 1, 5, False),
        ("int32", 196, 1, 5, False),
        ("int32", 0, 2, 5, False),
        ("int32", 4, 0, 5, False),
        ("int8", 0, 1, 128, True),
        ("int8", 0, 1, 129, False),
        ("uint8", 3, -1, 4, False),
        ("int32", 0, 1, 1, False),
        ("int32", 0, 1, 0, False),
    ],
)
def test_a_row_is_at_a_counter_that_goes_by_one_within(dtype, start, step, length, expected):
    assert is_scanned(counting(dtype, start, step, length), X) is expected


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32])
def test_places_that_leave_their_dtype_are_no_rows(dtype):
    places = lambda x: lax.scan(lambda s, k: (s, row(x, k)), 0.0, lax.iota(dtype, 200))[1]  # noqa: E731
    assert is_scanned(places, X) is (dtype != np.int8)
    added = lambda x: lax.scan(lambda s, k: (s, row(x, k + dtype(60))), 0.0, lax.iota(dtype, 100))[1]  # noqa: E731
    assert is_scanned(added, X) is (dtype != np.int8)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("downwards", [False, True])
@pytest.mark.parametrize("few", [0, 2])
def test_rows_that_are_put_are_stacked_in_their_order(reverse, downwards, few):
    """Those that are not put stay as they were."""

    def function(a, x):
        def turn(held, k):
            a, s = held
            at = 4 - k if downwards else k
            s = s + row(x, k)
            return (put(a, s * row(a, at), at), s), s

        return lax.scan(turn, (a, x[0]), jnp.arange(5 - few), reverse=reverse)

    assert is_scanned(function, FIVE + 1, FIVE) or few
    (loop,) = (eqn for eqn in equations(after(scan_rows, function, FIVE + 1, FIVE)) if eqn.primitive.name == "scan")
    assert not {"dynamic_slice", "dynamic_update_slice"} & set(primitives(loop.params["jaxpr"]))
    assert_same_slopes(scan_rows, function, FIVE + 1, FIVE)


def carried(turn):
    return lambda a, x: lax.fori_loop(0, 5, lambda k, a: turn(k, a, x), a)


NOT_STACKED = {
    "read at another row": lambda k, a, x: put(a, row(a, 4 - k) + row(x, 0), k),
    "read after it is put": lambda k, a, x: (own := put(a, row(x, 0), k)) + 0 * row(own, 0),
    "read in full": lambda k, a, x: put(a, a.sum(0), k),
    "put twice": lambda k, a, x: put(put(a, row(x, 1), k), row(x, 2), 4 - k),
    "put only sometimes": lambda k, a, x: jnp.where(k % 2 == 0, put(a, row(x, 0), k), a),
    "put into what is given": lambda k, a, x: put(x, row(a, 0), k),
    "put at data": lambda k, a, x: put(a, row(x, 0), a[0, 0].astype(int)),
    "two rows": lambda k, a, x: lax.dynamic_update_slice(a, a[:2] + 1, (k, 0)),
    "a part of a row": lambda k, a, x: lax.dynamic_update_slice(a, row(x, 0)[None, :2], (k, 0)),
}


@pytest.mark.parametrize("name", NOT_STACKED)
def test_what_is_more_than_a_row_is_put_as_it_is(name):
    made = after(scan_rows, carried(NOT_STACKED[name]), FIVE, FIVE * FIVE)
    (loop,) = (eqn for eqn in made.jaxpr.eqns if eqn.primitive.name == "scan")
    assert "dynamic_update_slice" in primitives(loop.params["jaxpr"])


def test_an_array_that_is_used_twice_is_scanned_over_where_it_is_a_row():
    def function(x):
        turn = lambda s, k: (s + x[0], row(x, k) * x.sum())  # noqa: E731
        return lax.scan(turn, x[0], jnp.arange(5))

    after(scan_rows, function, FIVE)

    def both(a):
        turn = lambda k, h: (put(h[0], row(h[1], k) + 1, k), put(h[1], row(h[0], k), k))  # noqa: E731
        return lax.fori_loop(0, 5, turn, (a, a))

    assert is_scanned(both, FIVE)


def test_the_same_rows_are_stacked_once():
    def function(a, x):
        own = lambda k, x: jnp.sin(row(x, k))  # noqa: E731
        turn = lambda k, held: (put(held[0], own(k, x), k), put(held[1], own(k, x), 4 - k))  # noqa: E731
        return lax.fori_loop(0, 5, turn, (a, x))

    after(scan_rows, function, FIVE, FIVE + 1)


def test_a_loop_with_effects_stays(capfd):
    def function(x):
        def turn(s, k):
            jax.debug.print("turn {}", k)
            return s, row(x, k)

        return lax.scan(turn, 0.0, jnp.arange(5))[1]

    closed = jax.make_jaxpr(function)(FIVE)
    assert "dynamic_slice" in primitives(scan_rows(closed))
    jax.block_until_ready(jax.jit(jax_core.jaxpr_as_fun(scan_rows(closed)))(FIVE))
    jax.effects_barrier()
    assert sorted(capfd.readouterr().out.split()) == sorted(
        ["turn", "0", "turn", "1", "turn", "2", "turn", "3", "turn", "4"]
    )


def test_lines_without_elements_are_looked_at():
    """They have no first element, and a loop of none stacks none."""

    def function(x):
        none = lax.iota(np.int32, 0) + 1
        stacked = lax.map(lambda k: k + 1, lax.iota(np.int32, 0))
        return lax.fori_loop(0, 3, lambda k, a: a + row(x, k) + none.sum() + stacked.sum(), 0.0)

    after(scan_rows, function, X)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float32, np.int8])
def test_results_that_are_literals_keep_their_dtypes(dtype):
    one = np.asarray(1).astype(dtype)

    def function(x, s):
        return lax.scan(lambda h, k: (one, (row(x, k).astype(dtype) + h, one)), s, jnp.arange(5))

    after(scan_rows, function, X[:5], jnp.asarray(3, dtype))


def test_the_gradient_of_rows_is_scanned_over_too():
    loss = lambda x: jnp.sum(lax.scan(lambda s, k: (jnp.tanh(s + row(x, k)), s), x[0], jnp.arange(5))[1])  # noqa: E731
    ruled = jax.grad(lambda x: jax_core.jaxpr_as_fun(scan_rows(inline(jax.make_jaxpr(loss)(FIVE))))(x)[0])
    names = primitives(jax.make_jaxpr(ruled)(FIVE))
    assert not {"dynamic_slice", "dynamic_update_slice"} & set(names)


OWN = {
    "of itself": lambda k, a, x: put(a, jnp.sin(row(a, k)), k),
    "with another's": lambda k, a, x: put(a, jnp.sin(row(a, k)) * row(x, k), k),
    "with all of another": lambda k, a, x: put(a, row(a, k) @ x[:3] + row(x, 4 - k), k),
    "from the last": lambda k, a, x: put(a, jnp.cos(row(a, 4 - k)) + k, 4 - k),
}


@pytest.mark.parametrize("name", OWN)
def test_a_loop_that_changes_rows_by_themselves_keeps_the_array(name):
    """And has the slopes of the scan over these, batched and differentiated twice too."""
    function, arguments = carried(OWN[name]), (FIVE / 7, FIVE / 9 + 1)
    (loop,) = (eqn for eqn in after(scan_rows, function, *arguments).jaxpr.eqns if eqn.primitive.name == "scan")
    assert primitives(loop.params["jaxpr"]).count("dynamic_update_slice") == 1
    called = lambda closed: with_slopes_of_scans(scan_rows(closed), recompute)  # noqa: E731
    assert_same_slopes(called, function, *arguments)
    made = jax_core.jaxpr_as_fun(called(inline(jax.make_jaxpr(function)(*arguments))))
    loss = lambda own: lambda a, x: jnp.sum(jnp.sin(own(a, x)[0]) * FIVE)  # noqa: E731
    slopes = [jax.grad(loss(own)) for own in (made, lambda a, x: [function(a, x)])]
    assert "dynamic_update_slice" not in primitives(jax.make_jaxpr(slopes[0])(*arguments))
    several = [jnp.stack([own, own + 1]) for own in arguments]
    twice = [jax.vmap(jax.grad(lambda a, x, slope=slope: jnp.sum(slope(a, x) ** 2))) for slope in slopes]
    found, expected = (jax.jit(own)(*several) for own in twice)
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=1e-5)


def test_rows_of_integers_are_changed_in_place():
    function = carried(lambda k, a, x: put(a, row(a, k) * 2 + row(x, k), k))
    called = lambda closed: with_slopes_of_scans(scan_rows(closed), recompute)  # noqa: E731
    made = after(called, function, FIVE.astype(int), FIVE.astype(int) + 1)
    assert "dynamic_update_slice" in primitives(made)
