"""Gradients as graphs of networks that were traced: functions called several times, and rules with derivatives."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np

import codelet as cl
from codelet.models.resnet import resnet
from codelet.models.training import Training, start, train_step
from codelet.views.sources import source_variables
from ipu_backend.jobs.adjoint import network_loss, training_step


def is_that_of_jax(training: Training, inputs: Any, labels: Any, grain: int | None) -> None:
    """A step of training by the adjoint graph beside one by JAX."""
    arguments = training, inputs, labels
    traced = cl.trace(network_loss, *arguments, target=cl.IPU(num_tiles=8), grain=grain)
    step = training_step(traced)
    run = cl.lower(step.graph, step.program, inputs=step.inputs, outputs=step.outputs)
    names = [source_variables(own.source)[0].name for own in step.inputs]
    made = run(dict(zip(names, jax.tree.leaves(arguments), strict=True)))
    loss, after = jax.jit(train_step)(*arguments)
    assert np.isclose(made[source_variables(step.outputs[0].source)[0].name], loss, 1e-4)
    parameters, velocity = jax.tree.leaves(traced.inputs[0].parameters), jax.tree.leaves(traced.inputs[0].velocity)
    for tensors, expected in ((parameters, after.parameters), (velocity, after.velocity)):
        for tensor, value in zip(tensors, jax.tree.leaves(expected), strict=True):
            name, scale = source_variables(tensor.source)[0].name, float(np.abs(value).max())
            np.testing.assert_allclose(made[name], value, 1e-4, 1e-4 * scale, err_msg=name)


def test_a_residual_network():
    """Two blocks of a shape are one function, called twice; batch norm keeps running statistics."""
    network, state = resnet(jax.random.key(0), (2, 1), bottleneck=False, classes=5, widths=(4, 8))
    random = np.random.default_rng(0)
    pictures, labels = random.normal(size=(2, 3, 32, 32)).astype(np.float32), np.array([1, 4], np.int32)
    is_that_of_jax(start(network, state), pictures, labels, 1 << 16)
