"""Placement by blocks and rows: where they take fewer cycles, that the cheapest that fits is chosen."""

import math

import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from codelet.graphs.linear import linear_tiles
from codelet.views.digits import Digit
from lowering.machine.blocks import block_tiles, chosen_parts, row_tiles
from lowering.machine.candidates import place_by
from lowering.machine.exchange import plan_exchange
from lowering.machine.footprint import count_values, readings_of
from lowering.machine.place import METHODS, place, place_and_exchange
from lowering.machine.step_cycles import total_cycles
from lowering.pipeline import plan_engine, plan_machine
from lowering.plan.steps import ExecuteStep
from tests.examples import examples, few
from tests.placements import plan_of
from tests.strategies import cases


@cl.codelet
def mean(here, north, south, west, east):
    return (here + north + south + west + east) / 5


@cl.codelet
def mean_of_seven(a, b, c, d, e, f, g):
    return (a + b + c + d + e + f + g) / 7


@cl.codelet
def total(x):
    return x.sum()


@cl.codelet
def dot(x, w):
    return jnp.dot(x, w)


@cl.codelet
def double(x):
    return 2 * x


@cl.codelet
def collide(a, b, c, d, e):
    rest = (a + b + c + d + e) / 5
    return {name + "_": 0.5 * (rest + f) for name, f in zip("abcde", (a, b, c, d, e), strict=True)}


@cl.codelet
def spread(x, *, size):
    return x * jnp.arange(size)


# --- graphs -------------------------------------------------------------------------------------------


def graph_of(side):
    """A graph on a machine of as many tiles as leave each about 64 points of a square."""
    return cl.Graph(cl.IPU(num_tiles=max(4, side * side // 64)))


def heat(side=34):
    """A five-point stencil, and a copy back."""
    graph = graph_of(side - 2)
    u, v = graph.add_variable("u", (side, side)), graph.add_variable("v", (side, side))
    i, j = cl.grid(range(1, side - 1), range(1, side - 1))
    around = {"north": u[i - 1, j], "south": u[i + 1, j], "west": u[i, j - 1], "east": u[i, j + 1]}
    graph.add_vertex("diffuse", mean, here=u[i, j], **around, out=v[i, j])
    return graph, cl.Sequence(cl.Copy(u, v), cl.Repeat(5, cl.Sequence(graph.compute_sets[0], cl.Copy(v, u))))


def windows(side=32):
    """Windows of 3 x 3 of a padded array, and something of each result after it."""
    graph = graph_of(side)
    u = graph.add_variable("u", (side, side)).pad(1)
    i, j = cl.grid(side, side)
    y = graph.add_vertex("windows", total, x=u[i : i + 3, j : j + 3])
    i, j = cl.grid(side, side)
    graph.add_vertex("after", double, x=y[i, j])
    return graph, graph.default_program


def product(size=32):
    """A matrix product, a vertex for each row and column."""
    graph = graph_of(size)
    a, b = graph.add_variable("a", (size, size)), graph.add_variable("b", (size, size))
    i, j = cl.grid(size, size)
    graph.add_vertex("multiply", dot, x=a[i], w=b[:, j])
    return graph, graph.default_program


def lattice_boltzmann(side=32):
    """Five directions on a torus, there and back."""
    graph, names = graph_of(side), "abcde"
    here = {name: graph.add_variable(name, (side, side)) for name in names}
    there = {name: graph.add_variable(f"{name}2", (side, side)) for name in names}
    for old, new in ((here, there), (there, here)):
        i, j = cl.grid(side, side)
        moves = zip(names, ((0, 0), (1, 0), (-1, 0), (0, 1), (0, -1)), strict=True)
        fields = {name: old[name][(i - di) % side, (j - dj) % side] for name, (di, dj) in moves}
        compute_set = graph.add_compute_set(f"step {len(graph.compute_sets)}")
        graph.add_vertex(compute_set, collide, **fields, **{f"{name}_": new[name][i, j] for name in names})
    return graph, cl.Repeat(5, graph.default_program)


def cube(side=18):
    """A seven-point stencil."""
    graph = cl.Graph(cl.IPU(num_tiles=(side - 2) ** 3 // 64))
    u, v = graph.add_variable("u", (side,) * 3), graph.add_variable("v", (side,) * 3)
    i, j, k = cl.grid(*[range(1, side - 1)] * 3)
    near = [u[i + di, j + dj, k + dk] for di, dj, dk in [(0, 0, 0), *np.eye(3, dtype=int), *-np.eye(3, dtype=int)]]
    graph.add_vertex("diffuse", mean_of_seven, **dict(zip("abcdefg", near, strict=True)), out=v[i, j, k])
    return graph, cl.Repeat(5, cl.Sequence(graph.compute_sets[0], cl.Copy(v, u)))


GRAPHS = {own.__name__: own for own in (heat, windows, product, lattice_boltzmann, cube)}


def by_name(exchange):
    """What each compute set moves."""
    return {step.name: moved for step, moved in exchange.steps.items() if isinstance(step, ExecuteStep)}


def received_bytes(exchange):
    """What the fullest tile receives before steps compute, summed over the steps."""
    return sum(int(step.before.received_bytes.max(initial=0)) for step in exchange.steps.values())


# --- where blocks win ---------------------------------------------------------------------------------


MOST_OF_BEFORE = {"heat": 0.8, "windows": 0.8, "product": 0.5, "lattice_boltzmann": 0.8, "cube": 0.95}
"""What the fullest tile receives by blocks, at most, in parts of the less of linear and by bytes."""


@pytest.mark.parametrize("name", GRAPHS)
def test_blocks_win_for_neighbours_and_products(name):
    graph, program = GRAPHS[name]()
    plan = plan_engine(graph, program)
    found = {way: plan_exchange(place_by(plan, way)) for way in ("linear", "bytes", "rows", "blocks")}
    cycles = {way: total_cycles(own) for way, own in found.items()}
    assert cycles["blocks"] < min(cycles["linear"], cycles["bytes"]), cycles
    received = {way: received_bytes(own) for way, own in found.items()}
    assert received["blocks"] <= MOST_OF_BEFORE[name] * min(received["linear"], received["bytes"]), received
    assert total_cycles(place_and_exchange(plan)) == min(cycles.values())


def test_a_block_of_a_stencil_receives_its_rim_alone():
    graph, program = windows()
    exchange = plan_exchange(place(plan_engine(graph, program), "blocks"))
    step = by_name(exchange)
    assert step["windows"].before.received_bytes.max() == 4 * (10 * 10 - 8 * 8)
    assert not step["windows"].after.sent_bytes.any()
    assert not step["after"].before.received_bytes.any()


def test_neighbours_that_wrap_around_are_no_further():
    graph, program = lattice_boltzmann()
    exchange = plan_exchange(place(plan_engine(graph, program), "blocks"))
    for moved in exchange.steps.values():
        assert set(moved.before.received_bytes.tolist()) == {4 * 4 * 8}  # an edge of each direction but the first
        assert not moved.after.sent_bytes.any()


def test_the_layers_of_mnist():
    """Weights live with the products that alone read them; sums and activations follow their parts."""
    graph = cl.Graph(cl.IPU(num_tiles=64))
    x, batch = graph.add_variable("x", (8, 256)), 8
    for layer, (inputs, outputs) in enumerate(((256, 64), (64, 10))):
        w = graph.add_variable(f"w{layer}", (outputs, inputs))
        image, row, part = cl.grid(batch, outputs, inputs // 16)
        here = slice(16 * part, 16 * part + 16)
        parts = graph.add_vertex("multiply", dot, x=x[image, here], w=w[row, here])
        image, row = cl.grid(batch, outputs)
        y = graph.add_vertex("add up", total, x=parts[image, row])
        image, row = cl.grid(batch, outputs)
        x = graph.add_vertex("activate", double, x=y[image, row])
    plan = plan_engine(graph, graph.default_program)
    cycles = {way: total_cycles(plan_exchange(place_by(plan, way))) for way in ("linear", "bytes", "blocks")}
    assert cycles["blocks"] < min(cycles["linear"], cycles["bytes"]), cycles
    exchange = place_and_exchange(plan)
    assert total_cycles(exchange) <= cycles["blocks"]
    (activate, *_) = (moved for name, moved in by_name(exchange).items() if "activate" in name)
    assert not activate.before.received_bytes.any()


def test_families_with_tiles_keep_them_and_the_others_come_to_them():
    side = 16
    graph = cl.Graph(cl.IPU(num_tiles=16))
    u = graph.add_variable("u", (side, side))
    i, j = cl.grid(side, side)
    mine = 15 - (4 * (i // 4) + j // 4)
    y = graph.add_vertex("given", double, x=u[i, j], tile=mine)
    i, j = cl.grid(range(1, side - 1), range(1, side - 1))
    graph.add_vertex("open", total, x=y[i - 1 : i + 2, j - 1 : j + 2])
    plan = plan_engine(graph, graph.default_program)
    for method in METHODS:
        placement = place(plan, method)
        given_tiles, open_tiles = placement.vertex_tiles.values()
        np.testing.assert_array_equal(
            given_tiles.reshape(side, side)[::4, ::4], 15 - np.arange(16).reshape(4, 4), err_msg=method
        )
        if method in ("blocks", "rows"):
            rows, columns = np.divmod(np.arange((side - 2) ** 2), side - 2)
            there = 15 - (4 * ((rows + 1) // 4) + (columns + 1) // 4)
            assert (open_tiles == there).mean() > 0.7
            np.testing.assert_array_equal(placement.tiles_of(plan.variables[0]), given_tiles)


# --- what is chosen -----------------------------------------------------------------------------------


@pytest.mark.slow
@examples(20)
@given(cases())
def test_what_is_chosen_takes_no_more_cycles_than_any_other_way(case):
    plan = plan_of(case)
    chosen = total_cycles(place_and_exchange(plan))
    linear, by_bytes, blocks = (
        total_cycles(plan_exchange(place_by(plan, way))) for way in ("linear", "bytes", "blocks")
    )
    assert chosen <= min(linear, by_bytes)
    assert chosen <= blocks or by_bytes <= linear


def test_what_fits_the_memory_comes_before_what_takes_fewer_cycles():
    """Six vertices, which lie on one tile unless something tells otherwise, write more than its memory holds."""
    target = cl.IPU(num_tiles=8, bytes_per_tile=64 * 1024)
    for size, fitting in ((1000, True), (4000, False)):
        graph = cl.Graph(target)
        x = graph.add_variable("x", (6,))
        i = cl.grid(6)
        graph.add_vertex("spread", spread, x=x[i], size=size)
        plan = plan_engine(graph, graph.default_program)
        by_bytes, found = place_by(plan, "bytes"), place_and_exchange(plan)
        assert (by_bytes.bytes_by_tile.max() <= target.bytes_per_tile) == fitting
        assert found.placement.bytes_by_tile.max() <= target.bytes_per_tile
        assert found.placement.bytes_by_tile.sum() == 4 * (6 + 6 * size)
        own, linear = total_cycles(plan_exchange(by_bytes)), total_cycles(plan_exchange(place_by(plan, "linear")))
        assert total_cycles(found) <= (own if fitting else linear)
        assert own < linear


@few("method", METHODS, quick=["linear"])
def test_an_engine_takes_each_by_name(method):
    graph, program = heat(16)
    u = np.random.default_rng(0).standard_normal((16, 16)).astype(np.float32)
    fused, tiles = cl.Engine(graph, program), cl.Engine(graph, program, execution="tiles", placement=method)
    for engine in (fused, tiles):
        engine.write({"u": u})
        engine.run()
    np.testing.assert_allclose(tiles.read("u"), fused.read("u"), rtol=1e-5)
    assert plan_machine(plan_engine(graph, program), method).placement.num_tiles == 4


# --- blocks and rows ----------------------------------------------------------------------------------


@given(st.lists(st.tuples(st.integers(1, 9), st.integers(1, 9)), min_size=1, max_size=3))
def test_blocks_are_boxes_of_nearly_equal_size(drawn):
    extents, parts = [extent for extent, _ in drawn], [min(both) for both in drawn]
    tiles = block_tiles(extents, parts).reshape(extents)
    assert sorted(set(tiles.flat)) == list(range(math.prod(parts)))
    for tile in range(math.prod(parts)):
        places = np.argwhere(tiles == tile)
        lengths = places.max(axis=0) - places.min(axis=0) + 1
        assert math.prod(lengths) == len(places)
        for length, extent, count in zip(lengths, extents, parts, strict=True):
            assert length in (extent // count, -(-extent // count))


@pytest.mark.parametrize(
    ("shape", "tiles", "parts"),
    [((64, 64), 16, (4, 4)), ((128, 32), 16, (8, 2)), ((16, 16, 16), 64, (4, 4, 4)), ((4, 6), 1000, (2, 2))],
)
def test_a_stencil_is_cut_into_squares_on_as_many_tiles_as_its_workers_need(shape, tiles, parts):
    graph = cl.Graph(cl.IPU(num_tiles=tiles))
    x = graph.add_variable("x", tuple(n + 2 for n in shape))
    symbols = cl.grid(*shape)
    graph.add_vertex("set", total, x=x[tuple(slice(i, i + 3) for i in symbols)])
    (family,) = plan_engine(graph, graph.default_program).families
    assert chosen_parts(family, graph.target) == parts


def test_rows_stay_together_in_order():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x = graph.add_variable("x", (6, 5, 9))
    i, j, k = cl.grid(4, 3, 7)
    graph.add_vertex("set", total, x=x[i : i + 3, j : j + 3, k : k + 3])
    (family,) = plan_engine(graph, graph.default_program).families
    tiles = row_tiles(family, graph.target).reshape(12, 7)
    assert (tiles == tiles[:, :1]).all()
    np.testing.assert_array_equal(tiles[:, 0], linear_tiles(12, 8, grain=1, least=1))


@given(st.integers(1, 9), st.integers(1, 9), st.integers(1, 4), st.integers(1, 4))
def test_windows_that_overlap_count_once(rows, columns, high, wide):
    digits = [Digit(1, columns), Digit(20, rows), Digit(1, wide), Digit(20, high)]
    sums = {
        a + 20 * b + c + 20 * d for a in range(columns) for b in range(rows) for c in range(wide) for d in range(high)
    }
    assert count_values(digits) == len(sums)


@pytest.mark.parametrize("name", GRAPHS)
def test_footprints_are_what_blocks_read(name):
    """In the middle of the grid; and corners of a square, which a stencil of a cross does not read."""
    graph, program = GRAPHS[name]()
    family = plan_engine(graph, program).families[0]
    block = [min(4, extent // 2) for extent in family.extents]
    start = [extent // 4 for extent in family.extents]
    inside = np.zeros(family.extents, bool)
    inside[tuple(slice(a, a + n) for a, n in zip(start, block, strict=True))] = True
    read: dict = {}
    for field in family.fields:
        if field.is_read and field.tensor is not None:
            values = field.tensor.index.values(family.axes)[inside]
            read.setdefault(field.tensor.source, set()).update(values.reshape(-1).tolist())
    # Corners of a square, which a cross does not read; and of each direction of a lattice the edge that it leaves.
    beside = {"heat": 4, "cube": 12 * 4 + 8, "lattice_boltzmann": 4 * 4}.get(name, 0)
    assert sum(own.num_bytes(block) for own in readings_of(family)) == 4 * (sum(map(len, read.values())) + beside)
