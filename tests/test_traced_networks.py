"""Training steps of whole networks, traced: their losses, and what is trained, are plain JAX's."""

from __future__ import annotations

from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import codelet as cl
from benchmarks.traced_steps import by_vertices
from codelet.models.networks import NETWORKS, step_arguments
from codelet.models.training import train_step

KEY = jax.random.key(0)

pytestmark = pytest.mark.slow


def losses(step: Any, training: Any, inputs: Any, labels: Any, count: int) -> np.ndarray:
    """Those of some steps, one after another."""
    run, found = jax.jit(step), []
    for _ in range(count):
        loss, training = run(training, inputs, labels)
        found.append(float(loss))
    return np.array(found)


def in_float64(name: str, batch: int, side: int) -> Any:
    """What a step takes, in float64 and of smaller pictures."""
    training, inputs, labels = eqx.filter_jit(step_arguments)(name, batch=batch, key=KEY)
    wide = lambda own: own.astype(np.float64) if jnp.issubdtype(own.dtype, jnp.floating) else own  # noqa: E731
    return *jax.tree.map(wide, (training, inputs[:, :, :side, :side])), labels


def test_ten_losses_of_alexnet_at_a_fine_grain():
    arguments = eqx.filter_jit(step_arguments)("alexnet", key=KEY)
    step = partial(train_step, rate=NETWORKS["alexnet"].rate)
    traced = cl.trace(step, *arguments, grain=128)
    assert traced.graph.num_vertices >= 18_700_000
    assert traced.graph.num_edges >= 115_800_000
    ours, cut, plain = (losses(own, *arguments, count=10) for own in (traced, by_vertices(traced), step))
    np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-4)
    np.testing.assert_allclose(cut, plain, rtol=0, atol=1e-4)


def test_ten_losses_of_resnet18():
    """In float64: in float32 plain JAX's own losses of pictures of 224, batch 1, are up to 4e-3 off those."""
    with jax.enable_x64(True):
        arguments = in_float64("resnet18", 2, 64)
        step = partial(train_step, rate=NETWORKS["resnet18"].rate)
        traced = cl.trace(step, *arguments, grain=20_000)
        ours, cut, plain = (losses(own, *arguments, count=10) for own in (traced, by_vertices(traced), step))
        np.testing.assert_allclose(ours, plain, rtol=0, atol=1e-9)
        np.testing.assert_allclose(cut, plain, rtol=0, atol=1e-9)


def test_a_step_of_resnet50():
    """In float64, where batch norm over few places leaves digits enough: the loss, the gradients and the statistics."""
    with jax.enable_x64(True):
        arguments = in_float64("resnet50", 2, 64)
        traced = cl.trace(train_step, *arguments, grain=20_000)
        runs = (traced, by_vertices(traced), train_step)
        *ours, (expected, plain) = jax.jit(lambda *own: [run(*own) for run in runs])(*arguments)
        for loss, made in ours:
            assert abs(loss - expected) < 1e-12
            for own, like in zip(jax.tree.leaves(made), jax.tree.leaves(plain), strict=True):
                assert abs(own - like).max() <= 1e-9 * abs(like).max()
