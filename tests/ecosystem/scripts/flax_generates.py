"""A language model in Flax that learns a sequence, and goes on with it word by word out of a cache."""

# pyright: reportMissingImports=false

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax

WORDS, WIDTH, LENGTH = 16, 32, 24


class Language(nn.Module):
    """One block of causal attention between embeddings and their transpose."""

    decode: bool = False

    @nn.compact
    def __call__(self, words):
        embed = nn.Embed(WORDS, WIDTH)
        x = embed(words)
        mask = None if self.decode else nn.make_causal_mask(words)
        near = nn.LayerNorm()(x)
        x = x + nn.MultiHeadDotProductAttention(num_heads=2, qkv_features=WIDTH, decode=self.decode)(near, mask=mask)
        x = x + nn.Dense(WIDTH)(nn.gelu(nn.Dense(4 * WIDTH)(nn.LayerNorm()(x))))
        return embed.attend(nn.LayerNorm()(x))


OPTIMIZER = optax.adam(1e-2)


@jax.jit
def train_step(params, state, words):
    def loss_of(params):
        logits = Language().apply({"params": params}, words[:, :-1])
        return optax.softmax_cross_entropy_with_integer_labels(logits, words[:, 1:]).mean()

    loss, grads = jax.value_and_grad(loss_of)(params)
    updates, state = OPTIMIZER.update(grads, state, params)
    return optax.apply_updates(params, updates), state, loss


@partial(jax.jit, static_argnames="count")
def generate(params, cache, first, count):
    def step(held, _):
        cache, word = held
        logits, changed = Language(decode=True).apply({"params": params, "cache": cache}, word, mutable=["cache"])
        word = logits.argmax(-1)
        return (changed["cache"], word), word[:, 0]

    _, words = jax.lax.scan(step, (cache, first), length=count)
    return words.T


def main():
    words = np.tile(np.array([1, 5, 3, 7, 2, 9], np.int32), (4, 4))
    params = Language().init(jax.random.key(0), words[:, :-1])["params"]
    cache = Language(decode=True).init(jax.random.key(0), jnp.ones((4, LENGTH), jnp.int32))["cache"]
    state, found = OPTIMIZER.init(params), []
    for _ in range(30):
        params, state, loss = train_step(params, state, words)
        found.append(float(loss))
    return [*found, *map(float, generate(params, cache, words[:, :1], count=8)[0])]
