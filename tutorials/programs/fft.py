"""The fast Fourier transform (Cooley and Tukey, 1965): a vertex for each butterfly, a compute set for each stage.

Run it with `python -m tutorials.programs.fft`.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show


@cl.codelet
def butterfly(even, odd, root):
    """Two elements become their sum and their difference, the second turned first."""
    turned = root * odd
    return {"even": even + turned, "odd": even - turned}


def bit_reversal(size: int) -> np.ndarray:
    """Each position with the order of its bits reversed."""
    bits = size.bit_length() - 1
    places = np.arange(size)
    return sum(((places >> k) & 1) << (bits - 1 - k) for k in range(bits)) + np.zeros(size, np.int64)


def roots_of_unity(size: int) -> np.ndarray:
    """The first half of the roots of unity, as complex64."""
    return np.exp(-2j * np.pi * np.arange(size // 2) / size).astype(np.complex64)


def lower_fft(size: int) -> cl.Lowered:
    """Elements in bit-reversed order, then runs of twice the length in every stage, in place."""
    graph = cl.Graph()
    x, y = (graph.add_variable(name, (size,), jnp.complex64) for name in "xy")
    roots = graph.add_constant("roots", roots_of_unity(size))
    stages = []
    half = 1
    while half < size:
        run, lane = cl.grid(size // (2 * half), half)
        place = 2 * half * run + lane
        with graph.record() as stage:
            root = roots[size // (2 * half) * lane]
            graph.add_vertex(f"runs of {2 * half}", butterfly, even=y[place], odd=y[place + half], root=root)
        stages.append(stage)
        half *= 2
    program = [cl.Copy(x[cl.table(bit_reversal(size))], y), *stages]
    return cl.lower(graph, program, inputs=[x], outputs=[y])


def plain_fft(x: jax.Array) -> jax.Array:
    """The same stages on whole arrays."""
    size = len(x)
    y, roots, half = x[bit_reversal(size)], roots_of_unity(size), 1
    while half < size:
        pairs = y.reshape(-1, 2, half)
        even, turned = pairs[:, 0], roots[:: size // (2 * half)] * pairs[:, 1]
        y = jnp.stack([even + turned, even - turned], axis=1).reshape(-1)
        half *= 2
    return y


def twin(size: int = 65_536) -> Comparison:
    """Both sides."""

    def arguments(random: np.random.Generator) -> tuple[np.ndarray]:
        real, imaginary = random.standard_normal((2, size), np.float32)
        return (real + np.complex64(1j) * imaginary,)

    return Comparison(
        "fft",
        ours=jax.jit(lambda lowered, x: lowered({"x": x})["y"]),
        plain=jax.jit(plain_fft),
        arguments=arguments,
        ours_held=lambda: (lower_fft(size),),
    )


if __name__ == "__main__":
    show(twin())
