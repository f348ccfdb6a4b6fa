"""What a report of a program costs: the time to collect and to write it, and the size of the page."""

from __future__ import annotations

import time
from collections.abc import Generator
from itertools import pairwise
from typing import NamedTuple

from benchmarks.fresh import in_fresh_process
from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.traced_steps import FINE_GRAIN, traced_step
from ipu_backend.model.report.page import page_of

MOST_MIB = 40.0
"""How large the page of the largest program may be."""


class Reported(NamedTuple):
    """What a report took.

    Attributes:
        vertices: of the program.
        profile: seconds to place and profile it.
        collect: seconds to put all that is known of it into tables.
        write: seconds to make the page of them.
        mebibytes: of the page.
    """

    vertices: int
    profile: float
    collect: float
    write: float
    mebibytes: float


def report_network(network: str, grain: int | None) -> Reported:
    """What the report of a network's training step takes."""
    traced = traced_step(network, 1, grain)
    times = [time.perf_counter()]
    profile = traced.profile(allow_out_of_memory=True)
    times.append(time.perf_counter())
    record = profile.tables(network, layer_of=traced.layer_of)
    times.append(time.perf_counter())
    page = page_of(record)
    times.append(time.perf_counter())
    placed, collected, written = (after - before for before, after in pairwise(times))
    return Reported(profile.num_vertices, placed, collected, written, len(page.encode()) / 2**20)


@benchmark
def report(
    programs: tuple[tuple[str, int | None], ...] = (("mnist", None), ("alexnet", None), ("alexnet", FINE_GRAIN)),
) -> Generator[Comparison | Row, Row, None]:
    """The reports of MNIST's and AlexNet's training steps, as planned for the tiles and at a fine grain."""
    for network, grain in programs:
        own = in_fresh_process(report_network, network, grain)
        name = f"report/{network}" + ("" if grain is None else "_fine")
        yield Row(f"{name}/collect", own.collect, None, None, None)
        yield Row(f"{name}/write", own.write, None, None, None)
        note = f"{own.mebibytes:.1f} of {MOST_MIB:.0f} MiB; {own.vertices:,} vertices, profiled in {own.profile:.1f} s"
        yield Row(f"{name}/size", None, None, own.mebibytes / MOST_MIB, 1.0, note)
