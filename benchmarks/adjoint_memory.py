"""Memory of training whose backward pass is vertices of the graph, from the plan of memory on the machine; and peaks.

Nothing is timed. A ratio is to a bar that the row names: how many times less is asked for, beside how many times less
it is. What is counted are variables that are not always live, which parameters and their velocity are.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.deep import Deep, activation_bytes, layers, plan_training, recurrent
from benchmarks.fresh import in_fresh_process, peak_bytes
from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.traced_steps import COARSE_GRAIN, step_types
from codelet.views.sources import source_variables
from ipu_backend.jobs.adjoint import network_loss, training_step
from ipu_backend.model.profile_plan import profile_machine
from lowering.pipeline import MachinePlan, plan_graph, plan_machine
from lowering.plan.revolve import fewest_turns, schedule
from tutorials.programs.lattice_boltzmann import lower_fluid, populations

TIMES_LESS = {"mnist": 3.5, "resnet18": 5.0, "resnet50": 5.0, "alexnet": 6.0}
"""How many times less than a variable for everything: an earlier compiler of graphs for the IPU gave 3.67, 5.97 to 6.23
and 6.38."""


def plan_network(network: str, grain: int | None) -> MachinePlan:
    """The plan of a step of training by the adjoint graph, batch 1, in one memory: on a machine of a single tile."""
    arguments = step_types(network)
    traced = cl.trace(network_loss, *arguments, target=cl.IPU(num_tiles=1), grain=grain)
    step = training_step(traced)
    inputs = [source_variables(own.source)[0] for own in step.inputs]
    plan = plan_graph(step.graph, step.program, inputs, list(step.outputs))
    return plan_machine(plan, "linear", allow_out_of_memory=True)


def times_less(machine: MachinePlan) -> float:
    """How many times less variables take in the plan than if every value had a place for itself.

    Values are the variables that are not always live, and what a variable holds each time it is updated in its place.
    """
    liveness, memory = machine.liveness, machine.memory
    values = sum(v.size * v.dtype.itemsize for own in liveness.ranges if not own.always for v in own.variables)
    for moment in liveness.timeline.moments:
        touches = [own for own in moment.step.touches() if own.mode == "update"]
        values += sum(v.size * v.dtype.itemsize for v in {v for own in touches for v in own.variables})
    always = sum((own.num_bytes for own in memory.occupants if own.moments is None), 0 * memory.bytes_by_tile)
    return values / max(1, int((memory.bytes_by_tile - always).sum()))


def peak_beside_least(machine: MachinePlan) -> float:
    """The memory of the fullest tile beside the largest sum that is live at once on any."""
    return int(machine.memory.bytes_by_tile.max()) / int(machine.memory.most_live_bytes.max())


def _times(name: str, found: float, wanted: float, of: str) -> Row:
    return Row(name, None, None, wanted / found, 1.0, f"{found:.2f} times less {of}, of {wanted:g}")


def _recomputed(name: str, build: Callable[[int], Deep], count: int, wanted: int) -> Generator[Row, Row, None]:
    """A deep network with so much made again that it keeps so many times less for the backward pass."""
    _, whole = plan_training(build(count))
    activations = activation_bytes(whole.liveness)
    budget = whole.liveness.most_bytes_at_times - activations + activations // (wanted + 1)
    _, less = plan_training(build(count), cl.Recompute.bytes(budget))
    found = activations / activation_bytes(less.liveness)
    yield _times(f"adjoint_memory/{name}", found, wanted, "for activations")
    cycles = profile_machine(less).total_cycles / profile_machine(whole).total_cycles
    yield Row(f"adjoint_memory/{name}/cycles", None, None, cycles, 1.5, "of those that make nothing again")


def lattice_peak(height: int, width: int, steps: int, checkpoint: int | cl.Revolve | None, by_hand: int = 0) -> int:
    """The peak memory of this process, in bytes, once it has the gradient of a fluid's steps.

    Args:
        height: of the torus.
        width: of it.
        steps: how many.
        checkpoint: of the loop.
        by_hand: after how many steps a lowered loop of as many is under `jax.checkpoint`, where that is not 0.
    """
    lowered = lower_fluid(height, width, by_hand or steps, checkpoint)
    run = lambda f: lowered({"f": f})["f"]  # noqa: E731
    several = lambda f, _: (jax.checkpoint(run)(f), None)  # noqa: E731

    def loss(f: jax.Array) -> jax.Array:
        made = jax.lax.scan(several, f, length=steps // by_hand)[0] if by_hand else run(f)
        return jnp.sum(made * made)

    f = jnp.asarray(populations(height, width, np.random.default_rng(0)))
    jax.block_until_ready(jax.jit(jax.grad(loss))(f))
    return peak_bytes()


def _lattice(height: int, width: int, steps: int, every: int, snapshots: int) -> Generator[Row, Row, None]:
    """The peaks of processes that take the gradient of a fluid's steps."""
    measure = partial(in_fresh_process, lattice_peak, height, width, steps)
    whole, hand = measure(None), measure(None, every)
    for what, checkpoint in (("every", every), ("revolve", cl.Revolve(snapshots))):
        found = measure(checkpoint)
        note = f"{found / 1e9:.2f} GB; {whole / 1e9:.2f} where all is kept; to jax.checkpoint by hand, {hand / 1e9:.2f}"
        yield Row(f"adjoint_memory/lattice_boltzmann/{what}", None, None, found / hand, 1.25, note)


@benchmark
def adjoint_memory(
    networks: Mapping[str, float] = TIMES_LESS,
    grain: int = COARSE_GRAIN,
    depth: int = 100,
    less: int = 16,
    turns: int = 1000,
    snapshots: int = 10,
    lattice: tuple[int, int, int, int] = (512, 128, 200, 10),
) -> Generator[Comparison | Row, Row, None]:
    """Memory of training by adjoint graphs: planned beside a variable for everything, recomputed, and of loops."""
    for network, wanted in networks.items():
        machine = plan_network(network, grain)
        yield _times(f"adjoint_memory/{network}", times_less(machine), wanted, "than a variable for everything")
        peak = peak_beside_least(machine)
        yield Row(f"adjoint_memory/{network}/peak", None, None, peak, 1.05, "of the largest live sum")
    yield from _recomputed("layers", layers, depth, less)
    yield from _recomputed("recurrent", recurrent, depth, less)
    run = schedule(turns, snapshots).num_turns
    note = f"{run:,} turns run for {turns:,} with {snapshots} states, to the fewest"
    yield Row("adjoint_memory/revolve", None, None, run / fewest_turns(turns + 1, snapshots), 1.0, note)
    yield from _lattice(*lattice, snapshots)
