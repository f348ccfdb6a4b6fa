"""Memory against cycles: `python docs/memory_curve.py [NETWORK [SHARE ...]]`, from the root of a checkout.

A network's loss is traced, batch 1, with every block apart, and differentiated with budgets of bytes: shares of what
it takes where nothing is made again. Bytes are those of the plan's live variables, cycles those of all its steps with
their vertices spread evenly over an IPU, before anything is placed. A line of a table is printed for each, and the
figure goes to docs/pictures/memory_curve.webp. Takes four minutes on two cores.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import jax
import matplotlib

import codelet as cl
from benchmarks.traced_steps import COARSE_GRAIN, step_types
from codelet.views.sources import source_variables
from ipu_backend.jobs.adjoint import network_loss
from lowering.adjoint.budget import cycles_of
from lowering.machine.live_variables import lifetimes, live_variables
from lowering.pipeline import plan_graph
from lowering.plan.timeline import timeline, without_calls

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FILE = Path(__file__).parent / "pictures" / "memory_curve.webp"
SHARES = (0.9, 0.8, 0.7, 0.6, 0.55, 0.5)


class Point(NamedTuple):
    """What a loss and its gradient take: bytes live at once of variables that are not always live, and cycles."""

    num_bytes: int
    cycles: float


def loss_apart(*arguments: Any) -> Any:
    """`network_loss` with every jitted function inlined: what functions make is not made again."""
    with jax.disable_jit():
        return network_loss(*arguments)


def measured(network: str, recompute: cl.Recompute | None) -> Point:
    """A network's loss and gradient, planned."""
    arguments = step_types(network)
    traced = cl.trace(loss_apart, *arguments, grain=COARSE_GRAIN)
    parameters = jax.tree.leaves(traced.inputs[0].parameters)
    found = cl.gradient(
        traced.graph, of=traced.flat_outputs[0], wrt=parameters, program=traced.program, recompute=recompute
    )
    inputs = [source_variables(own.source)[0] for own in traced.flat_inputs]
    both = cl.Sequence(found.forward, found.backward)
    plan = without_calls(plan_graph(traced.graph, both, inputs, [*traced.flat_outputs, *found]))
    line, held = timeline(plan), lifetimes(plan)
    named = {variable for moment in line.moments for variable in (*moment.reads, *moment.writes)} - held.kept
    live = live_variables(plan, line, held, [own for own in plan.variables if own in named])
    num_bytes = live.num_bytes(lambda own: own.size * own.dtype.itemsize).max()
    return Point(int(num_bytes), sum(own.turns * cycles_of(own.step, traced.graph) for own in line.moments))


def main(network: str, shares: tuple[float, ...]) -> None:
    """Print the table, and draw the figure."""
    whole = measured(network, None)
    print("| budget | bytes | cycles |\n|---:|---:|---:|")
    points = [whole]
    for share in (1.0, *shares):
        if share < 1:
            points.append(measured(network, cl.Recompute.bytes(int(share * whole.num_bytes))))
        num_bytes, cycles = points[-1]
        print(f"| {share:.0%} | {num_bytes / 1e6:.1f} MB | {cycles / whole.cycles:.3f} |", flush=True)
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axes.plot([own.num_bytes / 1e6 for own in points], [own.cycles / whole.cycles for own in points], "o-")
    axes.set(xlabel="most bytes live at once, not always live (MB)", ylabel="cycles, of those that make nothing again")
    axes.set_title(f"A gradient of {network}: memory against cycles")
    axes.grid(alpha=0.3)
    figure.savefig(FILE, dpi=120)


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "resnet50", tuple(map(float, sys.argv[2:])) or SHARES)
