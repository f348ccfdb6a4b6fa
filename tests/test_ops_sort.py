"""Sorting and the greatest elements as operations: values and slopes, blocks merged by a network, plans, mistakes."""

from __future__ import annotations

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from codelet.errors import OperationError
from codelet.ops.sort_planning import rounds
from tests.examples import examples, few
from tests.ops_cases import TARGET, Case, array, check

SHAPES = {
    "a line": ((19,), 0),
    "rows": ((13, 11), -1),
    "columns": ((11, 13), 0),
    "between": ((3, 5, 4), 1),
    "one": ((1, 1), 0),
    "none": ((3, 0), 1),
    "no lines": ((0, 3), 1),
}


def odd_numbers(shape, dtype=jnp.float32):
    """Numbers with ties, both zeros and NaN."""
    own = np.array(array(shape, dtype)).round().reshape(-1)
    own[::5], own[1::7] = -0.0, np.nan
    return jnp.asarray(own.reshape(shape), dtype)


FINE = [(name, 4) for name in ("none", "between", "a line")]


@few(
    "name, grain",
    [*((name, None) for name in SHAPES), *FINE],
    quick=["rows, None", "one, None", "no lines, None"],
)
def test_sort(name, grain):
    shape, axis = SHAPES[name]

    def ours(graph, x, ties, g):
        ops, order = cl.ops, cl.ops.argsort(graph, x, axis, grain=grain)
        return {
            "sorted": ops.sort(graph, x, axis, grain=grain),
            "falling": ops.sort(graph, x, axis, descending=True, grain=grain),
            "order": order,
            "order of ties": ops.argsort(graph, ties, axis, grain=grain),
            "falling order": ops.argsort(graph, ties, axis, descending=True, grain=grain),
            "together": ops.sort_together(graph, [ties, x, g], axis, num_keys=2, grain=grain),
            "gradient": ops.sort_gradient(graph, g, order, axis, grain=grain),
        }

    def plain(x, ties, g):
        return {
            "sorted": jnp.sort(x, axis),
            "falling": jnp.sort(x, axis, descending=True),
            "order": jnp.argsort(x, axis),
            "order of ties": jnp.argsort(ties, axis),
            "falling order": jnp.argsort(ties, axis, descending=True),
            "together": tuple(lax.sort((ties, x, g), axis % x.ndim, num_keys=2)),
            "gradient": jax.vjp(lambda x: jnp.sort(x, axis), x)[1](g)[0],
        }

    x, ties = array(shape), array(shape, jnp.int32, low=-3, high=3)
    check(Case(ours, plain, (x, ties, array(shape, seed=1))), on_tiles=grain is None and name == "a line")


@few("dtype", [jnp.float32, jnp.float16, jnp.bfloat16, jnp.int8, jnp.bool_], quick=["bfloat16", "int8"])
def test_order_of_ties_zeros_and_what_is_no_number(dtype):
    floating = jnp.issubdtype(dtype, jnp.floating)
    x = odd_numbers((41,), dtype) if floating else array((41,), dtype)

    def bits(values):
        return lax.bitcast_convert_type(values, f"uint{8 * dtype(0).itemsize}") if floating else values

    ours = cl.lower(
        lambda graph, x: (cl.ops.sort(graph, x, grain=6), cl.ops.argsort(graph, x, grain=6), cl.ops.sort(graph, x)),
        target=TARGET,
    )
    values, order, whole = jax.jit(ours)(x)
    for found in (values, whole):
        np.testing.assert_array_equal(bits(found), bits(jnp.sort(x)))
    np.testing.assert_array_equal(order, jnp.argsort(x))


@pytest.mark.slow
def test_one_vertex_at_a_time():
    case = Case(
        lambda graph, x: (cl.ops.sort(graph, x, grain=2), cl.ops.top_k(graph, x, 2, grain=3)),
        lambda x: (jnp.sort(x), tuple(lax.top_k(x, 2))),
        (array((2, 3)),),
    )
    check(case, interpreted=True, on_tiles=True)


@pytest.mark.parametrize("blocks", [2, 4, 8, 16])
def test_the_network_sorts_zeros_and_ones(blocks):
    start = [np.arange(1 << blocks) >> k & 1 for k in range(blocks)]
    own = start
    for mask in rounds(blocks):
        pairs = [(own[k], own[k ^ mask]) for k in range(blocks)]
        own = [np.minimum(*pair) if k < k ^ mask else np.maximum(*pair) for k, pair in enumerate(pairs)]
    np.testing.assert_array_equal(own, np.sort(start, 0))


@few(
    "of, grain",
    product([((40,), 0, 3), ((13, 11), -1, 11), ((3, 9, 4), 1, 2), ((3, 4), 1, 0)], [None, 5]),
    quick=["((13, 11), -1, 11), None"],
)
def test_top_k(of, grain):
    shape, axis, k = of

    def ours(graph, x, ties, g):
        values, order = cl.ops.top_k(graph, x, k, axis=axis, grain=grain)
        slope = cl.ops.top_k_gradient(graph, g, order, shape, axis=axis, grain=grain)
        return values, order, cl.ops.top_k(graph, ties, k, axis=axis, grain=grain), slope

    def plain(x, ties, g):
        values, order = lax.top_k(x, k, axis=axis % x.ndim)
        slope = jax.vjp(lambda x: lax.top_k(x, k, axis=axis % x.ndim)[0], x)[1](g)[0]
        return values, order, tuple(lax.top_k(ties, k, axis=axis % x.ndim)), slope

    ties = array(shape, jnp.int32, low=-3, high=3)
    g = array([k if d == axis % len(shape) else n for d, n in enumerate(shape)], seed=2)
    check(Case(ours, plain, (array(shape), ties, g)))


def test_top_k_of_what_is_no_number():
    x = odd_numbers((41,))
    found = jax.jit(cl.lower(lambda graph, x: cl.ops.top_k(graph, x, 3, grain=6), target=TARGET))(x)
    np.testing.assert_array_equal(found[1], lax.top_k(x, 3)[1])


@given(st.integers(1, 30), st.integers(4, 20), st.integers(1, 12))
@examples(2)
def test_any_grain_on_any_number_of_tiles_sorts_the_same(length, grain, tiles):
    x = array((2, length), jnp.int32, low=-9, high=9)
    ours = cl.lower(lambda graph, x: cl.ops.argsort(graph, x, grain=grain), target=cl.IPU(num_tiles=tiles))
    np.testing.assert_array_equal(ours(x), jnp.argsort(x))


def test_lines_of_any_grain_run_as_one_family():
    lowered = cl.lower(lambda graph, x: (cl.ops.sort(graph, x), cl.ops.top_k(graph, x, 3)), target=TARGET)
    found = [eqn.primitive.name for eqn in lowered.at(array((13, 4))).jaxpr.jaxpr.eqns]
    assert (found.count("sort"), found.count("top_k")) == (1, 1)


# --- plans ------------------------------------------------------------------------------------------------


def _profiled(target, operation, shape, *arguments, grain=None):
    graph = cl.Graph(target)
    getattr(cl.ops, operation)(graph, graph.add_variable("x", shape), *arguments, grain=grain)
    return cl.Engine(graph).profile().total_cycles


@few(
    "target, shape",
    [(cl.IPU("mk2"), (3000, 50)), (cl.IPU("mk2"), (20_000,)), (TARGET, (13, 40)), (TARGET, (999,))],
    quick=["IPU('mk2', num_tiles=8), (999)"],
)
def test_the_profile_agrees_with_the_plan(target, shape, recwarn):
    plan = cl.ops.plan_sort(target, shape)
    assert _profiled(target, "sort", shape) == pytest.approx(plan.total_cycles, rel=0.1)
    plan = cl.ops.plan_top_k(target, shape, 5)
    assert _profiled(target, "top_k", shape, 5) == pytest.approx(plan.total_cycles, rel=0.1)
    assert not recwarn.list


@few("shape", [(1, 300), (5, 64), (20, 9)], quick=["(20, 9)"])
def test_no_other_plan_is_cheaper(shape):
    grains = sorted({1, 4, 9, 38, 75, 150, 300})
    for operation, arguments in (("sort", ()), ("top_k", (3,))):
        plan = getattr(cl.ops, f"plan_{operation}")(TARGET, shape, *arguments)
        every = [_profiled(TARGET, operation, shape, *arguments, grain=grain) for grain in grains]
        assert plan.total_cycles <= 1.05 * min(every)


# --- mistakes ---------------------------------------------------------------------------------------------

MISTAKES = {
    "axis of ops.sort is an axis that there is not": lambda graph, x, y: cl.ops.sort(graph, x, 2),
    "are not of one shape": lambda graph, x, y: cl.ops.sort_together(graph, [x, y]),
    "num_keys of": lambda graph, x, y: cl.ops.sort_together(graph, [x, x], num_keys=3),
    "k of ops.top_k is not within": lambda graph, x, y: cl.ops.top_k(graph, x, 5),
    "positions given to ops.sort_gradient are no integers": lambda graph, x, y: cl.ops.sort_gradient(graph, x, x),
    "cotangent and the positions": lambda graph, x, y: cl.ops.top_k_gradient(graph, x, y, (7, 3)),
    "grain of": lambda graph, x, y: cl.ops.argsort(graph, x, grain=1.5),
}


@pytest.mark.parametrize("told", MISTAKES)
def test_mistakes(told):
    graph = cl.Graph(TARGET)
    x, y = graph.add_variable("x", (4, 2)), graph.add_variable("y", (4, 3), np.int32)
    with pytest.raises(OperationError, match=told) as caught:
        MISTAKES[told](graph, x, y)
    assert caught.value.line is not None
    assert not graph.num_vertices
