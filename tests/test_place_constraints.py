"""Graphs that are placed by hand in part: constraints are kept, and contradictions are told."""

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from lowering.machine.place import METHODS, place
from lowering.pipeline import plan_engine
from lowering.plan.timeline import without_calls
from tests.examples import examples
from tests.placements import plan_of
from tests.strategies import cases

TILES = 8


@cl.codelet
def add(a, b):
    return a + b


@cl.codelet
def total(x):
    return x.sum()


def engine_plan(graph, program=None):
    return without_calls(plan_engine(graph, program or graph.default_program))


def neighbours(count=40, tiles=TILES, seed=0):
    """Sums over a table, of which nothing is placed."""
    graph = cl.Graph(cl.IPU(num_tiles=tiles))
    random = np.random.default_rng(seed)
    x, y, i = graph.add_variable("x", (count,)), graph.add_variable("y", (count,)), cl.grid(count)
    near = cl.table(random.integers(0, count, (count, 3)))
    graph.add_vertex("sums", total, x=x[near[i]], out=y[i])
    return graph, x, y, i


def tiles_of(placement, tensor):
    return placement.tiles_of(tensor.source).reshape(tensor.shape)


# --- parts placed by hand -------------------------------------------------------------------------------------


@examples(15)
@given(cases(), st.sampled_from(METHODS[:-3]), st.integers(0, 1000))
def test_some_elements_keep_their_tiles(case, method, seed):
    random, some = np.random.default_rng(seed), {}
    for variable in case.graph.sources:
        tensor = case.graph.variable(variable.name)
        if random.random() < 0.5 and tensor.ndim and tensor.size:
            half = tensor[: -(-tensor.shape[0] // 2)]
            case.graph.set_tile_mapping(half, random.integers(0, TILES, half.shape))
            some[variable] = case.graph.tile_mapping(tensor)
    placement = place(plan_of(case), method)
    for variable in placement.plan.variables:
        own = placement.tiles_of(variable)
        assert ((own >= 0) & (own < TILES)).all()
        if variable in some:
            given_tiles = some[variable].reshape(-1)
            np.testing.assert_array_equal(own[given_tiles >= 0], given_tiles[given_tiles >= 0])


@pytest.mark.parametrize("method", METHODS)
def test_a_table_with_some_of_everything_by_hand(method):
    if method in ("partition", "hypergraph"):
        pytest.importorskip({"partition": "pymetis", "hypergraph": "mtkahypar"}[method])
    graph, x, y, _ = neighbours()
    graph.set_tile_mapping(x[:10], 7)
    graph.set_tile_mapping(y[5:8], np.array([1, 2, 3]))
    graph.add_vertex("more", add, a=x[cl.grid(4)], b=0.0, tile=5)
    placement = place(engine_plan(graph), method)
    assert set(tiles_of(placement, x)[:10].tolist()) == {7}
    assert tiles_of(placement, y)[5:8].tolist() == [1, 2, 3]
    (more,) = (tiles for family, tiles in placement.vertex_tiles.items() if family.compute_set.name == "more")
    assert set(more.tolist()) == {5}


def test_values_and_slopes_are_right_where_some_is_mapped():
    graph, x, y, _ = neighbours()
    plain = cl.lower(graph, inputs=[x], outputs=[y])
    graph.set_tile_mapping(x[:7], 3)
    some = cl.lower(graph, inputs=[x], outputs=[y])
    value = np.arange(40, dtype=np.float32)
    slope = lambda run: jax.grad(lambda v: run({"x": v})["y"].sum())(value)  # noqa: E731
    np.testing.assert_array_equal(some({"x": value})["y"], plain({"x": value})["y"])
    np.testing.assert_array_equal(slope(some), slope(plain))
    loss = graph.add_vertex("loss", total, x=y)
    made = cl.gradient(graph, of=loss, wrt=[x])
    back = cl.lower(graph, cl.Sequence(made.forward, made.backward), inputs=[x], outputs=[made[x]])
    np.testing.assert_array_equal(back({"x": value})[made[x]], slope(plain))


@pytest.mark.parametrize("execution", ["tiles", "addresses"])
def test_some_by_hand_runs_on_tiles(execution):
    graph, x, y, i = neighbours()
    graph.set_tile_mapping(x[:7], 3)
    graph.place(together=[x[i], y[39 - i]])
    value = np.arange(40, dtype=np.float32)
    found = []
    for own in ("fused", execution):
        engine = cl.Engine(graph, execution=own)
        engine.write("x", value)
        engine.run()
        found.append(engine.read("y"))
    np.testing.assert_array_equal(found[0], found[1])


# --- constraints ----------------------------------------------------------------------------------------------


@examples(20)
@given(st.sampled_from(METHODS[:-3]), st.integers(0, 10**6), st.integers(2, 30), st.integers(2, 9))
def test_what_is_together_is_and_what_is_apart_is(method, seed, count, tiles):
    graph, x, y, i = neighbours(count, tiles, seed)
    z = graph.add_vertex("others", add, a=x[i], b=y[i])
    order = np.random.default_rng(seed).permutation(count)
    graph.place(together=[x[i], y[cl.table(order)[i]]])
    graph.place(apart=[x[i], z[i]])
    placement = place(engine_plan(graph), method)
    xs, ys, zs = (tiles_of(placement, own) for own in (x, y, z))
    np.testing.assert_array_equal(xs, ys[order])
    assert (xs != zs).all()
    (sums,) = (own for family, own in placement.vertex_tiles.items() if family.compute_set.name == "sums")
    np.testing.assert_array_equal(sums, ys)


def test_whole_variables_together_are_on_one_tile():
    graph, x, y, _ = neighbours()
    graph.place(together=[x, "y"])
    placement = place(engine_plan(graph))
    assert len({*tiles_of(placement, x).tolist(), *tiles_of(placement, y).tolist()}) == 1


def test_what_is_together_follows_what_was_given_a_tile():
    graph, x, y, i = neighbours()
    graph.place(together=[x[i], y[i]])
    graph.set_tile_mapping(x[:3], np.array([4, 5, 6]))
    assert tiles_of(place(engine_plan(graph)), y)[:3].tolist() == [4, 5, 6]


def test_as_many_apart_as_there_are_tiles():
    graph = cl.Graph(cl.IPU(num_tiles=6))
    parts = [graph.add_variable(f"x{k}", (5,)) for k in range(6)]
    for part in parts:
        graph.place(together=[part])
    graph.place(apart=parts)
    for part in parts:
        graph.add_vertex("sums", total, x=part, out=graph.add_variable(f"of {part.name}", ()))
    placement = place(engine_plan(graph))
    assert sorted(int(tiles_of(placement, part)[0]) for part in parts) == list(range(6))


def test_the_balanced_placement_meets_constraints():
    graph, x, *_ = neighbours()
    graph.place(apart=[x[:20], x[20:]])
    placement = cl.Engine(graph).machine().placement
    xs = tiles_of(placement, x)
    assert not set(xs[:20].tolist()) & set(xs[20:].tolist())


# --- what cannot be -------------------------------------------------------------------------------------------


def together_on_two(graph, x, y, i):
    graph.place(together=[x[:4]])
    graph.set_tile_mapping(x[:4], np.array([0, 0, 1, 0]))


def apart_on_one(graph, x, y, i):
    graph.place(apart=[x[i], y[i]])
    graph.set_tile_mapping(x, 3)
    graph.set_tile_mapping(y[5:], 3)


def both(graph, x, y, i):
    graph.place(together=[x[i], y[i]])
    graph.place(apart=[x[3], y[3]])


def with_itself(graph, x, y, i):
    graph.place(apart=[x[i], x[i]])


def too_many(graph, x, y, i):
    big = graph.add_variable("big", (5000,))
    graph.add_vertex("sum of big", total, x=big)
    graph.place(apart=[big[:2500], big[2500:]])


def all_apart(graph, x, y, i):
    for k in range(9):
        for j in range(k):
            graph.place(apart=[x[j], x[k]])


@pytest.mark.parametrize(
    ("build", "said", "mend"),
    [
        (together_on_two, r"x\[0\] on tile 0, x\[2\] on tile 1", "give one of them a tile alone"),
        (apart_on_one, r"x\[5\] and y\[5\] on tile 3", "another tile"),
        (both, r"on one tile and on different ones", "leave one of the two constraints out"),
        (with_itself, r"x\[0\], by graph.place\(apart=", "leave one"),
        (too_many, r"6,250,000 pairs", "put the elements of each view together"),
        (all_apart, r"no tile is left", "more tiles"),
    ],
)
def test_contradictions(build, said, mend):
    graph, x, y, i = neighbours()
    build(graph, x, y, i)
    with pytest.raises(cl.PlacementError, match=said) as error:
        cl.Engine(graph).profile()
    assert mend in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (lambda x, y, i: {}, cl.PlacementError, "neither `together=` nor `apart=`"),
        (lambda x, y, i: {"together": x}, cl.PlacementError, "no list of tensors"),
        (lambda x, y, i: {"together": []}, cl.PlacementError, "no list of tensors"),
        (lambda x, y, i: {"apart": [x[k] for k in range(9)]}, cl.PlacementError, "9 views"),
        (lambda x, y, i: {"together": [x, 3]}, cl.TileError, "not a tensor"),
        (lambda x, y, i: {"together": [x.pad([(1, 1)])]}, cl.TileError, "padding cannot be placed"),
        (lambda x, y, i: {"apart": [neighbours()[1], x]}, cl.ForeignGraphError, "another graph"),
    ],
)
def test_wrong_constraints_are_refused_at_once(arguments, error, said):
    graph, x, y, i = neighbours()
    with pytest.raises(error, match=said):
        graph.place(**arguments(x, y, i))


def test_a_hand_placement_that_fills_a_tile_is_told():
    graph = cl.Graph(cl.IPU(num_tiles=4, bytes_per_tile=64 * 1024))
    x, i = graph.add_variable("x", (4, 10_000)), cl.grid(4)
    y = graph.add_vertex("sums", total, x=x[i])
    graph.set_tile_mapping(x, 2)
    with pytest.raises(cl.OutOfTileMemoryError, match="tile 2"):
        cl.Engine(graph).profile()
    assert y.shape == (4,)


# --- helpers --------------------------------------------------------------------------------------------------


@given(st.integers(0, 300), st.integers(1, 8), st.integers(1, 9), st.integers(0, 20))
def test_linear_mappings_are_in_ranges(size, tiles, grain, least):
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x = graph.add_variable("x", (size,))
    graph.map_linearly(x, tiles=tiles, grain=grain, least=least)
    own = graph.tile_mapping(x)
    assert (np.diff(own) >= 0).all()
    assert own.max(initial=0) < tiles
    assert (np.bincount(own)[:-1] % grain == 0).all()


def test_linear_mappings_of_views_and_of_some_tiles():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x = graph.add_variable("x", (4, 6))
    graph.map_linearly(x[:, :3], tiles=[7, 1, 5])
    assert graph.tile_mapping(x)[:, :3].reshape(-1).tolist() == [7] * 4 + [1] * 4 + [5] * 4
    assert set(graph.tile_mapping(x)[:, 3:].reshape(-1).tolist()) == {-1}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"tiles": 9}, "a tile does not exist"),
        ({"tiles": []}, "no tile to lay"),
        ({"tiles": "all"}, "says no tiles"),
        ({"tiles": [1.5]}, "says no tiles"),
        ({"grain": 0}, "grain"),
        ({"least": -1}, "least"),
    ],
)
def test_wrong_linear_mappings(arguments, said):
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x = graph.add_variable("x", (16,))
    with pytest.raises(cl.TileError, match=said):
        graph.map_linearly(x, **arguments)
    with pytest.raises(cl.TileError, match="symbols"):
        graph.map_linearly(x[cl.grid(16)])
