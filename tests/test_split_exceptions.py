"""Vertices of loops with a few odd ones among them: the regular ones are read without tables."""

import itertools

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from lowering.plan.split_exceptions import find_segments
from tests.examples import examples
from tests.strategies import shift_all, total


def loops(*extents, strides):
    """Columns of one number: that of nested loops."""
    return np.asarray([sum(s * k for s, k in zip(strides, at, strict=True)) for at in np.ndindex(extents)])


def joined(*parts):
    return np.concatenate([np.asarray(part) for part in parts])[None]


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (joined(loops(10, 20, strides=(50, 1)), [7, 3, 5]), [range(200)]),
        (joined([900], loops(10, 20, strides=(50, 1))), [range(1, 201)]),
        (
            joined(loops(3, 4, 5, strides=(100, 20, 3)), [1], 500 + loops(4, 5, strides=(20, 3))),
            [range(60), range(61, 81)],
        ),
        (joined(np.arange(40), np.arange(41, 80)), [range(40), range(40, 79)]),
        (joined(np.arange(64)), [range(64)]),
        (joined(np.arange(64) ** 2), []),
        (np.random.default_rng(0).permutation(5000)[None], []),
        (joined(*(1000 * k**2 + np.arange(40) for k in range(12))), []),
    ],
)
def test_segments(columns, expected):
    assert find_segments(columns) == expected


def test_large_tables_without_order_are_given_up_early():
    assert find_segments(np.random.default_rng(0).integers(0, 1 << 30, (3, 1 << 20))) == []


def lowered(places, sources, sizes, kind=total):
    """Vertices that take what is at `sources[k]` of `x` to `places[k]` of `y`, added one at a time."""
    graph = cl.Graph()
    x, y = graph.add_variable("x", (sizes[0],)), graph.add_variable("y", (sizes[1],))
    step = graph.add_compute_set("step")
    for place, source in zip(places, sources, strict=True):
        fields = {"x": x[source]} | ({"y": x[:2]} if kind is shift_all else {})
        graph.add_vertex(step, kind, **fields, out=y[place])
    return graph, cl.lower(graph, inputs=[x, y], outputs=[y])


def gathered_sizes(run):
    """The number of entries of every table."""
    return [leaf.size for leaf in jax.tree.leaves(run)]


def test_a_thousand_regular_vertices_and_three_odd_ones():
    sources = [*(40 * i + j for i, j in itertools.product(range(25), range(40))), 17, 3, 999]
    graph, run = lowered(range(1003), sources, (1000, 1003))
    assert [family.num_vertices for family in run.families] == [1000, 3]
    assert max(gathered_sizes(run), default=0) <= 3
    values = {"x": np.random.default_rng(0).normal(size=1000).astype("f"), "y": np.zeros(1003, "f")}
    np.testing.assert_array_equal(jax.jit(run)(values)["y"], cl.interpret(graph, values=values, outputs=["y"])["y"])
    slope = jax.jit(jax.grad(lambda x: (run({**values, "x": x})["y"] * np.arange(1003)).sum()))(values["x"])
    expected = np.zeros(1000, "f")
    np.add.at(expected, sources, np.arange(1003))
    np.testing.assert_allclose(slope, expected)


def test_all_rows_but_one():
    sources = [30 * i + j for i in range(12) if i != 5 for j in range(20)]
    graph, run = lowered(sources, sources, (360, 360))
    assert [family.num_vertices for family in run.families] == [200, 20]  # rows 0 to 4 and 6 to 10 are loops too
    assert not gathered_sizes(run)
    values = {"x": np.arange(360, dtype="f"), "y": -np.ones(360, "f")}
    np.testing.assert_array_equal(jax.jit(run)(values)["y"], cl.interpret(graph, values=values, outputs=["y"])["y"])


def test_what_has_no_order_stays_one_family():
    sources = np.random.default_rng(0).permutation(200)
    _, run = lowered(range(200), sources.tolist(), (200, 200))
    assert [family.num_vertices for family in run.families] == [200]


@st.composite
def loops_with_exceptions(draw):
    """Sources and places of vertices: nested loops in any order, with odd vertices before, between and after."""
    sources = []
    for _ in range(draw(st.integers(1, 3))):
        extents = draw(st.lists(st.integers(1, 6), min_size=1, max_size=3))
        strides = draw(st.permutations([1, 7, 50]))
        start = draw(st.integers(0, 99))
        sources += [start + sum(s * k for s, k in zip(strides, at, strict=False)) for at in np.ndindex(*extents)]
        sources += draw(st.lists(st.integers(0, 399), max_size=3))
    places = list(range(len(sources)))
    if draw(st.booleans()):
        places = places[::-1]
    elif draw(st.booleans()):
        moved = draw(st.integers(0, len(places) - 1))
        places = places[moved:] + places[:moved]
    return places, [int(source) for source in sources]


@examples(5)
@given(loops_with_exceptions())
def test_loops_with_exceptions_mean_what_they_say(drawn):
    places, sources = drawn
    graph, run = lowered(places, sources, (500, len(places)), shift_all)
    random = np.random.default_rng(0)
    values = {"x": random.normal(size=500).astype("f"), "y": np.zeros(len(places), "f")}
    np.testing.assert_allclose(
        jax.jit(run)(values)["y"], cl.interpret(graph, values=values, outputs=["y"])["y"], rtol=1e-5, atol=1e-6
    )
    assert sum(family.num_vertices for family in run.families) == len(places)
    assert len(run.families) <= 8
