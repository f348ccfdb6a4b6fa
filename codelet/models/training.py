"""One step of training, for any Equinox network: its loss, the gradient, and gradient descent with momentum.

In come the training state (`Training`) and a batch; out come the loss and the state, one step on. The step is a pure
function of arrays alone, so `jax.jit(train_step)` is plain JAX's step, and whatever takes a JAX function takes it
whole.

Source of the descent: Sutskever et al., "On the importance of initialization and momentum in deep learning" (2013),
equations 1 and 2. As in PyTorch, the rate is taken out of the velocity.
"""

from __future__ import annotations

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp

AXIS = "batch"
"""The name of the batch's axis, over which batch norm takes its means."""


class Training(eqx.Module):
    """A network while it is trained. Every leaf is an array: all else lies in `rest`, which is static.

    Attributes:
        parameters: the network's arrays of floats, in its structure, None where it has something else.
        velocity: of the same structure: the gradients so far, each step's weighing less by the momentum.
        state: the running statistics of batch norm (`equinox.nn.State`, or any structure of them), None without.
        rest: the parts of the network that are no arrays of floats: functions, numbers, flags.
    """

    parameters: Any
    velocity: Any
    state: Any
    rest: Any = eqx.field(static=True)

    @property
    def network(self) -> Any:
        """The network with its parameters as they are."""
        return eqx.combine(self.parameters, self.rest)


def start(network: Any, state: Any = None) -> Training:
    """A network before its first step, at rest.

    Args:
        network: an Equinox module for one example: `network(x)` gives logits; with a state, `network(x, state)`
            gives logits and the state one step on.
        state: as `equinox.nn.make_with_state` returns it beside the network, if it has one.
    """
    parameters, rest = eqx.partition(network, eqx.is_inexact_array)
    return Training(parameters, jax.tree.map(jnp.zeros_like, parameters), state, rest)


def cross_entropy(logits: jax.Array, labels: jax.Array) -> jax.Array:
    """The mean of minus the logarithm of the probability that softmax gives each label.

    Args:
        logits: of shape (batch, classes).
        labels: integers of shape (batch,), from 0 to classes - 1.

    >>> print(jnp.round(cross_entropy(jnp.zeros((2, 4)), jnp.array([0, 3])), 4))
    1.3863
    """
    logs = jax.nn.log_softmax(logits)
    return -jnp.mean(jnp.take_along_axis(logs, labels[:, None], axis=1))


def apply(network: Any, state: Any, inputs: jax.Array) -> tuple[jax.Array, Any]:
    """Logits of a batch and the state after it.

    Args:
        network: for one example, as `start` takes it.
        state: its running statistics, or None.
        inputs: of shape (batch, ...).
    """
    if state is None:
        return jax.vmap(network)(inputs), None
    return jax.vmap(network, axis_name=AXIS, in_axes=(0, None), out_axes=(0, None))(inputs, state)


def loss_and_state(parameters: Any, training: Training, inputs: jax.Array, labels: jax.Array) -> tuple[jax.Array, Any]:
    """The loss of a batch and the running statistics after it.

    Args:
        parameters: in place of the trained ones.
        training: the rest of the state, as `start` makes it.
        inputs: of shape (batch, ...), each an input of the network.
        labels: integers of shape (batch,).
    """
    logits, state = apply(eqx.combine(parameters, training.rest), training.state, inputs)
    return cross_entropy(logits, labels), state


def train_step(
    training: Training, inputs: jax.Array, labels: jax.Array, *, rate: float = 0.01, momentum: float = 0.9
) -> tuple[jax.Array, Training]:
    """The loss of a batch, and the network after one step down its gradient.

    Each velocity v and parameter p become v' = momentum v + gradient and p' = p - rate v'.

    Args:
        training: as `start` makes it, or the step before.
        inputs: of shape (batch, ...), each an input of the network.
        labels: integers of shape (batch,).
        rate: of the descent, per step.
        momentum: from 0 to 1.

    >>> digits = start(eqx.nn.Linear(784, 10, key=jax.random.key(0)))
    >>> images, labels = jnp.ones((3, 784)), jnp.array([4, 4, 4])
    >>> step = jax.jit(train_step)
    >>> losses = []
    >>> for _ in range(3):
    ...     loss, digits = step(digits, images, labels)
    ...     losses.append(float(loss))
    >>> losses[0] > losses[1] > losses[2]
    True
    """
    slopes = jax.value_and_grad(loss_and_state, has_aux=True)
    (loss, state), gradient = slopes(training.parameters, training, inputs, labels)
    velocity = jax.tree.map(lambda v, g: momentum * v + g, training.velocity, gradient)
    parameters = jax.tree.map(lambda p, v: p - rate * v, training.parameters, velocity)
    return loss, Training(parameters, velocity, state, training.rest)
