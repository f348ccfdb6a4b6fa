"""What each pass is for: `python -m benchmarks.ablation [PASS ...] [--rows NAME ...] [--write]`.

Each pass of `lowering/fast` and each rule of `lowering/jaxprs` is left out in turn, and the rows of the benchmark table
are lowered without it: how many bytes they then move (`codelet/jaxprs/moved.py`), and of how many equations they are.
Nothing is compiled or run, so that no noise is in it. What a pass does for XLA alone, as reductions by halves, or for
values alone, as updates in place, is not seen so. `--write` puts the table into docs/passes.md.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import jax
import numpy as np

from benchmarks.blocks import num_equations
from benchmarks.every import BENCHMARKS
from benchmarks.harness import Comparison
from benchmarks.moved import SLOW, UNCOUNTED, comparisons
from codelet.jaxprs.moved import moved, num_bytes
from lowering.jaxprs import simplify
from lowering.join.alike_families import JoinedFamily

PAGE = Path(__file__).parents[1] / "docs" / "passes.md"
BEGIN, END = "<!-- the table of python -m benchmarks.ablation --write -->", "<!-- end of the table -->"

GAIN = 1.05
"""What a pass gains in a row that needs it, at least."""


class Without(NamedTuple):
    """How a pass is left out: by another function in its place, in the module that calls it."""

    module: str
    function: str
    instead: Callable[..., Any] = lambda first, *rest, **options: first


RULES = {
    name: Without("lowering.jaxprs.simplify", name)
    for name, own in vars(simplify).items()
    if callable(own) and getattr(own, "__module__", "").startswith(("lowering.jaxprs.", "codelet.jaxprs.within"))
    if own.__module__ != simplify.__name__ and not isinstance(own, type)
}
"""The rules on jaxprs, in the order in which they are imported."""

PASSES = {
    "copy_few_zeros": Without("lowering.pipeline", "copy_few_zeros"),
    "rotate": Without("lowering.pipeline", "rotate"),
    "join": Without("lowering.pipeline", "join"),
    "phases": Without("lowering.join.join", "join_phases"),
    "blocks": Without("lowering.join.join", "join_blocks"),
    "alike_families": Without(
        "lowering.join.whole_steps",
        "join_alike",
        lambda families: [JoinedFamily(own, (k,)) for k, own in enumerate(families)],
    ),
    "calls": Without("lowering.fast.compute_sets", "group_calls"),
    **RULES,
}


@contextmanager
def without(name: str | None) -> Iterator[None]:
    """All passes but one; all for None."""
    if name is None:
        yield
        return
    module, function, instead = PASSES[name]
    with mock.patch.object(importlib.import_module(module), function, instead):
        yield


def counts(comparison: Comparison) -> tuple[int, int]:
    """The bytes that ours moves, and its equations."""
    arguments = comparison.arguments(np.random.default_rng(0))
    closed = jax.make_jaxpr(comparison.ours)(*comparison.ours_held(), *arguments)
    return moved(closed, unit=num_bytes, turns=int).total(), num_equations(closed)


def measured(rows: Sequence[str], name: str | None) -> dict[str, tuple[int, int] | None]:
    """Of each row of some benchmarks what it comes to without a pass; None where it is not lowered."""
    found: dict[str, tuple[int, int] | None] = {}
    with without(name):
        for row in rows:
            for comparison in comparisons(row):
                try:
                    found[comparison.name] = counts(comparison)
                except Exception:  # a later pass may count on what this one does
                    found[comparison.name] = None
    return found


def line(name: str, before: dict[str, tuple[int, int] | None], after: dict[str, tuple[int, int] | None]) -> str:
    """A row of the table: a pass, in how many rows it gains, and where it gains most."""
    gains: dict[str, tuple[float, float]] = {}
    broken = sorted(row for row, own in after.items() if own is None and before[row] is not None)
    for row, own in after.items():
        was = before[row]
        if own is not None and was is not None:
            gain = own[0] / max(1, was[0]), own[1] / max(1, was[1])
            if max(gain) >= GAIN:
                gains[row] = gain
    worst = sorted(gains, key=lambda row: -max(gains[row]))[:3]
    named = ", ".join(f"`{row}` {gains[row][0]:.2f}, {gains[row][1]:.2f}" for row in worst)
    refused = f"{len(broken)} are not lowered" if broken else ""
    return f"| `{name}` | {len(gains)} | {named or refused or 'none'}{'; ' + refused if named and refused else ''} |"


def main(argv: Sequence[str] | None = None) -> int:
    """Leave out passes, and print what rows come to."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.ablation", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="PASS", help="passes; all when none is named")
    known = [name for name in BENCHMARKS if name not in (*UNCOUNTED, *SLOW)]
    parser.add_argument("--rows", nargs="*", metavar="NAME", default=known, help="benchmarks; those that are quick")
    parser.add_argument("--write", action="store_true", help="put the table into docs/passes.md")
    arguments = parser.parse_args(argv)
    before, lines = measured(arguments.rows, None), []
    for name in arguments.names or PASSES:
        lines.append(line(name, before, measured(arguments.rows, name)))
        print(lines[-1], flush=True)
    head = (
        f"Of {len(before)} rows.\n\n| pass | rows | where it gains most: bytes, equations without it |\n|---|---:|---|"
    )
    if arguments.write:
        page = PAGE.read_text()
        PAGE.write_text(f"{page.split(BEGIN)[0]}{BEGIN}\n{head}\n{chr(10).join(lines)}\n{END}{page.split(END)[1]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
