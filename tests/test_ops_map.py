"""Elementwise operations: values, slopes, plans, and what is told of operands that do not fit."""

from __future__ import annotations

import re
from unittest.mock import patch

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from codelet.errors import CodeletError, FieldTypeError, ForeignGraphError, OperationError
from codelet.ops import block_planning, elementwise
from codelet.ops.element_functions import element_function, value_codelets
from tests.every_cut import least_of_all
from tests.examples import examples, few
from tests.ops_cases import TARGET, Case, array, check

MAPS = {
    "one": (jnp.tanh, (array((37,)),)),
    "bias": (lambda x, b: x * b, (array((9, 11)), array((11,), seed=1))),
    "rows": (lambda x, b: jnp.exp(x) + b, (array((9, 11)), array((9, 1), seed=1))),
    "channels": (
        lambda x, s, b: x * s + b,
        (array((3, 4, 5, 2)), array((4, 1, 1), seed=1), array((1, 4, 1, 1), seed=2)),
    ),
    "outer": (lambda a, b: jnp.sin(a) * b, (array((7, 1)), array((1, 5), seed=1))),
    "scalars": (lambda a, b: a - b, (array(()), array((), seed=1))),
    "one of many": (lambda a, b: a - b, (array((1, 13)), array((1,), seed=1))),
    "empty": (lambda a, b: a * b, (array((0, 3)), array((3,), seed=1))),
    "mixed": (lambda a, k: a * k, (array((6, 5)), array((6, 5), jnp.int32, seed=1))),
    "same": (lambda a, b: (a + b, a * a), (array((6, 5)), array((6, 5), seed=1))),
    "several": (lambda a, b: {"sum": a + b, "both": (a * b, a > b)}, (array((6, 5)), array((5,), seed=1))),
}


@few("name", MAPS, quick=["one of many", "mixed"])
def test_map(name):
    function, arguments = MAPS[name]
    build = lambda graph, *own: cl.ops.map(graph, function, *own)  # noqa: E731
    case = Case(build, lambda *own: function(*jnp.broadcast_arrays(*own)), arguments)
    check(case, interpreted=True, on_tiles=True)


@few("name", MAPS, quick=["scalars", "empty", "mixed", "same"])
def test_map_gradient(name):
    function, arguments = MAPS[name]
    smooth = lambda own: jnp.issubdtype(own.dtype, jnp.inexact)  # noqa: E731
    results, structure = jax.tree.flatten(jax.eval_shape(function, *jnp.broadcast_arrays(*arguments)))
    cotangents = [array(own.shape, own.dtype, seed=5) for own in results if smooth(own)]
    count = len(cotangents)

    def plain(*own):
        def leaves(*own):
            return [leaf for leaf in jax.tree.leaves(function(*jnp.broadcast_arrays(*own))) if smooth(leaf)]

        slopes = jax.vjp(leaves, *own[count:])[1](list(own[:count]))
        return tuple(slope if smooth(x) else None for slope, x in zip(slopes, own[count:], strict=True))

    def build(graph, *own):
        left = iter(own[:count])
        given = jax.tree.unflatten(structure, [next(left) if smooth(leaf) else None for leaf in results])
        return cl.ops.map_gradient(graph, function, given, *own[count:], grain=4 if name == "bias" else None)

    check(
        Case(build, plain, (*cotangents, *arguments), slopes=name == "bias"),
        interpreted=True,
        on_tiles=name == "rows",
    )


@few("dtype", [jnp.float16, jnp.bfloat16, jnp.int32, bool], quick=["int32"])
def test_map_dtypes(dtype):
    arguments = array((6, 11), dtype), array((11,), dtype, seed=1), array((), dtype, seed=2)

    def both(x, b, c):
        return jnp.maximum(x, b) * 2, (x * 0.5).astype(jnp.float32), jnp.where(c, x, 0)

    case = Case(
        lambda graph, x, b, c: cl.ops.map(graph, both, x, b, c, grain=5),
        lambda x, b, c: both(*jnp.broadcast_arrays(x, b, c)),
        arguments,
    )
    check(case, interpreted=True)


def test_views_as_operands():
    """Operands that lie transposed, reversed, in strides, or are spread views keep their elements apart."""
    x, y = array((6, 10)), array((10, 12), seed=1)

    def build(graph, x, y):
        spread = y[0, :6].expand(1).broadcast_to((6, 10))
        named = cl.ops.map(graph, lambda a, b, c: (a * b, a - c), x.reverse(1), y.T[::2], spread)
        return named, cl.ops.map(graph, lambda a, b: a + b, spread, 1.0)

    def plain(x, y):
        spread = jnp.broadcast_to(y[0, :6, None], (6, 10))
        return (x[:, ::-1] * y.T[::2], x[:, ::-1] - spread), spread + 1.0

    check(Case(build, plain, (x, y)), interpreted=True, on_tiles=True)


def test_numbers_are_promoted_as_they_are_in_jax():
    x = array((5,), jnp.float16)
    numbers = 2, 0.5, True, np.float32(3), np.int8(1)
    build = lambda graph, x: [cl.ops.map(graph, jnp.multiply, x, own) for own in numbers]  # noqa: E731
    check(Case(build, lambda x: [jnp.multiply(x, own) for own in numbers], (x,), slopes=False))


@pytest.mark.slow
def test_choices():
    which, x, y, k = array((4, 6), bool), array((4, 6)), array((6,), seed=1), array((4, 6), jnp.int32, low=0, high=2)
    nan = x.at[0, 0].set(jnp.nan)

    def build(graph, which, x, y, k, nan):
        ops = cl.ops
        assert ops.cast(graph, x, dtype=jnp.float32) is x
        return (
            ops.select(graph, which, x, y),
            ops.select(graph, k, 1.5, y),
            ops.select_n(graph, which, x, nan),
            ops.select_n(graph, k, x, nan, x),
            ops.clamp(graph, -1, x, y),
            ops.clamp(graph, -0.5, nan, 0.5),
            ops.cast(graph, x, dtype=jnp.int32),
            ops.cast(graph, x, dtype=jnp.bfloat16),
            ops.cast(graph, nan, dtype=bool),
        )

    def plain(which, x, y, k, nan):
        spread = jnp.broadcast_to(y, x.shape)
        return (
            jnp.where(which, x, y),
            jnp.where(k, 1.5, y),
            lax.select_n(which, x, nan),
            lax.select_n(k, x, nan, x),
            lax.clamp(jnp.full_like(x, -1), x, spread),
            lax.clamp(-0.5, nan, 0.5),
            x.astype(jnp.int32),
            x.astype(jnp.bfloat16),
            nan.astype(bool),
        )

    check(Case(build, plain, (which, x, y, k, nan), slopes=False), interpreted=True)


@pytest.mark.slow
def test_gradients_of_choices():
    g, which, x, y = array((4, 6), seed=3), array((4, 6), bool), array((4, 6)), array((6,), seed=1)
    low, half = array((4, 6), seed=4) - 1, array((4, 6), jnp.float16)

    def build(graph, g, which, x, y, low, half):
        ops = cl.ops
        return (
            ops.select_gradient(graph, g, which, x, y),
            ops.select_n_gradient(graph, g, which, x, low),
            ops.clamp_gradient(graph, g, low, x, y),
            ops.cast_gradient(graph, g, half),
        )

    def plain(g, which, x, y, low, half):
        pull = lambda function, *own: jax.vjp(function, *own)[1](g)  # noqa: E731
        return (
            pull(lambda x, y: jnp.where(which, x, y), x, y),
            pull(lambda x, y: lax.select_n(which, x, y), x, low),
            pull(lambda low, x, y: lax.clamp(low, x, jnp.broadcast_to(y, x.shape)), low, x, y),
            pull(lambda half: half.astype(jnp.float32), half)[0],
        )

    check(Case(build, plain, (g, which, x, y, low, half), slopes=False))


def test_fills_and_counts():
    def build(graph):
        ops = cl.ops
        filled = [ops.fill(graph, shape, 2.5) for shape in ((), (3, 5), (37,), (0, 2))]
        others = [
            ops.fill(graph, (4,), 3, dtype=jnp.float16),
            ops.fill(graph, 5, True),
            ops.fill(graph, (9,), 1, grain=2),
        ]
        counts = [
            ops.iota(graph, 37, dtype=jnp.int32),
            ops.iota(graph, 3, dtype=jnp.bfloat16),
            ops.iota(graph, 300, dtype=jnp.int8),
        ]
        wide = [ops.iota(graph, (3, 5, 2), d, dtype=jnp.float32) for d in range(3)]
        return (
            filled,
            others,
            counts,
            wide,
            ops.iota(graph, (0, 3), dtype=jnp.int32),
            ops.iota(graph, 9, dtype=jnp.int32, grain=2),
        )

    def plain():
        filled = [jnp.full(shape, 2.5) for shape in ((), (3, 5), (37,), (0, 2))]
        others = [jnp.full((4,), 3, jnp.float16), jnp.full(5, True), jnp.full((9,), 1)]
        counts = [lax.iota(jnp.int32, 37), lax.iota(jnp.bfloat16, 3), lax.iota(jnp.int8, 300)]
        wide = [lax.broadcasted_iota(jnp.float32, (3, 5, 2), d) for d in range(3)]
        return filled, others, counts, wide, lax.broadcasted_iota(jnp.int32, (0, 3), 0), lax.iota(jnp.int32, 9)

    check(Case(build, plain, ()), interpreted=True, on_tiles=True)


# --- codelets -----------------------------------------------------------------------------------------------


def test_the_same_function_is_one_codelet():
    graph = cl.Graph(TARGET)
    x = graph.add_variable("x", (9,))
    codelet = lambda function, *own: value_codelets(element_function("map", function, (x, *own))).worker  # noqa: E731

    def scale(by):
        return lambda x: x * by

    assert codelet(scale(2)) is codelet(scale(2))
    assert codelet(scale(2)) is not codelet(scale(3))
    assert codelet(scale(2)) is not codelet(scale(2.0))
    assert codelet(jnp.tanh) is codelet(jnp.tanh)
    assert codelet(jnp.multiply, 2) is codelet(jnp.multiply, 2)
    assert codelet(jnp.multiply, 2) is not codelet(jnp.multiply, 2.0)


def test_what_a_function_captures_is_taken_as_it_is():
    graph = cl.Graph(TARGET)
    x = graph.add_variable("x", (9,))
    made = []
    for by in (1.0, 2.0):
        made.append(cl.ops.map(graph, lambda x: x * by, x))
    run = cl.lower(graph, inputs=[x], outputs=made)({"x": jnp.ones(9)})
    assert [float(own[0]) for own in run.values()] == [1.0, 2.0]


# --- plans --------------------------------------------------------------------------------------------------


def _graph_of(shapes, function, target, **options):
    graph = cl.Graph(target)
    operands = [graph.add_variable(f"x{k}", shape) for k, shape in enumerate(shapes)]
    cl.ops.map(graph, function, *operands, **options)
    return graph, cl.ops.plan_map(graph, function, *operands, **options)


@pytest.mark.parametrize("target", [cl.IPU(num_tiles=32), cl.IPU("mk2")], ids=["small", "mk2"])
@pytest.mark.parametrize("shapes", [((20_011,),), ((301, 77), (77,)), ((301, 77), (301, 1))], ids=str)
def test_cycles_are_as_planned(shapes, target):
    graph, plan = _graph_of(shapes, lambda x, b=0.0: x + b, target)
    found = cl.Engine(graph).profile().total_cycles
    assert abs(found - plan.total_cycles) <= 0.1 * found


F32 = np.dtype(np.float32)


@pytest.mark.parametrize("other", [(1,), (0,)], ids=["bias", "rows"])
@pytest.mark.parametrize("extents", [(30, 24), (7, 100)], ids=str)
def test_the_choice_is_near_the_best(extents, other):
    target, works = cl.IPU(num_tiles=12), []
    graph = cl.Graph(target)
    row = tuple(extent if d in other else 1 for d, extent in enumerate(extents))
    operands = graph.add_variable("x", extents), graph.add_variable("b", row)

    def recorded(target, work, *options):
        works.append((work, block_planning.plan_work(target, work, *options)))
        return works[-1][1]

    with patch.object(elementwise, "plan_work", recorded):
        cl.ops.plan_map(graph, lambda x, b: x * b, *operands)
    assert works
    for work, plan in works:
        assert plan.total_cycles <= 1.05 * least_of_all(target, work)


@pytest.mark.slow
@hypothesis.given(st.lists(st.integers(1, 6), min_size=1, max_size=3), st.data())
@examples(4)
def test_any_grain_gives_the_same(shape, data):
    other = [data.draw(st.sampled_from([1, extent])) for extent in shape][data.draw(st.integers(0, len(shape))) :]
    grain = data.draw(st.integers(1, 40))
    build = lambda graph, x, y: cl.ops.map(graph, jnp.multiply, x, y, grain=grain)  # noqa: E731
    check(Case(build, jnp.multiply, (array(shape), array(other, seed=1)), slopes=False), on_tiles=True)


# --- mistakes -------------------------------------------------------------------------------------------------

MISTAKES = {
    "shapes": (
        OperationError,
        r"cannot be broadcast.*\(3, 4\), \(3,\)",
        lambda ops, g, x, k: ops.map(g, jnp.add, x, x[:, 0]),
    ),
    "nothing": (OperationError, "given no tensor.*fill", lambda ops, g, x, k: ops.map(g, jnp.add, 1, 2)),
    "no function": (FieldTypeError, "no function after the graph", lambda ops, g, x, k: ops.map(g, x, x)),
    "array": (FieldTypeError, "something else than a tensor", lambda ops, g, x, k: ops.map(g, jnp.add, x, np.ones(4))),
    "fails": (OperationError, "fails for single elements", lambda ops, g, x, k: ops.map(g, lambda x: x @ x, x)),
    "not one": (
        OperationError,
        r"does not give one element.*\(2,\)",
        lambda ops, g, x, k: ops.map(g, lambda x: jnp.stack([x, x]), x),
    ),
    "grain": (OperationError, "grain of ops.map", lambda ops, g, x, k: ops.map(g, jnp.tanh, x, grain=0)),
    "cotangent": (
        OperationError,
        "not of its result's shape",
        lambda ops, g, x, k: ops.map_gradient(g, jnp.tanh, x[0], x),
    ),
    "structure": (
        OperationError,
        "not in the structure",
        lambda ops, g, x, k: ops.map_gradient(g, jnp.tanh, (x, x), x),
    ),
    "bounds": (OperationError, "low of ops.clamp", lambda ops, g, x, k: ops.clamp(g, 0.5, k, 2)),
    "which": (
        OperationError,
        "cannot choose among 3",
        lambda ops, g, x, k: ops.select_n(g, ops.cast(g, k, dtype=bool), x, x, x),
    ),
    "cases": (OperationError, "several dtypes", lambda ops, g, x, k: ops.select_n(g, k, x, k)),
    "dtype": (OperationError, "no dtype", lambda ops, g, x, k: ops.cast(g, x, dtype="number")),
    "whole gradient": (OperationError, "floating point", lambda ops, g, x, k: ops.cast_gradient(g, x, k)),
    "value": (OperationError, "value of ops.fill", lambda ops, g, x, k: ops.fill(g, (3,), np.ones(3))),
    "shape": (OperationError, "shape of ops.fill", lambda ops, g, x, k: ops.fill(g, (3, -1), 0)),
    "bool": (OperationError, "counts in a dtype without", lambda ops, g, x, k: ops.iota(g, 3, dtype=bool)),
    "dimension": (
        OperationError,
        "axis that there is not",
        lambda ops, g, x, k: ops.iota(g, (3, 2), 2, dtype=jnp.int32),
    ),
    "graph": (ForeignGraphError, "another graph", lambda ops, g, x, k: ops.map(cl.Graph(), jnp.tanh, x)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    kind, text, make = MISTAKES[name]
    graph = cl.Graph(TARGET)
    x, k = graph.add_variable("x", (3, 4)), graph.add_variable("k", (3, 4), jnp.int32)
    with pytest.raises(CodeletError) as caught:
        make(cl.ops, graph, x, k)
    assert caught.type is kind
    assert re.search(text, str(caught.value), re.DOTALL), caught.value
