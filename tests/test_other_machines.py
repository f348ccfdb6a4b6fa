"""A machine that is no IPU, described by data alone: what a program takes on it, counted by hand."""

import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from ipu_backend.model.costs import sourced
from ipu_backend.model.rows import Row, Rows

# A mesh of small processors: no vectors, no threads, no pairs; 64-bit words on the network, its own table.
TOY = cl.Tables(
    "toy",
    {"mul": {"float": Rows(Row(4, 1, overhead=3, base=10))}},
    rules={"reduce_max": lambda eqn, mode: sourced(6 + 2 * eqn.operands[0].aval.size)},
)
MESH = cl.Machine(
    name="mesh",
    num_tiles=64,
    bytes_per_tile=4096,
    clock_hertz=5e8,
    vector_bytes=4,
    word_bytes=8,
    exchange_bytes_per_cycle=2,
    sync_cycles=7,
    exchange_overhead_cycles=5,
    launch_cycles=3,
    tables=TOY,
)


def weighed_rows(target):
    """Each of 64 rows of 8 by the weights that tile 0 has, and the largest of all there."""
    graph = cl.Graph(target)
    x, w = graph.add_variable("x", (64, 8)), graph.add_variable("w", (8,))
    part, y = graph.add_variable("part", (64,)), graph.add_variable("y", ())
    product = cl.codelet(lambda x, w: jnp.max(x * w), issue="assembly")
    largest = cl.codelet(lambda part: jnp.max(part), issue="assembly")
    i = cl.grid(64)
    graph.add_vertex("multiply", product, x=x[i], w=w, out=part[i], tile=i)
    graph.add_vertex("choose", largest, part=part, out=y, tile=0)
    for tensor in (x, part):
        graph.set_tile_mapping(tensor[i], i)
    graph.set_tile_mapping(w, 0)
    graph.set_tile_mapping(y, 0)
    return graph


def test_program_on_a_machine_that_is_no_ipu_to_the_cycle():
    engine = cl.Engine(weighed_rows(MESH))
    multiply, choose = engine.profile().steps
    # 8 weights of 4 bytes are 4 words of 8, 4 cycles each, to all other tiles at once
    assert (multiply.sync_cycles, multiply.exchange_cycles) == (7, 5 + 4 * 4)
    # 8 turns of 4 + 3 cycles and 10 for the loop; 6 and 2 for each number that is compared
    assert multiply.compute_cycles == 3 + (10 + 8 * (4 + 3)) + (6 + 2 * 8)
    # a number comes from each of 63 tiles, each in a word of its own
    assert (choose.sync_cycles, choose.exchange_cycles) == (7, 5 + 63 * 4)
    assert choose.compute_cycles == 3 + 6 + 2 * 64
    assert engine.profile().total_cycles == (7 + 21 + 91) + (7 + 257 + 137)


def test_values_are_the_same_on_every_machine():
    random = np.random.default_rng(0)
    x, w = random.normal(size=(64, 8)).astype(np.float32), random.normal(size=8).astype(np.float32)
    for execution in ("fused", "tiles"):
        engine = cl.Engine(weighed_rows(MESH), execution=execution)
        engine.write({"x": x, "w": w})
        engine.run()
        assert engine.read("y") == pytest.approx(float((x * w).max()), rel=1e-4)


def test_placement_uses_the_tiles_that_there_are():
    graph = cl.Graph(MESH)
    x = graph.add_variable("x", (64, 32))
    i = cl.grid(64)
    graph.add_vertex("largest", cl.codelet(lambda x: jnp.max(x), issue="assembly"), x=x[i])
    profile = cl.Engine(graph).profile()
    assert np.count_nonzero(profile.compute_by_tile) == profile.target.num_tiles == 64
    assert profile.total_cycles == 3 + 6 + 2 * 32  # nothing moves


def test_what_a_table_lacks_is_a_guess():
    graph = cl.Graph(MESH)
    x = graph.add_variable("x", (8,))
    graph.add_vertex("wave", cl.codelet(lambda x: jnp.sin(x) * x, issue="assembly"), x=x, tile=0)
    [step] = cl.Engine(graph).profile().steps
    assert step.guessed_cycles > step.fitted_cycles > 0
