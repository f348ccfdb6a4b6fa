"""Gradients as graphs of networks that were traced: functions called several times, and rules with derivatives."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import codelet as cl
from codelet.models.networks import step_arguments
from codelet.models.resnet import resnet
from codelet.models.training import Training, start, train_step
from codelet.programs.walk import Touched
from codelet.views.sources import source_variables
from ipu_backend.jobs import adjoint
from ipu_backend.jobs.adjoint import network_loss, training_step


def is_that_of_jax(
    training: Training, inputs: Any, labels: Any, grain: int | None, *, tiles: int = 8, steps: int = 1
) -> list[float]:
    """A step of training by the adjoint graph beside one by JAX; the losses of that and of those that follow."""
    arguments = training, inputs, labels
    traced = cl.trace(network_loss, *arguments, target=cl.IPU(num_tiles=tiles), grain=grain)
    step = training_step(traced)
    run = jax.jit(cl.lower(step.graph, step.program, inputs=step.inputs, outputs=step.outputs))
    names = [source_variables(own.source)[0].name for own in step.inputs]
    values = dict(zip(names, jax.tree.leaves(arguments), strict=True))
    made = run(values)
    loss, after = jax.jit(train_step)(*arguments)
    name_of_loss = source_variables(step.outputs[0].source)[0].name
    assert np.isclose(made[name_of_loss], loss, 1e-4)
    parameters, velocity = jax.tree.leaves(traced.inputs[0].parameters), jax.tree.leaves(traced.inputs[0].velocity)
    for tensors, expected in ((parameters, after.parameters), (velocity, after.velocity)):
        for tensor, value in zip(tensors, jax.tree.leaves(expected), strict=True):
            name, scale = source_variables(tensor.source)[0].name, float(np.abs(value).max())
            np.testing.assert_allclose(made[name], value, 1e-4, 1e-4 * scale, err_msg=name)
            assert np.any(value), name  # velocities are the gradients: not alike for being nothing
    losses = [float(made[name_of_loss])]
    for _ in range(steps - 1):
        made = run({**values, **{name: own for name, own in made.items() if name in values}})
        loss, after = jax.jit(train_step)(after, inputs, labels)
        losses.append(float(made[name_of_loss]))
        assert np.isclose(losses[-1], loss, 1e-3)
    return losses


@pytest.mark.slow
def test_a_residual_network():
    """Two blocks of a shape are one function, called twice; batch norm keeps running statistics."""
    network, state = resnet(jax.random.key(0), (2, 1), bottleneck=False, classes=5, widths=(4, 8))
    random = np.random.default_rng(0)
    pictures, labels = random.normal(size=(2, 3, 32, 32)).astype(np.float32), np.array([1, 4], np.int32)
    is_that_of_jax(start(network, state), pictures, labels, 1 << 16)


@pytest.mark.slow
def test_alexnets_step_is_that_of_jax_and_trains():
    """The whole of it by vertices: forward, backward and update, as `codelet build alexnet --adjoint` counts it."""
    training, pictures, labels = step_arguments("alexnet", batch=2, key=jax.random.key(0))
    losses = is_that_of_jax(training, pictures, labels, None, tiles=1472, steps=4)
    assert losses[0] > losses[1] > losses[2] > losses[3]


def test_parameters_are_updated_as_soon_as_nothing_reads_them(monkeypatch):
    """Each update runs at once after the last that touches what it does, so that gradients are not all held."""
    monkeypatch.setattr(adjoint, "_FEW", 0)
    arguments = jax.eval_shape(lambda: step_arguments("mnist", batch=2, key=jax.random.key(0)))
    traced = cl.trace(network_loss, *arguments, target=cl.IPU(num_tiles=8), grain=1 << 16)
    step = training_step(traced)
    assert isinstance(step.program, cl.Sequence)
    programs, touched = step.program.programs, Touched(is_read=True)
    is_update = ["update/" in "".join(own.lines()) for own in programs]
    assert sum(is_update) == 4
    assert is_update != sorted(is_update)
    for number in np.flatnonzero(is_update).tolist():
        own = touched.of(programs[number])
        before = next(k for k in range(number - 1, -1, -1) if not is_update[k])
        assert own & touched.of(programs[before])
        assert not any(own & touched.of(later) for later in programs[number + 1 :])
