"""Fifty steps of training: the losses of plain JAX, in double precision, and no further from these in single."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import codelet as cl
from tests.ecosystem.program import is_there, programs_of

STEPS = 50

MODELS = [
    "flax/mlp",
    "flax/cnn",
    "flax/vae",
    "flax/transformer",
    "flax/scan_over_layers",
    "haiku/mlp",
    "haiku/lstm",
    "haiku/transformer",
    "haiku/vae",
    "optax/schedule",
    "diffrax/neural_ode",
]
"""Steps from parameters, the optimizer's state and a batch to the first two, and the loss."""


def losses(step: Any, parameters: Any, state: Any, *batch: Any) -> np.ndarray:
    """Those of all steps, one after another."""
    found = []
    for _ in range(STEPS):
        parameters, state, loss = step(parameters, state, *batch)
        found.append(loss)
    return np.asarray(found)


def in_double(given: Any) -> Any:
    """Arguments with twice the bits, of the same numbers."""
    widened = lambda own: np.asarray(own, np.float64) if own.dtype == np.float32 else own  # noqa: E731
    return jax.tree.map(widened, given)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", [name for name in MODELS if is_there(name.partition("/")[0])])
def test_losses(name):
    (program,) = (own for own in programs_of(name.partition("/")[0]) if own.name == name)
    step, given = program.make()
    with jax.enable_x64(True):
        wide = in_double(given)
        exact = losses(jax.jit(step), *wide)
        assert exact.dtype == np.float64
        np.testing.assert_allclose(losses(jax.jit(cl.trace(step, *wide)), *wide), exact, rtol=1e-8)
    plain, ours = losses(jax.jit(step), *given), losses(jax.jit(cl.trace(step, *given)), *given)
    assert np.abs(ours - exact).max() <= 3 * np.abs(plain - exact).max()
    assert exact[-1] < exact[0]
