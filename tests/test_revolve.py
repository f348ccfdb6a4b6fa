"""Loops that keep so many states at once: their schedule is the best there is, their gradients are what they were."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from codelet.views.sources import source_variables
from lowering.pipeline import plan_graph, plan_machine
from lowering.plan.revolve import fewest_turns, schedule
from tests.examples import few

SIZE = 12


@functools.cache
def best(turns: int, snapshots: int) -> int:
    """The fewest turns by the recurrence: go on, keep the state, go back through the rest, and then through these."""
    if turns == 1:
        return 0
    if snapshots == 1:
        return turns * (turns - 1) // 2
    ways = range(1, turns)
    return min(k + best(turns - k, snapshots - 1) + best(k, snapshots) for k in ways)


class TestSchedule:
    @pytest.mark.parametrize("snapshots", range(1, 7))
    def test_no_other_runs_fewer_turns(self, snapshots: int):
        for turns in range(2, 50):
            assert fewest_turns(turns, snapshots) == best(turns, snapshots)
            assert schedule(turns - 1, snapshots).num_turns == best(turns, snapshots)

    @pytest.mark.parametrize("snapshots", [1, 2, 3, 5, 40])
    @pytest.mark.parametrize("is_alone", [True, False])
    def test_it_goes_back_through_every_turn_from_what_is_kept(self, snapshots: int, is_alone: bool):
        for turns in range(1, 30):
            plan, back = schedule(turns, snapshots), []
            rows = {row: turn for turn, row in plan.kept[: len(plan.kept) if is_alone else 1]}
            for source, first, ahead, target in (plan.moves if is_alone else plan.all_moves).T.tolist():
                assert rows[source] == first
                if target < 0:
                    back.append(first + ahead)
                else:
                    assert 0 < target < snapshots
                    rows[target] = first + ahead
            assert back == [*range(turns)][::-1]

    def test_a_thousand_turns_and_ten_states(self):
        """Algorithm 799's own numbers: beta(10, 4) = 1001, so that no turn runs more than four times."""
        assert fewest_turns(1000, 10) == 4 * 1000 - 364
        assert schedule(1000, 10).num_turns == fewest_turns(1001, 10) == 4 * 1001 - 364
        assert len(schedule(1000, 10).kept) <= 10


def stencil(turns: int, checkpoint: int | cl.Revolve | None) -> tuple[cl.Graph, cl.Repeat]:
    """A stencil on a ring, which reads a number that is trained and the turn."""
    graph = cl.Graph(cl.IPU(num_tiles=8))
    x, w, turn = graph.add_variable("x", (SIZE,)), graph.add_variable("w", ()), graph.add_variable("t", (), "int32")
    i = cl.grid(SIZE)
    bend = cl.codelet(lambda a, b, c, w, t: jnp.sin(b + w * (a - 2 * b + c)) + 0.001 * t)
    with graph.record() as step:
        y = graph.add_vertex("step", bend, a=x[(i - 1) % SIZE], b=x[i], c=x[(i + 1) % SIZE], w=w, t=turn)
    return graph, cl.Repeat(turns, [step, cl.Copy(y, x)], index=turn, recompute=checkpoint)


VALUES = {"x": np.linspace(-1, 1, SIZE).astype(np.float32), "w": np.float32(0.3)}


def by_jax(turns: int, checkpoint: int | cl.Revolve | None) -> dict[str, np.ndarray]:
    graph, program = stencil(turns, checkpoint)
    run = cl.lower(graph, program, inputs=["x", "w"], outputs=["x"])
    return jax.jit(jax.grad(lambda own: jnp.sum(jnp.cos(run(own)["x"]))))(VALUES)


def differentiated(turns: int, checkpoint: int | cl.Revolve | None) -> tuple[cl.Graph, cl.Gradient, cl.Sequence]:
    graph, program = stencil(turns, checkpoint)
    x = graph.variable("x")
    last = graph.add_compute_set("loss")
    loss = graph.add_vertex(last, cl.codelet(lambda x: jnp.sum(jnp.cos(x))), x=x)
    found = cl.gradient(graph, of=loss, wrt=["x", "w"], program=cl.Sequence(program, last))
    return graph, found, cl.Sequence(found.forward, found.backward)


@few("snapshots", [1, 4], quick=["4"])
def test_gradients_are_those_of_a_loop_that_keeps_all(snapshots: int):
    turns = 13
    expected = by_jax(turns, None)
    found = by_jax(turns, cl.Revolve(snapshots))
    graph, own, both = differentiated(turns, cl.Revolve(snapshots))
    run = cl.lower(graph, both, inputs=["x", "w"], outputs=["x", "step/out", *own])
    made = jax.jit(run)(VALUES)
    for name in VALUES:
        np.testing.assert_allclose(found[name], expected[name], 1e-5)
        np.testing.assert_allclose(made[f"backward/{name}"], expected[name], 1e-5)
    # What the loop leaves is there afterwards.
    np.testing.assert_array_equal(made["x"], made["step/out"])


def test_a_loop_in_a_loop():
    def lowered(checkpoint: cl.Revolve | None):
        graph, program = stencil(7, checkpoint)
        x = graph.variable("x")
        found = cl.gradient(graph, of=x, wrt=["x", "w"], program=cl.Repeat(3, program), cotangent=np.ones(SIZE))
        run = cl.lower(graph, cl.Sequence(found.forward, found.backward), inputs=["x", "w"], outputs=[*found])
        return jax.jit(run)(VALUES)

    expected, found = lowered(None), lowered(cl.Revolve(3))
    for name in ("backward/x", "backward/w"):
        np.testing.assert_allclose(found[name], expected[name], 1e-5)


def test_a_thousand_turns_keep_ten_states():
    """The plan of memory tells no more than ten states, beside what one turn takes."""
    turns, snapshots = 1000, 10
    graph, own, both = differentiated(turns, cl.Revolve(snapshots))
    kept = [v for v in graph.sources if "snapshots/x" in v.name]
    assert [v.shape for v in kept] == [(snapshots, SIZE)]
    inputs = [source_variables(graph.variable(name).source)[0] for name in VALUES]
    plan = plan_graph(graph, both, inputs, [*own])
    most = plan_machine(plan, "linear").liveness.most_bytes_at_times
    assert most < 4 * SIZE * (snapshots + 10)
    expected, made = by_jax(turns, None), jax.jit(cl.lower(graph, both, inputs=["x", "w"], outputs=[*own]))(VALUES)
    for name in VALUES:
        scale = float(np.abs(expected[name]).max())
        np.testing.assert_allclose(made[f"backward/{name}"], expected[name], 1e-4, 1e-4 * scale)


def test_a_number_that_counts_no_states():
    with pytest.raises(cl.ProgramError, match="a number of snapshots counts no states"):
        cl.Revolve(0)
