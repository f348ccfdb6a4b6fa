"""Checks at ten million vertices: exact, in milliseconds for affine families and in two seconds for tables.

The bounds leave room for a machine of two cores that is busy with other work.
"""

import time

import numpy as np
import pytest

import codelet as cl
from lowering.check.check import check_constraints, check_races
from lowering.check.initialized import check_initialized, given_elements
from lowering.plan.collect import collect
from lowering.plan.dataflow import flow
from tests.examples import few

N = 10**7
GRID = (10, 20, 10, 50, 10, 10)  # six axes, ten million positions

MILLISECONDS = 0.15
TABLES = 6.0


@cl.codelet
def copy_one(x):
    return x


@cl.codelet
def add_three(x, a, b):
    return x + a + b


@cl.codelet
def update(s, a):
    return {"s": s + a}


def seconds_of(function, tries=1):
    """The least time a call takes, and what it returns."""
    seconds = []
    for _ in range(tries):
        start = time.perf_counter()
        result = function()
        seconds.append(time.perf_counter() - start)
    return min(seconds), result


def plan_of(graph, inputs):
    sources = [graph.variable(name).source for name in inputs]
    return flow(collect(graph, graph.default_program, sources, []))


def refused(plan, error, tries):
    """How long the check of races takes to refuse a plan, and what it says."""

    def run():
        with pytest.raises(error) as caught:
            check_races(plan)
        return str(caught.value)

    return seconds_of(run, tries)


# --- affine families ------------------------------------------------------------------------------------


def stencil(graph):
    i = cl.grid(N)
    x, y = graph.add_variable("x", (N + 2,)), graph.add_variable("y", (N,))
    graph.add_vertex("set", add_three, x=x[i], a=x[i + 1], b=x[i + 2], out=y[i])


def six_axes(graph):
    i, j, k, l, m, n = cl.grid(*GRID)
    s, a = graph.add_variable("s", GRID), graph.add_variable("a", GRID)
    b, y = graph.add_variable("b", GRID[:3]), graph.add_variable("y", GRID)
    graph.add_vertex(
        "set", add_three, x=s[i, j, k, l, m, n], a=a[n, j, k, l, m, i], b=b[i, j, k], out=y[i, j, 9 - k, l, n, m]
    )


def in_out(graph):
    i, j, k, l, m, n = cl.grid(*GRID)
    s, a = graph.add_variable("s", GRID), graph.add_variable("a", GRID)
    graph.add_vertex("set", update, s=s[i, j, 9 - k, l, n, m], a=a[n, j, k, l, m, i], tile=10 * i + m)
    graph.set_tile_mapping(s[i, j, 9 - k, l, n, m], 10 * i + m)
    graph.set_tile_mapping(a, 3)


def wrapped(graph):
    i, j, k, l, m, n = cl.grid(*GRID)
    s, a = graph.add_variable("s", GRID), graph.add_variable("a", GRID)
    graph.add_vertex("set", copy_one, x=s[(i + 1) % 10, j, k, l, (m + 9) % 10, n], out=a[i, j, k, l, m, n])


AFFINE = {"stencil": stencil, "six axes": six_axes, "in-out": in_out, "wrapped": wrapped}


@pytest.mark.parametrize("build", AFFINE.values(), ids=AFFINE.keys())
def test_affine_families_are_built_and_checked_in_milliseconds(build):
    def built():
        graph = cl.Graph()
        build(graph)
        return graph

    seconds, graph = seconds_of(built, 3)
    assert graph.num_vertices == N
    assert seconds < MILLISECONDS
    seconds, plan = seconds_of(lambda: plan_of(graph, [v.name for v in graph.variables]), 3)
    assert seconds < MILLISECONDS
    for check in (check_races, lambda plan: check_initialized(plan, given_elements(plan))):
        assert seconds_of(lambda: check(plan), 3)[0] < MILLISECONDS
    assert seconds_of(lambda: check_constraints(plan), 2)[0] < 1.0
    wanted = graph.variable(graph.variables[-1].name).flatten()[17:19]
    seconds, writers = seconds_of(lambda: graph.writers(wanted), 3)
    assert seconds < MILLISECONDS
    assert len(writers) == (0 if build is in_out else 2)
    for vertex in writers:
        assert np.isin(vertex.fields["out"].elements(), wanted.elements())


def shifted(graph):
    i = cl.grid(N)
    x = graph.add_variable("x", (N + 1,))
    graph.add_vertex("set", copy_one, x=x[i + 1], out=x[i])
    return cl.ReadWriteRaceError, "writes x[1], which", ["at i=0\n", "at i=1\n"]


def mirrored(graph):
    i, j, k, l, m, n = cl.grid(*GRID)
    s, a = graph.add_variable("s", GRID), graph.add_variable("a", GRID)
    graph.add_vertex("set", add_three, x=s[i, j, k, l, m, n], a=a[9 - i, j, k, l, m, n], b=0.0, out=a[i, j, k, l, m, n])
    return cl.ReadWriteRaceError, "writes a[", ["writer: vertex of set / add_three at i=", "reader: vertex of"]


def crowded(graph):
    i, j, k, l, m, n = cl.grid(*GRID)
    s, a = graph.add_variable("s", GRID), graph.add_variable("a", (10, 20, 10, 50, 19))
    graph.add_vertex("set", copy_one, x=s[i, j, k, l, m, n], out=a[i, j, k, l, m + n])
    return cl.WriteRaceError, "two vertices of compute set 'set' write a[", ["m=1, n=", "m=0, n="]


def one_for_all(graph):
    i = cl.grid(N)
    x, y = graph.add_variable("x", (N,)), graph.add_variable("y", (N,))
    graph.add_vertex("set", copy_one, x=x[i], out=y[0 * i + 5])
    return cl.WriteRaceError, "write y[5]", ["at i=0\n", "at i=1\n"]


def read_by_all(graph):
    i = cl.grid(N)
    x = graph.add_variable("x", (N,))
    graph.add_vertex("set", copy_one, x=x[0 * i], out=x[i])
    return cl.ReadWriteRaceError, "writes x[0], which", ["at i=0\n", "at i=1\n"]


AFFINE_RACES = [shifted, mirrored, crowded, one_for_all, read_by_all]


@few("build", AFFINE_RACES, quick=["shifted"])
def test_a_race_of_affine_families_names_both_vertices(build):
    graph = cl.Graph()
    error, says, vertices = build(graph)
    # Where ten million vertices touch the element, they are found before two are named.
    bound = 3.0 if build in (one_for_all, read_by_all) else MILLISECONDS
    seconds, message = refused(plan_of(graph, [v.name for v in graph.variables]), error, 3)
    assert says in message
    assert all(vertex in message for vertex in vertices), message
    assert seconds < bound


def test_an_element_that_nobody_wrote_is_found_among_ten_million():
    graph = cl.Graph()
    s, z, w = (graph.add_variable(name, GRID) for name in "szw")
    i, j, k, l, m, n = cl.grid(*GRID[:5], 9)
    graph.add_vertex("some", copy_one, x=s[i, j, k, l, m, n], out=z[i, j, k, l, m, n])
    i, j, k, l, m, n = cl.grid(*GRID)
    graph.add_vertex("all", copy_one, x=z[i, j, k, l, m, n], out=w[i, j, k, l, m, n])
    plan = plan_of(graph, ["s"])

    def run():
        with pytest.raises(cl.UninitializedReadError, match=r"z\[0, 0, 0, 0, 0, 9\] is read by field 'x'"):
            check_initialized(plan, given_elements(plan))

    assert seconds_of(run, 3)[0] < 3 * MILLISECONDS


@pytest.mark.slow
def test_an_element_without_a_tile_is_placed_among_ten_million():
    graph = cl.Graph()
    i, x, y = cl.grid(N - 1), graph.add_variable("x", (N,)), graph.add_variable("y", (N,))
    graph.set_tile_mapping(x[i], i % 1472)
    graph.set_tile_mapping(x[N - 1], 7)
    graph.set_tile_mapping(y[:-1], 3)
    plan = plan_of(graph, [])
    assert seconds_of(lambda: check_constraints(plan))[0] < TABLES
    tiles = graph.element_tiles
    np.testing.assert_array_equal(tiles[: N - 1], np.arange(N - 1) % 1472)
    assert (tiles[N - 1], tiles[N]) == (7, -1)


# --- tables -----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def order():
    """A permutation of ten million."""
    return np.random.default_rng(0).permutation(N).astype(np.int32)


def gathered(graph, order, sources, extra=None):
    """x read at `sources` and y written at `order`, by ten million vertices; `extra` are more fields."""
    i = cl.grid(N)
    x, y = graph.add_variable("x", (N,)), graph.add_variable("y", (N,))
    fields = {} if extra is None else {"a": y[cl.table(extra)[i]], "b": x[i]}
    codelet = copy_one if extra is None else add_three
    graph.add_vertex("set", codelet, x=x[cl.table(sources)[i]], out=y[cl.table(order)[i]], **fields)
    return plan_of(graph, ["x", "y"] if extra is not None else ["x"])


def test_tables_are_checked_in_seconds(order):
    sources = np.random.default_rng(1).integers(0, N, N)
    for extra in (None, order):
        plan = gathered(cl.Graph(), order, sources, extra)
        for check in (check_races, check_constraints, lambda plan: check_initialized(plan, given_elements(plan))):
            assert seconds_of(lambda: check(plan))[0] < TABLES
    seconds, writers = seconds_of(lambda: plan.graph.writers(plan.graph.variable("y")[123]))
    assert [vertex.number for vertex in writers] == np.flatnonzero(order == 123).tolist()
    assert seconds < 1.0


def test_a_race_of_tables_names_both_vertices(order):
    twice = order.copy()
    twice[-1] = twice[5]
    seconds, message = refused(gathered(cl.Graph(), twice, order), cl.WriteRaceError, 1)
    assert f"write y[{order[5]}]" in message
    assert "at i=5\n" in message
    assert f"at i={N - 1}\n" in message
    assert seconds < TABLES


def test_a_race_of_a_table_read_and_a_table_written_names_both_vertices(order):
    swapped = order.copy()
    swapped[[3, 4]] = order[[4, 3]]
    seconds, message = refused(gathered(cl.Graph(), order, order, swapped), cl.ReadWriteRaceError, 1)
    assert f"writes y[{order[4]}], which" in message
    assert "writer: vertex of set / add_three at i=4\n" in message
    assert "reader: vertex of set / add_three at i=3\n" in message
    assert seconds < TABLES


def test_an_element_that_no_table_names_is_found(order):
    graph = cl.Graph()
    i, k = cl.grid(N), cl.grid(N + 1)
    x, y, z = graph.add_variable("x", (N,)), graph.add_variable("y", (N + 1,)), graph.add_variable("z", (N + 1,))
    graph.add_vertex("set", copy_one, x=x[i], out=y[cl.table(order + (order >= 7))[i]])
    graph.add_vertex("next", copy_one, x=y[k], out=z[k])
    plan = plan_of(graph, ["x"])

    def run():
        with pytest.raises(cl.UninitializedReadError, match=r"y\[7\] is read by field 'x'"):
            check_initialized(plan, given_elements(plan))

    assert seconds_of(run)[0] < TABLES


# --- tables whose numbers do not fit 32 bits ----------------------------------------------------------------


def test_tables_are_held_in_32_bits_where_they_fit_and_computed_in_64():
    narrow, wide = np.array([2**31 - 1, -(2**31), 5]), np.array([2**31, 0, 7])
    i = cl.grid(3)
    assert [cl.table(t)[i].tables[0].values.dtype for t in (narrow, wide)] == [np.int32, np.int64]
    t, u = cl.table(narrow)[i], cl.table(wide)[i]
    for index, expected in {
        t * 3 + 2**40: narrow * 3 + 2**40,
        t + t: 2 * narrow,
        t + cl.table(narrow[::-1].copy())[i]: narrow + narrow[::-1],
        t * u: narrow * wide,
        t * 2**33 // 2**32: 2 * narrow,
        (t * 2**33 + 5) % 2**34: (narrow * 2**33 + 5) % 2**34,
        (t - u) // 3: (narrow - wide) // 3,
        (t + 2**31) % 7: (narrow + 2**31) % 7,
        t * 6 // 4 + u: narrow * 6 // 4 + wide,
        -t: -narrow,
    }.items():
        np.testing.assert_array_equal(index.values(i.axes), expected)
        assert index.bounds() == (expected.min(), expected.max())


def test_a_table_of_32_bits_names_elements_beyond_them():
    """Row numbers that fit 32 bits, of rows so long that the positions of elements do not."""
    graph = cl.Graph()
    i, rows = cl.grid(4), np.array([30, 2, 29, 11], np.int32)
    x = graph.add_variable("x", (32, 2**28))
    view = x[cl.table(rows)[i], 7]
    np.testing.assert_array_equal(view.elements(i.axes), rows.astype(np.int64) * 2**28 + 7)
    y = graph.add_variable("y", (4,))
    graph.add_vertex("set", copy_one, x=view, out=y[i])
    check_races(plan_of(graph, ["x"]))
    assert [vertex.number for vertex in graph.readers(x[29, 7])] == [2]
