"""A recurrent network in Equinox tells which way spirals turn."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax


class RNN(eqx.Module):
    cell: eqx.nn.GRUCell
    head: eqx.nn.Linear
    hidden: int = eqx.field(static=True)

    def __init__(self, hidden, key):
        one, two = jax.random.split(key)
        self.cell = eqx.nn.GRUCell(2, hidden, key=one)
        self.head = eqx.nn.Linear(hidden, "scalar", key=two)
        self.hidden = hidden

    def __call__(self, path):
        last, _ = jax.lax.scan(lambda state, point: (self.cell(point, state), None), jnp.zeros(self.hidden), path)
        return self.head(last)


def spirals(count):
    random = np.random.default_rng(0)
    turns, begin = np.linspace(0, 4 * np.pi, 16), random.uniform(0, 2 * np.pi, (count, 1))
    angles = begin + turns * np.where(np.arange(count)[:, None] % 2, 1, -1)
    paths = np.stack([np.sin(angles), np.cos(angles)], -1) / (1 + turns[:, None])
    return paths.astype(np.float32), (np.arange(count) % 2).astype(np.float32)


OPTIMIZER = optax.adam(1e-2)


@functools.partial(jax.jit, static_argnums=1, donate_argnums=(0, 2))
def make_step(params, static, state, x, y):
    def loss_of(params):
        logits = jax.vmap(eqx.combine(params, static))(x)
        return optax.sigmoid_binary_cross_entropy(logits, y).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = OPTIMIZER.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


def main():
    x, y = spirals(64)
    params, static = eqx.partition(RNN(16, jax.random.key(1)), eqx.is_inexact_array)
    state, found = OPTIMIZER.init(params), []
    for _ in range(40):
        params, state, loss = make_step(params, static, state, x, y)
        found.append(float(loss))
    return found
