"""The machine as a whole: a program planned on tiles, and what the profile says of it."""

import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from tests.strategies import total


@cl.codelet(cycles=lambda x, w: 5 + (x.size + 1) // 2)
def multiply(x, w):
    return jnp.dot(x, w)


@cl.codelet(cycles=lambda partials: 5 + (partials.size + 1) // 2)
def add_up(partials):
    return jnp.sum(partials)


def matrix_vector(target, rows, columns, parts, tiles_of_part, block, block_of_sums):
    """Poplar's tutorial: rows times column parts on tiles, the vector spread linearly, sums in blocks of rows."""
    graph = cl.Graph(target)
    x, w = graph.add_variable("x", (columns,)), graph.add_variable("w", (rows, columns))
    partial, y = graph.add_variable("partial", (rows, parts)), graph.add_variable("y", (rows,))
    row, part, column = *cl.grid(rows, parts), cl.grid(columns)
    here = slice(part * columns // parts, (part + 1) * columns // parts)
    tile = part * tiles_of_part + row // block
    graph.add_vertex("multiply", multiply, x=x[here], w=w[row, here], out=partial[row, part], tile=tile)
    graph.set_tile_mapping(x[column], column % target.num_tiles)
    graph.set_tile_mapping(w[row, here], tile)
    graph.set_tile_mapping(partial[row, part], tile)
    row = cl.grid(rows)
    graph.add_vertex("add up", add_up, partials=partial[row], out=y[row], tile=row // block_of_sums)
    graph.set_tile_mapping(y[row], row // block_of_sums)
    return graph


@pytest.mark.parametrize(
    ("chip", "parts", "sizes", "expected"),
    [
        ("mk2", 7, (210, 48, 7), (3696, 143, 49, 108)),
        ("mk1", 5, (243, 42, 9), (4410, 200, 45, 96)),
    ],
)
def test_the_matrix_vector_tutorial_to_the_cycle(chip, parts, sizes, expected):
    target = cl.IPU(chip, sync_cycles=0, paired_exchange=False)
    profile = cl.Engine(matrix_vector(target, 10_000, 1_000, parts, *sizes)).profile()
    products, sums = profile.steps
    compute, exchange, exchange_of_sums, compute_of_sums = expected
    assert (products.compute_cycles, products.exchange_cycles) == (compute, exchange)
    assert (sums.exchange_cycles, sums.compute_cycles) == (exchange_of_sums, compute_of_sums)
    assert profile.total_cycles == sum(expected)


def test_the_paired_bus_and_the_sync_change_the_tutorial():
    plain = cl.IPU(sync_cycles=0, paired_exchange=False)
    graph = lambda target: matrix_vector(target, 10_000, 1_000, 7, 210, 48, 7)  # noqa: E731
    before = cl.Engine(graph(plain)).profile()
    paired = cl.Engine(graph(cl.IPU(sync_cycles=0))).profile()
    synced = cl.Engine(graph(cl.IPU(paired_exchange=False))).profile()
    # Neighbouring tiles of a part receive the same chunk of the vector at twice the rate. Each part's last tile
    # has no such neighbour, and the step waits for it.
    assert paired.steps[0].exchange_by_tile.sum() < 0.51 * before.steps[0].exchange_by_tile.sum()
    assert paired.steps[0].exchange_cycles == before.steps[0].exchange_cycles
    assert paired.steps[0].compute_cycles == before.steps[0].compute_cycles
    assert synced.total_cycles == before.total_cycles + 2 * cl.IPU().sync_cycles


def test_a_program_of_every_kind_is_planned_and_profiled():
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, y, p = graph.add_variable("x", (16,)), graph.add_variable("y", (4,)), graph.add_variable("p", (), "int32")
    own = graph.add_variable("own", (16,))
    feed, sent = graph.add_input_stream("feed", (16,)), graph.add_output_stream("sent", (4,))
    i = cl.grid(4)
    sums = graph.add_compute_set("sums")
    graph.add_vertex(sums, total, x=own[4 * i : 4 * i + 4], out=y[i])
    function = graph.add_function(sums, [own])
    program = cl.Sequence(
        cl.Repeat(3, [cl.Copy(feed, x), cl.Call(function, own=x)]),
        cl.If(p, cl.Call(function, own=x), cl.Copy(x[:4], y)),
        cl.Switch(p, {1: cl.Copy(x[4:8], y)}),
        cl.RepeatWhile(cl.Sequence(), p, cl.Call(function, own=x)),
        cl.Copy(y, sent),
        cl.Print(y),
        cl.AbortOn(p, "no"),
        cl.WriteUndef(x),
    )
    engine = cl.Engine(graph, program)
    profile = engine.profile()
    names = [(step.name, step.repeats) for step in profile.steps]
    assert names == [
        ("receive feed -> x", 3),
        ("copy x -> own", 3),
        ("sums", 3),
        ("copy x -> y", 1),
        ("copy x -> own", 1),
        ("sums", 1),
        ("copy x -> y", 1),
        ("copy x -> own", 1),
        ("sums", 1),
        ("send y -> sent", 1),
    ]
    assert profile.num_vertices == 4
    assert profile.total_cycles == sum(step.total_cycles for step in profile.steps)
    assert "sums" in str(engine.machine())


def test_placement_changes_cycles_and_not_values():
    def build(tile):
        graph = cl.Graph(cl.IPU(num_tiles=8))
        x = graph.add_variable("x", (64,))
        i = cl.grid(8)
        y = graph.add_vertex("sums", total, x=x[8 * i : 8 * i + 8], tile=tile(i))
        return graph, y

    values = np.arange(64, dtype=np.float32)
    results, cycles = [], []
    for tile in (lambda i: i, lambda i: 0 * i):
        graph, y = build(tile)
        engine = cl.Engine(graph)
        engine.write({"x": values})
        engine.run()
        results.append(engine.read(y))
        cycles.append(engine.profile().steps[0].compute_cycles)
    np.testing.assert_array_equal(*results)
    assert cycles[1] == 2 * cycles[0]  # eight vertices on one tile of six workers
