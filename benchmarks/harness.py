"""How benchmarks are written, and how they are timed.

A benchmark is a function under the decorator `benchmark` that yields comparisons: ours, plain JAX, their
arguments, and the bar that the ratio of their times must keep. Out comes a row for each. Before it is
timed, the two must agree. Then they take turns in one process; see `ipu_backend/jobs/timing.py`.

`row = yield comparison` gives a benchmark the row that was measured, for a mean over several, say. One that
measures by itself (how fast a graph is built, what a compilation costs) yields rows of its own, or `Measurement`s,
which are made only where they are chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from ipu_backend.jobs.timing import time_in_turn


@dataclass(frozen=True)
class Comparison:
    """Two functions that compute the same.

    What they take is made when it is needed, and in the process that needs it, so that a comparison costs
    nothing until it is run, and a process that runs one side holds nothing of the other.

    Attributes:
        name: the benchmark's, and `/variant` behind it unless it is the chief one.
        ours: jitted, as whoever calls it would.
        plain: the best plain JAX, jitted.
        arguments: makes the arguments of both.
        bar: what the ratio of ours to plain JAX may be at most; None where there is only a report.
        tolerance: how far results may be apart, as a part of the largest number in the array; integers
            must be equal.
        ours_held: makes what ours takes before the arguments and has no gradient: a lowered graph, its
            tables with it.
        plain_held: the same for plain JAX: its tables.
        note: what stands in the place of plain JAX, where it is something else.
        bar_from_seconds: the bar is kept only where plain JAX takes as long as this; below there is only a report.
    """

    name: str
    ours: Callable[..., Any]
    plain: Callable[..., Any]
    arguments: Callable[[np.random.Generator], tuple[Any, ...]]
    bar: float | None = None
    tolerance: float = 1e-5
    ours_held: Callable[[], tuple[Any, ...]] = tuple
    plain_held: Callable[[], tuple[Any, ...]] = tuple
    note: str = ""
    bar_from_seconds: float = 0.0

    def side(self, which: str) -> Callable[..., Any]:
        """`ours` or `plain`, with what it holds already given to it: a function of the arguments."""
        function, held = (self.ours, self.ours_held) if which == "ours" else (self.plain, self.plain_held)
        return partial(function, *jax.device_put(held()))


@dataclass(frozen=True)
class Row:
    """What was measured.

    Attributes:
        name: as in `Comparison`.
        ours_seconds: the median; None in a row that sums up others.
        plain_jax_seconds: the median; None where there is no plain JAX beside it.
        ratio: of the two; without plain JAX, of ours to what `note` says.
        bar: what the ratio may be at most; None where there is only a report.
        note: what the ratio is, where it is not of ours to plain JAX.
        ours_peak_mb, plain_jax_peak_mb, peak_ratio, peak_bar: the peak memory of a process that runs one
            side, in 10^6 bytes, where that was asked for; see `benchmarks/memory.py`.
    """

    name: str
    ours_seconds: float | None
    plain_jax_seconds: float | None
    ratio: float | None
    bar: float | None
    note: str = ""
    ours_peak_mb: float | None = None
    plain_jax_peak_mb: float | None = None
    peak_ratio: float | None = None
    peak_bar: float | None = None

    @property
    def is_missed(self) -> bool:
        """Whether there is a bar and the ratio is above it, of times or of memory."""
        pairs = [(self.ratio, self.bar), (self.peak_ratio, self.peak_bar)]
        return any(ratio is not None and bar is not None and ratio > bar for ratio, bar in pairs)

    def as_json(self) -> dict[str, Any]:
        """What `--json` prints."""
        return asdict(self)

    def __str__(self) -> str:
        number = lambda x: f"{'':>6}" if x is None else f"{x:6.2f}"  # noqa: E731
        megabytes = lambda x: f"{x:8.0f} MB"  # noqa: E731
        words = [
            f"{self.name:28}{_time_text(self.ours_seconds)} {_time_text(self.plain_jax_seconds)}",
            number(self.ratio),
            number(self.bar),
        ]
        if self.ours_peak_mb is not None:
            words += [megabytes(self.ours_peak_mb), megabytes(self.plain_jax_peak_mb)]
            words += [number(self.peak_ratio), number(self.peak_bar)]
        words += [self.note] * bool(self.note) + ["missed"] * self.is_missed
        return " ".join(words).rstrip()


@dataclass(frozen=True)
class Measurement:
    """A row that a benchmark measures by itself.

    Attributes:
        name: of the row.
        measure: makes the row of its name; it is called only where the row is chosen.
    """

    name: str
    measure: Callable[[str], Row]


def _time_text(seconds: float | None) -> str:
    if seconds is None:
        return " " * 13
    return f"{1e3 * seconds:10.3f} ms" if seconds >= 1e-4 else f"{1e6 * seconds:10.3f} us"


HEADER = f"{'benchmark':28}{'ours':>13} {'plain JAX':>13} {'ratio':>6} {'bar':>6}"
PEAK_HEADER = f" {'peak, ours':>11} {'plain JAX':>11} {'ratio':>6} {'bar':>6}"

Benchmark = Callable[..., Generator[Comparison | Measurement | Row, Row, None]]

BENCHMARKS: dict[str, Benchmark] = {}

MOST_SECONDS = 20.0
"""After which a comparison has no more rounds, though there be fewer than were asked for: one side is very slow."""


def benchmark(function: Benchmark) -> Benchmark:
    """Enter a benchmark under its function's name. Its arguments are sizes, all with defaults."""
    BENCHMARKS[function.__name__] = function
    return function


def gradient_of(forward: Comparison, bar: float | None) -> Comparison:
    """The same comparison, for the value and the gradient with respect to all arguments.

    The gradient is pulled back from random cotangents, as ones would let XLA leave out what they multiply.
    """

    def value_and_gradient(function: Callable[..., Any]) -> Callable[..., Any]:
        def run(held: Any, cotangents: Any, *arguments: Any) -> Any:
            value, pull_back = jax.vjp(partial(function, *held), *arguments)
            return value, pull_back(cotangents)

        return jax.jit(run)

    def arguments(random: np.random.Generator) -> tuple[Any, ...]:
        own = forward.arguments(random)
        draw = lambda kind: random.standard_normal(kind.shape, kind.dtype)  # noqa: E731
        return jax.tree.map(draw, jax.eval_shape(forward.plain, *forward.plain_held(), *own)), *own

    return replace(
        forward,
        name=f"{forward.name}/gradient",
        ours=value_and_gradient(forward.ours),
        plain=value_and_gradient(forward.plain),
        arguments=arguments,
        bar=bar,
        ours_held=lambda: (forward.ours_held(),),
        plain_held=lambda: (forward.plain_held(),),
    )


def mean_row(name: str, rows: Sequence[Row], bar: float | None = 1.0) -> Iterator[Row]:
    """The geometric mean of the ratios of rows that were measured; no row where none was."""
    ratios = [row.ratio for row in rows if row.ratio is not None]
    if ratios:
        mean = float(np.exp(np.mean(np.log(ratios))))
        yield Row(name, None, None, mean, bar, note=f"the geometric mean of {len(ratios)} ratios")


# --- measuring ----------------------------------------------------------------------------------------


class ValuesDiffer(AssertionError):
    """Ours and plain JAX do not compute the same: their times say nothing."""


def _plain(tree: Any) -> Any:
    """A pytree with plain tuples and dicts in the place of named tuples and of results by name."""
    if isinstance(tree, dict):
        return {key: _plain(value) for key, value in tree.items()}
    if isinstance(tree, (tuple, list)):
        return (tuple if isinstance(tree, tuple) else list)(map(_plain, tree))
    return tree


def check_same(name: str, ours: Any, plain: Any, tolerance: float) -> None:
    """See that two results are the same pytree of the same arrays.

    Raises:
        ValuesDiffer: they are not.
    """
    ours_leaves, ours_tree = jax.tree.flatten(_plain(ours))
    plain_leaves, plain_tree = jax.tree.flatten(_plain(plain))
    if ours_tree != plain_tree:
        raise ValuesDiffer(f"{name}: ours returns {ours_tree}, plain JAX {plain_tree}")
    for a, b in zip(ours_leaves, plain_leaves, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            raise ValuesDiffer(f"{name}: ours returns {a.dtype}{a.shape}, plain JAX {b.dtype}{b.shape}")
        if not a.size:
            continue
        # By NumPy: JAX compiles every operation for every shape.
        a, b = np.asarray(a), np.asarray(b)
        exact = not jnp.issubdtype(a.dtype, jnp.inexact)
        apart, largest = float(np.abs(a - b).max()), float(np.abs(b).max())
        if not (bool((a == b).all()) if exact else apart <= tolerance * largest):
            raise ValuesDiffer(
                f"{name}: results are up to {apart:.3g} apart, where the largest is {largest:.3g} and the "
                f"tolerance {0 if exact else tolerance:g} of it"
            )


def compare(comparison: Comparison, repeats: int, seconds: float) -> Row:
    """Check that the two sides agree, and time them."""
    arguments = jax.device_put(comparison.arguments(np.random.default_rng(0)))
    ours, plain = comparison.side("ours"), comparison.side("plain")
    check_same(comparison.name, ours(*arguments), plain(*arguments), comparison.tolerance)
    calls = [lambda: ours(*arguments), lambda: plain(*arguments)]
    times = time_in_turn(calls, repeats=repeats, seconds=seconds, most_seconds=MOST_SECONDS)
    bar = comparison.bar if times[1] >= comparison.bar_from_seconds else None
    return Row(comparison.name, *times, ratio=times[0] / times[1], bar=bar, note=comparison.note)


def measure(name: str, *, repeats: int = 9, seconds: float = 1.0, **sizes: Any) -> Iterator[Row]:
    """The rows of a benchmark, each as soon as it is measured.

    A comparison or a measurement that is not chosen is not run: the benchmark gets a row without figures for it.

    Args:
        name: of the benchmark; or of a row, for that row and those whose names continue it after a `/`.
        repeats: rounds of a comparison, at least.
        seconds: for which rounds of short calls go on.
        sizes: for other sizes than its own.

    Raises:
        ValuesDiffer: ours and plain JAX do not agree.
    """
    own_name, _, variant = name.partition("/")
    made = BENCHMARKS[own_name](**sizes)
    row: Row | None = None
    while True:
        try:
            step = made.send(row)  # type: ignore[arg-type]
        except StopIteration:
            return
        if variant and not f"{step.name}/".startswith(f"{name}/"):
            row = Row(step.name, None, None, None, None)
            continue
        if isinstance(step, Comparison):
            row = compare(step, repeats, seconds)
        else:
            row = step.measure(step.name) if isinstance(step, Measurement) else step
        yield row
