"""Kernels of the NPBench suite: traced, their gradients, and some as graphs by hand, beside plain JAX."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np

import codelet as cl
from benchmarks.harness import Comparison, Measurement, Row, benchmark, mean_row
from benchmarks.npbench_graphs import GRAPHS
from benchmarks.npbench_kernels import KERNELS, Kernel
from benchmarks.traced_ways import WAYS, Function, compare_way, shapes_of

BAR_FROM_SECONDS = 1e-3
"""What is shorter in plain JAX is only reported: what a call costs at all is a large part of it."""

BY_HAND_BAR = 1.1

MEANS = ("", "grad_of_traced", "trace_of_grad")
"""The ways whose geometric mean has a row."""


def _joined(*names: str) -> str:
    return "/".join(name for name in names if name)


def compare_kernel(name: str, size: str, way: str) -> Comparison:
    """A traced kernel at one of its sizes, or its gradient in one of the ways, beside plain JAX."""
    kernel = KERNELS[name]
    return compare_way(
        _joined("npbench", name, size),
        kernel.at(size),
        partial(kernel.arguments, size),
        way,
        wrt=kernel.wrt,
        bar_from_seconds=BAR_FROM_SECONDS,
        tolerance=kernel.gradient_tolerance if way else kernel.tolerance,
    )


def compare_graph(name: str, size: str) -> Comparison:
    """A graph that is written by hand beside the kernel in plain JAX."""
    kernel, build = KERNELS[name], GRAPHS[name]
    function = kernel.at(size)

    def held() -> tuple[Any, ...]:
        graph, program, inputs, outputs = build(**kernel.sizes[size])
        return (cl.lower(graph, program, inputs=inputs, outputs=outputs),)

    def ours(lowered: Any, *arguments: Any) -> Any:
        return jax.tree.unflatten(jax.tree.structure(jax.eval_shape(function, *arguments)), lowered.flat(arguments))

    return Comparison(
        _joined("npbench", name, size, "by_hand"),
        ours=jax.jit(ours),
        plain=jax.jit(function),
        arguments=partial(kernel.arguments, size),
        bar=BY_HAND_BAR,
        tolerance=kernel.tolerance,
        ours_held=held,
        bar_from_seconds=BAR_FROM_SECONDS,
    )


def build_row(kernel: Kernel, size: str, rounds: int, name: str) -> Row:
    """How long it takes to trace, lower and compile a kernel, beside plain JAX, in turn in a warm process."""
    shapes = shapes_of(kernel.arguments(size, np.random.default_rng(0)))

    def seconds(make: Callable[[Function], Function]) -> float:
        start = time.perf_counter()
        made = make(kernel.at(size))
        jax.jit(lambda *arguments: made(*arguments)).lower(*shapes).compile()
        return time.perf_counter() - start

    both = (lambda own: cl.trace(own, *shapes), lambda own: own)
    times = [[seconds(make) for make in both] for _ in range(1 + rounds)][1:]
    ours, plain = np.median(times, axis=0).tolist()
    jax.clear_caches()  # hundreds of compiled programs of this kernel, which nothing calls again
    return Row(name, ours, None, ours / plain, None, note=f"to {plain:.3f} s in plain JAX")


@benchmark
def npbench(
    kernels: Sequence[str] = tuple(KERNELS), sizes: Sequence[str] = ("", "odd", "small"), rounds: int = 3
) -> Generator[Comparison | Measurement | Row, Row, None]:
    """Scientific kernels: traced, their gradients in three ways, by hand, the time to build them, and mean ratios.

    The means leave out the small sizes.
    """
    rows: dict[str, list[Row]] = {way: [] for way in WAYS}
    for name in kernels:
        kernel = KERNELS[name]
        for size in sizes:
            for way in WAYS if kernel.wrt else [""]:
                row = yield compare_kernel(name, size, way)
                if size != "small":
                    rows[way].append(row)
            if name in GRAPHS:
                yield compare_graph(name, size)
        yield Measurement(_joined("npbench", name, sizes[0], "build"), partial(build_row, kernel, sizes[0], rounds))
    for way in MEANS:
        yield from mean_row(_joined("npbench/mean", way), rows[way])
