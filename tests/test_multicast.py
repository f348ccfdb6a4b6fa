"""Multicast: what is counted once for tiles that touch the same is what each vertex and each element come to."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from lowering.adjoint.added import variable_of
from lowering.machine.element_tiles import ElementTiles, tile_dtype
from lowering.machine.exchange import plan_exchange
from lowering.machine.multicast import Multicast, leading_tiles, merged
from lowering.machine.offsets import sums_at_moments
from lowering.machine.placement import Placement, num_elements
from lowering.plan.runs import runs_of
from lowering.plan.steps import ExecuteStep
from lowering.plan.timeline import timeline
from tests.examples import examples
from tests.placements import TILES, built, plan_of_graph, touched, vertices_of
from tests.test_exchange import check_transfer


@st.composite
def tiles_of_grids(draw):
    """Tiles over a grid of three axes, as products of what each axis says or nearly so, and some of the axes."""
    extents = [draw(st.integers(1, 4)) for _ in range(3)]
    own = [draw(st.lists(st.integers(0, 1), min_size=extent, max_size=extent)) for extent in extents]
    weights = draw(st.permutations([1, 2, 4]))
    places = np.meshgrid(*[weight * np.array(each) for weight, each in zip(weights, own, strict=True)], indexing="ij")
    tiles = np.sum(places, 0)
    for _ in range(draw(st.integers(0, 2))):
        tiles[tuple(draw(st.integers(0, extent - 1)) for extent in extents)] = draw(st.integers(0, TILES - 1))
    free = draw(st.lists(st.sampled_from(range(3)), min_size=1, max_size=2, unique=True))
    return tiles, tuple(sorted(free))


def positions_by_tile(tiles, kept):
    found = {}
    for position in np.ndindex(tiles.shape):
        found.setdefault(int(tiles[position]), set()).add(tuple(position[d] for d in kept))
    return found


@given(tiles_of_grids())
def test_a_leader_touches_what_each_tile_that_it_stands_for_does(drawn):
    tiles, free = drawn
    kept = [d for d in range(3) if d not in free]
    every = positions_by_tile(tiles, kept)
    found = leading_tiles(tiles, free, TILES)
    if found is None:
        sets = list(every.values())
        assert any(a != b and a & b for a in sets for b in sets) or len(sets) > len({*map(frozenset, sets)})
        return
    leading, leaders = found
    by_leader = positions_by_tile(leading, range(len(kept)))
    for tile in range(TILES):
        assert leaders[leaders[tile]] == leaders[tile]
        assert every.get(tile) == by_leader.get(int(leaders[tile])) or tile not in every


def test_tiles_of_a_product_fall_into_groups():
    rows, columns = np.meshgrid(np.arange(4) // 2, np.arange(6) // 2, indexing="ij")
    found = leading_tiles(rows * 3 + columns, (1,), TILES)
    assert found is not None
    leading, leaders = found
    assert (leading.tolist(), leaders.tolist()) == ([0, 0, 3, 3], [0, 0, 0, 3, 3, 3, 6, 7])
    rows[0, 0] = 1
    assert leading_tiles(rows * 3 + columns, (1,), TILES) is None


@given(st.lists(st.tuples(st.lists(st.integers(0, 2), min_size=6, max_size=6), st.booleans()), max_size=3), st.data())
def test_what_has_a_variable_in_common_is_made_one(drawn, data):
    x, y = (variable_of(cl.Graph().add_variable("v", (9,))) for _ in range(2))
    space, found, expected = 10, [], {}
    for kinds, is_x in drawn:
        leaders = np.array([kinds.index(kind) for kind in kinds])
        sets = {k: data.draw(st.sets(st.integers(0, 8))) for k in set(leaders.tolist())}
        runs = runs_of(np.array(sorted(k * space + n for k, own in sets.items() for n in own), np.int64))
        found.append(Multicast(runs, leaders, frozenset([x if is_x else y])))
        for tile, leader in enumerate(leaders.tolist()):
            expected.setdefault((is_x, tile), set()).update(sets[leader])
    parts = merged(found, space)
    assert len(parts) == len({is_x for _, is_x in drawn})
    for part in parts:
        numbers = part.runs.numbers()
        for tile in range(6):
            own = numbers[numbers // space == part.leaders[tile]] % space
            assert set(own.tolist()) == expected[x in part.variables, tile]


@cl.codelet
def of_three(a, b, c):
    return a.sum() + b.sum() + c.sum()


@st.composite
def shared_reads(draw):
    """Vertices over a grid that share rows, columns and stretches of one or two variables, each block on a tile."""
    graph = built()
    height, width = draw(st.integers(1, 5)), draw(st.integers(1, 5))
    dtype = draw(st.sampled_from(["float32", "float16"]))
    x = graph.add_variable("x", (height + 1, width + 1), dtype)
    other = x if draw(st.booleans()) else graph.add_variable("z", (height + 1, width + 1), dtype)
    y = graph.add_variable("y", (height, width), dtype)
    i, j = cl.grid(height, width)
    last = draw(st.sampled_from([lambda: x[i, j : j + 2], lambda: other[:, j], lambda: other[0]]))()
    graph.add_vertex("set", of_three, a=x[i], b=other[j % (height + 1)], c=last, out=y[i, j])
    plan = plan_of_graph(graph)
    random = np.random.default_rng(draw(st.integers(0, 2**16)))
    elements = np.full(num_elements(plan), -1, tile_dtype(TILES))
    most = draw(st.integers(1, TILES))
    for own in plan.variables:
        tiles = random.integers(0, most, own.size)
        elements[own.first_element :][: own.size] = np.sort(tiles) if draw(st.booleans()) else tiles
    down, across = draw(st.integers(1, height)), draw(st.integers(1, width))
    blocks = np.arange(height)[:, None] // down * -(-width // across) + np.arange(width) // across
    tiles = random.permutation(TILES)[blocks % TILES].astype(np.int32)
    (family,) = plan.families
    return Placement(plan, TILES, ElementTiles.of(plan, elements), {family: tiles.reshape(-1)})


@examples(60)
@given(shared_reads())
def test_what_tiles_share_moves_as_counted_one_by_one(placement):
    exchange = plan_exchange(placement)
    (moment,) = timeline(placement.plan).moments
    assert isinstance(moment.step, ExecuteStep)
    moved = exchange.of(moment.step)
    for transfer, written in ((moved.before, False), (moved.after, True)):
        pairs = {
            (element, tile)
            for family, number, tile in vertices_of(placement, moment.step.families)
            for element in touched(family, number, written=written)
        }
        check_transfer(placement, transfer, pairs, written)


@given(st.integers(0, 5), st.integers(1, 4), st.integers(0, 99))
def test_what_is_live_at_each_moment_is_summed(ranges, num_moments, seed):
    random = np.random.default_rng(seed)
    sizes, moments = random.integers(0, 9, (ranges, 3)), random.integers(0, 2, (ranges, num_moments)).astype(bool)
    np.testing.assert_array_equal(sums_at_moments(sizes, moments), moments.T.astype(int) @ sizes)


@pytest.mark.parametrize(("num_tiles", "dtype"), [(1472, np.int16), (32767, np.int16), (64 * 1472, np.int32)])
def test_numbers_of_tiles_are_as_short_as_the_machine_lets_them(num_tiles, dtype):
    assert tile_dtype(num_tiles) is dtype
    assert np.iinfo(dtype).max >= num_tiles
