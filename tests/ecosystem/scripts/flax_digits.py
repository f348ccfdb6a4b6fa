"""A convolutional network in Flax, trained with its own `TrainState`: accuracy is measured along."""

# pyright: reportMissingImports=false

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.training.train_state import TrainState


class CNN(nn.Module):
    @nn.compact
    def __call__(self, x):
        x = nn.max_pool(nn.relu(nn.Conv(8, (3, 3))(x)), (2, 2), (2, 2))
        x = nn.max_pool(nn.relu(nn.Conv(16, (3, 3))(x)), (2, 2), (2, 2))
        return nn.Dense(4)(nn.relu(nn.Dense(32)(x.reshape(len(x), -1))))


def spots(count, seed):
    """Pictures of one bright spot, and the quarter that it is in."""
    random = np.random.default_rng(seed)
    places = random.integers(2, 14, (count, 2))
    images = 0.1 * random.standard_normal((count, 16, 16, 1)).astype(np.float32)
    for image, (row, column) in zip(images, places, strict=True):
        image[row - 2 : row + 2, column - 2 : column + 2] += 1
    return images, (2 * (places[:, 0] >= 8) + (places[:, 1] >= 8)).astype(np.int32)


@jax.jit
def train_step(state, images, labels):
    def loss_of(params):
        logits = state.apply_fn({"params": params}, images)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean(), logits

    (loss, logits), grads = jax.value_and_grad(loss_of, has_aux=True)(state.params)
    return state.apply_gradients(grads=grads), {"loss": loss, "accuracy": (logits.argmax(-1) == labels).mean()}


@jax.jit
def predict(state, images):
    return state.apply_fn({"params": state.params}, images).argmax(-1)


def main():
    model = CNN()
    variables = model.init(jax.random.key(0), jnp.ones((1, 16, 16, 1)))
    state = TrainState.create(apply_fn=model.apply, params=variables["params"], tx=optax.adam(3e-3))
    images, labels = spots(256, 0)
    found = []
    for step in range(24):
        part = slice(32 * (step % 8), 32 * (step % 8) + 32)
        state, metrics = train_step(state, images[part], labels[part])
        found.append(float(metrics["loss"]))
    unseen, expected = spots(64, 1)
    found.append(float((predict(state, unseen) == expected).mean()))
    return found
