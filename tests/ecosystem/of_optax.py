"""Programs in optax."""

# pyright: reportMissingImports=false

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import optax

from tests.ecosystem.program import drawn, program, whole


def _squares(parameters: Any, x: Any, y: Any) -> Any:
    return ((x @ parameters["w"] + parameters["b"] - y) ** 2).mean()


LINEAR = {"w": drawn(12, 3), "b": drawn(3)}


def _step(optimizer: Any, loss: Any = _squares, parameters: Any = LINEAR, *inputs: Any) -> Any:
    inputs = inputs or (drawn(64, 12), drawn(64, 3))

    def step(parameters, state, *inputs):
        value, slopes = jax.value_and_grad(loss)(parameters, *inputs)
        updates, state = optimizer.update(slopes, state, parameters)
        return optax.apply_updates(parameters, updates), state, value

    return step, (parameters, optimizer.init(parameters), *inputs)


@program("optax/quick", "optax.readthedocs.io: getting started, Adam")
def quick():
    return _step(optax.adam(1e-2))


@program("optax/schedule", "optax.readthedocs.io: chains, clipping and schedules")
def schedule():
    rate = optax.warmup_cosine_decay_schedule(0.0, 0.1, 5, 50)
    return _step(optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate, weight_decay=1e-3)))


@program("optax/accumulation", "optax.readthedocs.io: gradient accumulation, MultiSteps")
def accumulation():
    return _step(optax.MultiSteps(optax.adam(1e-2), every_k_schedule=3))


@program("optax/masked", "optax.readthedocs.io: multi_transform and masks")
def masked():
    by_name: dict[Any, Any] = {"steep": optax.sgd(0.1, 0.9, nesterov=True), "flat": optax.rmsprop(1e-3)}
    return _step(optax.multi_transform(by_name, {"w": "steep", "b": "flat"}))


@program("optax/lbfgs", "optax.readthedocs.io: L-BFGS with a line search")
def lbfgs():
    solver, x, y = optax.lbfgs(), drawn(64, 12), drawn(64, 3)
    loss = lambda own: _squares(own, x, y)  # noqa: E731

    def step(parameters, state):
        value, slopes = optax.value_and_grad_from_state(loss)(parameters, state=state)
        updates, state = solver.update(slopes, state, parameters, value=value, grad=slopes, value_fn=loss)
        return optax.apply_updates(parameters, updates), state, value

    return step, (LINEAR, solver.init(LINEAR))


@program("optax/adversarial", "optax.readthedocs.io: adversarial training")
def adversarial():
    def loss(own, x, y):
        hidden = jax.nn.relu(x @ own["w"] + own["b"])
        return optax.softmax_cross_entropy_with_integer_labels(hidden, y).mean()

    def attacked(own, x, y):
        def turn(moved, _):
            return moved + 0.01 * jnp.sign(jax.grad(loss, 1)(own, moved, y)), None

        moved, _ = jax.lax.scan(turn, x, length=5)
        return loss(own, moved, y)

    labels = whole(3, 64)
    return _step(optax.adam(1e-3), attacked, LINEAR, drawn(64, 12), labels)


@program("optax/meta_learning", "optax.readthedocs.io: meta-learning, through steps of training")
def meta_learning():
    inner = optax.sgd(0.05)

    def loss(own, x, y):
        def turn(carry, _):
            weights, state = carry
            updates, state = inner.update(jax.grad(_squares)(weights, x, y), state)
            return (optax.apply_updates(weights, updates), state), None

        (weights, _), _ = jax.lax.scan(turn, (own, inner.init(own)), length=4)
        return _squares(weights, x, y)

    return _step(optax.adam(1e-2), loss)


@program("optax/ctc", "optax.readthedocs.io: losses, CTC")
def ctc():
    labels = 1 + whole(8, 4, 6)

    def loss(own, x):
        return optax.ctc_loss(x @ own, jnp.zeros(x.shape[:2]), labels, jnp.zeros(labels.shape)).mean()

    return _step(optax.adam(1e-3), loss, drawn(16, 10), drawn(4, 20, 16))


@program("optax/sharpness_aware", "optax.readthedocs.io: contrib, sharpness-aware minimisation")
def sharpness_aware():
    optimizer = optax.contrib.sam(
        optax.sgd(0.1), optax.chain(optax.contrib.normalize(), optax.sgd(0.05)), sync_period=2
    )
    return _step(optimizer)


@program("optax/private", "optax.readthedocs.io: differentially private aggregation")
def private():
    optimizer = optax.contrib.dpsgd(0.1, 1.0, 0.5, 7)
    x, y = drawn(32, 12), drawn(32, 3)

    def step(parameters, state, x, y):
        slopes = jax.vmap(jax.grad(_squares), (None, 0, 0))(parameters, x[:, None], y[:, None])
        updates, state = optimizer.update(slopes, state, parameters)
        return optax.apply_updates(parameters, updates), state

    return step, (LINEAR, optimizer.init(LINEAR), x, y)
