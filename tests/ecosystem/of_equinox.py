"""Programs in Equinox."""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tests.ecosystem.program import drawn, program, whole

KEY = jax.random.key(0)


def _descent(model: Any, loss: Any, *inputs: Any) -> tuple[Any, tuple[Any, ...]]:
    """A step down the slope of a loss."""
    parameters, static = eqx.partition(model, eqx.is_inexact_array)

    def step(parameters, *inputs):
        value, slopes = jax.value_and_grad(lambda own: loss(eqx.combine(own, static), *inputs))(parameters)
        return jax.tree.map(lambda own, slope: own - 0.01 * slope, parameters, slopes), value

    return step, (parameters, *inputs)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


@program("equinox/cnn", "docs.kidger.site/equinox: basic CNN on MNIST")
def cnn():
    keys = jax.random.split(KEY, 4)
    model = eqx.nn.Sequential(
        [
            eqx.nn.Conv2d(1, 3, 4, key=keys[0]),
            eqx.nn.MaxPool2d(2),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Lambda(jnp.ravel),
            eqx.nn.Linear(1728, 512, key=keys[1]),
            eqx.nn.Lambda(jax.nn.sigmoid),
            eqx.nn.Linear(512, 64, key=keys[2]),
            eqx.nn.Lambda(jax.nn.relu),
            eqx.nn.Linear(64, 10, key=keys[3]),
        ]
    )
    loss = lambda own, x, y: _cross_entropy(jax.vmap(own)(x), y)  # noqa: E731
    return _descent(model, loss, drawn(32, 1, 28, 28), whole(10, 32))


class _Recurrent(eqx.Module):
    cell: eqx.nn.GRUCell
    linear: eqx.nn.Linear

    def __call__(self, rows):
        last, _ = jax.lax.scan(lambda carry, row: (self.cell(row, carry), None), jnp.zeros(16), rows)
        return jax.nn.sigmoid(self.linear(last))


@program("equinox/gru", "docs.kidger.site/equinox: training an RNN, spirals")
def gru():
    one, two = jax.random.split(KEY)
    model = _Recurrent(eqx.nn.GRUCell(2, 16, key=one), eqx.nn.Linear(16, 1, key=two))

    def loss(own, x, y):
        found = jax.vmap(own)(x)[:, 0]
        return -(y * jnp.log(found) + (1 - y) * jnp.log(1 - found)).mean()

    return _descent(model, loss, drawn(32, 16, 2), whole(2, 32).astype(np.float32))


class _Attending(eqx.Module):
    patches: eqx.nn.Linear
    places: jax.Array
    attention: eqx.nn.MultiheadAttention
    norms: list[eqx.nn.LayerNorm]
    wide: eqx.nn.MLP
    head: eqx.nn.Linear

    def __init__(self, key):
        keys = jax.random.split(key, 5)
        self.patches, self.places = eqx.nn.Linear(48, 64, key=keys[0]), jax.random.normal(keys[1], (65, 64))
        self.attention = eqx.nn.MultiheadAttention(4, 64, key=keys[2])
        self.norms, self.wide = [eqx.nn.LayerNorm(64)] * 3, eqx.nn.MLP(64, 64, 256, 1, jax.nn.gelu, key=keys[3])
        self.head = eqx.nn.Linear(64, 10, key=keys[4])

    def __call__(self, image):
        cut = image.reshape(3, 8, 4, 8, 4).transpose(1, 3, 0, 2, 4).reshape(64, 48)
        x = jnp.concatenate([jnp.zeros((1, 64)), jax.vmap(self.patches)(cut)]) + self.places
        near = jax.vmap(self.norms[0])(x)
        x = x + self.attention(near, near, near)
        x = x + jax.vmap(self.wide)(jax.vmap(self.norms[1])(x))
        return self.head(self.norms[2](x[0]))


@program("equinox/vision_transformer", "docs.kidger.site/equinox: vision transformer")
def vision_transformer():
    loss = lambda own, x, y: _cross_entropy(jax.vmap(own)(x), y)  # noqa: E731
    return _descent(_Attending(KEY), loss, drawn(8, 3, 32, 32), whole(10, 8))


@program("equinox/score_based", "docs.kidger.site/equinox: score-based diffusion")
def score_based():
    model = eqx.nn.MLP(65, 64, 128, 3, jax.nn.silu, key=KEY)

    def loss(own, images, key):
        def one(image, key):
            time, noise = jax.random.uniform(key, minval=0, maxval=10), jax.random.normal(key, image.shape)
            mean, deviation = image * jnp.exp(-0.5 * time), jnp.sqrt(jnp.maximum(1 - jnp.exp(-time), 1e-5))
            score = own(jnp.append(mean + deviation * noise, time))
            return (1 - jnp.exp(-time)) * ((score + noise / deviation) ** 2).mean()

        return jax.vmap(one)(images, jax.random.split(key, len(images))).mean()

    return _descent(model, loss, drawn(16, 64), jax.random.key(3))


@program("equinox/error_if", "docs.kidger.site/equinox: runtime errors, error_if", slopes=(0,))
def error_if():
    return lambda x: jnp.sqrt(eqx.error_if(x, (x < 0).any(), "a number is negative")), (np.abs(drawn(30)),)


@program("equinox/batch_norm", "docs.kidger.site/equinox: stateful operations, BatchNorm")
def batch_norm():
    model, state = eqx.nn.make_with_state(eqx.nn.BatchNorm)(12, "batch", mode="batch")

    def run(state, x):
        return jax.vmap(model, axis_name="batch", in_axes=(0, None), out_axes=(0, None))(x, state)

    return run, (state, drawn(16, 12))
