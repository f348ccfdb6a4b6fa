"""Random numbers are drawn ahead in blocks where there are many, and are the same numbers."""

from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.jaxprs.equations import inner_jaxprs
from lowering.fast import draws
from lowering.fast.draws import block_sizes, split_draws
from tests.at_once import at_once
from tests.examples import few


def key_of(seed, site):
    return jax.random.fold_in(jax.random.wrap_key_data(seed), site)


@cl.codelet
def draw(x, site, seed):
    """Integers, so that they can be compared exactly, and a number of the vertex."""
    return {"out": jax.random.bits(key_of(seed, site), (3,)), "twice": 2 * x}


@cl.codelet
def spread(mean, width, site, seed):
    return mean + jnp.exp(width) * jax.random.normal(key_of(seed, site))


@cl.codelet
def shuffle(seed):
    first, second = jax.random.split(jax.random.wrap_key_data(seed))
    return {"seed": jax.random.key_data(first), "out": jax.random.uniform(second)}


def names(jaxpr, found=None):
    """The primitives of a jaxpr and of those within it."""
    found = set() if found is None else found
    for eqn in jaxpr.eqns:
        found.add(eqn.primitive.name)
        for inner in inner_jaxprs(eqn):
            names(inner, found)
    return found


def in_blocks(run):
    return {"platform_index", "scan"} <= names(run.jaxpr.jaxpr)


def grid_graph(extents, table=None):
    """A vertex for each position of a grid, its element of `x` perhaps by a table."""
    graph = cl.Graph()
    x, seed = graph.add_variable("x", extents), graph.add_variable("seed", (2,), "uint32")
    axes = cl.grid(*extents)
    axes = (axes,) if isinstance(axes, cl.Index) else axes
    site = sum((7 * 10**k * axis for k, axis in enumerate(axes)), 3)
    first = axes[0] if table is None else cl.table(table)[axes[0]]
    out = graph.add_variable("out", (*extents[::-1], 3), "uint32")
    twice = graph.add_variable("twice", extents)
    graph.add_vertex(
        "draw", draw, x=x[(first, *axes[1:])], site=site, seed=seed, out=out[axes[::-1]], twice=twice[axes]
    )
    return graph, cl.lower(graph, inputs=[x, seed], outputs=[out, twice])


SEED = np.asarray([1, 2], np.uint32)


@few(
    "extents, tabled",
    product([(37,), (4, 6), (2, 31), (2, 3, 5), (9, 1, 4), (31, 2)], [False, True]),
    quick=["(2, 3, 5), True", "(4, 6), False"],
)
def test_numbers_are_the_same_over_any_axes(monkeypatch, extents, tabled):
    monkeypatch.setattr(draws, "BLOCK_BYTES", 12 * 5)
    random = np.random.default_rng(0)
    graph, run = grid_graph(extents, random.permutation(extents[0]) if tabled else None)
    assert in_blocks(run)
    values = {"x": random.normal(size=extents).astype(np.float32), "seed": SEED}
    expected = cl.interpret(graph, values=values, outputs=["out", "twice"])
    results = jax.jit(run)(values)
    for name in expected:
        np.testing.assert_array_equal(results[name], expected[name])


@few("extents, tabled", [((37,), False), ((2, 3, 5), True), ((31, 2), True)], quick=["(37), False"])
def test_numbers_are_the_same_for_many_seeds_at_once(monkeypatch, extents, tabled):
    monkeypatch.setattr(draws, "BLOCK_BYTES", 12 * 5)
    random = np.random.default_rng(0)
    _, run = grid_graph(extents, random.permutation(extents[0]) if tabled else None)
    x, seeds = random.normal(size=extents).astype(np.float32), np.asarray([[1, 2], [3, 4]], np.uint32)
    of = lambda seed: run({"x": x, "seed": seed})["out"]  # noqa: E731
    together, *alone = at_once(jax.vmap(of), lambda s: of(s[0]), lambda s: of(s[1]))(seeds)
    np.testing.assert_array_equal(together, alone)


@pytest.mark.parametrize(
    ("extents", "vertex_bytes", "expected"),
    [
        ([1024, 1024], 4, [32, 1024]),
        ([4, 1 << 20], 4, [1, 32768]),
        ([1031, 1024], 4, [32, 1024]),
        ([1 << 20], 4, [32768]),
        ([100, 8], 1 << 17, [1, 1]),
        ([96, 1024], 4, [96, 1024]),
        ([], 4, []),
    ],
)
def test_blocks_hold_what_fits_the_cache(extents, vertex_bytes, expected):
    assert block_sizes(extents, vertex_bytes) == expected


def test_a_large_grid_is_drawn_in_blocks_and_a_small_one_whole():
    assert in_blocks(grid_graph((64, 1024))[1])
    assert not in_blocks(grid_graph((16, 64))[1])


def spread_graph(count):
    def build(graph, mean, width, seed):
        i = cl.grid(count)
        return graph.add_vertex("spread", spread, mean=mean[i], width=width[0], site=i, seed=seed)

    return cl.lower(build)


def test_the_gradient_is_kept(monkeypatch):
    arguments = np.linspace(0, 1, 50, dtype=np.float32), np.asarray([0.3], np.float32), SEED
    loss = lambda mean, width: jnp.sin(spread_graph(50)(mean, width, SEED)).sum()  # noqa: E731
    whole = jax.jit(jax.grad(loss, (0, 1)))(*arguments[:2])
    assert not in_blocks(spread_graph(50).at(*arguments))
    monkeypatch.setattr(draws, "BLOCK_BYTES", 40)
    assert in_blocks(spread_graph(50).at(*arguments))
    for slope, expected in zip(jax.jit(jax.grad(loss, (0, 1)))(*arguments[:2]), whole, strict=True):
        np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


def test_what_does_not_draw_stays_outside(monkeypatch):
    """A dot of a vertex that draws is not in the blocks."""
    monkeypatch.setattr(draws, "BLOCK_BYTES", 16)
    noisy = cl.codelet(lambda x, w, site, seed: jnp.dot(x, w) + jax.random.uniform(key_of(seed, site)))

    def build(graph, x, w, seed):
        i = cl.grid(20)
        return graph.add_vertex("noisy", noisy, x=x, w=w[i], site=i, seed=seed)

    run = cl.lower(build).at(np.ones(4), np.ones((20, 4)), SEED)
    assert in_blocks(run)
    assert "dot_general" in [eqn.primitive.name for eqn in run.jaxpr.jaxpr.eqns]


def test_keys_that_are_handed_on(monkeypatch):
    monkeypatch.setattr(draws, "BLOCK_BYTES", 16)
    graph = cl.Graph()
    seed, out = graph.add_variable("seed", (23, 2), "uint32"), graph.add_variable("out", (23,))
    i = cl.grid(23)
    graph.add_vertex("shuffle", shuffle, seed=seed[i], out=out[i])
    run = cl.lower(graph, cl.Repeat(3, list(graph.compute_sets)), inputs=[seed, out], outputs=[seed, out])
    assert in_blocks(run)
    values = {"seed": np.arange(46, dtype=np.uint32).reshape(23, 2), "out": np.zeros(23, np.float32)}
    expected = cl.interpret(
        graph, values=values, outputs=["seed", "out"], program=cl.Repeat(3, list(graph.compute_sets))
    )
    results = jax.jit(run)(values)
    np.testing.assert_array_equal(results["seed"], expected["seed"])
    np.testing.assert_allclose(results["out"], expected["out"], rtol=1e-6)


def test_a_number_that_all_vertices_share_is_drawn_once(monkeypatch):
    monkeypatch.setattr(draws, "BLOCK_BYTES", 16)
    shared = cl.codelet(lambda x, seed: x + jax.random.uniform(jax.random.wrap_key_data(seed)))

    def build(graph, x, seed):
        i = cl.grid(100)
        return graph.add_vertex("shared", shared, x=x[i], seed=seed)

    assert not in_blocks(cl.lower(build).at(np.ones(100), SEED))


def test_what_is_not_split():
    def speak(seed):
        jax.debug.print("{}", seed)
        return jax.random.bits(jax.random.wrap_key_data(seed))

    other = lambda seed: jax.random.bits(jax.random.wrap_key_data(seed, impl="rbg"))  # noqa: E731
    assert split_draws(jax.make_jaxpr(speak)(SEED)) is None
    assert split_draws(jax.make_jaxpr(other)(np.zeros(4, np.uint32))) is None
    assert split_draws(jax.make_jaxpr(lambda x: x + 1)(1.0)) is None
    assert split_draws(jax.make_jaxpr(jax.jit(lambda s: jax.random.bits(jax.random.wrap_key_data(s))))(SEED))
