"""Gathers and scatters of rearranged arrays, done in the order of memory."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from codelet.jaxprs.equations import evaluate
from lowering.jaxprs.contract import contract
from lowering.jaxprs.slice_order import slices_in_order
from lowering.jaxprs.unmap import unmap
from tests.examples import few
from tests.ops_cases import array, assert_alike

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
def test_values_are_the_same(name):
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
