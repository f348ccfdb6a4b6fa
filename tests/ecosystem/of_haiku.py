"""Programs in haiku."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import haiku as hk
import jax
import jax.numpy as jnp
import optax

from tests.ecosystem.program import drawn, program, uniform, whole


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


def _trained(loss: Any, optimizer: Any, *inputs: Any, stateful: bool = False) -> tuple[Any, tuple[Any, ...]]:
    """A step of training of a function with modules in it, of a key and what it is given."""
    if not stateful:
        own = hk.transform(loss)
        parameters = own.init(jax.random.key(0), *inputs)

        def step(parameters, state, *inputs):
            value, slopes = jax.value_and_grad(own.apply)(parameters, jax.random.key(1), *inputs)
            updates, state = optimizer.update(slopes, state, parameters)
            return optax.apply_updates(parameters, updates), state, value

        return step, (parameters, optimizer.init(parameters), *inputs)
    both = hk.transform_with_state(loss)
    parameters, kept = both.init(jax.random.key(0), *inputs)

    def step_of_both(parameters, kept, state, *inputs):
        run = lambda own: both.apply(own, kept, jax.random.key(1), *inputs)  # noqa: E731
        (value, after), slopes = jax.value_and_grad(run, has_aux=True)(parameters)
        updates, state = optimizer.update(slopes, state, parameters)
        return optax.apply_updates(parameters, updates), after, state, value

    return step_of_both, (parameters, kept, optimizer.init(parameters), *inputs)


@program("haiku/mlp", "dm-haiku.readthedocs.io: README, an MLP of digits")
def mlp():
    def loss(x, labels):
        layers = [hk.Flatten(), hk.Linear(300), jax.nn.relu, hk.Linear(100), jax.nn.relu, hk.Linear(10)]
        return _cross_entropy(hk.Sequential(layers)(x), labels)

    return _trained(loss, optax.adam(1e-3), drawn(32, 28, 28, 1), whole(10, 32))


@program("haiku/lstm", "dm-haiku.readthedocs.io: dynamic_unroll of an LSTM, examples/rnn")
def lstm():
    def loss(tokens):
        core = hk.DeepRNN([hk.Embed(50, 32), hk.LSTM(64), jax.nn.relu, hk.LSTM(64), hk.Linear(50)])
        logits, _ = hk.dynamic_unroll(core, tokens[:-1], core.initial_state(tokens.shape[1]))
        return _cross_entropy(logits, tokens[1:])

    return _trained(loss, optax.adam(1e-3), whole(50, 40, 8))


@program("haiku/transformer", "dm-haiku examples: transformer")
def transformer():
    def loss(tokens):
        x = hk.Embed(97, 64)(tokens) + hk.get_parameter("places", (32, 64), init=hk.initializers.TruncatedNormal(0.02))
        mask = jnp.tril(jnp.ones((1, 1, 32, 32)))
        scale = hk.initializers.VarianceScaling(0.5)
        norm = lambda own: hk.LayerNorm(-1, create_scale=True, create_offset=True)(own)  # noqa: E731
        for _ in range(2):
            near = norm(x)
            x = x + hk.MultiHeadAttention(4, 16, w_init=scale, model_size=64)(near, near, near, mask=mask)
            x = x + hk.Sequential([hk.Linear(256), jax.nn.gelu, hk.Linear(64)])(norm(x))
        return _cross_entropy(hk.Linear(97)(norm(x))[:, :-1], tokens[:, 1:])

    return _trained(loss, optax.adamw(1e-3), whole(97, 4, 32))


@program("haiku/vae", "dm-haiku examples: vae")
def vae():
    def loss(x):
        flat = x.reshape(len(x), -1)
        hidden = jax.nn.relu(hk.Linear(512)(flat))
        mean, deviation = hk.Linear(10)(hidden), jnp.exp(hk.Linear(10)(hidden))
        z = mean + deviation * jax.random.normal(hk.next_rng_key(), mean.shape)
        logits = hk.Linear(784)(jax.nn.relu(hk.Linear(512)(z)))
        likely = (jax.nn.log_sigmoid(logits) * flat + jax.nn.log_sigmoid(-logits) * (1 - flat)).sum(-1)
        kl = 0.5 * (-jnp.log(deviation**2) - 1 + deviation**2 + mean**2).sum(-1)
        return (kl - likely).mean()

    return _trained(loss, optax.adam(1e-3), uniform(32, 28, 28, 1))


@program("haiku/resnet18", "dm-haiku.readthedocs.io: hk.nets.ResNet18")
def resnet18():
    def loss(x, labels):
        return _cross_entropy(hk.nets.ResNet18(10, resnet_v2=True)(x, is_training=True), labels)

    return _trained(loss, optax.sgd(0.1, 0.9), drawn(2, 64, 64, 3), whole(10, 2), stateful=True)


@program("haiku/vector_quantizer", "dm-haiku examples: VQ-VAE, hk.nets.VectorQuantizerEMA")
def vector_quantizer():
    def loss(x):
        encoded = hk.Sequential([hk.Conv2D(32, 4, 2), jax.nn.relu, hk.Conv2D(16, 3)])(x)
        found = hk.nets.VectorQuantizerEMA(16, 64, 0.25, 0.99)(encoded, is_training=True)
        decoded = hk.Conv2DTranspose(3, 4, 2)(jax.nn.relu(hk.Conv2D(32, 3)(found["quantize"])))
        return ((decoded - x) ** 2).mean() + found["loss"]

    return _trained(loss, optax.adam(1e-3), drawn(4, 16, 16, 3), stateful=True)
