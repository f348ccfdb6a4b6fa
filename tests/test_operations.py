"""What a graph remembers of operations, and that they stand for no vertices."""

from __future__ import annotations

import copy
import pickle

import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.graphs.operations import vertices_of
from codelet.graphs.stages import Cut
from codelet.ops.blocks import add_blocks


@cl.codelet
def add_one(x):
    return x + 1


def attention() -> tuple[cl.Graph, cl.Tensor]:
    """Attention of two heads, in a scope."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x = graph.add_variable("x", (8, 16))
    weights = [graph.add_variable(f"w{k}", (16, 16)) for k in range(4)]
    with graph.scope("layer"):
        return graph, cl.ops.multi_head_attention(graph, x, x, x, weights, num_heads=2)


def test_a_call_is_remembered_with_its_parts():
    graph, out = attention()
    (own,) = graph.operations
    assert (own.kind, own.scope, own.parent) == ("multi_head_attention", "layer/multi_head_attention", None)
    assert own.results == {"": out}
    assert own.operands["query"] is graph.variable("x") or own.operands["query"].source is graph.variable("x").source
    assert set(own.operands) == {"query", "key", "value", *(f"weights/{k}" for k in range(4))}
    assert own.parameters["num_heads"] == 2
    assert own.parameters["is_causal"] is False  # what was left off is there
    kinds = [part.kind for part in own.parts]
    assert kinds == ["dot_general", "dot_general", "dot_general", "dot_product_attention", "dot_general"]
    assert [part.kind for part in own.parts[3].parts] == ["dot_general", "map", "softmax", "dot_general"]
    assert all(part.parent is own for part in own.parts)
    assert [own.compute_sets, own.parts[0].compute_sets] == [list(graph.compute_sets), [graph.compute_sets[0]]]
    assert own.line is not None
    assert "multi_head_attention(graph, x, x, x" in str(own.line)


def test_operations_count_the_vertices_of_the_graph():
    graph, _ = attention()
    (own,) = graph.operations
    assert sum(own.num_vertices.values()) == graph.num_vertices
    assert vertices_of(graph, graph.compute_sets) == own.num_vertices


def test_the_innermost_operation_of_a_compute_set():
    graph, _ = attention()
    found = graph.operation_of(graph.compute_sets[0])
    assert found is not None
    assert found.scope == "layer/multi_head_attention/project_query"
    graph.add_vertex("by hand", add_one, x=graph.variable("x")[0, 0])
    assert graph.operation_of(graph.compute_sets[-1]) is None


def test_operations_print():
    graph, _ = attention()
    lines = str(graph.operations).split("\n")
    assert lines[0] == "1 operations: 1 multi_head_attention"
    assert lines[1].startswith("multi_head_attention(query: float32[8, 16], key: float32[8, 16]")
    assert "-> float32[8, 16]  in layer/multi_head_attention, at" in lines[1]
    assert lines[3] == "    out[rows, columns] = sum over summed of a[rows, summed] * b[columns, summed]"
    assert lines[4] == f"    multiply: {vertices_of(graph, graph.compute_sets[:1])[graph.compute_sets[0]]} vertices"
    assert lines[5].startswith(
        "      product_block of a[rows, summed], b[summed, columns], out[rows, columns]; rows 8 in "
    )
    assert str(cl.Graph().operations) == "0 operations: none"


PRODUCT = {"a": ("rows", "summed"), "b": ("summed", "columns")}
SUMMED = {"partials": ("partials", "outputs"), "out": ("outputs",)}
WHOLE = {**PRODUCT, "out": ("rows", "columns")}
POOLED = tuple(f"dimension {d}" for d in range(4))
STAGES = {
    "whole": (lambda g, x: cl.ops.matmul(g, x, x.transpose(), grain=1 << 20), [WHOLE]),
    "partial sums": (
        lambda g, x: cl.ops.matmul(g, x, x.transpose(), grain=8),
        [{**PRODUCT, "out": ("rows", "summed", "columns")}, SUMMED],
    ),
    "map": (lambda g, x: cl.ops.map(g, jnp.add, x, x[0]), [{"x0": ("d0", "d1"), "x1": ("d1",), "out0": ("d0", "d1")}]),
    "sum": (lambda g, x: cl.ops.sum(g, x, 0), [{"x": ("reduced", "kept"), "out": ("kept",)}]),
    "softmax": (lambda g, x: cl.ops.softmax(g, x), [{"x": ("rows", "row"), "out": ("rows", "row")}]),
    "pool": (
        lambda g, x: cl.ops.max_pool(g, x.reshape((1, 6, 12, 1)), (2, 2), 2),
        [{"x": POOLED[1:3], "out": POOLED[1:3]}],
    ),
    "by hand": (lambda g, x: cl.operation(lambda g, x: g.add_vertex("one", add_one, x=x[0, 0]))(g, x), []),
}


@pytest.mark.parametrize("name", STAGES)
def test_stages_say_along_which_axes_fields_move(name):
    build, expected = STAGES[name]
    graph = cl.Graph(cl.IPU(num_tiles=4))
    build(graph, graph.add_variable("x", (6, 12)))
    (own,) = graph.operations
    found = [stage.along for stages in own.stages.values() for stage in stages]
    assert [{field: set(axes) for field, axes in each.items()} for each in found] == [
        {field: set(axes) for field, axes in each.items()} for each in expected
    ]
    for compute_set, stages in own.stages.items():
        counts = [np.prod([cut.vertices for cut in stage.cuts]) for stage in stages]
        assert sum(counts) == own.num_vertices[compute_set]


def test_a_grid_without_elements_is_no_stage():
    @cl.operation
    def nothing(graph, x):
        add_blocks(graph, "all", add_one, [Cut("n", 0, 1, 1)], lambda block: {"x": x[block.elements]})

    graph = cl.Graph(cl.IPU(num_tiles=2))
    x = graph.add_variable("x", (0,))
    nothing(graph, x)
    assert graph.num_vertices == 0
    graph.add_vertex("by hand", add_one, x=graph.add_variable("y", ()))
    nothing(graph, x)
    assert [(own.kind, own.function) for own in graph.operations] == [("map", None)]


def test_views_and_failures_are_no_operations():
    graph = cl.Graph(cl.IPU(num_tiles=2))
    x = graph.add_variable("x", (4, 4))
    cl.ops.reverse(graph, x, 0)
    cl.ops.concatenate(graph, [x, x])
    with pytest.raises(cl.OperationError):
        cl.ops.matmul(graph, x, x[:3])
    assert graph.operations == ()


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda graph: pickle.loads(pickle.dumps(graph))])
def test_a_copy_has_no_calls_and_runs_as_before(copied):
    graph = cl.Graph(cl.IPU(num_tiles=2))
    a, b = graph.add_variable("a", (3, 4)), graph.add_variable("b", (4, 2))
    out = cl.ops.matmul(graph, a, b)
    other = copied(graph)
    assert [(own.kind, own.function is None) for own in other.operations] == [("product", True)]
    assert [(own.kind, own.function is None) for own in graph.operations] == [("matmul", False)]
    assert [*map(str, other.operations[0].descriptions)] == ["out[rows, i1] = sum over i2 of a[rows, i2] * b[i2, i1]"]
    values = {"a": np.ones((3, 4), np.float32), "b": np.ones((4, 2), np.float32)}
    np.testing.assert_array_equal(
        cl.interpret(other, values=values, outputs=[other.variable(out.name)])[out.name], np.full((3, 2), 4.0)
    )


def test_users_own():
    @cl.operation
    def shifted(graph, x, *, by=1.0):
        return cl.ops.map(graph, lambda x, by: x + by, x, by)

    graph = cl.Graph(cl.IPU(num_tiles=2))
    shifted(graph, graph.add_variable("x", (3,)), by=2.0)
    (own,) = graph.operations
    assert (own.kind, own.parameters, [part.kind for part in own.parts]) == ("shifted", {"by": 2.0}, ["map"])


def test_mistakes_in_users_own():
    with pytest.raises(cl.FieldTypeError, match="no function"):
        cl.operation(3)
    with pytest.raises(cl.FieldTypeError, match="not given a graph first"):
        cl.operation(lambda graph, x: x)(jnp.ones(3), 2)
