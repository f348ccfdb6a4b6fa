"""Spiking neurons: leaky integrators in fixed point, each with a ragged row of synapses.

The arithmetic is that of integers, as on neuromorphic chips, so that not one spike may differ.

Run it with `python -m tutorials.programs.spiking`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show
from tutorials.programs.random_network import Network, random_network

THRESHOLD = 1000


@cl.codelet
def integrate(v, drive, arriving, weights):
    """A neuron's potential leaks, and grows by its drive and by what arrives; above the threshold it fires."""
    v = v - v // 8 + drive + jnp.sum(weights * arriving)
    fires = v > THRESHOLD
    return {"v": jnp.where(fires, 0, v), "spike": fires.astype(jnp.int32)}


@cl.codelet
def count(total, spike):
    """How often a neuron has fired."""
    return {"total": total + spike}


def lower_spiking(network: Network, steps: int) -> cl.Lowered:
    """All neurons integrate what fired in the step before."""
    neurons, synapses = network.nodes, len(network.senders)
    graph = cl.Graph()
    v, drive, fired, spikes, totals = (
        graph.add_variable(name, (neurons,), jnp.int32) for name in ("v", "drive", "fired", "spikes", "totals")
    )
    weights = graph.add_variable("weights", (synapses,), jnp.int32)
    n = cl.grid(neurons)
    senders = cl.table(network.senders, offsets=network.offsets)
    own = cl.table(np.arange(synapses), offsets=network.offsets)
    with graph.record() as step:
        graph.add_vertex(
            "integrate",
            integrate,
            v=v[n],
            drive=drive[n],
            arriving=fired[senders[n]],
            weights=weights[own[n]],
            spike=spikes[n],
        )
        graph.add_vertex("count", count, total=totals[n], spike=spikes[n])
    program = cl.Repeat(steps, [step, cl.Copy(spikes, fired)])
    return cl.lower(graph, program, inputs=[v, drive, fired, totals, weights], outputs=[v, totals])


def plain_spiking(network: Network, steps: int, values: dict[str, jax.Array]) -> dict[str, jax.Array]:
    """The same by a segment sum over the synapses."""
    receivers = np.repeat(np.arange(network.nodes), np.diff(network.offsets))

    def step(_: object, state: tuple[jax.Array, ...]) -> tuple[jax.Array, ...]:
        v, fired, totals = state
        arriving = values["weights"] * fired[network.senders]
        current = jax.ops.segment_sum(arriving, receivers, network.nodes, indices_are_sorted=True)
        v = v - v // 8 + values["drive"] + current
        fires = v > THRESHOLD
        spikes = fires.astype(jnp.int32)
        return jnp.where(fires, 0, v), spikes, totals + spikes

    v, _, totals = jax.lax.fori_loop(0, steps, step, (values["v"], values["fired"], values["totals"]))
    return {"v": v, "totals": totals}


def twin(neurons: int = 10_000, synapses: int = 500_000, steps: int = 50) -> Comparison:
    """Both sides."""
    network = random_network(neurons, synapses)

    def arguments(random: np.random.Generator) -> tuple[dict[str, np.ndarray]]:
        zeros = np.zeros(neurons, np.int32)
        draw = lambda low, high, size: random.integers(low, high, size, np.int32)  # noqa: E731
        drive, weights = draw(0, 200, neurons), draw(-20, 21, synapses)
        return ({"v": zeros, "drive": drive, "fired": zeros, "totals": zeros, "weights": weights},)

    return Comparison(
        "spiking",
        ours=jax.jit(lambda lowered, values: dict(lowered(values))),
        plain=jax.jit(lambda values: plain_spiking(network, steps, values)),
        arguments=arguments,
        ours_held=lambda: (lower_spiking(network, steps),),
    )


if __name__ == "__main__":
    show(twin())
