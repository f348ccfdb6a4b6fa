"""Programs in flax, linen and nnx."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import optax
from flax import nnx

from tests.ecosystem.program import program, uniform, whole


def _trained(model: Any, loss_of: Any, optimizer: Any, *inputs: Any, first: Any = None) -> tuple[Any, tuple[Any, ...]]:
    """A step of training of parameters and the optimizer's state."""
    variables = model.init(jax.random.key(0), *(inputs[:1] if first is None else first))

    def step(variables, state, *inputs):
        loss, slopes = jax.value_and_grad(lambda own: loss_of(own, *inputs))(variables)
        updates, state = optimizer.update(slopes, state, variables)
        return optax.apply_updates(variables, updates), state, loss

    return step, (variables, optimizer.init(variables), *inputs)


def _cross_entropy(logits: Any, labels: Any) -> Any:
    return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()


class _MLP(nn.Module):
    widths: tuple[int, ...] = (128, 64, 10)

    @nn.compact
    def __call__(self, x):
        for k, width in enumerate(self.widths):
            x = nn.Dense(width, name=f"layers_{k}")(x)
            x = nn.relu(x) if k + 1 < len(self.widths) else x
        return x


@program("flax/mlp", "flax.readthedocs.io: Flax Basics, defining your own models")
def mlp():
    model = _MLP()
    loss = lambda own, x, y: ((model.apply(own, x) - y) ** 2).mean()  # noqa: E731
    return _trained(model, loss, optax.sgd(0.1), uniform(32, 784), uniform(32, 10))


class _CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        for width in (32, 64):
            x = nn.avg_pool(nn.relu(nn.Conv(width, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.relu(nn.Dense(256)(x.reshape(x.shape[0], -1)))
        return nn.Dense(10)(x)


@program("flax/cnn", "flax examples: mnist")
def cnn():
    model = _CNN()
    loss = lambda own, x, y: _cross_entropy(model.apply(own, x), y)  # noqa: E731
    return _trained(model, loss, optax.sgd(0.1, 0.9), uniform(16, 28, 28, 1), whole(10, 16))


class _VAE(nn.Module):
    latents: int = 20

    @nn.compact
    def __call__(self, x, key):
        hidden = nn.relu(nn.Dense(500, name="fc1")(x))
        mean, logvar = (
            nn.Dense(self.latents, name="fc2_mean")(hidden),
            nn.Dense(self.latents, name="fc2_logvar")(hidden),
        )
        z = mean + jnp.exp(0.5 * logvar) * jax.random.normal(key, logvar.shape)
        return nn.Dense(784, name="fc4")(nn.relu(nn.Dense(500, name="fc3")(z))), mean, logvar


@program("flax/vae", "flax examples: vae")
def vae():
    model = _VAE()

    def loss(own, x, key):
        logits, mean, logvar = model.apply(own, x, key)
        likely = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1).mean()
        return likely - 0.5 * (1 + logvar - mean**2 - jnp.exp(logvar)).sum(-1).mean()

    return _trained(
        model, loss, optax.adam(1e-3), x := uniform(32, 784), jax.random.key(1), first=(x, jax.random.key(1))
    )


@program("flax/lstm", "flax.readthedocs.io: recurrent layers, nn.RNN")
def lstm():
    class Network(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(nn.RNN(nn.LSTMCell(64))(x)[:, -1])

    model = Network()
    loss = lambda own, x, y: ((model.apply(own, x)[:, 0] - y) ** 2).mean()  # noqa: E731
    return _trained(model, loss, optax.adam(1e-3), uniform(16, 30, 8), uniform(16))


class _Block(nn.Module):
    width: int

    @nn.compact
    def __call__(self, x):
        mask = nn.make_causal_mask(x[..., 0])
        x = x + nn.MultiHeadDotProductAttention(4)(nn.LayerNorm()(x), mask=mask)
        return x + nn.Dense(self.width)(nn.gelu(nn.Dense(4 * self.width)(nn.LayerNorm()(x))))


class _Language(nn.Module):
    width: int = 64
    layers: int = 2
    scanned: bool = False

    @nn.compact
    def __call__(self, tokens):
        embed = nn.Embed(101, self.width)
        x = embed(tokens) + self.param("places", nn.initializers.normal(0.02), (tokens.shape[1], self.width))
        if self.scanned:
            body = nn.remat(lambda block, x, _: (block(x), None))
            x, _ = nn.scan(body, variable_axes={"params": 0}, split_rngs={"params": True}, length=self.layers)(
                _Block(self.width), x, None
            )
        else:
            for _ in range(self.layers):
                x = _Block(self.width)(x)
        return embed.attend(nn.LayerNorm()(x))


def _language(scanned: bool):
    model = _Language(scanned=scanned)
    loss = lambda own, tokens: _cross_entropy(model.apply(own, tokens)[:, :-1], tokens[:, 1:])  # noqa: E731
    return _trained(model, loss, optax.adamw(1e-3), whole(101, 4, 32))


@program("flax/transformer", "flax examples: lm1b, with tied embeddings")
def transformer():
    return _language(scanned=False)


@program("flax/scan_over_layers", "flax.readthedocs.io: nn.scan and nn.remat over layers")
def scan_over_layers():
    return _language(scanned=True)


@program("flax/decode", "flax.readthedocs.io: attention with a cache, decode=True")
def decode():
    model = nn.MultiHeadDotProductAttention(4, qkv_features=32, decode=True)
    x = uniform(2, 16, 32)
    variables = model.init(jax.random.key(0), x)

    def step(parameters, cache, x):
        y, changed = model.apply({"params": parameters, "cache": cache}, x, mutable=["cache"])
        return y, changed["cache"]

    return step, (variables["params"], variables["cache"], x[:, :1])


@program("flax/batch_norm", "flax.readthedocs.io: batch normalization, and dropout")
def batch_norm():
    class Network(nn.Module):
        @nn.compact
        def __call__(self, x, train: bool):
            x = nn.relu(nn.BatchNorm(use_running_average=not train)(nn.Dense(64)(x)))
            return nn.Dense(10)(nn.Dropout(0.5, deterministic=not train)(x))

    model, x = Network(), uniform(32, 40)
    variables, optimizer = model.init(jax.random.key(0), x, train=False), optax.adam(1e-3)

    def step(parameters, statistics, state, x, labels, key):
        def loss(own):
            logits, changed = model.apply(
                {"params": own, "batch_stats": statistics}, x, True, rngs={"dropout": key}, mutable=["batch_stats"]
            )
            return _cross_entropy(logits, labels), changed["batch_stats"]

        (value, statistics_), slopes = jax.value_and_grad(loss, has_aux=True)(parameters)
        updates, state = optimizer.update(slopes, state)
        return optax.apply_updates(parameters, updates), statistics_, state, value

    parameters = variables["params"]
    given = parameters, variables["batch_stats"], optimizer.init(parameters), x, whole(10, 32), jax.random.key(2)
    return step, given


@program("flax/ensemble", "flax.readthedocs.io: ensembling on several devices, by jax.vmap")
def ensemble():
    model, optimizer = _MLP((64, 10)), optax.sgd(0.1)
    x = uniform(16, 100)
    variables = jax.vmap(lambda key: model.init(key, x))(jax.random.split(jax.random.key(0), 4))

    @jax.vmap
    def slopes_of(own):
        return jax.grad(lambda own: (model.apply(own, x) ** 2).mean())(own)

    def step(variables, state):
        updates, state = optimizer.update(slopes_of(variables), state)
        return optax.apply_updates(variables, updates), state

    return step, (variables, optimizer.init(variables))


def _nnx(model: Any, loss_of: Any, *inputs: Any) -> tuple[Any, tuple[Any, ...]]:
    graph, parameters = nnx.split(model)
    optimizer = optax.adam(1e-3)

    def step(parameters, state, *inputs):
        loss, slopes = jax.value_and_grad(lambda own: loss_of(nnx.merge(graph, own), *inputs))(parameters)
        updates, state = optimizer.update(slopes, state, parameters)
        return optax.apply_updates(parameters, updates), state, loss

    return step, (parameters, optimizer.init(parameters), *inputs)


@program("flax/nnx_mlp", "flax.readthedocs.io: NNX basics, the functional API")
def nnx_mlp():
    rngs = nnx.Rngs(0)
    model = nnx.Sequential(nnx.Linear(40, 64, rngs=rngs), nnx.relu, nnx.Linear(64, 3, rngs=rngs))
    return _nnx(model, lambda own, x, y: ((own(x) - y) ** 2).mean(), uniform(32, 40), uniform(32, 3))


@program("flax/nnx_cnn", "flax.readthedocs.io: MNIST tutorial of NNX")
def nnx_cnn():
    class Network(nnx.Module):
        def __init__(self, rngs):
            self.one, self.two = nnx.Conv(1, 32, (3, 3), rngs=rngs), nnx.Conv(32, 64, (3, 3), rngs=rngs)
            self.wide, self.last = nnx.Linear(3136, 256, rngs=rngs), nnx.Linear(256, 10, rngs=rngs)

        def __call__(self, x):
            for layer in (self.one, self.two):
                x = nnx.avg_pool(nnx.relu(layer(x)), (2, 2), (2, 2))
            return self.last(nnx.relu(self.wide(x.reshape(x.shape[0], -1))))

    loss = lambda own, x, y: _cross_entropy(own(x), y)  # noqa: E731
    return _nnx(Network(nnx.Rngs(0)), loss, uniform(16, 28, 28, 1), whole(10, 16))
