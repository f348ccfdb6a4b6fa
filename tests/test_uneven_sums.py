"""Partial sums of uneven blocks: one array for all blocks, and one reduction of what they were made of."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from lowering.join.join import join
from lowering.pipeline import plan_graph
from lowering.plan.steps import ExecuteStep
from lowering.plan.walk import all_steps
from tests.examples import examples
from tests.gradients import compare, prove

bent = cl.codelet(lambda x, row, column, most: jnp.tanh(x * row[:, None] + column) * most)
normed = cl.codelet(lambda x, row, column, most: (x - x.mean(-1, keepdims=True)) * row[:, None] * most + column)
both = cl.codelet(lambda x: {"y": jnp.exp(x), "part": (x * x).sum(0)})
moved = cl.codelet(lambda x: {"y": jnp.cumsum(x, 0) / x.sum(), "part": (x * x).sum(0), "sums": x.sum(0)})
added = cl.codelet(lambda x: x.sum(0))


def _stretches(lengths):
    return [slice(stop - n, stop) for n, stop in zip(lengths, itertools.accumulate(lengths), strict=True)]


def _blocks(codelet, rows, columns):
    """A graph of blocks of rows and columns of some lengths, the result, and what it is made of."""
    graph, shape = cl.Graph(cl.IPU(num_tiles=8)), (sum(rows), sum(columns))
    x, row, column = (graph.add_variable(*own) for own in (("x", shape), ("row", shape[:1]), ("column", shape[1:])))
    most, y = graph.add_variable("most", ()), graph.add_variable("y", shape)
    for i, j in itertools.product(_stretches(rows), _stretches(columns)):
        graph.add_vertex("blocks", codelet, x=x[i, j], row=row[i], column=column[j], most=most, out=y[i, j])
    return graph, y, [x, row, column, most]


def _steps(plan):
    return [step for step in all_steps(plan.steps) if isinstance(step, ExecuteStep)]


lengths = st.lists(st.integers(1, 3), min_size=1, max_size=4)


@examples(5)
@given(lengths, lengths)
def test_gradients_of_blocks_of_any_lengths(rows, columns):
    compare(*_blocks(bent, rows, columns), None, by_tables=True)


def test_blocks_and_what_is_left_over_write_one_array_of_partial_sums():
    """Eight blocks, of four lengths, are as one block is: a map, and a reduction for each operand that is repeated."""
    lowered = compare(*_blocks(bent, [2, 2, 2, 1], [3, 2]), None)
    families = [line for line in str(lowered.plan).splitlines() if line.startswith("  backward/")]
    mapped, *reductions = families
    assert mapped.endswith("35 vertices over i0*d_x.0: 7 x d_x.1: 5")
    assert all(" / reduce_sum: " in line for line in reductions)
    assert len(reductions) == 3


@pytest.mark.parametrize("codelet", [bent, normed], ids=["maps", "rows"])
def test_gradients_are_proved(codelet):
    prove(*_blocks(codelet, [3, 3, 2], [4]))


def test_rows_that_are_no_maps_keep_their_partial_sums_but_for_plain_ones():
    lowered = compare(*_blocks(normed, [3, 3, 2], [4]), "/ reduce_sum: 4 vertices over kept: 4")
    assert "backward/blocks/most at" in str(lowered.plan)
    assert "backward/blocks/column at" not in str(lowered.plan)


# --- in the forward pass ----------------------------------------------------------------------------------------------


def _uneven(codelet, *, dtype: type = np.float32, last=added, rows=(3, 3, 1)):
    """Blocks of rows that write partial sums beside other results, and the sum of these."""
    graph = cl.Graph()
    x, y = (graph.add_variable(name, (sum(rows), 5), dtype) for name in "xy")
    parts, total = graph.add_variable("parts", (len(rows), 5), dtype), graph.add_variable("total", (5,), dtype)
    more = {"sums": graph.add_variable("sums", (len(rows), 5), dtype)} if codelet is moved else {}
    for k, i in enumerate(_stretches(rows)):
        results = {"y": y[i], "part": parts[k], **{name: own[k] for name, own in more.items()}}
        graph.add_vertex("blocks", codelet, x=x[i], **results)
    graph.add_vertex("sum", last, x=parts, out=total)
    totals = [total]
    for own in more.values():
        totals.append(graph.add_variable("total of sums", (5,), dtype))
        graph.add_vertex("sum of sums", last, x=own, out=totals[-1])
    return graph, [y, *totals]


def _agree(graph, outputs, program=None, tolerance=1e-5):
    """See that a graph gives what its vertices do; the compute sets of its plan, once what was cut is joined."""
    x = graph.variable("x")
    values = {"x": np.random.default_rng(0).uniform(0.5, 1, x.shape).astype(x.dtype)}
    program = cl.Sequence(*graph.compute_sets) if program is None else program
    expected = cl.interpret(graph, values=values, outputs=outputs, program=program)
    found = jax.jit(cl.lower(graph, program, inputs=["x"], outputs=outputs))(values)
    for name, own in expected.items():
        np.testing.assert_allclose(np.asarray(found[name], np.float64), np.asarray(own, np.float64), tolerance)
    return _steps(join(plan_graph(graph, program, graph.sources, outputs)))


def test_partial_sums_beside_maps_are_of_what_these_are_of():
    graph, outputs = _uneven(both)
    blocks, total = _agree(graph, outputs)
    assert [own.name for own in blocks.writes] == ["y"]
    assert [own.name for own in total.reads] == ["x"]
    (mapped,) = blocks.families
    assert mapped.num_vertices == 35
    assert {own.num_vertices for own in blocks.parts[mapped]} == {1, 2}


def test_in_loops_and_in_functions():
    graph, outputs = _uneven(both)
    x, y = graph.variable("x"), graph.variable("y")
    body = cl.Sequence(*graph.compute_sets, cl.Copy(y, x))
    blocks, total = _agree(graph, outputs, cl.Repeat(2, body))
    assert [own.name for own in blocks.writes] == ["y"]
    assert [own.name for own in total.reads] == ["x"]


@pytest.mark.parametrize("kept", ["a result", "another reader", "an array that is a parameter"])
def test_partial_sums_that_others_read_are_kept(kept):
    graph, outputs = _uneven(both)
    parts = graph.variable("parts")
    program = None
    if kept == "a result":
        outputs = [*outputs, parts]
    elif kept == "another reader":
        other = graph.add_variable("other", parts.shape)
        i = cl.grid(parts.shape[0])
        graph.add_vertex("others", cl.codelet(lambda x: 2 * x), x=parts[i], out=other[i])
        outputs = [*outputs, other]
    else:
        first, second = graph.compute_sets
        held = graph.add_variable("held", parts.shape)
        function = graph.add_function(cl.Sequence(first, second), parameters=[parts])
        program = cl.Call(function, parts=held)
        outputs = [*outputs, held]
    blocks, *_ = _agree(graph, outputs, program)
    assert "parts" in [own.name for own in blocks.writes]


def test_partial_sums_beside_no_maps_are_kept_but_for_plain_ones():
    """The sums of squares would be of squares that are computed again; the elements themselves are there."""
    graph, outputs = _uneven(moved)
    blocks, total, sums = _agree(graph, outputs)
    assert [own.name for own in blocks.writes] == ["y", "parts"]
    assert [own.name for own in total.reads] == ["parts"]
    assert [own.name for own in sums.reads] == ["x"]


def test_short_floats_are_rounded_as_they_were():
    blocks, total = _agree(*_uneven(both, dtype=np.float16), tolerance=1e-2)
    assert [own.name for own in blocks.writes] == ["y", "parts"]
    assert [own.name for own in total.reads] == ["parts"]


def test_another_reduction_of_partial_sums_is_none_of_all():
    blocks, total = _agree(*_uneven(both, last=cl.codelet(lambda x: x.max(0))))
    assert [own.name for own in blocks.writes] == ["y", "parts"]
    assert [own.name for own in total.reads] == ["parts"]


def test_blocks_of_one_length_stay_one_family():
    graph, outputs = _uneven(both, rows=(3, 3, 3))
    blocks, total = _agree(graph, outputs)
    assert [own.name for own in total.reads] == ["parts"]
    assert [own.num_vertices for own in blocks.families] == [3]


# --- sums over rows ---------------------------------------------------------------------------------------------------


def _columns(term, *, cut=3):
    """Sums over rows of a map of a matrix and of a number for each row and each column, by columns, in two stages."""
    graph, shape = cl.Graph(), (6, 5)
    x, row, column = (graph.add_variable(*own) for own in (("x", shape), ("row", shape[:1]), ("column", shape[1:])))
    total, (k, j) = graph.add_variable("total", shape[1:]), cl.grid(shape[0] // cut, shape[1])
    rows = slice(cut * k, cut * k + cut)
    parts = graph.add_vertex("parts", cl.codelet(term), x=x[rows, j], row=row[rows], column=column[j])
    j = cl.grid(shape[1])
    graph.add_vertex("sum", cl.codelet(lambda x: x.sum()), x=parts[:, j], out=total[j])
    return graph


@pytest.mark.parametrize("cut", [3, 6])
def test_columns_of_maps_are_reduced_as_the_matrix_lies(cut):
    graph = _columns(lambda x, row, column: (jnp.minimum(row + column, x) * x).sum(), cut=cut)
    values = {v.name: np.random.default_rng(0).normal(size=v.shape).astype(np.float32) for v in graph.sources}
    lowered = cl.lower(graph, inputs=[*values], outputs=["total"])
    assert "reduced as it lies over" in str(lowered.plan)
    assert "transpose" not in [eqn.primitive.name for eqn in lowered.jaxpr.eqns]
    expected = cl.interpret(graph, values=values, outputs=["total"])["total"]
    found, slopes = jax.jit(jax.value_and_grad(lambda own: lowered(own)["total"].sum()))(values)
    np.testing.assert_allclose(jax.jit(lowered)(values)["total"], expected, rtol=1e-5)

    def plain(own):
        least = jnp.minimum(own["row"][:, None] + own["column"], own["x"])
        return (least * own["x"]).sum()

    for own, other in zip(
        jax.tree.leaves((found, slopes)), jax.tree.leaves(jax.value_and_grad(plain)(values)), strict=True
    ):
        np.testing.assert_allclose(own, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", ["max", "prod", "min"])
def test_other_reductions_as_the_matrix_lies(name):
    graph = cl.Graph()
    x, row = graph.add_variable("x", (6, 5)), graph.add_variable("row", (6,))
    j = cl.grid(5)
    own = cl.codelet(lambda x, row: getattr(jnp, name)(x * row))
    y = graph.add_vertex("columns", own, x=x[:, j], row=row)
    values = {v.name: np.random.default_rng(0).normal(size=v.shape).astype(np.float16) for v in (x, row)}
    values = {name: own.astype(np.float32) for name, own in values.items()}
    lowered = cl.lower(graph, inputs=[x, row], outputs=[y])
    assert "reduced as it lies over" in str(lowered.plan)
    expected = cl.interpret(graph, values=values, outputs=[y])[y]
    np.testing.assert_allclose(jax.jit(lowered)(values)[y], expected, rtol=1e-6)


@pytest.mark.parametrize(
    "codelet",
    [
        cl.codelet(lambda x, row: (x * row)[::2].sum()),  # of some elements alone
        cl.codelet(lambda x, row: (x * jnp.flip(row)).sum()),
        cl.codelet(lambda x, row: x.sum() + row.sum()),
    ],
)
def test_what_is_no_reduced_map_runs_under_vmap(codelet):
    graph = cl.Graph()
    x, row = graph.add_variable("x", (6, 5)), graph.add_variable("row", (6,))
    j = cl.grid(5)
    y = graph.add_vertex("columns", codelet, x=x[:, j], row=row)
    values = {v.name: np.random.default_rng(0).normal(size=v.shape).astype(np.float32) for v in (x, row)}
    lowered = cl.lower(graph, inputs=[x, row], outputs=[y])
    assert "reduced as it lies over" not in str(lowered.plan)
    expected = cl.interpret(graph, values=values, outputs=[y])[y]
    np.testing.assert_allclose(jax.jit(lowered)(values)[y], expected, rtol=1e-5, atol=1e-6)
