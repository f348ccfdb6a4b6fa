"""What it costs to draw a graph: every vertex and every link, by stage, and how that grows."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Generator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

import codelet as cl
from benchmarks.fresh import in_fresh_process, peak_bytes
from benchmarks.harness import Comparison, Row, benchmark
from benchmarks.traced_steps import FINE_GRAIN, traced_step
from codelet.draw.drawing import draw as draw_graph
from codelet.draw.picture import Picture

LINKS_SECONDS, LINKS_GIB = 60.0, 6.0
PICTURE_SECONDS, PICTURE_GIB = 40.0, 4.0
SMALL_FIRST_SECONDS, SMALL_SECONDS = 8.0, 3.0
"""For the README's graph, drawn to a file: first in a process, with kernels kept on disk, and after that."""
GROWTH = 1.5
"""How many times as long a link may take in a graph of ten times as many: n log n is 1.2 at most."""


class Drawn(NamedTuple):
    """What drawing took.

    Attributes:
        seconds: by stage, links first.
        links_gib: the most that the process held until the links were found.
        picture_gib: the most that it held after that, the links among it.
        digest: of the file's bytes.
        vertices, links: how many there are.
    """

    seconds: dict[str, float]
    links_gib: float
    picture_gib: float
    digest: str
    vertices: int
    links: int

    @property
    def picture_seconds(self) -> float:
        """Seconds of all stages after the links."""
        return sum(self.seconds.values()) - self.seconds["find links"]


def layered(wide: int, layers: int = 10, reads: int = 8) -> cl.Graph:
    """Layers of vertices that each read some of the layer before, which a table names."""
    numbers = np.random.default_rng(0)
    graph = cl.Graph()
    mean = cl.codelet(lambda x: x.mean())
    x, i = graph.add_variable("x", (wide,)), cl.grid(wide)
    for layer in range(layers):
        near = (np.arange(wide)[:, None] + numbers.integers(-50, 50, (wide, reads))) % wide
        x = graph.add_vertex(f"layer{layer}/mean", mean, x=x[cl.table(near)[i]])
    return graph


def matvec() -> cl.Graph:
    """The README's graph: 32,768 products of stretches, and 512 sums."""
    graph = cl.Graph()
    x, w = graph.add_variable("x", (1024,)), graph.add_variable("w", (512, 1024))
    row, p = cl.grid(512, 64)
    field = slice(16 * p, 16 * p + 16)
    part = graph.add_vertex("multiply", cl.codelet(lambda x, w: jnp.dot(x, w)), x=x[field], w=w[row, field], tile=row)
    graph.add_vertex("add up", cl.codelet(lambda parts: parts.sum()), parts=part[cl.grid(512)])
    return graph


def draw_matvec(times: int, size: int) -> list[float]:
    """Seconds that each of several drawings of the README's graph takes in this process."""
    seconds = []
    with tempfile.TemporaryDirectory() as directory:
        for _ in range(times):
            graph, start = matvec(), time.perf_counter()
            draw_graph(graph, path=Path(directory, "graph.png"), size=size)
            seconds.append(time.perf_counter() - start)
    return seconds


def _forget_peak() -> None:
    """Count the most that the process holds anew, where the system can."""
    clear = Path("/proc/self/clear_refs")
    if clear.exists():
        clear.write_text("5")


def _drawn(graph: object, size: int) -> Drawn:
    """A graph drawn to a file, after another that is small, so that all kernels are compiled."""
    draw_graph(layered(1000), size=size)
    begun: list[tuple[str, float]] = []
    peaks: list[float] = []

    def note(stage: str) -> None:
        if stage == "place layers":
            peaks.append(peak_bytes() / 2**30)
            _forget_peak()
        begun.append((stage, time.perf_counter()))

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "graph.png")
        picture = draw_graph(graph, path=path, size=size, note=note)
        begun.append(("", time.perf_counter()))
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
    assert isinstance(picture, Picture)
    seconds = {stage: end - start for (stage, start), (_, end) in pairwise(begun)}
    links = picture.layout.links
    return Drawn(seconds, peaks[0], peak_bytes() / 2**30, digest, links.num_vertices, links.num_links)


def draw_network(network: str, grain: int | None, size: int) -> Drawn:
    """What it takes to draw a network's training step."""
    return _drawn(traced_step(network, 1, grain), size)


def draw_layered(wide: int, size: int) -> Drawn:
    """What it takes to draw layers of vertices."""
    return _drawn(layered(wide), size)


@benchmark
def draw(
    network: str = "alexnet",
    grain: int | None = FINE_GRAIN,
    size: int = 4096,
    widths: tuple[int, ...] = (1250, 12_500, 125_000, 1_250_000),
) -> Generator[Comparison | Row, Row, None]:
    """A network's training step at a fine grain, twice, which must give the same bytes; and layers of growing width."""
    first, second = (in_fresh_process(draw_network, network, grain, size) for _ in range(2))
    assert first.digest == second.digest, "two runs have drawn two pictures"
    found = min(first.seconds["find links"], second.seconds["find links"])
    counts = f"{first.vertices:,} vertices, {first.links:,} links"
    yield Row("draw/links", found, None, found / LINKS_SECONDS, 1.0, f"to {LINKS_SECONDS:.0f} s: {counts}")
    yield Row("draw/links_peak", None, None, first.links_gib / LINKS_GIB, 1.0, f"to {LINKS_GIB:.0f} GiB")
    best = min(first, second, key=lambda own: own.picture_seconds)
    yield Row(
        "draw",
        best.picture_seconds,
        None,
        best.picture_seconds / PICTURE_SECONDS,
        1.0,
        f"to {PICTURE_SECONDS:.0f} s, after links",
    )
    yield Row("draw/peak", None, None, best.picture_gib / PICTURE_GIB, 1.0, f"to {PICTURE_GIB:.0f} GiB, links among it")
    for stage, seconds in best.seconds.items():
        if stage != "find links":
            yield Row(f"draw/{stage.replace(' ', '_')}", seconds, None, None, None)
    each = []
    for wide in widths:
        own = in_fresh_process(draw_layered, wide, size)
        total = sum(own.seconds.values())
        each.append(total / own.links)
        yield Row(f"draw/layers/{wide}", total, None, None, None)
    yield Row(
        "draw/growth",
        None,
        None,
        each[-1] / each[-2],
        GROWTH,
        "a link in the last of these to that in the last but one",
    )


@benchmark
def draw_small(times: int = 5, size: int = 2048) -> Generator[Comparison | Row, Row, None]:
    """The README's graph, drawn several times in one process."""
    in_fresh_process(draw_matvec, 1, size)  # so that all kernels are on disk
    begin, *others = in_fresh_process(draw_matvec, times, size)
    again = float(np.median(others))
    yield Row("draw_small", again, None, again / SMALL_SECONDS, 1.0, f"to {SMALL_SECONDS:.0f} s")
    yield Row("draw_small/first", begin, None, begin / SMALL_FIRST_SECONDS, 1.0, f"to {SMALL_FIRST_SECONDS:.0f} s")
