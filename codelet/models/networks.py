"""The networks by name, each with the arguments of its training step: plain JAX, for whatever takes JAX functions.

In comes a name, a batch and a key; out come the arguments of `train_step`. Nothing of a network is drawn until it
is asked for, and under `equinox.filter_eval_shape` nothing is drawn at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax

from codelet.models import alexnet, resnet, strain
from codelet.models.mnist import SIZES
from codelet.models.training import Training, start


@dataclass(frozen=True)
class Network:
    """A network and its training data.

    Attributes:
        make: from a random key to the network and its state, None without one.
        shape: of one input, float32.
        classes: how many logits it gives.
        rate: a rate at which its loss falls step by step on a batch of one.
    """

    make: Callable[[jax.Array], tuple[Any, Any]]
    shape: tuple[int, ...]
    classes: int
    rate: float


def mnist(key: jax.Array) -> tuple[eqx.nn.MLP, None]:
    """The fully connected network of `codelet.models.mnist` as a user of Equinox writes it."""
    inputs, hidden, classes = SIZES
    return eqx.nn.MLP(inputs, classes, hidden, 1, key=key), None


_PICTURE = (resnet.CHANNELS, resnet.SIDE, resnet.SIDE)

NETWORKS = {
    "mnist": Network(mnist, SIZES[:1], SIZES[-1], 0.01),
    "alexnet": Network(
        lambda key: (alexnet.AlexNet(key=key), None),
        (alexnet.CHANNELS, alexnet.SIDE, alexnet.SIDE),
        alexnet.CLASSES,
        0.01,
    ),
    "resnet18": Network(resnet.resnet18, _PICTURE, resnet.CLASSES, 0.001),
    "resnet34": Network(resnet.resnet34, _PICTURE, resnet.CLASSES, 0.001),
    "resnet50": Network(resnet.resnet50, _PICTURE, resnet.CLASSES, 0.001),
    "strain": Network(lambda key: (strain.StrainNet(key=key), None), (strain.SAMPLES,), 2, 0.01),
}


def step_arguments(name: str, *, batch: int = 1, key: jax.Array) -> tuple[Training, jax.Array, jax.Array]:
    """The arguments of `train_step` for a network: it at rest, inputs of unit variance and their labels, at random.

    Args:
        name: of a network of `NETWORKS`.
        batch: how many inputs.
        key: a JAX random key.

    Raises:
        KeyError: a name that is not there.

    >>> training, pictures, labels = eqx.filter_eval_shape(step_arguments, "resnet50", batch=4, key=jax.random.key(0))
    >>> pictures.shape, sum(leaf.size for leaf in jax.tree.leaves(training.parameters))
    ((4, 3, 224, 224), 25557032)
    """
    network = NETWORKS[name]
    made, drawn, labelled = jax.random.split(key, 3)
    inputs = jax.random.normal(drawn, (batch, *network.shape))
    return start(*network.make(made)), inputs, jax.random.randint(labelled, (batch,), 0, network.classes)
