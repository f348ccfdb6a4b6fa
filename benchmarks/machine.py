"""How far the model of the machine is from what was measured: a table, the worst ratio first.

`python -m benchmarks.machine` builds every program of `measured_programs.py` that `measurements.py` has a number of,
profiles it, and prints ours beside it. `--markdown` prints the table as `docs/cost_model.md` has it; `--write` writes
it there. Nothing is run, and no number of ours is kept anywhere: what stands in the document is what was printed.
"""

from __future__ import annotations

import argparse
import math
import sys
import warnings
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.measured_programs import figures_of
from benchmarks.measurements import BOUND, MEASURED, Series
from codelet.files import written_whole
from ipu_backend import UnknownCyclesWarning

DOCUMENT = Path(__file__).parents[1] / "docs" / "cost_model.md"
BEGIN, END = "<!-- the table of python -m benchmarks.machine --write -->", "<!-- end of the table -->"
HEADINGS = ("program", "compared", "measured", "kind", "ours", "ratio", "source")


@dataclass(frozen=True)
class Row:
    """One measurement and ours; cycles, or bytes where the figure says so."""

    series: Series
    argument: Hashable
    ours: float

    @property
    def name(self) -> str:
        """The program and its argument."""
        return name_of(self.series, self.argument)

    @property
    def measured(self) -> float:
        """What was measured, less what the counters took."""
        return self.series.values[self.argument] - self.series.less

    @property
    def ratio(self) -> float:
        """Ours over measured."""
        return self.ours / self.measured

    @property
    def is_bound(self) -> bool:
        """Whether there is no ratio to be judged by, only whether ours is within."""
        return self.series.kind == BOUND

    @property
    def distance(self) -> float:
        """How far apart they are: the larger over the smaller, as a logarithm."""
        return abs(math.log(self.ratio)) if self.ours > 0 else math.inf

    def cells(self) -> tuple[str, ...]:
        """It as text, in the order of the headings."""
        judged = ("within" if self.ours <= self.measured else "**above**") if self.is_bound else f"{self.ratio:.2f}"
        measured = f"{'at most ' if self.is_bound else ''}{self.measured:,.0f}"
        return (
            self.name,
            self.series.figure,
            measured,
            self.series.kind + (", a source" if self.series.is_source else ""),
            f"{self.ours:,.0f}",
            judged,
            self.series.source,
        )


def name_of(series: Series, argument: Hashable) -> str:
    """The program and its argument, as a row of the table begins."""
    sizes = argument if isinstance(argument, tuple) else (argument,)
    said = [f"{size:,}" if isinstance(size, int) and len(sizes) == 1 else str(size) for size in sizes]
    between = " x " if all(isinstance(size, int) for size in sizes) else ", "
    return f"{series.program.replace('_', ' ')}, {between.join(said)}"


def names() -> list[str]:
    """The names of all rows, without building any program."""
    return [name_of(series, argument) for series in MEASURED for argument in series.values]


def measure(chosen: Iterable[Series] = MEASURED) -> list[Row]:
    """A row for each measurement: the worst ratio first, then what only has a bound."""
    rows = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnknownCyclesWarning)
        for series in chosen:
            for argument in series.values:
                rows.append(Row(series, argument, figures_of(series.program, argument)[series.figure]))
    return sorted(rows, key=lambda row: (row.is_bound, -row.ratio if row.is_bound else -row.distance, row.name))


def _summary(rows: Sequence[Row]) -> str:
    judged = [row for row in rows if not row.is_bound and not row.series.is_source]
    close = {much: sum(row.distance <= math.log(much) for row in judged) for much in (1.1, 1.5, 2.0)}
    bounds = [row.ours <= row.measured for row in rows if row.is_bound]
    return (
        f"{len(judged)} measurements that no number of the model comes from: {close[1.1]} within 10 %, {close[1.5]} "
        f"within 1.5 times, {close[2.0]} within twice; and {sum(bounds)} of {len(bounds)} bounds are kept."
    )


def as_markdown(rows: Sequence[Row]) -> Iterator[str]:
    """The lines of the table as Markdown, and what it comes to."""
    yield _summary(rows)
    yield ""
    yield "| " + " | ".join(HEADINGS) + " |"
    yield "|---|---|---:|---|---:|---:|---|"
    for row in rows:
        yield "| " + " | ".join(row.cells()) + " |"


def as_text(rows: Sequence[Row]) -> Iterator[str]:
    """The lines of the table in columns, sources last."""
    table = [HEADINGS, *(row.cells() for row in rows)]
    widths = [max(len(cells[i]) for cells in table) for i in range(len(HEADINGS) - 1)]
    for *cells, source in table:
        yield "  ".join([cell.ljust(width) for cell, width in zip(cells, widths, strict=True)] + [source])
    yield _summary(rows)


def written(document: str, rows: Sequence[Row]) -> str:
    """A document with the table put in the place of the one it has."""
    before, _, rest = document.partition(BEGIN)
    _, _, after = rest.partition(END)
    return "\n".join([before + BEGIN, "", *as_markdown(rows), "", END + after])


def main(arguments: Sequence[str] | None = None) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.machine", description=__doc__)
    parser.add_argument("--markdown", action="store_true", help="print the table as Markdown")
    parser.add_argument("--write", action="store_true", help=f"write it to {DOCUMENT.name}")
    given = parser.parse_args(arguments)
    rows = measure()
    if given.write:
        text = written(DOCUMENT.read_text(), rows)
        with written_whole(DOCUMENT) as file:
            file.write(text)
        return 0
    print("\n".join(as_markdown(rows) if given.markdown else as_text(rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
