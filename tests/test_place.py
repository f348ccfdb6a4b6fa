"""Placement: what is given is kept, the rest follows its rule, and ten million vertices take seconds."""

import os
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.graphs.linear import linear_tiles
from codelet.graphs.vertex_cycles import family_cycles
from codelet.graphs.vertices import Vertex
from lowering.machine.balance import least_bound, level_of
from lowering.machine.candidates import place_by
from lowering.machine.exchange import plan_exchange
from lowering.machine.place import METHODS as ALL_METHODS
from lowering.machine.place import place, place_and_exchange
from lowering.machine.step_cycles import least_cycles, total_cycles
from lowering.machine.votes import majority
from lowering.pipeline import plan_engine
from lowering.plan.steps import ExecuteStep
from lowering.plan.walk import all_steps
from tests.examples import examples
from tests.placements import TILES, built, plan_of, touched, vertices_of
from tests.strategies import cases
from tests.test_scale import N, copy_one, six_axes, stencil

METHODS = st.sampled_from(ALL_METHODS)


@cl.codelet
def double(x):
    return 2 * x


@cl.codelet
def total(x):
    return x.sum()


@cl.codelet(cycles=lambda x: 100 * x.size)
def slow(x):
    return x.sum()


def engine_plan(graph):
    return plan_engine(graph, graph.default_program)


# --- linear mapping -----------------------------------------------------------------------------------


@given(st.integers(0, 400), st.integers(1, 12), st.integers(1, 9), st.integers(0, 40))
def test_linear_ranges_are_even_and_of_whole_grains(size, tiles, grain, least):
    mapped = linear_tiles(size, tiles, grain=grain, least=least)
    assert mapped.shape == (size,)
    assert (np.diff(mapped) >= 0).all()
    counts = np.bincount(mapped)
    assert len(counts) <= tiles
    assert (counts[:-1] % grain == 0).all()
    if size:
        assert (counts > 0).all()
        assert counts.max() - counts.min() <= 2 * grain
        assert counts.min() >= min(size, least) - grain


def test_linear_mapping_is_that_of_poplibs():
    # 1000 floats in grains of 2 and of at least 32 on a tile: 31 ranges of 16 or 17 grains.
    counts = np.bincount(linear_tiles(1000, 1472, grain=2, least=32))
    assert len(counts) == 30
    assert set(counts.tolist()) == {32, 34}
    # 10^6 elements on all tiles.
    counts = np.bincount(linear_tiles(10**6, 1472, grain=2, least=32))
    assert len(counts) == 1471
    assert counts.max() == 680


# --- what is given is kept ------------------------------------------------------------------------------


@examples(10)
@given(cases(), METHODS)
def test_everything_has_a_tile_and_always_the_same(case, method):
    plan = plan_of(case)
    placement = place(plan, method)
    lived = np.zeros(len(placement.element_tiles), bool)
    for variable in plan.variables:
        tiles = placement.tiles_of(variable)
        assert tiles.shape == (variable.size,)
        assert ((tiles >= 0) & (tiles < TILES)).all()
        lived[variable.first_element : variable.first_element + variable.size] = True
    assert (np.asarray(placement.element_tiles)[~lived] == -1).all()
    assert placement.element_tiles.dtype == np.int16
    for family, tiles in placement.vertex_tiles.items():
        assert tiles.shape == (family.num_vertices,)
        assert tiles.dtype == np.int32
        assert ((tiles >= 0) & (tiles < TILES)).all()
    again = place(plan_of(case), method)
    np.testing.assert_array_equal(again.element_tiles, placement.element_tiles)
    for one, other in zip(again.vertex_tiles.values(), placement.vertex_tiles.values(), strict=True):
        np.testing.assert_array_equal(one, other)
    assert str(again) == str(placement)


@examples(10)
@given(cases(), METHODS)
def test_vertices_keep_their_tiles_whatever_the_normal_form(case, method):
    placement = place(plan_of(case), method)
    # By what a vertex touches, which the normal form does not change.
    key = lambda family, number: (  # noqa: E731
        family.compute_set.name,
        family.codelet.name,
        tuple(touched(family, number, written=False)),
        tuple(touched(family, number, written=True)),
    )
    found: dict = {}
    for family, number, tile in vertices_of(placement, placement.plan.families):
        found.setdefault(key(family, number), []).append(tile)
    for vertex in case.graph.iter_vertices():
        if vertex.tile is not None and key(vertex.family, vertex.number) in found:
            assert vertex.tile in found[key(vertex.family, vertex.number)]


@examples(10)
@given(cases(), METHODS, st.integers(0, 1000))
def test_elements_keep_their_tiles(case, method, seed):
    random = np.random.default_rng(seed)
    for variable in case.graph.sources:
        case.graph.set_tile_mapping(case.graph.variable(variable.name), random.integers(0, TILES, variable.shape))
    placement = place(plan_of(case), method)
    np.testing.assert_array_equal(placement.element_tiles, case.graph.element_tiles)


@pytest.mark.slow
@examples(30)
@given(cases(), METHODS)
def test_what_vertices_with_tiles_write_lives_with_its_first_writer(case, method):
    plan = plan_of(case)
    placement = place(plan, method)
    seen: set[int] = set()
    for family, number, tile in vertices_of(placement, plan.families):
        if family.tile is not None:
            own = set(touched(family, number, written=True)) - seen
            seen |= own
            assert {int(placement.element_tiles[element]) for element in own} <= {tile}


# --- balance ------------------------------------------------------------------------------------------


@pytest.mark.slow
@examples(25)
@given(cases())
def test_no_tile_is_loaded_beyond_the_bound(case):
    plan = plan_of(case)
    placement = place_by(plan, "bytes")
    for step in all_steps(plan.steps):
        if isinstance(step, ExecuteStep) and all(family.tile is None for family in step.families):
            counts = [family.num_vertices for family in step.families]
            cycles = [family_cycles(family, plan.graph.target) for family in step.families]
            load = sum(
                np.bincount(placement.vertex_tiles[family], own.of_each(family.num_vertices), TILES)
                for family, own in zip(step.families, cycles, strict=True)
            )
            most = max((each.counted for own in cycles for each in own.distinct), default=0)
            assert np.max(load) <= least_bound(cycles, counts, np.zeros(TILES, np.int64), 6) + most


@pytest.mark.slow
@examples(6)
@given(cases())
def test_no_graph_takes_more_cycles_than_placed_linearly(case):
    plan = plan_of(case)
    found, linear = place_and_exchange(plan), plan_exchange(place(plan, "linear"))
    assert total_cycles(found) <= total_cycles(linear)
    # What moves is known before: the pass does not plan it again.
    np.testing.assert_array_equal(place(plan).element_tiles, found.placement.element_tiles)
    for step, own in plan_exchange(found.placement).steps.items():
        np.testing.assert_array_equal(own.before.received_bytes, found.steps[step].before.received_bytes)
    profile = cl.Engine(case.graph, case.sequence()).profile(allow_out_of_memory=True)
    assert profile.total_cycles == total_cycles(found)
    assert profile.total_cycles >= least_cycles(found.placement.plan, found.placement.vertex_tiles)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=9), st.integers(0, 400))
def test_the_least_loaded_tiles_are_filled_to_one_level(loads, more):
    load = np.array(loads)
    level = level_of(load, more)
    assert np.maximum(level - load, 0).sum() == pytest.approx(more)
    assert level >= load.min()


@pytest.mark.parametrize(("count", "near"), [(8000, 1), (8000, 3), (1111, 2), (50, 5)])
def test_many_equal_vertices_are_spread_evenly_wherever_their_data_live(count, near):
    """All want a few tiles; what their workers do not run in the rounds that all tiles need goes elsewhere."""
    graph = cl.Graph(cl.IPU(num_tiles=64))
    x, y = graph.add_variable("x", (count,)), graph.add_variable("y", (count,))
    for tensor in (x, y):
        graph.set_tile_mapping(tensor, np.arange(count) % near)
    i = cl.grid(count)
    graph.add_vertex("all", slow, x=x[i : i + 1], out=y[i])
    exchange = plan_exchange(place_by(engine_plan(graph), "bytes"))
    (tiles,) = exchange.placement.vertex_tiles.values()
    load = np.bincount(tiles, minlength=64)
    assert -(-load.max() // 6) == -(-count // (64 * 6))
    if count == 8000:
        assert -(-load // 6).sum() >= 0.95 * 64 * -(-load.max() // 6)


def test_vertices_go_where_most_of_their_bytes_live():
    graph = built()
    x, w = graph.add_variable("x", (16, 3)), graph.add_variable("w", (16, 2))
    y = graph.add_variable("y", (16,))
    graph.set_tile_mapping(x, np.repeat(np.arange(16) % 8, 3).reshape(16, 3))
    graph.set_tile_mapping(w, 7)
    graph.set_tile_mapping(y, 7)

    @cl.codelet
    def weigh(x, w):
        return x.sum() + w.sum()

    i = cl.grid(16)
    graph.add_vertex("weigh", weigh, x=x[i], w=w[i], out=y[i])
    (tiles,) = place(engine_plan(graph)).vertex_tiles.values()
    # Three elements of x against two of w and one of y, of which the first named wins.
    np.testing.assert_array_equal(tiles, np.arange(16) % 8)


@examples(10)
@given(st.integers(0, 999), st.integers(0, 9))
def test_votes_are_counted_as_one_by_one(seed, count):
    random, extents = np.random.default_rng(seed), (3, 1, 5)
    shapes = [[n if random.random() < 0.7 else 1 for n in extents] for _ in range(count)]
    votes = [random.integers(-1, 4, shape).astype(np.int32) for shape in shapes]
    weights = random.integers(1, 4, count).astype(np.float32)
    with patch("lowering.machine.votes._VERTICES", 4):
        found = majority(votes, weights, extents)
    for k, tile in zip(np.ndindex(extents), found, strict=True):
        named = [int(np.broadcast_to(own, extents)[k]) for own in votes]
        sums = {t: sum(w for own, w in zip(named, weights, strict=True) if own == t) for t in named if t >= 0}
        assert tile == max(sums, key=lambda t: sums[t], default=-1)


def test_what_would_overload_a_tile_goes_elsewhere():
    graph = built()
    x, y = graph.add_variable("x", (80,)), graph.add_variable("y", (80,))
    graph.set_tile_mapping(x, 3)
    graph.set_tile_mapping(y, 3)
    i = cl.grid(80)
    graph.add_vertex("all", total, x=x[i : i + 1], out=y[i])
    (tiles,) = place(engine_plan(graph)).vertex_tiles.values()
    counts = np.bincount(tiles, minlength=8)
    assert counts[3] == counts.max() == 12  # two rounds of six workers; the mean of ten needs them too
    assert (tiles[:12] == 3).all()
    assert counts.min() >= 9


def test_a_codelets_own_cycles_count():
    graph = built()
    x = graph.add_variable("x", (8, 4))
    i = cl.grid(8)
    graph.add_vertex("sum", slow, x=x[i])
    (family,) = engine_plan(graph).families
    assert family_cycles(family, graph.target).of_each(8).tolist() == [400] * 8


def test_cycles_of_rows_grow_with_their_length():
    graph = built()
    x, y = graph.add_variable("x", (100,)), graph.add_variable("y", (13,))
    i = cl.grid(13)
    graph.add_vertex("sum", slow, x=x[i * (i - 1) // 2 : i * (i + 1) // 2], out=y[i])
    (family,) = engine_plan(graph).families
    np.testing.assert_array_equal(family_cycles(family, graph.target).of_each(13), 100 * np.arange(13))
    assert len(Vertex(family, 5).fields["x"]) == 5


def test_state_that_is_read_first_is_linear_and_outputs_follow():
    graph = built()
    x = graph.add_variable("x", (256,))
    i = cl.grid(256)
    h = graph.add_vertex("one", double, x=x[i])
    y = graph.add_variable("y", (256,))
    program = cl.Sequence(graph.compute_sets[0], cl.Copy(h, y))
    placement = place(plan_engine(graph, program))
    linear = linear_tiles(256, TILES, grain=2, least=32)
    for variable in graph.sources:
        np.testing.assert_array_equal(placement.tiles_of(variable), linear)


def test_an_unknown_method_is_refused():
    with pytest.raises(cl.ProgramError, match="there is no such placement"):
        place(engine_plan(built()), "best")  # type: ignore[arg-type]


def test_printed():
    graph = built(4)
    x = graph.add_variable("x", (64,))
    c = graph.add_constant("c", np.ones(2, np.int32))
    i = cl.grid(3)
    graph.add_vertex("sums", total, x=x[i : i + 8], tile=i)
    graph.add_vertex("last", double, x=c[0])
    text = (
        "placement on 4 tiles\n"
        "  x: float32[64]: 64 elements on 3 tiles from 0 to 2, at most 34 on one\n"
        "  c: int32[2]: 2 elements on tile 0\n"
        "  sums/out: float32[3]: 3 elements on 3 tiles from 0 to 2, at most 1 on one\n"
        "  last/out: int32[]: 1 element on tile 0\n"
        "  sums / total: 3 vertices on 3 tiles from 0 to 2, at most 1 on one\n"
        "  last / double: 1 vertex on tile 0"
    )
    assert str(place(engine_plan(graph), "blocks")) == text
    lines = str(place(engine_plan(graph))).splitlines()
    chosen, last = lines[7], lines[-1]
    assert "\n".join(lines[:7]) == text
    assert chosen == "  chosen blocks: 575 cycles, 164 bytes"
    assert last == "  tried linear: 580 cycles, 164 bytes"


# --- scale --------------------------------------------------------------------------------------------


def gathered(graph):
    random, i = np.random.default_rng(0), cl.grid(N)
    x, y = graph.add_variable("x", (N,)), graph.add_variable("y", (N,))
    sources, order = random.integers(0, N, N), random.permutation(N)
    graph.add_vertex("set", copy_one, x=x[cl.table(sources)[i]], out=y[cl.table(order)[i]])


@pytest.mark.slow
@pytest.mark.parametrize("build", [stencil, six_axes, gathered])
def test_ten_million_vertices_are_placed_in_seconds(build):
    graph = cl.Graph()
    build(graph)
    plan = engine_plan(graph)
    start = os.times().user  # what fresh pages take is the kernel's, and some machines' as much again
    placement = place(plan)
    assert os.times().user - start < (120 if build is gathered else 10)  # two to seven; a partition, a minute
    counts = np.bincount(placement.vertex_tiles[plan.families[0]], minlength=1472)
    assert counts.max() <= 1.1 * -(-N // (1472 * 6)) * 6
