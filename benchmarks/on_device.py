"""`python -m benchmarks --gpu`: what is to be known of a GPU once there is one, in ten minutes, by one command.

In come minutes; out come, one after another, each within its share of them: the rows of the table as ratios of times,
executions on tiles, the job `codelet mnist`, a mesh of one device, and quick tests. Products of float32 are made with
all that float32 has on both sides, since JAX makes them in TF32 on GPUs, whose results are a thousandth apart. It runs
on whatever device JAX has, and so is tried on CPUs.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain, zip_longest

import jax
import numpy as np
from jax.sharding import Mesh

import codelet as cl
from benchmarks.every import BENCHMARKS
from benchmarks.harness import HEADER, Comparison, Row, ValuesDiffer, compare, mean_row
from benchmarks.heat import heat_steps
from benchmarks.moved import UNCOUNTED, comparisons

PRECISION = "highest"
"""Of products of float32: with JAX's default they are made in TF32 on a GPU."""

REPEATS, SECONDS = 5, 0.1
"""Rounds of a comparison, at least, and for how long."""

TESTS = ("tests/test_lowered.py", "tests/test_platforms.py", "tests/test_gradient.py", "tests/test_trace.py")
"""Quick tests that compile and run what is drawn."""


def _by_turns(names: Sequence[str]) -> Iterator[Comparison]:
    """The comparisons of benchmarks, the first of each before the second of any, so that little time sees all kinds."""
    made = [list(comparisons(name)) for name in names]
    return (own for own in chain.from_iterable(zip_longest(*made)) if own is not None and not own.note)


def _rows(names: Sequence[str], end: float) -> bool:
    """Print the rows of benchmarks until the time has come; True if none is above its bar and all values agree."""
    rows: list[Row] = []
    left, failed = 0, 0
    print(HEADER)
    for comparison in _by_turns(names):
        if time.monotonic() > end:
            left += 1
            continue
        try:
            row = compare(comparison, REPEATS, SECONDS)
        except (ValuesDiffer, cl.CodeletError, jax.errors.JaxRuntimeError, NotImplementedError) as error:
            failed += 1
            print(f"{comparison.name:28} failed: {str(error).splitlines()[0]:.120}", flush=True)
            continue
        rows.append(row)
        print(row, flush=True)
    for row in mean_row("mean", rows, None):
        print(row)
    print(f"{len(rows)} rows, {sum(row.is_missed for row in rows)} above the bar, {failed} failed, {left} not reached")
    return not failed and not any(row.is_missed for row in rows)


def _on_tiles() -> bool:
    """A stencil on tiles and fused, which must give the same."""
    u = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    results = []
    for execution in ("fused", "tiles"):
        engine = cl.Engine(*heat_steps(256, 20), execution=execution)
        run = jax.jit(engine.function(inputs=["u"], outputs=["u"]))
        start = time.perf_counter()
        jax.block_until_ready(run({"u": u}))
        compiled = time.perf_counter()
        results.append(np.asarray(run({"u": u})["u"]))
        print(f"{execution}: {1e3 * (time.perf_counter() - compiled):.2f} ms, compiled in {compiled - start:.1f} s")
    return bool(np.allclose(*results, rtol=1e-5, atol=1e-5))


def _mesh_of_one() -> bool:
    """A stencil over a mesh of one device and without one, which must give the same."""
    u = np.random.default_rng(0).standard_normal((256, 256), np.float32)
    graph, program = heat_steps(256, 20)
    mesh = Mesh(np.array(jax.devices()[:1]), ("devices",))
    runs = [cl.lower(graph, program, inputs=["u"], outputs=["u"], mesh=own) for own in (None, mesh)]
    one, other = (np.asarray(jax.jit(run)({"u": u})["u"]) for run in runs)
    print(runs[0].plan.platform, "largest difference", float(np.abs(one - other).max()))
    return bool(np.allclose(one, other, rtol=1e-5, atol=1e-5))


def _process(end: float, *arguments: str) -> bool:
    """Run Python in a process of its own until the time has come; True if it ends well."""
    environment = {
        **os.environ,
        "JAX_DEFAULT_MATMUL_PRECISION": PRECISION,
        # Tests choose the CPU unless something is chosen; a process takes what it needs, since there are several.
        "JAX_PLATFORMS": os.environ.get("JAX_PLATFORMS") or ("cpu" if jax.default_backend() == "cpu" else "cuda,cpu"),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    try:
        done = subprocess.run(
            [sys.executable, *arguments], env=environment, timeout=max(1.0, end - time.monotonic()), check=False
        )
    except subprocess.TimeoutExpired:
        print("stopped: its time is over")
        return False
    return done.returncode == 0


def parts(names: Sequence[str]) -> dict[str, tuple[float, Callable[[float], bool]]]:
    """What is run, by name: its part of the time, and what runs it until a time and says if all is well.

    Args:
        names: of the benchmarks whose rows are timed.
    """
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "0", *TESTS)
    return {
        "executions on tiles": (0.05, lambda end: _on_tiles()),
        "a mesh of one device": (0.05, lambda end: _mesh_of_one()),
        "codelet mnist": (0.1, lambda end: _process(end, "-m", "codelet", "mnist", "--epochs", "1")),
        "quick tests": (0.25, lambda end: _process(end, *tests)),
        "rows of the table": (1.0, lambda end: _rows(names, end)),
    }


def run(minutes: float, names: Sequence[str] = ()) -> int:
    """Run all of it and print what is found; 1 if something is not as it should be.

    Args:
        minutes: in which all of it is to end, but for what is compiling then.
        names: of benchmarks; all that time programs when empty.
    """
    device, begun = jax.devices()[0], time.monotonic()
    end = begun + 60 * minutes
    print(f"jax {jax.__version__} on {device.device_kind} ({device.platform}), {os.cpu_count()} CPU cores")
    chosen = names or [name for name in BENCHMARKS if name not in UNCOUNTED]
    answers: dict[str, bool] = {}
    with jax.default_matmul_precision(PRECISION):
        for name, (share, part) in parts(chosen).items():
            start = time.monotonic()
            print(f"--- {name}", flush=True)
            try:
                answers[name] = part(min(end, start + 60 * minutes * share))
            except Exception as error:  # what comes after it is still to be known
                answers[name] = False
                print(f"{type(error).__name__}: {str(error).splitlines()[0]:.200}")
            print(f"{name}: {'well' if answers[name] else 'not well'}, {time.monotonic() - start:.0f} s", flush=True)
    return 0 if all(answers.values()) else 1
