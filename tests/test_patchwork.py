"""Patchworks: joined and padded views are flat lists of few patches; arrays of them are made by few steps."""

from itertools import pairwise

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.graphs.vertices import gather
from codelet.views.boxes import box_of, hull_of
from codelet.views.index import row_major
from codelet.views.patchwork import MOST_CUTS
from codelet.views.sources import Patchwork
from lowering.fast.sources import plan_among_zeros, read_view, write_tensor
from tests.drawn_views import viewed
from tests.examples import examples
from tests.strategies import rearranged


def patches_of(tensor):
    """The patches of a view, once they are what they must be."""
    source = tensor.source
    assert isinstance(source, Patchwork)
    taken = np.zeros(source.size, int)
    for patch in source.patches:
        places = patch.places.values().reshape(-1)
        assert patch.places.shape == patch.index.shape
        assert len(np.unique(places)) == len(places) > 0
        if patch.variable is not None:
            assert patch.index.values().max() < patch.variable.size
            taken[places] += 1
        else:
            assert not taken[places].any()  # padding lies under others
    assert taken.max(initial=0) <= 1
    assert (gather_numbers(source) >= 0).all()
    return source.patches


def as_arrays(graph, values):
    """The variables of a graph as JAX arrays, from their flat values by first elements."""
    return {own: jax.numpy.asarray(values[own.first_element].reshape(own.shape)) for own in graph.sources}


def gather_numbers(source):
    """Of every position the last patch that it is one of; -1 for none."""
    made = np.full(source.size, -1)
    for k, patch in enumerate(source.patches):
        made[patch.places.values()] = k
    return made


@pytest.mark.slow
@examples(60)
@given(viewed())
def test_any_chain_of_views_is_of_a_flat_list_of_patches(pair):
    tensor, _ = pair
    if isinstance(tensor.source, Patchwork):
        patches_of(tensor)


@pytest.mark.slow
@examples(12)
@given(st.data())
def test_arrays_of_nested_views_are_read_and_written_element_by_element(data):
    graph = cl.Graph()
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=1, max_size=2)))
    x = graph.add_variable("x", shape, np.int32)
    view = data.draw(rearranged(x))
    (variable,) = graph.sources
    held = {variable.first_element: np.arange(x.size, dtype=np.int32) + 100}
    views = view, view.pad((1, 0), value=7), cl.concatenate([view.pad(1), view.pad(1, "wrap")])

    @jax.jit
    def moved(held, values):
        arrays = as_arrays(graph, held)
        seen = [read_view(arrays, own) for own in views]
        write_tensor(arrays, view, values)
        return seen, arrays[variable]

    values = np.arange(x.size, dtype=np.int32).reshape(shape)
    seen, written = moved(held, values)
    for own, found in zip(views, seen, strict=True):
        np.testing.assert_array_equal(found, gather(held, own))
    expected = np.zeros(x.size, np.int32)
    expected[view.elements() - variable.first_element] = values
    np.testing.assert_array_equal(written, expected.reshape(shape))


def test_boxes_are_found_whatever_the_shape_of_their_positions():
    whole = row_major((4, 6))
    assert box_of((4, 6), whole[1:3, 2:5]) == box_of((4, 6), whole[1:3, 2:5][None]) == ((1, 3), (2, 5))
    assert box_of((24,), whole[1:3]) == ((6, 18),)
    assert box_of((), row_major(())) == ()
    line = row_major((24,))
    for none in (
        whole.transpose((1, 0)),
        whole[::-1],
        whole[:, ::2],
        line[3:15],
        whole[[0, 2, 1]],
        whole[:0],
        whole[[0, 1]],
    ):
        assert box_of((4, 6), none) is None
    assert hull_of((4, 6), line[3:15]) == ((0, 3), (0, 6))
    assert hull_of((4, 6), whole[::2, 5:1:-2]) == ((0, 3), (3, 6))


def windows(x, y):
    i = cl.grid(6)
    return cl.concatenate([x.pad(1)[i : i + 3], y[i : i + 1]])


PATCHES = {
    # what: its view, the shapes of its variables, how many patches it has, and by which primitives it is read
    "a pad": (lambda x: x.pad(1), [(4, 5)], 2, ["pad"]),
    "pads of one value": (lambda x: x.pad(1).pad(2), [(4, 5)], 2, ["pad"]),
    "pads of two values": (lambda x: x.pad(1).pad(1, value=2), [(4, 5)], 3, ["pad", "pad"]),
    "one cut off again": (lambda x, y: cl.concatenate([x.pad(1)[1:-1], y]), [(3,), (2,)], 2, ["concatenate"]),
    "joined": (lambda *v: cl.concatenate(v), [(4, 5)] * 3, 3, ["concatenate"]),
    "slices": (lambda x, y: cl.concatenate([x[1:], y[:2]]), [(4, 5)] * 2, 2, ["slice", "slice", "concatenate"]),
    "of a join": (
        lambda x, y: cl.concatenate([cl.concatenate([x, y])[:6], y]),
        [(4, 5)] * 2,
        3,
        ["slice", "concatenate"],
    ),
    "a join within zeros": (lambda x, y: cl.concatenate([x, y]).pad(1), [(4, 5)] * 2, 3, ["concatenate", "pad"]),
    "pads joined": (lambda x, y: cl.concatenate([x.pad(1), y.pad(1)]), [(4, 5)] * 2, 4, ["pad", "pad", "concatenate"]),
    "blocks": (
        lambda *v: cl.concatenate([cl.concatenate(v[:2], 1), cl.concatenate(v[2:], 1)]),
        [(2, 3)] * 4,
        4,
        ["concatenate"] * 3,
    ),
    "along a new dimension": (
        lambda x: cl.concatenate([x.pad(1).expand(0)] * 2),
        [(3,)],
        2,
        ["pad"],
    ),
    "turned": (
        lambda x, y: cl.concatenate([x, y]).T.pad(1),
        [(4, 5)] * 2,
        3,
        ["transpose", "transpose", "concatenate", "pad"],
    ),
    "rows of lines": (
        lambda x, y, z: cl.concatenate([cl.concatenate([x, y]).reshape(4, 2), z]),
        [(3,), (5,), (2, 2)],
        3,
        ["reshape", "concatenate", "reshape"],
    ),
    "a torus within zeros": (lambda x: x.pad(1, "wrap").pad(1), [(4,)], 2, ["slice", "slice", "concatenate", "pad"]),
    # None of these has a patch for each row, vertex or element, and none is a gather.
    "a picture in a line": (
        lambda x, y: cl.concatenate([x.pad(1).flatten(), y]),
        [(400, 5), (3,)],
        3,
        ["broadcast_in_dim", "reshape", "dynamic_update_slice", "reshape", "concatenate"],
    ),
    "windows": (windows, [(6,), (6,)], 5, None),
    "repeated": (lambda x: cl.concatenate([x.pad(1).broadcast_to((300, 6))] * 2), [(4,)], 2, None),
    "a torus of a pad": (lambda x: x.pad(1).pad(2, "wrap").pad(1, value=3), [(4, 4)], 11, None),
}


@pytest.mark.parametrize("name", PATCHES)
def test_patches_are_few_and_put_together_by_few_steps(name):
    view, shapes, count, primitives = PATCHES[name]
    graph = cl.Graph()
    variables = [graph.add_variable(f"v{k}", shape) for k, shape in enumerate(shapes)]
    tensor = view(*variables)
    assert len(patches_of(tensor)) == count
    read = lambda *arrays: read_view(dict(zip(graph.sources, arrays, strict=True)), whole)  # noqa: E731
    whole = cl.Tensor(tensor.source, row_major(tensor.source.shape))
    found = [str(eqn.primitive) for eqn in jax.make_jaxpr(read)(*map(np.zeros, shapes)).eqns]
    assert found == primitives if primitives is not None else not {"gather", "scatter"} & set(found), found


def test_positions_of_no_order_are_a_table_for_each_patch():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (1000,)), graph.add_variable("y", (1000,))
    shuffled = cl.concatenate([x, y])[np.random.default_rng(0).permutation(2000)]
    tensor = cl.concatenate([shuffled, x.pad(1)])
    assert len(patches_of(tensor)) == 2 + 2
    # Overlapping windows of more positions than a patch is cut into.
    i = cl.grid(1500)
    numbers = np.arange(1500)[:, None] + np.arange(MOST_CUTS + 1)
    of_y = int((numbers >= 1000).sum())
    wide = cl.concatenate([cl.concatenate([x, y])[i : i + MOST_CUTS + 1], x[:1]])
    shapes = [patch.places.shape for patch in patches_of(wide)]
    assert shapes == [(numbers.size - of_y,), (of_y,), (1500, 1)]
    np.testing.assert_array_equal(wide.elements(i.axes)[:, :-1], numbers + (numbers >= 1000))


def test_zeros_around_an_array_are_left_to_a_convolution():
    graph = cl.Graph()
    x = graph.add_variable("x", (2, 3, 4))
    held = {own.first_element: np.ones(24, np.float32) for own in graph.sources}
    widths = ((1, 0), (1, 2), (0, 3))
    for padded, kept, expected in [
        (x.pad(widths), (), widths),
        (x.pad(widths), (0,), ((0, 0), *widths[1:])),
        (x.pad(1).pad(((0, 0), (1, 0), (0, 0))), (), ((1, 1), (2, 1), (1, 1))),
        (x.pad(widths, value=1), (), ((0, 0),) * 3),
        (x.pad(1).pad(1, value=1).pad(1), (), ((1, 1),) * 3),
        (x, (), ((0, 0),) * 3),
    ]:
        inner, found, steps = plan_among_zeros(padded.source, kept)
        array = inner.of(as_arrays(graph, held))
        assert tuple(found) == expected
        assert set(steps) == {1}
        assert all(found[d] == (0, 0) for d in kept)
        np.testing.assert_array_equal(np.pad(np.asarray(array), found), gather(held, padded))


@pytest.mark.slow
@examples(30)
@given(st.data())
def test_zeros_between_elements_are_left_out(data):
    draw = data.draw
    graph = cl.Graph()
    x = graph.add_variable("x", (3, 2, 4))
    view = x.transpose(draw(st.permutations(range(3))))[:, draw(st.sampled_from([slice(None), slice(0, 1)]))]
    steps = [draw(st.integers(1, 3)) for _ in range(3)]
    shape = [n for own in view.shape for n in (own, 1)]
    among = view.reshape(tuple(shape)).pad([(0, n) for step in steps for n in (0, step - 1)])
    among = among.reshape(tuple(n * step for n, step in zip(view.shape, steps, strict=True)))
    among = among.pad([(draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in range(3)])
    if not among.source.has_padding:
        return
    held = {own.first_element: np.arange(1.0, 25.0, dtype=np.float32) for own in graph.sources}
    inner, widths, found = plan_among_zeros(among.source, ())
    array = np.asarray(inner.of(as_arrays(graph, held)))
    assert 0 not in array
    spread = np.zeros([step * (n - 1) + 1 for n, step in zip(array.shape, found, strict=True)], np.float32)
    spread[tuple(slice(None, None, step) for step in found)] = array
    np.testing.assert_array_equal(np.pad(spread, widths), gather(held, among).reshape(among.source.shape))


def test_patches_that_no_cut_takes_apart_are_written_in_turn():
    # A join has cuts, but not what is seen of one: four patches around a fifth.
    graph = cl.Graph()
    names = "abcde"
    picture = np.array([[0, 0, 1], [3, 4, 1], [3, 2, 2]])
    variables = [graph.add_variable(name, (int((picture == k).sum()),), np.int32) for k, name in enumerate(names)]
    line = cl.concatenate(variables)
    starts = np.cumsum([0, *(v.size for v in variables)])
    numbers = np.zeros(9, int)
    for k, (start, _) in enumerate(pairwise(starts)):
        own = np.flatnonzero(picture.reshape(-1) == k)
        numbers[own] = start + np.arange(len(own))
    tensor = cl.concatenate([line[numbers.reshape(3, 3)], line[:3].expand(0)])
    patches_of(tensor)
    held = {own.first_element: np.arange(own.size, dtype=np.int32) + 10 * own.number for own in graph.sources}
    np.testing.assert_array_equal(read_view(as_arrays(graph, held), tensor), gather(held, tensor))


def test_a_join_that_grows_keeps_its_patches():
    graph = cl.Graph()
    grown = graph.add_variable("first", (2, 3))
    for k in range(50):
        grown = cl.concatenate([grown, graph.add_variable(f"next{k}", (2, 3))])
    before, after = patches_of(grown), patches_of(cl.concatenate([grown, graph.add_variable("last", (2, 3))]))
    assert all(a is b for a, b in zip(before, after, strict=False))


@pytest.mark.parametrize(
    "name",
    [
        "rows",
        "backwards",
        "columns",
        "of windows",
        "of a pad",
        "by a table",
        "repeated",
        "apart",
        "steps apart",
        "another row",
    ],
)
def test_neighbours_joined_are_one_view(name):
    """Parts of one array that go on in each other have no patches of their own: a vertex's halo and its block."""
    graph = cl.Graph()
    x = graph.add_variable("x", (6, 8))
    i, rows, pad = cl.grid(3), cl.table([4, 0, 2]), x.pad(1)
    views = {
        "rows": ([x[:1], x[1:4], x[4:4], x[4:]], x),
        "backwards": ([x[5:2:-1], x[2:3], x[1::-1]], x[::-1]),
        "columns": ([x[i, :3], x[i, 3:4], x[i, 4:]], x[i]),
        "of windows": ([x[i : i + 1], x[i + 1 : i + 4]], x[i : i + 4]),
        "of a pad": ([pad[:3], pad[3:]], pad),
        "by a table": ([x[rows[i], :2], x[rows[i], 2:]], x[rows[i]]),
        "repeated": ([x[2:3], x[2:3]], x[2:3].broadcast_to((2, 8))),
        "apart": ([x[:1], x[2:4]], x[np.array([0, 2, 3])]),
        "steps apart": ([x[:2], x[2::2]], x[np.array([0, 1, 2, 4])]),
        "another row": ([x[0, :4], x[1, 4:]], x.flatten()[np.array([0, 1, 2, 3, 12, 13, 14, 15])]),
    }
    parts, expected = views[name]
    joined = cl.concatenate(parts)
    assert (joined.source is expected.source) == (name not in ("apart", "steps apart", "another row"))
    np.testing.assert_array_equal(joined.elements(joined.axes), expected.elements(expected.axes))


def test_patchworks_print_what_they_are_made_of():
    graph = cl.Graph()
    x, y = graph.add_variable("x", (3,)), graph.add_variable("y", (2,))
    assert str(cl.concatenate([x, y]).source) == "concat(x, y)"
    assert str(cl.concatenate([x, x[:2]]).source) == "concat(x, x)"
    assert str(x.pad(1, value=float("nan")).source) == "pad(x, nan)"
    assert str(cl.concatenate([x.pad(1), y, x.pad(1, value=2)]).source) == "pad(concat(x, y, x), 0.0, 2.0)"
    assert str(x[:0].pad(2).source) == "pad(concat(), 0.0)"
