"""What more chips gain: `python docs/scaling.py [CHIPS ...]`, from the root of a checkout.

Profiled on 1 to 64 chips, of one size (strong scaling) and of a size that grows with the chips (weak scaling): a step
of a five-point stencil there and one back; and a training step of ResNet-50, replicated: each chip has its part of the
batch, one image after another, and the gradients are summed around a ring. Cycles are the model's; nothing runs. A
line of a table is printed for each, and the figure goes to docs/pictures/scaling.webp.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent.parent))

import equinox as eqx
import jax
import jax.numpy as jnp
import matplotlib

import codelet as cl
from benchmarks.heat import diffuse
from codelet.models.networks import step_arguments
from codelet.models.training import Training, loss_and_state, train_step
from ipu_backend.model.step_profile import StepProfile

matplotlib.use("Agg")
import matplotlib.pyplot as plt

FILE = Path(__file__).parent / "pictures" / "scaling.webp"
CHIPS = (1, 2, 4, 8, 16, 32, 64)
SIDE = 1024
IMAGES = 64
WORKERS = 6


class Cycles(NamedTuple):
    """What a step takes, and what of it computes, is exchange or sync on chips, or is between chips."""

    total: int
    compute: int
    exchange: int
    sync: int
    between: int

    def __add__(self, other: Cycles) -> Cycles:  # type: ignore[override]
        return Cycles(*(a + b for a, b in zip(self, other, strict=True)))

    def __mul__(self, times: int) -> Cycles:  # type: ignore[override]
        return Cycles(*(times * own for own in self))


def cycles(own: cl.Profile | StepProfile) -> Cycles:
    """Those of a profile, or of a step of it, for all its turns."""
    between = own.external_exchange_cycles + own.external_sync_cycles
    return Cycles(own.total_cycles, own.compute_cycles, own.exchange_cycles, own.sync_cycles, between)


# --- a stencil --------------------------------------------------------------------------------------------


def stencil(rows: int, columns: int, chips: int) -> Cycles:
    """A step there and one back, on inner points."""
    graph = cl.Graph(cl.IPU(num_chips=chips))
    u, v = graph.add_variable("u", (rows, columns)), graph.add_variable("v", (rows, columns))
    i, j = cl.grid(range(1, rows - 1), range(1, columns - 1))
    for name, a, b in (("there", u, v), ("back", v, u)):
        near = {"north": a[i - 1, j], "south": a[i + 1, j], "west": a[i, j - 1], "east": a[i, j + 1]}
        graph.add_vertex(name, diffuse, here=a[i, j], **near, out=b[i, j])
    return cycles(cl.Engine(graph).profile())


# --- a network, replicated ----------------------------------------------------------------------------------


@cl.codelet
def add(mine, received):
    """A chip's own part of a sum, and what others have added up of it."""
    return mine + received


@cl.codelet
def take(received):
    """What was received."""
    return received


def step_of_a_ring(elements: int, target: cl.IPU, codelet: cl.Codelet, **before: int) -> cl.Graph:
    """A step in which each chip runs a codelet over a chunk, its elements dealt to its tiles and their workers.

    Args:
        elements: of the array that is cut in chunks.
        target: the chips on the ring.
        codelet: what is run.
        before: for each field how many chips before it on the ring what a chip reads is, 0 or 1.
    """
    graph, chips = cl.Graph(target), target.num_chips
    tiles = target.num_tiles // chips
    chunk = (chips, tiles, WORKERS, -(-elements // (tiles * chips * WORKERS)))
    arrays = {own: graph.add_variable(own, chunk) for own in (*before, "out")}
    c, t, w = cl.grid(*chunk[:-1])
    for array in arrays.values():
        graph.set_tile_mapping(array[c, t, w], c * tiles + t)
    for some, turn in ((range(1, chips), 0), (range(1), chips)):  # where the ring turns over, a family of its own
        c, t, w = cl.grid(some, tiles, WORKERS)
        fields = {own: arrays[own][c + far * (turn - 1), t, w] for own, far in before.items()}
        graph.add_vertex("step", codelet, **fields, out=arrays["out"][c, t, w], tile=c * tiles + t)
    return graph


def steps_of_a_ring(elements: int, target: cl.IPU) -> dict[str, tuple[cl.Graph, int]]:
    """Arrays of all chips, added up, and known to all: a step of each kind, and how often it is taken.

    Each array is cut in as many chunks as there are chips. A chip adds its own of a chunk to what it receives, and
    passes that on; after a turn less one each chip has the sum of one chunk, and after another all of all. A graph
    holds of each array the chunk alone that a step touches: what a step takes does not depend on what lies beside it.

    Source: Patarasu and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations" (2009).
    """
    return {
        "begin": (step_of_a_ring(elements, target, take, received=0), 1),
        "add": (step_of_a_ring(elements, target, add, mine=0, received=1), target.num_chips - 1),
        "end": (step_of_a_ring(elements, target, take, received=0), 1),
        "pass": (step_of_a_ring(elements, target, take, received=1), target.num_chips - 1),
    }


def ring(elements: int, chips: int) -> Cycles:
    """Summing arrays of all chips. All steps of a kind take the same, so one of each is profiled."""
    if chips == 1:
        return Cycles(0, 0, 0, 0, 0)
    steps = steps_of_a_ring(elements, cl.IPU(num_chips=chips)).values()
    found = [cycles(cl.Engine(graph).profile()) * times for graph, times in steps]
    return functools.reduce(operator.add, found)


@functools.cache
def step_of_one(network: str) -> Cycles:
    """A network's step of one input on one chip, whatever memory it takes."""
    arguments = eqx.filter_eval_shape(step_arguments, network, key=jax.random.key(0))
    return cycles(cl.trace(train_step, *arguments, target=cl.IPU()).profile(allow_out_of_memory=True))


def step_in_turns(
    training: Training, inputs: jax.Array, labels: jax.Array, *, turns: int, rate: float = 0.01, momentum: float = 0.9
) -> tuple[jax.Array, Training]:
    """`train_step` on several batches, one after another: their gradients are summed, and used once.

    Each turn reads its batch from where `inputs` and `labels` are, where the host puts one after another.
    """
    slopes = jax.value_and_grad(loss_and_state, has_aux=True)

    def turn(carried: Any, _: None) -> tuple[Any, None]:
        loss, total, state = carried
        (more, state), gradient = slopes(training.parameters, replace(training, state=state), inputs, labels)
        return (loss + more, jax.tree.map(jnp.add, total, gradient), state), None

    none = jax.tree.map(jnp.zeros_like, training.parameters)
    (loss, total, state), _ = jax.lax.scan(turn, (jnp.zeros(()), none, training.state), None, turns)
    velocity = jax.tree.map(lambda v, g: momentum * v + g / turns, training.velocity, total)
    parameters = jax.tree.map(lambda p, v: p - rate * v, training.parameters, velocity)
    return loss / turns, Training(parameters, velocity, state, training.rest)


@functools.cache
def once_and_each(network: str, turns: int = 2) -> tuple[Cycles, Cycles]:
    """What a step takes on one chip that has one input after another: once, and for each input.

    It is profiled with so many turns; what is inside of the loop takes as much for each of any number.
    """
    arguments = eqx.filter_eval_shape(step_arguments, network, key=jax.random.key(0))
    step = functools.partial(step_in_turns, turns=turns)
    profile = cl.trace(step, *arguments, target=cl.IPU()).profile(allow_out_of_memory=True)
    assert {own.iterations for own in profile.steps} == {1, turns}
    of_turns = functools.reduce(operator.add, (cycles(own) for own in profile.steps if own.iterations == turns))
    each = Cycles(*(own // turns for own in of_turns))
    return cycles(profile) + of_turns * -1, each


@functools.cache
def parameters() -> int:
    """How many numbers ResNet-50's gradient has."""
    training, *_ = eqx.filter_eval_shape(step_arguments, "resnet50", key=jax.random.key(0))
    return sum(own.size for own in jax.tree.leaves(training.parameters))


def replicated(images: int, chips: int) -> Cycles:
    """ResNet-50's step of a batch that is dealt to so many chips, each of which has one image after another.

    Not several at once: by the model, the step of one takes twice the memory that a chip has.
    """
    most = -(-images // chips)
    if most == 1:
        return step_of_one("resnet50") + ring(parameters(), chips)
    once, each = once_and_each("resnet50")
    return once + each * most + ring(parameters(), chips)


# --- the table and the figure ---------------------------------------------------------------------------------


class Case(NamedTuple):
    """What is scaled.

    Attributes:
        name: of it.
        size: of the problem, as text, by the number of chips.
        cycles: on as many chips.
        is_weak: whether its size grows with the chips.
        style: of its line.
    """

    name: str
    size: Callable[[int], str]
    cycles: Callable[[int], Cycles]
    is_weak: bool
    style: str


CASES = (
    Case("stencil", lambda k: f"{SIDE} x {SIDE}", lambda k: stencil(SIDE, SIDE, k), False, "o-"),
    Case("stencil", lambda k: f"{SIDE * k} x {SIDE}", lambda k: stencil(SIDE * k, SIDE, k), True, "o--"),
    Case("ResNet-50", lambda k: f"batch {IMAGES}", lambda k: replicated(IMAGES, k), False, "s-"),
    Case("ResNet-50", lambda k: f"batch {k}", lambda k: replicated(k, k), True, "s--"),
)


def gains(case: Case, chips: Sequence[int]) -> Iterator[tuple[int, float]]:
    """What the chips do at once, to what one does, by their number; a line of the table is printed for each."""
    one = case.cycles(1).total
    for count in chips:
        own = case.cycles(count)
        gain = one / own.total * (count if case.is_weak else 1)
        shares = [f"{share / own.total:.0%}" for share in own[1:]]
        scaling = "weak" if case.is_weak else "strong"
        row = [case.name, scaling, case.size(count), str(count), f"{own.total:,}", *shares, f"{gain:.2f}"]
        print(f"| {' | '.join(row)} |", flush=True)
        yield count, gain


def main(chips: Sequence[int]) -> None:
    """Print the table, and draw the figure."""
    print("| program | scaling | size | chips | cycles | compute | exchange | sync | between chips | gain |")
    print("|---|---|---|---:|---:|---:|---:|---:|---:|---:|")
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axes.plot(chips, chips, color="0.7", linewidth=1, label="as many times as chips")
    for case in CASES:
        counts, found = zip(*gains(case, chips), strict=True)
        label = f"{case.name}, {'weak, ' if case.is_weak else ''}{case.size(1)}{' a chip' if case.is_weak else ''}"
        axes.plot(counts, found, case.style, label=label)
    axes.set(xscale="log", yscale="log", xlabel="chips", ylabel="work in a cycle, to one chip's")
    axes.set_xticks(chips, [str(own) for own in chips])
    axes.set_title("What more chips gain, by the model of the machine")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(FILE, dpi=120)


if __name__ == "__main__":
    main(tuple(map(int, sys.argv[1:])) or CHIPS)
