"""What tracing a training step into a graph and compiling that costs, beside compiling the step itself."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import NamedTuple

import jax
import numpy as np

import codelet as cl
from benchmarks.fresh import imported, in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.traced_steps import FINE_GRAIN, lowered_vertices, step_of_no_functions, step_types
from codelet.models.training import train_step

LIMIT_SECONDS = 20.0

EARLIER_VERTICES, EARLIER_EDGES = 3.22e6, 6.21e6
"""Of ResNet-50's step, its repeated blocks defined once, in an earlier compiler of graphs for the IPU."""


class Traced(NamedTuple):
    """What tracing a step took and made.

    Attributes:
        traced: seconds from a step to its traced function.
        lowered: seconds from there to the jaxpr of a call, which is of uncut operations.
        compiled: seconds from there to what XLA made of it.
        cut: seconds from the traced function to the graph of its vertices.
        vertices, edges, compute_sets, variables, functions: how many that graph has.
    """

    traced: float
    lowered: float
    compiled: float
    cut: float
    vertices: int
    edges: int
    compute_sets: int
    variables: int
    functions: int

    @property
    def total(self) -> float:
        """Seconds from the step to what XLA made of it."""
        return self.traced + self.lowered + self.compiled


def seconds_to_compile_traced(network: str, grain: int | None, reuse: bool = True) -> Traced:
    """From a step to its jaxpr, to what XLA made of that, and to its vertices. Imports are not counted, nor JAX's."""
    imported()
    arguments = step_types(network)
    times = [time.perf_counter()]
    traced = cl.trace(train_step if reuse else step_of_no_functions, *arguments, grain=grain)
    times.append(time.perf_counter())
    assert traced.lowered.jaxpr.eqns
    times.append(time.perf_counter())
    jax.jit(lambda *own: traced(*own)).lower(*arguments).compile()
    times.append(time.perf_counter())
    graph = traced.graph
    times.append(time.perf_counter())
    counts = (graph.num_vertices, graph.num_edges, len(graph.compute_sets), len(graph.variables), len(graph.functions))
    return Traced._make([*np.diff(times).tolist(), *counts])


def seconds_to_lower_vertices(network: str, grain: int) -> float:
    """From a step to the jaxpr of its vertices."""
    imported()
    arguments = step_types(network)
    start = time.perf_counter()
    assert lowered_vertices(cl.trace(train_step, *arguments, grain=grain)).jaxpr.eqns
    return time.perf_counter() - start


def seconds_to_compile_plain(network: str) -> float:
    """From a step to what XLA made of it."""
    arguments = step_types(network)
    start = time.perf_counter()
    jax.jit(train_step).lower(*arguments).compile()
    return time.perf_counter() - start


def _median(several: list[Traced]) -> Traced:
    times = np.median([own[:4] for own in several], axis=0).tolist()
    return Traced._make([*times, *several[0][4:]])


@benchmark
def trace_compile(
    network: str = "resnet50", fine: str = "alexnet", grain: int = FINE_GRAIN, rounds: int = 3
) -> Generator[Comparison | Row, Row, None]:
    """Tracing, lowering and compiling ResNet-50's step, from cold, beside compiling it; and cutting it into vertices.

    Each time in a process of its own, in turn: of ours, without functions, in plain JAX. AlexNet's step is lowered as
    its vertices are, at a fine grain.
    """
    whole, apart, plain = [], [], []
    for _ in range(rounds):
        whole.append(in_fresh_process(seconds_to_compile_traced, network, None))
        apart.append(in_fresh_process(seconds_to_compile_traced, network, None, False))
        plain.append(in_fresh_process(seconds_to_compile_plain, network))
    beside = float(np.median(plain))
    ours, others = _median(whole), _median(apart)
    yield Row("trace_compile", ours.total, beside, ours.total / beside, 2.0)
    for name in ("traced", "lowered", "compiled", "cut"):
        yield Row(f"trace_compile/{name}", getattr(ours, name), None, None, None)
    yield Row(
        "trace_compile/reuse", ours.total, None, ours.total / others.total, 1.0, f"to {others.total:.1f} s without"
    )
    for what, earlier in (("vertices", EARLIER_VERTICES), ("edges", EARLIER_EDGES)):
        for name, own in ((what, ours), (f"{what}/apart", others)):
            count = getattr(own, what)
            note = f"{count:,} to {earlier / 1e6:.2f} million"
            yield Row(f"trace_compile/{name}", None, None, count / earlier, None, note)
    seconds = in_fresh_process(seconds_to_lower_vertices, fine, grain)
    yield Row("trace_compile/fine", seconds, None, seconds / LIMIT_SECONDS, 1.0, f"to {LIMIT_SECONDS:.0f} s")
