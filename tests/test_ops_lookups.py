"""Gathers, scatters and slices at places that are known late: values, slopes, plans, mistakes."""

from __future__ import annotations

import itertools
import re
from typing import Any

import hypothesis
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from codelet.errors import CodeletError, FieldTypeError, OperationError
from codelet.graphs.stages import Cut
from codelet.ops.blocks import num_tiles
from codelet.ops.indexing import _gather_lookup
from codelet.ops.lookup_codelets import gather_block
from codelet.ops.lookup_planning import _price
from codelet.ops.slice_forms import gather_form
from tests.examples import examples, few
from tests.ops_cases import TARGET, Case, array, assert_alike, check

INDICES = jnp.array([[3, -1, 0], [12, 5, 5], [-20, 6, 2]])

TAKES = {
    "rows": ((7, 5), INDICES, 0),
    "columns": ((3, 7), INDICES, 1),
    "inside": ((2, 7, 3), INDICES[0], 1),
    "elements": ((2, 5), INDICES, None),
    "one": ((7,), jnp.array(3), 0),
    "none": ((7, 2), jnp.zeros((0,), jnp.int32), 0),
    "unsigned": ((7, 2), jnp.array([3, 9], jnp.uint8), 0),
}


@few(
    "name, mode",
    itertools.product(TAKES, [None, "clip", "wrap"]),
    quick=[
        "rows, clip",
        "columns, clip",
        "inside, wrap",
        "elements, clip",
        "one, clip",
        "none, None",
        "none, wrap",
        "unsigned, clip",
    ],
)
def test_take(name, mode):
    shape, indices, axis = TAKES[name]
    options: Any = {"fill_value": 7} if mode is None and name == "rows" else {}

    def build(graph, x, i):
        return cl.ops.take(graph, x, i, axis, mode=mode, **options)

    plain = lambda x, i: jnp.take(x, i, axis, mode=mode, **options)  # noqa: E731
    tested = mode is None
    check(Case(build, plain, (array(shape), indices), slopes=tested), interpreted=tested, on_tiles=name == "inside")


@few(
    "name, mode",
    itertools.product(["rows", "inside", "elements"], [None, "clip"]),
    quick=["rows, clip"],
)
def test_take_gradient(name, mode):
    shape, indices, axis = TAKES[name]
    take = lambda x: jnp.take(x, indices, axis, mode=mode)  # noqa: E731
    x = array(shape)
    g = array(jax.eval_shape(take, x).shape, seed=1)
    build = lambda graph, g, x, i: cl.ops.take_gradient(graph, g, x, i, axis, mode=mode)  # noqa: E731
    plain = lambda g, x, i: jax.vjp(take, x)[1](g)[0]  # noqa: E731
    check(Case(build, plain, (g, x, indices), slopes=False), interpreted=True, on_tiles=mode is None)


@few("dtype", [jnp.float16, jnp.bfloat16, jnp.int32, bool], quick=["bfloat16", "int32", "bool"])
def test_embedding_dtypes(dtype):
    table, indices = array((11, 6), dtype), jnp.array([[0, 10, 3], [3, 3, -11]])
    build = lambda graph, table, i: cl.ops.embedding(graph, table, i, grain=4)  # noqa: E731
    check(Case(build, lambda table, i: table[i], (table, indices)))
    if jnp.issubdtype(dtype, jnp.floating):
        g = array((2, 3, 6), dtype, seed=1)
        build = lambda graph, g, table, i: cl.ops.embedding_gradient(graph, g, table, i, grain=4)  # noqa: E731
        plain = lambda g, table, i: jax.vjp(lambda table: table[i], table)[1](g)[0]  # noqa: E731
        check(Case(build, plain, (g, table, indices), slopes=False))


G = lax.GatherDimensionNumbers
GATHERS = {
    "windows": ((6, 9), array((4, 1), jnp.int32, low=-2, high=9), G((1, 2), (), (1,)), (6, 3)),
    "two numbers": ((6, 9, 4), array((3, 2, 2), jnp.int32, low=-1, high=9), G((1,), (0, 1), (1, 0)), (1, 1, 4)),
    "slices first": ((6, 9), array((4, 2), jnp.int32, low=0, high=9), G((0, 2), (), (0, 1)), (2, 9)),
    "batches": ((5, 3, 4), array((2, 3, 1), jnp.int32, low=-1, high=5), G((2,), (0,), (0,), (1,), (1,)), (1, 1, 4)),
    "no columns": ((6, 9), array((4, 2), jnp.int32, low=0, high=9), G((), (0, 1), (0, 1)), (1, 1)),
    "from the last": ((6, 9), array((1, 4), jnp.int32, low=0, high=9), G((0,), (1,), (1,)), (6, 1)),
}


@few(
    "name, mode",
    itertools.product(GATHERS, ["fill", "clip"]),
    quick=["windows, fill", "no columns, fill"],
)
def test_gather(name, mode):
    shape, indices, numbers, sizes = GATHERS[name]
    if name == "from the last":
        indices = indices.reshape(4, 1)
    build = lambda graph, x, i: cl.ops.gather(graph, x, i, numbers, sizes, mode=mode)  # noqa: E731
    gather = lambda x, i: lax.gather(x, i, numbers, sizes, mode=mode)  # noqa: E731
    x = array(shape)
    check(Case(build, gather, (x, indices)), interpreted=True, on_tiles=mode == "clip")
    g = array(jax.eval_shape(gather, x, indices).shape, seed=1)
    build = lambda graph, g, x, i: cl.ops.gather_gradient(graph, g, x, i, numbers, sizes, mode=mode)  # noqa: E731
    plain = lambda g, x, i: jax.vjp(lambda x: gather(x, i), x)[1](g)[0]  # noqa: E731
    check(Case(build, plain, (g, x, indices), slopes=False), interpreted=True)


S = lax.ScatterDimensionNumbers
SCATTERS = {
    "rows": ((7, 5), jnp.array([[1], [4], [9], [0]]), (4, 5), S((1,), (0,), (0,))),
    "windows": ((6, 9), jnp.array([[1], [7]]), (6, 2, 2), S((0, 2), (), (1,))),
    "batches": ((5, 3, 4), jnp.array([[[1], [4], [2]], [[3], [0], [5]]]), (2, 3, 4), S((2,), (0,), (0,), (1,), (1,))),
    "elements": ((6, 9), jnp.array([[1, 2], [5, 8], [0, 9]]), (3,), S((), (0, 1), (0, 1))),
}
OPS = {"set": lax.scatter, "add": lax.scatter_add, "multiply": lax.scatter_mul, "min": lax.scatter_min}
OPS["max"] = lax.scatter_max


@few("name", SCATTERS, quick=["batches"])
def test_scatter(name):
    shape, indices, updates, numbers = SCATTERS[name]
    arguments = array(shape), indices, array(updates, seed=1)

    def build(graph, x, i, y):
        every = {op: cl.ops.scatter(graph, x, i, y, numbers, op=op) for op in OPS}
        return every, cl.ops.scatter(graph, x, i, y, numbers, op="add", mode="clip", grain=6)

    def plain(x, i, y):
        every = {op: own(x, i, y, numbers, mode="drop") for op, own in OPS.items()}
        return every, lax.scatter_add(x, i, y, numbers, mode="clip")

    check(Case(build, plain, arguments, slopes=False), interpreted=True, on_tiles=True)
    build = lambda graph, x, i, y: cl.ops.scatter(graph, x, i, y, numbers, op="add")  # noqa: E731
    add = lambda x, i, y: lax.scatter_add(x, i, y, numbers, mode="drop")  # noqa: E731
    check(Case(build, add, arguments))
    gradient = lambda graph, g, i, y: cl.ops.scatter_gradient(graph, g, i, y, numbers, op="add")  # noqa: E731
    pulled = lambda g, i, y: jax.vjp(lambda x, y: add(x, i, y), g, y)[1](g)  # noqa: E731
    check(Case(gradient, pulled, arguments, slopes=False))


def test_scatter_by_rows():
    x, i, y = array((7, 3)), jnp.array([[3, -1], [3, 9]]), array((2, 2, 3), seed=1)

    def build(graph, x, i, y):
        ops = cl.ops
        added = ops.scatter(graph, x, i, y, op="add"), ops.scatter(graph, x, i, y[0, 0], op="max")
        return added, ops.scatter_gradient(graph, x, i, y, op="add")

    def plain(x, i, y):
        added = x.at[i].add(y), x.at[i].max(y[0, 0])
        return added, jax.vjp(lambda x, y: x.at[i].add(y), x, y)[1](x)

    check(Case(build, plain, (x, i, y), slopes=False), interpreted=True, on_tiles=True)


def scatter_gradients(graph, g, x, i, y, numbers=None, **options):
    ops = cl.ops
    most, least = (ops.scatter(graph, x, i, y, numbers, op=op, **options) for op in ("max", "min"))
    return {
        "set": ops.scatter_gradient(graph, g, i, y, numbers, **options),
        "multiply": ops.scatter_gradient(graph, g, i, y, numbers, op="multiply", operand=x, **options),
        "max": ops.scatter_gradient(graph, g, i, y, numbers, op="max", operand=x, result=most, **options),
        "min": ops.scatter_gradient(graph, g, i, y, numbers, op="min", operand=x, result=least, **options),
    }


@few("name", ["windows", "batches", "elements"], quick=["windows"])
def test_scatter_gradients(name):
    shape, indices, updates, numbers = SCATTERS[name]
    x, y, g = array(shape).round(), array(updates, seed=1).round(), array(shape, seed=2)  # ties

    def pulled(op, g, x, i, y):
        return jax.vjp(lambda x, y: OPS[op](x, i, y, numbers, mode="drop", unique_indices=True), x, y)[1](g)

    plain = lambda *own: {op: pulled(op, *own) for op in OPS if op != "add"}  # noqa: E731
    build = lambda graph, *own: scatter_gradients(graph, *own, numbers=numbers)  # noqa: E731
    check(Case(build, plain, (g, x, indices, y), slopes=False), interpreted=name == "elements")


@few("on_tiles", [False, True], quick=["True"])
def test_scatter_gradients_by_rows_that_are_named_again(on_tiles):
    x, i, y = array((7, 3)).round(), jnp.array([3, -1, 3, 9, 3]), array((5, 3), seed=1).round()
    g, once = array((7, 3), seed=2), jnp.array([3, -1, 0, 9, 4])

    def build(graph, g, x, i, once, y):
        several, single = (scatter_gradients(graph, g, x, own, y, grain=4) for own in (i, once))
        return several["max"], several["min"], several["multiply"][0], single["set"], single["multiply"]

    def plain(g, x, i, once, y):
        pull = lambda update: jax.vjp(update, x, y)[1](g)  # noqa: E731
        return (
            pull(lambda x, y: x.at[i].max(y)),
            pull(lambda x, y: x.at[i].min(y)),
            jax.vjp(lambda x: x.at[i].mul(y), x)[1](g)[0],
            pull(lambda x, y: x.at[once].set(y, unique_indices=True)),
            pull(lambda x, y: x.at[once].mul(y, unique_indices=True)),
        )

    check(Case(build, plain, (g, x, i, once, y), slopes=False), on_tiles=on_tiles)


@few("start", [(1, 2), (5, -3), (-9, 99), (0, 0)], quick=["(-9, 99)"])
def test_dynamic_slices(start):
    x, y, g = array((6, 9)), array((3, 9), seed=1), array((3, 4), seed=2)
    i, j = map(jnp.asarray, start)

    def build(graph, x, y, g, i, j):
        ops = cl.ops
        slices = ops.dynamic_slice(graph, x, (i, j), (3, 4)), ops.dynamic_slice(graph, x, start, (2, 9))
        updated = ops.dynamic_update_slice(graph, x, y, (i, 0)), ops.dynamic_update_slice(graph, x, g, (start[0], j))
        return (
            (slices, updated),
            ops.dynamic_slice_gradient(graph, g, x, (i, j)),
            ops.dynamic_update_slice_gradient(graph, x, y, (i, j)),
        )

    def plain(x, y, g, i, j):
        slices = lax.dynamic_slice(x, (i, j), (3, 4)), lax.dynamic_slice(x, start, (2, 9))
        updated = lax.dynamic_update_slice(x, y, (i, 0)), lax.dynamic_update_slice(x, g, (start[0], j))
        return (
            (slices, updated),
            jax.vjp(lambda x: lax.dynamic_slice(x, (i, j), (3, 4)), x)[1](g)[0],
            jax.vjp(lambda x, y: lax.dynamic_update_slice(x, y, (i, j)), x, y)[1](x),
        )

    check(Case(build, plain, (x, y, g, i, j), slopes=start == (5, -3)), interpreted=True, on_tiles=start == (1, 2))


class TestGradientsBeyondTheEnds:
    """What JAX 0.10's own derivatives of the greatest and the least get wrong: they forget that places are clipped."""

    @few(
        "op, dtype",
        itertools.product(["max", "min"], ["int32", "int8", "uint8"]),
        quick=["max, int32", "max, int8", "min, uint8"],
    )
    def test_clipped(self, op, dtype):
        x, u = np.array([1.0, 5.0, 3.0]), np.array([10.0, 2.0, -4.0, 7.0])
        i = np.array([-7, 1, 1, 9] if dtype != "uint8" else [0, 1, 200, 9], dtype)
        places = np.clip(i, 0, 2)

        def by_hand(x, u):
            made = x.copy()
            getattr(np, f"{op}imum").at(made, places, u)
            return made @ [1.0, -2.0, 0.5]

        def differences(values, run):
            steps = 1e-6 * np.eye(len(values))
            return [(run(values + own) - run(values - own)) / 2e-6 for own in steps]

        def plain(x, u):
            return getattr(lax, f"scatter_{op}")(x, i[:, None], u, S((), (0,), (0,)), mode="clip")

        expected = differences(x, lambda x: by_hand(x, u)), differences(u, lambda u: by_hand(x, u))
        traced = cl.trace(lambda x, u: plain(x, u) @ jnp.array([1.0, -2.0, 0.5]), *map(jnp.float32, (x, u)))
        found = cl.gradient(traced.graph, of=traced.outputs, wrt=traced.inputs, program=traced.program)
        run = cl.lower(
            traced.graph,
            cl.Sequence(found.forward, found.backward),
            inputs=[own.source.name for own in traced.inputs],
            outputs=[own.source.name for own in found],
        )
        made = jax.jit(run)({own.source.name: value for own, value in zip(traced.inputs, (x, u), strict=True)})
        slopes = jax.jit(jax.grad(traced, (0, 1)))(jnp.float32(x), jnp.float32(u))
        for own, slope, value in zip(found, slopes, expected, strict=True):
            np.testing.assert_allclose(made[own.source.name], value, 1e-5, 1e-5)
            np.testing.assert_allclose(slope, value, 1e-5, 1e-5)

    def test_slices_of_several_dimensions(self):
        x, u, i = array((5, 4), seed=1), array((3, 2, 2), seed=2), jnp.array([[-3, 9], [1, 1], [7, 0]])
        numbers, inside = S((1, 2), (), (0, 1)), jnp.clip(i, 0, jnp.array([3, 2]))

        def build(graph, x, u):
            at = graph.add_constant("i", np.asarray(i))
            return cl.ops.scatter(graph, x, at, u, numbers, op="max", mode="clip")

        check(Case(build, lambda x, u: lax.scatter_max(x, inside, u, numbers), (x, u)), interpreted=True)

    def test_products_at_places_of_which_it_is_promised_that_none_is_named_twice(self):
        x, u, i = array((5,), seed=1), array((3,), seed=2), np.array([4, 0, 9])
        multiply = lambda x, u: x.at[i].multiply(u, mode="drop", unique_indices=True)  # noqa: E731
        traced = cl.trace(multiply, x, u)
        slopes = lambda run: jax.vjp(run, x, u)[1](jnp.arange(5.0))  # noqa: E731
        jax.tree.map(assert_alike, slopes(traced), slopes(multiply))


SMALL = cl.IPU(num_tiles=16, bytes_per_tile=5_000)
"""So little memory that rows are cut."""


@few("mode", [None, "clip"], quick=["clip"])
def test_rows_are_cut_where_memory_asks(mode):
    table, indices = array((3001, 2)), jnp.array([0, 3000, -1, 1500, 1500, 2999, 3001, -3002, 9999])
    g = array((9, 2), seed=1)

    def build(graph, g, table, i):
        ops = cl.ops
        taken = ops.take(graph, table, i, 0, mode=mode)
        added = ops.scatter(graph, table, i, g, op="add"), ops.scatter(graph, table, i, g, op="max")
        return taken, ops.take_gradient(graph, g, table, i, 0, mode=mode), added

    def plain(g, table, i):
        take = lambda table: jnp.take(table, i, 0, mode=mode)  # noqa: E731
        return take(table), jax.vjp(take, table)[1](g)[0], (table.at[i].add(g), table.at[i].max(g))

    check(Case(build, plain, (g, table, indices), slopes=False), on_tiles=mode is None, target=SMALL)
    graph = cl.Graph(SMALL)
    own, i = graph.add_variable("table", (3001, 2)), graph.add_variable("i", (9, 1), jnp.int32)
    assert cl.ops.plan_gather(graph, own, i, G((1,), (0,), (0,)), (1, 2)).cut("rows").parts > 1


# --- plans ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", [cl.IPU(num_tiles=32), cl.IPU("mk2")], ids=["small", "mk2"])
@pytest.mark.parametrize("columns", [64, 7])
def test_cycles_are_as_planned(columns, target):
    numbers = G((1,), (0,), (0,))
    graph = cl.Graph(target)
    table, i = graph.add_variable("table", (1000, columns)), graph.add_variable("i", (300, 1), jnp.int32)
    cl.ops.gather(graph, table, i, numbers, (1, columns))
    plan = cl.ops.plan_gather(graph, table, i, numbers, (1, columns))
    found = cl.Engine(graph).profile().total_cycles
    assert abs(found - plan.total_cycles) <= 0.1 * found


@pytest.mark.slow
def test_tiles_that_send_many_partial_results_are_planned_as_such():
    types = [((4096, 64), jnp.float32), ((1000, 64), jnp.float32), ((4096,), jnp.int32)]
    plan = cl.ops.plan_operation(
        cl.IPU("mk2"), cl.ops.embedding_gradient, *(jax.ShapeDtypeStruct(*own) for own in types)
    )
    graph = cl.Graph(cl.IPU("mk2"))
    cl.ops.embedding_gradient(graph, *(graph.add_variable(f"x{k}", *own) for k, own in enumerate(types)))
    found = cl.Engine(graph).profile().total_cycles
    assert found < 10_500
    assert plan.total_cycles == pytest.approx(found, rel=0.1)


@pytest.mark.parametrize(("rows", "columns", "count"), [(40, 12, 30), (50, 1, 64), (9, 100, 3)])
def test_the_choice_is_near_the_best(rows, columns, count):
    graph = cl.Graph(cl.IPU(num_tiles=12))
    table, i = graph.add_variable("table", (rows, columns)), graph.add_variable("i", (count, 1), jnp.int32)
    numbers, sizes = G((1,), (0,), (0,)), (1, columns)
    chosen = cl.ops.plan_gather(graph, table, i, numbers, sizes).total_cycles
    form = gather_form("gather", table, i, numbers, sizes, "fill", None)
    lookup = _gather_lookup(form, table, i, "fill", None)
    whole = lookup.names.index("rows")
    blocks = [sorted({-(-extent // k) for k in range(1, 13)}) for extent in lookup.extents]
    blocks[whole] = [rows]
    costs = []
    for own in itertools.product(*blocks):
        for grains in itertools.product(*({1, -(-size // 6), size} for size in own)):
            pairs = zip(lookup.names, lookup.extents, own, grains, strict=True)
            cuts = tuple(Cut(n, e, min(e, -(-b // g) * g), g) for n, e, b, g in pairs)
            if num_tiles(cuts) <= 12 and grains[whole] == rows:
                costs.append(sum(step.cycles for step in _price(graph.target, lookup, gather_block, cuts)))
    assert chosen <= 1.05 * min(costs)


@few("target", [TARGET, SMALL], quick=["IPU('mk2', num_tiles=16, bytes_per_tile=5000)"])
def test_tiles_add_up_some_of_the_indices_each(target):
    table, indices = array((900 if target is SMALL else 40, 2)), array((500,), jnp.int32, low=-40, high=39)
    g, graphs = array((500, 2), seed=1), []

    def build(graph, g, table, i):
        graphs.append(graph)
        return cl.ops.embedding_gradient(graph, g, table, i)

    plain = lambda g, table, i: jax.vjp(lambda table: table[i], table)[1](g)[0]  # noqa: E731
    check(Case(build, plain, (g, table, indices), slopes=False), on_tiles=True, target=target)
    names = [own.name.split("/")[-1] for own in graphs[-1].compute_sets]
    assert {"update", "add up"} <= {*names}
    if target is TARGET:  # one tile alone takes about 60 cycles for each index
        assert cl.Engine(graphs[-1]).profile().total_cycles < 500 * 60 / 2


@pytest.mark.slow
@hypothesis.given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 9), st.integers(1, 60))
@examples(3)
def test_any_grain_gives_the_same(rows, columns, count, grain):
    table, g = array((rows, columns)), array((count, columns), seed=1)
    i = array((count,), jnp.int32, low=-rows, high=rows - 1)

    def build(graph, g, table, i):
        gradient = cl.ops.embedding_gradient(graph, g, table, i, grain=grain)
        return cl.ops.embedding(graph, table, i, grain=grain), gradient

    plain = lambda g, table, i: (table[i], jax.vjp(lambda table: table[i], table)[1](g)[0])  # noqa: E731
    check(Case(build, plain, (g, table, i), slopes=False), on_tiles=True)


# --- mistakes -------------------------------------------------------------------------------------------------

ROWS = G((1,), (0,), (0,))


def _of_max(ops, graph, x, i, **others):
    return ops.scatter_gradient(graph, x, i, x[:3], op="max", **others)


MISTAKES = {
    "axis": (OperationError, "axis of ops.take", lambda ops, g, x, i: ops.take(g, x, i, 2)),
    "mode": (OperationError, "mode of ops.take is unknown", lambda ops, g, x, i: ops.take(g, x, i, 0, mode="raise")),
    "floats": (OperationError, "no integers", lambda ops, g, x, i: ops.take(g, x, x, 0)),
    "table": (OperationError, "rows and columns", lambda ops, g, x, i: ops.embedding(g, x[0], i)),
    "numbers": (FieldTypeError, "something else than a tensor", lambda ops, g, x, i: ops.take(g, x, [1, 2], 0)),
    "gather": (OperationError, "what jax.lax.gather takes", lambda ops, g, x, i: ops.gather(g, x, i, ROWS, (1, 9))),
    "gather mode": (OperationError, "mode of", lambda ops, g, x, i: ops.gather(g, x, i, ROWS, (1, 4), mode="away")),
    "op": (OperationError, "op of ops.scatter", lambda ops, g, x, i: ops.scatter(g, x, i, x, op="divide")),
    "updates": (OperationError, r"updates.*\(3, 4\)", lambda ops, g, x, i: ops.scatter(g, x, i, x[:, :3])),
    "set": (OperationError, "updates.*broadcast", lambda ops, g, x, i: ops.scatter_gradient(g, x, i, x[0])),
    "most": (OperationError, "result of", lambda ops, g, x, i: _of_max(ops, g, x, i, operand=x, result=x[0])),
    "no result": (OperationError, 'op="max" lacks result', lambda ops, g, x, i: _of_max(ops, g, x, i, operand=x)),
    "starts": (OperationError, "does not fit", lambda ops, g, x, i: ops.dynamic_slice(g, x, (i[0],), (2, 2))),
    "start": (OperationError, "start 1 of", lambda ops, g, x, i: ops.dynamic_slice(g, x, (i[0], x[0, 0]), (2, 2))),
    "slice": (OperationError, "does not fit", lambda ops, g, x, i: ops.dynamic_slice(g, x, (i[0], 0), (2, 5))),
    "cotangent": (OperationError, "cotangent", lambda ops, g, x, i: ops.embedding_gradient(g, x[:2], x, i)),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes(name):
    kind, text, make = MISTAKES[name]
    graph = cl.Graph(TARGET)
    x, i = graph.add_variable("x", (5, 4)), graph.add_variable("i", (3,), jnp.int32)
    with pytest.raises(CodeletError) as caught:
        make(cl.ops, graph, x, i)
    assert caught.type is kind
    assert re.search(text, str(caught.value), re.DOTALL), caught.value


NARROW = {
    "take": lambda graph, x, i, u: (
        cl.ops.take(graph, x, i, 0, fill_value=7.0),
        cl.ops.take(graph, x, i, 0, mode="clip"),
        cl.ops.take(graph, x, i, 0, mode="wrap"),
    ),
    "slopes": lambda graph, x, i, u: (
        cl.ops.embedding_gradient(graph, u, x, i),
        cl.ops.scatter_gradient(graph, x, i, u),
    ),
    "scatter": lambda graph, x, i, u: (
        cl.ops.scatter(graph, x, i, u),
        cl.ops.scatter(graph, x, i, u, op="max", mode="clip"),
    ),
    "slice": lambda graph, x, i, u: (
        cl.ops.dynamic_slice(graph, x, (i[0], 0), (3, 2)),
        cl.ops.dynamic_slice(graph, x, (i[1], i[0]), (3, 1), allow_negative_indices=False),
        cl.ops.dynamic_update_slice(graph, x, u, (i[0], -1)),
        cl.ops.dynamic_update_slice(graph, x, u, (i[1], -1), allow_negative_indices=False),
        cl.ops.dynamic_slice_gradient(graph, u, x, (i[1], 0), allow_negative_indices=False),
        cl.ops.dynamic_update_slice_gradient(graph, x, u, (i[1], 0), allow_negative_indices=False),
    ),
}


@few(
    "name, memory, dtype",
    itertools.product(NARROW, [None, 600], [jnp.uint8, jnp.int8, jnp.int16, jnp.uint32]),
    quick=["take, 600, uint32", "slopes, None, int8", "scatter, 600, uint8", "slice, 600, int16"],
)
def test_indices_of_narrow_dtypes_lead_where_wide_ones_do(name, memory, dtype):
    """A table of more rows than the dtype counts, whole or cut into blocks of rows where tiles have little memory."""
    signed = jnp.issubdtype(dtype, jnp.signedinteger)
    numbers = [120, -100, -2, 3, 0, 7] if signed else [250, 129, 255, 3, 0, 7]
    x, i, u = array((300, 2)), jnp.array(numbers), array((6, 2), seed=1)
    target = TARGET if memory is None else cl.IPU(num_tiles=8, bytes_per_tile=memory)
    ours, wide = (cl.lower(NARROW[name], target=own) for own in (target, TARGET))
    found, right = jax.jit(lambda x, i, u: (ours(x, i.astype(dtype), u), wide(x, i, u)))(x, i, u)
    jax.tree.map(assert_alike, found, right)


@pytest.mark.slow
def test_starts_count_from_the_end_once_or_not_at_all():
    x, u, i = array((6,)), array((2,), seed=1), jnp.array(-1)

    def build(graph, x, u, i):
        ops, late = cl.ops, {"allow_negative_indices": False}
        return [
            *(ops.dynamic_slice(graph, x, (own,), (2,)) for own in (i, -1, -9)),
            *(ops.dynamic_slice(graph, x, (own,), (2,), **late) for own in (i, -1, -9)),
            *(ops.dynamic_update_slice(graph, x, u, (own,)) for own in (i, -1, -9)),
            *(ops.dynamic_update_slice(graph, x, u, (own,), **late) for own in (i, -1, -9)),
        ]

    def plain(x, u, i):
        ends, begins = (4, 4, 0), (0, 0, 0)
        return [*(x[k : k + 2] for k in (*ends, *begins)), *(x.at[k : k + 2].set(u) for k in (*ends, *begins))]

    check(Case(build, plain, (x, u, i)), interpreted=True, on_tiles=True)
