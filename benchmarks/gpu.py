"""What a GPU would run of the benchmark table: `python -m benchmarks.gpu [NAME ...] [--write]`.

Both sides of every comparison of the table that has a plain twin, the training steps of networks among them, and the
programs of `tutorials/programs` with their gradients, are compiled for an H100 and an A100 on a machine that has
neither (`gpu_compile.py`), and counted: kernels, loops, temporary memory, bytes, compare-and-swap loops, spills. They
are the functions that `python -m benchmarks` times. `--write` keeps the counts in `gpu.json` and puts the tables into
docs/gpu.md. What was counted before is taken from a folder beside the compiler, unless `--again` is given.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, dataclass, fields, replace
from itertools import islice
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.every import BENCHMARKS
from benchmarks.gpu_compile import GPUS, Compiled, NoWheels, compile_for, counted_by, environment, lower_for, wheels
from benchmarks.gpu_counts import Launches
from benchmarks.harness import Comparison, gradient_of
from benchmarks.moved import UNCOUNTED, comparisons
from codelet.files import written_whole
from lowering.platforms import lowering_for

KEPT = Path(__file__).parent / "gpu.json"

PAGE = Path(__file__).parents[1] / "docs" / "gpu.md"
BEGIN, END = "<!-- the tables of python -m benchmarks.gpu --write -->", "<!-- end of the tables -->"

PROGRAMS = (
    *("bitonic_sort", "breadth_first", "cholesky", "equinox_training", "fft", "k_means", "lattice_boltzmann", "ldpc"),
    *("life", "page_rank", "spiking", "transformer", "waveform_inversion"),
)
"""Those of `tutorials/programs`."""

OF_PROGRAMS = "programs"

NETWORKS = ("mnist_traced_step", "alexnet_step", "resnet18_step", "resnet34_step", "resnet50_step", "strain_step")

COMPILED = tuple(name for name in BENCHMARKS if name == "call_chain" or name not in UNCOUNTED)
"""Benchmarks that time a program beside plain JAX."""

BAR = 1.1
"""What kernels and temporary memory may be of plain JAX's in a row."""

COMPILE_BAR = 1.5
"""What a network's step may take to compile of what plain JAX's takes."""

FEW_BYTES = 65_536
"""A difference in temporary memory that is no miss."""

WRITTEN_EVERY = 20
"""Rows after which what was found so far is written."""

CHUNK = 24
"""Comparisons that a process compiles before another one takes over: compilers keep memory."""


@dataclass(frozen=True)
class Counted:
    """Both sides of a comparison on a GPU: what they would run, or why they are not compiled.

    Attributes:
        name: of the row.
        gpu: a name of `GPUS`.
        ours: what ours would run, or why not.
        plain: what plain JAX would run, or why not.
    """

    name: str
    gpu: str
    ours: Compiled | str
    plain: Compiled | str

    def ratio(self, of: Callable[[Compiled], float], few: float = 0.0) -> float | None:
        """Of ours to plain JAX; 1 if they differ by `few` at most, None where a side is not compiled."""
        if isinstance(self.ours, str) or isinstance(self.plain, str):
            return None
        ours, plain = of(self.ours), of(self.plain)
        return 1.0 if abs(ours - plain) <= few else ours / max(plain, 1e-9)

    @property
    def misses(self) -> list[str]:
        """In which respects ours is worse than is allowed, in words."""
        if isinstance(self.ours, str) or isinstance(self.plain, str):
            return [] if isinstance(self.plain, str) else ["not compiled"]
        found = [name for name, (of, few) in JUDGED.items() if (self.ratio(of, few) or 0) > BAR]
        found += ["compare-and-swap"] * (self.ours.swaps > 0 == self.plain.swaps)
        found += ["spills"] * (self.ours.spilled > 0 == self.plain.spilled)
        if self.name.partition("/")[0] in NETWORKS and self.ours.seconds > COMPILE_BAR * self.plain.seconds:
            found.append("seconds to compile")
        return found


JUDGED: dict[str, tuple[Callable[[Compiled], float], float]] = {
    "kernels of a run": (lambda own: own.launches.run, 0),
    "temporary memory": (lambda own: own.held, FEW_BYTES),
}
"""What has a bar: how it is read, and what difference is none."""

SHOWN: dict[str, tuple[Callable[[Compiled], float], float]] = {
    **JUDGED,
    "kernels in the program": (lambda own: own.launches.standing, 0),
    "bytes": (lambda own: own.accessed, FEW_BYTES),
}
"""What is shown as a ratio."""


# --- rows -----------------------------------------------------------------------------------------------


def _differentiable(twin: Comparison) -> bool:
    """Whether all that a comparison takes and gives is of real floats."""
    arguments = twin.arguments(np.random.default_rng(0))
    results = jax.eval_shape(twin.plain, *twin.plain_held(), *arguments)
    return all(jnp.issubdtype(leaf.dtype, jnp.floating) for leaf in jax.tree.leaves((arguments, results)))


def rows(name: str) -> Iterator[Comparison]:
    """The comparisons of a benchmark that have a plain twin, or of `programs` those of `tutorials/programs`."""
    if name != OF_PROGRAMS:
        yield from (own for own in comparisons(name) if not own.note)
        return
    for program in PROGRAMS:
        made = importlib.import_module(f"tutorials.programs.{program}").twin()
        twin = replace(made, name=f"{OF_PROGRAMS}/{program}")
        yield twin
        if _differentiable(twin):
            yield gradient_of(twin, None)


# --- counting -------------------------------------------------------------------------------------------


def _kept(path: Path, since: float) -> Compiled | str | None:
    """What was counted since a time; None where nothing was, or by another release in another form."""
    try:
        return _read(json.loads(path.read_text())) if path.stat().st_mtime >= since else None
    except (OSError, ValueError, TypeError):
        return None


def _compiled(side: str, gpu: str, comparison: Comparison, arguments: Sequence[Any], kept: Path, since: float) -> Any:
    """What one side would run, or why it is not compiled."""
    held = getattr(comparison, f"{side}_held")()
    try:
        lowered = lower_for(gpu, getattr(comparison, side), *held, *arguments)
        digest = hashlib.sha256("\0".join((*counted_by(gpu), lowered.as_text())).encode()).hexdigest()
        found = _kept(kept / digest, since)
        if found is not None:
            return found
        made = compile_for(gpu, lowered)
    except Exception as error:  # of whatever kind: the row says why it is not compiled
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    with written_whole(kept / digest) as file:
        file.write(json.dumps(_written(made)))
    return made


def count_some(name: str, start: int, stop: int, gpus: Sequence[str], kept: Path, since: float) -> Iterator[Counted]:
    """The counts of some comparisons of a benchmark, in a process of `environment`.

    What was counted since a time is taken from the folder of all: XLA compiles no program twice in a process.
    """
    for comparison in islice(rows(name), start, stop):
        arguments = comparison.arguments(np.random.default_rng(0))
        for gpu in gpus:
            sides = (_compiled(side, gpu, comparison, arguments, kept, since) for side in ("ours", "plain"))
            yield Counted(comparison.name, gpu, *sides)


def work(given: str) -> None:
    """Print the counts of some comparisons, a line of JSON for each: what a process of `count` does."""
    name, start, stop, gpus, kept, since = json.loads(given)
    with lowering_for("gpu"):
        for row in count_some(name, start, stop, gpus, Path(kept), since):
            print(json.dumps([row.name, row.gpu, _written(row.ours), _written(row.plain)]), flush=True)


def _written(own: Compiled | str) -> Any:
    """A side for JSON."""
    return own if isinstance(own, str) else [*astuple(own.launches), *astuple(own)[1:-1], round(own.seconds, 2)]


def _read(own: Any) -> Compiled | str:
    """A side from JSON."""
    if isinstance(own, str):
        return own
    count = len(fields(Launches))
    return Compiled(Launches(*own[:count]), *own[count:])


def _process(given: str, found: Queue[Counted | None]) -> None:
    """Have a process count some comparisons, and put each into a queue as it is found; in the end None.

    Raises:
        RuntimeError: the process failed.
    """
    command = [sys.executable, "-c", "import sys; from benchmarks.gpu import work; work(sys.argv[1])", given]
    with tempfile.TemporaryDirectory(prefix="codelet_gpu_") as dump, tempfile.TemporaryFile("w+") as errors:
        pipes = {"stdout": subprocess.PIPE, "stderr": errors, "text": True}
        process = subprocess.Popen(command, env=environment(dump), **pipes)  # type: ignore[call-overload]
        assert process.stdout is not None
        for text in process.stdout:
            name, gpu, *sides = json.loads(text)
            found.put(Counted(name, gpu, *map(_read, sides)))
        if process.wait():
            errors.seek(0)
            raise RuntimeError(f"a process that counts {given} failed:\n{errors.read()[-4000:]}")
    found.put(None)


def count(names: Sequence[str], gpus: Sequence[str], workers: int, again: bool) -> Iterator[Counted]:
    """The counts of all comparisons of some benchmarks, as they are found."""
    kept = wheels() / "counted"
    kept.mkdir(exist_ok=True)
    found: Queue[Counted | None] = Queue()
    sizes = {name: sum(1 for _ in rows(name)) for name in names}
    chunks = [(name, k, k + CHUNK) for name, size in sizes.items() for k in range(0, size, CHUNK)]
    since = time.time() if again else 0.0
    given = [json.dumps([*chunk, list(gpus), str(kept), since]) for chunk in chunks]
    with ThreadPoolExecutor(workers) as threads:
        jobs = [threads.submit(_process, own, found) for own in given]
        left = len(jobs)
        while left:
            try:
                row = found.get(timeout=1)
            except Empty:
                for job in jobs:
                    if job.done():
                        job.result()  # raises what failed
                continue
            left -= row is None
            if row is not None:
                yield row


# --- tables ---------------------------------------------------------------------------------------------


def _side_text(own: Compiled | str) -> str:
    if isinstance(own, str):
        return own
    at = own.launches
    text = f"{at.kernels}+{at.in_loops}/{at.loops} ({at.run:,})"
    text += f" {own.held / 1e6:.2f} {own.accessed / 1e6:.1f} MB"
    return text + f" cas {own.swaps}" * bool(own.swaps) + f" spills {own.spilled}" * bool(own.spilled)


def line(row: Counted) -> str:
    """A row as it is printed while counting."""
    words = [f"{row.name} {row.gpu}: {_side_text(row.ours)} | {_side_text(row.plain)}"]
    return " ".join([*words, *(["missed:", ", ".join(row.misses)] if row.misses else [])])


def _mean(ratios: Iterable[float]) -> float:
    """The geometric mean; 1 of nothing."""
    logs = [math.log(max(own, 1e-3)) for own in ratios]
    return math.exp(sum(logs) / len(logs)) if logs else 1.0


def _summary(name: str, found: Sequence[Counted]) -> str:
    """A line of the summary: means and largest ratios of rows on a GPU."""
    cells = []
    for of, few in SHOWN.values():
        ratios = [own for own in (row.ratio(of, few) for row in found) if own is not None]
        cells += [f"{_mean(ratios):.2f}", f"{max(ratios, default=1.0):.2f}"]
    compiled = [row for row in found if row.ratio(lambda own: 1) is not None]
    missed = sum(bool(row.misses) for row in compiled)
    return f"| {name} | {len(compiled)} | {' | '.join(cells)} | {missed or ''} |"


def _pair(ours: float, plain: float, form: str = "{:,.0f}") -> str:
    return f"{form.format(ours)} / {form.format(plain)}"


def _detail(row: Counted) -> str:
    """A line with the figures of both sides, ours first."""
    if isinstance(row.ours, str) or isinstance(row.plain, str):
        return f"| `{row.name}` | {row.gpu} | | | | | | | | not compiled |"
    ours, plain = row.ours, row.plain
    cells = [
        _pair(ours.launches.run, plain.launches.run),
        _pair(ours.launches.standing, plain.launches.standing),
        _pair(ours.launches.loops, plain.launches.loops),
        _pair(ours.held / 1e6, plain.held / 1e6, "{:,.2f}"),
        _pair(ours.accessed / 1e6, plain.accessed / 1e6, "{:,.1f}"),
        _pair(ours.swaps, plain.swaps),
        _pair(ours.seconds, plain.seconds, "{:.1f}"),
        ", ".join(row.misses),
    ]
    return f"| `{row.name}` | {row.gpu} | {' | '.join(cells)} |"


DETAIL = (
    "| row | GPU | kernels of a run | in the program | loops | temporary MB | MB accessed | compare-and-swap "
    "| compile, s | missed |\n|---|---|---:|---:|---:|---:|---:|---:|---:|---|"
)


def tables(found: Sequence[Counted]) -> str:
    """The tables of docs/gpu.md."""
    by_name: dict[str, list[Counted]] = {}
    programs = {row.name for row in found if row.name.startswith(f"{OF_PROGRAMS}/")}
    for row in found:
        by_name.setdefault(row.name.partition("/")[0], []).append(row)
    head = " | ".join(f"{name}, mean | largest" for name in SHOWN)
    parts = []
    for gpu in sorted({row.gpu for row in found}, reverse=True):
        parts += [f"### {GPUS[gpu].name}", "", f"| benchmark | rows | {head} | missed |"]
        parts += [f"|---|---:|{'---:|' * (2 * len(SHOWN))}---:|"]
        parts += [_summary(f"`{name}`", [r for r in own if r.gpu == gpu]) for name, own in sorted(by_name.items())]
        parts += [_summary("all", [row for row in found if row.gpu == gpu]), ""]
    networks = [row for row in found if row.name.partition("/")[0] in NETWORKS]
    own = [row for row in found if row.name in programs]
    for heading, chosen in (
        ("Training steps of networks", networks),
        ("Programs of the tutorials", own),
        ("Rows that miss a bar", [row for row in found if row.misses]),
    ):
        parts += [f"### {heading}", "", DETAIL, *map(_detail, chosen), ""] if chosen else []
    why = {(row.name, own) for row in found for own in (row.ours, row.plain) if isinstance(own, str)}
    if why:
        parts += ["### Rows that are not compiled", "", "| row | reason |", "|---|---|"]
        parts += [f"| `{name}` | {reason.replace('|', ' ')} |" for name, reason in sorted(why)]
        parts += [""]
    return "\n".join(parts)


def read_kept() -> list[Counted]:
    """The counts of `gpu.json`."""
    kept = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    return [
        Counted(name, gpu, _read(ours), _read(plain)) for name, of in kept.items() for gpu, (ours, plain) in of.items()
    ]


def keep(found: Iterable[Counted]) -> None:
    """Write counts to `gpu.json`, a row a line."""
    by_row: dict[str, dict[str, Any]] = {}
    for row in sorted(found, key=lambda own: (own.name, own.gpu)):
        by_row.setdefault(row.name, {})[row.gpu] = [_written(row.ours), _written(row.plain)]
    lines = [f"{json.dumps(name)}: {json.dumps(own)}" for name, own in by_row.items()]
    with written_whole(KEPT) as file:
        file.write("{\n" + ",\n".join(lines) + "\n}\n")


def write(found: Iterable[Counted]) -> None:
    """Keep counts, of a row those that come last, and put the tables of all into docs/gpu.md."""
    keep({(row.name, row.gpu): row for row in found}.values())
    page = PAGE.read_text()
    PAGE.write_text(f"{page.split(BEGIN)[0]}{BEGIN}\n\n{tables(read_kept())}\n{END}{page.split(END)[1]}")


def main(argv: Sequence[str] | None = None) -> int:
    """Compile the table for GPUs and print what they would run; the exit status."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpu", description=__doc__)
    known = (*COMPILED, OF_PROGRAMS)
    parser.add_argument("names", nargs="*", metavar="NAME", help="benchmarks, or `programs`; all when none is named")
    parser.add_argument("--gpu", choices=GPUS, action="append", help="the GPUs; all when left off")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="processes at once")
    parser.add_argument("--again", action="store_true", help="count anew what was counted before")
    parser.add_argument("--write", action="store_true", help=f"keep the counts in {KEPT.name}, and the tables in docs")
    arguments = parser.parse_args(argv)
    unknown = [name for name in arguments.names if name not in known]
    if unknown:
        parser.error(f"nothing is compiled for {unknown[0]!r}; there are {', '.join(known)}")
    try:
        wheels()
    except NoWheels as error:
        print(error, file=sys.stderr)
        return 2
    start, found = time.perf_counter(), list[Counted]()
    names = arguments.names or known
    before = read_kept() if arguments.names else []
    for row in count(names, arguments.gpu or list(GPUS), arguments.workers, arguments.again):
        found.append(row)
        print(line(row), flush=True)
        if arguments.write and len(found) % WRITTEN_EVERY == 0:
            write([*before, *found])
    missed = sum(bool(row.misses) for row in found)
    print(f"{len(found)} rows in {time.perf_counter() - start:.0f} s, {missed} above a bar")
    if arguments.write:
        write([*before, *found])
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
