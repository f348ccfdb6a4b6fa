"""Matrix products as operations: values, slopes, plans, and what is told of operands that do not fit."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax import lax

import codelet as cl
from codelet.ops.product_planning import Codelets, Dimension, Product, plan_product, work_of
from tests.every_cut import least_of_all
from tests.examples import examples, few
from tests.ops_cases import Case, array, assert_alike, check

NUMBERS = {
    "matrices": ((5, 7), (7, 3), (((1,), (0,)), ((), ()))),
    "both transposed": ((7, 5), (3, 7), (((0,), (1,)), ((), ()))),
    "batches": ((2, 5, 4), (2, 4, 3), (((2,), (1,)), ((0,), (0,)))),
    "batches inside": ((5, 2, 4), (4, 3, 2), (((2,), (0,)), ((1,), (2,)))),
    "two summed": ((3, 4, 5), (5, 4, 6), (((1, 2), (1, 0)), ((), ()))),
    "outer": ((3,), (4,), (((), ()), ((), ()))),
    "inner": ((13,), (13,), (((0,), (0,)), ((), ()))),
    "vector": ((13, 8), (8,), (((1,), (0,)), ((), ()))),
    "ones": ((1, 1), (1, 1), (((1,), (0,)), ((), ()))),
    "nothing summed": ((3, 0), (0, 4), (((1,), (0,)), ((), ()))),
    "no rows": ((0, 3), (3, 4), (((1,), (0,)), ((), ()))),
}


@few(
    "name",
    NUMBERS,
    quick=["two summed", "no rows"],
)
def test_dot_general(name):
    a, b, numbers = NUMBERS[name]
    grains = None, 1, 6
    case = Case(
        lambda graph, a, b: [cl.ops.dot_general(graph, a, b, numbers, grain=grain) for grain in grains],
        lambda a, b: [lax.dot_general(a, b, numbers) for _ in grains],
        (array(a), array(b, seed=1)),
    )
    check(case, interpreted=True, on_tiles=True)


@few("dtype", [jnp.float16, jnp.bfloat16, jnp.int32], ids=lambda dtype: dtype.__name__, quick=["int32"])
def test_dtypes(dtype):
    numbers = (((1,), (0,)), ((), ()))
    case = Case(
        lambda graph, a, b: cl.ops.dot_general(graph, a, b, numbers, grain=40),
        lambda a, b: lax.dot_general(a, b, numbers),
        (array((9, 50), dtype), array((50, 11), dtype, seed=1)),
    )
    check(case, interpreted=True)


@few(
    "name",
    [name for name in NUMBERS if name not in ("nothing summed", "no rows")],
    quick=["batches inside"],
)
def test_gradients(name):
    a, b, numbers = NUMBERS[name]
    shape = jax.eval_shape(lambda a, b: lax.dot_general(a, b, numbers), array(a), array(b)).shape

    def plain(cotangent, a, b):
        return jax.vjp(lambda a, b: lax.dot_general(a, b, numbers), a, b)[1](cotangent)

    def ours(graph, cotangent, a, b):
        return cl.ops.dot_general_gradient(graph, cotangent, a, b, numbers)

    check(Case(ours, plain, (array(shape, seed=2), array(a), array(b, seed=1))), interpreted=True)


SHAPES = [
    ((3, 4), (4, 5)),
    ((4,), (4, 5)),
    ((3, 4), (4,)),
    ((4,), (4,)),
    ((2, 3, 4), (2, 4, 5)),
    ((2, 3, 4), (4, 5)),
    ((3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (3, 4, 5)),
    ((6, 2, 3, 4), (4,)),
    ((4,), (2, 4, 3)),
]


@few("a, b", SHAPES, quick=["(4), (4, 5)", "(3, 4), (4)", "(4), (4)", "(2, 3, 4), (4, 5)", "(2, 1, 3, 4), (3, 4, 5)"])
def test_matmul_and_its_gradients(a, b):
    shape = jax.eval_shape(jnp.matmul, array(a), array(b)).shape
    has_gradients = a != (2, 1, 3, 4)

    def plain(cotangent, a, b):
        product, pull = jax.vjp(jnp.matmul, a, b)
        return product, pull(cotangent) if has_gradients else None

    def ours(graph, cotangent, a, b):
        slopes = cl.ops.matmul_gradient(graph, cotangent, a, b) if has_gradients else None
        return cl.ops.matmul(graph, a, b), slopes

    check(Case(ours, plain, (array(shape, seed=2), array(a), array(b, seed=1))))


# --- plans ------------------------------------------------------------------------------------------------


def predicted_and_profiled(target, rows, summed, columns, dtype=jnp.float32, **options):
    """The cycles of a plan, and those of the profile of the graph that is made by it."""
    graph = cl.Graph(target)
    a, b = graph.add_variable("a", (rows, summed), dtype), graph.add_variable("b", (summed, columns), dtype)
    out = cl.ops.matmul(graph, a, b, **options)
    plan = cl.ops.plan_matmul(target, rows, summed, columns, dtype=dtype, **options)
    return plan, cl.Engine(graph).profile(host_visible=[a, b, out])


@few(
    "rows, summed, columns, dtype",
    [
        (512, 512, 512, jnp.float32),
        (1, 9216, 4096, jnp.float16),
        (10_000, 1_000, 1, jnp.float16),
        (500, 700, 300, jnp.float32),
        (100, 100, 100, jnp.float16),
    ],
    quick=["100, 100, 100, float16"],
)
def test_the_profile_counts_what_was_planned(rows, summed, columns, dtype):
    plan, profile = predicted_and_profiled(cl.IPU("mk2"), rows, summed, columns, dtype)
    assert plan.total_cycles == pytest.approx(profile.total_cycles, rel=0.1)
    assert [step.num_vertices for step in plan.steps] == [step.num_vertices for step in profile.steps]


@examples(3)
@given(st.tuples(*[st.integers(1, 40)] * 3), st.sampled_from([None, 1, 7, 100]))
def test_any_plan_gives_the_product(sizes, grain):
    rows, summed, columns = sizes
    a, b = array((rows, summed)), array((summed, columns), seed=1)
    layer = cl.lower(lambda graph, a, b: cl.ops.matmul(graph, a, b, grain=grain), target=cl.IPU(num_tiles=5))
    assert_alike(layer(a, b), a @ b)


@few("sizes", [(12, 12, 12), (5, 40, 7), (30, 6, 1), (1, 64, 16)], quick=["(12, 12, 12)", "(30, 6, 1)"])
def test_the_choice_is_about_the_best(sizes):
    """Beside all blocks of tiles there are, each in the vertices that the planner may make of it."""
    target, dtype = cl.IPU(num_tiles=6), np.dtype(np.float32)
    rows, summed, columns = sizes
    product = (
        Dimension("rows", "rows", rows),
        Dimension("columns", "columns", columns),
        Dimension("summed", "summed", summed),
    )
    own = Product(product, dtype, dtype, dtype)
    least = least_of_all(target, work_of(own))
    assert plan_product(target, own).total_cycles <= 1.05 * least


IDEAL = {"sync_cycles": 0, "exchange_overhead_cycles": 0, "launch_cycles": 0, "route": None, "paired_exchange": False}
"""The machine of Poplar's tutorial: nothing takes time but words and multiply-adds."""


def tutorial_cycles(summed):
    return 5 + (summed + 1) // 2


TUTORIAL = Codelets(
    cl.codelet(lambda a, b: a @ b, cycles=lambda a, b: a.shape[0] * tutorial_cycles(a.shape[1])),
    None,
    cl.codelet(
        lambda partials: partials.sum(0), cycles=lambda partials: partials.shape[1] * tutorial_cycles(partials.shape[0])
    ),
)
"""A dot product, and a sum, as the tutorial counts them."""


@few("chip, parts, cycles", [("mk2", 7, 3_996), ("mk1", 5, 4_751)], quick=["mk1, 5, 4751"])
def test_the_plan_of_poplars_tutorial(chip, parts, cycles):
    target = cl.IPU(chip, **IDEAL)
    plan, profile = predicted_and_profiled(target, 10_000, 1_000, 1, codelets=TUTORIAL)
    assert (plan.cut("summed").vertices, plan.total_cycles) == (parts, cycles)
    assert profile.total_cycles == pytest.approx(cycles, rel=0.02)


# --- mistakes ---------------------------------------------------------------------------------------------


def test_mistakes_are_told():
    graph, other = cl.Graph(), cl.Graph()
    x, w = graph.add_variable("x", (4, 3)), graph.add_variable("w", (4, 5))
    whole = graph.add_variable("n", (3, 2), jnp.int32)
    i = cl.grid(4)
    mistakes = [
        (lambda: cl.ops.matmul(graph, x, w), cl.OperationError, "do not fit", "(4, 3) and (4, 5)"),
        (lambda: cl.ops.matmul(graph, x, whole), cl.OperationError, "several dtypes", "ops.cast"),
        (lambda: cl.ops.matmul(graph, x, np.ones((3, 2))), cl.FieldTypeError, "'b'", "add_constant"),
        (lambda: cl.ops.matmul(other, x, w), cl.ForeignGraphError, "another graph", "'a'"),
        (lambda: cl.ops.matmul(x, w, w), cl.FieldTypeError, "graph first", "ops.matmul(graph"),
        (lambda: cl.ops.matmul(graph, x[i], w), cl.FieldTypeError, "symbols", "'a'"),
        (lambda: cl.ops.matmul(graph, x, w.T.T[:3], grain=0), cl.OperationError, "grain", "multiply-adds"),
        (lambda: cl.ops.dot_general(graph, x, w, (((5,), (0,)), ((), ()))), cl.OperationError, "an axis", "-2 to 1"),
        (lambda: cl.ops.dot_general(graph, x, w, 3), cl.OperationError, "two pairs", "contracted"),
        (lambda: cl.ops.dot_general(graph, x, w, (((0,), (0,)), ((0,), (0,)))), cl.OperationError, "twice", "(0, 0)"),
        (
            lambda: cl.ops.dot_general(graph, x, w, (((1,), (0,)), ((), ()))),
            cl.OperationError,
            "contracted",
            "[3] of a",
        ),
        (lambda: cl.ops.matmul(graph, x, w.T, partials="no"), cl.OperationError, "partials", "jnp.float32"),
    ]
    before = graph.num_vertices, len(graph.variables)
    for wrong, kind, problem, given_text in mistakes:
        with pytest.raises(kind) as told:
            wrong()
        text = str(told.value)
        assert problem in text
        assert given_text in text
        assert "test_ops_matmul.py" in text
    assert (graph.num_vertices, len(graph.variables)) == before


def test_names_and_lines_are_the_users():
    graph = cl.Graph()
    x, w = graph.add_variable("x", (40, 30)), graph.add_variable("w", (30, 20))
    with graph.scope("layer"):
        cl.ops.matmul(graph, x, w, grain=10)
        cl.ops.matmul(graph, x, w)
    names = [compute_set.name for compute_set in graph.compute_sets]
    assert names[:2] == ["layer/matmul/multiply", "layer/matmul/multiply/add up"]
    assert all(name.startswith("layer/matmul_2/") for name in names[2:])
    assert {family.lines[0].text for family in graph.families} == {
        "cl.ops.matmul(graph, x, w, grain=10)",
        "cl.ops.matmul(graph, x, w)",
    }


# --- where things lie ---------------------------------------------------------------------------------------


def trained(rows, columns, *, like):
    """A matrix, its products forward and backward, its gradient, and its update: what each step receives."""
    graph = cl.Graph(cl.IPU(num_tiles=64))
    w = graph.add_variable("w", (rows, columns))
    x, slope = graph.add_variable("x", (columns, 1)), graph.add_variable("slope", (rows, 1))
    cl.ops.matmul(graph, w, x, name="forward")
    cl.ops.dot_general(graph, slope, w, (((0,), (0,)), ((), ())), name="by_x")
    options = {"like": w} if like else {}
    by_w = cl.ops.dot_general(graph, slope, x, (((1,), (1,)), ((), ())), name="by_w", **options)
    new = cl.ops.map(graph, lambda w, g: w - 0.1 * g, w, by_w, name="update")
    machine = cl.Engine(graph).machine(host_visible=[w, x, slope, new])
    steps = {moment.name: moment.step for moment in machine.liveness.timeline.moments}
    moved = {name: int(machine.exchange.of(step).before.received_bytes.sum()) for name, step in steps.items()}
    return {name.split("/")[0].removeprefix("execute "): moved[name] for name in moved if "add up" not in name}


@few("rows, columns", [(512, 768), (1024, 2048)], quick=["1024, 2048"])
def test_a_matrix_stays_where_it_is_forward_backward_and_updated(rows, columns):
    whole = rows * columns * 4
    moved = trained(rows, columns, like=True)
    assert moved["update"] == 0
    assert moved["by_x"] < whole / 8
    assert trained(rows, columns, like=False)["update"] > whole / 2


def test_what_is_like_the_results_is_of_their_shape():
    graph = cl.Graph()
    x, w = graph.add_variable("x", (4, 6)), graph.add_variable("w", (6, 5))
    with pytest.raises(cl.OperationError, match="not of the results' shape"):
        cl.ops.dot_general(graph, x, w, (((1,), (0,)), ((), ())), like=w)


@pytest.mark.parametrize(
    ("dtype", "options", "told"),
    [
        (jnp.float32, {"partials": "int32"}, "partials='int32', for sums of float32"),
        (jnp.float16, {"preferred_element_type": jnp.int32}, "preferred_element_type='int32', for sums of float16"),
        (jnp.int32, {"partials": jnp.int8}, "partials='int8', for sums of int32"),
        (jnp.int32, {"partials": jnp.float32}, "partials='float32', for sums of int32"),
        (jnp.complex64, {"partials": jnp.float32}, "partials='float32', for sums of complex64"),
    ],
)
def test_partial_sums_that_hold_no_sums_are_told(dtype, options, told):
    graph = cl.Graph()
    a, b, image = (graph.add_variable(n, shape, dtype) for n, shape in (("a", (4, 6)), ("b", (6, 5)), ("i", (1, 1, 8))))
    with pytest.raises(cl.OperationError, match=f"(?s){told}.*fix: .*ops.cast"):
        cl.ops.matmul(graph, a, b, **options)
    with pytest.raises(cl.OperationError, match=told):
        cl.ops.conv_general_dilated(graph, image, image, (1,), "VALID", **options)
    with pytest.raises(cl.OperationError, match=told.replace("preferred_element_type", "partials")):
        own = {"partials": next(iter(options.values()))}
        cl.ops.plan_matmul(graph.target, 4, 6, 5, dtype=dtype, **own)
