"""Training steps of whole networks: `cl.trace` of a step beside the step itself under `jax.jit`.

The networks are those of `codelet/models/networks.py`, a step is `train_step`: forward, backward and descent with
momentum. Both sides are the same function of the same arguments; ours is traced into a graph of vertices, for the
planned grain or one that is given, and lowered.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Row, benchmark
from codelet.frontends.values import returned
from codelet.models.networks import step_arguments
from codelet.models.training import train_step

FLOAT32_ERROR = 0.5
"""How far apart steps of ResNet-34 and 50 may be, batch 1: in float32 plain JAX's is 0.34 and 0.28 of the largest slope
of a layer away from its own in float64, ours 0.34 and 0.26. Batch norm over the 49 places of the last stage, and
rectifiers near zero, do that. `tests/test_traced_networks.py` holds steps in float64 to 1e-9."""

FLOAT32_ERROR_OF_18 = 0.05
"""The same of ResNet-18: of what it is given here either's step is 0.015 away from plain JAX's in float64."""

COARSE_GRAIN = 100_000
"""Multiply-adds of a vertex, with which little is left to plan."""

FINE_GRAIN = 128
"""Multiply-adds of a vertex, with which AlexNet's step has at least 18.7 million vertices and 115.8 million edges."""


def draw_arguments(network: str, batch: int, random: np.random.Generator) -> tuple[Any, ...]:
    """What a step takes."""
    return step_arguments(network, batch=batch, key=jax.random.key(int(random.integers(2**31))))


def step_of_no_functions(*arguments: Any) -> Any:
    """`train_step` with every jitted function inlined, so that blocks which are repeated are no function."""
    with jax.disable_jit():
        return train_step(*arguments)


def step_types(network: str, batch: int = 1) -> tuple[Any, ...]:
    """The types of what a step takes."""
    return eqx.filter_eval_shape(step_arguments, network, batch=batch, key=jax.random.key(0))


def traced_step(network: str, batch: int, grain: int | None) -> Any:
    """The step of a network as a graph of vertices, of which repeated blocks are one function."""
    return cl.trace(train_step, *step_types(network, batch), grain=grain)


def lowered_vertices(traced: cl.Traced) -> cl.Lowered:
    """The vertices of a traced function, lowered as those of any graph are: a call runs its operations uncut."""
    return cl.lower(traced.graph, traced.program, inputs=traced.flat_inputs, outputs=traced.flat_outputs)


def by_vertices(traced: cl.Traced) -> Callable[..., Any]:
    """A traced function, computed by its vertices."""
    run = lowered_vertices(traced)

    def function(*arguments: Any, **keywords: Any) -> Any:
        results = run.flat([*traced.arrays(*arguments, **keywords).values()])
        made = zip(results, traced.jaxpr.out_avals, strict=True)
        return jax.tree.unflatten(jax.tree.structure(traced.outputs), [returned(own, aval) for own, aval in made])

    return function


def step_comparison(
    name: str, network: str, batch: int, bar: float, *, grain: int | None = None, tolerance: float = 1e-4
) -> Comparison:
    """A traced step beside plain JAX's; nothing is traced before it is called.

    Args:
        name: of the comparison.
        network: by its name in `NETWORKS`.
        batch: how many inputs a step takes.
        bar: as in `Comparison`.
        grain: as `cl.trace` takes it; where it is given, the vertices run.
        tolerance: as in `Comparison`.
    """

    def ours(*arguments: Any) -> Any:
        traced = traced_step(network, batch, grain)
        return (traced if grain is None else by_vertices(traced))(*arguments)

    return Comparison(
        name,
        ours=jax.jit(ours),
        plain=jax.jit(train_step),
        arguments=partial(draw_arguments, network, batch),
        bar=bar,
        tolerance=tolerance,
    )


@benchmark
def alexnet_step(network: str = "alexnet", grain: int = FINE_GRAIN) -> Generator[Comparison | Row, Row, None]:
    """A training step of AlexNet, batch 1: at the planned grain, and as more than 18.7 million vertices."""
    yield step_comparison("alexnet_step", network, 1, 1.0)
    yield step_comparison("alexnet_step/fine", network, 1, 0.9, grain=grain)


@benchmark
def resnet50_step(network: str = "resnet50") -> Generator[Comparison | Row, Row, None]:
    """A training step of ResNet-50, batch 1: repeated blocks are one function."""
    yield step_comparison("resnet50_step", network, 1, 1.0, tolerance=FLOAT32_ERROR)


@benchmark
def resnet18_step(network: str = "resnet18") -> Generator[Comparison | Row, Row, None]:
    """A training step of ResNet-18, batch 1."""
    yield step_comparison("resnet18_step", network, 1, 1.0, tolerance=FLOAT32_ERROR_OF_18)


@benchmark
def resnet34_step(network: str = "resnet34") -> Generator[Comparison | Row, Row, None]:
    """A training step of ResNet-34, batch 1."""
    yield step_comparison("resnet34_step", network, 1, 1.0, tolerance=FLOAT32_ERROR)


@benchmark
def strain_step(network: str = "strain", batch: int = 32) -> Generator[Comparison | Row, Row, None]:
    """A training step of the convolutional network over time series, for one and for a batch."""
    yield step_comparison("strain_step", network, 1, 1.0)
    yield step_comparison(f"strain_step/batch{batch}", network, batch, 1.0)


@benchmark
def mnist_traced_step(network: str = "mnist", batch: int = 32) -> Generator[Comparison | Row, Row, None]:
    """A training step of the network of `codelet mnist`, written in Equinox and traced."""
    yield step_comparison("mnist_traced_step", network, batch, 1.0)
