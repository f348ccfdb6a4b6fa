"""What the programs of the benchmark table move, beside plain JAX's: `python -m benchmarks.moved [NAME ...]`.

Both sides of every comparison are traced and their jaxprs counted (`codelet/jaxprs/moved.py`): the bytes that they
read from memory and write there, each loop as often as it runs. Nothing is compiled or run, so that no noise is in it.
`--write` keeps the ratios in `moved.json`, which `tests/test_work.py` holds programs to.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

from benchmarks.every import BENCHMARKS
from benchmarks.fresh import NoProcess, without_processes
from benchmarks.harness import Comparison, Row
from codelet.files import written_whole
from codelet.jaxprs.moved import moved, num_bytes

KEPT = Path(__file__).parent / "moved.json"

JAX = "0.10."
"""The releases of JAX whose programs the kept ratios are of. Later ones keep less of a `tanh` for its gradient."""

UNCOUNTED = (
    *("adjoint_memory", "build", "call_chain", "compile", "draw", "draw_small", "many_codelets", "mesh"),
    *("onnx_trace", "placement", "profile", "report", "trace_compile"),
)
"""Benchmarks that measure something other than how fast a program runs."""

SLOW = (
    *("adjoint_gather", "alexnet_step", "gpt2", "loops", "npbench", "ops_conv", "resnet18_step", "resnet34_step"),
    *("resnet50_step", "strain_step"),
)
"""Those that take longer than a few seconds to trace and lower."""


@dataclass(frozen=True)
class Counted:
    """The bytes that both sides of a comparison move."""

    name: str
    ours: int
    plain: int

    @property
    def ratio(self) -> float:
        """Of ours to plain JAX's."""
        return self.ours / max(1, self.plain)

    def __str__(self) -> str:
        return f"{self.name:44}{self.ours:>18,}{self.plain:>18,} {self.ratio:6.2f}"


def comparisons(name: str) -> Iterator[Comparison]:
    """The comparisons of a benchmark, up to the first thing that it would measure in a process of its own."""
    made: Any = BENCHMARKS[name]()
    answer: Row | None = None
    with without_processes():
        while True:
            try:
                step = made.send(answer)
            except (StopIteration, NoProcess):
                return
            answer = Row(getattr(step, "name", ""), 1.0, 1.0, 1.0, None)
            if isinstance(step, Comparison):
                yield step


def counted(comparison: Comparison) -> Counted:
    """What both sides of a comparison move."""
    arguments = comparison.arguments(np.random.default_rng(0))
    sides = ((comparison.ours, comparison.ours_held), (comparison.plain, comparison.plain_held))
    closed = (jax.make_jaxpr(side)(*held(), *arguments) for side, held in sides)
    return Counted(comparison.name, *(moved(own, unit=num_bytes, turns=int).total() for own in closed))


def main(argv: Sequence[str] | None = None) -> int:
    """Count what programs move, and print it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.moved", description=__doc__)
    known = [name for name in BENCHMARKS if name not in UNCOUNTED]
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks; all when none is named")
    parser.add_argument("--write", action="store_true", help=f"keep the ratios in {KEPT.name}")
    arguments = parser.parse_args(argv)
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    for name in arguments.names or known:
        for comparison in comparisons(name):
            row = counted(comparison)
            print(row, flush=True)
            kept[row.name] = float(f"{row.ratio:.4g}")
    if arguments.write:
        with written_whole(KEPT) as file:
            file.write(json.dumps(dict(sorted(kept.items())), indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
