"""What `docs/scaling.py` profiles in place of what would take long: beside that, at small sizes."""

import functools

import jax
import numpy as np
import pytest

import codelet as cl
from codelet.models.networks import step_arguments
from codelet.models.training import train_step
from docs.scaling import WORKERS, add, cycles, once_and_each, step_in_turns, steps_of_a_ring, take


def whole_ring(elements, target):
    """A sum on a ring, whole: its graph, its steps, each with its kind, and what is summed.

    One family for each chip: `steps_of_a_ring` is written otherwise.
    """
    chips, tiles = target.num_chips, target.num_tiles // target.num_chips
    length = -(-elements // (tiles * chips * WORKERS))
    graph = cl.Graph(target)
    arrays, sums = (graph.add_variable(own, (chips, tiles, chips, WORKERS, length)) for own in ("arrays", "sums"))
    parts = [graph.add_variable(f"part {k}", (chips, tiles, WORKERS, length)) for k in range(chips)]
    c, t = cl.grid(chips, tiles)
    for variable in (arrays, sums, *parts):
        graph.set_tile_mapping(variable[c, t], c * tiles + t)
    t, w = cl.grid(tiles, WORKERS)
    steps = []

    def step(kind, number, fields, codelet=take):
        with graph.record() as made:
            for chip in range(chips):
                own = fields(chip, (chip - 1) % chips, (chip - number) % chips)
                graph.add_vertex(f"{kind} {number}", codelet, **own, tile=chip * tiles + t)
        steps.append((kind, made))

    def adds(k):
        return lambda c, last, n: {
            "mine": arrays[c, t, n, w],
            "received": parts[k - 1][last, t, w],
            "out": parts[k][c, t, w],
        }

    step("begin", 0, lambda c, _, n: {"received": arrays[c, t, n, w], "out": parts[0][c, t, w]})
    for k in range(1, chips):
        step("add", k, adds(k), add)
    step("end", chips - 1, lambda c, _, n: {"received": parts[-1][c, t, w], "out": sums[c, t, n, w]})
    for k in range(chips - 1):
        step("pass", k, lambda c, last, n: {"received": sums[last, t, n, w], "out": sums[c, t, n, w]})
    return graph, steps, arrays


def ring_target(chips, tiles):
    return cl.IPU(num_tiles=chips * tiles, num_chips=chips)


@pytest.mark.parametrize("chips", [2, 3, 4])
def test_a_ring_sums_what_all_chips_have(chips):
    graph, steps, arrays = whole_ring(100, ring_target(chips, 2))
    values = np.random.default_rng(chips).integers(0, 100, arrays.shape).astype(np.float32)
    found = cl.interpret(
        graph, values={"arrays": values}, outputs=["sums"], program=cl.Sequence(*(made for _, made in steps))
    )
    np.testing.assert_array_equal(found["sums"], np.broadcast_to(values.sum(axis=0), values.shape))


@pytest.mark.parametrize(("elements", "chips"), [(100_000, 2), (1000, 3), (1, 4)])
def test_a_step_on_what_it_touches_takes_what_it_takes_on_all(elements, chips):
    target = ring_target(chips, 16)
    graph, steps, _ = whole_ring(elements, target)
    engine = cl.Engine(graph, {str(k): made for k, (_, made) in enumerate(steps)})
    alone = steps_of_a_ring(elements, target)
    found = {kind: cycles(cl.Engine(own).profile()) for kind, (own, _) in alone.items()}
    for k, (kind, _) in enumerate(steps):
        assert cycles(engine.profile(str(k))) == found[kind], (k, kind)
    assert [kind for kind, _ in steps] == [kind for kind, (_, times) in alone.items() for _ in range(times)]


@pytest.mark.slow
def test_turns_on_one_batch_are_a_step_on_it():
    arguments = step_arguments("mnist", batch=2, key=jax.random.key(0))
    found = jax.jit(functools.partial(step_in_turns, turns=3))(*arguments)
    for own, other in zip(jax.tree.leaves(found), jax.tree.leaves(jax.jit(train_step)(*arguments)), strict=True):
        np.testing.assert_allclose(own, other, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_what_a_step_takes_grows_evenly_with_its_turns():
    once, each = once_and_each("mnist")
    arguments = step_arguments("mnist", key=jax.random.key(0))
    traced = cl.trace(functools.partial(step_in_turns, turns=64), *arguments, target=cl.IPU())
    assert cycles(traced.profile()) == once + each * 64
