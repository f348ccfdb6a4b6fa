"""What becomes of places: slices for gathers and scatters, bounds that are left out, the order of memory."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax
from jax.extend import core as jax_core

from codelet.jaxprs.equations import evaluate
from codelet.jaxprs.intervals import interval
from codelet.jaxprs.rebuild import inline
from codelet.jaxprs.within_bounds import within_bounds
from lowering.jaxprs.contract import contract
from lowering.jaxprs.one_slice import as_one_slice
from lowering.jaxprs.slice_order import slices_in_order
from lowering.jaxprs.unmap import unmap
from tests.examples import examples, few
from tests.integer_programs import integer_programs
from tests.ops_cases import array, assert_alike
from tests.row_cases import PLACES
from tests.same_jaxprs import after, equations, primitives

# --- as_one_slice -----------------------------------------------------------------------------------------------------


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


# --- within_bounds ----------------------------------------------------------------------------------------------------


FIVE = jnp.arange(15.0).reshape(5, 3)


MODE = lax.GatherScatterMode


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


def modes(function, *arguments):
    """The modes of gathers and scatters, of a function that means the same."""
    made = after(within_bounds, function, *arguments)
    return [own.params["mode"] for own in equations(made) if own.primitive.name[:7] in ("gather", "scatter")]


def test_counters_of_loops_are_not_counted_from_the_end():
    function = lambda x: lax.fori_loop(0, 5, lambda k, x: x.at[k].set(x[k] + 1), x)  # noqa: E731
    made = after(within_bounds, function, FIVE)
    assert "select_n" not in primitives(made)
    assert not [own for own in equations(made) if own.params.get("mode") == MODE.FILL_OR_DROP]


def test_modes_are_of_what_is_known():
    inside, beyond = np.array([[0], [4]]), np.array([[0], [5]])
    numbers = lax.GatherDimensionNumbers((1,), (0,), (0,))
    taken = lambda i, mode: lambda x: lax.gather(x, i, numbers, (1, 3), mode=mode)  # noqa: E731
    assert modes(taken(inside, "fill"), FIVE) == [MODE.PROMISE_IN_BOUNDS]
    assert modes(taken(beyond, "fill"), FIVE) == [MODE.FILL_OR_DROP]
    assert modes(taken(beyond, "clip"), FIVE) == [MODE.CLIP]
    own = lax.ScatterDimensionNumbers((1,), (0,), (0,))
    put = lambda i, mode: lambda x: lax.scatter(x, i, FIVE[: len(i)], own, mode=mode)  # noqa: E731
    assert modes(put(inside, "fill"), FIVE) == [MODE.PROMISE_IN_BOUNDS]
    assert modes(put(inside[:1], "fill"), FIVE) == [MODE.CLIP]
    assert modes(put(beyond[1:], "fill"), FIVE) == [MODE.FILL_OR_DROP]


def test_windows_have_to_lie_within_all_of_them():
    numbers = lax.GatherDimensionNumbers((0, 1), (), (0, 1))
    taken = lambda i: lambda x: lax.gather(x, np.asarray(i), numbers, (2, 2), mode="fill")  # noqa: E731
    assert modes(taken([3, 1]), FIVE) == [MODE.PROMISE_IN_BOUNDS]
    assert (
        modes(taken([3, 2]), FIVE) == modes(taken([4, 1]), FIVE) == modes(taken([-1, 0]), FIVE) == [MODE.FILL_OR_DROP]
    )


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
    after(within_bounds, choice, FIVE)


def test_what_holds_nothing_to_decide_stays():
    closed = jax.make_jaxpr(lambda x: jnp.sin(x) + 1)(FIVE)
    assert within_bounds(closed) is closed


# --- slices_in_order --------------------------------------------------------------------------------------------------


TABLE, INDICES, UPDATES = array((6, 12)), jnp.array([[3, 0], [7, 3], [5, -1]]), array((3, 2, 12), seed=1)


def _columns(table, indices):
    """Rows of a table, by vertices of two columns each."""
    return jax.vmap(lambda own: own.at[indices].get(mode="fill"), 1, 2)(table.reshape(6, 6, 2)).reshape(3, 2, 12)


def _windows(table, indices):
    """Windows along the columns of an array whose rows are looked up in turned order."""
    numbers = lax.GatherDimensionNumbers((0, 2), (), (1,))
    return lax.gather(table.T, indices[:, :1], numbers, (12, 2), mode="clip")


def _batches(table, indices):
    numbers = lax.GatherDimensionNumbers((1, 2), (3,), (3,), (1,), (0,))
    own = table.reshape(2, 3, 4, 3).transpose(0, 3, 1, 2)
    return lax.gather(own, indices[:, :1], numbers, (2, 1, 3, 1), mode="fill")


def _added(table, updates):
    own = jax.vmap(lambda table, updates: table.at[INDICES].add(updates, mode="drop"), (1, 2), 1)
    return own(table.reshape(6, 6, 2), updates.reshape(3, 2, 6, 2)).reshape(6, 12)


def _added_to_zeros(table, updates):
    own = jax.vmap(lambda updates: jnp.zeros((6,)).at[INDICES].max(updates, mode="drop"), 2, 1)
    return own(updates)


def _replaced(table, updates):
    numbers = lax.ScatterDimensionNumbers((1, 2), (), (1,))
    return lax.scatter(table.T, INDICES[:, :1], updates.transpose(0, 2, 1), numbers, mode="clip")


FUNCTIONS = {
    "columns": (_columns, INDICES),
    "windows": (_windows, INDICES),
    "batches": (_batches, INDICES),
    "added": (_added, UPDATES),
    "added to zeros": (_added_to_zeros, UPDATES),
    "replaced": (_replaced, UPDATES),
}


@few("name", FUNCTIONS, quick=["columns", "batches", "added", "replaced"])
def test_rearranged_tables_are_looked_up_in_order(name):
    function, other = FUNCTIONS[name]
    traced = jax.make_jaxpr(function)(TABLE, other)
    moved = slices_in_order(traced)
    assert str(moved) != str(traced)
    (value,) = evaluate(contract(moved), [TABLE, other], lambda eqn, operands: _bound(eqn, operands), jnp.asarray)
    assert_alike(value, function(TABLE, other))


def _bound(eqn, operands):
    made = eqn.primitive.bind(*operands, **eqn.params)
    return made if eqn.primitive.multiple_results else [made]


@pytest.mark.parametrize("name", ["columns", "added", "added to zeros"])
def test_columns_side_by_side_are_rows(name):
    function, other = FUNCTIONS[name]
    moved = contract(slices_in_order(jax.make_jaxpr(function)(TABLE, other)))
    assert not [eqn for eqn in moved.jaxpr.eqns if eqn.primitive.name == "transpose"]


def test_what_lies_in_order_stays_as_it_is():
    traced = jax.make_jaxpr(lambda table, i: table.at[i].get(mode="clip"))(TABLE, INDICES)
    assert str(slices_in_order(traced)) == str(traced)


def test_loops_are_looked_into():
    def looped(table, indices):
        return lax.scan(lambda total, _: (total + _columns(table, indices), None), jnp.zeros((3, 2, 12)), length=2)[0]

    traced = jax.make_jaxpr(looped)(TABLE, INDICES)
    moved = slices_in_order(traced)
    assert str(moved) != str(traced)
    (value,) = evaluate(moved, [TABLE, INDICES], _bound, jnp.asarray)
    assert_alike(value, looped(TABLE, INDICES))


@pytest.mark.parametrize("numbers", [lax.GatherDimensionNumbers((1, 2), (1,), (1,)), None], ids=["rows", "windows"])
def test_gathers_are_those_of_one_row_and_column(numbers):
    block = jnp.zeros((4, 6, 3))
    sizes = (4, 1, 3) if numbers else (4, 2, 3)
    own = numbers or lax.GatherDimensionNumbers((1, 2, 3), (), (1,))
    gather = lambda x, i: lax.gather(x, i, own, sizes, mode="fill")  # noqa: E731
    found = unmap(jax.make_jaxpr(gather)(block, jnp.zeros((5, 1), jnp.int32)))
    assert found is not None
    left = [var.aval.shape for var in found.jaxpr.jaxpr.invars]
    assert (left, found.jaxpr.jaxpr.outvars[0].aval.shape) == ([(6,), (1,)], () if numbers else (2,))
    x, i = array((6,)), np.array([3])
    (value,) = evaluate(found.jaxpr, [x, i], _bound, jnp.asarray)
    assert_alike(np.ravel(value), np.asarray(x)[3 : 3 + np.size(value)])
