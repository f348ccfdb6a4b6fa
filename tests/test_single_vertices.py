"""Vertices added one at a time: whatever kinds of numbers say so, alike ones are one family."""

import copy

import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import codelet as cl
from tests.examples import few


@cl.codelet
def scaled(x, by):
    return jnp.sum(x) * by


def added(numbers, tiles, rows):
    """As many vertices as there are numbers, each in the same line."""
    graph = cl.Graph()
    x = graph.add_variable("x", (8, 4))
    y = graph.add_variable("y", (8,), jnp.result_type(jnp.float32, numbers[0]))
    step = graph.add_compute_set("step")
    for k, (number, tile, row) in enumerate(zip(numbers, tiles, rows, strict=True)):
        graph.add_vertex(step, scaled, x=x[row], by=number, out=y[k], tile=tile)
    return graph


def values_of(graph):
    x = np.arange(32, dtype=np.float32).reshape(8, 4)
    meant = cl.interpret(graph, values={"x": x}, outputs=["y"])["y"]
    lowered = cl.lower(graph, inputs=[graph.variable("x")], outputs=[graph.variable("y")])({"x": x})["y"]
    np.testing.assert_array_equal(lowered, meant)
    assert lowered.dtype == meant.dtype
    return lowered


@few("kind", [int, np.int64, np.int32, np.uint8, float, np.float32, np.float16, ml_dtypes.bfloat16], quick=["int64"])
def test_state_of_any_kind_of_number_is_one_family(kind):
    graph = added([kind(k % 5) for k in range(8)], range(8), range(8))
    assert len(graph.families) == 1
    expected = np.arange(32).reshape(8, 4).sum(1) * (np.arange(8) % 5)
    np.testing.assert_array_equal(values_of(graph).astype(np.float32), expected)


def test_numpy_integers_for_tiles_and_positions_are_as_pythons():
    python = added(range(8), range(8), range(8))
    numpy = added(list(range(8)), np.arange(8), np.arange(8, dtype=np.int16))
    assert str(numpy.families[0]) == str(python.families[0])
    assert len(numpy.families) == 1
    np.testing.assert_array_equal(values_of(numpy), values_of(python))


def test_arrays_of_state_are_one_family_and_are_copied():
    held = np.zeros(4, np.float32)
    graph = cl.Graph()
    x, y = graph.add_variable("x", (8, 4)), graph.add_variable("y", (8,))
    for k in range(8):
        held[:] = k
        graph.add_vertex("step", scaled_by, x=x[k], by=held, out=y[k])
    assert len(graph.families) == 1
    np.testing.assert_array_equal(values_of(graph), np.arange(32).reshape(8, 4).sum(1) * np.arange(8))


@cl.codelet
def scaled_by(x, by):
    return jnp.sum(x * by)


def test_kinds_that_trace_differently_stay_apart():
    numbers = [1, np.int32(1), 1.0, np.float32(1), np.float16(1), True, np.bool_(True), 1j]
    graph = cl.Graph()
    x = graph.add_variable("x", (4,), jnp.float16)
    for k, number in enumerate(numbers):
        dtype = jnp.result_type(jnp.float16(0), number)
        graph.add_vertex("step", scaled, x=x, by=number, out=graph.add_variable(f"y{k}", (), dtype))
    assert [str(family.codelet.inputs["by"]) for family in graph.families] == [
        "int32[]~",
        "int32[]",
        "float32[]~",
        "float32[]",
        "float16[]",
        "bool[]~",
        "bool[]",
        "complex64[]~",
    ]


def test_one_line_may_add_vertices_of_several_kinds():
    """What the instruction did last is no promise: another field, layout, tile, static value or compute set."""

    @cl.codelet
    def moved(x, *, by=0):
        return x + by

    graph = cl.Graph(cl.IPU(num_tiles=4))
    x, y = graph.add_variable("x", (12,)), graph.add_variable("y", (12,))
    sets = graph.add_compute_set("a"), graph.add_compute_set("b")
    more = [{}, {"by": 1}, {"by": 1}, {"by": 1.0}, {}, {}]
    for k in range(6):
        graph.add_vertex(sets[k // 4], moved, x=x[k : k + 1], out=y[k : k + 1], tile=None, **more[k])
    for k in range(6, 12):
        view = slice(k, k + 1) if k % 2 else k
        graph.add_vertex(sets[1], moved, x=x[view], out=y[view], tile=k % 4)
    counts = [(f.compute_set.name, dict(f.codelet.static), f.num_vertices, f.tile is None) for f in graph.families]
    assert counts == [
        ("a", {"by": 0}, 1, True),
        ("a", {"by": 1}, 2, True),
        ("a", {"by": 1.0}, 1, True),
        ("b", {"by": 0}, 2, True),
        ("b", {"by": 0}, 3, False),
        ("b", {"by": 0}, 3, False),
    ]
    with pytest.raises(cl.TileError, match="a tile does not exist"):
        for k in range(5):
            graph.add_vertex(sets[1], moved, x=x[k], out=y[k], tile=k)


def test_a_line_that_adds_inside_and_outside_a_recording_is_told():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (4,)), graph.add_variable("y", (4,))
    outside = graph.add_compute_set("outside")

    def add(k):
        graph.add_vertex(outside, scaled, x=x, by=k, out=y[k])

    add(0)
    add(1)
    with graph.record(), pytest.raises(cl.ProgramError, match="made outside the recording"):
        add(2)


@few("number", [int, np.int32, float, np.float32], quick=["int32", "float", "float32"])
def test_a_loop_lowers_as_symbols_do_whatever_kind_of_number_its_state_is(number):
    """Nested loops, and a few odd vertices among them, are read and written by slices, not through tables."""

    @cl.codelet
    def shifted(x, by):
        return x + by

    def built(by_loop):
        graph = cl.Graph()
        x, y = graph.add_variable("x", (40, 6)), graph.add_variable("y", (30, 5))
        if by_loop:
            for i in range(30):
                for j in range(5):
                    graph.add_vertex("shift", shifted, x=x[i + 3, j], by=number(7 * i + j), out=y[i, j])
        else:
            i, j = cl.grid(30, 5)
            by = np.array([[number(7 * i + j) for j in range(5)] for i in range(30)])
            graph.add_vertex("shift", shifted, x=x[i + 3, j], by=7 * i + j if number is int else by, out=y[i, j])
        return graph, cl.lower(graph, inputs=[x], outputs=[y])

    (looped, by_loop), (_, by_symbols) = built(True), built(False)
    assert [eqn.primitive.name for eqn in by_loop.jaxpr.eqns].count("gather") == 0
    if number is not float:  # whose type yields to others, as no array's does
        assert str(by_loop.jaxpr) == str(by_symbols.jaxpr)
    values = np.arange(240, dtype=np.float32).reshape(40, 6)
    meant = cl.interpret(looped, values={"x": values}, outputs=["y"])["y"]
    np.testing.assert_array_equal(by_loop({"x": values})["y"], meant)


def test_vertices_added_to_a_copy_join_those_it_was_copied_with():
    graph = added(range(4), range(4), range(4))
    more = copy.deepcopy(graph)
    step = more.compute_sets[0]
    for k in range(4, 8):
        x, y = more.variable("x"), more.variable("y")
        more.add_vertex(step, scaled, x=x[k], by=k, out=y[k], tile=k)
    assert [family.num_vertices for family in more.families] == [8]
    assert graph.num_vertices == 4
    assert values_of(more)[7] == 7 * np.arange(28, 32).sum()
