"""Tiles of elements: however they are held, they are those that were given."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.graphs.linear import linear_tiles
from lowering.machine.element_tiles import ElementTiles, VariableTiles, on_tiles_in_order
from lowering.machine.placement import num_elements
from lowering.pipeline import plan_engine
from tests.examples import examples


@st.composite
def rows_of_tiles(draw) -> np.ndarray:
    """Tiles of elements in a row, in short stretches and in long ones, -1 among them."""
    lengths = draw(st.lists(st.sampled_from([1, 2, 9, 40]), max_size=12))
    tiles = draw(st.lists(st.integers(-1, 5), min_size=len(lengths), max_size=len(lengths)))
    return np.repeat(np.array(tiles, np.int16), lengths)


@examples(60)
@given(rows_of_tiles(), rows_of_tiles(), st.integers(0, 99))
def test_a_variable_has_the_tiles_it_was_given(tiles, others, seed):
    held = VariableTiles.of(tiles)
    np.testing.assert_array_equal(held.values(), tiles)
    runs, own = held.stretches()
    np.testing.assert_array_equal(np.repeat(own, runs.lengths), tiles)
    assert (own[1:] != own[:-1]).all()
    np.testing.assert_array_equal(held.counts(6), np.bincount(tiles[tiles >= 0], minlength=6))
    positions = np.random.default_rng(seed).integers(0, max(1, len(tiles)), 3 if len(tiles) else 0)
    np.testing.assert_array_equal(held.at(positions), tiles[positions])
    assert held.is_same(VariableTiles.of(tiles.copy()))
    assert held.is_same(VariableTiles.of(others)) == np.array_equal(tiles, others)


@examples(40)
@given(st.integers(0, 300), st.integers(1, 9), st.integers(1, 4), st.integers(0, 9))
def test_what_is_mapped_linearly_is_held_as_anything_else(size, num_tiles, grain, least):
    tiles = linear_tiles(size, num_tiles, grain=grain, least=least)
    assert on_tiles_in_order(size, num_tiles, grain=grain, least=least).is_same(VariableTiles.of(tiles))


@cl.codelet
def copied(x):
    return x


@examples(15)
@given(st.lists(rows_of_tiles(), max_size=4).filter(lambda rows: any(map(len, rows))), st.integers(0, 99))
def test_elements_of_a_graph_have_the_tiles_they_were_given(rows, seed):
    graph, random = cl.Graph(cl.IPU(num_tiles=8)), np.random.default_rng(seed)
    variables = [graph.add_variable(f"v{k}", (len(own),)) for k, own in enumerate(rows) if len(own)]
    for x in variables:
        graph.add_vertex("copied", copied, x=x)
    plan = plan_engine(graph, graph.default_program)
    tiles = np.full(num_elements(plan), -1, np.int32)
    for variable in plan.variables:
        own = rows[int(variable.name[1:])] if variable.name.startswith("v") else random.integers(0, 8, variable.size)
        tiles[variable.first_element : variable.first_element + variable.size] = own
    held, given_before = ElementTiles.of(plan, tiles), tiles.copy()
    tiles[:] = 7  # the array is the caller's
    np.testing.assert_array_equal(np.asarray(held), given_before)
    assert len(held) == len(given_before)
    elements = random.integers(-1, len(held), (5, 3))
    np.testing.assert_array_equal(held[elements], np.where(elements < 0, -1, given_before[elements]))
    for variable in plan.variables:
        np.testing.assert_array_equal(
            held.of_variable(variable).values(), given_before[variable.first_element :][: variable.size]
        )
