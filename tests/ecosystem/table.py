"""What the graphs of these programs cost beside plain JAX: a table, for docs/ecosystem.md.

python -m tests.ecosystem.table                    measure, and print the table
python -m tests.ecosystem.table flax optax/quick   of some packages or programs alone
python -m tests.ecosystem.table --write            put it into docs/ecosystem.md
"""

from __future__ import annotations

import argparse
import gc
import importlib.metadata
import json
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np

import codelet as cl
from benchmarks.fresh import imported
from ipu_backend.jobs.timing import time_in_turn
from tests.ecosystem.program import PACKAGES, Program, is_there, programs_of

PAGE = Path(__file__).parents[2] / "docs" / "ecosystem.md"
BEGIN, END = "<!-- the table of python -m tests.ecosystem.table --write -->", "<!-- end of the table -->"

LONG = 1e-3
"""Seconds from which on a step is a long one, with a bar of its own; a shorter one mostly waits for its call."""

LEAST = 1 << 16
"""Bytes of temporary memory below which a ratio says nothing."""


@dataclass(frozen=True)
class Figures:
    """What was measured of a program.

    Attributes:
        name: its name.
        source: where the like of it is documented.
        vertices: of its graph.
        seconds: of a step in plain JAX.
        ratio: of ours to it.
        memory: the temporary memory of ours to plain JAX's; None where both are little.
        build: seconds until ours is compiled, from the function on, to plain JAX's.
    """

    name: str
    source: str
    vertices: int
    seconds: float
    ratio: float
    memory: float | None
    build: float

    def __str__(self) -> str:
        memory = "" if self.memory is None else f"{self.memory:.2f}"
        step = f"{1e3 * self.seconds:,.3g} ms" if self.seconds >= LONG else f"{1e6 * self.seconds:,.0f} us"
        cells = (self.name, self.source, f"{self.vertices:,}", step, f"{self.ratio:.2f}", memory, f"{self.build:.1f}")
        return f"| {' | '.join(cells)} |"


def _compiled(function: Any, given: Sequence[Any]) -> tuple[Any, float]:
    """A function compiled, and the seconds that it took, nothing being remembered from before."""
    jax.clear_caches()
    gc.collect()
    start = time.perf_counter()
    made = jax.jit(function).lower(*given).compile()
    return made, time.perf_counter() - start


def figures(program: Program, seconds: float = 2.0) -> Figures:
    """Measure a program. This library is imported before, as JAX is."""
    imported()
    function, given = program.make()
    given = jax.tree.map(lambda own: jax.numpy.asarray(own), given)
    plain, build_plain = _compiled(function, given)
    kept: list[Any] = []

    def traced(*arguments: Any) -> Any:
        kept.append(cl.trace(function, *arguments))
        return kept[-1](*arguments)

    ours, build_ours = _compiled(traced, given)
    temporary = [own.memory_analysis().temp_size_in_bytes for own in (ours, plain)]
    times = time_in_turn([lambda: ours(*given), lambda: plain(*given)], repeats=9, seconds=seconds, most_seconds=60)
    return Figures(
        program.name,
        program.source,
        kept[-1].graph.num_vertices,
        times[1],
        times[0] / times[1],
        temporary[0] / temporary[1] if max(temporary) >= LEAST and temporary[1] else None,
        build_ours / build_plain,
    )


def _mean(ratios: Sequence[float]) -> str:
    return f"{float(np.exp(np.mean(np.log(ratios)))):.2f}, the worst {max(ratios):.2f}" if ratios else "none"


def summary(found: Sequence[Figures]) -> str:
    """What the figures come to."""
    long, short = ([own for own in found if (own.seconds >= LONG) == is_long] for is_long in (True, False))
    memory = [own.memory for own in found if own.memory is not None]
    return "\n".join(
        [
            f"- {len(long)} steps that take plain JAX a millisecond or more: {_mean([own.ratio for own in long])}.",
            f"- {len(short)} shorter ones: {_mean([own.ratio for own in short])}.",
            f"- Temporary memory, where it is more than {LEAST >> 10} kB: {_mean(memory)}.",
            f"- Build: {float(np.median([own.build for own in found])):.1f} in the middle.",
        ]
    )


def table(found: Sequence[Figures]) -> str:
    """The figures as a table, with where they were measured."""
    versions = ", ".join(f"{own} {importlib.metadata.version(own)}" for own in ("jax", *PACKAGES.values()))
    head = "| program | as in | vertices | step, plain JAX | ratio | memory | build |\n|---|---|---|---|---|---|---|"
    where = f"{platform.machine()}, {jax.devices()[0].platform}; {versions}."
    return "\n".join([summary(found), "", where, "", head, *map(str, found)])


def _chosen(names: Sequence[str]) -> list[str]:
    packages = [own for own in PACKAGES if is_there(own)]
    every = [own.name for package in packages for own in programs_of(package)]
    return [own for own in every if not names or own in names or own.partition("/")[0] in names]


def _measured(names: Sequence[str]) -> Iterator[Figures]:
    """The figures of programs, each measured in a process of its own."""
    for name in names:
        command = [sys.executable, "-m", "tests.ecosystem.table", "--one", name]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: {done.stderr.strip().splitlines()[-1]}", file=sys.stderr, flush=True)
            continue
        own = Figures(**json.loads(done.stdout.strip().splitlines()[-1]))
        print(own, file=sys.stderr, flush=True)
        yield own


def main() -> None:
    """Measure, and print the table, or put it into the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="packages or programs; all where none is named")
    parser.add_argument("--write", action="store_true", help="put the table into docs/ecosystem.md")
    parser.add_argument("--one", action="store_true", help="print the figures of one program as JSON")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    if arguments.one:
        (name,) = arguments.names
        (program,) = (own for own in programs_of(name.partition("/")[0]) if own.name == name)
        print(json.dumps(asdict(figures(program))))
        return
    made = table(list(_measured(_chosen(arguments.names))))
    if arguments.write:
        page = PAGE.read_text()
        PAGE.write_text(f"{page.split(BEGIN)[0]}{BEGIN}\n{made}\n{END}{page.split(END)[1]}")
    else:
        print(made)


if __name__ == "__main__":
    main()
