"""Reductions of partial results as one: what is joined and what is not, with values and gradients kept."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.extend import core as jax_core

from lowering.jaxprs.join_reductions import join_reductions
from tests.at_once import at_once
from tests.examples import few


def in_blocks(reduce, x, block):
    """All of a vector reduced, block by block, the last shorter; then the blocks' results."""
    full = x.shape[0] // block * block
    parts = [reduce(x[:full].reshape(-1, block), 1), reduce(x[full:], 0)[None]]
    return reduce(jnp.concatenate(parts), 0)


def of_columns(reduce, x):
    """Columns of a matrix reduced in two stages, the columns in groups of two."""
    parts = reduce(x.reshape(4, 5, 3, 2), 1)
    return reduce(parts.transpose(1, 2, 0).reshape(6, 4), 1)


def of_three_stages(reduce, x):
    """A vector reduced in three stages."""
    return reduce(reduce(reduce(x.reshape(5, 4, 6), 2), 1), 0)


CASES = {
    "blocks": (lambda r, x: in_blocks(r, x, 7), (120,)),
    "columns": (of_columns, (20, 6)),
    "three": (of_three_stages, (120,)),
}
REDUCTIONS = {"reduce_sum": jnp.sum, "reduce_max": jnp.max, "reduce_min": jnp.min, "reduce_prod": jnp.prod}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("primitive", REDUCTIONS)
def test_partial_results_are_one_reduction(primitive, case):
    function, shape = CASES[case]
    reduce = REDUCTIONS[primitive]
    x = jnp.asarray(np.random.default_rng(0).choice([1.0, 0.9, 1.1], shape), jnp.float32)  # ties
    closed = join_reductions(jax.make_jaxpr(lambda x: function(reduce, x))(x))
    assert [eqn.primitive.name for eqn in closed.jaxpr.eqns].count(primitive) == 1
    ours = lambda x: jax_core.jaxpr_as_fun(closed)(x)[0]  # noqa: E731
    plain = lambda x: reduce(x, 0)  # noqa: E731
    slopes = lambda f: lambda x: jax.grad(lambda x: f(x).sum())(x)  # noqa: E731
    value, slope, plain_value, plain_slope = at_once(ours, slopes(ours), plain, slopes(plain))(x)
    np.testing.assert_allclose(slope, plain_slope, rtol=1e-5)
    np.testing.assert_allclose(value, plain_value, rtol=1e-5)


def count(function, *arguments, of="reduce_sum"):
    closed = join_reductions(jax.make_jaxpr(function)(*arguments))
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns].count(of)


def test_what_is_not_one_reduction_stays():
    x = jnp.ones((4, 6))
    assert count(lambda x: jnp.max(x, 1).sum(), x) == 1 == count(lambda x: jnp.max(x, 1).sum(), x, of="reduce_max")
    assert count(lambda x: ((rows := x.sum(1)).sum(), rows), x) == 2  # the partial sums are needed
    half = jnp.ones((4, 6), jnp.float16)
    assert count(lambda x: lax.reduce_sum(lax.reduce_sum(x, (1,)), (0,)), half) == 2  # rounded in between
    assert (
        count(lambda x: jnp.concatenate([x[0, :3].sum()[None], x[1, :3].sum()[None]]).sum(), x) == 3
    )  # no whole array
    assert count(lambda x: jnp.concatenate([x[:2].sum(1), x[:2].sum(1)]).sum(), x) == 3  # some twice


@pytest.mark.parametrize(
    ("at", "parts"),
    [
        ((6, 4), [slice(0, 52)]),
        ((7, 0), [slice(0, 20), slice(20, 56)]),
        ((0, 3), []),
        ((7, 7), [slice(0, 63)]),
    ],
)
@pytest.mark.parametrize("primitive", REDUCTIONS)
def test_stretches_in_memory_are_one_reduction(primitive, at, parts):
    """Of a matrix as a flat array, and of its last rows as boxes."""
    reduce = REDUCTIONS[primitive]

    def function(x):
        flat, (row, column) = jnp.exp(x).reshape(64), at
        pieces = [reduce(lax.slice(flat, (own.start,), (own.stop,)), 0) for own in parts]
        pieces.append(reduce(lax.slice(flat.reshape(8, 8), (row, column), (row + 1, 8)), (0, 1)))
        if row < 7:
            pieces.append(reduce(lax.slice(flat.reshape(8, 8), (row + 1, 0), (8, 8)), (0, 1)))
        return reduce(jnp.concatenate([own[None] for own in pieces]), 0)

    x = jnp.asarray(np.random.default_rng(0).uniform(-0.1, 0.1, (8, 8)), jnp.float32)
    closed = join_reductions(jax.make_jaxpr(function)(x))
    whole = sum(own.stop - own.start for own in parts) == 8 * at[0] + at[1]
    assert whole == ([eqn.primitive.name for eqn in closed.jaxpr.eqns].count(primitive) == 1)
    np.testing.assert_allclose(jax_core.jaxpr_as_fun(closed)(x)[0], function(x), rtol=1e-5)


def test_stretches_of_a_dimension_that_was_merged_are_one_reduction():
    """Along the first of two merged dimensions, behind another; each part of the same, rearranged for itself."""

    def function(x):
        x = jnp.exp(x)
        first, second = (x.transpose(1, 0, 2).reshape(3, 40)[:, own] for own in (slice(16), slice(16, 40)))
        parts = first.reshape(3, 2, 2, 4).sum(2).transpose(1, 0, 2), second.reshape(3, 6, 4).sum(1).reshape(1, 3, 4)
        return jnp.concatenate(parts).sum(0)

    def inside_a_group(x):
        first, second = (x.transpose(1, 0, 2).reshape(3, 40)[:, own] for own in (slice(18), slice(18, 40)))
        return jnp.concatenate([first.reshape(3, 9, 2).sum(1), second.reshape(3, 11, 2).sum(1)], 1).sum(1)

    x = jnp.asarray(np.random.default_rng(0).uniform(-1, 1, (10, 3, 4)), jnp.float32)
    closed = join_reductions(jax.make_jaxpr(function)(x))
    assert [eqn.primitive.name for eqn in closed.jaxpr.eqns].count("reduce_sum") == 1
    np.testing.assert_allclose(jax_core.jaxpr_as_fun(closed)(x)[0], jnp.exp(x).sum(0), rtol=1e-5)
    closed = join_reductions(jax.make_jaxpr(inside_a_group)(x))
    np.testing.assert_allclose(jax_core.jaxpr_as_fun(closed)(x)[0], x.sum((0, 2)), rtol=1e-5, atol=1e-5)


def test_inside_a_loop():
    def function(x):
        return lax.fori_loop(0, 3, lambda _, y: y + y.reshape(4, 6).sum(1).sum(), x)

    closed = join_reductions(jax.make_jaxpr(function)(jnp.arange(24.0)))
    np.testing.assert_allclose(jax_core.jaxpr_as_fun(closed)(jnp.arange(24.0))[0], function(jnp.arange(24.0)))
    assert str(closed).count("reduce_sum") == 1


def blocks_of(x, axis, block):
    """The parts of an array along an axis: full blocks as one array with an axis more, then what is left."""
    n = x.shape[axis] // block * block
    full, left = jax.lax.split(x, (n, x.shape[axis] - n), axis)
    return full.reshape(*x.shape[:axis], n // block, block, *x.shape[axis + 1 :]), left


@few("primitive", ["reduce_sum", "reduce_max"], quick=["reduce_max"])
def test_what_is_computed_of_parts_is_computed_of_the_whole(primitive):
    reduce = REDUCTIONS[primitive]
    x, y = np.random.default_rng(0).normal(size=(2, 6, 23)).astype(np.float32)
    m = x.max(1)

    def function(x, y, m):
        parts = []
        for own, other in zip(blocks_of(x, 1, 5), blocks_of(y, 1, 5), strict=True):
            rows = m.reshape(6, *[1] * (own.ndim - 1))
            parts.append(reduce(2 * jnp.exp(own - rows) * other, own.ndim - 1))
        return reduce(jnp.concatenate([parts[0].T, parts[1][None]]), 0)

    plain = lambda x, y, m: reduce(2 * jnp.exp(x - m[:, None]) * y, 1)  # noqa: E731
    closed = join_reductions(jax.make_jaxpr(function)(x, y, m))
    names = [eqn.primitive.name for eqn in closed.jaxpr.eqns]
    assert (names.count(primitive), names.count("exp"), names.count("concatenate")) == (1, 1, 0)
    ours = lambda *own: jax_core.jaxpr_as_fun(closed)(*own)[0]  # noqa: E731
    found, expected = (jax.vjp(f, x, y, m) for f in (ours, plain))
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-5)
    for a, b in zip(found[1](m), expected[1](m), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


def test_two_sums_of_one_product_whose_scale_is_cut_otherwise_than_its_rows():
    x, m = np.random.default_rng(0).normal(size=(2, 4, 6, 23)).astype(np.float32)
    scale, m = x[0, :, 0], m[:, 0, 0]

    def sums(own, scale, m):
        wide = own * scale
        return jnp.sum(wide * (own - m), (-2, -1)), jnp.sum(wide, (-2, -1))

    def function(x, scale, m):
        rows, parts = scale.reshape(2, 1, 1, 3, 1), []
        for own in blocks_of(x.reshape(4, 2, 3, 23), 3, 5):
            own = own.reshape(4, 2, 3, -1, own.shape[-1]).transpose(1, 3, 0, 2, 4)  # half, block, row, third, element
            parts.append(sums(own, rows, m[:, None, None]))
        return tuple(jnp.sum(jnp.concatenate(own, 1).reshape(-1, 4), 0) for own in zip(*parts, strict=True))

    plain = lambda x, scale, m: sums(x, scale[:, None], m[:, None, None])  # noqa: E731
    closed = join_reductions(jax.make_jaxpr(function)(x, scale, m))
    ours = lambda *own: tuple(jax_core.jaxpr_as_fun(closed)(*own))  # noqa: E731
    found, expected = (jax.vjp(f, x, scale, m) for f in (ours, plain))
    for a, b in zip((*found[0], *found[1]((m, m))), (*expected[0], *expected[1]((m, m))), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-4)
    names = [eqn.primitive.name for eqn in closed.jaxpr.eqns]
    assert (names.count("reduce_sum"), names.count("concatenate")) == (2, 0)


def test_arrays_that_are_summed_in_different_orders_are_not_taken_for_one_another():
    x, y = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)
    cases = [
        lambda x, y: jnp.sum(jnp.sum(x * y.T, 0), 0),  # as rows and as columns
        lambda x, y: jnp.sum(x[:, :2] * y[:, 2:]) + 0 * jnp.sum(x * y),  # other slices
        lambda x, y: jnp.concatenate([(x[:, :3] * y[:, :3]).sum(1), (x[:, 3:] * y[:, :1]).sum(1)]).sum(),
        lambda x, y: jnp.concatenate([(x[:, :3] * y[:, :3]).sum(1), (x[:, 3:] + y[:, 3:]).sum(1)]).sum(),
        lambda x, y: jnp.concatenate([(x[:, :3] * y[:3].T).sum(1), (x[:, 3:] * y[3:].T).sum(1)]).sum(),
        lambda x, y: jnp.concatenate([(x[:, :3] - y[0, 0]).sum(1), (x[:, 3:] - y[0, 1]).sum(1)]).sum(),
        lambda x, y: jnp.sum(jnp.sum(jnp.exp(x[:, None] - y[None]), (0, 2))),  # repeated
        lambda x, y: jnp.sum(jnp.sum(jnp.exp(jnp.broadcast_to(x[:, :1], (4, 5))) * y[0, 0], 1)),
    ]
    for function in cases:
        closed = join_reductions(jax.make_jaxpr(function)(x, y))
        np.testing.assert_allclose(jax_core.jaxpr_as_fun(closed)(x, y)[0], function(x, y), rtol=1e-4)
