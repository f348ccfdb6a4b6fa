"""Waveform inversion: what a medium is like, from the sound of a pulse heard at its receivers.

The acoustic wave equation in two dimensions runs as a program whose input stream is the pulse and whose output
stream is what the receivers hear. JAX differentiates through all its turns: the gradient by the speed of sound in
every cell is one step of the inversion.

Run it with `python -m tutorials.programs.waveform_inversion`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show


@cl.codelet
def advance(new, now, north, south, west, east, speed):
    """A cell's pressure one step later; `new` comes in as the pressure one step before."""
    return {"new": 2 * now - new + speed * (north + south + west + east - 4 * now)}


@cl.codelet
def add_pulse(pressure, pulse):
    """The source adds to the pressure of its cell."""
    return {"pressure": pressure + pulse}


def lower_wave(height: int, width: int, steps: int) -> cl.Lowered:
    """Two fields of pressure that change places; the edge stays at rest. Receivers stand along the second row."""
    graph = cl.Graph()
    a, b, speed = (graph.add_variable(name, (height, width)) for name in ("a", "b", "speed"))
    pulses, traces = graph.add_input_stream("pulses", ()), graph.add_output_stream("traces", (width,))
    pulse = graph.add_variable("pulse", ())
    turns = []
    for now, new in ((a, b), (b, a)):
        i, j = cl.grid(range(1, height - 1), range(1, width - 1))
        with graph.record() as turn:
            graph.add_vertex(
                f"advance {new.source.name}",
                advance,
                new=new[i, j],
                now=now[i, j],
                north=now[i - 1, j],
                south=now[i + 1, j],
                west=now[i, j - 1],
                east=now[i, j + 1],
                speed=speed[i, j],
            )
            graph.add_vertex(f"pulse {new.source.name}", add_pulse, pressure=new[height // 2, width // 2], pulse=pulse)
        turns += [cl.Copy(pulses, pulse), turn, cl.Copy(new[1], traces)]
    return cl.lower(graph, cl.Repeat(steps // 2, turns), inputs=[a, b, speed], outputs=[])


def plain_wave(speed: jax.Array, pulses: jax.Array) -> jax.Array:
    """The same by slices in a scan."""

    def step(state: tuple[jax.Array, jax.Array], pulse: jax.Array) -> tuple[tuple[jax.Array, jax.Array], jax.Array]:
        before, now = state
        inner = now[1:-1, 1:-1]
        around = now[:-2, 1:-1] + now[2:, 1:-1] + now[1:-1, :-2] + now[1:-1, 2:]
        new = jnp.pad(2 * inner - before[1:-1, 1:-1] + speed[1:-1, 1:-1] * (around - 4 * inner), 1)
        new = new.at[speed.shape[0] // 2, speed.shape[1] // 2].add(pulse)
        return (now, new), new[1]

    rest = jnp.zeros_like(speed)
    return jax.lax.scan(step, (rest, rest), pulses)[1]


def misfit(heard, observed):
    """How far what is heard is from what was observed."""
    return jnp.sum((heard - observed) ** 2)


def twin(height: int = 96, width: int = 128, steps: int = 200) -> Comparison:
    """Both sides: the misfit and its gradient by the speeds (squared, in cells a step)."""

    def ours(lowered: cl.Lowered, speed: jax.Array, pulses: jax.Array, observed: jax.Array):
        def heard(speed: jax.Array) -> jax.Array:
            rest = jnp.zeros_like(speed)
            return lowered({"a": rest, "b": rest, "speed": speed, "pulses": pulses})["traces"]

        return jax.value_and_grad(lambda s: misfit(heard(s), observed))(speed)

    def plain(speed: jax.Array, pulses: jax.Array, observed: jax.Array):
        return jax.value_and_grad(lambda s: misfit(plain_wave(s, pulses), observed))(speed)

    def arguments(_: np.random.Generator) -> tuple[np.ndarray, np.ndarray, jax.Array]:
        time = (np.arange(steps, dtype=np.float32) - 20) / 6
        pulses = (1 - 2 * time**2) * np.exp(-(time**2))
        guess = np.full((height, width), 0.2, np.float32)
        true = guess.copy()
        true[height // 4 : height // 3, width // 3 : width // 2] = 0.3
        return guess, pulses, jax.jit(plain_wave)(true, pulses)

    return Comparison(
        "waveform_inversion",
        ours=jax.jit(ours),
        plain=jax.jit(plain),
        arguments=arguments,
        tolerance=1e-4,
        ours_held=lambda: (lower_wave(height, width, steps),),
    )


if __name__ == "__main__":
    show(twin())
