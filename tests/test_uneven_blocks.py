"""Blocks whose lengths differ run as what they are blocks of: values, how few equations, and what stays apart."""

from __future__ import annotations

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from benchmarks.blocks import BUILDS, GRIDS, RATE, blocks_graph, num_equations, star
from lowering.join.join import join
from lowering.pipeline import plan_graph
from lowering.plan.steps import ExecuteStep
from lowering.plan.walk import all_steps
from tests.at_once import at_once
from tests.examples import examples
from tests.gradients import compare, prove

MOST_EQUATIONS = 40


@cl.codelet
def bent(u, w):
    return jnp.tanh(u) * w


def _near(u, k):
    """The elements of a block with a halo that are some places further along the last dimension."""
    return u[(*(slice(1, -1),) * (u.ndim - 1), slice(1 + k, u.shape[-1] - 1 + k))]


@cl.codelet
def reacting(u, w):
    return star.function(u) + _near(u, 0) * (1 - _near(u, 0)) * w


@cl.codelet
def carried(u):
    """With itself, as a wave steepens."""
    return _near(u, 0) * (_near(u, 1) - _near(u, -1)) - 3 * _near(u, -1)


@cl.codelet
def divided(u, w):
    """Beside zeros it would contribute what is no number."""
    return w * _near(u, 1) / _near(u, -1) + jnp.log(_near(u, 1))


@cl.codelet
def limited(u):
    """By elements it would be computed again for each of these."""
    return jnp.tanh(jnp.sin(_near(u, 1) * _near(u, -1)) * _near(u, 0)) * jnp.minimum(_near(u, 1), _near(u, 0))


@cl.codelet
def passed_on(u):
    """What reads a window whole beside its elements."""
    return _near(u, 0) + jnp.sum(u[..., :1])


STENCILS = {own.name: own for own in (star, reacting, carried, divided, limited, passed_on)}


def num_families(graph, inputs, outputs):
    """Of the compute sets as they run."""
    plan = join(plan_graph(graph, cl.Sequence(*graph.compute_sets), inputs, outputs))
    return [len(step.families) for step in all_steps(plan.steps) if isinstance(step, ExecuteStep)]


def _shape_of(block):
    return [length for _, length in block]


@st.composite
def cut_grids(draw):
    """A graph whose compute set is a grid in blocks of any lengths, written in one of three ways; if all are there."""
    rank = draw(st.integers(1, 3))
    lengths = [draw(st.lists(st.integers(1, 3), min_size=1, max_size=3 if rank > 1 else 6)) for _ in range(rank)]
    ways = [list(zip(np.cumsum([0, *own[:-1]]).tolist(), own, strict=True)) for own in lengths]
    blocks = draw(st.permutations(list(itertools.product(*ways))))
    kept = blocks if draw(st.integers(0, 3)) else blocks[: draw(st.integers(1, len(blocks)))]
    halo, by_tables, in_parts = draw(st.integers(0, 1)), draw(st.booleans()), draw(st.booleans())
    stencil = STENCILS[draw(st.sampled_from(sorted(STENCILS)))]
    graph = cl.Graph()
    u, v, w = (graph.add_variable(name, tuple(sum(own) + 2 for own in lengths)) for name in "uvw")

    def around(block, width):
        return tuple(slice(start + 1 - width, start + 1 + n + width) for start, n in block)

    def add(read, block):
        written = around(block, 0)
        codelet = stencil if halo else bent
        more = {"w": w[written]} if "w" in codelet.inputs else {}
        graph.add_vertex("step", codelet, u=read, **more, out=v[written])

    if by_tables:
        for shape, alike in itertools.groupby(sorted(kept, key=_shape_of), _shape_of):
            starts = np.array([[start for start, _ in block] for block in alike])
            k = cl.grid(len(starts))
            block = [(cl.table(starts[:, d])[k], n) for d, n in enumerate(shape)]
            add(u[around(block, halo)], block)
    else:
        for block in kept:
            first, *rest = around(block, halo)
            read = u[(first, *rest)]
            if in_parts and first.stop - first.start > 1:
                cut = draw(st.integers(first.start + 1, first.stop - 1))
                read = cl.concatenate([u[(slice(a, b), *rest)] for a, b in ((first.start, cut), (cut, first.stop))])
            add(read, block)
    return graph, len(kept) == len(blocks)


@examples(8)
@given(st.lists(cut_grids(), min_size=4, max_size=4))
def test_blocks_of_any_lengths_are_what_they_are_blocks_of(drawn):
    runs, given_values, expected = [], [], []
    for graph, is_whole in drawn:
        inputs = [graph.variable(v.name) for v in graph.variables]
        values = {
            v.name: np.random.default_rng(k).uniform(0.5, 1.5, v.shape).astype(np.float32) for k, v in enumerate(inputs)
        }
        runs.append(cl.lower(graph, inputs=inputs, outputs=["v"]))
        given_values.append(values)
        expected.append(cl.interpret(graph, values=values, outputs=["v"])["v"])
        if is_whole and graph.families[0].codelet.name != passed_on.name:
            assert num_families(graph, graph.sources, [graph.variable("v")]) == [1]
    made = jax.jit(lambda own: [run(values)["v"] for run, values in zip(runs, own, strict=True)])(given_values)
    for found, plain in zip(made, expected, strict=True):
        np.testing.assert_allclose(found, plain, rtol=1e-5, atol=1e-6)


CASES = [
    pytest.param(*case, marks=[pytest.mark.slow] * (case[0] == "heat/1260"), id="/".join(case))
    for case in itertools.product(GRIDS, BUILDS)
]


@pytest.mark.parametrize(("grid", "build"), CASES)
def test_few_equations_whatever_the_lengths(grid, build):
    run = cl.lower(*blocks_graph(GRIDS[grid], build, 4), inputs=["u"], outputs=["u"])
    assert num_equations(run.jaxpr) < MOST_EQUATIONS


@pytest.mark.parametrize("length", [1, 4, 7])
def test_vertices_that_join_places_of_their_own_are_a_few_families(length):
    """Blocks of a ring, each given with what is before it and behind it."""
    size, graph = 40, cl.Graph()
    x, y = graph.add_variable("x", (size,)), graph.add_variable("y", (size,))
    for start in range(0, size, length):
        stop = min(start + length, size)
        around = [x[(start - 1) % size :][:1], x[start:stop], x[stop % size :][:1]]
        graph.add_vertex("step", star, u=cl.concatenate(around), out=y[start:stop])
    run = cl.lower(graph, inputs=[x], outputs=[y])
    values = {"x": np.random.default_rng(0).normal(size=size).astype(np.float32)}
    expected = cl.interpret(graph, values=values, outputs=[y])["y"]
    np.testing.assert_allclose(jax.jit(run)(values)["y"], expected, rtol=1e-6)
    ring = jnp.asarray(values["x"])
    plain = ring + RATE * (jnp.roll(ring, 1) + jnp.roll(ring, -1) - 2 * ring)
    np.testing.assert_allclose(expected, plain, rtol=1e-5, atol=1e-6)
    assert len(graph.families) <= 4
    assert num_equations(run.jaxpr) < MOST_EQUATIONS


@pytest.mark.parametrize("build", BUILDS)
def test_steps_and_slopes(build):
    """Of a stencil of 20 x 20 points in 3 x 7 blocks, beside that in one."""
    grids = (22, (3, 7)), (22, (1, 1))
    cut, whole = (cl.lower(*blocks_graph(grid, build, 4), inputs=["u"], outputs=["u"]) for grid in grids)
    u = np.random.default_rng(0).normal(size=(22, 22)).astype("f")
    both = at_once(
        *(lambda u, run=run: jax.value_and_grad(lambda u: jnp.sin(run({"u": u})["u"]).sum())(u) for run in (cut, whole))
    )(u)
    for own, other in zip(*map(jax.tree.leaves, both), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)


def _by_blocks(codelet, lengths):
    """A stencil over a grid in blocks, by what it reads: rows from tables, since their lengths differ."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    u, w, v = (graph.add_variable(name, tuple(sum(own) + 2 for own in lengths)) for name in ("u", "w", "v"))
    ways = [list(zip(np.cumsum([1, *own[:-1]]).tolist(), own, strict=True)) for own in lengths]
    for block in itertools.product(*ways):
        written = tuple(slice(start, start + n) for start, n in block)
        read = tuple(slice(start - 1, start + n + 1) for start, n in block)
        more = {"w": w[written]} if "w" in codelet.inputs else {}
        graph.add_vertex("step", codelet, u=u[read], **more, out=v[written])
    return graph, v, [u, v, w] if "w" in codelet.inputs else [u, v]


@pytest.mark.parametrize("lengths", [[[4], [5]], [[3, 4], [2, 4, 3]]], ids=["one block", "blocks"])
@pytest.mark.parametrize("stencil", STENCILS)
def test_what_blocks_contribute(stencil, lengths):
    """Sums make it of cotangents and the windows' elements where there is less to read, and no zeros to divide by."""
    graph, v, wrt = _by_blocks(STENCILS[stencil], lengths)
    lowered = compare(graph, v, wrt, None, between=(0.5, 1.5))
    by_blocks = any("d_u" in family.by_name for family in lowered.families)
    assert by_blocks == (stencil not in ("star", "reacting", "carried"))


@pytest.mark.parametrize("stencil", ["star", "reacting", "carried"])
def test_what_blocks_contribute_is_proved(stencil):
    prove(*_by_blocks(STENCILS[stencil], [[3, 4], [2, 4, 3]]))


@pytest.mark.slow
@examples(30)
@given(cut_grids())
def test_slopes_of_blocks_of_any_lengths(drawn):
    graph, _ = drawn
    read = {own.name for family in graph.families for own in family.fields if own.is_read}
    wrt = [graph.variable(name) for name in "uvw" if name == "v" or name in read]
    compare(graph, graph.variable("v"), wrt, None, by_tables=True, between=(0.5, 1.5))
