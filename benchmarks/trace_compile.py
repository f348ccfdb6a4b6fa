"""What tracing a training step into a graph and compiling that costs, beside compiling the step itself."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import NamedTuple

import equinox as eqx
import jax
import numpy as np

from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.traced_steps import FINE_GRAIN, traced_step
from codelet.models.networks import step_arguments
from codelet.models.training import train_step

LIMIT_SECONDS = 20.0

COARSE_GRAIN = 100_000
"""Multiply-adds of a vertex, with which nothing is left to plan."""

EARLIER_VERTICES, EARLIER_EDGES = 3.22e6, 6.21e6
"""Of ResNet-50's step, its repeated blocks defined once, in an earlier compiler of graphs for the IPU."""


class Traced(NamedTuple):
    """What tracing a step took and made.

    Attributes:
        traced: seconds from a step to its graph.
        lowered: seconds from there to its jaxpr.
        compiled: seconds from there to what XLA made of it.
        vertices, edges, compute_sets, variables, functions: how many the graph has.
    """

    traced: float
    lowered: float
    compiled: float
    vertices: int
    edges: int
    compute_sets: int
    variables: int
    functions: int

    @property
    def total(self) -> float:
        """Seconds from the step to what XLA made of its graph."""
        return self.traced + self.lowered + self.compiled


def seconds_to_compile_traced(network: str, grain: int | None, reuse: bool = True) -> Traced:
    """From a step to its graph, to its lowered graph, and from there to what XLA made of it."""
    arguments = eqx.filter_eval_shape(step_arguments, network, batch=1, key=jax.random.key(0))
    times = [time.perf_counter()]
    traced = traced_step(network, 1, grain, reuse=reuse)
    times.append(time.perf_counter())
    assert traced.lowered.jaxpr.eqns
    times.append(time.perf_counter())
    jax.jit(lambda *own: traced(*own)).lower(*arguments).compile()
    times.append(time.perf_counter())
    graph = traced.graph
    counts = (graph.num_vertices, graph.num_edges, len(graph.compute_sets), len(graph.variables), len(graph.functions))
    return Traced._make([*np.diff(times).tolist(), *counts])


def seconds_to_compile_plain(network: str) -> float:
    """From a step to what XLA made of it."""
    arguments = eqx.filter_eval_shape(step_arguments, network, batch=1, key=jax.random.key(0))
    start = time.perf_counter()
    jax.jit(train_step).lower(*arguments).compile()
    return time.perf_counter() - start


def _median(several: list[Traced]) -> Traced:
    times = np.median([own[:3] for own in several], axis=0).tolist()
    return Traced._make([*times, *several[0][3:]])


@benchmark
def trace_compile(
    network: str = "resnet50",
    fine: str = "alexnet",
    grain: int = FINE_GRAIN,
    coarse: int = COARSE_GRAIN,
    rounds: int = 3,
) -> Generator[Comparison | Row, Row, None]:
    """Tracing, lowering and compiling ResNet-50's step, from cold, beside compiling it; and AlexNet's at a fine grain.

    Each time in a process of its own, in turn: at the planned grain, at a coarse one, without functions, in plain JAX.
    """
    planned, coarsely, apart, plain = [], [], [], []
    for _ in range(rounds):
        planned.append(in_fresh_process(seconds_to_compile_traced, network, None))
        coarsely.append(in_fresh_process(seconds_to_compile_traced, network, coarse))
        apart.append(in_fresh_process(seconds_to_compile_traced, network, None, False))
        plain.append(in_fresh_process(seconds_to_compile_plain, network))
    beside = float(np.median(plain))
    ours, others = _median(planned), _median(apart)
    yield Row("trace_compile", ours.total, beside, ours.total / beside, 2.0)
    coarse_total = _median(coarsely).total
    yield Row("trace_compile/coarse", coarse_total, beside, coarse_total / beside, 2.0)
    for name in ("traced", "lowered", "compiled"):
        yield Row(f"trace_compile/{name}", getattr(ours, name), None, None, None)
    yield Row(
        "trace_compile/reuse", ours.total, None, ours.total / others.total, 1.0, f"to {others.total:.1f} s without"
    )
    for what, earlier in (("vertices", EARLIER_VERTICES), ("edges", EARLIER_EDGES)):
        for name, own in ((what, ours), (f"{what}/apart", others)):
            count = getattr(own, what)
            note = f"{count:,} to {earlier / 1e6:.2f} million"
            yield Row(f"trace_compile/{name}", None, None, count / earlier, None, note)
    finely = in_fresh_process(seconds_to_compile_traced, fine, grain)
    seconds = finely.traced + finely.lowered
    yield Row("trace_compile/fine", seconds, None, seconds / LIMIT_SECONDS, 1.0, f"to {LIMIT_SECONDS:.0f} s")
