"""Boxes of words on tiles: places that all tiles have in common, taken by slices, and the same values as fused."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import codelet as cl
from ipu_backend.executions.row_boxes import row_box
from ipu_backend.executions.tile_array import TileArray
from ipu_backend.executions.tile_boxes import MOST_HOLES, in_boxes
from lowering.machine.exchange import plan_exchange
from lowering.machine.place import place
from lowering.pipeline import plan_engine
from lowering.plan.runs import Runs, runs_of
from lowering.plan.steps import ExecuteStep
from lowering.plan.walk import all_steps
from tests.examples import examples, few
from tests.test_place_blocks import GRAPHS


@examples(40)
@given(st.data())
def test_tiles_have_what_they_need_in_the_same_box(data):
    """Boxes at any place of a torus, of one size but for lines that tiles at the end leave out."""
    extents = data.draw(st.lists(st.integers(2, 9), min_size=2, max_size=3), label="shape")
    box = [data.draw(st.integers(1, n), label="box") for n in extents]
    rows, starts, stops, wanted = [], [], [], {}
    for tile in range(data.draw(st.integers(1, 4), label="tiles")):
        corner = [data.draw(st.integers(0, n - 1), label="corner") for n in extents]
        own = [b - data.draw(st.integers(0, b > 1 and tile > 0), label="left out") for b in box]
        for at in itertools.product(*map(range, own)):
            where = [(c + p) % n for c, p, n in zip(corner, at, extents, strict=True)]
            wanted[tile, int(np.ravel_multi_index(where, extents))] = at
        found = runs_of(np.array(sorted(number for t, number in wanted if t == tile)))
        rows += [tile] * len(found.starts)
        starts += found.starts.tolist()
        stops += found.stops.tolist()
    boxed = in_boxes(np.array(rows), Runs(np.array(starts), np.array(stops)), tuple(extents))
    assert boxed is not None
    assert boxed.width <= MOST_HOLES * max(sum(1 for t, _ in wanted if t == tile) for tile in set(rows))
    places = {}
    for row, start, length, first in zip(boxed.rows, boxed.starts, boxed.lengths, boxed.places, strict=True):
        for k in range(length):
            assert places.setdefault((row, start + k), first + k) == first + k
    assert places.keys() == wanted.keys()
    assert all(0 <= own < boxed.width for own in places.values())
    for tile in set(rows):
        assert len({own for (t, _), own in places.items() if t == tile}) == sum(1 for t, _ in wanted if t == tile)
    # Where no dimension is gone around, what stands at one place of the box does so on every tile.
    if all(b < n for b, n in zip(box, extents, strict=True)):
        assert len({(wanted[key], own) for key, own in places.items()}) == len(set(wanted.values()))


def test_what_is_spread_too_thinly_is_in_no_box():
    assert in_boxes(np.zeros(2, int), Runs(np.array([0, 99]), np.array([1, 100])), (10, 10)) is not None  # a torus
    assert in_boxes(np.zeros(2, int), Runs(np.array([0, 55]), np.array([1, 56])), (10, 10)) is None
    assert in_boxes(np.zeros(1, int), Runs(np.array([3]), np.array([7])), (10,)) is None


@pytest.mark.slow
@examples(5)
@given(st.data())
def test_row_boxes_are_the_words_at_even_steps(data):
    inner = data.draw(st.integers(1, 3))
    extents = data.draw(st.lists(st.integers(2, 4), min_size=1, max_size=3))
    steps = []
    for n in reversed(extents):
        steps.insert(0, inner)
        inner *= n + data.draw(st.integers(0, 2))
    order = data.draw(st.permutations(range(len(extents))))
    steps, extents = [steps[d] for d in order], [extents[d] for d in order]
    start = data.draw(st.integers(0, 5))
    places = start + sum(s * i for s, i in zip(steps, np.indices(extents), strict=True))
    rows = np.arange(2 * (places.max() + 1), dtype=np.int32).reshape(2, -1)
    found = row_box(start, steps, extents, rows.shape[1])
    if found is None:  # what is taken is more than twice the row
        assert start + extents[int(np.argmax(steps))] * max(steps) > 2 * rows.shape[1]
    else:
        np.testing.assert_array_equal(found.of(jnp.asarray(rows)), rows[:, places])


@pytest.mark.parametrize(
    ("steps", "extents"), [((3, 2), (2, 2)), ((4, 1), (2, 5)), ((0, 1), (2, 2)), ((-1,), (3,)), ((), ())]
)
def test_steps_that_are_of_no_box(steps, extents):
    assert row_box(0, steps, extents, 100) is None


@pytest.mark.parametrize("name", ["heat", "cube", "lattice_boltzmann"])
def test_a_stencil_in_blocks_reads_by_slices(name):
    graph, program = GRAPHS[name]()
    plan = plan_engine(graph, program)
    execution = TileArray(plan_exchange(place(plan, "blocks")))
    for step in all_steps(plan.steps):
        if isinstance(step, ExecuteStep):
            for batch in execution.compute_set(step).batches:
                places = [own.places for own in batch.operands.values()]
                assert all(own is not None and (own.box is not None or own.start is not None) for own in places)


@few("name", GRAPHS, quick=["windows", "product", "cube"])
def test_blocks_compute_what_fused_does(name):
    graph, program = GRAPHS[name]()
    variables = [variable for variable in graph.sources if "/" not in variable.name]
    random = np.random.default_rng(0)
    given_arrays = {own.name: random.standard_normal(own.shape).astype(np.float32) for own in variables}
    outputs = [own.name for own in graph.variables]
    fused, tiles = (
        cl.Engine(graph, program, execution=execution, placement="blocks").function(
            inputs=list(given_arrays), outputs=outputs
        )
        for execution in ("fused", "tiles")
    )
    expected, found = jax.jit(fused)(given_arrays), jax.jit(tiles)(given_arrays)
    for key in expected:
        np.testing.assert_allclose(found[key], expected[key], rtol=1e-4, atol=1e-5)
    if name == "heat":
        slopes = [
            jax.jit(jax.grad(lambda a, run=run: (run(a)["u"] ** 2).sum()))(given_arrays) for run in (fused, tiles)
        ]
        np.testing.assert_allclose(slopes[1]["u"], slopes[0]["u"], rtol=1e-4, atol=1e-5)
