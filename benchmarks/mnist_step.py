"""One training step of the main job: forward, backward and Adam."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import Any

import jax
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark
from codelet.models.mnist import SIZES, init_parameters, network
from ipu_backend.jobs.mnist import make_optimizer, make_step, plain_network, slope_of


def training_arguments(optimizer: Any, batch: int, random: np.random.Generator) -> tuple[Any, ...]:
    """What a step of `make_step` takes: layers, the optimiser's state, images and labels."""
    layers = init_parameters(jax.random.key(0))
    images = random.random((batch, SIZES[0]), np.float32)
    labels = random.integers(0, SIZES[-1], batch, np.int32)
    return layers, optimizer.init(layers), images, labels


@benchmark
def mnist_step(batch: int = 32, large_batch: int = 100) -> Generator[Comparison | Row, Row, None]:
    """A training step of `codelet mnist`, on batches of 32 (211,776 vertices) and 100 (661,800)."""
    optimizer = make_optimizer(1000)

    def comparison(name: str, size: int) -> Comparison:
        return Comparison(
            name,
            ours=make_step(slope_of(cl.lower(network)), optimizer),
            plain=make_step(slope_of(plain_network), optimizer),
            arguments=partial(training_arguments, optimizer, size),
            bar=1.2,
            # Adam's first step divides each slope by its own size, and its rounding with it.
            tolerance=1e-4,
        )

    yield comparison("mnist_step", batch)
    yield comparison(f"mnist_step/batch{large_batch}", large_batch)
