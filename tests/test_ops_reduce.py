"""Reductions as operations: values, slopes, plans, and what is told of operands that do not fit."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import pytest

import codelet as cl
from codelet.errors import OperationError
from codelet.ops.blockwise import merged
from tests.examples import few
from tests.ops_cases import TARGET, Case, array, check

OPERATIONS = ["sum", "prod", "max", "min", "all", "any"]

SHAPES = {
    "minor": ((5, 7), 1),
    "major": ((13, 6), 0),
    "all of a matrix": ((9, 11), None),
    "middle": ((3, 17, 4), 1),
    "outer and inner": ((4, 3, 5), (0, 2)),
    "a vector": ((101,), -1),
    "no axis": ((3, 4), ()),
    "a number": ((), None),
    "ones": ((1, 1, 1), (0, 2)),
    "no results": ((0, 3), 1),
}


@few("name", SHAPES, quick=["major", "outer and inner", "a number", "ones", "no results"])
def test_reductions(name):
    """All operations at once."""
    shape, axis = SHAPES[name]

    def ours(graph, x, truth):
        return {own: getattr(cl.ops, own)(graph, truth if own in ("all", "any") else x, axis) for own in OPERATIONS}

    def plain(x, truth):
        return {own: getattr(jnp, own)(truth if own in ("all", "any") else x, axis) for own in OPERATIONS}

    check(
        Case(ours, plain, (array(shape), array(shape, bool))),
        interpreted=True,
        on_tiles=name in ("middle", "all of a matrix"),
    )


@few("axis, grain", product([1, (0, 2), None], [None, 3]), quick=["(0, 2), 3"])
def test_gradients_are_operations(axis, grain):
    x = array((3, 4, 5), jnp.float32, low=-1, high=2).round()  # ties, and zeros
    cotangent = array(jnp.sum(x, axis).shape, seed=1)

    def build(graph, x, cotangent):
        most, least = cl.ops.max(graph, x, axis), cl.ops.min(graph, x, axis)
        return (
            cl.ops.sum_gradient(graph, cotangent, x, axis),
            cl.ops.prod_gradient(graph, cotangent, x, axis),
            cl.ops.max_gradient(graph, cotangent, x, most, axis, grain=grain),
            cl.ops.max_gradient(graph, cotangent, x, least, axis, grain=grain),
        )

    def plain(x, cotangent):
        kinds = jnp.sum, jnp.prod, jnp.max, jnp.min
        return tuple(jax.vjp(lambda x, kind=kind: kind(x, axis), x)[1](cotangent)[0] for kind in kinds)

    check(Case(build, plain, (x, cotangent), slopes=False), interpreted=True)


@few(
    "dtype, grain",
    product([jnp.float16, jnp.bfloat16, jnp.int32, jnp.int8, bool], [None, 5]),
    quick=["float16, None", "bool, 5"],
)
def test_dtypes(dtype, grain):
    x = array((6, 9), dtype)
    names = [name for name in OPERATIONS if not (dtype is bool and name in ("max", "min"))]
    build = lambda graph, x: [getattr(cl.ops, name)(graph, x, 1, grain=grain) for name in names]  # noqa: E731
    check(Case(build, lambda x: [getattr(jnp, name)(x, 1) for name in names], (x,), slopes=False))


def test_options_are_those_of_numpy():
    x = array((4, 3), jnp.float16)

    def build(graph, x):
        return (
            cl.ops.sum(graph, x, 0, dtype=jnp.float32, keepdims=True),
            cl.ops.max(graph, x, keepdims=True),
            cl.ops.sum(graph, x[:0], 0),
            cl.ops.all(graph, x[:, :0], 1),
            cl.ops.max(graph, x.T, 0),
        )

    def plain(x):
        total = x.astype(jnp.float32).sum(0, keepdims=True)
        return total, x.max(keepdims=True), x[:0].sum(0), jnp.all(x[:, :0], 1), x.T.max(0)

    check(Case(build, plain, (x,), slopes=False))
    ties = jnp.array([1.0, jnp.nan, 3.0])
    check(Case(lambda graph, x: cl.ops.max(graph, x, grain=1), jnp.max, (ties,), slopes=False))


def test_slopes_of_ties_are_shared_among_all_of_them():
    x = jnp.zeros(100)
    slopes = jax.grad(lambda x: cl.lower(lambda graph, x: cl.ops.max(graph, x), target=TARGET)(x))(x)
    assert jnp.allclose(slopes, 0.01)


@pytest.mark.parametrize("target", [cl.IPU("mk2"), cl.IPU(num_tiles=16)], ids=["mk2", "16 tiles"])
@pytest.mark.parametrize(("shape", "axis"), [((100, 70), 0), ((300, 41), 1), ((2000,), None)], ids=str)
def test_plans_predict_the_profile(shape, axis, target):
    graph = cl.Graph(target)
    x = graph.add_variable("x", shape)
    plan = cl.ops.plan_reduce(graph, x, axis)
    cl.ops.sum(graph, x, axis)
    cycles = cl.Engine(graph).profile().total_cycles
    assert abs(plan.total_cycles - cycles) <= 0.1 * cycles
    assert "cycles" in str(plan)


def test_what_does_not_fit_is_told():
    graph = cl.Graph()
    x = graph.add_variable("x", (3, 0))
    with pytest.raises(OperationError, match="nothing to choose from"):
        cl.ops.max(graph, x, 1)
    with pytest.raises(OperationError, match="an axis that there is not"):
        cl.ops.sum(graph, x, 2)
    with pytest.raises(OperationError, match="an axis twice"):
        cl.ops.prod(graph, x, (0, -2))
    with pytest.raises(OperationError, match="not an integer from 1"):
        cl.ops.any(graph, x, 0, grain=0)
    with pytest.raises(OperationError, match="is not like the result"):
        cl.ops.sum_gradient(graph, x, x, 1)
    assert not graph.compute_sets


def test_dimensions_of_one_element_join_no_others():
    x = cl.Graph().add_variable("x", (4, 5))
    for apart, groups in ((x[:, :3], [[0, 1], [2]]), (x, [[0, 1, 2]])):
        view = apart.reshape((4, 1, apart.shape[1]))
        assert merged([(view, range(3))], "aaa") == groups
        assert merged([(view, range(3))], "aba") == [[0], [1], [2]]
    assert merged([(x, (0, 1)), (x[0], (1,))], "aa") == [[0], [1]]
