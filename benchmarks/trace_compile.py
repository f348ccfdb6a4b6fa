"""What tracing a training step into a graph and compiling that costs, beside compiling the step itself."""

from __future__ import annotations

import time
from collections.abc import Generator

import equinox as eqx
import jax
import numpy as np

from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.traced_steps import FINE_GRAIN, traced_step
from codelet.models.networks import step_arguments
from codelet.models.training import train_step

LIMIT_SECONDS = 20.0


def seconds_to_compile_traced(network: str, grain: int | None) -> tuple[float, float]:
    """From a step to its lowered graph, and from there to what XLA made of it."""
    arguments = eqx.filter_eval_shape(step_arguments, network, batch=1, key=jax.random.key(0))
    start = time.perf_counter()
    traced = traced_step(network, 1, grain)
    assert traced.lowered.jaxpr.eqns
    lowered = time.perf_counter()
    jax.jit(lambda *own: traced(*own)).lower(*arguments).compile()
    return lowered - start, time.perf_counter() - lowered


def seconds_to_compile_plain(network: str) -> float:
    """From a step to what XLA made of it."""
    arguments = eqx.filter_eval_shape(step_arguments, network, batch=1, key=jax.random.key(0))
    start = time.perf_counter()
    jax.jit(train_step).lower(*arguments).compile()
    return time.perf_counter() - start


@benchmark
def trace_compile(
    network: str = "resnet50", fine: str = "alexnet", grain: int = FINE_GRAIN, rounds: int = 3
) -> Generator[Comparison | Row, Row, None]:
    """Tracing, lowering and compiling ResNet-50's step, from cold, beside compiling it; and AlexNet's at a fine grain.

    Each time in a process of its own, in turn.
    """
    ours, plain = [], []
    for _ in range(rounds):
        ours.append(in_fresh_process(seconds_to_compile_traced, network, None))
        plain.append(in_fresh_process(seconds_to_compile_plain, network))
    lowered, compiled = np.median(ours, axis=0).tolist()
    beside = float(np.median(plain))
    yield Row("trace_compile", lowered + compiled, beside, (lowered + compiled) / beside, 2.0)
    yield Row("trace_compile/lowered", lowered, None, None, None)
    finely, _ = in_fresh_process(seconds_to_compile_traced, fine, grain)
    yield Row("trace_compile/fine", finely, None, finely / LIMIT_SECONDS, 1.0, f"to {LIMIT_SECONDS:.0f} s")
