"""Training with Equinox: a layer made of vertices is a module like any other, under `filter_grad` and in a scan.

Run it with `python -m tutorials.programs.equinox_training`.
"""

from __future__ import annotations

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison
from tutorials.programs.beside import show

CHUNK = 8
RATE = 0.1


@cl.codelet
def dot(x, w):
    """A chunk of a feature."""
    return jnp.dot(x, w)


@cl.codelet
def finish(parts, bias):
    """A feature from its chunks."""
    return jnp.tanh(jnp.sum(parts) + bias)


def dense(graph, x, w, b):
    """A vertex for each sample, feature and chunk, and one that adds the chunks up."""
    sample, feature, p = cl.grid(x.shape[0], w.shape[0], w.shape[1] // CHUNK)
    chunk = slice(CHUNK * p, CHUNK * p + CHUNK)
    parts = graph.add_vertex("multiply", dot, x=x[sample, chunk], w=w[feature, chunk])
    sample, feature = cl.grid(*parts.shape[:2])
    return graph.add_vertex("add up", finish, parts=parts[sample, feature], bias=b[feature])


class Dense(eqx.Module):
    """A dense layer on a batch, by vertices or by plain JAX."""

    w: jax.Array
    b: jax.Array
    run: object = eqx.field(static=True)

    def __call__(self, x):
        """The features of a batch of samples."""
        return self.run(x, self.w, self.b)


def network(widths, run, random) -> list[Dense]:
    """A layer for each pair of widths."""
    draw = lambda m, n: jnp.asarray(random.standard_normal((n, m), np.float32) / np.sqrt(m, dtype=np.float32))  # noqa: E731
    return [Dense(draw(m, n), jnp.zeros(n), run) for m, n in itertools.pairwise(widths)]


def loss(layers, x, y):
    """The mean squared error."""
    for layer in layers:
        x = layer(x)
    return jnp.mean((x - y) ** 2)


def train(layers, batches):
    """Gradient descent, a batch a step; the losses and what was learned."""

    def step(layers, batch):
        value, slopes = eqx.filter_value_and_grad(loss)(layers, *batch)
        return eqx.apply_updates(layers, jax.tree.map(lambda slope: -RATE * slope, slopes)), value

    layers, losses = jax.lax.scan(step, layers, batches)
    return losses, [(layer.w, layer.b) for layer in layers]


def plain_dense(x, w, b):
    """The layer on whole arrays."""
    return jnp.tanh(x @ w.T + b)


lowered_dense = cl.lower(dense)


def twin(widths: tuple[int, ...] = (64, 256, 256, 8), batch: int = 64, steps: int = 50) -> Comparison:
    """Both sides: the losses of all steps, and the weights."""

    def arguments(random: np.random.Generator) -> tuple[object, ...]:
        teacher = random.standard_normal((widths[0], widths[-1]), np.float32) / np.sqrt(widths[0], dtype=np.float32)
        x = random.standard_normal((steps, batch, widths[0]), np.float32)
        weights = [(layer.w, layer.b) for layer in network(widths, None, random)]
        return weights, (x, np.tanh(x @ teacher))

    def side(run):
        return jax.jit(lambda weights, batches: train([Dense(w, b, run) for w, b in weights], batches))

    return Comparison(
        "equinox_training", ours=side(lowered_dense), plain=side(plain_dense), arguments=arguments, tolerance=1e-4
    )


if __name__ == "__main__":
    batch, weights, bias = np.zeros((64, 64)), np.zeros((256, 64)), np.zeros(256)
    show(twin(), lowered_dense.at(batch, weights, bias).graph)
