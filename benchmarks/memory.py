"""The memory of either side of a comparison: at its peak, each in a process of its own, and as XLA plans it.

The process imports what both need, makes the arguments, compiles one side and runs it a few times. Nothing
is subtracted: interpreter, JAX and arguments are in the figure, as they are in that of whoever runs it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import jax
import numpy as np

from benchmarks.every import BENCHMARKS
from benchmarks.fresh import in_fresh_process, peak_bytes
from benchmarks.harness import Comparison, Row

PEAK_BAR = 1.25

RUNS = 3


def find_comparison(name: str, row_name: str, sizes: dict[str, Any]) -> Comparison:
    """One comparison of a benchmark, with nothing measured on the way there."""
    made = BENCHMARKS[name](**sizes)
    step = next(made)
    while step.name != row_name:
        step = made.send(Row(step.name, 1.0, 1.0, 1.0, None))
    assert isinstance(step, Comparison)
    return step


def peak_of_side(name: str, row_name: str, which: str, sizes: dict[str, Any]) -> int:
    """The peak memory of this process, in bytes, once it has run one side of a comparison."""
    comparison = find_comparison(name, row_name, sizes)
    arguments = jax.device_put(comparison.arguments(np.random.default_rng(0)))
    side = comparison.side(which)
    for _ in range(RUNS):
        jax.block_until_ready(side(*arguments))
    return peak_bytes()


def with_peaks(name: str, row: Row, **sizes: Any) -> Row:
    """A row of benchmark `name` with the peak memory of both sides; as it is where there are no two sides."""
    if row.plain_jax_seconds is None:
        return row
    ours, plain = (1e-6 * in_fresh_process(peak_of_side, name, row.name, which, sizes) for which in ("ours", "plain"))
    return replace(
        row,
        ours_peak_mb=ours,
        plain_jax_peak_mb=plain,
        peak_ratio=ours / plain,
        peak_bar=None if row.bar is None else PEAK_BAR,
    )


def temporaries(comparison: Comparison) -> tuple[int, int]:
    """The bytes that compiled programs hold beside what they are given and give: ours, and plain JAX's."""
    arguments = comparison.arguments(np.random.default_rng(0))

    def of(side: Any, held: tuple[Any, ...]) -> int:
        return side.lower(*held, *arguments).compile().memory_analysis().temp_size_in_bytes

    return of(comparison.ours, comparison.ours_held()), of(comparison.plain, comparison.plain_held())
