"""The inverse of an index against all positions, and that it needs no tables where divisions do."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.views.index import Index
from tests.drawn_views import viewed
from tests.examples import examples


@st.composite
def indices(draw):
    """Indices of views, often with steps at odds or with tables, their first dimensions often grid axes."""
    index = draw(viewed())[0].index
    if draw(st.booleans()):
        shape = tuple(draw(st.lists(st.integers(1, 4), max_size=3)))
        strides = tuple(draw(st.sampled_from([1, 2, 3, -4, 7, 12])) for _ in shape)
        index = Index(draw(st.integers(0, 9)), shape, strides)
    if index.ndim and index.shape[-1] and draw(st.booleans()):
        order = draw(st.permutations(range(index.shape[-1])))
        index = index[..., np.array(order)]
    lead = draw(st.integers(0, index.ndim))
    if lead and index.size and draw(st.booleans()):
        symbols = cl.grid(*index.shape[:lead])
        axes = [symbol.axes[0] for symbol in (symbols if isinstance(symbols, tuple) else (symbols,))]
        index = index.bound(axes)
    return index


def check_inverse(index):
    """Whether the inverse is what looking at all positions gives."""
    axes = index.axes
    values = index.values(axes)
    named = np.unique(values)
    if len(named) < values.size:
        with pytest.raises(cl.ViewError, match="names an element twice"):
            index.inverse()
        return
    inverse = index.inverse()
    assert not inverse.elements.axes
    assert inverse.elements.values().reshape(-1).tolist() == named.tolist()
    assert list(inverse.places) == [*axes, *range(index.ndim)]
    places = [place.values() for place in inverse.places.values()]
    assert np.array_equal(values[tuple(places)] if places else values, inverse.elements.values())
    # Of any elements, those that nobody names among them.
    asked = np.arange(values.min(initial=0) - 3, values.max(initial=0) + 4)
    found = inverse.at(Index.from_values(asked, (0,), asked.shape))
    is_named = found.is_named.index.values() == 1
    assert np.array_equal(is_named, np.isin(asked, named))
    if values.size:
        there = values[tuple(place.values() for place in found.places.values())]
        assert np.array_equal(np.broadcast_to(there, asked.shape)[is_named], asked[is_named])


@examples(60)
@given(index=indices())
def test_it_is_what_all_positions_give(index):
    check_inverse(index)


I, J = cl.grid(4, 3)
X = cl.Graph().add_variable("x", (24, 15))

WITHOUT_TABLES = {
    "all of it": X,
    "a box": X[3:9, 2:7],
    "steps": X[::3, 1::2],
    "reversed": X[::-1, 4:9],
    "transposed": X.T[2:5, ::-1],
    "another shape": X.reshape(8, 45)[:, 3:9],
    "blocks": X[6 * I : 6 * I + 6, 5 * J : 5 * J + 5],
    "windows that lie apart": X[6 * I + 1 : 6 * I + 3, 5 * J + 1],
    "from the end": X[23 - 6 * I, 4:8],
    "one element": X[3, 4],
    "a symbol alone": X.flatten()[15 * I + 3],
    "none": X[3:3, J],
}


@pytest.mark.parametrize("kind", WITHOUT_TABLES)
def test_slices_transposes_and_windows_need_no_tables(kind):
    index = WITHOUT_TABLES[kind].index
    check_inverse(index)
    inverse = index.inverse()
    assert not any(found.tables for found in (inverse.elements, *inverse.places.values()))
    # What names the same elements in any order finds them without tables too.
    found = inverse.at(index)
    assert not found.is_named.index.tables
    assert found.is_named.index.bounds() in (None, (1, 1))
    for key, place in found.places.items():
        assert not place.tables
        if index.extent(key) > 1 and index.size:
            assert place.coefficient(key) == 1


def test_where_a_reader_finds_what_a_writer_wrote():
    """Vertex (i, j) wrote a block of 6 x 5; whoever reads a row reads it of the vertices of three blocks."""
    written = X[6 * I : 6 * I + 6, 5 * J : 5 * J + 5].index
    row, k = cl.grid(24, 3)
    found = written.inverse().at(X[row, 5 * k : 5 * k + 5].index)
    i, j = (axis for symbol in (I, J) for axis in symbol.axes)
    assert found.is_named.index.bounds() == (1, 1)
    assert not found.places[j].tables
    assert found.places[j].keys == k.axes
    assert not found.places[1].tables
    assert found.places[1].keys == (0,)
    assert found.places[i].values(row.axes)[:, 0].tolist() == [r // 6 for r in range(24)]
    assert found.places[0].values(row.axes)[:, 0].tolist() == [r % 6 for r in range(24)]


def test_a_table_beside_digits_is_the_only_one():
    order = np.array([5, 2, 7, 0])
    index = X[cl.table(order)[I], 3:9].index
    check_inverse(index)
    inverse = index.inverse()
    assert inverse.elements.shape == (4, 6)
    assert [table.values.shape for table in inverse.elements.tables] == [(4,)]
    assert inverse.places[I.axes[0]].values()[:, 0].tolist() == np.argsort(order).tolist()


def test_steps_that_overlap_without_meeting_are_tabled_together():
    index = Index(0, (5, 3, 2), (100, 2, 3))  # 0 2 4, 3 5 7
    check_inverse(index)
    assert index.inverse().elements.shape == (5, 6)


def test_what_is_named_twice_is_told():
    i = cl.grid(4)
    with pytest.raises(cl.ViewError) as caught:
        X[0, 2 * i : 2 * i + 3].index.inverse()
    assert "names element 2 at the positions i0 = 0, f0 = 2 and at i0 = 1, f0 = 0" in str(caught.value)
    for twice in (X.index[0, i // 2], X[0].broadcast_to((2, 15)).index):
        with pytest.raises(cl.ViewError, match="names an element twice"):
            twice.inverse()
    with pytest.raises(cl.ViewError, match="names element 3 at the positions i0 = 0 and at i0 = 1"):
        (3 + 0 * cl.grid(2)).inverse()
