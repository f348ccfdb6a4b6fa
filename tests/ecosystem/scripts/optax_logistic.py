"""Logistic regression by optax's L-BFGS and by Adam in a scan, and how sure either is of its answers."""

# pyright: reportMissingImports=false

import jax
import jax.numpy as jnp
import numpy as np
import optax

RANDOM = np.random.default_rng(0)
X = RANDOM.standard_normal((200, 6)).astype(np.float32)
Y = (X @ RANDOM.standard_normal(6) + 0.3 * RANDOM.standard_normal(200) > 0).astype(np.float32)


def loss(params, scale=1e-2):
    logits = X @ params["w"] + params["b"]
    return optax.sigmoid_binary_cross_entropy(logits, Y).mean() + scale * jnp.sum(params["w"] ** 2)


START = {"w": jnp.zeros(6), "b": jnp.zeros(())}
LBFGS, ADAM = optax.lbfgs(), optax.chain(optax.clip_by_global_norm(1.0), optax.adam(0.05))


@jax.jit
def by_lbfgs(params):
    value_and_grad = optax.value_and_grad_from_state(loss)

    def step(held, _):
        params, state = held
        value, grad = value_and_grad(params, state=state)
        updates, state = LBFGS.update(grad, state, params, value=value, grad=grad, value_fn=loss)
        return (optax.apply_updates(params, updates), state), value

    (params, _), values = jax.lax.scan(step, (params, LBFGS.init(params)), length=12)
    return params, values


@jax.jit
def by_adam(params, *, scale):
    def step(held, _):
        params, state = held
        value, grad = jax.value_and_grad(loss)(params, scale)
        updates, state = ADAM.update(grad, state)
        return (optax.apply_updates(params, updates), state), value

    return jax.lax.scan(step, (params, ADAM.init(params)), length=60)


@jax.jit
def probability(params, x):
    return jax.nn.sigmoid(x @ params["w"] + params["b"])


def main():
    params, values = by_lbfgs(START)
    (other, _), others = by_adam(START, scale=1e-2)
    sure = jax.vmap(probability, (None, 0))(params, X[:8])
    slopes = jax.grad(lambda x: probability(other, x).sum())(X[:8])
    return [float(own) for own in jnp.concatenate([values, others, sure, slopes.ravel()])]
