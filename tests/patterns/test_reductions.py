"""Which reductions are joined, in which shape they are, and which are done by halves."""

from __future__ import annotations

import itertools
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from jax import lax
from jax.extend import core as jax_core

import codelet as cl
from lowering.jaxprs import reduce_by_halves as by_halves
from lowering.jaxprs.join_reductions import join_reductions
from lowering.jaxprs.reduce_by_halves import reduce_by_halves
from lowering.jaxprs.reduce_in_shape import reduce_in_shape
from lowering.jaxprs.reshape_once import reshape_once, stretches
from tests.at_once import at_once
from tests.examples import examples, few
from tests.patterns.reductions import REDUCTIONS, blocks_of, reshapes

# --- join_reductions --------------------------------------------------------------------------------------------------


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


# --- reduce_in_shape --------------------------------------------------------------------------------------------------


def names(closed):
    return [eqn.primitive.name for eqn in closed.jaxpr.eqns]


def changed(rule, function, *arguments):
    """A function after a rule, seen to mean the same."""
    closed = jax.make_jaxpr(function)(*arguments)
    made = rule(closed)
    found, expected = jax.jit(lambda *own: (jax_core.jaxpr_as_fun(made)(*own), function(*own)))(*arguments)
    for own, other in zip(found, jax.tree.leaves(expected), strict=True):
        assert own.shape == other.shape
        np.testing.assert_allclose(own, other, rtol=1e-6, atol=1e-6)
    return made


@examples(60)
@given(reshapes())
def test_stretches_are_all_dimensions_in_order_and_least(shapes):
    was, shape = shapes
    found = stretches(was, shape)
    for own, k in ((was, 0), (shape, 1)):
        assert [d for pair in found for d in range(pair[k].start, pair[k].stop)] == list(range(len(own)))
    for before, after in found:
        one, other = was[before], shape[after]
        assert np.prod(one) == np.prod(other)
        for i, j in itertools.product(range(1, len(one)), range(1, len(other))):
            assert np.prod(one[:i]) != np.prod(other[:j])


X = jnp.arange(24.0).reshape(2, 3, 4)


def test_rows_are_reduced_as_the_array_lies():
    made = reshape_once(changed(reduce_in_shape, lambda x: (jnp.exp(x), x.reshape(6, 4).max(1).reshape(2, 3)), X))
    assert sorted(names(made)) == ["exp", "reduce_max"]
    for function in (
        lambda x: x.reshape(6, 4).sum(1),  # nothing reads it as it is
        lambda x: (jnp.exp(x), x.reshape(4, 6).sum(1)),  # of parts of its dimensions
    ):
        closed = jax.make_jaxpr(function)(X)
        assert reduce_in_shape(closed) is closed


def test_transposes_that_undo_each_other_are_none():
    made = changed(reshape_once, lambda x: jnp.sin(x.transpose(1, 2, 0).transpose(2, 0, 1)), X)
    assert names(made) == ["sin"]
    assert names(changed(reshape_once, lambda x: x.transpose(1, 2, 0).transpose(1, 0, 2), X)) == ["transpose"]


def test_transposes_around_reshapes_that_undo_each_other_are_one():
    def function(x):
        first = x.transpose(1, 2, 0)
        return first.reshape(-1).reshape(first.shape).transpose(1, 0, 2)

    assert names(changed(reshape_once, function, X)) == ["transpose"]


@pytest.mark.parametrize("shape", [(3, 2, 16, 8), (3, 2, 16, 7), (96, 8)])
def test_softmax_is_as_one_would_write_it(shape):
    def softmax(x):
        made = jnp.exp(x - x.max(-1, keepdims=True))
        return made / made.sum(-1, keepdims=True)

    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)
    traced = cl.trace(softmax, x, target=cl.IPU(num_tiles=24))
    maps = [eqn for eqn in traced.lowered.jaxpr.jaxpr.eqns if eqn.primitive.name in ("exp", "div", "sub")]
    assert {eqn.outvars[0].aval.shape for eqn in maps} == {shape}
    reductions = [eqn for eqn in traced.lowered.jaxpr.jaxpr.eqns if eqn.primitive.name.startswith("reduce_")]
    assert {eqn.invars[0].aval.shape for eqn in reductions} == {shape}
    loss = lambda f: lambda x: jnp.sum(jnp.sin(f(x)))  # noqa: E731
    both = lambda f: (f(x), jax.grad(loss(f))(x))  # noqa: E731
    for own, other in zip(*jax.jit(lambda: (both(traced), both(softmax)))(), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-6)


# --- reduce_by_halves -------------------------------------------------------------------------------------------------


BY_HALVES = [jnp.sum, jnp.max, jnp.min, jnp.prod, jnp.mean]


@pytest.fixture
def low_bound(monkeypatch):
    monkeypatch.setattr(by_halves, "LEAST_BENEATH", 4)


@few(
    "of, reduction",
    product([((7, 5), 0), ((8, 2, 3), 0), ((3, 5, 4), (0, 1)), ((2, 5, 6), 1)], BY_HALVES),
    quick=[
        "((7, 5), 0), prod",
        "((7, 5), 0), mean",
        "((8, 2, 3), 0), sum",
        "((3, 5, 4), (0, 1)), max",
        "((2, 5, 6), 1), min",
    ],
)
def test_values_and_gradients_are_kept(low_bound, of, reduction):
    shape, axes = of
    # Few different numbers, so that greatest ones are tied.
    x = np.random.default_rng(0).choice(np.asarray([0.5, 1.0, -1.5], np.float32), shape)
    function = lambda x: jnp.sin(reduction(x, axis=axes)).sum()  # noqa: E731
    closed = reduce_by_halves(jax.make_jaxpr(function)(x))
    assert "platform_index" in names(closed)
    run = lambda x: jax_core.jaxpr_as_fun(closed)(x)[0]  # noqa: E731
    stacked = np.stack([x, -x])

    def all_of(function):
        return lambda x: (function(x), jax.grad(function)(x), jax.jacfwd(function)(x), jax.vmap(function)(stacked))

    for result, expected in zip(*at_once(all_of(run), all_of(function))(x), strict=True):
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", [jnp.sum, jnp.max, jnp.prod, jnp.all, jnp.any])
def test_integers_and_truth_values_exactly(low_bound, reduction):
    x = np.random.default_rng(0).integers(-3, 4, (11, 6)).astype(np.int32)
    x = x > -3 if reduction in (jnp.all, jnp.any) else x
    closed = reduce_by_halves(jax.make_jaxpr(lambda x: reduction(x, axis=0))(x))
    assert "platform_index" in names(closed)
    (result,), expected = at_once(jax_core.jaxpr_as_fun(closed), lambda x: reduction(x, axis=0))(x)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize(
    ("shape", "axes"), [((64, 64), 0), ((1 << 16, 8), 1), ((8, 1 << 12), 0), ((8, 1 << 16), (0, 1)), ((1, 1 << 16), 0)]
)
def test_quick_reductions_stay(shape, axes):
    closed = jax.make_jaxpr(lambda x: x.sum(axes))(np.ones(shape, np.float32))
    assert reduce_by_halves(closed) is closed


def test_by_halves_inside_loops(low_bound):
    def turns(x):
        return lax.scan(lambda carry, _: (carry + x.sum(0), None), jnp.zeros(5), length=3)[0]

    x = np.arange(35, dtype=np.float32).reshape(7, 5)
    closed = reduce_by_halves(jax.make_jaxpr(turns)(x))
    assert "platform_index" in str(closed)
    (result,), expected = at_once(jax_core.jaxpr_as_fun(closed), turns)(x)
    np.testing.assert_allclose(result, expected)


def test_a_family_that_adds_up_along_the_first_dimension():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (5, 1 << 15)), graph.add_variable("y", (1 << 15,))
    i = cl.grid(1 << 15)
    graph.add_vertex("add up", cl.codelet(lambda x: jnp.sum(x)), x=x[:, i], out=y[i])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    assert names(run.jaxpr) == ["platform_index", "cond"]
    values = np.random.default_rng(0).normal(size=(5, 1 << 15)).astype("f")
    np.testing.assert_allclose(jax.jit(run)({"x": values})["y"], values.sum(0), rtol=1e-5, atol=1e-5)
